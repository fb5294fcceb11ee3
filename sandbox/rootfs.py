"""The read-only system of a sandbox: a pinned closure where one is described, else the host's /usr and nothing more of the host.

Boundary: reads names and links of the host's root directory and its os-release file, or the description of a closure. Not here: the rest of the inside view (view.py),
making a description (nix/rootfs.nix).
Rules: what is taken is named here, one by one; no host name, user, mount table, socket, store or service comes in (facts/sandbox.md §5). Only a description that lists every
store path with its hash makes a root file system ``nix`` and pinned; everything else is ``host`` with the host's identity, so that nobody takes it for pinned (DESIGN "The sandbox").
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from sandbox.check import is_at_or_below
from sandbox.errors import SpecInvalid
from sandbox.pinned import read_pins
from sandbox.spec import Directory, Mount, RoBind, Symlink, Value
from sandbox.view import parents_of

HOST = "host"
NIX = "nix"
_TOP = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ETC = ("etc/alternatives", "etc/ld.so.cache")
"""Debian's links of /usr/bin point through /etc/alternatives; the dynamic loader reads ld.so.cache. Neither tells who the host is."""
_STORE_NAME = re.compile(r"[0-9a-df-np-sv-z]{32}-[0-9A-Za-z+?=._-]{1,211}\Z")
_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class Rootfs:
    """A read-only system: what it is called, its mounts, and what an attempt says of it."""

    kind: str
    """``host`` or ``nix``."""
    mounts: tuple[Mount, ...]
    identity: Mapping[str, JsonValue] = field(default_factory=dict)
    """What tells it from another: facts of the host, or every store path with its NAR hash."""

    @property
    def pinned(self) -> bool:
        """Whether it is the same, byte for byte, on every machine."""
        return self.kind == NIX

    def as_record(self) -> dict[str, JsonValue]:
        """Return what an attempt keeps of it."""
        return {"kind": self.kind, "pinned": self.pinned, "identity": dict(self.identity)}


class _HostDescription(Value):
    """The description of something that is not pinned, and why."""

    schema_version: Literal[1]
    kind: Literal["host"]
    reason: str


class _ClosureDescription(Value):
    """The description of a pinned closure, as nix/rootfs.nix writes it."""

    schema_version: Literal[1]
    kind: Literal["nix"]
    store: str
    links: dict[str, str]
    """Path inside to what the link there says: the places where programs and their loader are looked for."""
    closure: Annotated[dict[str, Annotated[str, Field(pattern=r"^sha256-[0-9A-Za-z+/]{43}=$")]], Field(min_length=1)]
    """Store path to NAR hash (SRI form)."""


_DESCRIPTION: TypeAdapter[_HostDescription | _ClosureDescription] = TypeAdapter(
    Annotated[_HostDescription | _ClosureDescription, Field(discriminator="kind")]
)


def find_rootfs() -> Rootfs:
    """Return the system of this program's sandboxes: the pinned one where it comes from the flake, else the host's.

    Raises: SpecInvalid, SandboxUnavailable where what is pinned cannot be used.
    """
    pins = read_pins()
    return host_rootfs() if pins is None else read_rootfs(pins.rootfs)


def read_rootfs(description: Path, *, root: Path = Path("/")) -> Rootfs:
    """Return the system that a description names.

    Raises: SpecInvalid where the description cannot be used.
    """
    try:
        with description.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise SpecInvalid(
            f"the root file system's description cannot be read: {error.strerror}", where=str(description)
        ) from error
    found = parse_description(data, where=str(description))
    return found if found is not None else host_rootfs(root)


def parse_description(data: bytes, *, where: str = "description") -> Rootfs | None:
    """Return the closure that a description names, or None where it says that the host's system is used. Pure.

    Raises: SpecInvalid.
    """
    if len(data) > _MAX_BYTES:
        raise SpecInvalid("the root file system's description is too large", where=where)
    try:
        found = _DESCRIPTION.validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise SpecInvalid(
            f"the root file system's description is not valid: {place}: {first['msg']}", where=where
        ) from error
    if isinstance(found, _HostDescription):
        return None
    return Rootfs(
        NIX,
        closure_mounts(found.store, found.links, sorted(found.closure)),
        {"links": dict(found.links), "closure": dict(found.closure)},
    )


def closure_mounts(store: str, links: Mapping[str, str], closure: Sequence[str]) -> tuple[Mount, ...]:
    """Return the mounts of a closure: each store path by itself, never the store; then the links to it.

    Raises: SpecInvalid where a path is not one of the store, or a link leads out of the closure.
    """
    for path in closure:
        parent, _, name = path.rpartition("/")
        if parent != store or not _STORE_NAME.match(name):
            raise SpecInvalid("that is no path of the store", where=path)
    for place, target in links.items():
        if not any(is_at_or_below(target, path) for path in closure):
            raise SpecInvalid(f"the link leads out of the closure, to {target}", where=place)
    made: dict[str, Mount] = {}
    for target in [*closure, *links]:
        for parent in parents_of(target):
            made.setdefault(parent, Directory(target=parent))
    binds = [RoBind(source=path, target=path) for path in closure]
    return (*made.values(), *binds, *(Symlink(target=place, to=target) for place, target in sorted(links.items())))


def host_rootfs(root: Path = Path("/")) -> Rootfs:
    """Return the host's system as it is laid out, with its identity."""
    return Rootfs(HOST, read_host_rootfs(root), dict(read_host_identity(root)))


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
