"""``hermeval show``: judge a saved transcript by the functions that judge a run, or show one attempt.

Boundary: touches the named files, stdout and stderr. Not here: any rule (runner/claude/*).
Rules: with ``--json`` stdout is exactly one JSON object, ASCII, and people's text goes to stderr. The transcript is read as a stream, for as long as it comes.
With ``--skill`` the skill is required: every state but ``ran`` is an error (A3). Exit status 0 measured, 2 error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from runner.cli.answer import print_answer
from runner.cli.paths import require_path
from runner.errors import InputMissing, SettingInvalid
from runner.text import visible

_CHUNK_BYTES = 1 << 18
_MAX_WIRE_BYTES = 512 << 20
"""No part of an attempt is larger; requests are compared as a whole, so their file is held in memory."""
_MAX_ANSWER_SHOWN = 2000
_TIMEOUT_STATUS = 124
"""What ``timeout(1)`` exits with: in ``show`` it says that the recorded run was ended by its time limit (A8, rule 3)."""


@click.command("show")
@click.argument("attempt", required=False, metavar="[ATTEMPT]")
@click.option("--transcript", metavar="FILE", help="A saved stream-json transcript to judge.")
@click.option("--skill", metavar="NAME", help="The skill, or <skill>/references/<file>.md, that must have run.")
@click.option("--wire", metavar="FILE", help="The recorded requests, as JSON lines or an attempt: the second witness.")
@click.option("--exit-status", type=int, metavar="N", help="The CLI's exit status; -N for signal N.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object to stdout.")
def command(
    attempt: str | None,
    transcript: str | None,
    skill: str | None,
    wire: str | None,
    exit_status: int | None,
    as_json: bool,
) -> int:
    """Show ATTEMPT as its own evidence tells it, or judge the transcript in FILE as a run would be judged."""
    if (attempt is None) == (transcript is None):
        raise click.UsageError("name either an ATTEMPT or a --transcript FILE")
    for name, text in (("ATTEMPT", attempt), ("--transcript", transcript), ("--wire", wire)):
        if text is not None:
            require_path(text, name)
    if attempt is not None:
        if skill is not None or wire is not None or exit_status is not None:
            raise click.UsageError("--skill, --wire and --exit-status go with --transcript: an attempt holds its own")
        return print_rows("show", [attempt_file_row(Path(attempt))], as_json=as_json)
    assert transcript is not None
    row = judge_transcript(Path(transcript), skill, None if wire is None else Path(wire), exit_status, _warn)
    return print_rows("show", [row], as_json=as_json)


def attempt_file_row(path: Path) -> dict[str, Any]:
    """Return the row of a saved attempt, recomputed from its parts; of version 1, which has none, what it says. Raises: InputMissing, BundleError; FixtureInvalid (version 1)."""
    from runner.assess import assess_attempt, stored_row
    from runner.bundle.reader import open_attempt
    from runner.bundle.version1 import is_version1
    from runner.grade.judge_saved import is_judge, judge_row

    if is_version1(path):
        from runner.grade.subject import load_subject

        return dict(load_subject(path).row)
    attempt = open_attempt(path)
    if is_judge(attempt.manifest.summary):
        return judge_row(attempt, str(path))
    assessment, _ = assess_attempt(attempt)
    return stored_row(attempt, assessment, str(path))


def judge_transcript(
    path: Path, skill: str | None, wire: Path | None, exit_status: int | None, warn: Callable[[str], None]
) -> dict[str, Any]:
    """Return the row of a saved transcript, by the rules that judge a run (A3–A9).

    Raises: InputMissing for a file that cannot be read, InputError for a wire file that is none, SettingInvalid for an empty skill name.
    """
    from runner.claude.case import Case, Ending
    from runner.claude.evidence import Requirement, judge_skill
    from runner.claude.outcome import classify
    from runner.claude.row import attempt_row
    from runner.claude.transcript import TranscriptParser
    from runner.claude.wire import wire_evidence

    if skill is not None and not skill.strip("/ "):
        raise SettingInvalid("the skill's name is empty", where="--skill")
    requirement = None if skill is None else Requirement.parse(skill)
    parser = TranscriptParser(
        on_unparsed=lambda number: warn(f"line {number} is no JSON object and was dropped"), keep_ledger=False
    )
    for chunk in _chunks(path):
        parser.feed(chunk)
    facts = parser.close()
    seen = None
    if wire is not None:
        exchanges = _exchanges(wire)
        seen = None if requirement is None else wire_evidence(exchanges, requirement)
    case = Case(
        transcript=facts,
        ending=Ending(exit_status=exit_status, ended_by="timeout" if exit_status == _TIMEOUT_STATUS else None),
        skill=judge_skill(facts, requirement, seen),
    )
    version = facts.init.version if facts.init is not None else ""
    return {
        "fixture": None,
        **attempt_row(case, classify(case)),
        "toolchain": {"claude": {"version": version or None, "nar_sha256": None}, "node": None, "promptfoo": None},
    }


def print_rows(verb: str, rows: list[dict[str, Any]], *, as_json: bool) -> int:
    """Print rows for people (stdout; stderr beside ``--json``) and as the one JSON object; return the exit code."""
    from runner.claude.row import envelope

    for row in rows:
        click.echo(_story(row), err=as_json)
    result = envelope(verb, rows)
    if as_json:
        print_answer(verb, result["exit_code"], result)
    return int(result["exit_code"])


def _story(row: dict[str, Any]) -> str:
    """Return a row as a person reads it; everything foreign is escaped."""
    outcome = row["outcome"]
    head = "measured" if outcome["kind"] == "measured" else f"error[{outcome['code']}]"
    never = row.get("determinism") == "pinned" and outcome["kind"] == "measured"
    lines = [
        f"{head}: {'the run is complete; it was pinned, so it is never scored' if never else visible(outcome['message'])}"
    ]
    if outcome["hint"]:
        lines.append(f"  do:     {visible(outcome['hint'])}")
    if row["skill_state"] is not None:
        answers = {True: "yes", False: "no", None: "cannot tell or not asked"}
        told = ", ".join(f"{name} {answers[row['witnesses'][name]]}" for name in ("transcript", "wire"))
        lines.append(f"  skill:  {row['skill_state']} (witnesses: {told})")
    if row["skills_invoked"]:
        lines.append(f"  called: {visible(', '.join(row['skills_invoked']))}")
    if row.get("kind") == "judge":
        lines.append(f"  judges: {row['judges']['attempt']}, vote {row['judges']['vote']}")
    words = {True: "met", False: "not met", None: "undecided"}
    lines += [f"  {words[item['met']]}: {visible(item['id'])}: {visible(item['reason'])}" for item in row["criteria"]]
    for label, text in (("answer", row["output"]), ("unscored answer", row["unscored_output"])):
        if text is not None:
            lines.append(f"  {label}: {visible(_shortened(text))}")
    lines += [f"  note:   {visible(note)}" for note in row["notes"]]
    return "\n".join(lines)


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_ANSWER_SHOWN else f"{text[:_MAX_ANSWER_SHOWN]}… ({len(text)} characters)"


def _chunks(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise _missing(path, error) from error


def _exchanges(path: Path) -> Any:
    from runner.bundle.format import ZSTD_MAGIC
    from runner.claude.wirefile import WireFileInvalid, read_wire_file

    data = bytearray()
    for chunk in _chunks(path):
        data += chunk
        if data.startswith(ZSTD_MAGIC):
            from runner.bundle.reader import open_attempt

            return open_attempt(path).exchanges()
        if len(data) > _MAX_WIRE_BYTES:
            hint = "give the requests of one run, or its attempt"
            raise WireFileInvalid(f"the file passes {_MAX_WIRE_BYTES >> 20} MiB", where=str(path), hint=hint)
    return read_wire_file(bytes(data), str(path))


def _missing(path: Path, error: Exception) -> InputMissing:
    reason = getattr(error, "strerror", None) or error
    return InputMissing(f"cannot read the file: {reason}", where=str(path), hint="check the path and its permissions")


def _warn(text: str) -> None:
    click.echo(f"warning: {text}", err=True)
