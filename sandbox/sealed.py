"""A sealed sandbox: one program and the files it reads, no network, no other program, nothing to write to but a temporary directory where it is needed.

Boundary: pure, but for the filter, which is this machine's. Not here: what the programs need of the host (sandbox/programs.py), starting it (running.py).
Rules: a spec made here has no listener, no home and no /proc, and the system call filter of every sandbox (seccomp.py): no ring, whose work no trace would see. Data comes in through stdin only, so that nothing of it lies in a file inside (facts/sandbox.md §2, 71).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandbox.limits import Limits
from sandbox.seccomp import own_filter
from sandbox.spec import Dev, Directory, File, Mount, RoBind, SandboxSpec, Tmpfs
from sandbox.view import parents_of

SCRATCH = "/scratch"
_SHM_BYTES = 4096


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
    """Return the sandbox of ``argv``: ``binds`` and ``files`` (path inside to content) read-only; with ``scratch_bytes`` a tmpfs at ``/scratch``.

    Raises: SandboxUnavailable where there is no filter for this machine.
    """
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
        seccomp=own_filter(),
    )
