"""The whole probe suite: 78 probes of facts/sandbox.md §2, in the order of their numbers.

Boundary: none of its own. Not here: the sandbox's probes (sandbox/probes), printing (runner/cli/doctor.py).
Rules: none is ever left out: a number that no result came for is a hole of that name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.errors import SandboxError
from sandbox.probes.table import Probe, Result, Seen, judge

if TYPE_CHECKING:
    from sandbox.process import Host

COUNT = 78


def examine_probes(runtime_dir: Path | None, *, agents: Sequence[str] = ()) -> Iterator[Result]:
    """Try all probes and yield what came of each, as it is known; ``agents`` are socket paths of the caller's session."""
    from sandbox.process import find_host

    missing, why = set(range(1, COUNT + 1)), "it did not come to it"
    try:
        host = find_host()
    except SandboxError as error:
        why = str(error)
    else:
        for result in _all(host, runtime_dir, agents):
            missing.discard(result.probe.number)
            yield result
    for number in sorted(missing):
        yield judge(Probe(number, f"probe {number}", "host", "held", "none", {}), Seen(failure=why))


def _all(host: Host, runtime_dir: Path | None, agents: Sequence[str]) -> Iterator[Result]:
    from runner.doctor.probes.files import FILES
    from runner.doctor.probes.signals import SEEN
    from runner.doctor.probes.traffic import TRAFFIC
    from runner.doctor.probes.trees import TREES
    from sandbox.probes.suite import examine, try_all
    from sandbox.probes.trying import Site

    yield from examine(host, runtime_dir, agents=agents)
    yield from try_all((*SEEN, *TRAFFIC, *FILES, *TREES), Site(host, runtime_dir))
