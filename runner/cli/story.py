"""What ``run`` tells people: a short story of each run on stderr, and with ``--json`` one object on stdout.

Boundary: prints. Not here: any fact (they come with the row).
Rules: everything that comes from an attempt is escaped (``visible``). On a terminal a line says what is under way; elsewhere plain lines. Called from several threads: each
story is printed whole, under a lock.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from runner.text import visible

if TYPE_CHECKING:
    from runner.attempt import Attempted
    from runner.cli.batch import Request
    from runner.errors import RunnerError
    from runner.plan import Plan

_WORDS = {True: "yes", False: "no", None: "cannot tell"}


class Story:
    """Prints; keeps nothing but the lock and the number of runs."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._lock = threading.Lock()
        self._count = 0
        self._live = sys.stderr is not None and sys.stderr.isatty()

    def begin(self, request: Request, count: int) -> None:
        """Say who answers and where attempts go."""
        self._count = count
        if request.provider == "scripted":
            self._say(
                "provider: scripted (the fixture's own script: no key, no network, no cost; --provider anthropic for the live one)"
            )
        else:
            self._say(f"provider: anthropic, live, at most USD {request.max_usd or 'as the plan says'} a run")
        self._say(f"attempts: {request.out}")

    def teller(self, number: int, fixture: str) -> Callable[[str, Mapping[str, Any]], None]:
        """Return the progress port of one run."""
        started = time.monotonic()
        place = f"[{number + 1}/{self._count}] " if self._count > 1 else ""

        def tell(step: str, facts: Mapping[str, Any]) -> None:
            if step == "planned":
                for finding in dict.fromkeys(
                    f"{place}{fixture}: warning[{found.code}]: {found.path}: {found.message}"
                    for found in facts["findings"]
                ):
                    self._block([finding])
            elif step == "keep-failed":
                self._block([f"{place}{fixture}: warning[keep-failed]: {facts['where']}: {facts['why']}"])
            elif step == "started":
                self._progress(f"{place}{fixture}: the CLI runs (sandbox up in {facts['setup_s'] * 1e3:.0f} ms)")
            elif step == "first-event":
                self._progress(f"{place}{fixture}: first event after {time.monotonic() - started:.1f} s")

        return tell

    def ended(self, attempted: Attempted) -> dict[str, Any]:
        """Tell one kept attempt; return its row."""
        row = attempted.row
        lines = [f"{row['fixture']}: {_outcome(row)}", *_facts(attempted), f"  attempt    {row['path']}"]
        self._block(lines)
        return row

    def failed(self, fixture: str, error: RunnerError) -> dict[str, Any]:
        """Tell a run of which nothing could be kept; return a row for it."""
        self._block([f"{fixture}: error, nothing kept", error.diagnostics()])
        from runner.claude.row import error_row

        return error_row(error, fixture=fixture)

    def judging(self, step: str, facts: Mapping[str, Any]) -> None:
        """Progress port of the judges."""
        if step == "planned":
            plan = facts["plan"]
            self._progress(f"{plan.fixture.id}: judge's vote {plan.vote} by {plan.model}")

    def graded(self, row: Mapping[str, Any]) -> None:
        """Tell what grading made of an attempt."""
        self._block(graded_lines(row))

    def finish(self, rows: list[dict[str, Any]]) -> int:
        """Print the summary and, with ``--json``, the object; return the exit code."""
        return self._finish(rows, {})

    def interrupted(self, rows: list[dict[str, Any]], signal: str) -> int:
        """As ``finish``, over the runs that were finished before the signal; the exit code is 2."""
        from runner.errors import RunnerError

        what = f"interrupted by {signal}; nothing of what was under way is kept"
        error = RunnerError(what, hint="finished attempts are kept", code="interrupted")
        self._block([error.diagnostics()])
        return self._finish(rows, {"verdict": "error", "exit_code": 2, "error": error.as_json()})

    def ungraded(self, rows: list[dict[str, Any]], error: RunnerError) -> int:
        """As ``finish``, where attempts were kept and nothing could be graded; the exit code is 2."""
        self._block([error.diagnostics(), "  the attempts are kept; grade them with hermeval replay"])
        return self._finish(rows, {"verdict": "error", "exit_code": 2, "error": error.as_json()})

    def _finish(self, rows: list[dict[str, Any]], changes: Mapping[str, Any]) -> int:
        from runner.claude.row import run_envelope

        answer = {**run_envelope("run", rows), **changes}
        summary = answer["summary"]
        self._say(f"passed {summary['passed']} / measured {summary['measured']} / started {summary['started']}")
        if self._as_json:
            from runner.cli.answer import print_answer

            print_answer("run", answer["exit_code"], answer)
        return int(answer["exit_code"])

    def plans(self, plans: list[Plan]) -> int:
        """Print the plans of ``--prepare-only``; return 0."""
        import json

        if self._as_json:
            from runner.cli.answer import print_answer

            return print_answer(
                "run",
                0,
                {"verdict": None, "plans": [{"plan_sha256": plan.sha256, "plan": plan.as_json()} for plan in plans]},
            )
        for plan in plans:
            click.echo(json.dumps(plan.as_json(), indent=2, sort_keys=True))
            self._say(f"{plan.fixture.id}: plan_sha256 {plan.sha256}; no model call was made")
        return 0

    def _progress(self, line: str) -> None:
        if self._live:
            with self._lock:
                _tell(f"\r\x1b[K{visible(line)}", nl=False)
        elif self._count > 1:
            self._say(line)

    def _block(self, lines: list[str]) -> None:
        with self._lock:
            if self._live:
                _tell("\r\x1b[K", nl=False)
            _tell("\n".join(visible(line, newlines=True) for line in lines))

    def _say(self, line: str) -> None:
        with self._lock:
            _tell(visible(line))


def _tell(text: str, *, nl: bool = True) -> None:
    """Print for people; that nobody reads it any more ends no run."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(text, err=True, nl=nl)


def graded_lines(row: Mapping[str, Any]) -> list[str]:
    """Return a graded row as a person reads it."""
    checks, criteria = row["checks"], row["criteria"]
    if row["verdict"] == "error":
        outcome = row["outcome"]
        lines = [f"{row['fixture']}: error[{outcome['code']}]: {outcome['message']}"]
        lines += [f"  do         {outcome['hint']}"] if outcome["hint"] else []
    else:
        met = [
            f"{sum(item['met'] is True for item in items)} of {len(items)} {name} met"
            for name, items in (("checks", checks), ("criteria", criteria))
            if items
        ]
        lines = [f"{row['fixture']}: {row['verdict']}: {', '.join(met)}"]
    lines += [
        f"  {'met' if item['met'] else 'NOT MET':<10} {item['id']}: {item['reason']}" for item in (*checks, *criteria)
    ]
    if row.get("not_judged"):
        lines.append(f"  rubric     not judged: {', '.join(row['not_judged'])}")
    return [*lines, f"  evaluation {row['evaluation']}"] if row.get("evaluation") else lines


def _outcome(row: Mapping[str, Any]) -> str:
    outcome = row["outcome"]
    if outcome["kind"] == "measured":
        return "measured"
    hint = f"\n  do         {outcome['hint']}" if outcome["hint"] else ""
    return f"error[{outcome['code']}]: {outcome['message']}{hint}"


def _facts(attempted: Attempted) -> list[str]:
    row, plan = attempted.row, attempted.plan
    claude, node = row["toolchain"]["claude"] or {}, row["toolchain"]["node"] or {}
    requests, witnesses = row["requests"], row["witnesses"]
    world = plan.pinned
    pinned = f"date {world.date}, seed {world.seed[:12]}, kernel {world.release}: never scored" if world else ""
    refused = f", {requests['refused']} refused" if requests["refused"] else ""
    cost = f"USD {row['cost_usd']:.4f} at list prices" if row["cost_usd"] is not None else "none known"
    paid = " (nothing was paid: scripted)" if row["provider"] == "scripted" else ""
    place = (
        "home in memory, workspace a directory of this host"
        if plan.shared_workspace
        else "home and workspace in memory"
    )
    debug = ["  DEBUG      the workspace is shared with this host; not for results"] if plan.shared_workspace else []
    return [
        f"  ran        skill {plan.unit.skill} by {plan.invocation}, Claude CLI {claude.get('version')} ({plan.launch.setting}), Node {node.get('version')} pinned",
        f"  in         bubblewrap, root file system: {row['rootfs']} ({'pinned' if row['rootfs'] == 'nix' else 'not pinned'}), {place}, network: the gate only ({row['gate_mode']})",
        f"  evidence   skill {row['skill_state']}: transcript {_WORDS[witnesses['transcript']]}, wire {_WORDS[witnesses['wire']]}; {requests['sent']} requests{refused}, {row['rounds']} rounds",
        f"  model      {plan.model} -> {', '.join(row['model']['wire']) or 'none asked'}",
        f"  took       {row['duration_s']:.1f} s, cost {cost}{paid}",
        *debug,
        *([f"  pinned     {pinned}"] if pinned else []),
        *(f"  note       {note}" for note in row["notes"]),
    ]
