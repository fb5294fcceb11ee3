"""Read what a dead sandbox left, as values; or copy it out, for diagnosis.

Boundary: reads through the given directory handle; ``export`` writes below one new directory. Not here: the walk (walk.py), deciding when the tree may be read
(running.py hands out a handle only after pid 1 is dead).
Rules: everything read is hostile: names are bytes, links are recorded and never followed or made again, fifos, sockets and devices are recorded and never opened, set-id bits
and owners are not carried out (facts/sandbox.md §2, 62–66). A cap that is reached is in ``omitted``; a regular file is whole, or its content is None and ``omitted`` says why.
Entries are in bytewise order of their paths, so equal trees give equal values.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sandbox.errors import CollectFailed
from sandbox.walk import Caps, Omission, Visit, Walk, open_file

Kind = Literal["file", "directory", "symlink", "fifo", "socket", "device"]
_CHUNK = 1 << 20
_KINDS: dict[int, Kind] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}


@dataclass(frozen=True)
class Entry:
    """One name of the tree."""

    path: bytes
    """Relative, ``/`` between names; any byte but NUL may be in a name."""
    kind: Kind
    mode: int
    """Permission bits, without set-id and sticky bits."""
    size: int = 0
    """A regular file's length as the file system says."""
    sparse: bool = False
    """Whether the file has holes: its length says more than was ever written."""
    hard_links: int = 1
    set_id: bool = False
    """Whether the name had a set-user-id or set-group-id bit, which ``mode`` lacks."""
    content: bytes | None = None
    """A regular file's bytes; None where a cap left them out."""
    target: bytes | None = None
    """A link's target, as it stands there."""

    def facts(self) -> dict[str, Any]:
        """Return all but path, kind and content as JSON values; what is usual is left out. A target that is no UTF-8 is ``target_hex``."""
        facts: dict[str, Any] = {"mode": self.mode}
        if self.kind == "file":
            facts["bytes"] = self.size
        if self.sparse:
            facts["sparse"] = True
        if self.hard_links != 1:
            facts["hard_links"] = self.hard_links
        if self.set_id:
            facts["set_id"] = True
        if self.target is not None:
            try:
                facts["target"] = self.target.decode("utf-8")
            except UnicodeDecodeError:
                facts["target_hex"] = self.target.hex()
        return facts


@dataclass(frozen=True)
class Workspace:
    """A tree as it was found."""

    entries: tuple[Entry, ...]
    omitted: tuple[Omission, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether everything of the tree is in here."""
        return not self.omitted

    @property
    def problems(self) -> tuple[str, ...]:
        """What was left out, a line each, with paths escaped."""
        return tuple(problem(omission) for omission in self.omitted)


def problem(omission: Omission) -> str:
    """Return an omission as one line of plain ASCII."""
    path = "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\x{byte:02x}" for byte in omission.path)
    if len(path) > 200:
        path = f"{path[:100]}...{path[-60:]}"
    return f"{omission.why}: {path}" + (f" ({omission.detail})" if omission.detail else "")


def collect(directory: int, caps: Caps | None = None) -> Workspace:
    """Read the tree below a directory handle. The handle stays the caller's.

    Raises: CollectFailed where the directory itself cannot be read, or the tree changes while it is read (a shared one can; facts/sandbox.md finding 6).
    """
    caps = caps or Caps()
    walk = Walk(directory, caps)
    budget = _Budget(caps)
    omitted: list[Omission] = []
    try:
        entries = [_entry(visit, budget, omitted) for visit in walk]
    except OSError as error:
        raise CollectFailed(f"the tree changed while it was read: {error.strerror}") from error
    entries.sort(key=lambda entry: entry.path)
    return Workspace(tuple(entries), tuple(sorted(walk.omitted + omitted, key=lambda omission: omission.path)))


@dataclass
class _Budget:
    caps: Caps
    used: int = 0

    def refuse(self, size: int) -> Omission | None:
        """Return why a file of this size is not taken, or count it."""
        if size > self.caps.file_bytes:
            return Omission(b"", "file-bytes", f"{size} bytes; at most {self.caps.file_bytes}")
        if self.used + size > self.caps.total_bytes:
            return Omission(b"", "total-bytes", f"{size} bytes; {self.caps.total_bytes - self.used} are left")
        self.used += size
        return None


def _entry(visit: Visit, budget: _Budget, omitted: list[Omission]) -> Entry:
    info = visit.info
    kind = _KINDS.get(stat.S_IFMT(info.st_mode), "device")
    content = target = None
    if kind == "symlink":
        target = os.readlink(visit.name, dir_fd=visit.directory)
    elif kind == "file":
        refused = budget.refuse(info.st_size)
        if refused is None:
            try:
                content = b"".join(_read(visit))
            except OSError as error:
                refused = Omission(b"", "unreadable", error.strerror or "")
        if refused is not None:
            omitted.append(Omission(visit.path, refused.why, refused.detail))
    return Entry(
        path=visit.path,
        kind=kind,
        mode=info.st_mode & 0o777,
        size=info.st_size if kind == "file" else 0,
        sparse=kind == "file" and info.st_blocks * 512 < info.st_size,
        hard_links=1 if kind == "directory" else info.st_nlink,
        set_id=bool(info.st_mode & (stat.S_ISUID | stat.S_ISGID)),
        content=content,
        target=target,
    )


def _read(visit: Visit) -> Iterator[bytes]:
    """Yield a regular file's bytes, as many as its length says; the tree does not change any more.

    Raises: OSError.
    """
    descriptor = open_file(visit)
    try:
        left = visit.info.st_size
        while left > 0:
            data = os.read(descriptor, min(left, _CHUNK))
            if not data:
                return
            left -= len(data)
            yield data
    finally:
        os.close(descriptor)


def export(directory: int, dest: Path, caps: Caps | None = None) -> tuple[Omission, ...]:
    """Copy the tree below a directory handle into ``dest``, which is made, or is there and empty. Returns what was not copied: links, fifos, sockets, devices, and what a cap left out.

    Files get mode 0600 or 0700, directories 0700. Links are not made: on the host they would lead whoever looks at the copy.
    Raises: CollectFailed where ``dest`` is not empty or no directory, or the tree cannot be read; OSError where it cannot be written.
    """
    caps = caps or Caps(total_bytes=4 << 30, file_bytes=2 << 30)
    dest.mkdir(mode=0o700, parents=True, exist_ok=True)
    here = os.open(dest, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    omitted: list[Omission] = []
    walk = Walk(directory, caps)
    budget = _Budget(caps)
    depth = 0
    try:
        if os.listdir(here):
            raise CollectFailed("the directory is not empty", where=str(dest), hint="name a new one")
        for visit in walk:
            while depth > visit.depth:
                here, depth = _step(here, ".."), depth - 1
            kind = _KINDS.get(stat.S_IFMT(visit.info.st_mode), "device")
            if kind == "directory":
                os.mkdir(visit.name, 0o700, dir_fd=here)
                if visit.depth < caps.depth:
                    here, depth = _step(here, visit.name), depth + 1
            elif kind == "file":
                refused = budget.refuse(visit.info.st_size)
                if refused is None:
                    _write(visit, here)
                else:
                    omitted.append(Omission(visit.path, refused.why, refused.detail))
            else:
                target = os.readlink(visit.name, dir_fd=visit.directory) if kind == "symlink" else b""
                omitted.append(Omission(visit.path, "not-copied", f"{kind} {ascii(target) if target else ''}".rstrip()))
    finally:
        os.close(here)
    return tuple(sorted(walk.omitted + omitted, key=lambda omission: omission.path))


def _step(here: int, name: bytes | str) -> int:
    """Move to a neighbouring directory of the copy."""
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
    finally:
        os.close(here)


def _write(visit: Visit, here: int) -> None:
    mode = 0o700 if visit.info.st_mode & 0o100 else 0o600
    target = os.open(visit.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=here)
    try:
        for data in _read(visit):
            view = memoryview(data)
            while view:
                view = view[os.write(target, view) :]
    finally:
        os.close(target)
