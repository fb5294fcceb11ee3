"""Reads JSON that is nested too deeply for a recursive reader, so that no depth makes a line unreadable (A9, A11).

Boundary: pure. Not here: the ordinary readers (lines.py), which ask for this one when they run out of stack.
Rules: the grammar is checked to the end whatever the depth; only what lies below ``max_depth`` is not kept, and `TooDeep` stands for it. No fact
of a transcript or a request lies that deep. Time and memory are linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_TOKEN = re.compile(
    r"[ \t\r\n]*(?:(?P<mark>[][{}:,])"
    r'|(?P<text>"(?:[^"\\\x00-\x1f]+|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+")'
    r"|(?P<scalar>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null))"
)
_BLANKS = re.compile(r"[ \t\r\n]*")
_CLOSERS = {"[": "]", "{": "}"}


class TooDeep:
    """Stands for a value that was read and not kept; it is no JSON value, so that nobody can take it for one."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "(nested too deeply to be kept)"


@dataclass(slots=True)
class _Open:
    """A container that is not closed yet."""

    closer: str
    held: list[Any] | dict[str, Any]
    key: str = ""


def read_values(text: str, scalar: Callable[[str], Any], max_depth: int) -> list[Any] | None:
    """Return the JSON values of ``text`` in order, or None if there is anything else in it.

    ``scalar`` reads the text of a string or of a scalar token, and may raise ValueError.
    """
    return _Reader(scalar, max_depth).read(text)


class _Reader:
    """One reading: kept containers on ``_open``, of those below ``max_depth`` the closers only."""

    def __init__(self, scalar: Callable[[str], Any], max_depth: int) -> None:
        self._scalar = scalar
        self._max_depth = max_depth
        self._values: list[Any] = []
        self._open: list[_Open] = []
        self._below = bytearray()
        self._expected = "value"

    def read(self, text: str) -> list[Any] | None:
        position = 0
        while token := _TOKEN.match(text, position):
            position = token.end()
            try:
                fits = self._mark(token["mark"]) if token["mark"] else self._leaf(token["text"], token["scalar"])
            except ValueError:
                return None
            if not fits:
                return None
        rest = _BLANKS.match(text, position)
        ended = rest is not None and rest.end() == len(text) and self._expected == "value" and not self._open
        return self._values if ended else None

    @property
    def _closer(self) -> str:
        if self._below:
            return chr(self._below[-1])
        return self._open[-1].closer if self._open else ""

    def _leaf(self, text: str | None, scalar: str | None) -> bool:
        if self._expected in ("key", "key or end"):
            if text is None:
                return False
            if not self._below:
                self._open[-1].key = self._scalar(text)
            self._expected = "colon"
            return True
        if self._expected not in ("value", "value or end"):
            return False
        if not self._below:
            self._put(self._scalar(text if text is not None else scalar or ""))
        self._after_value()
        return True

    def _mark(self, mark: str) -> bool:
        if mark in _CLOSERS:
            if self._expected not in ("value", "value or end"):
                return False
            self._begin(mark)
            return True
        if mark == ":":
            fits, self._expected = self._expected == "colon", "value"
            return fits
        if mark == ",":
            fits = self._expected == "comma or end"
            self._expected = "key" if self._closer == "}" else "value"
            return fits
        if mark != self._closer or not self._expected.endswith("or end"):
            return False
        if self._below:
            self._below.pop()
        else:
            self._open.pop()
        self._after_value()
        return True

    def _begin(self, opener: str) -> None:
        closer = _CLOSERS[opener]
        if self._below or len(self._open) >= self._max_depth:
            if not self._below:
                self._put(TooDeep())
            self._below.append(ord(closer))
        else:
            held: list[Any] | dict[str, Any] = [] if closer == "]" else {}
            self._put(held)
            self._open.append(_Open(closer, held))
        self._expected = "value or end" if closer == "]" else "key or end"

    def _put(self, value: Any) -> None:
        if not self._open:
            self._values.append(value)
            return
        top = self._open[-1]
        if isinstance(top.held, list):
            top.held.append(value)
        else:
            top.held[top.key] = value

    def _after_value(self) -> None:
        self._expected = "comma or end" if self._open else "value"
