"""Kill commands at random moments, and count what that leaves: ``python -m tests.faults.kills --kills 1000 --commands run,judge,replay,reproduce,report``.

Boundary: starts the real command, below one directory of its own. Not here: what must hold (scene.py), faults at chosen calls (inject.py).
Rules: one victim at a time. This process is the reaper of whatever its victims leave, however it was detached, so that nothing can hide. The moments come from a seed; a round
of victims works in one directory, where what earlier ones finished must outlive the later ones. Exits 0 where nothing was found, else 1.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.scene import COMMANDS, LEFT_AFTER_S, WAIT_S, Ending, Scene, Trial, make_scene
from tests.run.leftovers import abandoned, command_of, descendants_of, wait_until

ROUND = 20
"""Victims in one directory."""
TERM_SHARE = 0.25
PHASES: dict[str, tuple[str, ...]] = {
    "run": ("spread", "spread", "cli", "cli", "grader"),
    "judge": ("spread", "cli"),
    "replay": ("spread", "grader"),
    "reproduce": ("spread", "cli"),
    "report": ("spread",),
}
"""From what the moments count: anywhere in a command's length, or from when its CLI or its grading programs are first seen."""
AFTER_S = 1.2
"""How long after that at most."""
_SUBREAPER = 36
_LOOK_S = 0.03
GRADERS = (b"/node\0", b"/hermeval/node\0", b"profile_host", b"host_worker")


@dataclass
class Figures:
    """What was seen of one command's victims."""

    kills: int = 0
    """Signals that met a living command."""
    sigkill: int = 0
    sigterm: int = 0
    late: int = 0
    """Commands that had ended before their moment; they are not counted as kills."""
    with_cli: int = 0
    with_grader: int = 0
    ended_by_term: int = 0
    """Told to end, they said so: exit status 2 and the code ``interrupted``, or what was done already."""
    term_unheard: int = 0
    """SIGTERM in the first instants, before Python runs hermeval's first line."""
    new_files: int = 0
    """Attempts, evaluations and reports that were finished before the kill, all whole."""
    slowest_end_s: float = 0.0
    """Between a kill and the moment when nothing was left."""
    left: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    lies: list[str] = field(default_factory=list)

    @property
    def found(self) -> list[str]:
        """Everything that should not be."""
        return [*self.left, *self.damage, *self.lies]


@dataclass
class Session:
    """Victims of one scene."""

    scene: Scene
    base: Path
    chance: random.Random
    length_s: dict[str, float] = field(default_factory=dict)
    """How long each command takes where nothing happens to it."""
    figures: dict[str, Figures] = field(default_factory=dict)
    trial: Trial | None = None
    in_trial: int = 0
    rounds: int = 0

    def next_trial(self) -> Trial:
        """Return the directory for the next victim."""
        if self.trial is None or self.in_trial >= ROUND:
            self.close_round()
            self.rounds += 1
            self.trial = self.scene.trial(self.base / f"round-{self.rounds}")
            self.in_trial = 0
        self.in_trial += 1
        return self.trial

    def close_round(self) -> None:
        """Let ``hermeval verify`` itself look at every attempt of the round, and take its directory away."""
        if self.trial is None:
            return
        attempts = sorted(str(path) for path in self.trial.out.glob("*.attempt"))
        verified = self.scene.place.hermeval("verify", "--json", *attempts)
        rows = verified.object["results"]
        if verified.code != 0 or len(rows) != len(attempts):
            broken = [row["path"] for row in rows if "broken" in row["claims"].values()]
            self.of("verify").damage.append(f"verify: {verified.code}: {broken}")
        self.of("verify").new_files += len(rows)
        shutil.rmtree(self.base / f"round-{self.rounds}")
        self.trial = None

    def of(self, verb: str) -> Figures:
        """Return a command's figures."""
        return self.figures.setdefault(verb, Figures())

    def measure(self, verb: str) -> None:
        """Let a command run to its end once."""
        trial = self.next_trial()
        before = time.monotonic()
        process = trial.start(verb)
        out, err = process.communicate(timeout=WAIT_S)
        self.length_s[verb] = time.monotonic() - before
        faults = [*Ending(verb, process.returncode, out, err).lies(), *trial.damage()]
        if process.returncode != 0 or faults:
            raise RuntimeError(f"the unharmed {verb}: {faults} {err}")
        trial.keep_up()

    def await_moment(
        self, process: subprocess.Popen[str], trial: Trial, phase: str, moment_s: float
    ) -> tuple[bool, bool]:
        """Wait until so long after the start of a phase, or the end; says whether a CLI and whether a grader lives then."""
        until = time.monotonic() + (moment_s if phase == "spread" else WAIT_S)
        seen = phase == "spread"
        while True:
            cli = trial.traces.look(process.pid)
            grader = any(is_grader(one.command) for one in trial.traces.seen.values() if one.alive)
            if not seen and (cli if phase == "cli" else grader):
                seen, until = True, time.monotonic() + moment_s
            left_s = until - time.monotonic()
            if left_s <= 0 or process.poll() is not None:
                return cli, grader
            time.sleep(min(_LOOK_S, left_s))

    def kill_one(self, verb: str) -> None:
        """Start a command, kill it at a random moment of its length, and look at what that leaves."""
        figures, trial = self.of(verb), self.next_trial()
        number = signal.SIGTERM if self.chance.random() < TERM_SHARE else signal.SIGKILL
        phase = self.chance.choice(PHASES[verb])
        moment_s = self.chance.random() * (self.length_s[verb] if phase == "spread" else AFTER_S)
        process = trial.start(verb)
        cli, grader = self.await_moment(process, trial, phase, moment_s)
        heard = catches(process.pid, number)
        late = process.poll() is not None
        process.send_signal(number)
        killed = time.monotonic()
        try:
            out, err = process.communicate(timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            figures.lies.append(f"{verb}: does not end within {WAIT_S:g} s of {number.name}")
        if late:
            figures.late += 1
        else:
            figures.kills += 1
            figures.with_cli += cli
            figures.with_grader += grader
            figures.sigkill += number is signal.SIGKILL
            figures.sigterm += number is signal.SIGTERM
        if phase == "spread":  # the machine's load changes: keep a few moments beyond the end, and only a few
            self.length_s[verb] *= 0.8 if late else 1.02
        where = f"{verb}, {number.name} {moment_s:.3f} s after the start of its {phase}"
        if process.returncode >= 0:
            ending = Ending(verb, process.returncode, out, err)
            figures.lies += [f"{where}: {lie}" for lie in ending.lies()]
            figures.ended_by_term += not late
        elif number is signal.SIGTERM and heard:
            figures.lies.append(f"{where}: ended by the signal that it had a handler for")
        else:
            figures.term_unheard += number is signal.SIGTERM
        figures.left += [f"{where}: {what}" for what in what_is_left(trial)]
        figures.slowest_end_s = max(figures.slowest_end_s, time.monotonic() - killed)
        figures.damage += [f"{where}: {what}" for what in trial.damage()]
        figures.new_files += len(set(os.listdir(trial.out)) - trial.before.keys())
        trial.keep_up()
        trial.traces.seen.clear()
        trial.traces.staging.clear()


def is_grader(command: bytes) -> bool:
    """Whether a process belongs to the grading: Promptfoo's Node, or the host of the profiles."""
    return any(word in command for word in GRADERS)


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler of its own for a signal."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")), 0)
    return bool(caught >> (number - 1) & 1)


def become_reaper() -> None:
    """Have every orphan below this process become its child."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no subreaper")


def orphans() -> list[str]:
    """Reap what is dead, and return what lives below this process though nothing should."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            break
    return [
        f"process {process.pid}: {command_of(process.pid)!r}"
        for process in descendants_of(os.getpid())
        if process.alive
    ]


def what_is_left(trial: Trial) -> list[str]:
    """Wait until nothing is left; return what is left for longer than the machine's load explains."""

    def left() -> list[str]:
        return [
            *orphans(),
            *trial.traces.left(),
            *(f"directory {path}" for path in abandoned() & trial.traces.staging),
        ]

    wait_until(lambda: not left(), LEFT_AFTER_S)
    return left()


def run_session(
    commands: Sequence[str], *, kills: int | None, seconds: float | None, seed: int, progress: bool = False
) -> dict[str, Figures]:
    """Kill so many, or for so long, turn by turn, and return the figures by command."""
    become_reaper()
    base = Path(tempfile.mkdtemp(prefix="hermeval-kills-"))
    try:
        session = Session(make_scene(base / "scene"), base, random.Random(seed))
        for verb in commands:
            session.measure(verb)
        started, turn = time.monotonic(), 0
        enough = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: enough.set())  # what was counted until then is told
        while (
            not enough.is_set()
            and (kills is None or sum(session.of(verb).kills for verb in commands) < kills)
            and (seconds is None or time.monotonic() - started < seconds)
        ):
            session.kill_one(commands[turn % len(commands)])
            turn += 1
            if progress and turn % 25 == 0:
                done = sum(session.of(verb).kills for verb in commands)
                print(f"{done} kills, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        session.close_round()
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return session.figures


COLUMNS = (
    "kills",
    "sigkill",
    "sigterm",
    "with_cli",
    "with_grader",
    "ended_by_term",
    "term_unheard",
    "late",
    "new_files",
)


def table(figures: dict[str, Figures]) -> str:
    """Return the figures as a Markdown table."""
    heads = [*COLUMNS, "left behind", "half, lost or changed", "wrong answers", "slowest end, s"]
    lines = [
        "| command | " + " | ".join(head.replace("_", " ") for head in heads) + " |",
        "|---" * (len(heads) + 1) + "|",
    ]
    for verb, one in figures.items():
        values = [
            *(getattr(one, name) for name in COLUMNS),
            len(one.left),
            len(one.damage),
            len(one.lies),
            f"{one.slowest_end_s:.1f}",
        ]
        lines.append(f"| {verb} | " + " | ".join(map(str, values)) + " |")
    return "\n".join(lines)


def main() -> int:
    """Do what the arguments say; print the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.kills", description="Kill commands at random moments."
    )
    parser.add_argument("--kills", type=int, help="how many in all")
    parser.add_argument("--seconds", type=float, help="or for how long")
    parser.add_argument("--commands", default=",".join(COMMANDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    commands = given.commands.split(",")
    if given.kills is None and given.seconds is None:
        parser.error("say --kills or --seconds")
    if not set(commands) <= set(COMMANDS):
        parser.error(f"the commands are {', '.join(COMMANDS)}")
    figures = run_session(commands, kills=given.kills, seconds=given.seconds, seed=given.seed, progress=True)
    found = [what for one in figures.values() for what in one.found]
    if given.json:
        print(json.dumps({verb: vars(one) for verb, one in figures.items()}))
    else:
        print(table(figures))
        print(*found, sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
