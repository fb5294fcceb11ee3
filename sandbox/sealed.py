"""A sealed sandbox: one program and the files it reads, no network, no other program, nothing to write to but a temporary directory where it is needed.

Boundary: pure. Not here: what the programs need of the host (sandbox/programs.py), starting it (running.py).
Rules: a spec made here has no listener, no home, no /proc and no io_uring; data comes in through stdin only, so that nothing of it lies in a file inside (facts/sandbox.md §2, 71).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from sandbox.limits import Limits
from sandbox.spec import Dev, Directory, File, Mount, RoBind, SandboxSpec, Tmpfs
from sandbox.view import parents_of

SCRATCH = "/scratch"
_SHM_BYTES = 4096
_RINGS = (425, 426, 427)
"""io_uring_setup, io_uring_enter and io_uring_register, on every machine type. What a ring does is no system call that a trace or a filter would see."""
_ENOSYS = 38


def no_rings() -> bytes:
    """Return a system call filter that answers "no such call" to io_uring and lets everything else through."""
    program = struct.pack("=HBBI", 0x20, 0, 0, 0)  # load the call's number
    for place, number in enumerate(_RINGS):
        program += struct.pack("=HBBI", 0x15, len(_RINGS) - place, 0, number)  # equal: jump to the last line
    return (
        program + struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000) + struct.pack("=HBBI", 0x06, 0, 0, 0x00050000 | _ENOSYS)
    )


def sealed_spec(
    *,
    rootfs: str,
    binds: Sequence[RoBind],
    files: Mapping[str, bytes],
    argv: Sequence[str],
    env: Mapping[str, str],
    scratch_bytes: int = 0,
    limits: Limits,
) -> SandboxSpec:
    """Return the sandbox of ``argv``: ``binds`` and ``files`` (path inside to content) read-only; with ``scratch_bytes`` a tmpfs at ``/scratch``."""
    placed: list[Mount] = [*binds, *(File(target=path, content=content, mode=0o444) for path, content in files.items())]
    targets = {mount.target for mount in placed}
    parents: dict[str, Mount] = {}
    for mount in placed:
        for parent in parents_of(mount.target):
            if parent not in targets:
                parents.setdefault(parent, Directory(target=parent))
    own: list[Mount] = [Dev(shm_bytes=_SHM_BYTES), Directory(target="/empty", mode=0o555)]
    if scratch_bytes:
        own.append(Tmpfs(target=SCRATCH, size_bytes=scratch_bytes, mode=0o700))
    return SandboxSpec(
        rootfs=rootfs,
        mounts=(*own, *parents.values(), *placed),
        env=dict(env),
        cwd="/empty",
        argv=tuple(argv),
        hostname="grade",
        network=None,
        limits=limits,
        seccomp=no_rings(),
    )
