"""From a sandbox description to bwrap's arguments.

Boundary: pure. Not here: making the descriptors (request.py), starting bwrap (box.py).
Rules: the order is that of facts/sandbox.md §5; a change of it needs the probes run again. Everything but ``--args N -- PROGRAM`` goes through the argument file,
so that no host path stands in a command line that can be read inside. Descriptor numbers are given, never chosen here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from sandbox.check import check_spec
from sandbox.errors import SpecInvalid
from sandbox.spec import Bind, Dev, Directory, File, Mount, Proc, RoBind, SandboxSpec, Symlink, Tmpfs

_NO_FIRST_PROCESS = ("--size", "4096", "--perms", "0555", "--tmpfs", "/proc/1", "--remount-ro", "/proc/1")
"""Pid 1 is bwrap's own, with the uid of everybody inside: through its /proc/1/mem any of them could speak for the CLI and end it as they like (ADR 0016)."""


class Descriptors(NamedTuple):
    """The descriptor numbers that bwrap finds open."""

    status: int
    """Write end for bwrap's JSON status lines."""
    block: int
    """Held until one byte comes; never at its end, because it is open for writing too."""
    data: tuple[int, ...]
    """One for each entry of ``data_of``, in that order."""


class Data(NamedTuple):
    """Bytes that bwrap reads from a descriptor, or a directory that it binds from one."""

    name: str
    content: bytes | None
    """None for the open directory that ``name`` stands for."""


def data_of(spec: SandboxSpec, masks: Collection[str]) -> tuple[Data, ...]:
    """Return what to hand over, in the order of its options: files, covers and open directories as mounted, the system call filter last.

    ``masks`` are the names below /proc that this kernel has; the others are not covered, there is nothing to cover.
    """
    data: list[Data] = []
    for mount in spec.mounts:
        match mount:
            case File():
                data.append(Data(mount.target, mount.content))
            case Bind():
                data.append(Data(mount.source[1:], None))
            case Proc():
                data += [Data(f"/proc/{mask}", b"") for mask in mount.masks if mask in masks]
            case _:
                pass
    if spec.seccomp is not None:
        data.append(Data("seccomp", spec.seccomp))
    return tuple(data)


def bwrap_args(spec: SandboxSpec, fds: Descriptors, *, sources: Mapping[str, str], masks: Collection[str]) -> list[str]:
    """Return bwrap's options (without the program) for a checked spec.

    ``sources`` gives each ``@name`` its host path. Raises: SpecInvalid.
    """
    check_spec(spec)
    supply = iter(fds.data)
    args = ["--unshare-user", "--disable-userns", "--cap-drop", "ALL"]
    args += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    args += ["--hostname", spec.hostname, "--uid", str(spec.uid), "--gid", str(spec.gid)]
    args += ["--new-session", "--die-with-parent", "--clearenv"]
    for name in sorted(spec.env):
        args += ["--setenv", name, spec.env[name]]
    for mount in spec.mounts:
        args += mount_args(mount, sources, masks, supply)
    args += ["--chdir", spec.cwd]
    if spec.seccomp is not None:
        args += ["--seccomp", str(next(supply))]
    args += ["--json-status-fd", str(fds.status), "--block-fd", str(fds.block)]
    for target in spec.remount_ro:
        args += ["--remount-ro", target]
    return args


def mount_args(mount: Mount, sources: Mapping[str, str], masks: Collection[str], supply: Iterator[int]) -> list[str]:
    """Return the options of one mount; takes a descriptor from ``supply`` (an iterator of numbers) for each of its data entries."""
    match mount:
        case RoBind():
            return ["--ro-bind", source_of(mount, sources), mount.target]
        case Bind():
            return ["--bind-fd", str(next(supply)), mount.target]
        case Tmpfs():
            return ["--size", str(mount.size_bytes), "--perms", f"{mount.mode:04o}", "--tmpfs", mount.target]
        case File():
            return ["--perms", f"{mount.mode:04o}", "--file", str(next(supply)), mount.target]
        case Directory():
            return ["--perms", f"{mount.mode:04o}", "--dir", mount.target]
        case Symlink():
            return ["--symlink", mount.to, mount.target]
        case Proc():
            args = ["--proc", mount.target, "--ro-bind", "/proc/sys", "/proc/sys"]
            for mask in mount.masks:
                if mask in masks:
                    args += ["--perms", "0444", "--ro-bind-data", str(next(supply)), f"/proc/{mask}"]
            return [*args, *_NO_FIRST_PROCESS]
        case Dev():
            shm = ["--size", str(mount.shm_bytes), "--perms", "1777", "--tmpfs", "/dev/shm"]  # noqa: S108 - inside
            return ["--dev", mount.target, *shm]


def source_of(mount: RoBind, sources: Mapping[str, str]) -> str:
    """Return a bind's host path.

    Raises: SpecInvalid where a ``@name`` was not given one.
    """
    if not mount.source.startswith("@"):
        return mount.source
    try:
        return sources[mount.source[1:]]
    except KeyError:
        raise SpecInvalid(f"{mount.source} was given no path", where=f"mount {mount.target}") from None
