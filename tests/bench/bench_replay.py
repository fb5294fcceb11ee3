"""How long ``hermeval replay`` takes over many attempts, as a whole process, and the largest process that it needs; beside one Promptfoo process per attempt.

Aims: 1,000 attempts take at most 30 s more than one, under 600 MB for the largest process, at least 50 times as fast as one process per attempt. Prints whether they were
met; asserts no time. Every attempt is one of its own (another id, its own records), made from one real run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.attempt import run_attempt
from runner.bundle.reader import Attempt, open_attempt
from runner.bundle.writer import AttemptContent, write_attempt
from runner.canonical import canonical_json, parse_canonical
from runner.grade.assertions import ask
from runner.grade.grading import Grader
from runner.grade.promptfoo import Promptfoo
from runner.grade.subject import Subject, load_subject
from sandbox.process import Host
from tests.bench.rig import child_environment, load, make_job, this_machine

AIM_MORE_S = 30.0
AIM_MB = 600
AIM_TIMES = 50


@dataclass(frozen=True)
class Replayed:
    """One replay command."""

    seconds: float
    largest_mb: float
    largest: str
    """The program that was the largest."""


def main(counts: Sequence[int] = (1, 10, 100, 1000), alone: int = 3) -> None:
    """Print a row for each number of attempts, then the comparison with one Promptfoo process per attempt, from ``alone`` such processes."""
    print(f"\nhermeval replay (whole process, real Promptfoo); {load()}")
    print(f"{'attempts':>8}  {'s':>7}  {'ms/attempt':>10}  {'attempts/s':>10}  {'largest MB':>10}")
    machine = this_machine()
    with tempfile.TemporaryDirectory(prefix="hermeval-bench-") as name:
        base = run_attempt(
            make_job("first-party", Path(name)), machine, tell=lambda step, facts: None, cancelled=threading.Event()
        ).kept.path
        found: dict[int, Replayed] = {}
        for count in counts:
            directory = Path(name) / f"of-{count}"
            fill(directory, open_attempt(base), count)
            one = found[count] = replay(directory, count)
            each = (one.seconds - found[counts[0]].seconds) / (count - counts[0]) if count > counts[0] else one.seconds
            print(
                f"{count:>8}  {one.seconds:>7.2f}  {each * 1e3:>10.2f}  {1 / each:>10.1f}  {one.largest_mb:>10.0f}  {one.largest}"
            )
        process_s = one_process_each(machine.host, load_subject(base), machine.toolchain.root.parents[1], alone)
    most = counts[-1]
    last = found[most]
    more = last.seconds - found[counts[0]].seconds
    times = process_s * most / last.seconds
    print(
        f"one Promptfoo process per attempt: {process_s:.2f} s each, {1 / process_s:.2f} attempts/s, {process_s * most:.0f} s for {most}"
    )
    print(
        f"  -> {most} attempts take {more:.1f} s more than {counts[0]}   aim at most {AIM_MORE_S:.0f} s for 1000: {_met(more <= AIM_MORE_S)}"
    )
    print(
        f"  -> the largest process has {last.largest_mb:.0f} MB   aim under {AIM_MB}: {_met(last.largest_mb < AIM_MB)}"
    )
    print(
        f"  -> {times:.1f} times as fast as one process per attempt   aim at least {AIM_TIMES} for 1000: {_met(times >= AIM_TIMES)}"
    )


def fill(directory: Path, attempt: Attempt, count: int) -> None:
    """Put ``count`` attempts into ``directory``, each with an id of its own."""
    parts: dict[str, bytes | Path] = {
        name: attempt.part(name) for name in attempt.part_names if not name.startswith("exchanges")
    }
    observed: Any = parse_canonical(attempt.part("observations.json"))
    exchanges = attempt.exchanges()
    for number in range(count):
        own = {**parts, "observations.json": canonical_json({**observed, "number": number})}
        write_attempt(directory, AttemptContent(attempt.manifest.fixture, attempt.manifest.summary, own, exchanges))


def replay(directory: Path, count: int) -> Replayed:
    """Run the command over a directory and watch its processes. Raises AssertionError where an attempt did not pass."""
    started = time.perf_counter()
    command = [sys.executable, "-P", "-m", "runner.cli", "replay", "--json", str(directory)]
    with subprocess.Popen(
        command, env=child_environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        peaks = Peaks(process.pid)
        out, _ = process.communicate()
        seconds = time.perf_counter() - started
        largest, megabytes = peaks.close()
    summary = json.loads(out)["summary"]
    assert summary == {"passed": count, "measured": count, "started": count}, summary
    return Replayed(seconds, megabytes, largest)


class Peaks:
    """Watches a process and all its descendants for the highest resident memory of each, as the kernel has it."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._found: dict[int, tuple[float, str]] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> tuple[str, float]:
        """Stop; return name and megabytes of the largest."""
        self._end.set()
        self._thread.join()
        megabytes, name = max(self._found.values(), default=(0.0, ""))
        return name, megabytes

    def _watch(self) -> None:
        while not self._end.wait(0.1):
            pending = [self._root]
            while pending:
                pid = pending.pop()
                try:
                    status = Path(f"/proc/{pid}/status").read_text()
                    for task in Path(f"/proc/{pid}/task").iterdir():
                        pending += [int(child) for child in (task / "children").read_text().split()]
                except OSError:
                    continue
                fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
                if "VmHWM" in fields:
                    self._found[pid] = (int(fields["VmHWM"].split()[0]) / 1024, fields["Name"])


def one_process_each(host: Host, subject: Subject, cache_root: Path, rounds: int) -> float:
    """Return the seconds that one attempt takes with a Promptfoo process of its own: start, import, the same checks, end."""
    assert subject.graded is not None
    with Grader(host, cache_root=cache_root) as grader:
        evaluation = grader.grade(subject)
        toolchain = grader.toolchain
    asked = ask(evaluation.checks, subject.fixture, ())
    started = time.perf_counter()
    for _ in range(rounds):
        with Promptfoo(host, toolchain) as promptfoo:
            promptfoo.grade(subject.graded, asked)
    return (time.perf_counter() - started) / rounds


def _met(yes: bool) -> str:
    return "met" if yes else "MISSED"


if __name__ == "__main__":
    main()
