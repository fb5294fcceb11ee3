"""The wait for the system call filter: a program without one is ended at once, a machine that is only busy is borne (sandbox/box.py, sandbox/canary.py)."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sandbox.request as request

if TYPE_CHECKING:
    from sandbox import box, canary
else:
    sys.path.append(str(Path(request.__file__).parent))  # the supervisor's modules are no package
    box = importlib.import_module("box")
    canary = importlib.import_module("canary")
    sys.path.pop()

ALLOW_ALL = """
import ctypes, struct
code = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000), 8)
head = ctypes.create_string_buffer(struct.pack("@HP", 1, ctypes.addressof(code)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, head, 0, 0) == 0
"""
PARENT = """
import os, sys, time
if os.fork() == 0:
    {child}
    time.sleep(60)
print("up", flush=True)
os.wait()
"""


@contextmanager
def parent_of(child: str) -> Iterator[int]:
    """A process like pid 1 of a sandbox, with one child that does this."""
    argv = [sys.executable, "-c", PARENT.format(child=child)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            os.killpg(process.pid, signal.SIGKILL)


EXEC = "os.execv('/bin/sleep', ['sleep', '60'])"


@pytest.mark.parametrize(
    ("child", "bare"),
    [("pass", False), (EXEC, True), (f"exec({ALLOW_ALL!r}); {EXEC}", False)],
    ids=["not yet a program", "a program without", "a program with"],
)
def test_a_program_without_a_filter_is_told_from_one_that_has_it(child: str, bare: bool) -> None:
    """Only another program than bwrap's own child, and only without a filter, runs bare."""
    with parent_of(child) as pid:
        until = time.monotonic() + 10
        while canary.runs_bare(pid) != bare and time.monotonic() < until:
            time.sleep(0.02)
        assert canary.runs_bare(pid) == bare
    assert not canary.runs_bare(pid)


def waited(monkeypatch: pytest.MonkeyPatch, *, filtered_after: int, bare: bool) -> bytes:
    """Wait for the filter of a sandbox that has it after so many looks; return why it was ended, if it was."""
    looks = iter(range(10**9))
    monkeypatch.setattr(canary, "is_filtered", lambda pid: next(looks) >= filtered_after)
    monkeypatch.setattr(canary, "runs_bare", lambda pid: bare)
    monkeypatch.setattr(box, "FILTER_S", 0.0)
    monkeypatch.setattr(box, "BUSY_S", 0.2)
    one = box.Box.__new__(box.Box)
    one.filtered, one.alive, one.reason, one.child = True, True, b"", 1
    monkeypatch.setattr(one, "turn", lambda wait_s: time.sleep(wait_s / 100))
    one.await_filter()
    return one.reason


def test_a_busy_machine_is_borne_and_a_bare_program_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Late, with no program running without it, the filter is waited for, though not for ever; a program that runs without it ends the sandbox."""
    assert waited(monkeypatch, filtered_after=50, bare=False) == b""
    assert waited(monkeypatch, filtered_after=50, bare=True) == b"no-system-call-filter"
    assert waited(monkeypatch, filtered_after=10**9, bare=False) == b"no-system-call-filter"
