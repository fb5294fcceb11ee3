"""``hermeval list [DIR]``: the attempts that lie directly in a directory, from their manifests alone.

Boundary: reads a directory, prints. Not here: verification (verify.py). Nothing is unpacked and pydantic is not imported: thousands take a second.
Exit 0, or 2 where a file could not be read as an attempt: it is shown all the same.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from runner.bundle.format import SUFFIX
from runner.bundle.reader import read_manifest
from runner.cli.answer import print_answer
from runner.cli.paths import NamedPath
from runner.cli.run import default_out
from runner.errors import BundleCorrupt, InputMissing, RunnerError
from runner.text import visible

_SUMMARY_FIELDS = ("outcome", "skill_state", "witnesses", "cost_usd", "determinism")


@click.command("list", short_help="List the attempts of a directory.")
@click.argument("directory", required=False, type=NamedPath(), metavar="[DIR]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(directory: Path | None, as_json: bool) -> int:
    """List the attempts that lie directly in DIR (default: where ``run`` writes them), by name. Their parts are not verified."""
    if directory is None:
        directory = default_out(dict(os.environ))  # noqa: TID251 -- commands are where the environment is read
    rows = [_row(path) for path in _attempt_paths(directory)]
    exit_code = 2 if any("error" in row for row in rows) else 0
    _show(rows, directory, err=as_json)
    if as_json:
        print_answer("list", exit_code, {"attempts": rows})
    return exit_code


def _attempt_paths(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return sorted(
                entry.path for entry in entries if entry.name.endswith(SUFFIX) and not entry.name.startswith(".")
            )
    except OSError as error:
        raise InputMissing(
            f"the directory cannot be listed: {error.strerror}",
            where=str(directory),
            hint="name the directory that was given to run with --out",
        ) from error


def _row(path: str) -> dict[str, Any]:
    try:
        try:
            manifest = read_manifest(path)
        except BundleCorrupt:
            from runner.bundle.version1 import is_version1

            if not is_version1(path):
                raise
            return _version1_row(path)
    except RunnerError as error:
        return {
            "id": None,
            "path": path,
            "fixture": None,
            "kind": None,
            **dict.fromkeys(_SUMMARY_FIELDS),
            "error": error.as_json(),
        }
    summary = manifest.summary
    return {
        "id": manifest.id,
        "path": path,
        "fixture": manifest.fixture,
        "kind": "judge" if summary.get("kind") == "judge" else "worker",
        **{name: summary.get(name) for name in _SUMMARY_FIELDS},
    }


def _version1_row(path: str) -> dict[str, Any]:
    """Return the row of an attempt of version 1, which says no more than this. Raises: InputMissing, BundleCorrupt."""
    from runner.bundle.version1 import read_version1

    attempt_id, found = read_version1(path)
    name = found.fixture.get("id")
    return {
        "id": attempt_id,
        "path": path,
        "fixture": name if isinstance(name, str) else None,
        "kind": "worker",
        "outcome": {"kind": "measured", "code": None},
        "skill_state": None,
        "witnesses": None,
        "cost_usd": found.generation.cost_usd,
        "determinism": None,
    }


def _show(rows: list[dict[str, Any]], directory: Path, *, err: bool) -> None:
    readable = [row for row in rows if "error" not in row]
    if not err and readable:
        width = max(7, *(len(visible(row["fixture"] or "-")) for row in readable))
        lines = [f"{'id':<12}  {'fixture':<{width}}  {'outcome':<20}  {'skill':<9}  {'USD':<8}  file"]
        lines += [_line(row, width) for row in readable]
        click.echo("\n".join(lines))
    for row in rows:
        if "error" in row:
            click.echo(
                f"{visible(row['path'])}: error[{row['error']['code']}]: {visible(row['error']['message'])}", err=True
            )
    if not rows:
        click.echo(f"no attempts in {visible(str(directory))}", err=True)


def _line(row: dict[str, Any], width: int) -> str:
    outcome, cost = row["outcome"], row["cost_usd"]
    word = (outcome.get("code") or outcome.get("kind")) if isinstance(outcome, dict) else outcome
    pinned = ", pinned" if row["determinism"] == "pinned" else ""
    fields = (
        f"{visible(row['fixture'] or '-'):<{width}}",
        f"{_word(word) + pinned:<20}",
        f"{'(judge)' if row['kind'] == 'judge' else _word(row['skill_state']):<9}",
        f"{_word(cost):<8}",
    )
    return "  ".join((row["id"][:12], *fields, visible(os.path.basename(row["path"]))))


def _word(value: object) -> str:
    return visible(value)[:60] if isinstance(value, str) else "-"
