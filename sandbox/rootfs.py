"""The read-only system of a sandbox where no closure is pinned: the host's /usr, and nothing else of the host.

Boundary: reads names and links of the host's root directory and its os-release file. Not here: the rest of the inside view (view.py).
Rules: what is taken is named here, one by one; no host name, user, mount table, socket, store or service comes in (facts/sandbox.md §5). Whoever uses this says
``rootfs: host`` in the attempt, with the identity, so that nobody takes it for pinned (DESIGN "The sandbox").
"""

from __future__ import annotations

from pathlib import Path

from sandbox.spec import Mount, RoBind, Symlink

HOST = "host"
_TOP = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ETC = ("etc/alternatives", "etc/ld.so.cache")
"""Debian's links of /usr/bin point through /etc/alternatives; the dynamic loader reads ld.so.cache. Neither tells who the host is."""


def read_host_rootfs(root: Path = Path("/")) -> tuple[Mount, ...]:
    """Return the mounts of the host's system as it is laid out: /usr, the links to it (or the directories, where /usr is not merged), two things of /etc.

    Mounts of /etc come last: the caller puts its own ``Directory("/etc")`` before them (view.py does).
    """
    mounts: list[Mount] = [RoBind(source=str(root / "usr"), target="/usr")]
    for name in _TOP:
        path = root / name
        if path.is_symlink():
            mounts.append(Symlink(target=f"/{name}", to=str(path.readlink())))
        elif path.is_dir():
            mounts.append(RoBind(source=str(path), target=f"/{name}"))
    for name in _ETC:
        path = root / name
        if path.exists() and not path.is_symlink():
            mounts.append(RoBind(source=str(path), target=f"/{name}"))
    return tuple(mounts)


def read_host_identity(root: Path = Path("/")) -> dict[str, str]:
    """Return what tells this host's system from another: ``id``, ``version_id`` and ``pretty_name`` of os-release, absent where it does not say."""
    identity: dict[str, str] = {}
    for candidate in ("usr/lib/os-release", "etc/os-release"):
        try:
            text = (root / candidate).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for line in text.splitlines():
            name, _, value = line.partition("=")
            if name in ("ID", "VERSION_ID", "PRETTY_NAME"):
                identity[name.lower()] = value.strip().strip("\"'")
        break
    return identity
