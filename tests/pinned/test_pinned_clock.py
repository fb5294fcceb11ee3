"""The preloaded clock: what stands, what runs, and that deadlines stay as far away as a program meant them."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.pinned.conftest import NOON, Ran

Clock = Callable[..., Ran]
PYTHON = ("/usr/bin/python3", "-I", "-S", "-c")


def test_the_wall_clock_stands_for_every_reader(under_clock: Clock) -> None:
    """date, the shell's own clock, time, gettimeofday and clock_gettime tell the same second; the monotonic clock goes on."""
    code = (
        "import ctypes, time\nlibc = ctypes.CDLL(None)\npair = (ctypes.c_long * 2)()\nlibc.gettimeofday(pair, None)\n"
        "old = time.monotonic()\ntime.sleep(0.05)\nprint(time.time(), libc.time(None), pair[0], pair[1], time.monotonic() - old >= 0.05)"
    )
    assert under_clock(f"={NOON}", *PYTHON, code).out == f"{NOON}.0 {NOON} {NOON} 0 True\n"
    ran = under_clock(f"={NOON}", "/bin/bash", "-c", "date +%s.%N; echo $EPOCHSECONDS; printf '%(%F)T\\n' -1")
    assert ran.out == f"{NOON}.000000000\n{NOON}\n2026-01-01\n"


@pytest.mark.parametrize("shift", [86400, -86400])
def test_a_shifted_clock_runs(under_clock: Clock, shift: int) -> None:
    """A shifted clock is that far from the real one, and goes on."""
    code = "import time\nold = time.time()\ntime.sleep(0.05)\nprint(old, time.time() - old >= 0.04)"
    before = time.time()
    seen, runs = under_clock(f"{shift:+d}", *PYTHON, code).out.split()
    assert runs == "True"
    assert before <= float(seen) - shift <= time.time()


@pytest.mark.parametrize("setting", ["", "=", "=x", "=-5", "=1 ", "5", "=99999999999999999999"])
def test_a_setting_that_is_none_leaves_the_clock(under_clock: Clock, setting: str) -> None:
    """Anything but a sign and a number leaves the real clock."""
    before = time.time()
    seen = float(under_clock(setting, *PYTHON, "import time; print(time.time())").out)
    assert before <= seen <= time.time()


WAITS = {
    "semaphore": "sem = ctypes.create_string_buffer(64); libc.sem_init(sem, 0, 0); value = libc.sem_timedwait(sem, at)",
    "mutex": "lock = ctypes.create_string_buffer(64); libc.pthread_mutex_lock(lock); value = libc.pthread_mutex_timedlock(lock, at)",
    "condition": (
        "lock = ctypes.create_string_buffer(64); libc.pthread_mutex_lock(lock); cond = ctypes.create_string_buffer(64); "
        "value = libc.pthread_cond_timedwait(cond, lock, at)"
    ),
    "condition-clock": (
        "lock = ctypes.create_string_buffer(64); libc.pthread_mutex_lock(lock); cond = ctypes.create_string_buffer(64); "
        "value = libc.pthread_cond_clockwait(cond, lock, 0, at)"
    ),
    "sleep": "value = libc.clock_nanosleep(0, 1, at, None)",
    "timer": (
        "fd = libc.timerfd_create(0, 0); libc.timerfd_settime(fd, 1, (ctypes.c_long * 4)(0, 0, at[0], at[1]), None); import os; value = len(os.read(fd, 8))"
    ),
}


@pytest.mark.parametrize("setting", [f"={NOON}", "=946684800", "=2400000000", "+86400000", "-86400000"])
@pytest.mark.parametrize("name", WAITS)
def test_a_deadline_is_as_far_away_as_it_was_meant(under_clock: Clock, name: str, setting: str) -> None:
    """A wait until a quarter of a second from now by the clock that is seen takes that long, whether that clock is behind or ahead, stands or runs."""
    code = (
        "import ctypes, time\nlibc = ctypes.CDLL(None)\nnow = time.time_ns() + 250_000_000\nat = (ctypes.c_long * 2)(now // 10**9, now % 10**9)\n"
        f"old = time.monotonic()\n{WAITS[name]}\nprint(0.24 <= time.monotonic() - old < 20)"
    )
    assert under_clock(setting, *PYTHON, code).out == "True\n"


def test_a_deadline_of_the_monotonic_clock_is_left_alone(under_clock: Clock) -> None:
    """A condition that waits by the monotonic clock, as Python's own locks do, is not turned."""
    code = "import threading, time\nold = time.monotonic()\nthreading.Event().wait(0.2)\nprint(0.19 <= time.monotonic() - old < 20)"
    assert under_clock(f"={NOON}", *PYTHON, code).out == "True\n"
