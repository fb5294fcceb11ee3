"""What says of itself that it is pure is held to it by the import contract."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_every_module_that_says_it_is_pure_is_in_the_contract() -> None:
    """A package's own page is covered by its modules; profiles are one entry. The contract itself is checked by ci/test."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (listed,) = (set(contract["source_modules"]) for contract in contracts if contract["type"] == "forbidden")
    pure = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for room in ("runner", "sandbox")
        for path in (ROOT / room).rglob("*.py")
        if path.name != "__init__.py" and "\nBoundary: pure" in path.read_text(encoding="utf-8")
    }
    assert len(pure) > 90
    assert pure <= listed
