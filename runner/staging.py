"""The private copy of a skill tree: regular files only, by a walk over directory handles that follows nothing.

Boundary: touches the source tree (reads) and the staging folder (writes). Not here: what a skill's text means (skill_text.py), the tree as a value
(skills.py), a private place for the copy (sandbox/staging.py).
Rules: nothing outside the source folder is ever opened (probes 75–77 of facts/sandbox.md): every name is opened relative to its folder's handle
with O_NOFOLLOW, after lstat said "regular file" or "folder". A symbolic link is not followed: one that names a regular file of the same tree
becomes a copy of what was staged for that file; any other (out of the tree, to a folder, dangling) is refused. Owner, times and all mode bits but
"may be executed" are dropped, so the copy depends on names and contents alone (case A01). Folders without files are not kept.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runner.errors import InputMissing, SandboxFailure, SkillTreeInvalid
from runner.text import visible_bytes

LEFT_OUT = frozenset({".git"})
"""Names that are not staged: a repository's history would show what the skill was, and hooks (probe 72)."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK = 1 << 20
_LINK_HOPS = 8


@dataclass(frozen=True, slots=True)
class StagingLimits:
    """How large a skill tree may be."""

    files: int = 5_000
    """Files, links and folders."""
    file_bytes: int = 16 << 20
    total_bytes: int = 64 << 20
    depth: int = 24
    """Folders above a file."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One file of the staged tree."""

    path: str
    """Relative, ``/`` between the parts."""
    bytes: int
    sha256: str
    executable: bool


@dataclass(frozen=True, slots=True)
class Staged:
    """What a copy found."""

    files: tuple[StagedFile, ...]
    """In order of their paths."""
    left_out: tuple[str, ...]
    """Paths that were not copied on purpose (``LEFT_OUT``)."""


def copy_tree(source: Path, dest: Path, limits: StagingLimits | None = None) -> Staged:
    """Copy the regular files below ``source`` into the empty folder ``dest`` (made if missing); files get mode 0644 or 0755, folders 0755.

    Raises: InputMissing if ``source`` is no folder; SkillTreeInvalid with the path in the tree for anything that cannot be staged; SandboxFailure
    (``sandbox-staging``) where the copy cannot be written. What was copied until then stays in ``dest``.
    """
    return _Copy(limits or StagingLimits(), dest).run(source)


def scan_tree(source: Path, limits: StagingLimits | None = None) -> Staged:
    """Return what ``copy_tree`` would return, without a copy: the digest of a staged tree after a run.

    Raises: as ``copy_tree``.
    """
    return _Copy(limits or StagingLimits(), None).run(source)


@contextmanager
def _opened(name: str, flags: int, folder: int | None) -> Iterator[int]:
    descriptor = os.open(name, flags, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class _Copy:
    """One walk. ``dest`` None: only look."""

    def __init__(self, limits: StagingLimits, dest: Path | None) -> None:
        self.limits = limits
        self.dest = dest
        self.files: dict[str, StagedFile] = {}
        self.links: dict[str, str] = {}
        self.left_out: list[str] = []
        self.entries = 0
        self.total = 0

    def run(self, source: Path) -> Staged:
        try:
            root = os.open(source, _FOLDER)
        except OSError as error:
            raise InputMissing(f"the skills folder cannot be opened: {error.strerror}", where=str(source)) from error
        try:
            if self.dest is not None:
                with writing(self.dest):
                    _make_folder(self.dest)
            self._folder(root, "", 0)
        finally:
            os.close(root)
        for path in sorted(self.links):
            self._link(path)
        return Staged(tuple(self.files[path] for path in sorted(self.files)), tuple(sorted(self.left_out)))

    def _folder(self, folder: int, prefix: str, depth: int) -> None:
        if depth > self.limits.depth:
            raise _invalid(f"folders are nested more than {self.limits.depth} deep", prefix.rstrip("/"))
        try:
            names = sorted(os.listdir(folder), key=os.fsencode)
        except OSError as error:
            raise _invalid(f"the folder cannot be read: {error.strerror}", prefix.rstrip("/")) from error
        twins: dict[str, str] = {}
        for name in names:
            path = prefix + name
            _check_name(name, path)
            self.entries += 1
            if self.entries > self.limits.files:
                raise _invalid(f"the skill tree has more than {self.limits.files} files and folders", path)
            twin = twins.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
            if twin != name:
                raise _invalid(
                    f"the names {twin!r} and {name!r} differ only in case or in Unicode form; elsewhere they are one file",
                    path,
                )
            if name in LEFT_OUT:
                self.left_out.append(path)
                continue
            try:
                self._entry(folder, name, path, depth)
            except OSError as error:
                raise _invalid(f"it cannot be read: {error.strerror}", path) from error

    def _entry(self, folder: int, name: str, path: str, depth: int) -> None:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISREG(found.st_mode):
            with _opened(name, _FILE, folder) as file:
                self._file(file, found, path)
        elif stat.S_ISDIR(found.st_mode):
            with _opened(name, _FOLDER | os.O_NOFOLLOW, folder) as inner:
                self._folder(inner, path + "/", depth + 1)
        elif stat.S_ISLNK(found.st_mode):
            self.links[path] = os.readlink(name, dir_fd=folder)
        else:
            raise _invalid(f"it is a {_kind(found.st_mode)}; a skill tree holds regular files and folders", path)

    def _file(self, file: int, found: os.stat_result, path: str) -> None:
        opened = os.fstat(file)
        if (opened.st_dev, opened.st_ino) != (found.st_dev, found.st_ino) or not stat.S_ISREG(opened.st_mode):
            raise _invalid("it was replaced while it was read", path)
        if opened.st_mode & (stat.S_ISUID | stat.S_ISGID):
            raise _invalid("it has a set-user-id or set-group-id bit", path, f"chmod ug-s {path!r}")
        if not opened.st_mode & stat.S_IRUSR:
            raise _invalid("its owner may not read it, so the CLI would not find it", path, f"chmod u+r {path!r}")
        if opened.st_size > self.limits.file_bytes:
            raise _invalid(
                f"it has {opened.st_size} bytes; a file of a skill tree has at most {self.limits.file_bytes}", path
            )
        self._count(opened.st_size, path)
        executable = bool(opened.st_mode & stat.S_IXUSR)
        self._keep(path, _read(file, self.limits.file_bytes, path), executable)

    def _link(self, path: str) -> None:
        """Make a link into a copy of the staged file that it names; the path is resolved as text, for folder links are refused."""
        at = path
        for _ in range(_LINK_HOPS):
            target = self.links[at]
            joined = posixpath.normpath(posixpath.join(posixpath.dirname(at), target))
            if target.startswith("/") or joined == ".." or joined.startswith("../"):
                break
            at = joined
            if at in self.files:
                self._count(self.files[at].bytes, path)
                self._keep(path, self._content(at), self.files[at].executable)
                return
            if at not in self.links:
                break
        shown = visible_bytes(os.fsencode(self.links[path]))
        raise _invalid(
            f"it is a symbolic link to {shown!r}, which is no regular file of this skill tree",
            path,
            "copy the file in, or remove the link",
        )

    def _content(self, path: str) -> bytes:
        if self.dest is None:
            raise _invalid("it is a symbolic link, which no staged tree holds", path)
        return (self.dest / path).read_bytes()

    def _count(self, size: int, path: str) -> None:
        self.total += size
        if self.total > self.limits.total_bytes:
            raise _invalid(f"the skill tree has more than {self.limits.total_bytes} bytes", path)

    def _keep(self, path: str, data: bytes, executable: bool) -> None:
        self.files[path] = StagedFile(path, len(data), hashlib.sha256(data).hexdigest(), executable)
        if self.dest is None:
            return
        with writing(self.dest):
            _write(self.dest / path, data, executable)


@contextmanager
def writing(dest: Path) -> Iterator[None]:
    """Tell of a copy that cannot be written: that is not the skill's fault. Raises: SandboxFailure."""
    try:
        yield
    except OSError as error:
        raise SandboxFailure(
            f"the private copy of the skills cannot be made: {error.strerror}",
            where=str(error.filename or dest),
            hint="make room where private directories lie: /run for root, else XDG_RUNTIME_DIR",
            code="sandbox-staging",
        ) from error


def _write(target: Path, data: bytes, executable: bool) -> None:
    _make_folder(target.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with _opened(os.fspath(target), flags, None) as file:
        os.fchmod(file, 0o755 if executable else 0o644)
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]


def _read(file: int, at_most: int, path: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    while chunk := os.read(file, _CHUNK):
        size += len(chunk)
        if size > at_most:
            raise _invalid("it grew while it was read", path)
        parts.append(chunk)
    return b"".join(parts)


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir()
    folder.chmod(0o755)


def _check_name(name: str, path: str) -> None:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise _invalid("the name is not UTF-8", path) from None
    if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in name):
        raise _invalid("the name holds a control character or a line break", path)
    if name.startswith("-"):
        raise _invalid("the name begins with '-', so programs take it for an option", path)


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFIFO: "fifo",
        stat.S_IFSOCK: "socket",
        stat.S_IFCHR: "character device",
        stat.S_IFBLK: "block device",
    }
    return kinds.get(stat.S_IFMT(mode), "file of an unknown kind")


def _invalid(message: str, path: str, hint: str = "") -> SkillTreeInvalid:
    return SkillTreeInvalid(message, where=visible_bytes(os.fsencode(path)) or ".", hint=hint)
