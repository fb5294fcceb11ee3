"""Negative controls of committed attempts, whose records older releases wrote: the parent's bytes are carried over, and nothing bad is left (B9)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.bundle.reader import open_attempt
from runner.bundle.writer import AttemptContent, write_attempt
from runner.cli import run_command
from runner.errors import BundleCorrupt
from runner.grade.control import OUTPUT_PART, write_control
from runner.grade.subject import load_subject

ATTEMPTS = Path(__file__).resolve().parents[2] / "fixtures" / "attempts"


@pytest.mark.parametrize("name", ["command", "mcp", "plain", "subagent", "retried-error"])
def test_a_control_of_a_committed_attempt_is_taken_for_one(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``mutate`` makes a control of what an earlier release recorded: every part but the output has the parent's bytes, and ``verify`` holds it."""
    parent, target = open_attempt(ATTEMPTS / f"{name}.attempt"), tmp_path / "new.attempt"
    letter = next(letter for letter in parent.part(OUTPUT_PART).decode() if letter.isalpha())
    replace = f"{letter}=#"
    code = run_command(["mutate", str(parent.path), "--replace", replace, "--reason", "r", "-o", str(target), "--json"])
    assert (code, json.loads(capsys.readouterr().out)["negative_control"]["parent"]) == (0, parent.id)
    made = open_attempt(target)
    assert {part for part in parent.part_names if made.part(part) != parent.part(part)} == {OUTPUT_PART}
    assert set(made.part_names) - set(parent.part_names) == {"control.json"}
    assert run_command(["verify", str(target)]) == 0
    capsys.readouterr()


def test_what_would_be_no_control_gets_no_name(tmp_path: Path) -> None:
    """A control that is not its parent but for the output is refused before it is written; the same with the parent's own output is made."""
    parent = open_attempt(ATTEMPTS / "mcp.attempt")
    output = parent.part(OUTPUT_PART).decode()
    pair, target = (output[0], "#"), tmp_path / "new.attempt"
    with pytest.raises(BundleCorrupt, match="more than the output differs"):
        write_control(parent, f"{output} and more", [pair], "r", target)
    assert list(tmp_path.iterdir()) == []
    assert load_subject(write_control(parent, output, [pair], "r", target)).control is not None


def test_exchanges_are_given_once_and_whole(tmp_path: Path) -> None:
    """Recorded exchanges beside new ones, or without their index, are a caller's bug; with it they are written as they are."""
    parent = open_attempt(ATTEMPTS / "mcp.attempt")
    recorded = {name: parent.part(name) for name in parent.part_names if name.startswith("exchanges")}
    parts: dict[str, bytes | Path] = {name: parent.part(name) for name in parent.part_names if name not in recorded}
    facts = (parent.manifest.fixture, parent.manifest.summary, parts)
    bodies = {name: data for name, data in recorded.items() if name != "exchanges.json"}
    for content in (
        AttemptContent(*facts, parent.exchanges(), recorded),
        AttemptContent(*facts, recorded=bodies),
    ):
        with pytest.raises(ValueError, match="given once"):
            write_attempt(tmp_path, content)
    assert list(tmp_path.iterdir()) == []
    made = write_attempt(tmp_path, AttemptContent(*facts, recorded=recorded))
    assert open_attempt(made).manifest.parts == parent.manifest.parts
