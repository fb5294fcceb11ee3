"""A directory of the host as a run's workspace: for debugging only, and a throw-away one (A13).

Boundary: opens and looks at one directory and those above it, and reads the user database; gives the directory to the run uid. Not here: mounting it (sandbox/argv.py), reading what is left in it
(sandbox/collect.py).
Rules: it is opened once, name by name and following no link; everything is decided over that descriptor, and the same descriptor is what is mounted, so that nothing can be put in its place in
between. A run can write whatever its user can into it, and what it leaves stays there: links, fifos and sockets too. So a directory that holds anything, that is somebody's home, that lies in a
repository or in this program's own folder is never taken.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from runner.errors import SettingInvalid
from sandbox.errors import StagingFailed
from sandbox.identity import Account, Identity

CHECKOUT = Path(__file__).resolve().parent.parent
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BARE = ("HEAD", "objects", "refs")
"""What a repository without a work tree holds."""
HINT = "name a new, empty directory made for this, such as one of mktemp -d"


@dataclass(frozen=True)
class SharedWorkspace:
    """An open directory that may be a workspace."""

    path: Path
    descriptor: int

    def hand_over(self, identity: Identity) -> None:
        """Give it to the uid that runs sandboxes, where that is not the caller. Raises: StagingFailed."""
        if identity.run_as is not None:
            try:
                os.fchown(self.descriptor, identity.run_as.uid, identity.run_as.gid)
            except OSError as error:
                raise StagingFailed(
                    f"the shared workspace cannot be given to the run uid: {error.strerror}", where=str(self.path)
                ) from error

    def close(self) -> None:
        """Take the directory back and close it; it stays, with what is in it."""
        if os.fstat(self.descriptor).st_uid != os.geteuid():
            with contextlib.suppress(OSError):
                os.fchown(self.descriptor, os.geteuid(), os.getegid())
        os.close(self.descriptor)


def open_shared(path: Path, *, identity: Identity, environ: Mapping[str, str]) -> SharedWorkspace:
    """Open a directory for a run after every check of A13.

    Raises: SettingInvalid.
    """
    full = Path(os.path.abspath(path))  # resolve() would follow links
    descriptor = _open(full)
    try:
        _check_place(full, environ)
        _check_itself(full, descriptor, identity)
    except BaseException:
        os.close(descriptor)
        raise
    return SharedWorkspace(full, descriptor)


def _open(path: Path) -> int:
    """Open a directory by its names from the root on, following no link."""
    here = os.open("/", _FOLDER)
    try:
        for part in path.parts[1:]:
            below = os.open(part, _FOLDER, dir_fd=here)
            os.close(here)
            here = below
    except (OSError, ValueError) as error:
        os.close(here)
        reason = getattr(error, "strerror", None) or str(error)
        _refuse(f"it cannot be opened without following a link: {reason}", path)
    return here


def _check_place(path: Path, environ: Mapping[str, str]) -> None:
    """Refuse homes, repositories and this program's own folder."""
    homes = {entry.pw_dir for entry in pwd.getpwall()} | {environ.get("HOME", "")}
    if any(home.startswith("/") and _same(path, Path(home)) for home in homes):
        _refuse("it is somebody's home directory", path)
    if path == CHECKOUT or CHECKOUT in path.parents or path in CHECKOUT.parents:
        _refuse("it lies in or above this program's own folder", path)
    for above in (path, *path.parents):
        if os.path.lexists(above / ".git") or all(os.path.lexists(above / name) for name in _BARE):
            _refuse(f"it is, or lies in, a repository: {above}", path)


def _check_itself(path: Path, descriptor: int, identity: Identity) -> None:
    """Refuse a directory that another run has, that holds something, that is not the caller's alone, or that the run uid cannot reach."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held until the descriptor is closed
    except OSError:
        _refuse("another run has it", path)
    held = next(iter(os.listdir(descriptor)), None)
    if held is not None:
        _refuse(f"it is not empty: it holds {held!r}", path)
    found = os.fstat(descriptor)
    if found.st_uid != identity.uid:
        _refuse(f"it belongs to uid {found.st_uid}, and the caller is uid {identity.uid}", path)
    if found.st_mode & 0o022:
        _refuse("others may write to it", path, f"chmod go-w {path}")
    if found.st_mode & 0o700 != 0o700:
        _refuse("its owner may not read, write and enter it", path, f"chmod u+rwx {path}")
    if identity.run_as is not None:
        for above in path.parents:
            if not _may_enter(above, identity.run_as):
                what = f"uid {identity.run_as.uid}, which runs sandboxes for root, cannot enter {above}"
                _refuse(what, path, "name a directory that every user can reach, such as one below /tmp")


def _may_enter(directory: Path, account: Account) -> bool:
    found = directory.stat()
    if found.st_uid == account.uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid == account.gid:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)


def _same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except (OSError, ValueError):
        return False


def _refuse(why: str, path: Path, hint: str = HINT) -> NoReturn:
    raise SettingInvalid(f"--shared-workspace cannot be used: {why}", where=str(path), hint=hint)
