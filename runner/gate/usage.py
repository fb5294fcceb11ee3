"""Token usage of a response, read as it streams past.

Boundary: pure. Not here: what it costs (prices.py), the message's content (message.py).
Rules: tolerant: whatever cannot be read leaves the usage unknown, never zero. Bounded: no line over ``MAX_LINE_BYTES`` is kept.
The bytes are looked at and never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

MAX_LINE_BYTES = 4 * 1024 * 1024
"""Longest SSE line that is read; the lines that carry usage are a few hundred bytes long."""

_MAX_COUNT = 2**53 - 1


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one response, or a sum of them."""

    input: int = 0
    output: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    cache_read: int = 0

    @property
    def prompt(self) -> int:
        """Tokens of the prompt, cached or not."""
        return self.input + self.cache_write_5m + self.cache_write_1h + self.cache_read

    @property
    def total(self) -> int:
        """Tokens of all kinds."""
        return self.prompt + self.output

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_write_5m + other.cache_write_5m,
            self.cache_write_1h + other.cache_write_1h,
            self.cache_read + other.cache_read,
        )


class UsageMeter:
    """Reads the usage out of one response body, fed piece by piece: an event stream, or one JSON message.

    ``usage`` is None until a usage was seen; ``final`` is True when it is the response's last word (a ``message_delta``, or a whole message).
    """

    def __init__(self, *, event_stream: bool) -> None:
        self.usage: Usage | None = None
        self.final = False
        self._event_stream = event_stream
        self._rest = bytearray()
        self._skipping = False

    def feed(self, piece: bytes) -> None:
        """Take the next piece of the (decoded) body."""
        if not self._event_stream:
            if len(self._rest) <= MAX_LINE_BYTES * 16:
                self._rest += piece
            return
        start = 0
        while (end := piece.find(b"\n", start)) >= 0:
            if self._skipping:
                self._skipping = False
            elif self._rest:
                self._rest += piece[start:end]
                self._line(bytes(self._rest))
            else:
                self._line(piece[start:end])
            self._rest.clear()
            start = end + 1
        if not self._skipping:
            self._rest += piece[start:]
            if len(self._rest) > MAX_LINE_BYTES:
                self._rest.clear()
                self._skipping = True

    def close(self) -> None:
        """Say that the body has ended."""
        if not self._event_stream and self._rest:
            message = _decoded(bytes(self._rest))
            self._rest.clear()
            if message is not None and (usage := message.get("usage")) is not None:
                self._take(usage)
                self.final = self.usage is not None
            elif message is not None and _count(message.get("input_tokens")) is not None and "type" not in message:
                self.usage, self.final = Usage(), True  # the answer of count_tokens, which costs nothing

    def _line(self, line: bytes) -> None:
        if not line.startswith(b"data:") or b'"usage"' not in line:
            return
        event = _decoded(line[5:])
        if event is None:
            return
        if event.get("type") == "message_start" and isinstance(message := event.get("message"), dict):
            self._take(message.get("usage"))
        elif event.get("type") == "message_delta":
            self._take(event.get("usage"))
            self.final = self.usage is not None

    def _take(self, given: object) -> None:
        """Merge a usage object; its counts are running totals, absent ones keep their value."""
        if not isinstance(given, dict):
            return
        now = self.usage or Usage()
        self.usage = replace(
            now,
            input=_or(given.get("input_tokens"), now.input),
            output=_or(given.get("output_tokens"), now.output),
            cache_read=_or(given.get("cache_read_input_tokens"), now.cache_read),
            **_cache_writes(given, now),
        )


def _cache_writes(given: Mapping[str, Any], now: Usage) -> dict[str, int]:
    """Split the cache writes by life time; without a split they count as the short kind, as the CLI counts them."""
    total = _count(given.get("cache_creation_input_tokens"))
    split = given.get("cache_creation")
    hour = _count(split.get("ephemeral_1h_input_tokens")) if isinstance(split, dict) else None
    short = _count(split.get("ephemeral_5m_input_tokens")) if isinstance(split, dict) else None
    if total is None and hour is None and short is None:
        return {"cache_write_5m": now.cache_write_5m, "cache_write_1h": now.cache_write_1h}
    hour = hour or 0
    if total is None:
        total = hour + (short or 0)
    return {"cache_write_5m": max(total - hour, short or 0), "cache_write_1h": hour}


def _decoded(data: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    return value if isinstance(value, dict) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT else None


def _or(value: object, otherwise: int) -> int:
    count = _count(value)
    return otherwise if count is None else count
