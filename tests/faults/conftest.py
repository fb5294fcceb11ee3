"""One scene for all faults, made once, and a command under a plan of faults in it."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.faults.scene import WAIT_S, Ending, Scene, Trial, make_scene
from tests.run.leftovers import abandoned, wait_until

LANES = 3
"""Commands at one time: most of their time they wait."""


@dataclass(frozen=True)
class Fault:
    """A command and what happens to it."""

    verb: str
    name: str
    rules: Sequence[dict[str, Any]] = ()
    clock: Sequence[tuple[float, float]] = ()
    wants: frozenset[str] | None = None
    """The error codes that may come of it, with exit status 2; empty: it is survived, exit status 0. None: either, by any code."""
    prefix: Callable[[Trial], list[str]] | None = None
    """Another program to run below than the injector."""
    more: tuple[str, ...] = ()
    """Further arguments."""
    idle: bool = False
    """Whether the rules may have nothing to act on."""
    dies: bool = False
    """Whether the command itself is killed, so that there is no answer."""


@dataclass(frozen=True)
class Outcome:
    """What came of a fault."""

    ending: Ending
    acted: int
    """How often the rules acted."""
    wrong: list[str]


class Bench:
    """Makes places for commands, and looks at what faults do to them."""

    def __init__(self, scene: Scene, base: Path) -> None:
        self.scene, self.base = scene, base
        self._number = itertools.count()

    def trial(self) -> Trial:
        """A place of its own."""
        return self.scene.trial(self.base / f"trial-{next(self._number)}")

    def suffer(self, fault: Fault) -> Outcome:
        """Run a command under a fault; everything that must not be is in ``wrong``."""
        trial = self.trial()
        plan, report = trial.temporary.parent / "plan.json", trial.temporary.parent / "report.json"
        filled = json.dumps({"rules": list(fault.rules), "clock": list(fault.clock)})
        plan.write_text(filled.replace("@OUT", str(trial.out)).replace("@RUNS", str(trial.staging)))
        injector = [sys.executable, "-P", "-m", "tests.faults.inject", str(plan), str(report)]
        process = trial.start(fault.verb, *fault.more, prefix=injector if fault.prefix is None else fault.prefix(trial))
        out, err = watched(trial, process)
        ending = Ending(fault.verb, process.returncode, out, err)
        acted = 1
        if fault.prefix is None:
            told = json.loads(report.read_text())["rules"] if report.exists() else []
            acted = sum(rule["acted"] for rule in told) or int(bool(fault.clock))
        wrong = [] if fault.dies else judged(fault, ending)
        wrong += [*trial.left(), *trial.damage()]
        if not acted and not fault.idle:
            wrong.append("the fault did not come about")
        return Outcome(ending, acted, [f"{fault.verb}, {fault.name}: {what}" for what in wrong])

    def suffer_all(self, faults: Sequence[Fault]) -> list[Outcome]:
        """The same for many, some at a time."""
        with ThreadPoolExecutor(LANES) as pool:
            return list(pool.map(self.suffer, faults))


def watched(trial: Trial, process: subprocess.Popen[str]) -> tuple[str, str]:
    """Let a command come to its end, and keep what it starts in sight."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        trial.traces.look(process.pid)
        try:
            return process.communicate(timeout=0.05)
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    out, err = process.communicate()
    return out, f"{err}\nkilled by the test: it did not end within {WAIT_S:g} s"


def judged(fault: Fault, ending: Ending) -> list[str]:
    """What is wrong with an answer: a lie, or another code than the fault's."""
    wrong = ending.lies()
    if fault.wants is None or wrong:
        return wrong
    if not fault.wants:
        return (
            []
            if ending.code == 0
            else [f"not survived: {sorted(ending.codes)}: {ending.stdout[-700:]} {ending.stderr[-300:]}"]
        )
    if ending.code == 0 or not ending.codes <= fault.wants:
        return [
            f"exit status {ending.code}, codes {sorted(ending.codes)}, not {sorted(fault.wants)}: {ending.stdout[-700:]}"
        ]
    return []


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """A finished case."""
    return make_scene(tmp_path_factory.mktemp("faults") / "scene")


@pytest.fixture
def bench(scene: Scene, tmp_path: Path) -> Iterator[Bench]:
    """Places for commands; what nobody owns is neither there before nor after."""
    yield Bench(scene, tmp_path)
    assert wait_until(lambda: not abandoned(), 30), f"left by the test: {abandoned()}"
