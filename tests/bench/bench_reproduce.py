"""``reproduce`` beside the bare CLI on the same answers from an instant server (issue 3, acceptance 6).

One attempt of ``missing-account`` is recorded, then run again on its exchanges; the bare CLI has the same launch and a server that plays the same script at once. Figures of ours: the whole of
``runner.reproduce`` in a warm process (read and verify the attempt, stage, run, compare: every further attempt of a command); and the whole command in a process of its own,
start, imports and the hashing of the installed tools included, with one attempt and with three.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.attempt import Machine, run_attempt
from runner.bundle.reader import open_attempt
from runner.reproduce import reproduce
from tests.bench.figures import Figure, Timed, interleave, table, versus
from tests.bench.rig import Mode, bare_cli, child_environment, load, make_job, this_machine

TITLE = "reproduce, whole, beside the bare CLI (missing-account, stock, 2 requests)"


def record(mode: Mode, out: Path, machine: Machine) -> Path:
    """Record the attempt that is reproduced."""
    attempted = run_attempt(make_job(mode, out), machine, tell=_tell, cancelled=threading.Event())
    assert attempted.row["outcome"]["kind"] == "measured", attempted.row["outcome"]
    return attempted.kept.path


def main(runs: int = 15) -> None:
    """Print the figures."""
    machine = this_machine()
    with tempfile.TemporaryDirectory(prefix="hermeval-out-") as name, bare_cli(machine) as bare:
        recorded = {mode: record(mode, Path(name), machine) for mode in ("base-url", "first-party")}
        worked: dict[str, list[float]] = {}
        variants: dict[str, Timed] = {
            "bare CLI": bare.run,
            "reproduce, base-url, warm process": lambda: _again(recorded["base-url"], machine),
            "reproduce, first-party, warm process": lambda: _again(recorded["first-party"], machine),
            "hermeval reproduce, 1 attempt": lambda: _command(recorded["base-url"], 1),
            "hermeval reproduce, 3 attempts": lambda: _command(recorded["base-url"], 3),
        }
        measured = {name: _worked(work, worked.setdefault(name, [])) for name, work in variants.items()}
        figures = interleave(measured, runs=runs, warmup=min(1, runs - 1))
    table(f"{TITLE}; {load()}", list(figures.values()))
    bare_figure, *ours = figures.values()
    based, first_party, one, three = ours
    versus(based, bare_figure, at_most_ratio=1.15)
    versus(first_party, based)  # the CLI does more there: TLS, start-up calls, another prompt
    further = tuple((b - a) / 2 for a, b in zip(one.seconds, three.seconds, strict=True))
    versus(Figure("each further attempt of a command", further), bare_figure, at_most_ratio=1.15)
    versus(one, bare_figure)
    processor = [Figure(name, tuple(seconds[-runs:])) for name, seconds in worked.items()]
    table("processor time; of ours without the CLI, whose supervisor alone knows it: what we add to it", processor)
    added, alone = processor[1].median, processor[0].median
    print(f"  -> we add {added * 1e3:.0f} ms of work to the CLI's {alone * 1e3:.0f} ms: {added / alone:.1%}")


def _worked(work: Timed, kept: list[float]) -> Timed:
    """Return the work, which also keeps how long processors worked for it, here and in every process that was waited for."""

    def timed() -> float | None:
        before = _processor()
        own = work()
        kept.append(_processor() - before)
        return own

    return timed


def _processor() -> float:
    here, ended = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return here.ru_utime + here.ru_stime + ended.ru_utime + ended.ru_stime


def _again(path: Path, machine: Machine) -> None:
    done = reproduce(open_attempt(path), machine, tell=_tell, cancelled=threading.Event())
    assert done.verdict in ("exact", "normalised"), done.differences


def _command(path: Path, count: int) -> None:
    argv = [sys.executable, "-P", "-m", "runner.cli", "reproduce", *[str(path)] * count]
    subprocess.run(argv, env=child_environment(), stdout=subprocess.DEVNULL, check=True, cwd="/")


def _tell(_step: str, _facts: Mapping[str, Any]) -> None:
    pass


if __name__ == "__main__":
    main()
