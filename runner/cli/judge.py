"""``hermeval judge ATTEMPT…``: the rubric of each attempt, by a separate model run for each vote (B12).

Boundary: touches the environment, the terminal and the named files. Not here: judging (runner/grade/judge.py), what the votes amount to (runner/grade/judge_verdict.py).
Rules: nothing is paid before every attempt, script and setting was looked at. An attempt in error is shown as it is and never judged. A judge's fault is ``judge-error``, exit status 2;
criteria that are not met are a measurement, exit status 0: the verdict on an attempt is the evaluation's. The judges' attempts lie beside the workers', or in ``--out``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runner.cli.interrupt import INTERRUPTS
from runner.cli.paths import NamedPath
from runner.cli.provider import provider_options
from runner.cli.run import ROOT
from runner.errors import RunnerError
from runner.text import visible

if TYPE_CHECKING:
    from runner.envelope import Fixture
    from runner.grade.judge import Candidate, JudgeTerms, Source
    from runner.grade.judge_verdict import Judgement, Panel, Rule

JUDGE_SCRIPT = "{}.judge"
"""Name of the scripted judge's script for a fixture's script name: ``scripts/missing-account.judge.json``."""


@dataclass(frozen=True)
class _Choice:
    """Who answers (provider.py)."""

    provider: str
    folder: Path
    script: Path | None
    base_url: str | None
    key_file: Path | None
    ca_file: Path | None
    environ: Mapping[str, str]


@click.command("judge", short_help="Judge attempts by their rubric.")
@click.argument("attempts", nargs=-1, required=True, type=NamedPath(), metavar="ATTEMPT...")
@provider_options
@click.option(
    "--fixtures",
    "folder",
    type=NamedPath(),
    default=ROOT / "fixtures",
    metavar="DIR",
    help="The fixtures' folder, with scripts/<fixture>.judge.json in it.",
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    help="The judge's model; give it again for a further judge. Default: the fixture's, else sonnet.",
)
@click.option(
    "--votes", type=click.IntRange(1, 25), default=1, show_default=True, metavar="N", help="Votes of each judge."
)
@click.option(
    "--rule",
    type=click.Choice(["unanimous", "majority"]),
    default="unanimous",
    show_default=True,
    help="What several votes need: all of them, or more than half. A tie or a failed vote is a judge-error.",
)
@click.option(
    "--max-usd", metavar="USD", help="Spend ceiling of each vote, at list prices; default: the fixture's, else 1."
)
@click.option("--timeout", type=click.IntRange(1, 86_400), metavar="S", help="Wall clock of each vote; default: 300.")
@click.option(
    "--jobs", type=click.IntRange(1, 64), default=1, show_default=True, metavar="N", help="Votes at one time."
)
@click.option(
    "--out",
    type=NamedPath(),
    metavar="DIR",
    help="Where the judges' attempts are written; default: beside each attempt.",
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object to stdout.")
def command(attempts: tuple[Path, ...], rule: Rule, as_json: bool, **options: Any) -> int:
    """Judge the output of each ATTEMPT, a file or a directory with attempts in it, by its rubric: a separate, isolated model run that sees output and rubric alone."""
    from runner.cli.batch import check_out, open_machine
    from runner.cli.provider import require_listener
    from runner.cli.replay import attempt_paths
    from runner.grade.judge import judge_attempts
    from runner.grade.judge_verdict import tally

    environ = dict(os.environ)  # noqa: TID251  commands are where the environment is read
    rows, candidates = _open(attempt_paths(attempts), options["out"])
    choice = _choice(options, environ)
    terms = _terms(options, choice)
    judgements: list[Judgement] = []
    if candidates:
        for out in {candidate.out for candidate in candidates.values()}:
            check_out(out)
        require_listener(choice)
        _say_who(options, len(candidates), len(terms.seats))
        machine, cancelled = open_machine(environ), threading.Event()
        with INTERRUPTS.deferred(cancelled.set):
            judgements = judge_attempts(list(candidates.values()), terms, machine, tell=_tell, cancelled=cancelled)
    for place, (number, candidate) in enumerate(candidates.items()):
        own = judgements[place * len(terms.seats) : (place + 1) * len(terms.seats)]
        ids = [criterion.id for criterion in candidate.fixture.rubric]
        rows[number] = judged_row(rows[number], tally(ids, own, rule))
    return _print(rows, as_json=as_json)


def judged_row(row: Mapping[str, Any], panel: Panel) -> dict[str, Any]:
    """Return a worker's row with its criteria, the votes under ``judge``, and the judges' fault as its outcome where there is one."""
    from runner.grade.judge_verdict import JUDGE_ERROR

    judged = {**row, "criteria": [result.as_json() for result in panel.criteria], "judge": panel.as_json()}
    fault = panel.error
    if fault is not None:
        message = f"{fault.cause}: {fault.message}"
        judged["outcome"] = {"kind": "error", "code": JUDGE_ERROR, "message": message, "hint": fault.hint}
        judged["verdict"] = "error"
    return judged


def _open(paths: list[Path], out: Path | None) -> tuple[list[dict[str, Any]], dict[int, Candidate]]:
    """Return a row for each attempt, and by its number what can be judged."""
    from runner.bundle.reader import read_manifest
    from runner.bundle.version1 import is_version1
    from runner.claude.row import error_row
    from runner.errors import NotJudged
    from runner.grade.judge import candidate_of
    from runner.grade.judge_saved import is_judge
    from runner.grade.subject import load_subject

    rows: list[dict[str, Any]] = []
    candidates: dict[int, Candidate] = {}
    for path in paths:
        try:
            if not is_version1(path) and is_judge(read_manifest(path).summary):
                raise NotJudged("judges are not judged", where=str(path), hint="name a worker's attempt")
            subject = load_subject(path)
            if subject.output is not None:
                candidates[len(rows)] = candidate_of(subject, out)
            rows.append(dict(subject.row))
        except RunnerError as error:
            click.echo(visible(error.diagnostics(), newlines=True), err=True)
            rows.append(error_row(error, path=str(path)))
    return rows, candidates


def _choice(options: Mapping[str, Any], environ: Mapping[str, str]) -> _Choice:
    names = ("provider", "folder", "script", "base_url", "key_file", "ca_file")
    return _Choice(**{name: options[name] for name in names}, environ=environ)


def _terms(options: Mapping[str, Any], choice: _Choice) -> JudgeTerms:
    from runner.cli.provider import make_source, read_key
    from runner.grade.judge import JudgeTerms
    from runner.grade.judge_plan import JudgeOptions

    key = read_key(choice) if choice.provider == "anthropic" else None

    def source(fixture: Fixture) -> Source:
        return make_source(choice, JUDGE_SCRIPT.format(fixture.script_name), key)

    return JudgeTerms(
        source,
        models=options["models"],
        votes=options["votes"],
        options=JudgeOptions(options["gate_mode"], options["max_usd"], options["timeout"]),
        jobs=options["jobs"],
        real_key=key,
    )


def _say_who(options: Mapping[str, Any], count: int, seats: int) -> None:
    runs = f"{count * seats} judge run{'s' if count * seats > 1 else ''}"
    if options["provider"] == "scripted":
        click.echo(
            f"provider: scripted ({runs}; no key, no network, no cost; --provider anthropic for the live one)", err=True
        )
    else:
        click.echo(
            f"provider: anthropic, live, {runs}, at most USD {options['max_usd'] or 'as the plan says'} a run", err=True
        )


def _tell(step: str, facts: Mapping[str, Any]) -> None:
    if step == "planned":
        plan = facts["plan"]
        click.echo(visible(f"{plan.fixture.id}: vote {plan.vote} by {plan.model}"), err=True)


def _print(rows: list[dict[str, Any]], *, as_json: bool) -> int:
    from runner.claude.row import envelope
    from runner.cli.answer import print_answer

    answer = envelope("judge", rows)
    for row in rows:
        click.echo("\n".join(visible(line) for line in story(row)), err=as_json)
    summary = answer["summary"]
    click.echo(f"measured {summary['measured']} / started {summary['started']}", err=as_json)
    if as_json:
        print_answer("judge", answer["exit_code"], answer)
    return int(answer["exit_code"])


def story(row: Mapping[str, Any]) -> list[str]:
    """Return a judged row as a person reads it; whoever prints the lines escapes them."""
    criteria, outcome = row["criteria"], row["outcome"]
    met = sum(criterion["met"] is True for criterion in criteria)
    if outcome["kind"] == "measured":
        head = f"{row['fixture']}: judged, {met} of {len(criteria)} criteria met"
    else:
        head = f"{row['fixture'] or row['path']}: error[{outcome['code']}]: {outcome['message']}"
    words = {True: "met", False: "not met", None: "undecided"}
    lines = [head, *(f"  {words[item['met']]:<10} {item['id']}: {item['reason']}" for item in criteria)]
    judge = row.get("judge")
    if judge is not None:
        lines.append(f"  rule       {judge['rule_in_words']}")
        if judge["disagreements"]:
            lines.append(f"  disagree   the votes differ on {', '.join(judge['disagreements'])}")
        lines += [line for vote in judge["votes"] for line in _vote_story(vote)]
        if judge["cost_usd"] is not None:
            lines.append(f"  cost       USD {judge['cost_usd']:.4f} at list prices")
    lines.append(f"  attempt    {row['path']}")
    return lines


def _vote_story(vote: Mapping[str, Any]) -> list[str]:
    model = f"{vote['model']['asked']} ({vote['provider'] or 'no run'}) -> {', '.join(vote['model']['wire']) or 'none asked'}"
    said = {item["id"]: "met" if item["met"] else "not met" for item in vote["criteria"]}
    told = ", ".join(f"{name} {word}" for name, word in said.items()) or f"judge-error: {vote['error']['cause']}"
    return [f"  vote {vote['vote']:<5} {model}: {told}", f"             {vote['path'] or 'no attempt was kept'}"]
