"""Walk a hostile directory tree by descriptors: nothing is followed, nothing but directories is opened, and no more than two descriptors are held at a time.

Boundary: reads names and attributes below a directory handle of a tree that nobody can change any more. Not here: reading files (collect.py), writing them out (export.py).
Rules: the walk goes down by name with O_NOFOLLOW and up by ``..``, and checks that it came back to where it was; a tree may be deeper than a process may have descriptors.
Names are bytes. A directory without permissions is given them back: its owner may do that, and nobody lives who would mind.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from sandbox.errors import CollectFailed

MIB = 1024 * 1024
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
Why = Literal["entries", "names", "total-bytes", "file-bytes", "depth", "unreadable", "not-copied"]


@dataclass(frozen=True)
class Caps:
    """How much is taken of a tree."""

    entries: int = 100_000
    name_bytes: int = 64 * MIB
    """Of all paths together; a deep tree of long names costs its square."""
    total_bytes: int = 256 * MIB
    file_bytes: int = 64 * MIB
    depth: int = 4096
    """Directory levels below the handle."""


@dataclass(frozen=True)
class Omission:
    """Something that is in the tree and was left out."""

    path: bytes
    why: Why
    detail: str = ""


@dataclass(frozen=True)
class Visit:
    """One name that the walk came by. ``directory`` is open until the next step only."""

    directory: int
    name: bytes
    path: bytes
    depth: int
    """0 for the names at the top."""
    info: os.stat_result


class Walk:
    """One walk over one tree; what it left out is in ``omitted`` when it is over."""

    def __init__(self, root: int, caps: Caps) -> None:
        self.omitted: list[Omission] = []
        self._root = root
        self._caps = caps
        self._entries = 0
        self._name_bytes = 0

    def __iter__(self) -> Iterator[Visit]:
        """Yield every name, a directory before what is in it, names in bytewise order.

        Raises: CollectFailed where the top cannot be read, or the tree changes.
        """
        try:
            here = os.open(".", _DIRECTORY, dir_fd=self._root)
        except OSError as error:
            raise CollectFailed(f"the directory cannot be read: {error.strerror}") from error
        identities = [_identity(here)]
        pending = [self._names(here, b"")]
        prefix: list[bytes] = []
        try:
            while pending:
                name = next(pending[-1], None)
                if name is None:
                    pending.pop()
                    identities.pop()
                    if pending:
                        prefix.pop()
                        here = _up(here, identities[-1])
                    continue
                path = b"/".join((*prefix, name))
                if not self._may_take(path):
                    return
                info = os.stat(name, dir_fd=here, follow_symlinks=False)
                yield Visit(here, name, path, len(prefix), info)
                if not stat.S_ISDIR(info.st_mode):
                    continue
                if len(prefix) + 1 > self._caps.depth:
                    self.omitted.append(Omission(path, "depth"))
                    continue
                below = self._down(here, name, path)
                if below is not None:
                    os.close(here)
                    here = below
                    identities.append(_identity(here))
                    prefix.append(name)
                    pending.append(self._names(here, path))
        finally:
            os.close(here)

    def _may_take(self, path: bytes) -> bool:
        self._entries += 1
        self._name_bytes += len(path)
        if self._entries > self._caps.entries:
            self.omitted.append(Omission(path, "entries", f"more than {self._caps.entries}: this and all that follow"))
            return False
        if self._name_bytes > self._caps.name_bytes:
            self.omitted.append(
                Omission(path, "names", f"more than {self._caps.name_bytes} bytes of paths: this and all that follow")
            )
            return False
        return True

    def _names(self, directory: int, path: bytes) -> Iterator[bytes]:
        """Return a directory's names in order; of a monstrous one only as many as may still be taken, and one more that hits the cap."""
        room = self._caps.entries - self._entries + 1
        try:
            with os.scandir(directory) as found:
                names = [os.fsencode(entry.name) for entry in islice(found, room)]
        except OSError as error:
            self.omitted.append(Omission(path, "unreadable", error.strerror or ""))
            return iter(())
        return iter(sorted(names))

    def _down(self, directory: int, name: bytes, path: bytes) -> int | None:
        try:
            try:
                return os.open(name, _DIRECTORY, dir_fd=directory)
            except PermissionError:
                os.chmod(name, 0o700, dir_fd=directory)
                return os.open(name, _DIRECTORY, dir_fd=directory)
        except OSError as error:
            self.omitted.append(Omission(path, "unreadable", error.strerror or ""))
            return None


def _identity(directory: int) -> tuple[int, int]:
    found = os.fstat(directory)
    return found.st_dev, found.st_ino


def _up(directory: int, expected: tuple[int, int]) -> int:
    try:
        above = os.open("..", _DIRECTORY, dir_fd=directory)
    finally:
        os.close(directory)
    if _identity(above) != expected:
        os.close(above)
        raise CollectFailed(
            "the tree changed while it was read", hint="the sandbox must be dead before its files are read"
        )
    return above


def open_file(visit: Visit) -> int:
    """Open a visited regular file for reading, and nothing else in its place.

    Raises: OSError.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(visit.name, flags, dir_fd=visit.directory)
    except PermissionError:
        os.chmod(visit.name, 0o600, dir_fd=visit.directory)
        descriptor = os.open(visit.name, flags, dir_fd=visit.directory)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or (found.st_dev, found.st_ino) != (visit.info.st_dev, visit.info.st_ino):
        os.close(descriptor)
        raise OSError(errno.ESTALE, "it was replaced")
    return descriptor
