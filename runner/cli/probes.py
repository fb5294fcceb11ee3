"""``hermeval doctor --probes``: try the 78 probes of a hostile skill on this host, and say of each what it came to.

Boundary: prints. Not here: the probes (runner/doctor/probes, sandbox/probes).
Rules: exit status 0 where each probe came to what its data says and each of its controls worked; 2 otherwise. None is ever left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from runner.cli.answer import print_results
from runner.text import visible

if TYPE_CHECKING:
    from sandbox.probes.table import Result


def try_probes(environ: Mapping[str, str], *, as_json: bool) -> int:
    """Try them all, tell each as soon as it is known, and return the exit status."""
    from runner.doctor.probes import examine_probes

    runtime = environ.get("XDG_RUNTIME_DIR")
    agents = [environ.get("SSH_AUTH_SOCK", ""), environ.get("DBUS_SESSION_BUS_ADDRESS", "").removeprefix("unix:path=")]
    results = []
    for result in examine_probes(Path(runtime) if runtime else None, agents=agents):
        results.append(result)
        for line in lines_of(result):
            click.echo(line, err=as_json)
    good = sum(result.good for result in results)
    holes = sum(result.status == "hole" for result in results)
    exit_code = 0 if good == len(results) else 2
    click.echo(f"{good} of {len(results)} probes as they must be, {holes} holes", err=as_json)
    if as_json:
        rows = sorted((result.as_json() for result in results), key=lambda row: int(str(row["number"])))
        print_results("doctor", exit_code, rows, passed=good, measured=len(results))
    return exit_code


def lines_of(result: Result) -> list[str]:
    """Return a probe as a person reads it."""
    probe = result.probe
    by = f"{result.errno} by {probe.layer}" if result.errno else f"by {probe.layer}"
    control = "" if result.control else "  CONTROL FAILED"
    lines = [f"{result.status:<8}  {probe.number:>2}  {probe.name} ({probe.place}): {by}{control}"]
    if result.cause:
        lines.append(f"{'':<14}cause: {result.cause}")
    return [visible(line) for line in lines]
