"""The sandbox's own part of the probe suite, in the order of their numbers within each place.

Boundary: starts sandboxes through inside.py, outside.py and lifetime.py. Not here: gate, collector and skill tree (runner/doctor/probes).
Rules: nothing raises: what could not be tried is a hole, and its cause says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from sandbox.probes import lifetime, outside
from sandbox.probes.inside import examine_inside
from sandbox.probes.table import Probe, Result, Seen, judge
from sandbox.probes.trying import TABLE, Site, Try
from sandbox.process import Host

__all__ = ["examine", "lifetime", "outside"]


def examine(host: Host, runtime_dir: Path | None = None, *, agents: Sequence[str] = ()) -> Iterator[Result]:
    """Try every probe of the sandbox."""
    yield from examine_inside(host, runtime_dir=runtime_dir, agents=agents)
    yield from try_all(TABLE, Site(host, runtime_dir))


def try_all(table: Iterable[tuple[Probe, Try]], site: Site) -> Iterator[Result]:
    """Try the probes of a table."""
    for one, act in table:
        try:
            seen = act(site)
        except Exception as error:  # noqa: BLE001 - whatever it is, the probe was not tried
            seen = Seen(failure=f"{type(error).__name__}: {error}")
        yield judge(one, seen)
