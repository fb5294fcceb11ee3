"""Every row of the three expected.json files comes out as stated, whatever the chunking (acceptance 4 and 5)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from runner.claude.transcript import TranscriptParser
from runner.cli.show import judge_transcript

CASES = Path(__file__).resolve().parents[1] / "cases"


def _rows(folder: str) -> dict[str, Any]:
    rows = json.loads((CASES / folder / "expected.json").read_text())
    assert isinstance(rows, dict)
    return rows


BARE = [(folder, name) for folder in ("transcripts", "inputs") for name in _rows(folder)]
WITNESSED = list(_rows("wire")["cases"])
TRANSCRIPTS = sorted(path for folder in ("transcripts", "inputs", "wire") for path in (CASES / folder).glob("*.jsonl"))


def _judge(path: Path, skill: str | None = None, wire: Path | None = None, status: int | None = None) -> dict[str, Any]:
    return judge_transcript(path, skill, wire, status, lambda _: None)


@pytest.mark.parametrize(("folder", "name"), BARE)
def test_a_bare_transcript_gets_the_outcome_of_its_row(folder: str, name: str) -> None:
    """Without a required skill, outcome and code are the row's, and no skill state is claimed."""
    expected = _rows(folder)[name]
    row = _judge(CASES / folder / f"{name}.jsonl", status=expected.get("exit"))
    assert (row["outcome"]["kind"], row["outcome"]["code"]) == (expected["outcome"], expected["code"])
    assert row["skill_state"] is None


@pytest.mark.parametrize(
    ("folder", "name"), [(folder, name) for folder, name in BARE if "skill" in _rows(folder)[name]]
)
def test_a_bare_transcript_allows_the_skill_state_of_its_row(folder: str, name: str) -> None:
    """With the skill required, the state is the row's; every state but ran is an error, and the answer is then unscored (A2, A3)."""
    expected = _rows(folder)[name]
    row = _judge(CASES / folder / f"{name}.jsonl", skill=expected["skill"], status=expected.get("exit"))
    assert row["skill_state"] == expected["skill_state"]
    assert row["witnesses"]["wire"] is None
    if expected["outcome"] == "measured" and expected["skill_state"] != "ran":
        assert row["outcome"]["code"] == f"skill-{expected['skill_state']}"
        assert row["unscored_output"]
        assert row["output"] is None


@pytest.mark.parametrize("name", WITNESSED)
def test_a_transcript_with_its_requests_gets_the_row_of_both_witnesses(name: str) -> None:
    """Outcome, code, state and each witness's word are the row's."""
    expected = _rows("wire")
    if name.startswith("first_party_"):
        transcript, wire = (
            CASES / "transcripts" / f"{name.removeprefix('first_party_')}.jsonl",
            CASES / "wire" / f"{name}.jsonl",
        )
    else:
        transcript, wire = CASES / "wire" / f"wire_{name}.stream.jsonl", CASES / "wire" / f"wire_{name}.jsonl"
    row = _judge(transcript, skill=expected["skill"], wire=wire, status=0)
    found = [
        row["outcome"]["kind"],
        row["outcome"]["code"],
        row["skill_state"],
        row["witnesses"]["transcript"],
        row["witnesses"]["wire"],
    ]
    assert found == expected["cases"][name]


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.name)
def test_chunking_changes_nothing(path: Path) -> None:
    """Chunks of 1, 7 and 65,536 bytes give the facts of the whole file (recorded requests do as odd transcripts too)."""
    data = path.read_bytes()[:60_000]
    whole = TranscriptParser()
    whole.feed(data)
    expected = whole.close()
    for size in (1, 7, 65_536):
        parser = TranscriptParser()
        for start in range(0, len(data), size):
            parser.feed(data[start : start + size])
        assert parser.close() == expected, size


def test_a_good_result_with_a_bad_exit_status_says_both(tmp_path: Path) -> None:
    """P17: result success, exit 1: an error that names both facts; the same bytes with exit 0 are measured."""
    ran = subprocess.run(["/bin/sh", str(CASES / "inputs" / "P17.sh")], capture_output=True, check=False)
    saved = tmp_path / "P17.jsonl"
    saved.write_bytes(ran.stdout)
    row = _judge(saved, status=ran.returncode)
    assert row["outcome"]["code"] == "exit-status"
    assert "success" in row["outcome"]["message"]
    assert "status 1" in row["outcome"]["message"]
    assert row["unscored_output"] == "The reserve is 42 units."
    assert _judge(saved, status=0)["outcome"]["kind"] == "measured"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("P03", "joined lines"),
        ("P11", "unknown event type 'some_future_event' ×1"),
        ("P11", "unknown content block 'future_block' ×1"),
        ("P13", "lone surrogates"),
        ("P13b", "2 undecodable characters"),
        ("P25", "byte-order mark"),
        ("P25", "CR LF"),
        ("P25", "1 blank lines"),
        ("W07", "num_turns is 7"),
        ("W07", "rounds (distinct message ids): 2"),
    ],
)
def test_what_is_odd_about_an_input_is_noted(name: str, words: str) -> None:
    """Each log entry's oddity is said, though it decides nothing."""
    assert any(words in note for note in _judge(CASES / "inputs" / f"{name}.jsonl")["notes"])


def test_usage_is_counted_once_a_message() -> None:
    """P05: three events of one message count once, so that the own sums are the result's, not two to three times as much."""
    parser = TranscriptParser()
    parser.feed((CASES / "inputs" / "P05.jsonl").read_bytes())
    facts = parser.close()
    assert (facts.own_usage.output_tokens, facts.own_usage.input_tokens) == (50, 1050)
    assert facts.own_usage == facts.result_usage


def test_skill_calls_are_told_one_by_one() -> None:
    """S17: asked and loaded, refused, unknown; and a call whose input uses another key names nothing."""
    row = _judge(CASES / "inputs" / "S17.jsonl", skill="ledger-check")
    assert [(call["name"], call["state"]) for call in row["skill_calls"]] == [
        ("ledger-check", "loaded"),
        ("ledger-check", "failed"),
        ("unknown-skill", "failed"),
        (None, "loaded"),
    ]
    assert row["skills_invoked"] == ["ledger-check", "unknown-skill"]
    assert row["skill_call_inputs"][3] == {"command": "ledger-check"}


def test_no_model_is_called_synthetic() -> None:
    """P21: the pseudo-model is no model, and its text is no answer."""
    row = _judge(CASES / "inputs" / "P21.jsonl")
    assert row["models"] == ["claude-test-1"]
    assert row["unscored_output"] == "The reserve is 42 units."
