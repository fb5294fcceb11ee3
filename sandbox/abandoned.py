"""Private directories and control groups of runs that ended with nobody left to remove them: runner and supervisor were killed at once, as a container or a service is.

Boundary: locks and removes directories that ``choose_staging`` named. Not here: a run's own end, where its supervisor removes its directory (roles.py).
Rules: a runner holds a shared lock on its run's directory for as long as it lives, so what can be locked has no runner. Only directories of the caller's own, of exactly that form of
name and older than ``AGE_S`` are removed: between being made and being held a directory is young. Ages are compared on the file system's own clock.
A living run's control group has a process in it as soon as it is used, and the kernel then removes it for nobody; before that it is young.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

AGE_S = 60
_NAME = re.compile(r"hermeval-[0-9a-f]{16}\Z")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def hold(path: Path) -> int:
    """Return a descriptor that keeps a run's directory from being taken for abandoned; close it when the run is over. Raises: OSError."""
    descriptor = os.open(path, _FOLDER)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def remove_abandoned(beside: Path, also: Sequence[Path] = ()) -> None:
    """Remove what lies abandoned beside a run's directory that was made just now, and in the folders ``also``. Whatever cannot be removed stays; the next run tries again."""
    with contextlib.suppress(OSError):
        now_ns = beside.stat().st_mtime_ns
        for folder in (beside.parent, *also):
            with contextlib.suppress(OSError):
                _sweep(folder, beside.name, now_ns)


def _sweep(folder: Path, but: str, now_ns: int) -> None:
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if _NAME.match(entry.name) and entry.name != but]
    for name in names:
        with contextlib.suppress(OSError):
            _remove(folder / name, now_ns)


def remove_abandoned_groups(parent: Path, now_s: float) -> None:
    """Remove the empty control groups of runs in ``parent``, by age at ``now_s`` (seconds since the epoch). Whatever cannot be removed stays."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if _NAME.match(entry.name) and now_s - entry.stat(follow_symlinks=False).st_mtime >= AGE_S:
                    os.rmdir(entry.path)


def _remove(path: Path, now_ns: int) -> None:
    descriptor = os.open(path, _FOLDER)
    try:
        found = os.fstat(descriptor)
        old = now_ns - found.st_mtime_ns >= AGE_S * 10**9
        if not old or found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode):
            return
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: its runner lives
        shutil.rmtree(path)
    finally:
        os.close(descriptor)
