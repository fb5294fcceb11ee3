"""The command line: one file a verb, loaded when it is asked for; the only place that prints or exits.

Boundary: touches standard streams, the environment and the exit status. Not here: anything a verb does (runner/*).
Rules: a verb lives in ``runner/cli/<module>.py`` as a click command named ``command`` and returns its exit code (0, 1 or 2; None is 0).
Any exception can only ever mean 2 (B11): click's own exits, a bug and a signal included. Start-up matters: nothing but click is imported here.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from runner.errors import RunnerError

VERBS: dict[str, tuple[str, str]] = {
    "run": ("run", "Run fixtures: the real CLI on the real skill, in a sandbox, through the gate."),
    "show": ("show", "Show one attempt, or judge a saved transcript."),
    "list": ("list_", "List the attempts of a directory."),
    "verify": ("verify", "Check what an attempt claims, one line a claim."),
    "doctor": ("doctor", "Try on this host each thing that a run needs; name causes and cures."),
    "toolchain": ("toolchain", "Check the pinned tools against their recorded hashes."),
}
"""Verb → module below runner.cli, one-line help."""


class Verbs(click.Group):
    """A click group that imports a verb's module when the verb is used, and prints the list of verbs without importing any."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of the table."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the verb's command, or None for an unknown one."""
        if cmd_name not in VERBS:
            return None
        loaded = import_module(f"runner.cli.{VERBS[cmd_name][0]}").command
        if not isinstance(loaded, click.Command):
            raise TypeError(f"runner.cli.{VERBS[cmd_name][0]}.command is no click command")
        return loaded

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs' help lines from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(verb, line) for verb, (_, line) in VERBS.items()])


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name=None, version="0.1.0", prog_name="hermeval")
def hermeval() -> None:
    """Evaluate agent skills hermetically: run, verify, replay and reproduce attempts.

    Exit status everywhere: 0 pass, or measured and not graded; 1 measured and failed; 2 could not measure, bad usage, or a signal.
    """


def run_command(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; known errors, usage errors, interrupts and bugs all come out as 2.

    With ``--json`` such an end is one JSON object on stdout too, with ``error`` in it.
    """
    from runner.errors import RunnerError

    try:
        result = hermeval.main(args=list(arguments), prog_name="hermeval", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return 0 if stop.exit_code == 0 else 2
    except RunnerError as error:
        click.echo(error.diagnostics(), err=True)
        return _failed(arguments, error)
    except click.ClickException as usage:
        usage.show(file=sys.stderr)
        return _failed(arguments, RunnerError(usage.format_message(), code="usage", hint="see --help"))
    except (KeyboardInterrupt, click.Abort) as stop:
        click.echo("hermeval: interrupted; nothing of what was under way is kept, finished attempts are", err=True)
        return _failed(arguments, RunnerError(f"interrupted{f' by {stop}' if str(stop) else ''}", code="interrupted"))
    except BrokenPipeError:
        # The reader went away: nothing more can be said, and the interpreter's own flush at exit must not say it either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    except Exception as bug:  # noqa: BLE001  the one boundary: a bug is an error of ours, never a fail
        import traceback

        traceback.print_exc()
        hint = "this is a defect of hermeval; report it with the lines above"
        defect = RunnerError(f"{type(bug).__name__}: {bug}", hint=hint)
        click.echo(defect.diagnostics(), err=True)
        return _failed(arguments, defect)
    return result if isinstance(result, int) else 0


def _failed(arguments: Sequence[str], error: RunnerError) -> int:
    """Print the JSON object of a command that did not come to its own, where one was asked for; return 2."""
    if "--json" in arguments:
        from runner.cli.answer import print_error

        verb = next((word for word in arguments if word in VERBS), "")
        empty = {
            "verdict": "error",
            "summary": {"passed": 0, "measured": 0, "started": 0},
            "attempts": [],
            "results": [],
        }
        print_error(verb, error, empty)
    return 2


def _interrupt(signum: int, _frame: object) -> None:
    raise KeyboardInterrupt(signal.Signals(signum).name)


def main() -> NoReturn:
    """Entry point of the program ``hermeval``: SIGTERM and SIGHUP unwind like Ctrl-C, so that every clean-up runs; ends in 0, 1 or 2."""
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    code = run_command(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = 2
    sys.exit(code)  # noqa: TID251  the one exit
