"""Which checks Promptfoo is asked for, and what its answers amount to (B10).

Boundary: pure. Not here: asking (promptfoo.py), the program that runs them (driver.mjs), which types a fixture may list (runner/envelope.py).
Rules: every check is named, and comes back by name: a missing, an extra or a renamed one is a GraderFault of the attempt, and so is one that threw, one without a verdict, one that
says something else than the value it was given, and one that passes on nothing. A negative check over a blank answer counts for nothing and is not met (G07).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from runner.envelope import Assertion, Fixture
from runner.errors import GraderFault
from runner.grade.answers import MAX_REASON, CheckResult

Group = Literal["profile", "assert", "criterion"]
_ON_TRACE = ("skill-used", "trajectory:", "trace-", "cost", "latency", "finish-reason")
_NOTHING_SEEN = "No spans found matching pattern"


@dataclass(frozen=True, slots=True)
class Criterion:
    """A criterion that our judge decided."""

    id: str
    text: str
    met: bool
    reason: str

    def as_json(self) -> dict[str, Any]:
        """Return the criterion as it stands in rows and evaluations."""
        return {"id": self.id, "met": self.met, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Asked:
    """One check that Promptfoo is asked for."""

    group: Group
    id: str
    question: Mapping[str, Any]
    """As the driver reads it."""
    expected: bool | None = None
    """What must come back, where the value was computed beforehand."""
    assertion: Assertion | None = None


def ask(checks: Sequence[CheckResult], fixture: Fixture, criteria: Sequence[Criterion]) -> tuple[Asked, ...]:
    """Return what to ask: the profile's checks, the fixture's own, and the judged criteria, in this order.

    An ``llm-rubric`` check of a criterion that no judge decided is left out, as that criterion is (``unjudged`` names it).
    Raises: GraderFault where two checks have one name.
    """
    judged = {criterion.id: criterion for criterion in criteria}
    asked = [_profile_check(check) for check in checks]
    for number, assertion in enumerate(fixture.assertions):
        found = _listed_check(fixture, number, assertion, judged)
        if found is not None:
            asked.append(found)
    names = [one.id for one in asked]
    for name in names:
        if names.count(name) > 1:
            raise GraderFault(f"two checks have the name {name!r}: a metric of the fixture and a check of its profile")
    return (*asked, *(_criterion_check("criterion", criterion.id, criterion) for criterion in criteria))


def unjudged(fixture: Fixture, criteria: Sequence[Criterion]) -> tuple[str, ...]:
    """Return the ids of the rubric's criteria that no judge decided."""
    judged = {criterion.id for criterion in criteria}
    return tuple(line.id for line in fixture.rubric if line.id not in judged)


def read_results(
    asked: Sequence[Asked], results: object, *, blank: bool
) -> tuple[tuple[CheckResult, ...], tuple[Criterion, ...]]:
    """Return the checks and the criteria as Promptfoo gives them back, in the order in which they were asked for.

    ``blank`` says that the answer holds no text. Raises: GraderFault with the reason.
    """
    if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
        raise GraderFault("Promptfoo's results are no list of objects")
    wanted = [(one.group, one.id) for one in asked]
    got = [(result.get("group"), result.get("id")) for result in results]
    if got != wanted:
        missing = [name for name in wanted if name not in got]
        extra = [name for name in got if name not in wanted]
        raise GraderFault(
            f"{len(wanted)} checks were asked for and {len(got)} came back; missing {missing[:5]}, extra {extra[:5]}"
        )
    checks: list[CheckResult] = []
    criteria: list[Criterion] = []
    for one, result in zip(asked, results, strict=True):
        met, reason = _verdict(one, result, blank)
        if one.group == "criterion":
            criteria.append(Criterion(one.id, str(one.question["criterion"]), met, reason))
        else:
            kind = one.assertion.type if one.assertion is not None else ""
            checks.append(CheckResult(one.id, met, reason, "profile" if one.group == "profile" else "assert", kind))
    return tuple(checks), tuple(criteria)


def has_code(fixture: Fixture) -> bool:
    """Whether a fixture lists code to be run: its attempts are then graded in a process of their own, since code could answer for others."""
    return any(assertion.base_type == "javascript" for assertion in fixture.assertions)


def _profile_check(check: CheckResult) -> Asked:
    question = {"group": "profile", "id": check.id, "met": check.met, "reason": check.reason}
    return Asked("profile", check.id, question, expected=check.met)


def _listed_check(fixture: Fixture, number: int, assertion: Assertion, judged: Mapping[str, Criterion]) -> Asked | None:
    name = fixture.assertion_id(number)
    if assertion.base_type == "llm-rubric":
        line = fixture.criterion_of(assertion)
        criterion = judged.get(line.id) if line is not None else None
        return None if criterion is None else _criterion_check("assert", name, criterion, assertion)
    given = {"type": assertion.type, "value": assertion.value, "threshold": assertion.threshold}
    question = {
        "group": "assert",
        "id": name,
        "assertion": {key: value for key, value in given.items() if value is not None},
    }
    return Asked("assert", name, question, assertion=assertion)


def _criterion_check(group: Group, name: str, criterion: Criterion, assertion: Assertion | None = None) -> Asked:
    kind = assertion.type if assertion is not None else "llm-rubric"
    question = {
        "group": group,
        "id": name,
        "type": kind,
        "criterion": criterion.text,
        "met": criterion.met,
        "reason": criterion.reason,
    }
    negated = assertion is not None and assertion.negated
    return Asked(group, name, question, expected=criterion.met != negated, assertion=assertion)


def _word(met: bool) -> str:
    return "met" if met else "not met"


def _verdict(one: Asked, result: Mapping[str, Any], blank: bool) -> tuple[bool, str]:
    where = f"check {one.id!r}"
    if "fault" in result:
        raise GraderFault(f"{where} could not be carried out: {str(result['fault'])[:MAX_REASON]}")
    met, reason = result.get("pass"), result.get("reason")
    if not isinstance(met, bool) or not isinstance(reason, str):
        raise GraderFault(f"{where} came back without a verdict")
    if one.expected is not None and met is not one.expected:
        raise GraderFault(f"{where} was given as {_word(one.expected)} and came back as {_word(met)}")
    if met and reason.startswith(_NOTHING_SEEN):
        raise GraderFault(f"{where} passed on nothing: {reason[:200]}")
    if (
        blank
        and met
        and one.assertion is not None
        and one.assertion.negated
        and not one.assertion.base_type.startswith(_ON_TRACE)
    ):
        return False, "The answer is blank, and a negative check counts only over an answer"
    return met, reason[:MAX_REASON] or "no reason was given"
