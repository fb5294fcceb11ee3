"""One judge's judgement, and what several of them amount to (B12).

Boundary: pure. Not here: reading an answer (judge_answer.py), saved judge attempts (judge_saved.py), the attempt's verdict (the evaluation).
Rules: a judgement has a vote on every criterion or a fault, never both, never neither. A fault of a judge is ``judge-error`` and never a "no" (cases G01, G03). Where there are
several votes the rule in force is said, and so is every disagreement; a majority decides only where that was asked for. A vote with a fault leaves every criterion undecided,
until the same vote of the same judge was asked again and could be read; of readable votes none is ever left out, so that nobody can ask until the answer suits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from runner.grade.judge_answer import CriterionVote

JUDGE_ERROR = "judge-error"

Rule = Literal["unanimous", "majority"]


@dataclass(frozen=True)
class JudgeFault:
    """Why there is no judgement. Its code is ``judge-error`` always; ``cause`` says which."""

    cause: str
    """The judge run's own outcome code (``provider-error``, …), what is wrong with its answer (judge_answer.py), or why there was no run."""
    message: str
    hint: str = ""

    def as_json(self) -> dict[str, str]:
        """Return the fault as it stands in rows and evaluations."""
        return {"code": JUDGE_ERROR, "cause": self.cause, "message": self.message, "hint": self.hint}


@dataclass(frozen=True)
class Judgement:
    """One vote on one output, or the reason why there is none."""

    attempt_id: str
    """Of the worker."""
    output_sha256: str
    vote: int
    model: str
    """The alias or name that was asked for."""
    criteria: tuple[CriterionVote, ...] = ()
    """In the rubric's order; empty where there is a fault."""
    error: JudgeFault | None = None
    models_wire: tuple[str, ...] = ()
    """The models that the recorded requests asked for."""
    raw_answer: str | None = None
    """What the judge said, word for word, also where it could not be read."""
    judge_attempt_id: str | None = None
    """None where no attempt of the judge could be kept."""
    path: str | None = None
    plan_sha256: str | None = None
    cost_usd: float | None = None
    provider: str | None = None
    """Who answered: ``scripted``, ``anthropic`` or ``recorded``, as the judge's plan says; None where there was no plan."""

    def __post_init__(self) -> None:
        """Hold the one rule: votes or a fault."""
        if bool(self.criteria) == (self.error is not None):
            raise ValueError("a judgement has either criteria or a fault")

    def as_json(self) -> dict[str, object]:
        """Return the judgement as it stands in rows and evaluations."""
        return {
            "attempt_id": self.attempt_id,
            "output_sha256": self.output_sha256,
            "vote": self.vote,
            "model": {"asked": self.model, "wire": list(self.models_wire)},
            "provider": self.provider,
            "criteria": [vote.as_json() for vote in self.criteria],
            "error": None if self.error is None else self.error.as_json(),
            "raw_answer": self.raw_answer,
            "judge_attempt_id": self.judge_attempt_id,
            "path": self.path,
            "plan_sha256": self.plan_sha256,
            "cost_usd": self.cost_usd,
        }

    def kept_as(self, attempt_id: str, path: str) -> Judgement:
        """Return the judgement with the place of its own attempt."""
        return replace(self, judge_attempt_id=attempt_id, path=path)


@dataclass(frozen=True)
class CriterionResult:
    """One criterion over all votes."""

    id: str
    met: bool | None
    """None: not decided, a judge-error."""
    reason: str
    votes: tuple[tuple[int, bool], ...] = ()
    """Vote number and what it said, of the votes that could be read."""

    @property
    def disagreed(self) -> bool:
        """Whether the readable votes differ."""
        return len({met for _, met in self.votes}) > 1

    def as_json(self) -> dict[str, object]:
        """Return the criterion as it stands in a row: id, met, reason."""
        return {"id": self.id, "met": self.met, "reason": self.reason}


@dataclass(frozen=True)
class Panel:
    """All votes on one output, and what they amount to."""

    rule: Rule
    judgements: tuple[Judgement, ...]
    criteria: tuple[CriterionResult, ...]

    @property
    def rule_in_words(self) -> str:
        """The rule in force, as a person reads it."""
        count = len(self.judgements)
        if count == 1:
            return "one vote decides"
        return (
            f"all {count} votes must agree" if self.rule == "unanimous" else f"more than half of {count} votes decide"
        )

    @property
    def disagreements(self) -> tuple[str, ...]:
        """The criteria on which votes differ, whatever the rule makes of it."""
        return tuple(result.id for result in self.criteria if result.disagreed)

    @property
    def error(self) -> JudgeFault | None:
        """The fault of the whole, where any criterion is undecided."""
        faults = [(judgement.vote, judgement.error) for judgement in self.judgements if judgement.error is not None]
        if len(self.judgements) == 1 and faults:
            return faults[0][1]
        if faults:
            told = "; ".join(f"vote {vote}: {fault.cause}: {fault.message}" for vote, fault in faults)
            return JudgeFault("vote-failed", told, "judge again; a vote that failed is never left out of the count")
        undecided = [result.id for result in self.criteria if result.met is None]
        if not undecided:
            return None
        hint = "read the reasons; --rule majority lets most votes decide" if self.rule == "unanimous" else "add a vote"
        return JudgeFault(
            "votes-disagree" if self.rule == "unanimous" else "votes-tie",
            f"{self.rule_in_words}, and on {', '.join(undecided)} they do not",
            hint,
        )

    def as_json(self) -> dict[str, object]:
        """Return what stands under ``judge`` in a row."""
        fault = self.error
        known = [judgement.cost_usd for judgement in self.judgements if judgement.cost_usd is not None]
        return {
            "rule": self.rule,
            "rule_in_words": self.rule_in_words,
            "disagreements": list(self.disagreements),
            "error": None if fault is None else fault.as_json(),
            "votes": [judgement.as_json() for judgement in self.judgements],
            "cost_usd": round(sum(known), 6) if known else None,
        }


def tally(ids: Sequence[str], judgements: Sequence[Judgement], rule: Rule = "unanimous") -> Panel:
    """Return what the votes on one output amount to, for the criteria ``ids``.

    Raises: ValueError if there is no judgement, if they are on different outputs, if one stands there twice, or if one is on another rubric: the caller's bug.
    """
    if not judgements:
        raise ValueError("no judgement")
    if len({(judgement.attempt_id, judgement.output_sha256) for judgement in judgements}) != 1:
        raise ValueError("judgements on different outputs")
    if len({(judgement.vote, judgement.judge_attempt_id) for judgement in judgements}) != len(judgements):
        raise ValueError("one judgement twice")
    if any(
        judgement.error is None and [vote.id for vote in judgement.criteria] != list(ids) for judgement in judgements
    ):
        raise ValueError("a judgement on another rubric")
    ordered = tuple(sorted(standing(judgements), key=lambda one: (one.vote, one.judge_attempt_id or "")))
    return Panel(rule, ordered, tuple(_result(name, ordered, rule) for name in ids))


def standing(judgements: Sequence[Judgement]) -> list[Judgement]:
    """Return the judgements that count: all but the faults of votes that the same judge was asked again and that could be read then."""
    read = {(judgement.vote, judgement.model) for judgement in judgements if judgement.error is None}
    return [one for one in judgements if one.error is None or (one.vote, one.model) not in read]


def _result(name: str, judgements: tuple[Judgement, ...], rule: Rule) -> CriterionResult:
    said = [(judgement.vote, vote) for judgement in judgements for vote in judgement.criteria if vote.id == name]
    votes = tuple((number, vote.met) for number, vote in said)
    failed = [judgement for judgement in judgements if judgement.error is not None]
    if failed:
        first = failed[0]
        assert first.error is not None
        which = f"vote {first.vote}: " if len(judgements) > 1 else ""
        return CriterionResult(name, None, f"{JUDGE_ERROR}: {which}{first.error.cause}: {first.error.message}", votes)
    if len(said) == 1:
        return CriterionResult(name, said[0][1].met, said[0][1].reason, votes)
    yes = sum(met for _, met in votes)
    no = len(votes) - yes
    decided = max(yes, no) == len(votes) if rule == "unanimous" else yes != no
    if not decided:
        told = "; ".join(
            f"vote {number} says {'met' if vote.met else 'not met'}: {vote.reason}" for number, vote in said
        )
        return CriterionResult(name, None, f"{JUDGE_ERROR}: votes differ, {yes} met and {no} not: {told}", votes)
    met = yes > no
    reason = next(vote.reason for _, vote in said if vote.met == met)
    return CriterionResult(name, met, f"{max(yes, no)} of {len(votes)} votes: {reason}", votes)
