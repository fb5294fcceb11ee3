"""Disks that are full, broken or slow, under every command: what cannot be kept is told, and what was there stays as it was (issue 4, "Faults")."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.conftest import Bench, Fault
from tests.faults.scene import Trial

OUT = "^@OUT(/|$)"
UNWRITABLE = frozenset({"bundle-unwritable"})
JUDGE = frozenset({"judge-error"})
REPORT = frozenset({"report-unwritable"})
STAGING = frozenset({"sandbox-staging"})
MACHINE = frozenset({"machine-fault"})
NOT_READ = frozenset({"input-missing"})


def at(
    *calls: str, nth: int = 1, count: int | None = 1, path: str = OUT, who: str | None = "runner", **do: Any
) -> dict[str, Any]:
    """A rule: the n-th such call of the command below its attempts' directory."""
    return {"calls": calls, "path": path, "who": who, "nth": nth, "count": count, "do": do}


def small(size: str, directory: str) -> Callable[[Trial], list[str]]:
    """Below a program that puts a small real disk over a directory of the trial."""

    def prefix(trial: Trial) -> list[str]:
        place = directory.replace("@OUT", str(trial.out)).replace("@RUNS", str(trial.staging))
        return [
            sys.executable,
            "-P",
            "-m",
            "tests.faults.small_disk",
            size,
            place,
            str(trial.temporary.parent / "kept"),
        ]

    return prefix


WRITES = [
    Fault("run", "ENOSPC at the attempt's bytes", [at("write", errno="ENOSPC")], wants=UNWRITABLE),
    Fault("run", "EIO at the attempt's fsync", [at("fsync", errno="EIO")], wants=UNWRITABLE),
    Fault("run", "ENOSPC at the attempt's name", [at("linkat", errno="ENOSPC")], wants=UNWRITABLE),
    Fault(
        "run",
        "EIO at the judge's attempt",
        [at("fsync", nth=3, errno="EIO")],
        wants=frozenset({"not-judged", "judge-error"}),
    ),
    Fault("judge", "EIO at the attempt's bytes", [at("write", errno="EIO")], wants=JUDGE),
    Fault("judge", "ENOSPC at the attempt's name", [at("linkat", errno="ENOSPC")], wants=JUDGE),
    Fault("replay", "ENOSPC at the evaluation's bytes", [at("write", errno="ENOSPC")], wants=UNWRITABLE),
    Fault("replay", "EIO at the directory's fsync", [at("fsync", nth=2, errno="EIO")], wants=UNWRITABLE),
    Fault("report", "ENOSPC at the page's bytes", [at("write", errno="ENOSPC")], wants=REPORT),
    Fault("report", "EIO at the page's name", [at("rename", errno="EIO")], wants=REPORT),
]
READS = [
    Fault("report", "EIO at an evaluation", [at("openat", path=r"evaluation\.json$", errno="EIO")], wants=NOT_READ),
    Fault(
        "judge",
        "EIO at the attempt",
        [at("openat", path=r"^@OUT/.*\.attempt$", nth=3, count=None, errno="EIO")],
        wants=NOT_READ,
    ),
    Fault("replay", "EIO at the attempt", [at("pread64", nth=8, count=None, errno="EIO")], wants=NOT_READ),
    Fault("reproduce", "EIO at the attempt", [at("pread64", nth=8, count=None, errno="EIO")], wants=NOT_READ),
    Fault("report", "EIO at the attempts", [at("pread64", nth=60, count=None, errno="EIO")], wants=NOT_READ),
]
STAGED = [
    Fault("run", "ENOSPC at a staged skill", [at("openat", path="@RUNS/.*SKILL.md$", errno="ENOSPC")], wants=STAGING),
    Fault("judge", "EIO at the private directory", [at("mkdir", path="@RUNS", errno="EIO")], wants=STAGING | JUDGE),
    Fault(
        "reproduce",
        "ENOSPC at a staged skill",
        [at("openat", path="@RUNS/.*SKILL.md$", errno="ENOSPC")],
        wants=STAGING | MACHINE,
    ),
    Fault(
        "run",
        "EIO at the staged tree after the run",
        [at("openat", path="@RUNS/.*/skills$", nth=3, count=None, errno="EIO")],
        wants=MACHINE,
    ),
    Fault(
        "reproduce",
        "EIO at the staged tree after the run",
        [at("openat", path="@RUNS/.*/skills$", nth=2, count=None, errno="EIO")],
        wants=MACHINE,
    ),
]


def full(verb: str, name: str, wants: frozenset[str], directory: str) -> Fault:
    """A disk without room: a real one for root, else every call fails that would need some."""
    if os.geteuid() == 0:
        return Fault(verb, name, prefix=small("full", directory), wants=wants)
    rule = at("write", "mkdir", "linkat", count=None, path=directory, who=None, errno="ENOSPC")
    return Fault(verb, name, [rule], wants=wants, idle=True)


FULL = [
    full("run", "no room for attempts", UNWRITABLE, "@OUT"),
    full("judge", "no room for attempts", JUDGE, "@OUT"),
    full("replay", "no room for evaluations", UNWRITABLE, "@OUT"),
    full("report", "no room for the page", REPORT, "@OUT"),
    full("reproduce", "no room for attempts", frozenset(), "@OUT"),
    full("run", "no room for private directories", STAGING, "@RUNS"),
    full("reproduce", "no room for private directories", STAGING, "@RUNS"),
]
SLOW = [
    Fault("run", "a slow disk", [at("fsync", "linkat", count=None, hold_s=0.3)], wants=frozenset()),
    Fault("replay", "a slow disk", [at("write", "fsync", "linkat", count=None, hold_s=0.1)], wants=frozenset()),
    Fault("report", "a slow disk", [at("write", "fsync", "rename", count=None, hold_s=0.1)], wants=frozenset()),
]


@pytest.mark.parametrize(
    "faults", [WRITES, READS, STAGED, FULL, SLOW], ids=["writes", "reads", "staged", "full", "slow"]
)
def test_a_faulty_disk_is_told_and_nothing_is_lost(bench: Bench, faults: list[Fault]) -> None:
    """Each fault gives exit status 2 with its code, or the right verdict; nothing is left behind, and nothing that was finished is lost or changed."""
    outcomes = bench.suffer_all(faults)
    assert [what for outcome in outcomes for what in outcome.wrong] == []
