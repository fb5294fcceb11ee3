"""Attempts as the graders read them: provenance, negative controls, format version 1, and evaluations beside them (B8–B10)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.bundle.reader import open_attempt
from runner.canonical import canonical_json, digest_of, parse_canonical, sha256_hex
from runner.errors import BundleCorrupt, BundleExists, RunnerError, SettingInvalid
from runner.grade.answers import CheckResult
from runner.grade.control import Control, stored_control, write_control
from runner.grade.evaluation import Evaluation, Inputs, evaluation_paths, read_evaluations, save_evaluation
from runner.grade.provenance import REQUIRED
from runner.grade.subject import load_subject
from tests.grade.conftest import ANSWER, INPUT, RUBRIC, Remade, Saved

REASON = "Remove the required role"


def control_of(saved: Saved, directory: Path, *pairs: tuple[str, str]) -> Path:
    attempt = open_attempt(saved.measured)
    directory.mkdir(exist_ok=True)
    return write_control(attempt, ANSWER, pairs or [("auditor", "operator")], REASON, directory / "control.attempt")


def test_a_saved_attempt_is_told_whole(saved: Saved) -> None:
    """Output, texts, tool calls, skill state and effort of a measured attempt are what its records say."""
    subject = load_subject(saved.measured)
    assert subject.output == ANSWER
    assert subject.output_sha256 == sha256_hex(ANSWER.encode())
    assert subject.context["main_texts"] == [ANSWER]
    assert [call["name"] for call in subject.context["tool_calls"]] == ["Skill", "Read"]
    assert (subject.context["skill_state"], subject.context["skills_invoked"]) == ("ran", ["workflow"])
    assert "tool_trace" not in subject.context
    assert subject.effort.turns is not None
    assert subject.effort.duration_s is not None
    assert subject.effort.duration_s > 0


def test_an_attempt_in_error_has_nothing_to_grade(saved: Saved) -> None:
    """An errored attempt keeps its own code, and no output of it reaches a grader."""
    subject = load_subject(saved.errored)
    assert subject.output is None
    assert subject.graded is None
    assert subject.outcome.code == "skill-absent"
    assert subject.row["unscored_output"] == ANSWER


@pytest.mark.parametrize(
    "name", [name for name in REQUIRED if name not in ("plan.json", "exchanges.json")] + ["output.txt"]
)
def test_missing_records_are_named(remade: Remade, name: str) -> None:
    """An attempt without one of its records is not graded, however well its digests add up."""
    load_subject(remade(number=1))
    with pytest.raises(BundleCorrupt) as caught:
        load_subject(remade(parts={name: None}))
    assert caught.value.code == "integrity"
    assert name in caught.value.where


def edited(name: str, change: Callable[[Any], object]) -> Callable[[Remade], Path]:
    def make(remade: Remade) -> Path:
        value: Any = parse_canonical(open_attempt(remade.base).part(name))
        change(value)
        return remade(parts={name: canonical_json(value)})

    return make


def fractional(remade: Remade) -> Path:
    """A plan that no canonical JSON can hold, in a place that the schema leaves open."""
    value: Any = parse_canonical(open_attempt(remade.base).part("plan.json"))
    value["sandbox"]["uid"] = 1000.5
    return remade(parts={"plan.json": json.dumps(value).encode()})


EDITS: dict[str, tuple[Callable[[Remade], Path], str]] = {
    "the exchanges are gone": (lambda remade: remade(keep_exchanges=False), "evidence.json"),
    "the output": (lambda remade: remade(parts={"output.txt": b"auditor: operator"}), "output.txt"),
    "the fixture": (lambda remade: remade(fixture={"profile": "artifact"}, plan=False), "fixture.json"),
    "the transcript": (lambda remade: remade(parts={"transcript.jsonl": b"{}\n"}), "evidence.json"),
    "the recorded hash": (
        edited("evidence.json", lambda value: value["concluded"].update(answer_sha256="0" * 64)),
        "evidence.json",
    ),
    "the recorded outcome": (
        edited("evidence.json", lambda value: value["concluded"].update(skill_state="absent")),
        "evidence.json",
    ),
    "a plan with a fraction": (fractional, "plan.json"),
    "a list of tools": (edited("toolchain.json", lambda value: value.update(agent=["claude"])), "toolchain.json"),
    "the tools": (edited("toolchain.json", lambda value: value.update(system="other-linux")), "toolchain.json"),
    "the skill tree's digest": (
        edited("skill-tree.json", lambda value: value.update(digest="0" * 64)),
        "skill-tree.json",
    ),
    "a skill's digest": (
        edited(
            "skill-tree.json",
            lambda value: (value["files"][0].update(sha256="0" * 64), value.update(digest=digest_of(value["files"]))),
        ),
        "skill-tree.json",
    ),
    "a skill": (
        lambda remade: remade(parts={"skill-tree/workflow/references/provision.md": b"other"}),
        "skill-tree.json",
    ),
    "a control record without its mark": (lambda remade: remade(parts={"control.json": b"{}"}), "control.json"),
}


@pytest.mark.parametrize("name", EDITS)
def test_records_that_contradict_each_other_are_named(remade: Remade, name: str) -> None:
    """An attempt that was rewritten with digests that add up is still found out, by the record that does not agree."""
    make, where = EDITS[name]
    with pytest.raises(BundleCorrupt) as caught:
        load_subject(make(remade))
    assert where in caught.value.where


def test_a_control_is_its_parent_but_for_the_output(saved: Saved, tmp_path: Path) -> None:
    """A negative control holds every part of its parent unchanged, the mutated output, the reason and the parent's output sha256."""
    path = control_of(saved, tmp_path)
    parent, made = open_attempt(saved.measured), open_attempt(path)
    for name in parent.part_names:
        assert (made.part(name) == parent.part(name)) == (name != "output.txt"), name
    control = stored_control(made)
    assert control is not None
    assert (control.reason, control.parent.attempt) == (REASON, parent.id)
    assert control.parent.output_sha256 == sha256_hex(ANSWER.encode())
    subject = load_subject(path)
    assert subject.output == ANSWER.replace("auditor", "operator")
    assert subject.control == {
        "reason": REASON,
        "parent": parent.id,
        "parent_output_sha256": sha256_hex(ANSWER.encode()),
    }
    assert subject.attempt_id != parent.id


@pytest.mark.parametrize(
    ("pairs", "reason", "words"),
    [
        ([("zzz", "x")], REASON, "does not stand"),
        ([("", "x")], REASON, "does not stand"),
        ([("auditor", "auditor")], REASON, "would not change"),
        ([("auditor", "x")], " ", "needs a reason"),
        ([("auditor", "\ud800")], REASON, "cannot be recorded"),
    ],
)
def test_a_control_that_says_nothing_is_not_made(
    saved: Saved, tmp_path: Path, pairs: list[tuple[str, str]], reason: str, words: str
) -> None:
    """A control without a change, without a reason, or that cannot be recorded is refused, and nothing is written."""
    with pytest.raises(SettingInvalid, match=words):
        write_control(open_attempt(saved.measured), ANSWER, pairs, reason, tmp_path / "c.attempt")
    assert list(tmp_path.iterdir()) == []


def test_a_control_overwrites_nothing_and_is_not_mutated_again(saved: Saved, tmp_path: Path) -> None:
    """A control is never written over a file, and no control is made of a control."""
    path = control_of(saved, tmp_path)
    before = path.read_bytes()
    with pytest.raises(BundleExists):
        control_of(saved, tmp_path)
    assert path.read_bytes() == before
    with pytest.raises(SettingInvalid, match="negative control itself"):
        write_control(open_attempt(path), ANSWER, [("a", "b")], REASON, tmp_path / "d.attempt")


CONTROL_EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "the parent's output": lambda control: control["parent"].update(output_sha256="0" * 64),
    "the parent": lambda control: control["parent"].update(attempt="0" * 64),
    "the output's digest": lambda control: control.update(output_sha256="0" * 64),
    "a replacement": lambda control: control["replacements"][0].update(old="role"),
    "a count": lambda control: control["replacements"][0].update(count=2),
    "no replacement": lambda control: control.update(replacements=[]),
    "no reason": lambda control: control.update(reason=""),
    "no parent": lambda control: control.pop("parent"),
    "the program": lambda control: control["parent"].update(created_by={"hermeval": "0"}),
}


@pytest.mark.parametrize("name", CONTROL_EDITS)
def test_corrupt_provenance_of_a_control_is_found(saved: Saved, tmp_path: Path, name: str) -> None:
    """A control whose record names another parent, output, replacement or reason is not graded."""
    path = control_of(saved, tmp_path)
    control: Any = parse_canonical(open_attempt(path).part("control.json"))
    CONTROL_EDITS[name](control)
    rewritten = Remade(path, tmp_path / "again")
    named = {
        "parent": control.get("parent", {}).get("attempt"),
        "parent_output_sha256": control.get("parent", {}).get("output_sha256"),
    }
    summary = {**open_attempt(path).manifest.summary, "negative_control": named}
    load_subject(rewritten(summary=open_attempt(path).manifest.summary))
    with pytest.raises(BundleCorrupt) as caught:
        load_subject(rewritten(parts={"control.json": canonical_json(control)}, summary=summary))
    assert "control.json" in caught.value.where


def test_a_control_without_its_record_or_with_more_changed_is_found(saved: Saved, tmp_path: Path) -> None:
    """A control that lost its record, or in which something else was changed too, is not graded."""
    path = control_of(saved, tmp_path)
    rewritten = Remade(path, tmp_path / "again")
    summary = open_attempt(path).manifest.summary
    with pytest.raises(BundleCorrupt, match="record is missing"):
        load_subject(rewritten(parts={"control.json": None}, summary=summary))
    with pytest.raises(BundleCorrupt, match="more than the output"):
        load_subject(rewritten(number=7, summary=summary))
    with pytest.raises(BundleCorrupt, match="more than the output"):
        load_subject(rewritten(summary={**summary, "cost_usd": "9"}))
    assert Control.model_validate_json(open_attempt(path).part("control.json")).schema_version == 1


def version1(path: Path, **changes: Any) -> Path:
    fixture = {"id": "old-case", "synthetic": True, "skill": "workflow", "input": INPUT, "rubric": RUBRIC}
    digest = sha256_hex(ANSWER.encode())
    value = {
        "format": "hermeval-attempt",
        "format_version": 1,
        "fixture": fixture,
        "output": ANSWER,
        "output_sha256": digest,
        "skill_sha256": {"workflow/SKILL.md": "0" * 64},
        "generation": {"model": "claude-old", "revision": "abc", "output_sha256": digest},
        **changes,
    }
    path.write_text(json.dumps({key: held for key, held in value.items() if held is not None}))
    return path


def test_version_1_stays_readable(tmp_path: Path) -> None:
    """An attempt of version 1, without profile, duration and exchanges, is read; what it does not hold is unknown, and its profile is artifact."""
    subject = load_subject(version1(tmp_path / "old.attempt"))
    assert (subject.format_version, subject.fixture.profile, subject.output) == (1, "artifact", ANSWER)
    assert (subject.effort.duration_s, subject.effort.requests, subject.context) == (None, None, {})
    assert subject.attempt_id == sha256_hex((tmp_path / "old.attempt").read_bytes())
    mutated = ANSWER.replace("auditor", "operator")
    told = {"reason": REASON, "parent_output_sha256": sha256_hex(ANSWER.encode())}
    changes: dict[str, Any] = {
        "output": mutated,
        "output_sha256": sha256_hex(mutated.encode()),
        "negative_control": told,
    }
    assert load_subject(version1(tmp_path / "control.attempt", **changes)).control == told


@pytest.mark.parametrize(
    "changes",
    [
        {"output": "other"},
        {"output_sha256": "0" * 64},
        {"generation": None},
        {"generation": {"model": "m", "revision": "r", "output_sha256": "0" * 64}},
        {
            "generation": {
                "model": "m",
                "revision": "r",
                "output_sha256": sha256_hex(ANSWER.encode()),
                "cost_usd": "free",
            }
        },
        {"skill_sha256": {}},
        {"fixture": None},
        {"fixture": {"id": "old-case"}},
        {"format_version": 3},
        {"format": "other"},
        {"negative_control": {"reason": "x", "parent_output_sha256": sha256_hex(ANSWER.encode())}},
        {"extra": 1},
    ],
)
def test_version_1_with_corrupt_provenance_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    """An attempt of version 1 that lacks a record, or whose digests do not hold, is an error."""
    with pytest.raises(RunnerError):
        load_subject(version1(tmp_path / "old.attempt", **changes))


def evaluation(attempt_id: str = "a" * 64) -> Evaluation:
    inputs = Inputs("0" * 64, "1" * 64, None, "artifact", "2" * 64, "3" * 64, "4" * 64)
    checks = (CheckResult("x\ud800", True, "é\u202e"),)
    return Evaluation(attempt_id, 2, "x", "pass", "all met", inputs, {"promptfoo": {"version": "1"}}, checks)


def test_evaluations_are_never_overwritten(tmp_path: Path) -> None:
    """Each evaluation gets the next number, whole; one that was removed leaves no hole for a later one to slip into the past."""
    attempt = tmp_path / "case-0123456789ab.attempt"
    paths = [save_evaluation(evaluation(), attempt) for _ in range(3)]
    assert [path.name for path in paths] == [f"case-0123456789ab.000{number}.evaluation.json" for number in (1, 2, 3)]
    before = [path.read_bytes() for path in paths[1:]]
    paths[0].unlink()
    assert save_evaluation(evaluation(), attempt).name == "case-0123456789ab.0004.evaluation.json"
    assert [path.read_bytes() for path in paths[1:]] == before
    assert len(evaluation_paths(attempt)) == 3
    assert not list(tmp_path.glob(".*"))


def test_evaluations_are_read_back_by_attempt(tmp_path: Path) -> None:
    """What was saved is read back, as ASCII JSON; files of another attempt and damaged ones are passed over."""
    attempt = tmp_path / "case.attempt"
    first = save_evaluation(evaluation(), attempt)
    save_evaluation(evaluation("b" * 64), attempt)
    (tmp_path / "case.0003.evaluation.json").write_text("{")
    (found,) = read_evaluations(attempt, "a" * 64)
    assert found == json.loads(json.dumps(evaluation().as_json()))
    assert first.read_bytes().isascii()
    assert found["call_quality"] == {"status": "clean"}


def test_an_evaluation_that_cannot_be_saved_is_an_error(tmp_path: Path) -> None:
    """Where the folder is not there nothing is written, and the error says so."""
    with pytest.raises(RunnerError) as caught:
        save_evaluation(evaluation(), tmp_path / "missing" / "case.attempt")
    assert caught.value.code == "bundle-unwritable"
