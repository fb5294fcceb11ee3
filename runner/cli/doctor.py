"""``hermeval doctor``: try on this host each thing that a run needs, and name causes and cures.

Boundary: prints; reads the environment and the clock. Not here: the checks (runner/doctor, sandbox/doctor.py), the probe suite (probes.py).
Rules: exit status 0 where nothing failed, degraded or not; 2 otherwise. A line is told as soon as it is known.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from runner.cli.answer import print_results
from runner.cli.paths import NamedPath
from runner.cli.run import ROOT, default_out
from runner.doctor import Check, Site, any_failed, cannot_isolate, examine
from runner.text import visible


@click.command("doctor", short_help="Try on this host each thing that a run needs.")
@click.option(
    "--fixtures",
    "folder",
    type=NamedPath(),
    default=ROOT / "fixtures",
    metavar="DIR",
    help="The fixtures' folder to load.",
)
@click.option(
    "--out",
    type=NamedPath(),
    metavar="DIR",
    help="Where attempts are to be written; default: hermeval/attempts in the user's state directory.",
)
@click.option("--cache", type=NamedPath(), metavar="DIR", help="The toolchain cache.")
@click.option("--full", is_flag=True, help="Do a whole scripted run with the real CLI too (some seconds).")
@click.option(
    "--probes",
    is_flag=True,
    help="Try instead what a hostile skill would: 78 probes, each with its control (a minute).",
)
@click.option(
    "--pinned",
    is_flag=True,
    help="Try instead whether this machine can offer pinned determinism, by doing a run twice (some seconds).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(
    folder: Path, out: Path | None, cache: Path | None, full: bool, probes: bool, pinned: bool, as_json: bool
) -> int:
    """Try every thing that a run needs, for real, and say for each that fails why, and what to do.

    Nothing is left behind, no model call is made, nothing is paid. Exit status 0 if nothing failed, else 2.
    With ``--probes``: 0 if every probe came to what it must, and every control worked.
    """
    environ = dict(os.environ)  # noqa: TID251 -- commands are where the environment is read
    if probes and pinned:
        raise click.UsageError("--probes and --pinned are two examinations; ask for one at a time")
    if probes or pinned:
        _refuse_loose("--probes" if probes else "--pinned", ("folder", "out", "full") + (("cache",) if probes else ()))
    if probes:
        from runner.cli.probes import try_probes

        return try_probes(environ, as_json=as_json)
    if pinned:
        from runner.cli.pinned import try_pinned

        return try_pinned({**environ, "HERMEVAL_CACHE": str(cache)} if cache else environ, lines_of, as_json=as_json)
    runtime = environ.get("XDG_RUNTIME_DIR")
    site = Site(
        cache_root=cache or _cache_root(environ),
        out=out or default_out(environ),
        folder=folder,
        requirements=ROOT / "ci" / "requirements.txt",
        runtime_dir=Path(runtime) if runtime else None,
        clock=time.time,  # noqa: TID251 -- the clock is what is looked at
        full=full,
    )
    checks = []
    for check in examine(site):
        checks.append(check)
        for line in lines_of(check):
            click.echo(line, err=as_json)
    exit_code = 2 if any_failed(checks) else 0
    count = {status: sum(check.status == status for check in checks) for status in ("ok", "degraded", "failed")}
    verdict = "runs cannot be had here" if exit_code else "this machine can run"
    if cannot_isolate(checks):
        verdict = f"error[host-cannot-isolate]: {verdict}"
    click.echo(f"{verdict}: {', '.join(f'{number} {status}' for status, number in count.items())}", err=as_json)
    if as_json:
        rows = [check.as_json() for check in checks]
        print_results("doctor", exit_code, rows, passed=count["ok"], measured=len(rows) - count["failed"])
    return exit_code


def lines_of(check: Check) -> list[str]:
    """Return a check as a person reads it."""
    lines = [f"{check.status:<8}  {check.id:<16}  {check.title}"]
    if check.cause:
        lines.append(f"{'':<28}{'cause: ' if check.status != 'ok' else ''}{check.cause}")
    if check.cure:
        lines.append(f"{'':<28}cure:  {check.cure}")
    return [visible(line) for line in lines]


def _refuse_loose(examination: str, names: tuple[str, ...]) -> None:
    """Refuse options that this examination does not look at: somebody who gave them would take them for done. Raises: click.UsageError."""
    context = click.get_current_context()
    flags = {str(option.name): option.opts[-1] for option in context.command.params}
    given = [
        flags[name] for name in names if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"{examination} does not look at {' or '.join(given)}; ask for one at a time")


def _cache_root(environ: dict[str, str]) -> Path:
    from runner.toolchain import default_cache_root

    return default_cache_root(os.geteuid(), environ)
