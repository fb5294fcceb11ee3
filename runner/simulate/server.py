"""The simulator: serves a listening socket from a thread of its own, keeps the trace, and hands it back.

Boundary: touches: a thread, the given socket. Not here: HTTP (serving.py), what a call does (machine.py).
Rules: ``serve`` once, ``close`` once (again gives the same record). The state and the trace are touched in the simulator's thread only, one call after the other, so that the trace's order is
the order in which calls happened. A fault of its own is kept as ``failure``: then nothing of the run can be measured.
"""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from runner.canonical import canonical_json
from runner.errors import SimulatorUnavailable
from runner.serving_thread import ServingThread
from runner.simulate.contract import Contract
from runner.simulate.machine import Answer, Call, begin, step
from runner.simulate.planned import PORT
from runner.simulate.state import State
from runner.simulate.trace import Row, Turned, plain, trace_part

if TYPE_CHECKING:
    from runner.simulate.serving import Serving

MAX_ROWS = 5_000
MAX_TRACE_BYTES = 16 << 20
MAX_NOTES = 50


@dataclass(frozen=True)
class SimulationRecord:
    """Everything the simulator saw in one attempt."""

    contract: Contract
    rows: tuple[Row, ...]
    state: State
    turned: Turned
    overflow: bool
    """More calls came than a trace holds; the rest was not carried out."""

    @property
    def fault(self) -> tuple[str, str] | None:
        """Why the trace does not hold all that was asked, as code and message; None where it does."""
        if self.overflow:
            return "simulator-overflow", f"more calls came than a trace holds ({len(self.rows)} were taken)"
        if self.turned.malformed:
            first = next((note for note in self.turned.notes if note.startswith("malformed")), "")
            count = self.turned.malformed
            return "simulator-malformed", f"the simulated service got {count} requests that were none: {first}"
        return None

    def part(self) -> bytes:
        """Return the part ``trace.json``."""
        return trace_part(self.contract, self.rows, self.state, self.turned)


_IMPORTING = threading.Lock()


def load_serving(*, mcp: bool) -> type[Serving]:
    """Import what serves, and the SDK only where its door is open. One thread at a time: the SDK imports itself in circles, which two threads at once would see unfinished."""
    with _IMPORTING:
        if mcp:
            import_module("mcp")
        from runner.simulate.serving import Serving
    return Serving


class Simulator:
    """One simulator for one attempt."""

    def __init__(self, contract: Contract, *, port: int = PORT) -> None:
        """Make a simulator; ``port`` is the listener's as the worker sees it (it stands in the Host header)."""
        self.contract = contract
        self.port = port
        self.host = f"127.0.0.1:{port}"
        self._running = begin(contract)
        self._rows: list[Row] = []
        self._bytes = 0
        self._overflow = False
        self._lists = 0
        self._refused = 0
        self._malformed = 0
        self._notes: list[str] = []
        self._thread = ServingThread("hermeval-simulator", self._serving)
        self._record: SimulationRecord | None = None

    def serve(self, listener: socket.socket) -> None:
        """Serve ``listener`` (bound and listening) until ``close``; the simulator takes it over. Returns at once."""
        if self._thread.begun:
            raise SimulatorUnavailable("a simulator serves once")
        self._thread.serve(listener)

    @property
    def failure(self) -> BaseException | None:
        """What went wrong in the simulator itself, if anything."""
        return self._thread.failure

    def close(self) -> SimulationRecord:
        """Stop serving and return the record.

        Raises: SimulatorUnavailable if the simulator failed or does not end.
        """
        if self._record is None:
            if not self._thread.close():
                raise SimulatorUnavailable("the simulator's thread does not end", hint="report this as a bug")
            turned = Turned(
                lists=self._lists, refused=self._refused, malformed=self._malformed, notes=tuple(self._notes)
            )
            self._record = SimulationRecord(
                self.contract, tuple(self._rows), self._running.service, turned, self._overflow
            )
        if self.failure is not None:
            raise SimulatorUnavailable(f"the simulator failed: {self.failure!r}") from self.failure
        return self._record

    # -- what the doors tell, in the simulator's thread

    def take(self, call: Call) -> Answer:
        """Carry out one call and keep its row."""
        if self._overflow:
            return Answer(4, {"error": {"code": "rejected", "message": "the service takes no more calls"}}, None)
        try:
            done = step(self.contract, self._running, call)
        except BaseException as error:
            self.fail(error)  # whatever the door makes of it
            raise
        size = len(canonical_json(done.row.model_dump(mode="json")))
        if len(self._rows) >= MAX_ROWS or self._bytes + size > MAX_TRACE_BYTES:
            self._overflow = True
            self.note("more calls came than a trace holds")
            return self.take(call)
        self._running = done.running
        self._rows.append(done.row)
        self._bytes += size
        return done.answer

    def listed(self) -> None:
        """Count a client's listing of the tools."""
        self._lists += 1

    def refused(self, code: str, what: str) -> None:
        """Count a request for something that is not served."""
        self._refused += 1
        self.note(f"refused ({code}): {what}" if what else f"refused ({code})")

    def malformed(self, code: str, what: str) -> None:
        """Count a request that was none."""
        self._malformed += 1
        self.note(f"malformed ({code}): {what}" if what else f"malformed ({code})")

    def note(self, text: str) -> None:
        """Keep a remark (the first ones)."""
        if len(self._notes) < MAX_NOTES:
            self._notes.append(plain(text[:300]))

    def fail(self, error: BaseException | None) -> None:
        """Keep a fault of the simulator's own; the first one stays."""
        self._thread.fail(error or RuntimeError("a handler failed"))

    def give_up(self, error: BaseException) -> None:
        """End by itself: no connection can be had any more."""
        self._thread.give_up(error)

    def _serving(self, listener: socket.socket) -> Serving:
        return load_serving(mcp="mcp" in self.contract.doors)(self, listener)
