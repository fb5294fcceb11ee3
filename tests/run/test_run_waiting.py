"""Waiting for threads does not put off a signal (B11)."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.bench.rig import child_environment

_PROGRAM = """
import os, signal, sys, threading, time
from concurrent.futures import Future, wait
from runner.waiting import join, wait_all

{wait_all}
signal.signal(signal.SIGTERM, lambda *_: os._exit(7))

def late():
    # The main thread sleeps by now; it alone refuses the signal's delivery, as if the signal had come a moment before it slept.
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1.5)
    os._exit(8)

thread = threading.Thread(target=late)
thread.start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
{what}
"""


def _ended(what: str, *, plain: bool = False) -> int:
    prepared = "wait_all = lambda futures: wait(futures)" if plain else ""
    program = _PROGRAM.format(what=what, wait_all=prepared)
    return subprocess.run(
        [sys.executable, "-P", "-c", program], env=child_environment(), check=False, timeout=60
    ).returncode


@pytest.mark.parametrize("what", ["wait_all([Future()])", "join(thread)"])
def test_a_signal_that_another_thread_took_is_heard_at_once(what: str) -> None:
    """The main thread acts on a signal that did not wake it."""
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert _ended(what) == 7


def test_a_sleep_without_pieces_does_not_hear_it() -> None:
    """The control: with the library's own wait the same signal comes too late."""
    assert _ended("wait_all([Future()])", plain=True) == 8
