"""The pure half of grading: answers, what Promptfoo is asked, what comes back, the verdict table."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.errors import GraderFault
from runner.fixture import Fixture, parse_fixture
from runner.grade.answers import CheckResult, DiagnosticResult, ProfileAnswer, parse_answer
from runner.grade.assertions import Criterion, ask, has_code, read_results, unjudged
from runner.grade.verdict import EXIT_CODES, VerdictWord, call_quality, decide, worst

MET, UNMET = CheckResult("a", True, "yes"), CheckResult("b", False, "no")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["id", "met", "reason", "type", "x"]), inner)
    ),
    max_leaves=12,
)


def fixture(*assertions: dict[str, Any]) -> Fixture:
    case: dict[str, Any] = {
        "id": "x",
        "synthetic": True,
        "profile": "artifact",
        "skill": "cf",
        "input": {},
        "rubric": [{"id": "polite", "criterion": "Is polite."}, {"id": "short", "criterion": "Is short."}],
    }
    return parse_fixture(json.dumps({**case, "assert": assertions} if assertions else case).encode(), "x")


def diagnostic(severity: Any, name: str = "d") -> DiagnosticResult:
    return DiagnosticResult(name, "call-recovery", severity, "why")


@pytest.mark.parametrize(
    ("checks", "criteria", "word"),
    [
        ([MET], [], "pass"),
        ([MET], [True], "pass"),
        ([MET, UNMET], [], "fail"),
        ([MET], [False], "fail"),
        ([UNMET], [True, False], "fail"),
    ],
)
def test_verdict_table(checks: list[CheckResult], criteria: list[bool], word: str) -> None:
    """All met is a pass; any check or criterion that is not met is a fail, and is named."""
    judged = [Criterion(f"c{number}", "text", met, "why") for number, met in enumerate(criteria)]
    verdict = decide(checks, judged, [])
    assert verdict.word == word
    unmet = [check.id for check in checks if not check.met] + [one.id for one in judged if not one.met]
    assert all(name in verdict.message for name in unmet)


def test_nothing_passes_on_nothing() -> None:
    """An empty check list gives no verdict, whatever the criteria say."""
    with pytest.raises(GraderFault, match="no check"):
        decide([], [Criterion("c", "t", True, "w")], [])


def test_failure_needs_a_check_that_is_not_met() -> None:
    """A diagnostic of severity failure while every check is met contradicts itself; beside an unmet check it is fine (B10)."""
    with pytest.raises(GraderFault, match="'d' is a failure"):
        decide([MET], [], [diagnostic("failure")])
    with pytest.raises(GraderFault, match="'d' is a failure"):
        decide([MET], [Criterion("c", "t", False, "w")], [diagnostic("failure")])
    assert decide([MET, UNMET], [], [diagnostic("failure")]).word == "fail"
    assert decide([MET], [], [diagnostic("warning")]).word == "pass"


def test_call_quality_is_the_gravest_severity() -> None:
    """Without diagnostics the call quality is clean; else the gravest of them."""
    assert call_quality([]) == "clean"
    assert call_quality([diagnostic("info")]) == "info"
    assert call_quality([diagnostic("warning"), diagnostic("info", "e")]) == "warning"
    assert call_quality([diagnostic("info"), diagnostic("failure", "e")]) == "failure"


@given(st.lists(st.sampled_from(["pass", "fail", "error"])))
def test_worst_verdict_wins(words: list[VerdictWord]) -> None:
    """The worst of several verdicts decides the exit code; of none it is an error."""
    assert EXIT_CODES[worst(words)] == (max(EXIT_CODES[word] for word in words) if words else 2)


@given(JSON)
@settings(max_examples=300)
def test_any_answer_gives_checks_or_a_fault(value: Any) -> None:
    """Whatever a profile host says, the result is well-formed checks or a GraderFault with a reason."""
    for answer in (value, {"checks": value, "diagnostics": None, "repeatable": True}):
        try:
            found = parse_answer(answer, trace_length=3)
        except GraderFault:
            continue
        assert found.checks
        assert len({check.id for check in found.checks}) == len(found.checks)
        assert all(check.reason.strip() for check in found.checks)


def test_answer_as_the_host_gives_it() -> None:
    """A whole answer comes out as values; one that is not repeatable, or has other members, does not."""
    whole: dict[str, Any] = {
        "checks": [{"id": "a", "met": True, "reason": "yes"}],
        "diagnostics": [{"id": "d", "category": "expected-error", "severity": "info", "reason": "w", "calls": [0, 2]}],
        "repeatable": True,
    }
    assert parse_answer(whole, trace_length=3) == ProfileAnswer(
        (MET,), (DiagnosticResult("d", "expected-error", "info", "w", (0, 2)),)
    )
    for broken in (
        {**whole, "repeatable": 1},
        {**whole, "more": 1},
        {"checks": whole["checks"]},
        {**whole, "diagnostics": [1]},
    ):
        with pytest.raises(GraderFault):
            parse_answer(broken, trace_length=3)


def answered(asked: Any, **changes: Any) -> list[dict[str, Any]]:
    return [
        {
            "group": one.group,
            "id": one.id,
            "type": "t",
            "pass": one.expected is not False,
            "score": 1,
            "reason": "r",
            **changes,
        }
        for one in asked
    ]


def test_every_check_comes_back_by_name() -> None:
    """Profile checks, listed checks and judged criteria are asked for in order and come back under their names."""
    case = fixture({"type": "contains", "value": "x"}, {"type": "llm-rubric", "value": "short", "metric": "m"})
    asked = ask([MET, UNMET], case, [Criterion("short", "Is short.", True, "w")])
    assert [(one.group, one.id) for one in asked] == [
        ("profile", "a"),
        ("profile", "b"),
        ("assert", "assert-1-contains"),
        ("assert", "m"),
        ("criterion", "short"),
    ]
    checks, criteria = read_results(asked, answered(asked), blank=False)
    assert [(one.id, one.met, one.source, one.kind) for one in checks] == [
        ("a", True, "profile", ""),
        ("b", False, "profile", ""),
        ("assert-1-contains", True, "assert", "contains"),
        ("m", True, "assert", "llm-rubric"),
    ]
    assert [(one.id, one.text, one.met) for one in criteria] == [("short", "Is short.", True)]
    assert unjudged(case, criteria) == ("polite",)


def test_unjudged_rubric_check_is_left_out() -> None:
    """An llm-rubric check of a criterion that no judge decided is not asked for, and the criterion is named as not judged."""
    case = fixture({"type": "llm-rubric", "value": "short"})
    assert [one.id for one in ask([MET], case, ())] == ["a"]
    assert unjudged(case, ()) == ("polite", "short")


def test_names_are_not_shared() -> None:
    """A metric of the fixture with the name of a profile check would hide one of them."""
    with pytest.raises(GraderFault, match="two checks have the name 'a'"):
        ask([MET], fixture({"type": "contains", "value": "x", "metric": "a"}), ())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda rows: rows[:-1], "2 checks were asked for and 1 came back"),
        (lambda rows: [*rows, rows[0]], "2 checks were asked for and 3 came back"),
        (lambda rows: rows[::-1], "asked for"),
        (lambda rows: [{**rows[0], "id": "z"}, rows[1]], "asked for"),
        (lambda rows: [rows[0], {**rows[1], "group": "criterion"}], "asked for"),
        (lambda rows: [], "came back"),
        (lambda rows: None, "no list"),
        (lambda rows: [1, 2], "no list of objects"),
        (lambda rows: [rows[0], {**rows[1], "pass": "true"}], "without a verdict"),
        (lambda rows: [rows[0], {**rows[1], "pass": None}], "without a verdict"),
        (lambda rows: [rows[0], {**rows[1], "reason": None}], "without a verdict"),
        (lambda rows: [{**rows[0], "pass": False}, rows[1]], "was given as met and came back as not met"),
        (
            lambda rows: [rows[0], {"group": "assert", "id": rows[1]["id"], "fault": "boom"}],
            "could not be carried out: boom",
        ),
        (lambda rows: [rows[0], {**rows[1], "reason": 'No spans found matching pattern "*"'}], "passed on nothing"),
    ],
)
def test_results_that_do_not_fit_are_a_fault(change: Any, reason: str) -> None:
    """A missing, extra, renamed, vacuous, thrown or contradicting result is a fault; the same results unchanged are fine."""
    asked = ask([MET], fixture({"type": "contains", "value": "x"}), ())
    read_results(asked, answered(asked), blank=False)
    with pytest.raises(GraderFault) as caught:
        read_results(asked, change(answered(asked)), blank=False)
    assert reason in caught.value.message


@pytest.mark.parametrize("given", [MET, UNMET])
def test_a_check_never_comes_back_as_the_other_word(given: CheckResult) -> None:
    """What the profile found met stays met and what it found not met stays so; the other word is a fault either way."""
    asked = ask([given], fixture(), ())
    ((check,), _) = read_results(asked, answered(asked), blank=False)
    assert check.met is given.met
    words = ("met", "not met") if given.met else ("not met", "met")
    with pytest.raises(GraderFault, match=f"was given as {words[0]} and came back as {words[1]}$"):
        read_results(asked, answered(asked, **{"pass": not given.met}), blank=False)


@pytest.mark.parametrize(("kind", "comes_back"), [("llm-rubric", True), ("not-llm-rubric", False)])
def test_a_negated_rubric_check_comes_back_as_the_opposite(kind: str, comes_back: bool) -> None:
    """The judge found the criterion met: the check is met, and the negated check is not; the criterion itself is met beside both."""
    asked = ask((), fixture({"type": kind, "value": "short"}), [Criterion("short", "Is short.", True, "w")])
    assert [one.expected for one in asked] == [comes_back, True]
    ((check,), (criterion,)) = read_results(asked, answered(asked), blank=False)
    assert (check.met, criterion.met) == (comes_back, True)


@given(JSON)
def test_any_results_give_values_or_a_fault(value: Any) -> None:
    """Whatever Promptfoo's program says, nothing but a GraderFault is raised."""
    asked = ask([MET], fixture({"type": "contains", "value": "x"}), ())
    for results in (value, [value, value]):
        with pytest.raises(GraderFault):
            read_results(asked, results, blank=False)


def test_code_is_known() -> None:
    """A fixture with javascript, negated or not, has code of its own; one without has none."""
    assert has_code(fixture({"type": "not-javascript", "value": "true"}))
    assert not has_code(fixture({"type": "contains", "value": "x"}))
    assert not has_code(fixture())
