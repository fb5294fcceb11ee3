"""What a sandbox is, as a value: mounts, environment, limits, network, program; and what it says about itself in words.

Boundary: pure. Not here: bwrap's options (argv.py), the rules a spec must keep (check.py), the usual inside view (view.py), starting it (running.py).
Rules: a spec holds no path of this run. A bind whose source is known only when a run starts is written ``@name`` and resolved at start, so that a spec is the
same value on every machine. Adding a kind of mount means: argv.py emits it, check.py places it, ``describe`` tells it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sandbox.limits import Limits

Mode = Annotated[int, Field(ge=0, le=0o1777)]
"""Permission bits; set-id bits cannot be written down."""


class Value(BaseModel):
    """A frozen value with no unknown fields; bytes are base64 in its JSON form."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, defer_build=True, ser_json_bytes="base64", val_json_bytes="base64"
    )


class RoBind(Value):
    """A host file or directory, read-only, with everything mounted below it."""

    kind: Literal["ro-bind"] = "ro-bind"
    source: str
    """An absolute host path, or ``@name``, given its path at start."""
    target: str


class Bind(Value):
    """A host directory that the program may write to: for debugging only, since what is left there stays (A13).

    It is given as an open directory, so that no path is looked up between the check of it and the start.
    """

    kind: Literal["bind"] = "bind"
    source: Annotated[str, Field(pattern=r"^@[a-z][a-z0-9-]*$")]
    """``@name``, given its open directory at start."""
    target: str


class Tmpfs(Value):
    """An empty writable directory in memory, gone with the sandbox."""

    kind: Literal["tmpfs"] = "tmpfs"
    target: str
    size_bytes: Annotated[int, Field(ge=4096, le=1 << 40)]
    mode: Mode = 0o755


class File(Value):
    """A regular file made from bytes; writable where the directory below it is."""

    kind: Literal["file"] = "file"
    target: str
    content: bytes
    mode: Mode = 0o644


class Directory(Value):
    """An empty directory in the file system that is there already."""

    kind: Literal["dir"] = "dir"
    target: str
    mode: Mode = 0o755


class Symlink(Value):
    """A symbolic link; nothing can be placed below it."""

    kind: Literal["symlink"] = "symlink"
    target: str
    """Where the link lies."""
    to: str
    """What it says."""


class Proc(Value):
    """A fresh /proc of the sandbox's own process namespace, /proc/sys read-only, pid 1 and the files that tell of the host covered."""

    kind: Literal["proc"] = "proc"
    target: Literal["/proc"] = "/proc"
    masks: tuple[str, ...] = (
        "cmdline",
        "version",
        "keys",
        "key-users",
        "kallsyms",
        "modules",
        "sys/kernel/random/boot_id",
    )
    """Files below /proc that read as empty inside, where the kernel has them (facts/sandbox.md §2, 11)."""


class Dev(Value):
    """A minimal /dev: null, zero, full, random, urandom, tty, a private devpts, and a sized /dev/shm."""

    kind: Literal["dev"] = "dev"
    target: Literal["/dev"] = "/dev"
    shm_bytes: Annotated[int, Field(ge=4096, le=1 << 40)] = 64 * 1024 * 1024


Mount = Annotated[RoBind | Bind | Tmpfs | File | Directory | Symlink | Proc | Dev, Field(discriminator="kind")]


class Listener(Value):
    """A TCP listener on 127.0.0.1 inside, served from outside. There is no other network."""

    port: Annotated[int, Field(ge=1, le=65535)]


class SandboxSpec(Value):
    """One sandbox and the program that runs in it."""

    rootfs: str
    """What the read-only system is: ``host``, or the name of a pinned closure."""
    mounts: tuple[Mount, ...]
    """Carried out in this order."""
    remount_ro: tuple[str, ...] = ("/dev", "/")
    """Made read-only last, without what is mounted below."""
    env: Mapping[str, str]
    """The whole environment inside; bwrap adds PWD."""
    cwd: str
    argv: tuple[str, ...]
    hostname: str = "eval"
    uid: Annotated[int, Field(ge=1, le=65534)] = 1000
    gid: Annotated[int, Field(ge=1, le=65534)] = 1000
    network: Listener | None = None
    """None: not even a listener; the network namespace is empty either way."""
    further: tuple[Listener, ...] = ()
    """More listeners beside it, each with a server of its own outside."""
    limits: Limits = Limits()
    seccomp: bytes | None = None
    """A compiled BPF program, loaded just before the program starts."""
    handles: tuple[str, ...] = ()
    """Writable mounts whose directory handles the caller gets, in this order."""

    def describe(self) -> str:
        """Return the sandbox in words, a line a fact, for people and for the attempt. Tells no content of files and no value of variables."""
        lines = [f"read-only system: {self.rootfs}"]
        lines += [describe_mount(mount) for mount in self.mounts]
        lines.append(f"read-only in the end: {', '.join(self.remount_ro) or 'nothing more'}")
        lines.append(
            f"user {self.uid}, group {self.gid}, host name {self.hostname}, no capability, no further user namespace, no terminal"
        )
        if self.network is None:
            lines.append("network: none")
        else:
            count = "one listener" if not self.further else f"{1 + len(self.further)} listeners"
            ports = ", ".join(f"127.0.0.1:{listener.port}" for listener in (self.network, *self.further))
            lines.append(f"network: {count} at {ports}, served from outside; no route, no resolver")
        limits = self.limits
        lines.append(
            f"limits: {limits.processes} processes, {limits.open_files} open files each, files up to {size(limits.file_bytes)}, {size(limits.memory_bytes)} of memory, no core dump"
        )
        lines.append(f"system calls: {describe_filter(self.seccomp)}")
        lines.append(f"environment: {', '.join(sorted(self.env)) or 'empty'}")
        lines.append(f"runs in {self.cwd}: {self.argv[0] if self.argv else '(no program)'}")
        return "\n".join(lines)

    def as_record(self) -> dict[str, Any]:
        """Return the JSON form for the attempt. The system call filter, which differs by machine type, is told by its digest."""
        record = self.model_dump(mode="json", exclude={"seccomp"})
        return {**record, "seccomp": None if self.seccomp is None else f"sha256:{digest(self.seccomp)}"}


def describe_filter(program: bytes | None) -> str:
    """Return a system call filter in words."""
    if program is None:
        return "all that the kernel allows"
    return f"filtered by {len(program) // 8} instructions, sha256 {digest(program)}"


def digest(content: bytes) -> str:
    """Return the hex sha256."""
    from hashlib import sha256

    return sha256(content).hexdigest()


def describe_mount(mount: Mount) -> str:
    """Return one mount in words."""
    match mount:
        case RoBind():
            return f"{mount.target}: {mount.source}, read-only"
        case Bind():
            return f"{mount.target}: a directory of the host, writable, shared for debugging"
        case Tmpfs():
            return f"{mount.target}: empty, writable, {size(mount.size_bytes)} of memory, mode {mount.mode:04o}"
        case File():
            return f"{mount.target}: file of {len(mount.content)} bytes, mode {mount.mode:04o}"
        case Directory():
            return f"{mount.target}: directory, mode {mount.mode:04o}"
        case Symlink():
            return f"{mount.target}: link to {mount.to}"
        case Proc():
            return f"{mount.target}: own processes only; sys read-only; empty: {', '.join(('1', *mount.masks))}"
        case Dev():
            return f"{mount.target}: null, zero, full, random, urandom, tty, pts; shm of {size(mount.shm_bytes)}"


def size(count: int) -> str:
    """Return a byte count for people, exact: ``64 MiB``, ``4097 bytes``."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor and count % factor == 0:
            return f"{count // factor} {unit}"
    return f"{count} bytes"
