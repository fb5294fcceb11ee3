"""Too few open files and too small files, by the kernel's own limits, under every command."""

from __future__ import annotations

from collections.abc import Callable

from tests.faults.conftest import Bench, Fault
from tests.faults.scene import Trial


def limited(kind: str, most: int) -> Callable[[Trial], list[str]]:
    """Below a program that sets one limit."""
    return lambda trial: ["/usr/bin/prlimit", f"--{kind}={most}:{most}", "--"]


FILES = [
    *(Fault("run", f"{most} open files", prefix=limited("nofile", most)) for most in (12, 24, 40)),
    *(Fault("judge", f"{most} open files", prefix=limited("nofile", most)) for most in (16, 32)),
    *(Fault("replay", f"{most} open files", prefix=limited("nofile", most)) for most in (14, 28)),
    Fault("reproduce", "20 open files", prefix=limited("nofile", 20)),
    Fault("report", "8 open files", prefix=limited("nofile", 8)),
]
ACCEPTED = [
    Fault(
        "run",
        "no connection can be accepted",
        [{"calls": ["accept4"], "who": "runner", "count": None, "do": {"errno": "EMFILE"}}],
        wants=frozenset({"gate-unavailable"}),
    )
]
SIZES = [
    Fault("run", "files of 4 KiB", prefix=limited("fsize", 4096), wants=frozenset({"bundle-unwritable"})),
    Fault("report", "files of 4 KiB", prefix=limited("fsize", 4096), wants=frozenset({"report-unwritable"})),
]


def test_too_few_open_files(bench: Bench) -> None:
    """Whatever can still be done with so few, the answer is true or says what is missing; a program that never came to its own leaves nothing."""
    outcomes = bench.suffer_all([*FILES, *ACCEPTED])
    assert [what for outcome in outcomes for what in outcome.wrong] == []
    assert {outcome.ending.code for outcome in outcomes} == {0, 2}, "the control: some limits bite, and some do not"


def test_files_that_may_not_grow(bench: Bench) -> None:
    """A limit on the size of files is told as one; nothing half is kept."""
    outcomes = bench.suffer_all(SIZES)
    assert [what for outcome in outcomes for what in outcome.wrong] == []
