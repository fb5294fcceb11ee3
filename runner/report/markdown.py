"""A batch as Markdown for a step summary: the counts, a table, and what is wrong with whatever did not pass (E5).

Boundary: pure. Not here: HTML (pages.py), where the text is written (runner/cli/report.py).
Rules: foreign text stands in code spans only, one line each, in which Markdown, HTML, links, images and mentions mean nothing; the span's fence is longer than any run of backticks
inside. Table cells hold numbers and plain words, since a table splits at a pipe before it looks at code. A workflow's commands (``::…::`` and ``##[…]``) are broken up wherever
they stand, for a summary may be printed to a log. The whole is bounded; what is left out is counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from runner.report.bounds import Excerpt, seconds_text
from runner.report.evaluation import Point
from runner.report.view import LABELS, AttemptView, Row, Word, summarize
from runner.text import visible

MAX_BYTES = 512 << 10
"""Half of what a step summary may hold."""
_MAX_ROWS = 1_000
_MAX_DETAILS = 50
_MAX_POINTS = 10
_SPAN_CHARS = 300
_MARKS: dict[Word, str] = {"pass": "✅", "fail": "❌", "error": "⚠️", "measured": "➖"}
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,127}\Z")
_TICKS = re.compile(r"`+")


@dataclass(slots=True)
class _Kept:
    """What is kept of a batch while it is read."""

    rows: list[Row] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    without_details: int = 0


def code_span(text: str) -> str:
    r"""Return foreign text as a code span on one line: control characters escaped, cut, and without the marks of a workflow command (``:\x3a``, ``#\x23``)."""
    shown = text if len(text) <= _SPAN_CHARS else text[:_SPAN_CHARS]
    line = visible(shown).replace("::", ":\\x3a").replace("##", "#\\x23")
    if len(shown) < len(text):
        line += f"… ({len(text):,} characters)"
    if not line.strip():
        return "(blank)" if line else "(empty)"
    fence = "`" * (1 + max((len(run) for run in _TICKS.findall(line)), default=0))
    pad = " " if line[0] in "` " or line[-1] in "` " else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def plain_word(text: str) -> str:
    """Return a short word of ours (an id, a state, a code) for a table cell; anything that could be more than a word is a question mark."""
    if not text:
        return "–"
    return text if _PLAIN.match(text) and ".." not in text and not text.lower().startswith("www.") else "?"


def batch_markdown(views: Iterable[AttemptView]) -> Iterator[str]:
    """Yield the Markdown of a batch, line by line. Views are taken one at a time and not kept."""
    kept = _Kept()
    for view in views:
        kept.rows.append(view.row)
        if view.row.word in ("fail", "error") or (view.row.word == "measured" and view.row.kind == "worker"):
            if len(kept.details) < _MAX_DETAILS:
                kept.details.append("".join(f"{line}\n" for line in _detail(view)))
            else:
                kept.without_details += 1
    yield from _bounded(kept)


def _bounded(kept: _Kept) -> Iterator[str]:
    size = 0
    for line in _head(kept.rows):
        size += len(line.encode())
        yield line
    left_out = 0
    for row in kept.rows:
        line = _row(row)
        if row.number > _MAX_ROWS or size + len(line.encode()) > MAX_BYTES // 2:
            left_out += 1
            continue
        size += len(line.encode())
        yield line
    if left_out:
        yield f"\n{left_out} more attempts are not shown here.\n"
    for detail in kept.details:
        if size + len(detail.encode()) > MAX_BYTES:
            kept.without_details += 1
            continue
        size += len(detail.encode())
        yield f"\n{detail}"
    if kept.without_details:
        yield f"\n{kept.without_details} more attempts that did not pass are told in the table only.\n"


def _head(rows: list[Row]) -> Iterator[str]:
    summary = summarize(rows)
    yield f"### hermeval: {summary.passed} passed / {summary.measured} measured / {summary.started} started\n\n"
    counts = (f"{_MARKS[word]} {LABELS[word].lower()} {count}" for word, count in summary.counts if count)
    yield f"{', '.join(counts) or 'no attempts'}. An error could not be measured; it is not a fail.\n\n"
    judges = len(rows) - summary.started
    if judges:
        yield f"{judges} judge run{'' if judges == 1 else 's'} listed and not counted.\n\n"
    yield "| # | verdict | fixture | attempt | skill | checks | rubric | USD | time |\n"
    yield "| --: | :-- | :-- | :-- | :-- | --: | --: | --: | --: |\n"


def _row(row: Row) -> str:
    word = f"{_MARKS[row.word]} {row.label.lower()}"
    if row.code:
        word += f" {plain_word(row.code)}"
    if row.kind == "judge":
        word += " (judge)"
    word += "".join(f" ({tag})" for tag in row.tags)
    cells = (
        str(row.number),
        word,
        plain_word(row.fixture),
        plain_word(row.id[:12]),
        plain_word(row.skill_state),
        _share(row.checks_met, row.checks_total),
        _share(row.criteria_met, row.criteria_total),
        "–" if row.cost_usd is None else f"{row.cost_usd:.4f}",
        "–" if row.duration_s is None else seconds_text(row.duration_s),
    )
    return f"| {' | '.join(cells)} |\n"


def _share(met: int | None, total: int | None) -> str:
    return f"{met}/{total}" if total else "–"


def _detail(view: AttemptView) -> Iterator[str]:
    row = view.row
    name = plain_word(row.fixture) if row.fixture else code_span(row.name)
    yield f"**{row.number}. {name}**: {LABELS[row.word].lower()}{f' {plain_word(row.code)}' if row.code else ''}"
    yield ""
    if row.word == "error":
        yield f"- {_span(view.message)}"
    if view.control is not None:
        yield f"- a negative control, changed on purpose: {_span(view.control.reason)}"
    if view.hint:
        yield f"- what to do: {code_span(view.hint)}"
    points: tuple[Point, ...] = () if view.evaluation is None else (*view.evaluation.checks, *view.evaluation.criteria)
    unmet = [point for point in points if point.met is False]
    for point in unmet[:_MAX_POINTS]:
        yield f"- not met: {code_span(point.id)}{f': {_span(point.reason)}' if point.reason else ''}"
    if len(unmet) > _MAX_POINTS:
        yield f"- {len(unmet) - _MAX_POINTS} more points are not met"
    if row.word == "measured":
        yield "- no evaluation lies beside it"


def _span(text: Excerpt) -> str:
    """Return an excerpt as a code span that says the whole's size, also where it was cut before."""
    span = code_span(text.text)
    return f"{span} ({text.cut})" if text.cut else span
