"""The probe suite on this host: every probe as its data says, with its control, as root and (by test_sandbox_ordinary) as an ordinary user."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sandbox.probes import lifetime, outside
from sandbox.probes.inside import CANARY, examine_inside
from sandbox.probes.suite import try_all
from sandbox.probes.table import INSIDE, Seen, judge, judge_all
from sandbox.probes.trying import TABLE, Site

if TYPE_CHECKING:
    from sandbox.process import Host

assert (lifetime.GONE_S, len(outside.BOMBS)) > (0, 0)  # both have entered their probes
NUMBERS = sorted(probe.number for probe, _ in TABLE)


def test_every_probe_inside_holds(host: Host) -> None:
    """The hostile program in the agents' own sandbox: 32 probes, none of them a hole, every harmless twin works."""
    os.environ["HERMEVAL_PROBE"] = CANARY
    try:
        results = examine_inside(host)
    finally:
        del os.environ["HERMEVAL_PROBE"]
    assert [result.as_json() for result in results if not result.good] == []
    assert len(results) == len(INSIDE)


@pytest.mark.parametrize("number", NUMBERS)
def test_every_probe_of_the_host_holds(host: Host, number: int) -> None:
    """What is tried from the host's side."""
    (result,) = try_all([entry for entry in TABLE if entry[0].number == number], Site(host))
    assert result.good, result.as_json()


def test_what_is_not_as_expected_is_a_hole() -> None:
    """Another errno, an attempt that was not made, a control that failed and a probe that could not be tried all count against it; the expected does not (the control)."""
    probe = INSIDE[0]
    good = Seen({"write": "EROFS"}, {"read": "=4"})
    assert judge(probe, good).good
    for seen in (
        Seen({"write": "=written"}, {"read": "=4"}),
        Seen({"write": "ENOENT"}, {"read": "=4"}),
        Seen({}, {"read": "=4"}),
        Seen({"write": "EROFS"}, {"read": "EACCES"}),
        Seen({"write": "EROFS"}, {}),
        Seen({"write": "EROFS"}, {"read": "=4"}, failure="no bwrap"),
    ):
        assert not judge(probe, seen).good
    assert [result.status for result in judge_all(INSIDE, {})] == ["hole"] * len(INSIDE)
    assert "could not be tried" in judge_all(INSIDE, {})[0].cause
