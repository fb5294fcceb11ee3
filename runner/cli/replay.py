"""``hermeval replay ATTEMPT…``: regrade saved output with today's profiles and the pinned Promptfoo (B10).

Boundary: touches the environment and the terminal. Not here: grading (runner/replay.py, runner/grade).
Rules: nothing is run again and no model is asked. Every replay writes a new evaluation beside the attempt. Exit status 0 all passed, 1 one failed, 2 one could not be graded, or the
grading tools are not the pinned ones.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runner.cli.answer import print_answer
from runner.cli.paths import NamedPath
from runner.errors import InputMissing, RunnerError, SandboxFailure
from runner.text import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.grade.grading import GradedAttempt
    from sandbox.process import Host


@click.command("replay", short_help="Regrade saved attempts.")
@click.argument("attempts", nargs=-1, required=True, type=NamedPath(), metavar="ATTEMPT...")
@click.option(
    "--profiles",
    type=NamedPath(),
    metavar="DIR",
    help="The profiles' folder; default: the shipped ones.",
)
@click.option(
    "--rule",
    type=click.Choice(["unanimous", "majority"]),
    default="unanimous",
    show_default=True,
    help="What several votes of judges on one output need.",
)
@click.option("--require-rubric", is_flag=True, help="Make an attempt whose rubric no judge decided an error.")
@click.option(
    "--out",
    type=NamedPath(file_okay=False),
    metavar="DIR",
    help="Where evaluations are written; default: beside each attempt. report finds them with --evaluations DIR.",
)
@click.option("--no-save", is_flag=True, help="Write no evaluation.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object to stdout.")
def command(attempts: tuple[Path, ...], as_json: bool, **options: Any) -> int:
    """Regrade each ATTEMPT, a file or a directory with attempts in it, offline: nothing is run again and no model is asked."""
    from runner.profile import PROFILES
    from runner.replay import ReplaySettings, graded_envelope, replay
    from runner.toolchain import default_cache_root

    environ = os.environ  # noqa: TID251  commands are where the environment is read
    settings = ReplaySettings(
        cache_root=default_cache_root(os.geteuid(), environ),
        profiles=options["profiles"] or PROFILES,
        rule=options["rule"],
        require_rubric=options["require_rubric"],
        save=not options["no_save"],
        out=options["out"],
    )
    rows = []
    for graded in replay(attempt_paths(attempts), open_host(), settings):
        click.echo(visible(_told(graded), newlines=True), err=as_json)
        rows.append(dict(graded.row))
    answer = graded_envelope("replay", rows)
    summary = answer["summary"]
    click.echo(
        f"passed {summary['passed']} / measured {summary['measured']} / started {summary['started']}", err=as_json
    )
    if as_json:
        print_answer("replay", answer["exit_code"], answer)
    return int(answer["exit_code"])


def attempt_paths(named: tuple[Path, ...]) -> list[Path]:
    """Return the files that are meant: those named, and for a directory the workers' attempts that lie directly in it.

    Raises: InputMissing for a directory without any.
    """
    from runner.bundle.format import SUFFIX

    paths: list[Path] = []
    for path in named:
        if not _is_directory(path):
            paths.append(path)
            continue
        found = [file for file in sorted(path.glob(f"*{SUFFIX}")) if not _is_judge(file)]
        if not found:
            raise InputMissing("the directory holds no worker's attempt", where=str(path))
        paths += found
    return paths


def open_host() -> Host:
    """Find what a sandbox needs on this machine.

    In Nix's build sandbox, and nowhere else, a machine without namespaces can still grade: the host then says ``inner: none``, loudly here and in every evaluation.
    Raises: SandboxFailure.
    """
    from sandbox.errors import SandboxError
    from sandbox.process import find_host
    from sandbox.surroundings import against_nix_build, read_surroundings

    try:
        host = find_host()
    except SandboxError as error:
        raise SandboxFailure(str(error), where=error.where, hint=error.hint, code=error.code) from error
    if against_nix_build(read_surroundings()):
        return host
    from sandbox.doctor import check_isolation

    missing = next((check for check in check_isolation(host) if check.status == "failed"), None)
    if missing is None:
        return host
    click.echo(
        visible(f"inner: none: {missing.cause}; the grading programs run in Nix's build sandbox alone"), err=True
    )
    return replace(host, inner="none")


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False  # whoever opens it says why it cannot be had


def _is_judge(path: Path) -> bool:
    from runner.bundle.reader import read_manifest
    from runner.grade.judge_saved import is_judge

    try:
        return is_judge(read_manifest(path).summary)
    except RunnerError:
        return False  # replay says what is wrong with it


def _told(graded: GradedAttempt) -> str:
    """Return a graded attempt as a person reads it."""
    row: Mapping[str, Any] = graded.row
    outcome = row["outcome"]
    name = row["fixture"] or graded.path.name
    if graded.verdict == "error":
        hint = f"\n  do         {outcome['hint']}" if outcome["hint"] else ""
        lines = [f"{name}: error[{outcome['code']}]: {outcome['message']}{hint}"]
    else:
        assert graded.evaluation is not None
        lines = [f"{name}: {graded.verdict}, {graded.evaluation.message}"]
    for kind in ("checks", "criteria"):
        lines += [f"  not met    {point['id']}: {point['reason']}" for point in row[kind] if point["met"] is False]
    for diagnostic in row.get("diagnostics", ()):
        lines.append(f"  {diagnostic['severity']:<9}  {diagnostic['id']}: {diagnostic['reason']}")
    if row.get("not_judged"):
        lines.append(f"  rubric     not judged: {', '.join(row['not_judged'])}")
    if row.get("negative_control"):
        lines.append(f"  control    {row['negative_control']['reason']}")
    if row.get("inner") == "none":
        lines.append("  inner      none: graded in Nix's build sandbox, without a namespace of its own")
    lines.append(f"  attempt    {graded.path}" + (f"\n  evaluation {graded.saved}" if graded.saved else ""))
    return "\n".join(lines)
