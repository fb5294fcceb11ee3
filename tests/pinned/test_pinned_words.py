"""What people are told of a pinned attempt: in no place that it can be graded, and in each that it was pinned."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from runner.cli import run_command

ROOT = Path(__file__).resolve().parents[2]
FREE, PINNED = "subagent", "pinned-subagent"


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command prints that ends well."""
    assert run_command(list(arguments)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(("name", "pinned"), [(PINNED, True), (FREE, False)])
def test_show_verify_and_list_say_it(
    name: str, pinned: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pinned one is never scored, by each command's words; the same case run free can be graded."""
    path = str(shutil.copy(ROOT / "fixtures" / "attempts" / f"{name}.attempt", tmp_path))
    shown, verified = told(capsys, "show", path), told(capsys, "verify", path)
    (grades,) = [line for line in verified.splitlines() if line.split()[0] == "grades"]
    assert ("can be graded" in shown, "never scored" in shown.splitlines()[0]) == (not pinned, pinned)
    assert ("grades the saved output" in grades, "never scored" in grades) == (not pinned, pinned)
    assert ("measured, pinned" in told(capsys, "list", str(tmp_path))) is pinned
    (row,) = json.loads(told(capsys, "list", "--json", str(tmp_path)))["attempts"]
    assert row["determinism"] == ("pinned" if pinned else "free")
