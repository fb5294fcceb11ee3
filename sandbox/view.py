"""The fixed inside view: what every program finds, the same on every machine.

Boundary: pure. Not here: which system lies under it (rootfs.py or a pinned closure), what the program is.
Rules: these paths, names and numbers stand in every request that an agent makes. They do not change once attempts are committed (DESIGN "The sandbox").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandbox.limits import Limits
from sandbox.spec import Bind, Dev, Directory, File, Listener, Mount, Proc, RoBind, SandboxSpec, Symlink, Tmpfs

MIB = 1024 * 1024
HOSTNAME = "eval"
HOME = "/home/eval"
WORKSPACE = "/workspace"
TMP = "/tmp"  # noqa: S108 - a path inside
HOME_BYTES = 512 * MIB
WORKSPACE_BYTES = 1024 * MIB
TMP_BYTES = 512 * MIB

_PASSWD = b"""\
root:x:0:0:root:/nonexistent:/usr/sbin/nologin
eval:x:1000:1000::/home/eval:/bin/bash
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
"""
_GROUP = b"root:x:0:\neval:x:1000:\nnogroup:x:65534:\n"
_NSSWITCH = b"passwd: files\ngroup: files\nshadow: files\nhosts: files\nservices: files\nprotocols: files\n"


def build_view(
    *,
    rootfs: str,
    system: Sequence[Mount],
    argv: Sequence[str],
    env: Mapping[str, str],
    port: int | None = None,
    local_names: Sequence[str] = (),
    home_files: Mapping[str, bytes] | None = None,
    binds: Sequence[RoBind] = (),
    files: Sequence[File] = (),
    further_ports: Sequence[int] = (),
    limits: Limits | None = None,
    seccomp: bytes | None = None,
    workspace: Bind | None = None,
) -> SandboxSpec:
    """Return the sandbox every program gets.

    ``system`` is the read-only system (rootfs.py), whose entries below /etc are placed after our own /etc. ``local_names`` are host names that mean 127.0.0.1.
    ``home_files`` are seeded into the home, writable, by their path below it: a program that replaces one by rename finds an ordinary file (cases D08).
    ``binds`` are further read-only trees and ``files`` further files made from bytes; their parents in the home or at the top are made here. ``further_ports`` are
    those of listeners beside ``port``. ``workspace`` is a directory of the host in the place of the one in memory, for debugging only.
    """
    hosts = " ".join(["localhost", *local_names])
    own: list[Mount] = [
        Proc(),
        Dev(),
        Tmpfs(target=TMP, size_bytes=TMP_BYTES, mode=0o1777),
        Directory(target="/home"),
        Tmpfs(target=HOME, size_bytes=HOME_BYTES, mode=0o700),
        workspace or Tmpfs(target=WORKSPACE, size_bytes=WORKSPACE_BYTES, mode=0o755),
        Directory(target="/etc"),
        File(target="/etc/hosts", content=f"127.0.0.1 {hosts}\n".encode("ascii"), mode=0o444),
        File(target="/etc/passwd", content=_PASSWD, mode=0o444),
        File(target="/etc/group", content=_GROUP, mode=0o444),
        File(target="/etc/nsswitch.conf", content=_NSSWITCH, mode=0o444),
        File(target="/etc/resolv.conf", content=b"", mode=0o444),
        Symlink(target="/etc/mtab", to="/proc/self/mounts"),
    ]
    seeds = [
        File(target=f"{HOME}/{path}", content=content, mode=0o600)
        for path, content in sorted((home_files or {}).items())
    ]
    made = {mount.target for mount in own}
    parents: list[Mount] = []
    placed: list[Mount] = [*seeds, *binds, *files]
    for mount in placed:
        for parent in parents_of(mount.target):
            if parent not in made:
                made.add(parent)
                parents.append(Directory(target=parent, mode=0o700 if parent.startswith(f"{HOME}/") else 0o755))
    early = [mount for mount in system if not mount.target.startswith("/etc/")]
    late = [mount for mount in system if mount.target.startswith("/etc/")]
    return SandboxSpec(
        rootfs=rootfs,
        mounts=(*early, *own, *late, *parents, *seeds, *binds, *files),
        env=dict(env),
        cwd=WORKSPACE,
        argv=tuple(argv),
        hostname=HOSTNAME,
        network=None if port is None else Listener(port=port),
        further=tuple(Listener(port=further) for further in further_ports),
        limits=limits or Limits(),
        seccomp=seccomp,
        handles=(WORKSPACE, HOME),
    )


def parents_of(path: str) -> list[str]:
    """Return the directories above a path, outermost first, without the root."""
    parts = path.strip("/").split("/")[:-1]
    return ["/" + "/".join(parts[: count + 1]) for count in range(len(parts))]
