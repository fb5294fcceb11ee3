"""The evaluations beside an attempt: the last one as a page shows it, and the verdicts of the earlier ones.

Boundary: reads evaluation files through runner/grade/evaluation.py. Not here: what its points look like (evaluation.py).
Rules: an evaluation is a claim in a file that anybody can write; it is shown as what it says, and one that contradicts itself is an error. An attempt without one was not graded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.grade.evaluation import read_evaluations
from runner.report.bounds import Bounds
from runner.report.evaluation import (
    GRADED,
    EvaluationView,
    Graded,
    Point,
    read_diagnostics,
    read_points,
    text_of,
    undecided,
)
from runner.report.workspace import mapping

_EFFORT = {
    "turns": "turns",
    "requests": "requests",
    "tool_calls": "tool calls",
    "input_tokens": "input tokens",
    "output_tokens": "output tokens",
    "cache_read_tokens": "cache read tokens",
    "cache_write_tokens": "cache write tokens",
    "cost_usd": "cost in USD",
    "duration_s": "duration in s",
}
_INPUTS = (
    "output_sha256",
    "fixture_sha256",
    "skill_sha256",
    "profile",
    "profile_sha256",
    "modules_sha256",
    "driver_sha256",
)
_MAX_VOTES = 25


@dataclass(frozen=True, slots=True)
class Saved:
    """What lies beside an attempt."""

    latest: EvaluationView | None
    earlier: tuple[tuple[str, str], ...] = ()
    """Of the earlier evaluations: which, and the verdict."""


def find_evaluations(
    path: Path, attempt_id: str, texts: Mapping[str, str], bounds: Bounds, also: Path | None = None
) -> Saved:
    """Return the evaluations of the attempt in ``path``, beside it and then in ``also``. ``texts`` gives its criteria's own words."""
    latest: Mapping[str, Any] | None = None
    verdicts: list[str] = []
    for document in read_evaluations(path, attempt_id, also):
        latest = document
        verdicts.append(text_of(document.get("verdict")) or "none")
    if latest is None:
        return Saved(None)
    earlier = tuple((f"evaluation {number}", verdict) for number, verdict in enumerate(verdicts[:-1], 1))
    return Saved(read_evaluation(latest, texts, bounds), earlier[-bounds.checks :])


def read_evaluation(document: Mapping[str, Any], texts: Mapping[str, str], bounds: Bounds) -> EvaluationView:
    """Return one evaluation as a page shows it."""
    judge = mapping(document.get("judge"))
    checks = read_points(document.get("checks"), {}, bounds)
    decided = _with_votes(read_points(document.get("criteria"), texts, bounds), judge)
    open_ids = {text_of(name) for name in _list(document.get("not_judged"))} - {point.id for point in decided}
    open_texts = {name: text for name, text in texts.items() if name in open_ids}
    criteria = decided + _with_votes(undecided(open_texts, bounds), judge)
    verdict, code, message, hint = _verdict(document, checks, decided)
    return EvaluationView(
        verdict=verdict,
        code=code,
        message=message,
        hint=hint,
        checks=checks[: bounds.checks],
        checks_met=sum(point.met is True for point in checks),
        checks_total=len(checks),
        criteria=criteria[: bounds.checks],
        criteria_met=sum(point.met is True for point in decided),
        criteria_total=len(decided),
        judge_lines=_judge_lines(judge),
        diagnostics=read_diagnostics(document.get("diagnostics"), bounds),
        call_quality=text_of(mapping(document.get("call_quality")).get("status")),
        effort=_effort(mapping(document.get("effort"))),
        facts=_facts(document),
    )


def _verdict(
    document: Mapping[str, Any], checks: tuple[Point, ...], criteria: tuple[Point, ...]
) -> tuple[Graded, str, str, str]:
    """Return verdict, code, message and hint; an evaluation whose points do not give its verdict is an error."""
    said = document.get("verdict")
    verdict: Graded | None = next((word for word in GRADED if word == said), None)
    message, fault = text_of(document.get("message")), mapping(document.get("error"))
    unmet = any(point.met is not True for point in (*checks, *criteria))
    if verdict is None or (verdict != "error" and (unmet != (verdict == "fail") or not checks)):
        wrong = f"the evaluation says {text_of(said) or 'nothing'}, and its checks do not give that"
        return "error", "integrity", wrong, "hermeval replay grades again"
    if verdict == "error":
        return verdict, text_of(fault.get("code")), text_of(fault.get("message")) or message, text_of(fault.get("hint"))
    return verdict, "", message, ""


def _with_votes(points: tuple[Point, ...], judge: Mapping[str, Any]) -> tuple[Point, ...]:
    """Return the criteria with what each of several judges said."""
    votes = [mapping(vote) for vote in _list(judge.get("votes"))[:_MAX_VOTES]]
    if len(votes) < 2:
        return points
    return tuple(_voted(point, votes) for point in points)


def _voted(point: Point, votes: list[Mapping[str, Any]]) -> Point:
    said = []
    for vote in votes:
        found = next((row for row in _list(vote.get("criteria")) if mapping(row).get("id") == point.id), None)
        met = mapping(found).get("met")
        word = "met" if met is True else "not met" if met is False else "no usable answer"
        said.append(f"vote {text_of(vote.get('vote'))}: {word}")
    return Point(point.id, point.met, point.reason, point.asks, point.by, tuple(said))


def _judge_lines(judge: Mapping[str, Any]) -> tuple[str, ...]:
    lines = []
    for vote in [mapping(vote) for vote in _list(judge.get("votes"))[:_MAX_VOTES]]:
        model = mapping(vote.get("model"))
        wire = ", ".join(text_of(name) for name in _list(model.get("wire")))
        fault = mapping(vote.get("error"))
        wrong = f"; {text_of(fault.get('cause'))}: {text_of(fault.get('message'))}" if fault else ""
        kept = text_of(vote.get("judge_attempt_id")) or "not kept"
        lines.append(f"vote {text_of(vote.get('vote'))}: {wire or text_of(model.get('asked'))}, attempt {kept}{wrong}")
    if lines and judge.get("rule_in_words"):
        lines.insert(0, f"{text_of(judge['rule_in_words'])}.")
    disagreements = [text_of(name) for name in _list(judge.get("disagreements"))]
    if disagreements:
        lines.append(f"the votes differ on {', '.join(disagreements)}")
    return tuple(lines)


def _effort(effort: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((title, _number(effort[name])) for name, title in _EFFORT.items() if _number(effort.get(name)))


def _number(value: object) -> str:
    if type(value) is int:
        return f"{value:,}"
    return f"{value:.6f}".rstrip("0").rstrip(".") if isinstance(value, float) else ""


def _facts(document: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return what the evaluation was made with, to compare."""
    grader, inputs = mapping(document.get("grader")), mapping(document.get("inputs"))
    facts = [(name.replace("_", " "), text_of(inputs.get(name))) for name in _INPUTS]
    facts.append(("grader tree (NAR)", text_of(grader.get("nar_sha256"))))
    for name, title in (("promptfoo", "Promptfoo"), ("node", "Node")):
        tool = mapping(grader.get(name))
        facts.append((f"{title} {text_of(tool.get('version'))} (NAR)", text_of(tool.get("nar_sha256"))))
    return tuple((name, value) for name, value in facts if value)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
