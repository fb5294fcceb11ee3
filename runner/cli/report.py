"""``hermeval report ATTEMPT|DIR… -o FILE.html``: attempts as one page, or with ``--markdown`` as a step summary (B17, E5).

Boundary: reads attempts, writes one file or stdout. Not here: what is shown and how (runner/report).
Rules: the page is written under a temporary name and put in place whole. An attempt is never overwritten. Exit 0 where every file could be read and holds what it says, 2 where one
could not: it is on the page all the same. The attempts' own verdicts are data here, as for ``list``; they stand in the object of ``--json``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from runner.bundle.format import SUFFIX
from runner.cli.paths import NamedPath, require_path
from runner.errors import InputMissing, RunnerError
from runner.text import visible
from runner.whole_file import leftovers_of, whole_file

if TYPE_CHECKING:
    from runner.report.view import AttemptView, Row

_PROGRESS_EVERY = 25
_STDOUT = "-"


@click.command("report", short_help="Show attempts as one self-contained HTML page.")
@click.argument("paths", nargs=-1, required=True, metavar="ATTEMPT|DIR...")
@click.option("-o", "--output", "out", metavar="FILE", help="Where the page is written; - for stdout.")
@click.option(
    "--evaluations",
    type=NamedPath(exists=True, file_okay=False),
    metavar="DIR",
    help="Where replay --out put evaluations; they count as later than those beside the attempts.",
)
@click.option("--markdown", is_flag=True, help="Write Markdown for a step summary instead; without -o to stdout.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object to stdout.")
def command(paths: tuple[str, ...], out: str | None, evaluations: Path | None, markdown: bool, as_json: bool) -> int:
    """Write one HTML page of an ATTEMPT, of several, or of the attempts that lie directly in DIR.

    The page needs nothing else and asks nothing of anywhere. One attempt is shown whole, many are shortened, and the page says so. Exit status 2 where a file
    could not be read or contradicts itself; it is shown all the same.
    """
    from runner.cli.answer import print_answer

    if out is None and not markdown:
        raise click.UsageError("name the page's file: -o FILE.html")
    if as_json and out in (None, _STDOUT):
        raise click.UsageError("--json takes stdout for its object: name a file with -o")
    for name in paths:
        require_path(name, "ATTEMPT|DIR...")
    if out is not None:
        require_path(out, "--output")
    files, repeated = find_attempts(paths)
    target = None if out in (None, _STDOUT) else Path(str(out))
    if target is not None:
        _refuse_attempt(target, files)
    told: list[tuple[Row, str]] = []
    size = write_to(target, render(files, repeated, told, markdown=markdown, evaluations=evaluations))
    bad = [row for row, recheck in told if not row.id or recheck == "broken"]
    exit_code = 2 if bad else 0
    for row in bad:
        click.echo(f"{visible(row.name)}: error[{visible(row.code)}]: {visible(row.why.text)}", err=True)
    if target is not None:
        attempts = f"{len(told)} attempt{'' if len(told) == 1 else 's'}"
        click.echo(f"report: {attempts}, {size:,} bytes: {visible(str(target))}", err=True)
    if as_json:
        fields = _answer(
            told, files, {"path": str(target), "format": "markdown" if markdown else "html", "bytes": size}
        )
        print_answer("report", exit_code, fields)
    return exit_code


def find_attempts(paths: Iterable[str]) -> tuple[list[Path], int]:
    """Return the attempt files that are named, or lie directly in a named directory, each attempt once, judges' last, and how many files were passed over for that.

    Raises: InputMissing for a name that is nothing, or where there is no attempt at all.
    """
    found: dict[str, tuple[bool, Path]] = {}
    repeated = 0
    for name in paths:
        path = Path(name)
        try:
            inside = stat.S_ISDIR(path.stat().st_mode)
            files = _inside(path) if inside else [path]
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputMissing(f"cannot be read: {reason}", where=name, hint="name attempts or a directory") from error
        for file in files:
            identity, judge = _identity(file)
            repeated += identity in found
            found.setdefault(identity, (judge, file))
    if not found:
        raise InputMissing("there is no attempt", where=", ".join(paths), hint="name the directory of run --out")
    return [file for _, file in sorted(found.values(), key=lambda item: item[0])], repeated


def render(
    files: list[Path],
    repeated: int,
    told: list[tuple[Row, str]],
    *,
    markdown: bool = False,
    evaluations: Path | None = None,
) -> Iterator[str]:
    """Yield the report of these attempts; each one's line and whether its stored outcome holds is put into ``told``."""
    from runner.gate.prices import load_prices
    from runner.report.bounds import bounds_for
    from runner.report.gather import view_attempt
    from runner.report.markdown import batch_markdown
    from runner.report.pages import attempt_page, batch_page

    bounds, prices = bounds_for(len(files)), load_prices()

    def views() -> Iterator[AttemptView]:
        with _progress(len(files)) as step:
            for number, file in enumerate(files, 1):
                view = view_attempt(file, number, bounds, prices, evaluations)
                told.append((view.row, view.recheck))
                step(number)
                yield view

    if markdown:
        yield from batch_markdown(views())
    elif len(files) == 1:
        for view in views():
            yield from attempt_page(view)
    else:
        yield from batch_page(views(), brief=bounds.level == "brief", repeated=repeated)


def write_to(target: Path | None, pieces: Iterable[str]) -> int:
    """Write text as UTF-8 to a file, whole or not at all, or to stdout; return the number of bytes.

    Raises: RunnerError (``report-unwritable``).
    """
    if target is None:
        stdout = getattr(sys.stdout, "buffer", None)
        if stdout is None:
            raise RunnerError("stdout is closed", hint="name a file with -o", code="report-unwritable")
        size = _write(stdout, pieces)
        stdout.flush()
        return size
    try:
        if target.exists() and not target.is_file():  # a pipe, /dev/stdout
            with target.open("wb") as stream:
                return _write(stream, pieces)
        real = Path(os.path.realpath(target))
        label = real.name[:100]
        with whole_file(real.parent, label, kind=leftovers_of(re.escape(label))) as whole:
            size = _write(whole.file, pieces)
            whole.replace(real)
    except OSError as error:
        raise RunnerError(
            f"the report could not be written: {error.strerror or error}",
            where=str(target),
            hint="name a file in a directory that can be written",
            code="report-unwritable",
        ) from error
    return size


def _write(stream: IO[bytes], pieces: Iterable[str]) -> int:
    size = 0
    for piece in pieces:
        data = piece.encode("utf-8")
        size += len(data)
        stream.write(data)
    return size


def _inside(directory: Path) -> list[Path]:
    names = sorted(name for name in os.listdir(directory) if name.endswith(SUFFIX) and not name.startswith("."))
    return [directory / name for name in names]


def _identity(file: Path) -> tuple[str, bool]:
    """Return what makes two files one attempt, and whether it is a judge's.

    The whole bytes decide: the id in the first frame is only a claim, which a damaged copy makes too. A file that cannot be read is its own place.
    """
    from runner.bundle.reader import read_manifest

    try:
        if not file.is_file():  # a pipe would be waited for
            return os.path.realpath(file), False
        with file.open("rb") as stream:
            identity = hashlib.file_digest(stream, "sha256").hexdigest()
        return identity, read_manifest(file).summary.get("kind") == "judge"
    except (OSError, RunnerError):
        return os.path.realpath(file), False


def _refuse_attempt(target: Path, files: list[Path]) -> None:
    own = {os.path.realpath(file) for file in files}
    if target.name.endswith(SUFFIX) or os.path.realpath(target) in own:
        raise click.UsageError("-o names an attempt, which is never overwritten")


@contextlib.contextmanager
def _progress(count: int) -> Iterator[Callable[[int], None]]:
    """Say on a terminal how far it is; elsewhere the last line says it all."""
    live = count >= _PROGRESS_EVERY and sys.stderr is not None and sys.stderr.isatty()

    def step(number: int) -> None:
        if live and number % _PROGRESS_EVERY == 0:
            click.echo(f"\r\x1b[K{number} of {count} attempts read", err=True, nl=False)

    try:
        yield step
    finally:
        if live:
            click.echo("\r\x1b[K", err=True, nl=False)


def _answer(told: list[tuple[Row, str]], files: list[Path], report: dict[str, object]) -> dict[str, object]:
    from runner.report.view import summarize

    summary = summarize([row for row, _ in told])
    present = {row.word for row, _ in told if row.kind == "worker"}
    verdict = next((word for word in ("error", "fail", "pass") if word in present), None)
    return {
        "verdict": verdict if verdict != "pass" or "measured" not in present else None,
        "summary": {"passed": summary.passed, "measured": summary.measured, "started": summary.started},
        "report": report,
        "attempts": [_row(row, file) for (row, _), file in zip(told, files, strict=True)],
    }


def _row(row: Row, file: Path) -> dict[str, object]:
    return {
        "id": row.id or None,
        "path": str(file),
        "fixture": row.fixture or None,
        "kind": row.kind,
        "verdict": None if row.word == "measured" else row.word,
        "outcome": {
            "kind": "measured" if row.measured else "error",
            "code": (row.code or None) if not row.measured else None,
            "message": row.why.text,
        },
        "skill_state": row.skill_state or None,
        "cost_usd": row.cost_usd,
    }
