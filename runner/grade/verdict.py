"""The verdict table: from checks, criteria and diagnostics to pass, fail or error (B9–B11).

Boundary: pure. Not here: where the values come from.
Rules: an error is never counted as a fail, and nothing passes on nothing. The worst wins. A diagnostic of severity ``failure`` must go with a check that is not met: a profile that
says "broken" and "all is well" at once has not graded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from runner.errors import GraderFault
from runner.grade.answers import CheckResult, DiagnosticResult
from runner.grade.assertions import Criterion

VerdictWord = Literal["pass", "fail", "error"]
_GRAVITY = ("info", "warning", "failure")
EXIT_CODES: dict[VerdictWord, int] = {"pass": 0, "fail": 1, "error": 2}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Pass or fail, and why in one sentence."""

    word: Literal["pass", "fail"]
    message: str


def decide(
    checks: Sequence[CheckResult], criteria: Sequence[Criterion], diagnostics: Sequence[DiagnosticResult]
) -> Verdict:
    """Return the verdict over everything that was graded.

    Raises: GraderFault for an empty check list, and for a failure among the diagnostics while every check is met.
    """
    if not checks:
        raise GraderFault("there is no check, so there is nothing to pass")
    unmet = [check.id for check in checks if not check.met]
    failures = [diagnostic.id for diagnostic in diagnostics if diagnostic.severity == "failure"]
    if failures and not unmet:
        raise GraderFault(f"the diagnostic {failures[0]!r} is a failure, and yet every check is met")
    unmet += [criterion.id for criterion in criteria if not criterion.met]
    if unmet:
        return Verdict("fail", f"not met: {', '.join(unmet)}")
    met = f"{len(checks)} checks" + (f" and {len(criteria)} criteria" if criteria else "")
    return Verdict("pass", f"all {met} are met")


def call_quality(diagnostics: Sequence[DiagnosticResult]) -> str:
    """Return ``clean``, or the gravest severity among the diagnostics (B10)."""
    found = [_GRAVITY.index(diagnostic.severity) for diagnostic in diagnostics]
    return _GRAVITY[max(found)] if found else "clean"


def worst(words: Iterable[VerdictWord]) -> VerdictWord:
    """Return the worst of several verdicts; of none, an error: nothing was graded."""
    return max(words, key=lambda word: EXIT_CODES[word], default="error")
