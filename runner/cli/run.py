"""``hermeval run FIXTURE…``: load, plan, run, keep an attempt of each, judge and grade it.

Boundary: touches the environment, the terminal and the named directories. Not here: the run itself (runner/attempt.py), judging and grading (grading.py, runner/grade).
Rules: nothing is paid before every named fixture, profile, script and setting was found to be in order. A fault of one fixture's run is that attempt's own error and stops no
other. Finished attempts stay, whatever ends the command. Exit status 0 pass (or measured, with --no-grade), 1 fail, 2 anything that could not be measured or graded (B11).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from runner.cli.paths import NamedPath
from runner.cli.provider import provider_options
from runner.errors import SettingInvalid

ROOT = Path(__file__).resolve().parent.parent.parent


def default_out(environ: dict[str, str]) -> Path:
    """Return where attempts lie unless ``--out`` says otherwise: below the user's state directory, since a checkout may be read-only.

    Raises: SettingInvalid where the environment names no such place.
    """
    state, home = environ.get("XDG_STATE_HOME", ""), environ.get("HOME", "")
    if state.startswith("/"):
        base = Path(state)
    elif home.startswith("/"):
        base = Path(home) / ".local" / "state"
    else:
        hint = "name a directory for attempts, or set HOME"
        raise SettingInvalid("neither XDG_STATE_HOME nor HOME is an absolute path", where="the environment", hint=hint)
    return base / "hermeval" / "attempts"


def limits_of(_: click.Context, option: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Return the names in a list of limits. Raises: click.BadParameter."""
    names = tuple(dict.fromkeys(value.split(","))) if value is not None else ()
    for name in names:
        if name not in ("memory", "pids"):
            raise click.BadParameter(f"{name!r} is not memory or pids", param=option)
    return names


@click.command("run", short_help="Run fixtures.")
@click.argument("fixtures", nargs=-1, metavar="[FIXTURE]...")
@click.option(
    "--fixtures",
    "folder",
    type=NamedPath(),
    default=ROOT / "fixtures",
    metavar="DIR",
    help="The fixtures' folder, with skills/, recipes/ and scripts/ in it.",
)
@click.option(
    "--skills",
    type=NamedPath(),
    metavar="DIR",
    help="The skills folder; default: skills/ in the fixtures' folder.",
)
@provider_options
@click.option(
    "--launch",
    type=click.Choice(["stock", "lean"]),
    default="stock",
    show_default=True,
    help="Launch setting: what users have, or small and equal requests.",
)
@click.option(
    "--determinism",
    type=click.Choice(["free", "pinned"]),
    default="free",
    show_default=True,
    help="Real clock and chance, or both pinned, so that requests are equal byte for byte: then measured only, never scored.",
)
@click.option("--pinned-date", metavar="DATE", help="YYYY-MM-DD[THH:MM:SSZ] at which a pinned run's clock stands.")
@click.option(
    "--pinned-seed", metavar="HEX", help="64 hexadecimal digits that a pinned run's random bytes follow from."
)
@click.option("--model", metavar="NAME", help="Model alias or name; default: the fixture's, else sonnet.")
@click.option(
    "--max-usd",
    metavar="USD",
    help="Spend ceiling of each run, at list prices; a vote of the judge has at most this too.",
)
@click.option(
    "--timeout",
    type=click.IntRange(1, 86_400),
    metavar="S",
    help="Wall clock of each run in seconds; of a vote at most.",
)
@click.option(
    "--repeat", type=click.IntRange(1, 10_000), default=1, show_default=True, metavar="N", help="Runs of each fixture."
)
@click.option("--jobs", type=click.IntRange(1, 64), default=1, show_default=True, metavar="N", help="Runs at one time.")
@click.option(
    "--out",
    type=NamedPath(),
    metavar="DIR",
    help="Where attempts are written; default: hermeval/attempts in the user's state directory.",
)
@click.option(
    "--keep",
    type=NamedPath(),
    metavar="DIR",
    help="Copy workspace and home out after the run, for diagnosis; DIR must be new or empty.",
)
@click.option(
    "--shared-workspace",
    type=NamedPath(),
    metavar="DIR",
    help="For debugging only: DIR, empty and made to be thrown away, is the workspace of one run and keeps what the run leaves.",
)
@click.option("--no-grade", is_flag=True, help="Keep the attempts and stop: no judge, no checks, no verdict.")
@click.option("--no-judge", is_flag=True, help="Grade by checks alone; the rubric stays unjudged.")
@click.option(
    "--votes",
    type=click.IntRange(1, 25),
    default=1,
    show_default=True,
    metavar="N",
    help="Votes of the judge on each output.",
)
@click.option(
    "--rule",
    type=click.Choice(["unanimous", "majority"]),
    default="unanimous",
    show_default=True,
    help="What several votes need.",
)
@click.option(
    "--require-limits",
    callback=limits_of,
    metavar="LIST",
    help="Limits that the kernel must hold, else no run starts: memory, pids, or both with a comma.",
)
@click.option("--prepare-only", is_flag=True, help="Print the plan and its sha256; no model call is made.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object to stdout.")
def command(fixtures: tuple[str, ...], as_json: bool, **options: Any) -> int:
    """Run each FIXTURE (an id, or a path to a file), or all of the folder where none is named."""
    pinned = options["determinism"] == "pinned"
    if options["no_grade"] or options["no_judge"] or pinned:
        given = click.get_current_context().get_parameter_source
        loose = [f"--{name}" for name in ("votes", "rule") if given(name) is click.core.ParameterSource.COMMANDLINE]
        if loose:
            raise click.UsageError(f"{' and '.join(loose)} say how votes count, and nothing is judged here")
        if pinned and options["no_judge"]:
            raise click.UsageError("--no-judge says how to grade, and pinned runs are never scored")
    from runner.cli.batch import Request, prepare, run_batch
    from runner.cli.grading import GradingChoice
    from runner.cli.story import Story

    environ = dict(os.environ)  # noqa: TID251  commands are where the environment is read
    request = Request(
        names=fixtures,
        folder=options["folder"],
        skills=options["skills"],
        provider=options["provider"],
        script=options["script"],
        base_url=options["base_url"],
        key_file=options["key_file"],
        ca_file=options["ca_file"],
        gate_mode=options["gate_mode"],
        launch=options["launch"],
        determinism=options["determinism"],
        pinned_date=options["pinned_date"],
        pinned_seed=options["pinned_seed"],
        model=options["model"],
        max_usd=options["max_usd"],
        timeout_s=options["timeout"],
        repeat=options["repeat"],
        jobs=options["jobs"],
        out=options["out"] or default_out(environ),
        keep=options["keep"],
        environ=environ,
        shared_workspace=options["shared_workspace"],
        require_limits=options["require_limits"],
        grading=None
        if options["no_grade"] or pinned
        else GradingChoice(judge=not options["no_judge"], votes=options["votes"], rule=options["rule"]),
    )
    story = Story(as_json=as_json)
    if options["prepare_only"]:
        return story.plans(prepare(request))
    return run_batch(request, story)
