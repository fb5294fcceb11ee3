"""Whether the programs of a sandbox are at rest: no thread runs, wants to run, or waits for a disk.

Boundary: reads /proc, from outside. Not here: what follows from it (the gate's pause before a cut).
Rules: a thread that has something to do stands as running in /proc, whether it gets a processor or not, so that the answer does not depend on the machine's load, as a pause by the clock
would. One look may come between two threads that hand work to each other: callers look more than once. What cannot be read (it has just ended, or /proc hides it) is at rest.
"""

from __future__ import annotations

import os
from pathlib import Path


def at_rest(pidfd: int) -> bool:
    """Say whether no thread of the process behind ``pidfd``, or of any process below it, is running or runnable now."""
    waiting, seen = [_pid_of(pidfd)], set[int]()
    while waiting:
        pid = waiting.pop()
        if pid <= 0 or pid in seen:
            continue
        seen.add(pid)
        tasks = f"/proc/{pid}/task"
        for thread in _names(tasks):
            if _read(f"{tasks}/{thread}/stat").rpartition(b") ")[2][:1] in (b"R", b"D"):
                return False
            waiting += [int(child) for child in _read(f"{tasks}/{thread}/children").split()]
    return True


def _pid_of(pidfd: int) -> int:
    """Return the number of the process behind a pidfd, or -1 where it has ended."""
    for line in _read(f"/proc/self/fdinfo/{pidfd}").splitlines():
        if line.startswith(b"Pid:"):
            return int(line[4:])
    return -1


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
