"""Where a sandbox's control group may be made on this machine, or why it cannot.

Boundary: reads /proc and the cgroup file system through the port of group.py; in a delegated group that holds only this program's processes it moves them aside. Not here: the group of one
sandbox (group.py, in the supervisor).
Rules: cgroup v2 only. A subtree is ours where systemd has delegated it to this unit (``Delegate=``: the extended attribute ``delegate``), or where nobody but this program is in it and it can
be written (a system unit's group belongs to an ordinary uid only by delegation; below user.slice everything does); root may also use one of its own beside systemd's, where memory and pids are version 2's. Nothing else is touched: another program's group is never a place. A reason is a
phrase for people, with the cure. Source: facts/sandbox.md §5, tier 1.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sandbox.group import SHARED, KernelTree, Tree

NEEDED = ("memory", "pids")
ASIDE = "hermeval-runner"
"""The group that a delegated unit's own processes move to: in version 2 a group has either processes or groups."""
CURE = "run under systemd-run --scope -p Delegate=yes (with --user for an ordinary user), or in a unit with Delegate="


@dataclass(frozen=True)
class Place:
    """Where groups may be made."""

    parent: str


@dataclass(frozen=True)
class NoPlace:
    """Why there is none."""

    reason: str


@dataclass(frozen=True)
class Own:
    """What is asked of this process, for a test to answer otherwise."""

    uid: int
    mountinfo: str
    group: str
    """/proc/self/cgroup."""
    is_delegated: Callable[[str], bool]
    is_ours: Callable[[int], bool]
    """Whether a process is this one or came from it."""
    can_write: Callable[[str], bool]


def find_place(tree: Tree, own: Own, needed: tuple[str, ...] = NEEDED) -> Place | NoPlace:
    """Decide where a group for a sandbox may be made, and make the place ready."""
    mounted = mount_of(own.mountinfo)
    if mounted is None:
        return NoPlace("no cgroup v2 is mounted here")
    line = next((line for line in own.group.splitlines() if line.startswith("0::")), None)
    if line is None:
        return NoPlace("this process is in no group of version 2")
    missing = lacking(tree, mounted, needed)
    if missing:
        return NoPlace(f"cgroup v2 has no {' and no '.join(missing)} here: version 1 has, or the kernel lacks it")
    group = f"{mounted}{line[3:].rstrip('/')}"
    if group.endswith(f"/{ASIDE}"):
        return Place(group.removesuffix(f"/{ASIDE}"))  # an earlier look has made it ready
    reasons = []
    for path in dict.fromkeys((group, mounted)):
        why = prepare(tree, own, path, needed, top=path == mounted)
        if not why:
            return Place(f"{path}/{SHARED}" if path == mounted else path)
        reasons.append(f"{path or '/'}: {why}")
        if own.uid != 0:
            break
    return NoPlace(f"{'; '.join(reasons)}; {CURE}")


def prepare(tree: Tree, own: Own, path: str, needed: tuple[str, ...], *, top: bool) -> str:
    """Make a group ready to have groups in it; returns why it cannot, or nothing."""
    if not own.can_write(path):
        return "it may not be written by this uid"
    missing = lacking(tree, path, needed)
    if missing:
        return f"it was given no {' and no '.join(missing)}"
    if top and not is_there(tree, f"{path}/cgroup.type"):
        return ""  # the root of all groups: the one that may have both
    pids = [int(word) for word in tree.read(f"{path}/cgroup.procs").split()]
    given = own.is_delegated(path) or (own.uid != 0 and "/user.slice/" not in f"{path}/" and not top)
    if not given and not (pids and all(own.is_ours(pid) for pid in pids)):
        return "it is not delegated, and others are in it" if pids else "it is not delegated"
    if not pids:
        return ""
    try:
        tree.make(f"{path}/{ASIDE}")
        for pid in pids:
            tree.write(f"{path}/{ASIDE}/cgroup.procs", str(pid))
    except OSError as error:
        return f"its processes cannot be moved aside: {error.strerror}"
    return ""


def lacking(tree: Tree, path: str, needed: tuple[str, ...]) -> list[str]:
    """Return those controllers that a group does not have."""
    try:
        has = tree.read(f"{path}/cgroup.controllers").split()
    except OSError:
        has = []
    return [name for name in needed if name not in has]


def is_there(tree: Tree, path: str) -> bool:
    """Whether a file can be read."""
    try:
        tree.read(path)
    except OSError:
        return False
    return True


def mount_of(mountinfo: str) -> str | None:
    """Return where the whole cgroup v2 file system of this process is mounted, or None (pure)."""
    for line in mountinfo.splitlines():
        words = line.split()
        if " - cgroup2 " in line and words[3] == "/":
            return words[4]
    return None


def read_own() -> Own:
    """Look at this process."""
    return Own(
        os.geteuid(),
        Path("/proc/self/mountinfo").read_text(encoding="utf-8"),
        Path("/proc/self/cgroup").read_text(encoding="utf-8"),
        is_delegated,
        descends,
        lambda path: os.access(path, os.W_OK) and os.access(f"{path}/cgroup.procs", os.W_OK),
    )


def is_delegated(path: str) -> bool:
    """Whether systemd marked a group as its unit's own."""
    for name in ("user.delegate", "trusted.delegate"):
        try:
            if os.getxattr(path, name) == b"1":
                return True
        except OSError:
            continue
    return False


def descends(pid: int) -> bool:
    """Whether a process is this one or came from it."""
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, ValueError):
            return True  # it is gone
    return False


def look() -> Place | NoPlace:
    """Decide for this process on this machine."""
    try:
        return find_place(KernelTree(), read_own())
    except OSError as error:
        return NoPlace(f"the control groups cannot be read: {error}")
