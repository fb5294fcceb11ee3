"""What a module's page says of other files is where it says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("runner", "sandbox", "profiles")
_NAMED = re.compile(r"(?<![\w./*<{-])(?:[\w-]+/)*[\w-]+\.py\b")


def named_and_unfound(page: str, path: Path) -> tuple[list[str], list[str]]:
    """Return the Python files that the page of the module at ``path`` names, and those of them that are not where a reader looks.

    A reader looks in the module's own folder, in those around it, and beside any file that the page names by its whole path: ``(runner/claude/evidence.py, wire.py)``.
    """
    names = _NAMED.findall(page)
    folders = [folder for folder in path.parents if folder == ROOT or ROOT in folder.parents]
    folders += [(ROOT / name).parent for name in names if (ROOT / name).is_file()]
    return names, [name for name in names if not any((folder / name).is_file() for folder in folders)]


def test_a_page_names_files_that_are_there() -> None:
    """Every Python file in a module's docstring is found by its name; a file that moved takes the pages that name it along."""
    named, unfound = 0, []
    for path in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        page = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        names, missing = named_and_unfound(page, path)
        named += len(names)
        unfound += [f"{path.relative_to(ROOT)}: {name}" for name in missing]
    assert named > 300
    assert unfound == []


def test_a_name_is_looked_for_where_a_reader_would() -> None:
    """Beside the module, above it and beside a whole path it is found; elsewhere, or nowhere, it is not, and what is no plain name is none."""
    path = ROOT / "runner" / "gate" / "upstreams" / "recorded.py"
    page = "scripted.py, policy.py, assess.py, sandbox/spec.py, wire.py, nobody.py, runner/gate/wire.py, <page>.py, *.py, x.pyc"
    names, unfound = named_and_unfound(page, path)
    assert names == page.split(", ")[:7]
    assert unfound == ["wire.py", "nobody.py", "runner/gate/wire.py"]
    assert named_and_unfound(f"runner/claude/evidence.py, {page}", path)[1] == ["nobody.py", "runner/gate/wire.py"]
