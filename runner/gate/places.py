"""The places that connections hold at a gate or a simulated service, and which of them gives way where all are taken.

Boundary: touches: the connections that it is given. Not here: accepting them and what they are told (serving.py), what one of them holds (connection.py).
Rules: what is idle gives way, and what has asked nothing yet: part of a head, or a request whose body is not all there. The one that was used longest ago goes first, but of the older
half of all places what is idle goes before the rest. A new connection is idle until its first byte: were every idle one first, whoever opens many would have it closed before it could speak.
A request that has come whole keeps its place: it may have been booked and sent, and what it costs is bounded by the ceilings. So nobody can hold a place by sending half of something.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Literal

from runner.gate.connection import Connection

MAX_CONNECTIONS = 256

GaveWay = Literal["idle", "unfinished"]


class Places:
    """The open connections, in the order of their last use, each with the task that sets it up; a gate's, or at ``most`` so many."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._held: dict[Connection, asyncio.Task[None]] = {}

    @property
    def full(self) -> bool:
        """Whether the next connection needs another to give way."""
        return len(self._held) >= (MAX_CONNECTIONS if self._most is None else self._most)

    def take(self, connection: Connection, task: asyncio.Task[None]) -> None:
        """Give a new connection a place."""
        self._held[connection] = task

    def give_back(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        self._held.pop(connection, None)

    def used(self, connection: Connection) -> None:
        """Note that a request of this connection was answered just now."""
        if (task := self._held.pop(connection, None)) is not None:
            self._held[connection] = task

    def make_room(self) -> GaveWay | None:
        """Close the connection that gives way, and return what it was; None where every one is at work.

        One that is ``unfinished`` leaves a record of its own, as if its client had gone away.
        """
        older = islice(self._held, len(self._held) // 2)
        if (at_rest := next((connection for connection in older if connection.idle), None)) is not None:
            return self._close(at_rest)
        waiting = (connection for connection in self._held if connection.idle or connection.unfinished)
        oldest = next(waiting, None)
        return self._close(oldest) if oldest is not None else None

    def close_all(self) -> None:
        """End every connection; each is forgotten as it closes."""
        for connection, task in list(self._held.items()):
            task.cancel()
            connection.abort()

    def _close(self, connection: Connection) -> GaveWay:
        was: GaveWay = "idle" if connection.idle else "unfinished"
        self._held.pop(connection).cancel()
        connection.give_way()
        return was
