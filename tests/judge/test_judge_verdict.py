"""One vote decides, several need a rule, and a fault is never a no (B12, G01, G03)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.grade.judge_answer import CriterionVote
from runner.grade.judge_verdict import JudgeFault, Judgement, Rule, tally

FAULT = JudgeFault("provider-error", "the provider failed", "try again")


def vote(number: int, *met: bool, model: str = "sonnet", attempt: str | None = None) -> Judgement:
    criteria = tuple(CriterionVote(f"c{place}", said, f"Reason {number}.{place}.") for place, said in enumerate(met))
    fault = None if met else FAULT
    return Judgement(
        "a" * 64, "b" * 64, number, model, criteria=criteria, error=fault, cost_usd=0.5, judge_attempt_id=attempt
    )


def test_a_vote_that_failed_may_be_asked_again() -> None:
    """The readable repeat of the same judge's vote takes the fault's place; another judge's does not."""
    failed = vote(1, attempt="0")
    assert tally(["c0"], [failed, vote(1, True, attempt="1")]).criteria[0].met is True
    assert len(tally(["c0"], [failed, vote(1, True, attempt="1")]).judgements) == 1
    assert tally(["c0"], [failed, vote(1, True, attempt="1", model="opus")]).criteria[0].met is None
    assert tally(["c0"], [failed, vote(2, True, attempt="1")]).criteria[0].met is None
    assert len(tally(["c0"], [failed, vote(1, attempt="1")]).judgements) == 2


def test_nobody_can_ask_until_the_answer_suits() -> None:
    """Repeats of a vote that could be read all count: they must agree, or a declared majority of them decides."""
    repeats = [vote(1, False, attempt="0"), vote(1, True, attempt="1")]
    assert tally(["c0"], repeats).criteria[0].met is None
    assert tally(["c0"], [*repeats, vote(1, False, attempt="2")], "majority").criteria[0].met is False
    assert tally(["c0"], repeats).disagreements == ("c0",)


def test_one_vote_decides() -> None:
    """A single vote is taken as it is, with its own reason."""
    panel = tally(["c0", "c1"], [vote(1, True, False)])
    assert [(result.met, result.reason) for result in panel.criteria] == [(True, "Reason 1.0."), (False, "Reason 1.1.")]
    assert (panel.error, panel.disagreements, panel.rule_in_words) == (None, (), "one vote decides")


def test_one_failed_vote_decides_nothing() -> None:
    """A judge's fault leaves every criterion undecided: no boolean anywhere, and the cause in each reason."""
    panel = tally(["c0", "c1"], [vote(1)])
    assert [result.met for result in panel.criteria] == [None, None]
    assert all("provider-error" in result.reason for result in panel.criteria)
    assert panel.error == FAULT
    assert panel.as_json()["error"] == {
        "code": "judge-error",
        "cause": FAULT.cause,
        "message": FAULT.message,
        "hint": FAULT.hint,
    }


@pytest.mark.parametrize(
    ("rule", "votes", "expected"),
    [
        ("unanimous", [True, True, True], True),
        ("unanimous", [False, False], False),
        ("unanimous", [True, True, False], None),
        ("majority", [True, True, False], True),
        ("majority", [False, True, False], False),
        ("majority", [True, False], None),
        ("majority", [True, True, False, False], None),
    ],
)
def test_several_votes_follow_the_declared_rule(rule: Rule, votes: list[bool], expected: bool | None) -> None:
    """All must agree unless a majority was asked for; a tie, or a difference without a rule for it, is a judge-error for that criterion."""
    panel = tally(["c0"], [vote(number + 1, met) for number, met in enumerate(votes)], rule)
    (result,) = panel.criteria
    assert result.met is expected
    assert (panel.error is None) == (expected is not None)
    assert panel.disagreements == (("c0",) if len(set(votes)) > 1 else ())
    assert str(len(votes)) in panel.rule_in_words
    if expected is None:
        assert panel.error is not None
        assert panel.error.cause == ("votes-disagree" if rule == "unanimous" else "votes-tie")
        assert all(f"Reason {number + 1}.0." in result.reason for number in range(len(votes)))


def test_a_disagreement_on_one_criterion_leaves_the_others_decided() -> None:
    """Only the criterion on which votes differ is undecided; the whole is a judge-error that names it."""
    panel = tally(["c0", "c1"], [vote(1, True, True), vote(2, True, False)])
    assert [result.met for result in panel.criteria] == [True, None]
    assert panel.disagreements == ("c1",)
    assert panel.error is not None
    assert "c1" in panel.error.message
    assert "c0" not in panel.error.message


def test_a_disagreement_that_a_majority_settled_is_still_shown() -> None:
    """The minority is named although the criterion is decided, and its reason is kept with its vote."""
    panel = tally(["c0"], [vote(1, True), vote(2, False), vote(3, True)], "majority")
    assert panel.error is None
    assert panel.disagreements == ("c0",)
    assert panel.criteria[0].reason == "2 of 3 votes: Reason 1.0."
    assert panel.criteria[0].votes == ((1, True), (2, False), (3, True))


@pytest.mark.parametrize("rule", ["unanimous", "majority"])
def test_a_failed_vote_is_never_left_out_of_the_count(rule: Rule) -> None:
    """Two good votes and one that failed decide nothing, whatever the rule."""
    panel = tally(["c0"], [vote(1, True), vote(2), vote(3, True)], rule)
    assert panel.criteria[0].met is None
    assert panel.criteria[0].votes == ((1, True), (3, True))
    assert panel.error is not None
    assert panel.error.cause == "vote-failed"
    assert "vote 2: provider-error" in panel.error.message


def test_the_row_holds_every_vote_and_what_they_cost() -> None:
    """Votes stand in a row by number, whatever order they came in, with the sum of their costs."""
    shown = tally(["c0"], [vote(2, True), vote(1, True)]).as_json()
    assert isinstance(shown["votes"], list)
    assert [entry["vote"] for entry in shown["votes"]] == [1, 2]
    assert shown["cost_usd"] == 1.0


def test_mixed_up_judgements_are_refused() -> None:
    """Votes on different outputs, two of one number, one on another rubric, or none at all are the caller's bug."""
    said = (CriterionVote("c0", True, "x"),)
    of_another_attempt = Judgement("c" * 64, "b" * 64, 2, "sonnet", criteria=said)
    on_another_output = Judgement("a" * 64, "c" * 64, 2, "sonnet", criteria=said)
    for wrong in (
        [],
        [vote(1, True), of_another_attempt],
        [vote(1, True), on_another_output],
        [vote(1, True), vote(1, True)],
        [vote(1, True, True)],
    ):
        with pytest.raises(ValueError, match="judgement"):
            tally(["c0"], wrong)
    assert tally(["c0"], [vote(1, True), vote(2, True)]).error is None
    assert tally(["c0", "c1"], [vote(1, True, True)]).error is None
    with pytest.raises(ValueError, match="another rubric"):
        tally(["c1", "c0"], [vote(1, True, True)])


@pytest.mark.parametrize("both", [True, False])
def test_a_judgement_is_votes_or_a_fault(both: bool) -> None:
    """There is no judgement with both and none with neither."""
    with pytest.raises(ValueError, match="either"):
        Judgement(
            "a",
            "b",
            1,
            "sonnet",
            criteria=(CriterionVote("c0", True, "x"),) if both else (),
            error=FAULT if both else None,
        )


@given(st.lists(st.booleans() | st.none(), min_size=1, max_size=7), st.sampled_from(["unanimous", "majority"]))
def test_a_decided_criterion_was_said_by_most_votes_and_none_failed(said: list[bool | None], rule: Rule) -> None:
    """Whatever the votes, a boolean comes out only where every vote was readable and more than half (or all) said it."""
    panel = tally(["c0"], [vote(number + 1, *([] if met is None else [met])) for number, met in enumerate(said)], rule)
    met = panel.criteria[0].met
    if met is None:
        assert panel.error is not None
        return
    assert panel.error is None
    assert None not in said
    assert said.count(met) == len(said) if rule == "unanimous" else said.count(met) * 2 > len(said)
