"""``hermeval doctor --pinned``: whether this host can offer pinned determinism, by doing it twice.

Boundary: prints. Not here: the checks (runner/doctor/pinned.py).
Rules: exit status 0 where nothing failed, 2 otherwise. A line is told as soon as it is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import click

from runner.cli.answer import print_results
from runner.doctor.check import Check, any_failed, failed_by
from runner.errors import RunnerError

MACHINE = ("pinned-machine", "Sandbox and pinned tools")


def try_pinned(environ: Mapping[str, str], lines_of: Callable[[Check], list[str]], *, as_json: bool) -> int:
    """Try it, tell each check as soon as it is known, and return the exit status."""
    checks = []
    for check in _examine(environ):
        checks.append(check)
        for line in lines_of(check):
            click.echo(line, err=as_json)
    exit_code = 2 if any_failed(checks) else 0
    click.echo("this machine cannot pin" if exit_code else "this machine can pin", err=as_json)
    if as_json:
        rows = [check.as_json() for check in checks]
        good, failed = (sum(check.status == status for check in checks) for status in ("ok", "failed"))
        print_results("doctor", exit_code, rows, passed=good, measured=len(rows) - failed)
    return exit_code


def _examine(environ: Mapping[str, str]) -> Iterator[Check]:
    from runner.cli.batch import open_machine
    from runner.doctor.pinned import examine_pinned

    try:
        machine = open_machine(environ)
    except RunnerError as error:
        yield failed_by(*MACHINE, error, "cure what hermeval doctor names")
        return
    yield Check(*MACHINE, "ok")
    yield from examine_pinned(machine)
