"""The verbs: a table, and the click group that loads a verb's module when it is asked for.

Boundary: imports modules. Not here: exit codes and signals (``__init__``), anything a verb does.
Rules: a verb lives in ``runner/cli/<module>.py`` as a click command named ``command`` and returns its exit code (0, 1 or 2; None is 0). Start-up matters: nothing but click
is imported here.
"""

from __future__ import annotations

from importlib import import_module

import click

VERBS: dict[str, tuple[str, str]] = {
    "run": ("run", "Run fixtures: the real CLI on the real skill, in a sandbox, through the gate."),
    "judge": ("judge", "Judge attempts by their rubric: a separate, isolated model run for each vote."),
    "replay": ("replay", "Regrade saved attempts with today's profiles and the pinned Promptfoo."),
    "reproduce": ("reproduce", "Run attempts again on their recorded exchanges and compare bit for bit."),
    "show": ("show", "Show one attempt, or judge a saved transcript."),
    "report": ("report", "Show attempts as one self-contained HTML page, or as Markdown."),
    "list": ("list_", "List the attempts of a directory."),
    "mutate": ("mutate", "Make a negative control: a copy of an attempt with a mutated output."),
    "verify": ("verify", "Check what an attempt claims, one line a claim."),
    "sign": ("sign", "Sign attempts with an SSH key: a detached signature beside each."),
    "doctor": ("doctor", "Try on this host each thing that a run needs; name causes and cures."),
    "gate": ("gate", "Hold the provider key in a process of its own, for runs that reach it by a socket."),
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
