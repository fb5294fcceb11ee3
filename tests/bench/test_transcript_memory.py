"""The parser's memory is bounded whatever the transcript's length (acceptance 5; bench_transcript does the whole gigabyte)."""

from __future__ import annotations

from pathlib import Path

from tests.bench.transcript_memory import LIMIT, grown

_ROOT = Path(__file__).resolve().parents[2]
_SIZE = 200_000_000


def test_two_hundred_megabytes_of_ordinary_lines_grow_a_fifth_of_the_bound() -> None:
    """Parsing 200 MB of tool rounds with ids of their own grows resident memory by no more than its share of the 64 MB that a gigabyte may take."""
    growth, events = grown(_SIZE, _ROOT)
    assert events > _SIZE // 2000
    assert growth < LIMIT * _SIZE // 1_000_000_000, growth


def test_what_is_measured_is_the_parsers_memory() -> None:
    """The measure is alive: the parser's ledger of what it saw grows with the number of events, so ten times as much input grows memory more."""
    assert grown(100_000_000, _ROOT)[0] > grown(10_000_000, _ROOT)[0]
