"""Walk a hostile directory tree by descriptors: nothing is followed, nothing but directories is opened, and a few descriptors are held however deep it is.

Boundary: reads names and attributes below a directory handle of a tree that nobody can change any more. Not here: reading files and writing them out (collect.py).
Rules: the walk goes down by name with O_NOFOLLOW and up by ``..``, and checks that it came back to where it was; a tree may be deeper than a process may have descriptors.
Names are bytes. Permissions hide nothing, from root or from the tree's owner: what they close is opened by force, through a descriptor that followed no link, and gets its old mode
back, so that every caller sees the same tree. What cannot be read all the same is left out alone, and told.
"""

from __future__ import annotations

import contextlib
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
_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_SEARCH = stat.S_IRUSR | stat.S_IXUSR
"""What an owner needs to list a directory and to reach what is in it."""
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
            place = _enter(self._root, b".")
        except OSError as error:
            raise CollectFailed(f"the directory cannot be read: {error.strerror}") from error
        above: list[_Above] = []
        names = self._names(place.descriptor, b"")
        prefix: list[bytes] = []
        try:
            while True:
                name = next(names, None)
                if name is None:
                    if not above:
                        return
                    prefix.pop()
                    last = above.pop()
                    place, names = _up(place, last), last.names
                    continue
                path = b"/".join((*prefix, name))
                if not self._may_take(path):
                    return
                info = os.stat(name, dir_fd=place.descriptor, follow_symlinks=False)
                yield Visit(place.descriptor, name, path, len(prefix), info)
                if not stat.S_ISDIR(info.st_mode):
                    continue
                if len(prefix) + 1 > self._caps.depth:
                    self.omitted.append(Omission(path, "depth"))
                    continue
                try:
                    below = _enter(place.descriptor, name)
                except OSError as error:
                    self.omitted.append(Omission(path, "unreadable", error.strerror or ""))
                    continue
                above.append(_Above(_identity(place.descriptor), place.closed_mode, names))
                os.close(place.descriptor)
                place, names = below, self._names(below.descriptor, path)
                prefix.append(name)
        finally:
            _leave(place, above)

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


@dataclass(frozen=True)
class _Place:
    """The directory that the walk is in."""

    descriptor: int
    closed_mode: int | None
    """The permissions that it gets back; None where nothing was forced."""


@dataclass(frozen=True)
class _Above:
    """A directory that the walk will come back to; no descriptor is held on it."""

    identity: tuple[int, int]
    closed_mode: int | None
    names: Iterator[bytes]


def _enter(parent: int, name: bytes) -> _Place:
    """Open a directory of ``parent``, by force where its mode keeps its owner from reading it.

    The mode decides and not who asks, so that root goes the same way as an ordinary user. Raises: OSError where it can be neither listed nor searched.
    """
    handle = os.dup(parent) if name == b"." else os.open(name, _PATH | os.O_DIRECTORY, dir_fd=parent)
    closed = None
    try:
        mode = stat.S_IMODE(os.fstat(handle).st_mode)
        if mode & _SEARCH != _SEARCH:
            with contextlib.suppress(
                OSError
            ):  # not ours, or nothing can be written there; it may let us in all the same
                _set_mode(handle, mode | _SEARCH)
                closed = mode
        descriptor = os.open(_magic(handle), _DIRECTORY & ~os.O_NOFOLLOW)
        try:
            os.stat(".", dir_fd=descriptor)  # listing without searching would fail at every name
        except OSError:
            os.close(descriptor)
            raise
        return _Place(descriptor, closed)
    except OSError:
        if closed is not None:
            _set_mode(handle, closed)
        raise
    finally:
        os.close(handle)


def _magic(descriptor: int) -> str:
    """Return the name that leads to what a descriptor is open on, and nowhere else; it works without a right to the path, and for O_PATH too."""
    return f"/proc/self/fd/{descriptor}"


def _set_mode(descriptor: int, mode: int) -> None:
    os.chmod(_magic(descriptor), mode)


def _give_back(place: _Place) -> None:
    """Give a directory the mode that it had, and close it."""
    if place.closed_mode is not None:
        with contextlib.suppress(OSError):  # it was ours a moment ago
            _set_mode(place.descriptor, place.closed_mode)
    os.close(place.descriptor)


def _leave(place: _Place, above: list[_Above]) -> None:
    """Close the walk, wherever it is: every directory on the way up gets its mode back."""
    with contextlib.suppress(CollectFailed, OSError):
        while any(last.closed_mode is not None for last in above):
            place = _up(place, above.pop())
    _give_back(place)


def _identity(directory: int) -> tuple[int, int]:
    found = os.fstat(directory)
    return found.st_dev, found.st_ino


def _up(place: _Place, expected: _Above) -> _Place:
    """Go to the directory above, which must be the one that the walk came from, and close this one. Raises, with this one still open: CollectFailed; OSError."""
    above = os.open("..", _DIRECTORY, dir_fd=place.descriptor)
    if _identity(above) != expected.identity:
        os.close(above)
        raise CollectFailed(
            "the tree changed while it was read", hint="the sandbox must be dead before its files are read"
        )
    _give_back(place)
    return _Place(above, expected.closed_mode)


def open_file(visit: Visit) -> int:
    """Open a visited regular file for reading, and nothing else in its place; by force where its mode keeps its owner from reading it.

    Raises: OSError.
    """
    handle = os.open(
        visit.name, _PATH, dir_fd=visit.directory
    )  # opens nothing: a fifo or a device in its place is not touched
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or (found.st_dev, found.st_ino) != (visit.info.st_dev, visit.info.st_ino):
            raise OSError(errno.ESTALE, "it was replaced")
        mode, forced = stat.S_IMODE(found.st_mode), False
        if not mode & stat.S_IRUSR:
            with contextlib.suppress(OSError):
                _set_mode(handle, mode | stat.S_IRUSR)
                forced = True
        try:
            return os.open(_magic(handle), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        finally:
            if forced:
                _set_mode(handle, mode)  # another name of the same file must show the mode that it had
    finally:
        os.close(handle)
