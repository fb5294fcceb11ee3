"""The NAR hash of a file tree, as Nix computes it.

Boundary: reads files and directories below the given path, follows no link. Not here: what the hash is compared with (runner/toolchain).
Rules: equal to ``nix-hash --type sha256`` for every tree that Nix takes: names in byte order, the owner's executable bit, link targets; no times, owners
or other modes. What Nix refuses (fifos, sockets, devices) is refused here, by name. Memory is bounded whatever the tree holds, but for the names of the
directories on the way down.
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from runner.errors import InputError, InputMissing

_READ_BYTES = 1 << 20
_FLUSH_BYTES = 1 << 16


def nar_sha256(path: Path) -> str:
    """Return the NAR hash of ``path`` (a directory, a regular file or a link) in SRI form, ``sha256-…=``.

    Raises:
        InputMissing: ``path`` or something below it is not there or cannot be read.
        InputError: a fifo, socket or device, or a file whose size changed while it was read; ``where`` names it.
    """
    return sri_from_digest(_nar_digest(os.fsencode(path)))


def sri_from_digest(digest: bytes) -> str:
    """Return the SRI form of 32 bytes of sha256."""
    return "sha256-" + base64.b64encode(digest).decode("ascii")


def hex_from_sri(sri: str) -> str:
    """Return the sha256 of an SRI hash as 64 hexadecimal digits.

    Raises:
        ValueError: not a canonical ``sha256-…=`` hash.
    """
    kind, _, body = sri.partition("-")
    digest = base64.b64decode(body, validate=True)
    if kind != "sha256" or len(digest) != 32 or sri_from_digest(digest) != sri:
        raise ValueError(f"not a sha256 hash in SRI form: {sri[:80]!a}")
    return digest.hex()


class _Hash(Protocol):
    def update(self, data: bytes | bytearray | memoryview, /) -> None: ...

    def digest(self) -> bytes: ...


class _Sink:
    """Collects the archive's many small strings and hands them to the hash in large pieces."""

    def __init__(self) -> None:
        self._hash: _Hash = hashlib.sha256()
        self._pending = bytearray()
        self._buffer = bytearray(_READ_BYTES)

    def strings(self, *items: bytes) -> None:
        for item in items:
            self._pending += len(item).to_bytes(8, "little") + item + bytes(-len(item) % 8)
        if len(self._pending) >= _FLUSH_BYTES:
            self._flush()

    def contents(self, path: bytes, fd: int, size: int) -> None:
        self._pending += size.to_bytes(8, "little")
        view, left = memoryview(self._buffer), size
        while left:
            count = os.readv(fd, [view[: min(left, _READ_BYTES)]])
            if count == 0:
                raise _changed(path)
            if count < _FLUSH_BYTES:
                self._pending += view[:count]
            else:
                self._flush()
                self._hash.update(view[:count])
            left -= count
        if os.read(fd, 1):
            raise _changed(path)
        self._pending += bytes(-size % 8)

    def digest(self) -> bytes:
        self._flush()
        return self._hash.digest()

    def _flush(self) -> None:
        self._hash.update(self._pending)
        self._pending = bytearray()


def _nar_digest(root: bytes) -> bytes:
    sink = _Sink()
    sink.strings(b"nix-archive-1")
    # One iterator per open directory instead of recursion: a deep tree must not end in RecursionError (facts/sandbox.md probe 64).
    stack: list[Iterator[bytes]] = []
    prefixes: list[bytes] = []
    try:
        _enter(sink, root, stack, prefixes)
        while stack:
            name = next(stack[-1], None)
            if name is None:
                stack.pop()
                prefixes.pop()
                sink.strings(b")", *((b")",) if stack else ()))
                continue
            sink.strings(b"entry", b"(", b"name", name, b"node")
            if not _enter(sink, prefixes[-1] + name, stack, prefixes):
                sink.strings(b")")
    except OSError as error:
        where = os.fsdecode(error.filename) if error.filename is not None else os.fsdecode(root)
        raise InputMissing(f"cannot be read: {error.strerror}", where=where) from error
    return sink.digest()


def _enter(sink: _Sink, path: bytes, stack: list[Iterator[bytes]], prefixes: list[bytes]) -> bool:
    """Write the node of ``path``; True where it is a directory whose entries are still to come."""
    found = os.lstat(path)
    kind = stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFDIR:
        sink.strings(b"(", b"type", b"directory")
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in entries)
        stack.append(iter(names))
        prefixes.append(path + b"/")
        return True
    if kind == stat.S_IFLNK:
        sink.strings(b"(", b"type", b"symlink", b"target", os.readlink(path), b")")
    elif kind == stat.S_IFREG:
        _regular(sink, path)
    else:
        raise InputError(f"a {_KINDS.get(kind, 'special file')} has no NAR form", where=os.fsdecode(path))
    return False


def _regular(sink: _Sink, path: bytes) -> None:
    # O_NONBLOCK: a fifo put in place of the file after lstat must not hang us.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise _changed(path)
        executable = (b"executable", b"") if found.st_mode & stat.S_IXUSR else ()
        sink.strings(b"(", b"type", b"regular", *executable, b"contents")
        sink.contents(path, fd, found.st_size)
        sink.strings(b")")
    finally:
        os.close(fd)


def _changed(path: bytes) -> InputError:
    return InputError("changed while it was read", where=os.fsdecode(path))


_KINDS = {stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket", stat.S_IFCHR: "character device", stat.S_IFBLK: "block device"}
