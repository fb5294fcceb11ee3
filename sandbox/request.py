"""A start request for the supervisor: the memory files, the hold pipe and the words that go with them.

Boundary: makes descriptors and reads which files /proc has. Not here: the message that carries them (running.py), bwrap's options (argv.py).
Rules: the order of the descriptors and the numbers that bwrap finds them under are box.py's (``FD_BASE`` and ``spawn``): change both together.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sandbox.argv import Descriptors, bwrap_args, data_of
from sandbox.errors import SandboxSetupFailed, SpecInvalid
from sandbox.spec import Bind, Dev, Proc, RoBind, SandboxSpec, Tmpfs

FD_BASE = 512
"""Equals box.FD_BASE. bwrap finds its status at FD_BASE - 1, the hold at FD_BASE, its arguments next, then the data."""
CORE_BYTES = 1
"""RLIMIT_CORE. 1 and not 0: a core of a byte is never written, and a core_pattern that pipes into a program heeds 1 but not 0 (fs/coredump.c)."""


class Request:
    """Descriptors for one start, ours until ``close``."""

    def __init__(
        self,
        spec: SandboxSpec,
        *,
        sources: Mapping[str, str],
        bwrap: Path,
        wall_clock_s: float,
        directories: Mapping[str, int] | None = None,
    ) -> None:
        """Make them all. ``directories`` are the open directories of the spec's ``Bind`` mounts, by name; they stay the caller's.

        Raises: SpecInvalid.
        """
        opened = directories or {}
        for mount in spec.mounts:
            if isinstance(mount, Bind) and mount.source[1:] not in opened:
                raise SpecInvalid(f"{mount.source} was given no directory", where=f"mount {mount.target}")
        self.descriptors: list[int] = []
        masks = present_masks(spec)
        data = data_of(spec, masks)
        numbers = Descriptors(
            status=FD_BASE - 1, block=FD_BASE, data=tuple(range(FD_BASE + 2, FD_BASE + 2 + len(data)))
        )
        args = bwrap_args(spec, numbers, sources=sources, masks=masks)
        try:
            self._add(memory_file("request", words(request_fields(spec, bwrap, wall_clock_s, opened))))
            self._add(hold_pipe())
            self._add(memory_file("arguments", words(os.fsencode(arg) for arg in args)))
            for entry in data:
                shared = entry.content is None
                self._add(os.dup(opened[entry.name]) if shared else memory_file("data", entry.content or b""))
        except BaseException:
            self.close()
            raise

    def _add(self, descriptor: int) -> None:
        self.descriptors.append(descriptor)

    def in_order(self, streams: Sequence[int]) -> list[int]:
        """Return all descriptors as box.py wants them: the request, stdin, stdout, stderr, the hold, the arguments, the data."""
        return [self.descriptors[0], *streams, *self.descriptors[1:]]

    def close(self) -> None:
        """Close what was made; the supervisor has its own."""
        while self.descriptors:
            os.close(self.descriptors.pop())


def request_fields(spec: SandboxSpec, bwrap: Path, wall_clock_s: float, opened: Mapping[str, int]) -> list[bytes]:
    """Return the request's ``key=value`` fields. A shared directory is told with its device and inode, by which it is known again inside."""
    fields = [b"bwrap=" + os.fsencode(bwrap), b"wall_s=%r" % wall_clock_s]
    fields += [b"port=%d" % listener.port for listener in (spec.network, *spec.further) if listener is not None]
    fields += [b"arg=" + os.fsencode(arg) for arg in spec.argv]
    fields += [b"handle=" + os.fsencode(path) for path in spec.handles]
    limits = spec.limits
    fields.append(b"processes=%d" % limits.processes)
    fields.append(b"open_files=%d" % limits.open_files)
    fields.append(b"file_bytes=%d" % limits.file_bytes)
    fields.append(b"core_bytes=%d" % CORE_BYTES)
    fields.append(b"memory_bytes=%d" % limits.memory_bytes)
    if limits.cpu_percent is not None:
        fields.append(b"cpu_percent=%d" % limits.cpu_percent)
    fields += [b"writable=" + os.fsencode(path) for path in writable_places(spec)]
    for mount in spec.mounts:
        if isinstance(mount, Bind):
            found = os.fstat(opened[mount.source[1:]])
            fields.append(b"shared=%d:%d:" % (found.st_dev, found.st_ino) + os.fsencode(mount.target))
    if spec.seccomp is not None:
        fields.append(b"filtered=1")
    return fields


def writable_places(spec: SandboxSpec) -> list[str]:
    """Return the mount points that may be written inside (pure); devices, /proc and terminals are known to canary.py."""
    places = [mount.target for mount in spec.mounts if isinstance(mount, Tmpfs)]
    devices = [mount for mount in spec.mounts if isinstance(mount, Dev)]
    places += ["/dev/shm"] if devices else []  # noqa: S108 - inside
    return places + [place for place in ("/", "/dev") if place not in spec.remount_ro]


def words(items: Iterable[bytes]) -> bytes:
    """Return the items, each ended by a NUL; none holds one (check.py)."""
    return b"".join(item + b"\0" for item in items)


def present_masks(spec: SandboxSpec) -> frozenset[str]:
    """Return the files to be covered below /proc that this kernel has."""
    return frozenset(
        mask for mount in spec.mounts if isinstance(mount, Proc) for mask in mount.masks if Path("/proc", mask).exists()
    )


def resolve_sources(spec: SandboxSpec, sources: Mapping[str, Path]) -> dict[str, str]:
    """Return each named source's real path, links resolved by us and not by bwrap (bubblewrap#801).

    Raises: SandboxSetupFailed where one is missing.
    """
    resolved = {}
    for name, path in sources.items():
        try:
            resolved[name] = str(path.resolve(strict=True))
        except OSError as error:
            raise SandboxSetupFailed(f"@{name} cannot be bound: {error.strerror}", where=str(path)) from error
    for mount in spec.mounts:
        if isinstance(mount, RoBind) and not mount.source.startswith("@") and not os.path.lexists(mount.source):
            raise SandboxSetupFailed("a directory to be bound is missing", where=mount.source)
    return resolved


def memory_file(name: str, content: bytes) -> int:
    """Return a descriptor of a file in memory, at its beginning."""
    descriptor = os.memfd_create(name)
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def hold_pipe() -> int:
    """Return one descriptor that is both ends of a pipe: whoever waits on it never sees its end, because it has it open for writing itself."""
    read_end, write_end = os.pipe()
    try:
        return os.open(f"/proc/self/fd/{read_end}", os.O_RDWR | os.O_CLOEXEC)
    finally:
        os.close(read_end)
        os.close(write_end)
