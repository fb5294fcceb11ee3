"""The process layer: who runs a sandbox on this host, and the supervising process that owns it.

Boundary: the one module of the sandbox that starts processes from the runner: the supervisor (supervisor.py), which starts bwrap. Not here: what is asked of it (request.py),
the run itself (running.py).
Rules: everything is undone when the control socket closes, by whatever means: the supervisor sees its end, also after the runner's SIGKILL. ``close`` only waits for that, so it
may be called again after it was interrupted, from a signal handler too. A process that forks without exec while a sandbox runs would keep the socket open: use spawn.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
import stat
import subprocess  # noqa: TID251 - the one place
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from sandbox.abandoned import hold, remove_abandoned, remove_abandoned_groups
from sandbox.cgroup import NoPlace, Place, look
from sandbox.errors import SandboxUnavailable, StagingFailed
from sandbox.group import Group, KernelTree
from sandbox.identity import Identity, read_identity
from sandbox.pinned import Programs, find_programs
from sandbox.staging import choose_staging, make_staging, other_runs, place_program

REAP_S = 60.0
LEAST_MEMORY = 1 << 30
"""Bytes: under an RLIMIT_AS or RLIMIT_DATA of less the CLI ends before its first event, and says nothing that helps (measured with 2.1.332: 0.8 GB is too little, 1 GiB is not)."""
ENOUGH_MEMORY = 8 << 30
"""Bytes: WebAssembly fails under an RLIMIT_AS of this much or less (facts/sandbox.md §5)."""
MEMORY_CURE = "ulimit -v unlimited; ulimit -d unlimited (a service: LimitAS=infinity, LimitDATA=infinity)"


@dataclass(frozen=True)
class Host:
    """The programs that a sandbox needs on this machine, and who runs it."""

    identity: Identity
    program: Path
    bwrap: Path = Programs.bwrap
    python: Path = Programs.python
    inner: Literal["namespaces", "none"] = "namespaces"
    """``none`` only in Nix's build sandbox, where that is the one sandbox to be had: graders then run bare (bare.py), and nothing else runs at all."""
    groups: Place | NoPlace = field(default_factory=lambda: NoPlace("nobody looked"))
    """Where a sandbox's control group may be made."""

    @property
    def without_group(self) -> str:
        """Why there is no control group, in brackets; nothing where there is one."""
        return f" ({self.groups.reason})" if isinstance(self.groups, NoPlace) else ""


def find_host(*, bwrap: Path | None = None, python: Path | None = None) -> Host:
    """Decide who runs the sandbox, and place the supervisor's program where that account can read it.

    The programs are the pinned ones where this program comes from the flake, else the host's, unless others are given.
    Raises: SandboxUnavailable, StagingFailed.
    """
    programs = find_programs()
    bwrap, python = bwrap or programs.bwrap, python or programs.python
    for path, package in ((bwrap, "bubblewrap"), (python, "python3")):
        if not os.access(path, os.X_OK):
            raise SandboxUnavailable(f"{path} is missing", where=str(path), hint=f"install the package {package}")
    if bwrap.stat().st_mode & (stat.S_ISUID | stat.S_ISGID):
        raise SandboxUnavailable(
            f"{bwrap} is set-user-id (CVE-2026-41163), and no run starts with such a one",
            where="bwrap-setuid",
            hint=f"chmod ug-s {bwrap}; user namespaces are used instead",
        )
    if has_capabilities(bwrap):
        raise SandboxUnavailable(
            f"{bwrap} has file capabilities, and refuses to start with them",
            where="bwrap-capabilities",
            hint=f"setcap -r {bwrap}; user namespaces are used instead",
        )
    found = least_memory()
    if found is not None and found[1] < LEAST_MEMORY:
        raise SandboxUnavailable(
            f"programs may have {found[1] >> 20} MiB of memory here ({found[0]}), and the CLI reserves more before it does anything",
            where="memory-too-limited",
            hint=MEMORY_CURE,
        )
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        raise SandboxUnavailable(
            f"this kernel gives no handles of processes: {error.strerror}",
            where="no-pidfd",
            hint="use a Linux kernel of 5.3 or later, not a stand-in for one",
        ) from error
    identity = read_identity()
    program = place_program(identity)
    if identity.run_as is not None:
        precompile(python, program.parent)
    return Host(identity, program, bwrap, python, groups=look())


def least_memory() -> tuple[str, int] | None:
    """Return the tightest limit on memory that this process hands on, as its name and its bytes, or None where there is none."""
    kinds = {"RLIMIT_AS": resource.RLIMIT_AS, "RLIMIT_DATA": resource.RLIMIT_DATA}
    soft = {name: resource.getrlimit(kind)[0] for name, kind in kinds.items()}
    held = {name: value for name, value in soft.items() if value != resource.RLIM_INFINITY}
    return min(held.items(), key=lambda item: item[1]) if held else None


def has_capabilities(program: Path) -> bool:
    """Whether a program's file gives capabilities to whoever starts it."""
    try:
        return bool(os.getxattr(program, "security.capability"))
    except OSError:
        return False


def precompile(python: Path, directory: Path) -> None:
    """Keep the supervisor's modules compiled where the run uid cannot do it itself: that is a fifth of its start. Once; a failure only costs time."""
    if not (directory / "__pycache__").exists():
        argv = [str(python), "-I", "-S", "-m", "compileall", "-q", str(directory)]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                check=False,
                timeout=30,
            )


def supervise(host: Host, *, runtime_dir: Path | None = None) -> Supervisor:
    """Start a supervisor and make the private directory of a run, which is gone when the supervisor is.

    Raises: SandboxUnavailable, StagingFailed.
    """
    path = choose_staging(host.identity, runtime_dir=runtime_dir)
    supervisor = Supervisor(host, path)  # first, so that nothing is ever staged without one
    try:
        make_staging(path, host.identity)
        supervisor.hold_staging()
    except BaseException:
        supervisor.close()
        raise
    remove_abandoned(path, other_runs(path) if host.identity.run_as is not None else ())
    return supervisor


class Supervisor:
    """The supervising process, waiting for its one sandbox."""

    def __init__(self, host: Host, staging: Path | None) -> None:
        """Start it. Raises: SandboxUnavailable."""
        if host.inner == "none":
            raise SandboxUnavailable("there is no namespace to be had here, and an agent never runs without one")
        self._staging = staging
        self._held = -1
        self.host = host
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._errors = os.memfd_create("supervisor-stderr")
        account = host.identity.run_as
        words = ["-", "-"] if account is None else [str(account.uid), str(account.gid)]
        place = host.groups
        self._group = "-"
        if isinstance(place, Place):
            remove_abandoned_groups(Path(place.parent), time.time())  # noqa: TID251  the clock that files are dated by
            self._group = f"{place.parent}/hermeval-{os.urandom(8).hex()}"
        words += [str(staging or "-"), self._group]
        argv = [str(host.python), "-I", "-S", str(host.program), str(theirs.fileno()), *words]
        try:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env={},
                cwd="/",
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except OSError as error:
            self._control.close()
            os.close(self._errors)
            raise SandboxUnavailable(f"the supervisor cannot be started: {error}", where=str(host.python)) from error
        finally:
            theirs.close()

    @property
    def staging(self) -> Path:
        """The private directory of this run."""
        assert self._staging is not None
        return self._staging

    @property
    def group(self) -> str:
        """The path of this run's control group, whether or not it could be made; ``-`` where there is no place for one."""
        return self._group

    @property
    def pid(self) -> int | None:
        """The supervisor's process id while it has one to wait for."""
        return None if self._process is None else self._process.pid

    def send(self, message: bytes, descriptors: Sequence[int] = ()) -> bool:
        """Send a message, without ever waiting; returns whether somebody took it."""
        try:
            socket.send_fds(self._control, [message], descriptors, socket.MSG_DONTWAIT)
        except OSError:
            return False
        return True

    def receive(self, timeout_s: float | None) -> tuple[list[bytes], list[int]] | None:
        """Return the next message's fields and descriptors; None after the time; no fields where the supervisor is gone."""
        if self._control.fileno() < 0:
            return [], []
        if not select.select([self._control], [], [], timeout_s)[0]:
            return None
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, 65536, 253, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            return [], []
        return (data.split(b"\0") if data else []), descriptors

    def stop(self) -> None:
        """Kill a supervisor that does its work no more, with all of its group; ``close`` comes after."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the sandbox, wait until nothing of it is left, and reap the supervisor. May be called again."""
        self._control.close()
        process = self._process
        if process is not None:
            if process.returncode is None:
                sweep(process)
                process.wait()
            self._process = None
        if self._errors >= 0:
            os.close(self._errors)
            self._errors = -1
        if self._group != "-" and os.path.exists(self._group):
            left = Group(self._group, KernelTree())
            left.there = True
            left.remove()
        if self._held >= 0:
            os.close(self._held)
            self._held = -1
        if self._staging is not None and self._staging.exists():  # only after the supervisor itself was killed
            import shutil

            shutil.rmtree(self._staging)

    def hold_staging(self) -> None:
        """Keep the private directory from being taken for abandoned while this process lives. Raises: StagingFailed."""
        try:
            self._held = hold(self.staging)
        except OSError as error:
            raise StagingFailed(f"the run's directory cannot be held: {error}", where=str(self.staging)) from error

    def complaint(self) -> str:
        """Return what the supervisor's own program said on its stderr."""
        return os.pread(self._errors, 4000, 0).decode("utf-8", "replace").strip() if self._errors >= 0 else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True)
class Tried:
    """How a program that was tried outside any sandbox ended."""

    status: int
    out: str
    err: bytes


def try_program(host: Host, argv: Sequence[str], *, timeout_s: float = 20.0) -> Tried:
    """Run a program under the run uid with an empty environment, for checks of this host (doctor.py). A timeout or a missing program has status 127."""
    account = host.identity.run_as
    drop: dict[str, Any] = {} if account is None else {"user": account.uid, "group": account.gid, "extra_groups": ()}
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={},
            cwd="/",
            timeout=timeout_s,
            check=False,
            start_new_session=True,
            **drop,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Tried(127, "", str(error).encode())
    return Tried(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr)


def sweep(process: subprocess.Popen[bytes]) -> None:
    """Wait for the supervisor's end without reaping it, and kill what is left of its process group where it did not end in good order.

    Its number cannot be given to another process before it is reaped, so the group is surely its own.
    """
    pidfd = os.pidfd_open(process.pid)
    try:
        in_time = bool(select.select([pidfd], [], [], REAP_S)[0])
    finally:
        os.close(pidfd)
    if in_time:
        result = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        if result is not None and result.si_code == os.CLD_EXITED and result.si_status == 0:
            return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
