"""One sandbox from its start to its certain death, as the runner sees it.

Boundary: owns sockets, descriptors and the streams' threads. Not here: the supervising process (process.py), reading the workspace (collect.py).
Rules:
- Order: ``process.supervise`` → stage files below ``Supervisor.staging`` → ``start`` (all is up, the program is held) → ``release`` → ``wait`` → collect → ``close``.
- How a program ended is a value; exceptions are for sandboxes that were never had. The status comes from bwrap's status pipe, which nobody inside holds.
- The first reason for an end stays; the supervisor decides which came first.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from sandbox.check import check_spec
from sandbox.diagnose import complaint_of, explain
from sandbox.errors import HOST_CANNOT_ISOLATE, SandboxError, SandboxSetupFailed, SandboxUnavailable
from sandbox.limits import HeldLimits, held_limits
from sandbox.process import Host, Supervisor
from sandbox.request import Request, resolve_sources
from sandbox.rest import at_rest
from sandbox.spec import Bind, SandboxSpec
from sandbox.streams import Capped, Drain, Ends, Feed

ANSWER_S = 60.0
"""How long the supervisor may take to answer; it has shorter deadlines of its own."""
OVERDUE_S = 40.0
"""How long a supervisor may take to bring an end about: waiting for the dead takes it 31 s at most (box.py)."""
REMINDER_S = 5.0
"""How long it has once it was told again. A machine that slept wakes the runner first as easily as the supervisor."""


@dataclass(frozen=True)
class Ended:
    """How a released or held program ended."""

    exit_status: int | None
    """From bwrap's status pipe, in the shell's encoding (128+N after signal N); None where the program never ran or was ended by us."""
    reason: str | None
    """Why we ended it: ``timeout``, ``output-limit``, or the word given to ``kill``; None where it ended by itself. ``supervisor-gone``: the supervisor was killed;
    ``supervisor-silent``: it did nothing any more; ``bwrap-killed``: bwrap was, by somebody else; ``host-memory``: this machine had none left."""
    setup_error: str | None
    """What went wrong where the program was released and yet never started."""
    dead: bool
    """Whether pid 1 of the sandbox is known to be dead. False means that the workspace must not be read."""
    stderr: bytes
    stderr_bytes: int
    """How much there was; ``stderr`` may be less and then says so."""
    stdout_bytes: int
    """How much there was; more than the cap only with ``reason`` ``output-limit``."""
    duration_s: float
    """From the release to the death of pid 1; 0 where it was never released."""
    setup_s: float
    """From bwrap's start until all was up and the program held."""
    limits: HeldLimits
    observations: Mapping[str, int] = field(default_factory=dict)
    setup_cure: str = ""
    """What to do about ``setup_error``, where it is known."""
    setup_code: str = "sandbox-setup-failed"
    """Its stable code; ``host-cannot-isolate`` where it is this host that cannot."""

    @property
    def signal(self) -> int | None:
        """The signal that ended the program, as far as a shell's status can tell."""
        return self.exit_status - 128 if self.exit_status is not None and 128 < self.exit_status <= 192 else None


def start(
    supervisor: Supervisor,
    spec: SandboxSpec,
    *,
    on_stdout: Callable[[bytes], None],
    stdin: bytes | Iterable[bytes] = b"",
    stdout_cap: int = 64 << 20,
    stderr_cap: int = 1 << 20,
    wall_clock_s: float = 600.0,
    sources: Mapping[str, Path] | None = None,
    directories: Mapping[str, int] | None = None,
) -> Running:
    """Bring the sandbox up and hold its program.

    ``stdin`` is the whole of it, or an iterable of pieces that ends by itself. ``on_stdout`` is called from a thread of its own, with at most ``stdout_cap`` bytes in all; more ends the run (``output-limit``). The wall clock counts from the release.
    ``sources`` gives each ``@name`` of the description its path, ``directories`` those of writable binds their open directory.
    Raises: SpecInvalid; SandboxUnavailable (this host cannot); SandboxSetupFailed (this sandbox did not come up). The supervisor is closed then.
    """
    running = None
    try:
        check_spec(spec)
        paths = resolve_sources(spec, sources or {})
        bwrap = supervisor.host.bwrap
        request = Request(spec, sources=paths, bwrap=bwrap, wall_clock_s=wall_clock_s, directories=directories)
        try:
            running = Running(supervisor, spec, on_stdout, stdout_cap, stderr_cap, wall_clock_s)
            running.bring_up(request, Feed(stdin))
        finally:
            request.close()
    except BaseException:
        if running is not None:
            running.close()
        supervisor.close()
        raise
    return running


class Running:
    """A sandbox that is up: held until ``release``, then running until it ends or is killed. Made by ``start``."""

    listener: socket.socket | None = None
    """Listening at 127.0.0.1 inside, where the description asks for one. The caller serves and closes it."""
    further: list[socket.socket]
    """The description's further listeners, in its order. The caller serves and closes them, and takes out those it has."""

    def __init__(
        self,
        supervisor: Supervisor,
        spec: SandboxSpec,
        on_stdout: Callable[[bytes], None],
        stdout_cap: int,
        stderr_cap: int,
        wall_clock_s: float,
    ) -> None:
        self._supervisor = supervisor
        self._wall_clock_s = wall_clock_s
        self._due = float("inf")
        self._reminded = False
        self._spec = spec
        self._ended: Ended | None = None
        self._handles: dict[str, int] = {}
        self.further = []
        self._pid1 = -1
        self._setup_s = 0.0
        self._limits = HeldLimits()
        self._stderr = Ends(stderr_cap)
        self._stdout = Capped(
            stdout_cap, on_stdout, lambda: self.kill("output-limit"), lambda: self.kill("reader-failed")
        )
        self._drains = [Drain("stdout", self._stdout), Drain("stderr", self._stderr)]

    def bring_up(self, request: Request, feed: Feed) -> None:
        """Send the request and wait until all is up; once, by ``start``."""
        streams = [feed.theirs]
        streams += [drain.theirs for drain in self._drains]
        try:
            self._supervisor.send(b"start", request.in_order(streams))
        finally:
            for descriptor in streams:
                os.close(descriptor)
        answer = self._supervisor.receive(ANSWER_S)
        if answer is None:
            raise SandboxSetupFailed(f"the supervisor did not answer in {ANSWER_S:.0f} s")
        fields, descriptors = answer
        if not fields or fields[0] != b"held":
            self._raise_failure(fields)
        self._setup_s = int(fields[1]) / 1e6
        self._limits = held_limits(self._spec.limits, parse_limits(fields[2:]))
        if any(isinstance(mount, Bind) for mount in self._spec.mounts):
            self._limits = self._limits.model_copy(update={"disk": "none"})  # the host's disk has no bound of ours
        self._pid1 = descriptors.pop(0)
        if self._spec.network is not None:
            self.listener = socket.socket(fileno=descriptors.pop(0))
        self.further = [socket.socket(fileno=descriptors.pop(0)) for _ in self._spec.further]
        self._handles = dict(zip(self._spec.handles, descriptors, strict=True))

    @property
    def limits(self) -> HeldLimits:
        """What holds the limits of this sandbox, read back from the kernel."""
        return self._limits

    def at_rest(self) -> bool:
        """Whether nothing inside runs or wants to run at this moment (rest.py). From any thread, until ``close``."""
        return at_rest(self._pid1)

    def release(self) -> None:
        """Let the program start. Without effect on a sandbox that has ended."""
        self._due = time.monotonic() + self._wall_clock_s + OVERDUE_S
        self._supervisor.send(b"release")

    def kill(self, reason: str) -> None:
        """End the sandbox. From any thread and from a signal handler; the first reason stays, later calls have no effect."""
        self._due = min(self._due, time.monotonic() + OVERDUE_S)
        self._supervisor.send(b"kill\0" + reason.encode("utf-8", "replace"))

    def wait(self, timeout_s: float | None = None) -> Ended | None:
        """Wait until pid 1 of the sandbox is dead, at most so long; None where it is not yet. One thread at a time.

        A supervisor that lives and does nothing (stopped, frozen) is not waited for: the sandbox is ended without it.
        Raises: what ``on_stdout`` raised, once everything is dead.
        """
        if self._ended is None:
            deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
            while True:
                left = min(deadline - time.monotonic(), 1.0)
                answer = self._supervisor.receive(max(0.0, left))
                if answer is not None and (not answer[0] or answer[0][0] == b"ended"):
                    self._ended = self._conclude(answer[0])
                    break
                if answer is None and self._is_silent():
                    self._ended = self._conclude([], silent=True)
                    break
                if answer is None and time.monotonic() >= deadline:
                    return None
        if self._stdout.error is not None:
            raise self._stdout.error
        return self._ended

    def handle(self, path: str) -> int:
        """Return the directory handle of one of the description's ``handles``, for collection; it stays ours.

        Raises: SandboxError where pid 1 is not known to be dead: the tree could still change.
        """
        if self._ended is None or not self._ended.dead:
            raise SandboxError("the sandbox is not known to be dead, so its files are not read", where=path)
        return self._handles[path]

    def close(self) -> None:
        """End the sandbox if it lives, let go of the handles (their memory is freed), remove the staging directory. May be called again."""
        self._supervisor.close()
        self._kill_pid1()
        if self._pid1 >= 0:
            os.close(self._pid1)
            self._pid1 = -1
        while self._drains:
            self._drains[-1].finish()
            self._drains.pop()
        while self._handles:
            os.close(self._handles.popitem()[1])
        if self.listener is not None:
            self.listener.close()
        while self.further:
            self.further.pop().close()

    def _is_silent(self) -> bool:
        """Whether the supervisor has let the end pass, and did not hear a second word either."""
        if time.monotonic() < self._due:
            return False
        if not self._reminded:
            self._reminded = True
            self._due = time.monotonic() + REMINDER_S
            self._supervisor.send(b"kill\0timeout")
            return False
        return True

    def _kill_pid1(self) -> None:
        """End the sandbox without the supervisor, which may have been killed; without effect on one that is dead."""
        if self._pid1 >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pid1, signal.SIGKILL)

    def _conclude(self, fields: list[bytes], *, silent: bool = False) -> Ended:
        """Make the value from the supervisor's last message (empty where it is gone or ``silent``) and the streams."""
        if not fields:
            self._kill_pid1()
            why = b"supervisor-gone"
            if silent:
                self._supervisor.stop()
                why = b"supervisor-silent"
            self._supervisor.close()  # kills what is left of its group
            fields = [b"ended", b"", why, b"-1", b"0", b"alive", b"released", b"0"]
        _, code, reason, bwrap_status, duration_us, dead, state, memory_peak, *facts = fields
        complete = [drain.finish() for drain in self._drains]
        stderr = self._stderr.result()
        setup_error, found = None, None
        if not code and not reason and int(bwrap_status) < 0:
            reason = b"bwrap-killed"
        if not code and not reason and state == b"released":
            found = explain(stderr)
            setup_error = f"{found.id}: {found.cause}" if found else "the program was not started"
            said = complaint_of(stderr)
            setup_error += f" ({said})" if said else ""
        return Ended(
            exit_status=int(code) if code else None,
            reason=reason.decode() or None,
            setup_error=setup_error,
            dead=dead == b"dead",
            stderr=stderr,
            stderr_bytes=self._stderr.total,
            stdout_bytes=self._stdout.total,
            duration_s=int(duration_us) / 1e6 if state == b"released" else 0.0,
            setup_s=self._setup_s,
            limits=self._limits,
            observations={
                "bwrap_status": int(bwrap_status),
                "memory_peak_bytes": int(memory_peak),
                "stdout_complete": int(complete[0]),
                "stderr_complete": int(complete[1]),
                **parse_limits(facts),
            },
            setup_cure=found.cure if found else "",
            setup_code=HOST_CANNOT_ISOLATE if found and found.host else "sandbox-setup-failed",
        )

    def _raise_failure(self, fields: list[bytes]) -> NoReturn:
        """Turn a start that came to nothing into the error that says why."""
        said = [field.decode("utf-8", "replace") for field in fields]
        if said and said[0] == "refused":
            raise SandboxUnavailable(said[1], hint="run as another user")
        complaint = self._supervisor.complaint()
        self._supervisor.close()
        for drain in self._drains:
            drain.finish()
        stderr = self._stderr.result()
        found = explain(stderr)
        text = stderr.decode("utf-8", "replace").strip().splitlines()
        what = "the supervisor is gone"
        if complaint_of(stderr) or text:
            what = complaint_of(stderr) or text[-1]
        elif said and said[0] == "failed":
            what = ": ".join(said[1:])
        elif said and said[0] == "ended":
            status = int(said[3])
            what = f"bwrap ended with status {status}" if status >= 0 else f"bwrap was killed by signal {-status}"
        elif complaint:
            what = complaint.rpartition("\n")[2]
        if said[:2] == ["failed", "canary"]:
            raise SandboxUnavailable(
                f"the sandbox is not what was asked for: {said[2]}",
                hint="hermeval doctor tries each part by itself",
                code="sandbox-canary",
            )
        if found is not None and found.host:
            raise SandboxUnavailable(f"{found.cause} ({what})", where=found.id, hint=found.cure)
        if found is not None:
            raise SandboxSetupFailed(f"{found.cause} ({what})", where=found.id, hint=found.cure)
        raise SandboxSetupFailed(
            f"the sandbox did not come up: {what}", hint="hermeval doctor tries each part by itself"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def parse_limits(fields: list[bytes]) -> dict[str, int]:
    """Parse the supervisor's ``name=value`` fields."""
    pairs = (field.decode("ascii").partition("=") for field in fields)
    return {name: int(value) for name, _, value in pairs}


def run_once(
    host: Host,
    spec: SandboxSpec,
    *,
    stdin: bytes = b"",
    wall_clock_s: float = 30.0,
    sources: Mapping[str, Path] | None = None,
) -> tuple[Ended, bytes]:
    """Run a program without a listener's server to its end; return how it ended and its stdout. For checks and tests.

    Raises: as ``start``.
    """
    output = bytearray()
    with start(
        Supervisor(host, None), spec, on_stdout=output.extend, stdin=stdin, wall_clock_s=wall_clock_s, sources=sources
    ) as running:
        running.release()
        ended = running.wait()
        assert ended is not None
        return ended, bytes(output)
