"""Whether programs are at rest: sleeping ones are, one that wants to run is not, wherever it stands below."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from sandbox.rest import at_rest

BUSY = "while True: pass"
SLEEPING = "import time; time.sleep(600)"
CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-I', '-S', '-c', {code!r}])"
THREAD = (
    "import threading, time; threading.Thread(target=lambda: [None for _ in iter(int, 1)]).start(); time.sleep(600)"
)

Begin = Callable[[str], int]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Start a Python program as the leader of a group of its own; gives its pidfd. All are gone afterwards."""
    started: list[tuple[subprocess.Popen[bytes], int]] = []

    def start(code: str) -> int:
        program = subprocess.Popen([sys.executable, "-I", "-S", "-c", code], process_group=0)
        started.append((program, os.pidfd_open(program.pid)))
        return started[-1][1]

    yield start
    for program, pidfd in started:
        os.killpg(program.pid, 9)
        program.wait()
        os.close(pidfd)


def eventually(pidfd: int, wanted: bool) -> bool:
    """Whether it is found so ten times in a row, at some time."""
    row, end = 0, time.monotonic() + 60
    while row < 10 and time.monotonic() < end:
        row = row + 1 if at_rest(pidfd) is wanted else 0
        time.sleep(0.02)
    return row == 10


@pytest.mark.parametrize("code", [SLEEPING, CHILD.format(code=SLEEPING)])
def test_sleeping_programs_are_at_rest(code: str, begin: Begin) -> None:
    """A program that waits, with a child that waits or without one, is at rest however busy the machine is."""
    assert eventually(begin(code), wanted=True)


@pytest.mark.parametrize("code", [BUSY, CHILD.format(code=BUSY), CHILD.format(code=CHILD.format(code=BUSY)), THREAD])
def test_a_program_that_wants_to_run_is_seen(code: str, begin: Begin) -> None:
    """The program itself, a child, a child's child, or another thread: none of them is overlooked."""
    assert eventually(begin(code), wanted=False)


def test_one_that_has_ended_is_at_rest(begin: Begin) -> None:
    """There is nothing left to wait for, and nothing is raised."""
    assert eventually(begin("pass"), wanted=True)
