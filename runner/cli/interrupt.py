"""What a signal does to a command: SIGINT, SIGTERM and SIGHUP end it in good order and in exit status 2 (B11).

Boundary: touches the process's signal handlers. Not here: what is cleaned up (each room's own), the last word on stdout (``__init__``).
Rules:
- A signal unwinds the main thread by ``Interrupted``; while runs are under way it only tells them (``deferred``), so that nothing is torn at a random place.
- It is no KeyboardInterrupt: one that is raised in a module's ``exec`` (a dataclass being made) and caught later still makes CPython end itself by SIGINT.
- The first signal decides; once it is being dealt with, and once the answer is out, further ones change nothing. Clean-up is bounded, and SIGKILL leaves nothing behind either.
- A signal that the caller had ignored (nohup, a shell's background job) stays ignored.
- What is raised in a finaliser or a weak reference's callback (the import system has one for each module) is swallowed by CPython, with a traceback on stderr: such a signal is
  given once more, and nothing is printed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN_S = 0.01
"""After this long a swallowed signal is given again: the finaliser that swallowed it is over by then, or the next one is."""


class Interrupted(BaseException):
    """The command was told to end; the argument is the signal's name."""


class Interrupts:
    """The signals of one process."""

    def __init__(self) -> None:
        self._first: str | None = None
        self._told: Callable[[], None] | None = None
        self._telling = False
        self._quiet = False
        self._taken: list[signal.Signals] = []

    def install(self) -> None:
        """Take the signals over, but for ignored ones. In the main thread, before anything slow is imported."""
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._take)
                self._taken.append(number)
        sys.unraisablehook = self._swallowed

    @property
    def first(self) -> str | None:
        """The name of the first signal, if one came: foreign code makes other exceptions of ``Interrupted`` (pydantic does, while it builds a model)."""
        return self._first

    def hush(self) -> None:
        """From now on signals change nothing, not even while the interpreter ends, which would give them back to the system."""
        self._quiet = True
        while self._taken:
            signal.signal(self._taken.pop(), signal.SIG_IGN)

    @contextmanager
    def deferred(self, tell: Callable[[], None]) -> Iterator[None]:
        """While in here a signal calls ``tell`` (in the main thread, perhaps more than once) and unwinds nothing.

        Raises: Interrupted, on the way out, if there was one; at once, if it had come before and was swallowed.
        """
        if self._first is not None:
            raise Interrupted(self._first)
        self._told = tell
        try:
            yield
        finally:
            self._told = None
            if self._first is not None:
                raise Interrupted(self._first)

    def _take(self, number: int, _frame: object) -> None:
        if self._quiet:
            return
        if self._first is None:
            self._first = signal.Signals(number).name
        if self._told is None:
            raise Interrupted(self._first)
        # In the middle of telling nothing is told: that may hold a lock, which a second telling would wait for for ever.
        if self._telling:
            return
        self._telling = True
        try:
            self._told()
        finally:
            self._telling = False

    def _swallowed(self, what: UnraisableHookArgs) -> None:
        if not isinstance(what.exc_value, Interrupted):
            sys.__unraisablehook__(what)
        elif not self._quiet and self._first is not None:
            from threading import Timer

            again = Timer(AGAIN_S, os.kill, (os.getpid(), signal.Signals[self._first]))
            again.daemon = True
            again.start()


INTERRUPTS = Interrupts()
"""This process's."""
