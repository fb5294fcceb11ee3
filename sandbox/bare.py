"""A sealed program without a namespace of its own, where Nix's build sandbox is the only one that can be had.

Boundary: makes a temporary directory and starts one process. Not here: whether that is allowed (surroundings.py; the caller asks first), confined programs (running.py).
Rules: only what ``sealed_spec`` describes can be started so: files, binds, one scratch directory, no network, no handle. Nothing is confined by this module; whoever uses it
records ``inner: none``. Paths inside become paths below the temporary directory, in the arguments and the environment; a grant for everything in a directory
(``--allow-fs-read=/opt/x/*``) is given for the directories that are bound there as well.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess  # noqa: TID251 - the one place beside process.py: a program that has no supervisor
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from sandbox.argv import source_of
from sandbox.errors import SandboxSetupFailed, SpecInvalid
from sandbox.programs import find_libraries, read_needs
from sandbox.spec import Dev, Directory, File, RoBind, SandboxSpec, Tmpfs

_STDERR_BYTES = 64 << 10


class Placed(NamedTuple):
    """A sealed description, laid out below a directory."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


class BareEnd(NamedTuple):
    """How a bare program ended; the fields of ``running.Ended`` that a conversation looks at."""

    exit_status: int | None
    reason: str | None
    setup_error: str | None
    stderr: bytes


def place(spec: SandboxSpec, sources: Mapping[str, str], base: Path) -> Placed:
    """Lay a sealed description's files, links to its binds and its scratch directory out below ``base``; return the program's words with the paths there.

    Raises: SpecInvalid for a description that is not a sealed one.
    """
    if spec.network is not None or spec.handles:
        raise SpecInvalid("only a sealed program can run without a sandbox", where="network")
    bound: dict[str, str] = {}
    moved: set[str] = set()
    for mount in spec.mounts:
        match mount:
            case File() | Tmpfs() | Directory():
                _make(mount, base)
                if isinstance(mount, File | Tmpfs):
                    moved.add(_top(mount.target))
            case RoBind():
                source = source_of(mount, sources)
                if mount.source.startswith("@") or _top(mount.target) == "/opt":
                    bound[mount.target] = source
                    moved.add(_top(mount.target))
                    link = base / mount.target[1:]
                    link.parent.mkdir(parents=True, exist_ok=True)
                    link.symlink_to(source)
            case Dev():
                pass
            case _:
                raise SpecInvalid(f"a {mount.kind} is not part of a sealed program", where=mount.target)
    inside = re.compile(rf"(^|=)({'|'.join(re.escape(top) for top in sorted(moved))})(?=/|\Z)")

    def outside(word: str) -> list[str]:
        words = [inside.sub(lambda found: f"{found[1]}{base}{found[2]}", word)]
        grant = re.fullmatch(r"(--[a-z-]+=)(/.*)/\*", word)
        if grant:
            words += [f"{grant[1]}{source}/*" for target, source in bound.items() if target.startswith(f"{grant[2]}/")]
        return words

    program = bound.get(spec.argv[0], spec.argv[0])
    argv = [*_loaded(program), *(word for given in spec.argv[1:] for word in outside(given))]
    return Placed(tuple(argv), {name: outside(value)[0] for name, value in spec.env.items()})


class BareProgram:
    """A program that runs from its making on. Close it; its directory is gone then."""

    def __init__(
        self,
        spec: SandboxSpec,
        *,
        on_stdout: Callable[[bytes], None],
        stdin: Iterable[bytes],
        sources: Mapping[str, Path] | None = None,
    ) -> None:
        """Start it. Raises: SpecInvalid, SandboxUnavailable, SandboxSetupFailed."""
        self._base = Path(tempfile.mkdtemp(prefix="bare-"))
        self._reason: str | None = None
        self._stderr = bytearray()
        try:
            self._process = self._start(spec, {name: str(path) for name, path in (sources or {}).items()})
        except BaseException:
            shutil.rmtree(self._base, ignore_errors=True)
            raise
        self._threads = [
            threading.Thread(target=work, args=arguments, name=f"bare-{name}")
            for name, work, arguments in (
                ("stdin", self._feed, (stdin,)),
                ("stdout", self._drain, (on_stdout,)),
                ("stderr", self._listen, ()),
            )
        ]
        for thread in self._threads:
            thread.start()

    def _start(self, spec: SandboxSpec, sources: Mapping[str, str]) -> subprocess.Popen[bytes]:
        try:
            words = place(spec, sources, self._base)
            return subprocess.Popen(
                words.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(words.env),
                cwd=self._base / spec.cwd[1:],
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise SandboxSetupFailed(f"the program cannot be started: {error}", where=spec.argv[0]) from error

    def release(self) -> None:
        """Nothing was held."""

    def wait(self, timeout_s: float | None = None) -> BareEnd | None:
        """Return how it ended, or None where it has not in the given time."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        status = 128 - status if status < 0 else status
        return BareEnd(None if self._reason else status, self._reason, None, bytes(self._stderr))

    def kill(self, reason: str) -> None:
        """End it and everything that it started."""
        self._reason = self._reason or reason
        self._end()

    def close(self) -> None:
        """End it, and remove its directory. May be called again."""
        self._end()
        self._process.wait()
        for thread in self._threads:
            thread.join()
        shutil.rmtree(self._base, ignore_errors=True)

    def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # the group: a program may have ended before what it started
            os.killpg(self._process.pid, signal.SIGKILL)

    def _feed(self, pieces: Iterable[bytes]) -> None:
        assert self._process.stdin is not None
        with self._process.stdin as pipe:
            for piece in pieces:
                view = memoryview(piece)
                try:
                    while view:
                        view = view[pipe.write(view) :]
                except OSError:
                    return

    def _drain(self, on_stdout: Callable[[bytes], None]) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            while piece := pipe.read(1 << 16):
                on_stdout(piece)

    def _listen(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as pipe:
            while piece := pipe.read(1 << 16):
                self._stderr += piece
                del self._stderr[:-_STDERR_BYTES]


def _make(mount: File | Tmpfs | Directory, base: Path) -> None:
    path = base / mount.target[1:]
    if isinstance(mount, File):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(mount.content)
    else:
        path.mkdir(parents=True, exist_ok=True)


def _top(target: str) -> str:
    return "/" + target.split("/", 2)[1]


def _loaded(program: str) -> tuple[str, ...]:
    """Return how to start a program: by the pinned loader where its own is not here (a build has none at the usual path)."""
    loader = read_needs(Path(program)).loader
    libraries = find_libraries()
    if loader is None or libraries.loader is None or Path(loader).exists():
        return (program,)
    return (str(libraries.loader), "--library-path", ":".join(libraries.directories), program)
