"""A listening socket, served by an event loop in a thread of its own: what gate and simulator have in common.

Boundary: touches: a thread, the given socket. Not here: what is served (runner/gate, runner/simulate).
Rules: ``serve`` once; ``close`` as often as wanted. What serves is made in the thread, so that its imports cost the caller nothing. A thread has nobody to raise to: what goes wrong in it
is its ``failure``, and the first one stays.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

CLOSE_TIMEOUT_S = 10.0


class Serves(Protocol):
    """What is started in the loop, and stopped in it."""

    async def start(self) -> None:
        """Take requests from now on."""

    async def stop(self) -> None:
        """End what is under way."""


class ServingThread:
    """One thread for one listening socket."""

    def __init__(self, name: str, make: Callable[[socket.socket], Serves]) -> None:
        """``make`` is called in the thread."""
        self.failure: BaseException | None = None
        self._name = name
        self._make = make
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    @property
    def begun(self) -> bool:
        """Whether it serves, or has served."""
        return self._thread is not None

    def serve(self, listener: socket.socket) -> None:
        """Serve ``listener`` (bound and listening) until ``close``, and take it over. Returns at once."""
        assert self._thread is None, "a thread serves once"
        self._thread = threading.Thread(target=self._run, args=(listener,), name=self._name, daemon=True)
        self._thread.start()

    def fail(self, error: BaseException) -> None:
        """Keep a fault; the first one stays."""
        self.failure = self.failure or error

    def give_up(self, error: BaseException) -> None:
        """Fail and end by itself; called in the thread."""
        self.fail(error)
        if self._stop is not None:
            self._stop.set()

    def close(self) -> bool:
        """Stop serving; returns whether the thread has ended (or never begun)."""
        with self._lock:
            self._closing = True
            if self._loop is not None and self._stop is not None:
                self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_S)
            return not self._thread.is_alive()
        return True

    def _run(self, listener: socket.socket) -> None:
        try:
            import asyncio

            with listener:
                asyncio.run(self._main(listener))
        except BaseException as error:  # noqa: BLE001  (a thread has nobody to raise to)
            self.fail(error)

    async def _main(self, listener: socket.socket) -> None:
        import asyncio

        with self._lock:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            if self._closing:
                return
        serving = self._make(listener)
        try:
            await serving.start()
            await self._stop.wait()
        finally:
            with self._lock:
                self._loop = None
            await serving.stop()
