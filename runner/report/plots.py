"""The geometry of the small plots of a batch page.

Boundary: pure. Not here: colours and markup (templates/).
Rules: numbers go in, rounded coordinates come out, so that equal attempts draw equal plots. An attempt without the value is counted in words, not drawn at zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from runner.report.view import WORDS, Row, Summary, Word

WIDTH = 520
_BASE = 92
_TOP = 6
_MAX_BINS = 40
_GAP = 2
_LEAST = 1e-6


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of the strip, in thousandths of its width."""

    word: Word
    x: str
    width: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One rectangle."""

    word: Word
    x: str
    y: str
    width: str
    height: str


@dataclass(frozen=True, slots=True)
class Plot:
    """A histogram, stacked by verdict."""

    title: str
    told: str
    bars: tuple[Bar, ...]
    ticks: tuple[str, str, str]
    """Labels at the start, the middle and the end of the axis."""
    median_x: str


def strip(summary: Summary) -> tuple[Segment, ...]:
    """Return the segments of the verdict strip, in the order of the counts."""
    at, segments = 0.0, []
    for word, count in summary.counts:
        width = 1000 * count / summary.started if summary.started else 0
        if count:
            segments.append(Segment(word, _coordinate(at), _coordinate(width)))
        at += width
    return tuple(segments)


def histogram(
    title: str, rows: Sequence[Row], value: Callable[[Row], float | None], label: Callable[[float], str]
) -> Plot | None:
    """Return the plot of a value over attempts; None where fewer than two have one."""
    known = [(row.word, number) for row in rows if (number := value(row)) is not None]
    if len(known) < 2:
        return None
    numbers = [number for _, number in known]
    top = _nice(max(numbers))
    bins = min(_MAX_BINS, max(10, 2 * math.isqrt(len(known))))
    counts = [dict.fromkeys(WORDS, 0) for _ in range(bins)]
    for word, number in known:
        counts[min(bins - 1, int(number / top * bins))][word] += 1
    tallest = max(sum(one.values()) for one in counts)
    middle = median(numbers)
    told = f"median {label(middle)}, from {label(min(numbers))} to {label(max(numbers))}, {len(known)} attempts"
    if len(known) < len(rows):
        told += f" ({len(rows) - len(known)} without)"
    ticks = ("0", label(top / 2), label(top))
    return Plot(title, told, tuple(_bars(counts, tallest)), ticks, _coordinate(middle / top * WIDTH))


def _bars(counts: list[dict[Word, int]], tallest: int) -> list[Bar]:
    step, unit, bars = WIDTH / len(counts), (_BASE - _TOP) / tallest, []
    for place, one in enumerate(counts):
        below = 0.0
        for word in WORDS:
            height = one[word] * unit
            if height:
                y = _BASE - below - height
                bars.append(
                    Bar(word, _coordinate(place * step), _coordinate(y), _coordinate(step - _GAP), _coordinate(height))
                )
            below += height
    return bars


def _nice(number: float) -> float:
    """Return 1, 2 or 5 times a power of ten that is not below ``number``; for less than a millionth, a millionth."""
    if number < _LEAST:
        return _LEAST
    power = 10.0 ** math.floor(math.log10(number))
    return next((factor * power for factor in (1, 2, 5) if number <= factor * power), 10 * power)


def _coordinate(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
