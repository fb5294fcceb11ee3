"""What doctor --pinned concludes from runs, without doing any."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from runner.doctor.pinned import MOST_RUNS, check_twice, differing, world_of

RUNS = ((b"one",), (b"two",), (b"three",), (b"four",), (b"five",))


@pytest.mark.parametrize(
    ("again", "status", "count"),
    [
        ((0,), "ok", 1),
        ((1, 0), "degraded", 2),
        ((1, 1), "degraded", 2),
        ((1, 2, 1), "degraded", 3),
        ((1, 2, 3, 4), "failed", 4),
    ],
)
def test_two_equal_runs_are_needed(again: tuple[int, ...], status: str, count: int) -> None:
    """Equal at once is ok; equal later is degraded and says where the first two part; five runs of which none is like another are a failure. No run more than needed is made."""
    made: Iterator[int] = iter(again)
    asked: list[int] = []

    def run() -> tuple[bytes, ...]:
        asked.append(next(made))
        return RUNS[asked[-1]]

    check = check_twice(RUNS[0], partial(run))
    assert (check.status, len(asked)) == (status, count)
    assert (status == "ok") != ("request 1" in check.cause)
    assert len(asked) < MOST_RUNS


def test_a_world_that_is_not_seen_is_named() -> None:
    """Each thing that requests must tell is named where they do not."""
    good = b"Today's date is 2026-01-01 ... OS Version: Linux 6.12.0 ... 2026-01-01\\n6.12.0\\n/tmp/tmp.x"
    assert world_of((good,)).status == "ok"
    for name, words in (
        ("date in the prompt", b"date is 2026"),
        ("kernel in the prompt", b"Version: Linux"),
        ("in Bash", b"6.12.0\\n"),
    ):
        check = world_of((good.replace(words, b"-"),))
        assert check.status == "failed"
        assert name in check.cause
        assert check.cure


def test_where_runs_part_is_told() -> None:
    """The first request that differs and the place in it; another number of requests where all that are there are equal."""
    assert differing((b"a", b"same b"), (b"a", b"same c")).startswith("request 2 @5: ")
    assert differing((b"a",), (b"a", b"b")) == "1 requests and 2"
