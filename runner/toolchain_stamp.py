"""What was hashed, and whether anybody can have changed it since: stamps, ownership, and the execute-only copy of the CLI.

Boundary: reads and writes files below the toolchain cache. Not here: the lock and its hashes (runner/toolchain.py), installing (toolchain_install.py).
Rules: a stamp says "these files are the ones that were hashed": device, inode, size, mtime, ctime, mode and owner of each. It is worth something only where no
other user could have written it or what it covers, so ``require_private`` comes first. A process with the owner's rights can forge both; ``toolchain verify`` and
``reproduce`` hash again and do not rely on it (ADR 0005). A file that changes while it is hashed is never stamped: fingerprints are taken before and after.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from runner.canonical import sha256_hex
from runner.errors import ToolchainError, ToolchainMissing

STAMP_NAME = "stamp.json"
EXECUTE_ONLY = 0o111
_MAX_STAMP_BYTES = 1 << 16
# Headers and manual pages of the Node package: 3,400 files that no run mounts or executes, and 25 ms of lstat. `toolchain verify` hashes them all the same.
_UNWATCHED = re.compile(r"node-linux-[^/]+/(include|share)\Z")


class Stamp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The record of one verified tree or file."""

    schema_version: int
    nar_sha256: str
    """NAR hash (SRI) of what the fingerprint stands for, at the time it was hashed."""
    fingerprint: str
    """sha256 over the listing of device, inode, size, times, mode and owner."""


def tree_fingerprint(root: Path, uid: int) -> str:
    """Return the fingerprint of every watched entry below ``root``, itself included. Costs one lstat an entry, reads no contents.

    Raises:
        ToolchainError: code ``toolchain-untrusted``, an entry could be changed by a user other than root and ``uid``.
    """
    lines = []
    for name, found in _watched(root):
        if found.st_mode & 0o022 or found.st_uid not in (
            0,
            uid,
        ):  # asked here: making 35,000 paths costs as much as the lstats
            _require_owner(root / name, found, uid)
        lines.append(f"{name}\0{_facts(found)}")
    return sha256_hex("\n".join(sorted(lines)).encode("utf-8", "surrogateescape"))


def file_fingerprint(path: Path) -> str:
    """Return the fingerprint of one file, which need not be readable."""
    return sha256_hex(_facts(path.lstat()).encode("ascii"))


def read_stamp(directory: Path) -> Stamp | None:
    """Return the stamp of ``directory``, or None where there is none that can be used."""
    try:
        data = _read_capped(directory / STAMP_NAME)
        stamp = msgspec.json.decode(data, type=Stamp)
    except (OSError, ValueError, RecursionError):
        return None
    return stamp if stamp.schema_version == 1 else None


def write_stamp(directory: Path, stamp: Stamp) -> None:
    """Put ``stamp`` into ``directory`` under its name, whole or not at all."""
    temporary = directory / f".{STAMP_NAME}.{os.urandom(8).hex()}"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.encode(stamp, order="sorted") + b"\n")
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        temporary.replace(directory / STAMP_NAME)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def require_private(directory: Path, uid: int) -> None:
    """Refuse a directory that a user other than root or ``uid`` could change: itself, its stamp, or a parent that could be swapped.

    Raises:
        ToolchainError: code ``toolchain-untrusted``; ``where`` is the path and the message says what is wrong with it.
        ToolchainMissing: the directory is not there.
    """
    try:
        real = directory.resolve(strict=True)
        for parent in (real, *real.parents):
            _require_owner(parent, parent.lstat(), uid, parent=parent != real)
        stamp = real / STAMP_NAME
        if stamp.exists():
            _require_owner(stamp, stamp.lstat(), uid)
    except OSError as error:
        raise ToolchainMissing(f"cannot be read: {error.strerror}", where=str(directory)) from error


def make_executable_copy(source: Path, directory: Path, nar_sha256: str) -> None:
    """Make ``directory/<name of source>``, a copy that can be executed and not read (mode 0111), with a stamp beside it.

    Whole or not at all, and once: makers take turns by a lock, and whoever finds the copy there leaves it. What a killed maker left is removed.
    The caller has just hashed the package of ``source`` as ``nar_sha256``.

    Raises:
        OSError: it cannot be written.
    """
    shelf = directory.parent
    if not shelf.exists():
        shelf.mkdir(exist_ok=True)
        shelf.chmod(0o755)  # the dropped uid of a root caller has to reach it, whatever the umask
    with _turn(shelf / ".lock"):
        for leftover in shelf.glob(".*.tmp"):
            shutil.rmtree(leftover, ignore_errors=True)
        if executable_copy_holds(directory, source.name, nar_sha256):
            return
        # Beside, not inside: renaming the directory leaves the file's own ctime as it is, so that the stamp can be written before.
        temporary = shelf / f".{directory.name}.tmp"
        temporary.mkdir()
        try:
            temporary.chmod(0o755)  # as above
            _copy_bytes(source, temporary / source.name)
            write_stamp(temporary, Stamp(1, nar_sha256, file_fingerprint(temporary / source.name)))
            if directory.exists():
                shutil.rmtree(directory)
            temporary.rename(directory)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _turn(path: Path) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def executable_copy_holds(directory: Path, name: str, nar_sha256: str) -> bool:
    """True where ``directory`` holds the stamped execute-only copy of what was hashed as ``nar_sha256``."""
    stamp = read_stamp(directory)
    if stamp is None or stamp.nar_sha256 != nar_sha256:
        return False
    try:
        found = (directory / name).lstat()
    except OSError:
        return False
    right_mode = stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) == EXECUTE_ONLY
    return right_mode and stamp.fingerprint == file_fingerprint(directory / name)


def _copy_bytes(source: Path, copy: Path) -> None:
    with source.open("rb") as reading:
        out = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(out, "wb") as writing:
            shutil.copyfileobj(reading, writing, 1 << 22)
            writing.flush()
            os.fchmod(writing.fileno(), EXECUTE_ONLY)
            os.fsync(writing.fileno())


def _watched(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    yield ".", root.lstat()
    pending = [""]
    while pending:
        prefix = pending.pop()
        with os.scandir(f"{root}/{prefix}") as entries:
            for entry in entries:
                name = prefix + entry.name
                yield name, entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False) and not _UNWATCHED.search(name):
                    pending.append(name + "/")


def _facts(found: os.stat_result) -> str:
    return f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}:{found.st_mode:o}:{found.st_uid}"


def _require_owner(path: Path, found: os.stat_result, uid: int, *, parent: bool = False) -> None:
    if stat.S_ISLNK(found.st_mode):
        return
    trusted = {0, uid}
    if parent and _uids_are_mapped():
        trusted.add(
            65534
        )  # root outside this user namespace looks like the overflow uid (a Nix build, a rootless container)
    if found.st_uid not in trusted:
        raise _untrusted(path, f"belongs to uid {found.st_uid}")
    if found.st_mode & 0o022 and not (parent and found.st_mode & stat.S_ISVTX):
        raise _untrusted(path, f"can be written by others (mode {stat.S_IMODE(found.st_mode):04o})")


def _untrusted(path: Path, why: str) -> ToolchainError:
    return ToolchainError(
        f"the pinned tools are not trusted: this {why}",
        where=str(path),
        hint="make it belong to you or root, not writable by group or others, or choose another cache with HERMEVAL_CACHE",
        code="toolchain-untrusted",
    )


def _uids_are_mapped() -> bool:
    try:
        return Path("/proc/self/uid_map").read_text(encoding="ascii").split() != ["0", "0", "4294967295"]
    except OSError:
        return False


def _read_capped(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        data = file.read(_MAX_STAMP_BYTES + 1)
    if len(data) > _MAX_STAMP_BYTES:
        raise ValueError("stamp too large")
    return data
