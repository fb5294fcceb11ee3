"""The program's standard streams, as seen from outside: stdin fed and closed, stdout delivered up to a cap, stderr kept at both ends.

Boundary: owns its descriptors and one thread for each stream. Not here: what the bytes mean; ending a run (running.py, which is told through callbacks).
Rules: a stream is drained whatever happens, so that a program never blocks on us, and nothing is cut silently: every cap is counted and reported. stdout and stderr are sockets:
nobody inside can open them a second time through /proc/PID/fd and write in the program's name (facts/sandbox.md §2, 59).
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable

_CHUNK = 1 << 18
_PIPE = 1 << 16


class Feed:
    """stdin: a pipe that holds the given bytes and then ends, or pieces as an iterable gives them, written by a thread of its own.

    An iterable is only asked for more while somebody reads; it must end by itself when the sandbox is closed, since nothing wakes it up.
    """

    def __init__(self, content: bytes | Iterable[bytes]) -> None:
        self.theirs: int
        self.theirs, ours = os.pipe()
        self._thread: threading.Thread | None = None
        if isinstance(content, bytes) and len(content) <= _PIPE:
            os.write(ours, content)
            os.close(ours)
        else:
            pieces = (content,) if isinstance(content, bytes) else content
            self._thread = threading.Thread(target=self._run, args=(ours, pieces), name="sandbox-stdin", daemon=True)
            self._thread.start()

    def _run(self, ours: int, pieces: Iterable[bytes]) -> None:
        try:
            for piece in pieces:
                view = memoryview(piece)
                while view:
                    view = view[os.write(ours, view[:_CHUNK]) :]
        except BrokenPipeError:  # the program ended, or closed its stdin
            return
        finally:
            os.close(ours)


class Drain:
    """One of stdout and stderr: read to its end by a thread, each piece handed to ``take``."""

    def __init__(self, name: str, take: Callable[[bytes], None]) -> None:
        self._ours, theirs = socket.socketpair()
        self.theirs = theirs.detach()
        self._ours.shutdown(socket.SHUT_WR)
        self._take = take
        self._thread = threading.Thread(target=self._run, name=f"sandbox-{name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                data = self._ours.recv(_CHUNK)
            except OSError:
                return
            if not data:
                return
            self._take(data)

    def finish(self, timeout_s: float = 10.0) -> bool:
        """Wait for the end of the stream, then let go of it. Returns whether the end was seen."""
        self._thread.join(timeout_s)
        ended = not self._thread.is_alive()
        if not ended:
            self._ours.shutdown(socket.SHUT_RD)
            self._thread.join()
        self._ours.close()
        return ended


class Capped:
    """Hand pieces on until the cap; then tell once, and count the rest."""

    def __init__(
        self, cap: int, take: Callable[[bytes], None], on_over: Callable[[], None], on_error: Callable[[], None]
    ) -> None:
        self.total = 0
        self.error: BaseException | None = None
        self._cap = cap
        self._take: Callable[[bytes], None] | None = take
        self._on_over = on_over
        self._on_error = on_error

    def __call__(self, data: bytes) -> None:
        """Take one piece."""
        room = self._cap - self.total
        self.total += len(data)
        if self._take is not None and room > 0:
            try:
                self._take(data[:room])
            except BaseException as error:  # noqa: BLE001 - raised again by Running.wait, in the caller's thread
                self.error, self._take = error, None
                self._on_error()
        if room >= 0 and self.total > self._cap:
            self._on_over()


class Ends:
    """Keep the first and the last part of a stream, in bounded memory."""

    def __init__(self, cap: int) -> None:
        self.total = 0
        self._head_cap = cap // 2
        self._tail_cap = cap - self._head_cap
        self._head = bytearray()
        self._tail = bytearray()

    def __call__(self, data: bytes) -> None:
        """Take one piece."""
        self.total += len(data)
        room = self._head_cap - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data
            del self._tail[: -self._tail_cap or len(self._tail)]

    def result(self) -> bytes:
        """Return what was kept; where something was left out a line says how much."""
        left_out = self.total - len(self._head) - len(self._tail)
        gap = f"\n[{left_out} bytes left out]\n".encode() if left_out else b""
        return bytes(self._head) + gap + bytes(self._tail)
