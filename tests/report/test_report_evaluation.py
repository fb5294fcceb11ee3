"""An evaluation is shown as what it says; the last one counts, and one that contradicts itself is an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.errors import RunnerError
from runner.grade.answers import CheckResult
from runner.report.bounds import WHOLE
from runner.report.pages import attempt_page
from runner.report.saved import read_evaluation
from tests.report.made_attempts import Workshop
from tests.report.page_reader import Page

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
_ROWS = st.lists(st.dictionaries(st.sampled_from(["id", "met", "reason", "calls", "source", "type"]), _JSON) | _JSON)
_MEMBERS = (
    "verdict",
    "message",
    "error",
    "checks",
    "criteria",
    "not_judged",
    "judge",
    "diagnostics",
    "effort",
    "grader",
)


def shown(workshop: Workshop, path: Path) -> str:
    return " ".join(Page("".join(attempt_page(workshop.view(path)))).text.split())


def test_last_evaluation_counts_and_earlier_ones_are_named(workshop: Workshop) -> None:
    """Of two evaluations the later one is the verdict, the earlier one stands in the provenance."""
    path = workshop.attempt()
    workshop.evaluate(path)
    assert workshop.view(path).row.word == "pass"
    workshop.failing(path)
    view = workshop.view(path)
    assert view.row.word == "fail"
    assert view.earlier == (("evaluation 1", "pass"),)
    assert "Earlier evaluations" in shown(workshop, path)


def test_evaluation_of_another_attempt_is_not_taken(workshop: Workshop) -> None:
    """A file beside an attempt that names another attempt says nothing of it; one that names it does."""
    path = workshop.attempt()
    file = workshop.evaluate(path)
    document = json.loads(file.read_text())
    file.write_text(json.dumps({**document, "attempt": "f" * 64}))
    assert workshop.view(path).row.word == "measured"
    file.write_text(json.dumps(document))
    assert workshop.view(path).row.word == "pass"


def _unmet(document: dict[str, Any]) -> None:
    document["checks"][1]["met"] = False


def _empty(document: dict[str, Any]) -> None:
    document["checks"] = []


def _all_met(document: dict[str, Any]) -> None:
    document["verdict"] = "fail"


def _no_word(document: dict[str, Any]) -> None:
    document["verdict"] = "great"


def _undecided(document: dict[str, Any]) -> None:
    document["criteria"][0]["met"] = None


@pytest.mark.parametrize("change", [_unmet, _empty, _all_met, _no_word, _undecided])
def test_evaluation_that_contradicts_itself_is_an_error(
    workshop: Workshop, change: Callable[[dict[str, Any]], None]
) -> None:
    """A pass with an unmet or undecided point or without checks, a fail with none unmet, and an unknown verdict are errors; unchanged it passes."""
    path = workshop.attempt()
    file = workshop.evaluate(path)
    assert workshop.view(path).row.word == "pass"
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))
    view = workshop.view(path)
    assert (view.row.word, view.row.code) == ("error", "integrity")


def test_errored_attempt_stays_an_error_whatever_lies_beside_it(workshop: Workshop) -> None:
    """An evaluation that says pass does not make a run without the skill anything but an error."""
    path = workshop.attempt(skill_ran=False)
    workshop.evaluate(path)
    view = workshop.view(path)
    assert (view.row.word, view.row.code, view.row.measured) == ("error", "skill-absent", False)


def test_grader_error_is_measured_and_says_why(workshop: Workshop) -> None:
    """What could not be graded is an error with its code, message and hint, counts as measured, and shows no check."""
    path = workshop.attempt()
    fault = RunnerError("the profile was too slow", hint="look at it", code="grader-error")
    workshop.evaluate(path, verdict="error", message="x", checks=(), criteria=(), error=fault)
    view = workshop.view(path)
    assert (view.row.word, view.row.code, view.row.measured) == ("error", "grader-error", True)
    text = shown(workshop, path)
    for words in ("the profile was too slow", "look at it", "could not be graded, so no check has a result"):
        assert words in text


def test_unmet_points_come_first_with_their_reasons(workshop: Workshop) -> None:
    """Checks that are not met stand before those that are, each with its reason and, for an assertion, its type."""
    path = workshop.attempt()
    checks = (CheckResult("a", True, "good"), CheckResult("b", False, "bad", "assert", "contains"))
    workshop.evaluate(path, verdict="fail", message="not met: b", checks=checks)
    view = workshop.view(path)
    assert view.evaluation is not None
    assert [point.id for point in view.evaluation.checks] == ["b", "a"]
    assert "assert: contains" in shown(workshop, path)


def test_votes_and_the_rule_are_shown(workshop: Workshop) -> None:
    """With several judges each criterion has every vote, the rule is said, and so is a disagreement."""

    def vote(number: int, met: bool) -> dict[str, Any]:
        criteria = [{"id": "kept", "met": met, "reason": "r"}]
        return {"vote": number, "model": {"asked": "m", "wire": ["m-1"]}, "criteria": criteria, "error": None}

    panel = {
        "rule_in_words": "more than half of 3 votes decide",
        "disagreements": ["kept"],
        "votes": [vote(1, True), vote(2, True), vote(3, False)],
    }
    path = workshop.attempt()
    workshop.evaluate(path, judge=panel)
    text = shown(workshop, path)
    for words in ("vote 1: met", "vote 3: not met", "more than half of 3 votes decide.", "the votes differ on kept"):
        assert words in text


def test_rubric_without_a_judge_is_undecided(workshop: Workshop) -> None:
    """Criteria that no judge decided are shown with their words, as not judged, and never as met."""
    path = workshop.attempt()
    workshop.evaluate(path, criteria=(), not_judged=("kept",))
    view = workshop.view(path)
    assert [(point.id, point.met, point.asks.text) for point in view.rubric] == [
        ("kept", None, "Keeps the account unresolved.")
    ]
    assert view.rubric_told == "not judged"
    assert "undecided" in shown(workshop, path)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(_MEMBERS), _JSON | _ROWS))
def test_any_evaluation_can_be_shown(document: dict[str, Any]) -> None:
    """Whatever JSON object stands in the file, there is a verdict, and it is no pass without a check that is met."""
    view = read_evaluation(document, {"kept": "x"}, WHOLE)
    assert view.verdict in ("pass", "fail", "error")
    assert view.verdict != "pass" or view.checks_met == view.checks_total > 0
