"""The private directory of one run, and the place of the supervisor's program: neutral paths that the run uid can read and nobody else can change.

Boundary: makes directories under /run/hermeval, or else /var/lib/hermeval (root), or under the given runtime directory or /tmp (others). Not here: removing a run's directory (supervisor.py does, so
that it goes even when the runner was killed), what is put in (the caller).
Rules: paths show up in /proc/self/mountinfo inside, so they hold no user name, fixture or project (facts/sandbox.md §2, 10). A root caller's staging stays root's, readable
for the run gid only: no process of the run uid can change a staged file or plant a link in the way of a root writer. A path is announced to the supervisor before it is made.
A skill's scripts are executed from where they are staged, so a place that is mounted noexec (Debian's and Ubuntu's /run is) is not one, for root neither.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

from sandbox.errors import StagingFailed
from sandbox.identity import Identity

ROOT_BASES = (Path("/run/hermeval"), Path("/var/lib/hermeval"))
"""Root's, in this order. Only root writes to the directories they lie in, and what they hold must be root's alone: /var/cache/hermeval has the tools, which others may be given."""
PROGRAM = "supervisor.py"
PROGRAM_FILES = (
    PROGRAM,
    "roles.py",
    "box.py",
    "kernel.py",
    "listener.py",
    "procfs.py",
    "canary.py",
    "watchdog.py",
    "group.py",
)
_PREFIX = "hermeval-"


def choose_staging(
    identity: Identity,
    *,
    runtime_dir: Path | None = None,
    bases: Sequence[Path] = ROOT_BASES,
    temporary: Path = Path("/tmp"),  # noqa: S108 - the fallback
) -> Path:
    """Return a fresh path for one run's directory; nothing is made there yet, but its parent exists.

    ``runtime_dir`` is the caller's XDG_RUNTIME_DIR, if any; it is used where it is the caller's own and programs may be executed from it.
    Raises: StagingFailed.
    """
    name = _PREFIX + os.urandom(8).hex()
    if identity.run_as is not None:
        return _first(bases, _runs, "no place for a run") / name
    for parent in (runtime_dir, temporary):
        if parent is not None and not _against(parent, identity.uid):
            return parent / name
    raise StagingFailed(
        "no place for a run", where=str(temporary), hint="set XDG_RUNTIME_DIR to a directory of yours without noexec"
    )


def make_staging(path: Path, identity: Identity) -> Path:
    """Make a run's directory: the caller's own with mode 0700; root's, readable for the run gid, for a root caller. Returns the path.

    Raises: StagingFailed.
    """
    try:
        path.mkdir(mode=0o700)
        if identity.run_as is not None:
            os.chown(path, 0, identity.run_as.gid)
            path.chmod(0o750)
    except OSError as error:
        raise StagingFailed(f"the run's directory cannot be made: {error}", where=str(path)) from error
    return path


def place_program(identity: Identity, *, bases: Sequence[Path] = ROOT_BASES) -> Path:
    """Return the path of the supervisor's program, where the run uid can read it.

    A root caller's checkout may lie in a home that nobody else may enter: it gets a copy under the first of ``bases`` that can hold it, root-owned, named by its content.
    Raises: StagingFailed.
    """
    here = Path(__file__).parent
    if identity.run_as is None:
        return here / PROGRAM
    contents = {name: (here / name).read_bytes() for name in PROGRAM_FILES}
    digest = sha256(b"".join(len(content).to_bytes(8) + content for content in contents.values())).hexdigest()[:16]

    def place(base: Path) -> Path:
        home = base / "programs" / digest
        for directory in (base, home.parent, home):
            _own_directory(directory, 0o755)
        for name, content in contents.items():
            _place(home / name, content)
        return home / PROGRAM

    return _first(bases, place, "the supervisor's program cannot be placed")


def other_runs(chosen: Path, bases: Sequence[Path] = ROOT_BASES) -> list[Path]:
    """Return where earlier runs of a root caller may have been staged, beside the place of the one ``chosen`` now: only directories that nobody else can write to."""
    found = []
    for base in bases:
        with contextlib.suppress(OSError):
            for directory in (base, base / "runs"):
                _check_own(directory)
            found.append(base / "runs")
    return [runs for runs in found if chosen.parent in found and runs != chosen.parent]


_NOT_A_PLACE = (None, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR)
"""What says that a place is none for runs, so that the next one is. A disk that is full or broken is told at once: another place would hide it."""


def _first(bases: Sequence[Path], make: Callable[[Path], Path], failure: str) -> Path:
    """Return what is made of the first base that can be used. Raises: StagingFailed, with what speaks against each."""
    against = []
    for base in bases:
        try:
            return make(base)
        except OSError as error:
            against.append(f"{base}: {error.strerror if error.errno else error}")
            if error.errno not in _NOT_A_PLACE:
                hint = f"see to the file system of {base}: room, inodes, faults"
                raise StagingFailed(f"{failure}: {against[-1]}", where=str(base), hint=hint) from error
    last = bases[-1]
    hint = (
        f"let root write to {' or '.join(str(base.parent) for base in bases)}, and mount it without noexec; or give {last} a place of its own: "
        f"mkdir -p {last} && mount -t tmpfs -o mode=755,nosuid,nodev none {last}. Each is root's, mode 0755"
    )
    raise StagingFailed(f"{failure}: {'; '.join(against)}", where=str(bases[0]), hint=hint)


def _runs(base: Path) -> Path:
    """Make root's directory of runs below a base, or check it. Raises: OSError, also where a skill's scripts could not be executed there."""
    runs = base / "runs"
    _own_directory(base, 0o755)
    _own_directory(runs, 0o711)
    flags = os.statvfs(runs).f_flag
    for flag, reason in ((os.ST_NOEXEC, "it is mounted noexec"), (os.ST_RDONLY, "it is mounted read-only")):
        if flags & flag:
            raise OSError(reason)
    return runs


def _place(path: Path, content: bytes) -> None:
    """Write a file whole and world-readable, unless it is there already with that content."""
    try:
        if path.read_bytes() == content:
            return
    except FileNotFoundError:
        pass
    new = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    try:
        new.write_bytes(content)
        new.chmod(0o644)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _own_directory(path: Path, mode: int) -> None:
    """Make a directory with exactly this mode, or check that it is ours and that no one else can write to it."""
    try:
        path.mkdir(mode=0o700)
        path.chmod(mode)
    except FileExistsError:
        if _check_own(path) != mode:
            path.chmod(mode)


def _check_own(path: Path) -> int:
    """Check that a directory is ours and that no one else can write to it; return its mode."""
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"{path} is not a directory that only uid {os.getuid()} can write to")
    return stat.S_IMODE(found.st_mode)


def passed_over(identity: Identity, runtime_dir: Path | None, *, bases: Sequence[Path] = ROOT_BASES) -> str:
    """Return why the place that comes first was not used for runs, to be told: the caller's XDG_RUNTIME_DIR, or root's first base. Nothing where it was, or where there is none."""
    if identity.run_as is not None:
        try:
            _runs(bases[0])
        except OSError as error:
            return f"{bases[0]} is not used: {error.strerror if error.errno else error}"
        return ""
    if runtime_dir is None:
        return ""
    why = _against(runtime_dir, identity.uid)
    return f"XDG_RUNTIME_DIR is not used: {why}" if why else ""


def _against(parent: Path, uid: int) -> str:
    """Return what speaks against a directory for runs: it is the caller's own or a sticky one, can be written, and is not mounted noexec (scripts of a skill are executed from it)."""
    try:
        found = parent.stat()
        flags = os.statvfs(parent).f_flag
    except OSError as error:
        return error.strerror or "it cannot be looked at"
    own = found.st_uid == uid and not found.st_mode & 0o022
    if not own and not found.st_mode & stat.S_ISVTX:
        return "others may write to it" if found.st_uid == uid else f"it belongs to uid {found.st_uid}"
    if not os.access(parent, os.W_OK | os.X_OK):
        return "it cannot be written"
    return "it is mounted noexec" if flags & os.ST_NOEXEC else ""
