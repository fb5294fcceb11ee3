"""The private directory of one run, and the place of the supervisor's program: neutral paths that the run uid can read and nobody else can change.

Boundary: makes directories under /run/hermeval (root) or under the given runtime directory or /tmp (others). Not here: removing a run's directory (supervisor.py does, so
that it goes even when the runner was killed), what is put in (the caller).
Rules: paths show up in /proc/self/mountinfo inside, so they hold no user name, fixture or project (facts/sandbox.md §2, 10). A root caller's staging stays root's, readable
for the run gid only: no process of the run uid can change a staged file or plant a link in the way of a root writer. A path is announced to the supervisor before it is made.
"""

from __future__ import annotations

import os
import stat
from hashlib import sha256
from pathlib import Path

from sandbox.errors import StagingFailed
from sandbox.identity import Identity

ROOT_BASE = Path("/run/hermeval")
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
    base: Path = ROOT_BASE,
    temporary: Path = Path("/tmp"),  # noqa: S108 - the fallback
) -> Path:
    """Return a fresh path for one run's directory; nothing is made there yet, but its parent exists.

    ``runtime_dir`` is the caller's XDG_RUNTIME_DIR, if any; it is used where it is the caller's own and programs may be executed from it.
    Raises: StagingFailed.
    """
    name = _PREFIX + os.urandom(8).hex()
    if identity.run_as is not None:
        runs = base / "runs"
        try:
            _own_directory(base, 0o755)
            _own_directory(runs, 0o711)
        except OSError as error:
            raise StagingFailed(
                f"no place for a run: {error}", where=str(runs), hint=f"make {base} a directory of root with mode 0755"
            ) from error
        return runs / name
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


def place_program(identity: Identity, *, base: Path = ROOT_BASE) -> Path:
    """Return the path of the supervisor's program, where the run uid can read it.

    A root caller's checkout may lie in a home that nobody else may enter: it gets a copy under ``base``, root-owned, named by its content.
    Raises: StagingFailed.
    """
    here = Path(__file__).parent
    if identity.run_as is None:
        return here / PROGRAM
    contents = {name: (here / name).read_bytes() for name in PROGRAM_FILES}
    digest = sha256(b"".join(len(content).to_bytes(8) + content for content in contents.values())).hexdigest()[:16]
    home = base / "programs" / digest
    try:
        for directory in (base, home.parent, home):
            _own_directory(directory, 0o755)
        for name, content in contents.items():
            _place(home / name, content)
    except OSError as error:
        raise StagingFailed(f"the supervisor's program cannot be placed: {error}", where=str(home)) from error
    return home / PROGRAM


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
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise PermissionError(f"{path} is not a directory that only uid {os.getuid()} can write to") from None
        if stat.S_IMODE(found.st_mode) != mode:
            path.chmod(mode)


def passed_over(identity: Identity, runtime_dir: Path | None) -> str:
    """Return why the caller's XDG_RUNTIME_DIR was not used for runs, to be told; nothing where it was, or where there is none. Root's runs never use it."""
    if identity.run_as is not None or runtime_dir is None:
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
