"""Talk to a program in a sandbox: a line goes in, a line comes back, with a deadline for each.

Boundary: starts a sandbox and owns it (or, where the host has no inner one, the bare program). Not here: which program (profile_host.py, promptfoo.py), what the lines mean.
Rules: one question at a time, from one thread. A program that is late, dies or says too much is ended, and the conversation with it; whoever wants to go on starts another one.
"""

from __future__ import annotations

import contextlib
import json
import queue
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from runner.errors import GraderFault, SandboxFailure
from sandbox.bare import BareProgram
from sandbox.errors import SandboxError
from sandbox.process import Host, Supervisor
from sandbox.running import Running, start
from sandbox.spec import SandboxSpec

MAX_LINE_BYTES = 32 << 20
_ALL_BYTES = 1 << 40
_ALL_S = 7 * 24 * 3600.0
_LOOK_S = 0.25
"""How often the program's life is looked at while it is waited for; its answers are never waited for by polling."""


@contextlib.contextmanager
def sandbox_failures() -> Iterator[None]:
    """Raise what the sandbox raises as a SandboxFailure; code, place and hint are kept."""
    try:
        yield
    except SandboxError as error:
        raise SandboxFailure(str(error), where=error.where, hint=error.hint, code=error.code) from error


def answer_to(line: bytes, member: str, *, seq: int, attempt_id: str) -> object:
    """Return the ``member`` of a reply that is the answer to this very question and has nothing else in it.

    Raises: GraderFault.
    """
    try:
        reply = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise GraderFault("its answer is no JSON") from error
    wanted = {"seq", "attempt", member}
    if not isinstance(reply, dict) or set(reply) != wanted or (reply["seq"], reply["attempt"]) != (seq, attempt_id):
        raise GraderFault("it answered another question")
    return reply[member]


class Conversation:
    """A program that answers line by line. Close it; its sandbox is gone then."""

    def __init__(self, host: Host, spec: SandboxSpec, *, sources: Mapping[str, Path] | None = None) -> None:
        """Start the program.

        Raises: SandboxFailure.
        """
        self._questions: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._rest = bytearray()
        self.open = True
        try:
            with sandbox_failures():
                self._running: Running | BareProgram = (
                    BareProgram(spec, on_stdout=self._take, stdin=self._feed(), sources=sources)
                    if host.inner == "none"
                    else start(
                        Supervisor(host, None),
                        spec,
                        on_stdout=self._take,
                        stdin=self._feed(),
                        stdout_cap=_ALL_BYTES,
                        wall_clock_s=_ALL_S,
                        sources=sources,
                    )
                )
        except SandboxFailure:
            self._questions.put(None)
            raise
        self._running.release()

    def ask(self, line: bytes, timeout_s: float) -> bytes:
        """Send one line and return the next line that comes back, without its end.

        Raises: GraderFault where there is none in time; the conversation is closed then.
        """
        self._questions.put(line + b"\n")
        return self.receive(timeout_s)

    def receive(self, timeout_s: float) -> bytes:
        """Return the next line.

        Raises: as ``ask``.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            left = deadline - time.monotonic()
            try:
                return self._answers.get(timeout=max(0.0, min(left, _LOOK_S)))
            except queue.Empty:
                pass
            if left <= 0:
                self.close()
                raise GraderFault(f"no answer within {timeout_s:g} s")
            ended = self._running.wait(0)
            if ended is not None and self._answers.empty():
                self.close()
                said = ended.stderr.decode("utf-8", "replace").strip()[-1500:]
                how = ended.setup_error or ended.reason or f"exit status {ended.exit_status}"
                raise GraderFault(f"the grading program ended without an answer ({how}){': ' + said if said else ''}")

    def close(self) -> None:
        """End the program and its sandbox. May be called again."""
        self.open = False
        self._questions.put(None)
        self._running.close()

    def _feed(self) -> Iterator[bytes]:
        while (line := self._questions.get()) is not None:
            yield line

    def _take(self, piece: bytes) -> None:
        self._rest += piece
        *lines, rest = self._rest.split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            self._running.kill("output-limit")
            rest = bytearray()
        for line in lines:
            self._answers.put(bytes(line))
        self._rest = bytearray(rest)
