"""What an evaluation says, as a page shows it.

Boundary: pure. Not here: whole evaluations (saved.py), making them (runner/grade).
Rules: values come from a file and are looked at type by type; a member that is missing or of another kind is shown as not known, never guessed. A check that is not met comes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from runner.report.bounds import Bounds, Excerpt, excerpt

Graded = Literal["pass", "fail", "error"]
GRADED: tuple[Graded, ...] = ("pass", "fail", "error")


@dataclass(frozen=True, slots=True)
class Point:
    """One check or one criterion."""

    id: str
    met: bool | None
    """None where nothing was decided."""
    reason: Excerpt
    asks: Excerpt
    """Of a criterion: its text."""
    by: str = ""
    """Who asked: the profile, or a Promptfoo assertion by its type."""
    votes: tuple[str, ...] = ()
    """Of a criterion on which several judges voted: what each said."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One observation about how the worker called its tools."""

    id: str
    category: str
    severity: str
    reason: Excerpt
    calls: tuple[int, ...]
    """Rows of the tool trace."""


@dataclass(frozen=True, slots=True)
class EvaluationView:
    """One evaluation of one attempt."""

    verdict: Graded
    code: str
    message: str
    hint: str
    checks: tuple[Point, ...]
    checks_met: int
    checks_total: int
    criteria: tuple[Point, ...]
    criteria_met: int
    criteria_total: int
    """Decided ones."""
    judge_lines: tuple[str, ...]
    """Who judged, and by which rule."""
    diagnostics: tuple[Diagnostic, ...]
    call_quality: str
    effort: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, str], ...]
    """What the evaluation was made with."""


def read_points(rows: object, texts: Mapping[str, str], bounds: Bounds) -> tuple[Point, ...]:
    """Return checks or criteria, those that are not met first, each kind in its order. ``texts`` gives the criteria's own words."""
    points = [_point(row, texts, bounds) for row in _rows(rows)]
    return tuple(sorted(points, key=lambda point: (point.met is not False, point.met is True)))


def undecided(texts: Mapping[str, str], bounds: Bounds) -> tuple[Point, ...]:
    """Return a rubric's criteria of which nothing was decided."""
    none = excerpt("", bounds.reason_chars)
    return tuple(
        Point(name, None, none, excerpt(text, bounds.reason_chars))
        for name, text in list(texts.items())[: bounds.checks]
    )


def read_diagnostics(rows: object, bounds: Bounds) -> tuple[Diagnostic, ...]:
    """Return diagnostics, the gravest first."""
    order = {"failure": 0, "warning": 1}
    found = [
        Diagnostic(
            text_of(row.get("id")),
            text_of(row.get("category")),
            text_of(row.get("severity")),
            excerpt(text_of(row.get("reason")), bounds.reason_chars),
            tuple(call for call in _list(row.get("calls")) if type(call) is int)[:50],
        )
        for row in _rows(rows)
    ]
    return tuple(sorted(found, key=lambda item: order.get(item.severity, 2)))[: bounds.checks]


def text_of(value: object) -> str:
    """Return a text, a number or a truth value as text; anything else as nothing."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, (int, float)) else ""


def _point(row: Mapping[str, Any], texts: Mapping[str, str], bounds: Bounds) -> Point:
    name = text_of(row.get("id"))
    met = row.get("met")
    kind, source = text_of(row.get("type")), text_of(row.get("source"))
    return Point(
        id=name,
        met=met if isinstance(met, bool) else None,
        reason=excerpt(text_of(row.get("reason")), bounds.reason_chars),
        asks=excerpt(texts.get(name, ""), bounds.reason_chars),
        by=f"assert: {kind}" if kind else source,
    )


def _rows(value: object) -> list[Mapping[str, Any]]:
    return [row for row in _list(value) if isinstance(row, Mapping)]


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()
