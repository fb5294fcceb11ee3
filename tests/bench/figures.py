"""Interleaved timing of two or more variants, and the table that is printed from it.

Rules: figures are medians of interleaved runs in one process (A B A B …), so that a drifting machine shifts both sides; a benchmark states its aim and
prints whether it was met, and never fails because of a time. Ratios of the fastest runs stand beside: on a busy machine they say more.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Timed = Callable[[], float | None]
"""Does the work once. Returns its own measure in seconds, or None to be timed from outside."""


@dataclass(frozen=True)
class Figure:
    """Seconds of one variant over its runs."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median in seconds."""
        return statistics.median(self.seconds)


def interleave(variants: dict[str, Timed], *, runs: int, warmup: int = 1) -> dict[str, Figure]:
    """Run the variants in turn, `warmup` uncounted rounds first, then `runs` counted ones."""
    taken: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(warmup + runs):
        for name, work in variants.items():
            started = time.perf_counter()
            own = work()
            seconds = time.perf_counter() - started if own is None else own
            if turn >= warmup:
                taken[name].append(seconds)
    return {name: Figure(name, tuple(values)) for name, values in taken.items()}


def table(title: str, figures: Sequence[Figure], *, unit: float = 1e3, unit_name: str = "ms") -> None:
    """Print minimum, median and maximum of each variant."""
    print(f"\n{title}")
    print(f"  {'':38} {'min':>9} {'median':>9} {'max':>9}  runs")
    for figure in figures:
        low, mid, high = (value * unit for value in (min(figure.seconds), figure.median, max(figure.seconds)))
        print(f"  {figure.name:38} {low:9.2f} {mid:9.2f} {high:9.2f}  {len(figure.seconds)} ({unit_name})")


def rates(title: str, figures: Sequence[Figure], size: int) -> None:
    """Print slowest, median and fastest MB/s of each variant over the same ``size`` bytes."""
    print(f"\n{title}")
    print(f"  {'':38} {'slowest':>9} {'median':>9} {'fastest':>9}  runs")
    for figure in figures:
        slow, mid, fast = (size / value / 1e6 for value in (max(figure.seconds), figure.median, min(figure.seconds)))
        print(f"  {figure.name:38} {slow:9.1f} {mid:9.1f} {fast:9.1f}  {len(figure.seconds)} (MB/s)")


def versus(
    ours: Figure, theirs: Figure, *, at_most_ratio: float | None = None, at_most_more_s: float | None = None
) -> None:
    """Print ratio and difference of two medians beside the aim."""
    ratio, more = ours.median / theirs.median, ours.median - theirs.median
    best, best_theirs = min(ours.seconds), min(theirs.seconds)
    aims = []
    if at_most_ratio is not None:
        aims.append(f"ratio at most {at_most_ratio:.2f}: {'met' if ratio <= at_most_ratio else 'MISSED'}")
    if at_most_more_s is not None:
        aims.append(f"at most {at_most_more_s * 1e3:.0f} ms more: {'met' if more <= at_most_more_s else 'MISSED'}")
    print(
        f"  -> {ours.name} / {theirs.name}: {ratio:.3f}x, {more * 1e3:+.2f} ms (fastest: {best / best_theirs:.3f}x, {(best - best_theirs) * 1e3:+.2f} ms)"
        + (f"   aim {'; '.join(aims)}" if aims else "")
    )


def aim(figure: Figure, at_most_s: float) -> None:
    """Print one median beside its absolute aim."""
    print(
        f"  -> {figure.name}: {figure.median * 1e3:.1f} ms   aim at most {at_most_s * 1e3:.0f} ms: {'met' if figure.median <= at_most_s else 'MISSED'}"
    )
