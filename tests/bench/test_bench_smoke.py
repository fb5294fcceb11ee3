"""Every bench still runs and prints its figures; no time is asserted."""

from __future__ import annotations

import re

import pytest

from tests.bench.__main__ import BENCHES

_FIGURE = re.compile(r"\d+\.\d+|\d+ MB/s")


@pytest.mark.bench
@pytest.mark.parametrize("name", BENCHES)
def test_every_bench_runs_and_prints_figures(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """With the smallest number of rounds, a bench comes to its end and prints a title and figures."""
    BENCHES[name][True]()
    lines = [line for line in capfd.readouterr().out.splitlines() if line.strip()]
    assert len(lines) >= 3, lines
    assert sum(bool(_FIGURE.search(line)) for line in lines) >= 2, lines
