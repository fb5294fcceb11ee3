"""Under which uid a sandbox runs: the caller's own, or an unprivileged one for a root caller; never the host's uid 0.

Boundary: ``read_identity`` reads /proc/self/uid_map, the process's ids and the user database; the decision is pure. Not here: giving up root (supervisor.py).
Rules: with all capabilities dropped and --uid 1000, a sandbox started by the host's uid 0 can still write /proc/sys/kernel/core_pattern, which is host root
(facts/sandbox.md, finding 1). There is no way to ask for it.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import NamedTuple

from sandbox.errors import SandboxUnavailable

RUN_USER = "hermeval"
"""Used where the machine has it: a uid of its own shares no inotify, key or process budget with other services (facts/sandbox.md §2, 31)."""
NOBODY = 65534


class Account(NamedTuple):
    """A uid and its gid."""

    uid: int
    gid: int


class UidMap(NamedTuple):
    """The lines of a uid_map: (inside, outside, count)."""

    lines: tuple[tuple[int, int, int], ...]

    def outer(self, uid: int) -> int | None:
        """Return the uid that ``uid`` stands for one level up, or None where it is not mapped."""
        for inside, outside, count in self.lines:
            if inside <= uid < inside + count:
                return outside + uid - inside
        return None


class Identity(NamedTuple):
    """Who runs the sandbox."""

    uid: int
    """The caller's uid."""
    run_as: Account | None
    """The account to drop to, or None where the caller's own will do."""

    @property
    def run_uid(self) -> int:
        """The uid that bwrap will have."""
        return self.uid if self.run_as is None else self.run_as.uid


def parse_uid_map(text: str) -> UidMap:
    """Parse /proc/self/uid_map; lines that are not three numbers are left out."""
    rows = (line.split() for line in text.splitlines())
    return UidMap(
        tuple(
            (int(a), int(b), int(c))
            for a, b, c in (
                row for row in rows if len(row) == 3 and all(word.isdecimal() and len(word) < 20 for word in row)
            )
        )
    )


def decide_identity(uid: int, uid_map: UidMap, run_user: Account | None) -> Identity:
    """Decide the run uid from the caller's uid, the map of its user namespace, and the run user's account where there is one.

    Raises: SandboxUnavailable where only the host's uid 0 is left.
    """
    if uid != 0:
        if uid_map.outer(uid) == 0:
            raise SandboxUnavailable(
                f"uid {uid} here is uid 0 of the surrounding system, and bwrap never runs as that",
                hint="run as another user; in a Nix build keep build-users-group set",
            )
        return Identity(uid, None)
    for account in (run_user, Account(NOBODY, NOBODY)):
        if account is not None and account.uid != 0 and uid_map.outer(account.uid) not in (None, 0):
            return Identity(uid, account)
    if uid_map.outer(0) in (None, 0):
        raise SandboxUnavailable(
            "the caller is root and no unprivileged uid can be dropped to",
            hint=f"create a user named {RUN_USER}, or run as an ordinary user",
        )
    return Identity(uid, None)


def read_identity() -> Identity:
    """Decide the run uid for this process.

    Raises: SandboxUnavailable.
    """
    try:
        entry = pwd.getpwnam(RUN_USER)
        run_user = Account(entry.pw_uid, entry.pw_gid)
    except KeyError:
        run_user = None
    try:
        uid_map = Path("/proc/self/uid_map").read_text(encoding="ascii")
    except OSError as error:
        raise SandboxUnavailable(
            f"/proc/self/uid_map cannot be read: {error.strerror}; there is no /proc here, or another than Linux's",
            where="proc-missing",
            hint="mount -t proc proc /proc",
        ) from error
    return decide_identity(os.getuid(), parse_uid_map(uid_map), run_user)
