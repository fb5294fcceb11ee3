"""A file that is there whole, or not at all, whatever ends its writer.

Boundary: writes one file into a directory, and removes what dead writers of its kind left there. Not here: what stands in it (its callers).
Rules: while it is written the file has no name, so that a killed writer leaves nothing, and no name is ever given to less than the whole: fsync, a link that replaces nothing
(``publish``) or a rename (``replace``), fsync of the directory. Where the file system knows no nameless files it has a temporary name, ``.<label>.<16 hex>.tmp``, and is locked
for as long as its writer lives: what is unlocked and older than ``LEFTOVER_AGE_S`` is removed by the next writer of the same kind. Ages are compared on the file system's own
clock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from runner.errors import BundleExists

LEFTOVER_AGE_S = 60
_RENAME_NOREPLACE = 1
_NO_NAMELESS = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.ENOENT, errno.EINVAL)
_COPY_BYTES = 1 << 20


class WholeFile:
    """A file under way. ``file`` takes its bytes; then one of ``publish`` and ``replace``, once."""

    def __init__(self, directory: Path, label: str, *, nameless: bool) -> None:
        """Begin. Raises: OSError."""
        self._directory = directory
        self._label = label
        self._temporary: Path | None = None
        fd = _nameless(directory) if nameless else None
        if fd is None:
            fd = self._named()
        self.file: IO[bytes] = os.fdopen(fd, "w+b", buffering=1 << 20)

    def publish(self, final: Path) -> None:
        """Give the whole file its name in the directory, which must be free. Raises: BundleExists, OSError; nothing has that name by us then."""
        self._flush()
        if self._temporary is None and not self._link(final):
            self._copy()
        if self._temporary is not None:
            publish(self._temporary, final)
        _sync_directory(self._directory)

    def replace(self, final: Path) -> None:
        """Give the whole file its name in the directory, in place of what has it. Raises: OSError; that is as it was then."""
        self._flush()
        if self._temporary is None:
            with contextlib.suppress(BundleExists):
                if self._link(final):
                    _sync_directory(self._directory)
                    return
            name = self._name()
            if self._link(name):
                self._temporary = name
            else:
                self._copy()
        assert self._temporary is not None
        self._temporary.replace(final)
        _sync_directory(self._directory)

    def close(self) -> None:
        """Let it go; what was not published is gone."""
        with contextlib.suppress(OSError):  # what could not be written was told by publish, or by the write
            self.file.close()
        if self._temporary is not None:
            with contextlib.suppress(OSError):
                self._temporary.unlink()

    def _flush(self) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())

    def _name(self) -> Path:
        return self._directory / f".{self._label}.{os.urandom(8).hex()}.tmp"

    def _named(self) -> int:
        name = self._name()
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        self._temporary = name
        fcntl.flock(fd, fcntl.LOCK_EX)
        return fd

    def _link(self, name: Path) -> bool:
        """Name the nameless file; says whether this file system can. Raises: BundleExists, OSError."""
        fd = self.file.fileno()
        try:
            # The directory is ignored beside an absolute path; giving it makes this the call that follows the link.
            os.link(f"/proc/self/fd/{fd}", name, src_dir_fd=fd, follow_symlinks=True)
        except FileExistsError:
            raise _exists(name) from None
        except OSError as error:
            if error.errno in _NO_LINKS:
                return False
            raise
        return True

    def _copy(self) -> None:
        """Write it again under a temporary name."""
        fd = self._named()
        with self.file as old:
            self.file = os.fdopen(fd, "w+b")
            old.seek(0)
            while piece := old.read(_COPY_BYTES):
                self.file.write(piece)
        self._flush()


@contextmanager
def whole_file(
    directory: Path, label: str, *, kind: re.Pattern[str] | None = None, nameless: bool = True
) -> Iterator[WholeFile]:
    """Begin a file in ``directory``; without ``publish`` or ``replace`` nothing of it stays. ``kind`` matches the temporary names whose dead leftovers go.

    Raises: OSError.
    """
    whole = WholeFile(directory, label, nameless=nameless)
    try:
        if kind is not None:
            _remove_leftovers(directory, kind, os.fstat(whole.file.fileno()).st_mtime_ns)
        yield whole
    finally:
        whole.close()


def leftovers_of(label: str) -> re.Pattern[str]:
    """Return the temporary names of a label, given as a regular expression."""
    return re.compile(rf"\.(?:{label})\.[0-9a-f]{{16}}\.tmp\Z")


def publish(temporary: Path, final: Path) -> None:
    """Give a whole file its final name, which must be free; the temporary name may stay. Raises: BundleExists, OSError."""
    try:
        os.link(temporary, final)
    except FileExistsError:
        raise _exists(final) from None
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise
        _rename_without_replacing(temporary, final)  # a file system without hard links


def _nameless(directory: Path) -> int | None:
    """Open a file without a name; None where that cannot be had, or could not be named afterwards."""
    try:
        fd = os.open(directory, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in _NO_NAMELESS:
            return None  # no such directory, too: the open with a name says so with that name
        raise
    if os.access(f"/proc/self/fd/{fd}", os.F_OK):
        return fd
    os.close(fd)
    return None


def _rename_without_replacing(temporary: Path, final: Path) -> None:
    import ctypes  # late: rare

    libc = ctypes.CDLL(None, use_errno=True)
    at_cwd = ctypes.c_int(-100)
    if (
        libc.renameat2(at_cwd, os.fsencode(temporary), at_cwd, os.fsencode(final), ctypes.c_uint(_RENAME_NOREPLACE))
        == 0
    ):
        return
    code = ctypes.get_errno()
    if code == errno.EEXIST:
        raise _exists(final)
    raise OSError(code, os.strerror(code), str(final))


def _exists(final: Path) -> BundleExists:
    hint = "name another file, or use the one that is there"
    return BundleExists("this attempt is there already; nothing was overwritten", where=str(final), hint=hint)


def _remove_leftovers(directory: Path, kind: re.Pattern[str], now_ns: int) -> None:
    with os.scandir(directory) as entries:
        names = [entry.name for entry in entries if entry.name.endswith(".tmp") and kind.match(entry.name)]
    for name in names:
        # Another user's file, or one that went away meanwhile, is nobody's concern here.
        with contextlib.suppress(OSError):
            _remove_if_dead(directory / name, now_ns)


def _remove_if_dead(path: Path, now_ns: int) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or now_ns - found.st_mtime_ns < LEFTOVER_AGE_S * 10**9:
            return
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: its writer lives
        path.unlink()
    finally:
        os.close(fd)


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
