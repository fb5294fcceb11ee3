"""``hermeval mutate ATTEMPT --replace OLD=NEW --reason TEXT -o NEW``: make a negative control (B9).

Boundary: prints. Not here: what a control is (runner/grade/control.py). Exit status 0 made, 2 anything else: the parent's provenance is checked first, and nothing is overwritten.
"""

from __future__ import annotations

from pathlib import Path

import click

from runner.cli.answer import print_answer
from runner.cli.paths import NamedPath
from runner.errors import SettingInvalid
from runner.text import visible


@click.command("mutate", short_help="Make a negative control of an attempt.")
@click.argument("attempt", type=NamedPath(), metavar="ATTEMPT")
@click.option(
    "--replace",
    "replacements",
    multiple=True,
    required=True,
    metavar="OLD=NEW",
    help="Replace every OLD in the output by NEW (up to the first '='); may be given again.",
)
@click.option("--reason", required=True, metavar="TEXT", help="What the control shows, in one sentence.")
@click.option(
    "-o",
    "--out",
    "target",
    required=True,
    type=NamedPath(),
    metavar="NEW",
    help="The new file, or a directory for it.",
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object to stdout.")
def command(attempt: Path, replacements: tuple[str, ...], reason: str, target: Path, as_json: bool) -> int:
    """Copy ATTEMPT with a mutated output, which a check must catch; the generation record stays as it was."""
    from runner.bundle.reader import open_attempt
    from runner.bundle.version1 import is_version1
    from runner.grade.control import write_control
    from runner.grade.subject import load_subject

    pairs = [_pair(text) for text in replacements]
    if is_version1(attempt):
        raise SettingInvalid(
            "an attempt of version 1 is not mutated",
            where=str(attempt),
            hint="write its control by hand, or use a newer attempt",
        )
    subject = load_subject(attempt)
    if subject.output is None:
        raise SettingInvalid(
            "this attempt is an error and has no output to mutate", where=str(attempt), hint=subject.outcome.message
        )
    path = write_control(open_attempt(attempt), subject.output, pairs, reason, target)
    made = load_subject(path)
    click.echo(visible(f"negative control of {subject.attempt_id[:12]}: {path}"), err=as_json)
    if as_json:
        print_answer(
            "mutate",
            0,
            {"id": made.attempt_id, "path": str(path), "fixture": made.fixture.id, "negative_control": made.control},
        )
    return 0


def _pair(text: str) -> tuple[str, str]:
    old, sign, new = text.partition("=")
    if not old or not sign:
        hint = "write what stands in the output, '=', and what is to stand there instead"
        raise SettingInvalid(f"{text!r} is not OLD=NEW", where="--replace", hint=hint)
    return old, new
