"""Parts of another form than any that was written: an error that names the part, and never an end of the whole command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.bundle.reader import Attempt, open_attempt
from runner.canonical import canonical_json
from runner.claude.canonical_transcript import canonical_events, compare_events
from runner.errors import BundleCorrupt
from runner.reproduce import _stored_output, _stored_workspace, write_tree
from tests.reproduce.conftest import rewrite

COMMITTED = Path(__file__).resolve().parents[2] / "fixtures" / "attempts" / "parallel-tools.attempt"
ODD: list[Any] = [[], {}, "x", None, {"files": None}, {"files": [1]}, {"files": [{"path": ["x"], "executable": True}]}]
ODD_TOO: list[Any] = [{"entries": None}, {"entries": [1]}, {"entries": [{"part": 1}]}, {"entries": [{"part": ["x"]}]}]


def staged(attempt: Attempt, folder: Path) -> None:
    """Write the skill tree."""
    write_tree(attempt, folder / "staged")


def workspace(attempt: Attempt, _: Path) -> None:
    """Read the workspace."""
    _stored_workspace(attempt)


def output(attempt: Attempt, _: Path) -> None:
    """Read the output."""
    _stored_output(attempt)


Read = Callable[[Attempt, Path], None]


@pytest.mark.parametrize(("part", "read"), [("skill-tree.json", staged), ("workspace.json", workspace)])
@pytest.mark.parametrize("value", [*ODD, *ODD_TOO])
def test_an_odd_part_is_named(part: str, read: Read, value: Any, tmp_path: Path) -> None:
    """Whatever JSON stands there, the error is one of the attempt's; the part as it was written is read."""
    attempt = open_attempt(COMMITTED)
    (tmp_path / "good").mkdir()
    read(attempt, tmp_path / "good")
    odd = open_attempt(rewrite(attempt, tmp_path, parts={part: canonical_json(value)}))
    with pytest.raises(BundleCorrupt):
        read(odd, tmp_path)


def test_an_output_that_is_no_text_is_named(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 are an error of the attempt; the written output is read."""
    attempt = open_attempt(COMMITTED)
    output(attempt, tmp_path)
    odd = open_attempt(rewrite(attempt, tmp_path, parts={"output.txt": b"\xff"}))
    with pytest.raises(BundleCorrupt) as caught:
        output(odd, tmp_path)
    assert caught.value.where == "part output.txt"


def test_lines_that_are_no_json_differ_by_every_byte() -> None:
    """A byte that is no text is not the same as four letters that name it; each is the same as itself."""
    odd, spelled = canonical_events(b"a\xff\n"), canonical_events(b"a\\xff\n")
    assert compare_events(odd, odd)[1] is None
    assert compare_events(odd, spelled)[1] is not None
