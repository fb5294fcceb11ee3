"""Take connections from a listener, for as long as it gives any.

Boundary: touches one listening socket, through asyncio; imported late, by what serves in a thread. Not here: the connections (runner/gate, runner/simulate).
Rules: an error of one accept is noted and waited out; so many of them, one after the other, mean that whoever serves here is dead, and a run would only wait for its wall clock.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable

TRIES = 100
PAUSE_S = 0.1


async def accepted(
    listener: socket.socket, *, note: Callable[[str], None], give_up: Callable[[BaseException], None]
) -> AsyncIterator[socket.socket]:
    """Yield connections as they come; ends, after ``give_up``, where none could be had ``TRIES`` times in a row."""
    loop, failed = asyncio.get_running_loop(), 0
    while failed < TRIES:
        try:
            sock, _ = await loop.sock_accept(listener)
        except OSError as error:
            note(f"accept failed: {error}")
            failed += 1
            if failed == TRIES:
                give_up(error)
            await asyncio.sleep(PAUSE_S)
            continue
        failed = 0
        yield sock
