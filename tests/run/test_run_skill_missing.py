"""Runs in which the skill under test did not run are errors, never scores (A2–A7; issue 1, acceptance 3)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.run.conftest import FINAL, Place, replies, text, tool

CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]], str, str, str]] = {
    # fixture fields, script, outcome code, skill_state, answer kept
    "no-call": ({}, replies(text()), "skill-absent", "absent", FINAL),
    "wrong-name": ({}, replies(tool("Skill", "toolu_1", skill="nope"), text()), "skill-absent", "absent", FINAL),
    "denied": (
        {"worker": {"settings": {"permissions": {"deny": ["Skill(workflow)"]}}}},
        replies(tool("Skill", "toolu_1", skill="workflow"), text()),
        "skill-failed",
        "failed",
        FINAL,
    ),
    "slash-absent": ({"skill": "ghost", "invocation": "slash"}, replies(text()), "skill-absent", "absent", FINAL),
    "slash-prose": ({"skill": "other", "invocation": "slash"}, replies(text()), "skill-absent", "absent", FINAL),
    "reference-unread": (
        {"skill": "workflow/references/provision.md"},
        replies(text()),
        "skill-absent",
        "absent",
        FINAL,
    ),
    "read-by-hand": (
        {},
        replies(tool("Read", "toolu_1", file_path="/home/eval/.claude/skills/workflow/SKILL.md"), text()),
        "skill-absent",
        "absent",
        FINAL,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_run_without_the_skill_is_an_error_and_its_answer_is_kept_unscored(place: Place, name: str) -> None:
    """Exit 2, the right state, no output, and the answer under unscored_output."""
    fields, rules, code, state, answer = CASES[name]
    place.case(name, rules, **fields)
    done = place.run(name)
    assert done.code == 2, done.stderr
    row = done.row
    assert (row["outcome"]["kind"], row["outcome"]["code"], row["skill_state"]) == ("error", code, state)
    assert (row["verdict"], row["output"], row["unscored_output"]) == ("error", None, answer)
    assert place.hermeval("verify", row["path"]).code == 0


def test_a_skill_that_only_the_model_may_call_is_answered_by_the_cli_itself(place: Place) -> None:
    """A slash call of a skill with ``user-invocable: false`` makes no request: ``local-command``, skill absent, the CLI's words unscored."""
    place.skill("hidden", front="user-invocable: false\n")
    place.case("hidden-slash", replies(text()), skill="hidden", invocation="slash")
    done = place.run("hidden-slash")
    row = done.row
    assert done.code == 2
    assert (row["outcome"]["code"], row["skill_state"], row["requests"]["sent"]) == ("local-command", "absent", 0)
    assert "can only be invoked by Claude" in row["unscored_output"]


def test_the_same_fixtures_measure_where_the_skill_runs(place: Place) -> None:
    """Positive control: with the skill called, slashed, and its reference read, all three forms are measured."""
    place.case("called", replies(tool("Skill", "toolu_1", skill="workflow"), text()))
    place.case("slashed", replies(text()), invocation="slash")
    reference = "/home/eval/.claude/skills/workflow/references/provision.md"
    place.case(
        "read", replies(tool("Read", "toolu_1", file_path=reference), text()), skill="workflow/references/provision.md"
    )
    done = place.run("called", "slashed", "read")
    assert done.code == 0, done.stderr
    assert [row["skill_state"] for row in done.object["attempts"]] == ["ran"] * 3
