"""Wait for threads so that a signal is heard.

Python acts on a signal between two steps of the main thread. One that arrives just before the main thread goes to sleep on a lock, or that the kernel gives
to another thread, does not end the sleep: without a time limit it would be heard when the runs are over. So the main thread sleeps in short pieces.
Not here: what the signal does (``cli.interrupt``).
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from concurrent.futures import Future, wait
from typing import Any

_PIECE_S = 0.1
"""Seconds; a signal waits no longer. Ten wake-ups a second cost nothing that can be measured."""


def wait_all(futures: Collection[Future[Any]]) -> None:
    """Return when every future is done, however it ended."""
    while wait(futures, timeout=_PIECE_S).not_done:
        pass


def join(thread: threading.Thread) -> None:
    """Return when the thread has ended."""
    while thread.is_alive():
        thread.join(_PIECE_S)
