"""``hermeval reproduce ATTEMPT…``: run the real CLI again on recorded exchanges, and say ``exact``, ``normalised`` (by which rules, how often) or ``diverged`` (where first).

Boundary: touches the environment, the terminal and the named files; writes nothing. Not here: the run and the comparison (runner/reproduce.py).
Rules: tools are hashed once, before anything runs. Exit 0 all the same, 1 at least one differs, 2 at least one could not be compared (the worst wins, B11).
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runner.cli.paths import NamedPath
from runner.errors import RunnerError
from runner.text import visible

if TYPE_CHECKING:
    from runner.conduct import Machine
    from runner.reproduce import Reproduction

_REQUEST_PLACES = {"request", "order", "requests", "refusals"}


@click.command("reproduce", short_help="Run attempts again on their recorded exchanges.")
@click.argument("attempts", nargs=-1, required=True, type=NamedPath(), metavar="ATTEMPT...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@click.option(
    "--shift-date",
    type=click.IntRange(-631_152_000, 631_152_000),
    metavar="S",
    hidden=True,
    help="For tests: move the wall clock inside free runs by so many seconds.",
)
def command(attempts: tuple[Path, ...], as_json: bool, shift_date: int | None) -> int:
    """Run each ATTEMPT again with the real CLI and compare requests, transcript, output, tool trace, workspace and skill evidence.

    No provider is asked: the recorded answers are served, each once, in the recorded order. Another CLI or Node is refused; another root file system is drift, and told.
    What ran pinned runs pinned again, with the recorded date, seed and kernel; what ran free runs free.
    """
    from runner.cli.batch import open_machine
    from runner.cli.interrupt import INTERRUPTS

    environ = dict(os.environ)  # noqa: TID251  commands are where the environment is read
    machine = open_machine(environ)
    if shift_date is not None:
        machine = replace(machine, shift_s=shift_date)
    with ThreadPoolExecutor(1) as pool:  # hashing lets go of the interpreter, so that the imports cost nothing
        verified = pool.submit(verify_tools, machine, environ)
        import_module("runner.reproduce")
    verified.result()
    cancelled = threading.Event()
    rows = []
    with INTERRUPTS.deferred(cancelled.set):
        for path in attempts:
            row = reproduce_file(path, machine, cancelled)
            click.echo(_told(row), err=as_json)
            rows.append(row)
    exit_code = (
        2 if any(row["verdict"] == "error" for row in rows) else int(any(row["verdict"] == "diverged" for row in rows))
    )
    if as_json:
        from runner.cli.answer import print_results

        words = [row["verdict"] for row in rows]
        same = words.count("exact") + words.count("normalised")
        print_results("reproduce", exit_code, rows, passed=same, measured=len(rows) - words.count("error"))
    return exit_code


def verify_tools(machine: Machine, environ: dict[str, str]) -> None:
    """Hash the installed agent tools whole: a claim of the same bits does not rest on a stamp (DESIGN "The sandbox"). Raises: ToolchainMismatch.

    The tree's hash covers the tools; each is hashed by itself only to say which one is another.
    """
    from runner.nar import nar_sha256
    from runner.toolchain import default_cache_root, load_lock, mismatch, verify_tree

    lock, root, system = load_lock(), default_cache_root(os.geteuid(), environ), machine.toolchain.system
    if nar_sha256(lock.root("agent", system, root)) == lock.system(system).agent.nar_sha256:
        return
    for check in reversed(verify_tree(lock, "agent", root, system=system)):
        if check.status == "broken":
            raise mismatch(check)


def reproduce_file(path: Path, machine: Machine, cancelled: threading.Event) -> dict[str, Any]:
    """Return the result's row for one file; what could not be compared is in the row as ``error``."""
    from runner.bundle.reader import open_attempt
    from runner.bundle.version1 import is_version1
    from runner.errors import ReproduceImpossible
    from runner.reproduce import reproduce

    try:
        if is_version1(path):
            hint = "replay regrades its output"
            raise ReproduceImpossible("attempts of version 1 hold no exchanges", code="no-exchanges", hint=hint)
        attempt = open_attempt(path)
        done = reproduce(attempt, machine, tell=lambda step, facts: None, cancelled=cancelled)
    except RunnerError as error:
        return {
            "id": None,
            "path": str(path),
            "verdict": "error",
            "rules": {},
            "first_difference": None,
            "error": error.as_json(),
        }
    return _row(path, done)


def _row(path: Path, done: Reproduction) -> dict[str, Any]:
    return {
        "id": done.attempt_id,
        "path": str(path),
        "verdict": done.verdict,
        "rules": dict(done.rules),
        "first_difference": done.first_difference,
        "differences": list(done.differences),
        "transcript_rules": dict(done.transcript_rules),
        "rules_version": done.rules_version,
        "requests": {"served": done.served, "exact": done.exact_requests},
        "claims": _claims(done),
        "drift": list(done.drift),
        "tries": done.tries,
    }


def _claims(done: Reproduction) -> dict[str, str]:
    """Return what was asked (V4) and what came of it (V5) as claims of their own (facts/replay.md §2)."""
    places = {difference.partition(":")[0] for difference in done.differences}
    requests = "exact" if done.served == done.exact_requests else "normalised"
    return {
        "requests": "diverged" if places & _REQUEST_PLACES else requests,
        "results": "broken" if places - _REQUEST_PLACES else "held",
    }


def _told(row: dict[str, Any]) -> str:
    """Return a result for people, escaped."""
    lines = [visible(f"{row['path']}: {row['verdict']}")]
    if row["verdict"] == "error":
        error = row["error"]
        lines.append(visible(f"  error[{error['code']}]: {error['message']}"))
        if error["hint"]:
            lines.append(visible(f"  do:     {error['hint']}"))
        return "\n".join(lines)
    lines.append(
        f"  requests: {row['requests']['served']} served, {row['requests']['exact']} of them the recorded bytes"
    )
    if row["tries"] > 1:
        lines.append(f"  tries:    {row['tries']}, because a pinned run was not exact at once")
    for name, rules in (("rules", row["rules"]), ("transcript", row["transcript_rules"])):
        if rules:
            lines.append(
                visible(f"  {name}: " + ", ".join(f"{rule} {count}x" for rule, count in sorted(rules.items())))
            )
    lines += [visible(f"  differs: {difference}") for difference in row["differences"]]
    lines += [visible(f"  drift: {drift}") for drift in row["drift"]]
    return "\n".join(lines)
