"""The rules that a sandbox description must keep, checked before anything starts.

Boundary: pure. Not here: whether a source exists (request.py resolves it at start), the model's own ranges (spec.py).
Rules: nothing is ever placed below something that a skill, an agent or the host's own tree provides (a bind, a file, a link): bwrap before 0.12 follows
links there (facts/sandbox.md, finding 2), and a read-only bind cannot be written anyway. Nothing hides an earlier entry (claude-code#64182). A path holds no
NUL: bwrap's argument file is NUL-separated, so a NUL would smuggle options in (facts/sandbox.md §2, 77).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sandbox.errors import SpecInvalid
from sandbox.spec import Bind, Dev, Directory, File, Mount, Proc, RoBind, SandboxSpec, Symlink, Tmpfs

MAX_MOUNTS = 400
"""Keeps the argument file far below bwrap's cap of 9000 arguments, and the descriptors passed below the kernel's 253."""
MAX_DATA_FILES = 200
MAX_LISTENERS = 8
SHARED_PLACE = "/workspace"
"""The one place where a directory of the host may be writable inside."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_HOSTNAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")
_SOURCE_NAME = re.compile(r"@[a-z][a-z0-9-]*\Z")


def check_spec(spec: SandboxSpec) -> None:
    """Check the whole description.

    Raises: SpecInvalid, with the first rule broken; ``where`` names the mount's target or the field.
    """
    check_mounts(spec.mounts)
    places = {mount.target: mount for mount in spec.mounts}
    for target in spec.remount_ro:
        if target != "/" and not isinstance(places.get(target), Dev | Tmpfs):
            raise SpecInvalid("only a mount of its own can be made read-only", where=f"remount_ro {target}")
    for target in spec.handles:
        if not isinstance(places.get(target), Tmpfs | Bind):
            raise SpecInvalid("a handle can be had of a writable mount only", where=f"handles {target}")
    check_path(spec.cwd, where="cwd")
    if not any(
        isinstance(mount, Tmpfs | Directory | RoBind | Bind) and is_at_or_below(spec.cwd, mount.target)
        for mount in spec.mounts
    ):
        raise SpecInvalid("the working directory is in no mount", where=f"cwd {spec.cwd}")
    check_listeners(spec)
    check_program(spec)


def check_listeners(spec: SandboxSpec) -> None:
    """Check that further listeners are further ones, each at a port of its own.

    Raises: SpecInvalid.
    """
    if spec.further and spec.network is None:
        raise SpecInvalid("further listeners need a first one", where="further")
    ports = [listener.port for listener in (spec.network, *spec.further) if listener is not None]
    if len(ports) > MAX_LISTENERS:
        raise SpecInvalid(f"{len(ports)} listeners; at most {MAX_LISTENERS}", where="further")
    if len(set(ports)) != len(ports):
        raise SpecInvalid("two listeners have the same port", where="further")


def check_program(spec: SandboxSpec) -> None:
    """Check program, environment and host name."""
    if not spec.argv or not spec.argv[0].startswith("/"):
        raise SpecInvalid("the program needs an absolute path inside", where="argv")
    if any("\x00" in word for word in spec.argv):
        raise SpecInvalid("an argument holds a NUL", where="argv")
    for name, value in spec.env.items():
        if not _VARIABLE.match(name):
            raise SpecInvalid("that is no variable name", where=f"env {name!r}")
        if "\x00" in value:
            raise SpecInvalid("a variable's value holds a NUL", where=f"env {name}")
    if not _HOSTNAME.match(spec.hostname):
        raise SpecInvalid("that is no host name", where="hostname")
    if spec.seccomp is not None and (not spec.seccomp or len(spec.seccomp) % 8):
        raise SpecInvalid("a BPF program is a positive number of 8-byte instructions", where="seccomp")


def check_mounts(mounts: tuple[Mount, ...]) -> None:
    """Check paths, order and place of all mounts.

    Raises: SpecInvalid.
    """
    if len(mounts) > MAX_MOUNTS:
        raise SpecInvalid(f"{len(mounts)} mounts; at most {MAX_MOUNTS}", where="mounts")
    if sum(isinstance(mount, File) for mount in mounts) > MAX_DATA_FILES:
        raise SpecInvalid(f"more than {MAX_DATA_FILES} files made from bytes", where="mounts")
    earlier: list[Mount] = []
    for mount in mounts:
        check_path(mount.target, where=f"mount {mount.target!r}")
        if mount.target == "/":
            raise SpecInvalid("nothing can be mounted over the root", where="mount /")
        match mount:
            case RoBind():
                check_source(mount.source, where=f"mount {mount.target}")
            case Bind():
                if mount.target != SHARED_PLACE:
                    raise SpecInvalid(
                        f"a directory of the host can be written at {SHARED_PLACE} only", where=f"mount {mount.target}"
                    )
            case Symlink():
                if not mount.to or _CONTROL.search(mount.to):
                    raise SpecInvalid("a link needs a plain target", where=f"mount {mount.target}")
            case Proc():
                for mask in mount.masks:
                    check_path(f"/proc/{mask}", where=f"mask {mask!r}")
            case _:
                pass
        check_place(mount, earlier)
        earlier.append(mount)


def check_place(mount: Mount, earlier: Iterable[Mount]) -> None:
    """Check that a mount hides nothing placed before it and lies below nothing that it must not be created in.

    Raises: SpecInvalid.
    """
    for other in earlier:
        if mount.target == other.target:
            raise SpecInvalid("two mounts have the same destination", where=f"mount {mount.target}")
        if is_at_or_below(other.target, mount.target):
            raise SpecInvalid(
                f"it would hide {other.target}, placed before it",
                where=f"mount {mount.target}",
                hint="put the outer mount first",
            )
        if is_at_or_below(mount.target, other.target) and not isinstance(other, Tmpfs | Directory):
            raise SpecInvalid(
                f"its parent cannot be created below {other.target} ({other.kind})", where=f"mount {mount.target}"
            )


def check_source(source: str, *, where: str) -> None:
    """Check a bind's source: ``@name`` or an absolute path.

    Raises: SpecInvalid.
    """
    if source.startswith("@"):
        if not _SOURCE_NAME.match(source):
            raise SpecInvalid(f"{source!r} is no source name", where=where)
        return
    check_path(source, where=f"{where} from {source!r}")


def check_path(path: str, *, where: str) -> None:
    """Check that a path is absolute, in normal form, and without control characters.

    Raises: SpecInvalid.
    """
    if _CONTROL.search(path):
        raise SpecInvalid("the path holds a control character", where=where)
    if not path.startswith("/"):
        raise SpecInvalid("the path is not absolute", where=where)
    parts = path[1:].split("/") if path != "/" else []
    if any(part in ("", ".", "..") for part in parts):
        raise SpecInvalid("the path is not in normal form (no //, ., .. or final /)", where=where)
    encoded = path.encode("utf-8", "surrogateescape")
    if len(encoded) >= 4096 or any(len(part.encode("utf-8", "surrogateescape")) > 255 for part in parts):
        raise SpecInvalid("the path is too long", where=where)


def is_at_or_below(path: str, ancestor: str) -> bool:
    """Whether ``path`` is ``ancestor`` or lies in it, both in normal form."""
    return path == ancestor or ancestor == "/" or path.startswith(ancestor + "/")
