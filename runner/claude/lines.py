"""Bytes to lines, and a line to JSON objects (A9).

Boundary: pure. Not here: what the objects mean (transcript.py).
Rules: lines end at 0x0A only; a line's reading never depends on how the bytes were cut into chunks; whatever the bytes, the answer is a
value or None ("unparsable"), never an exception. The fast path (msgspec), the slow path (standard library) and the deep one (deep.py) accept
the same lines; no depth of nesting makes a line unreadable (A11: no cap changes what is concluded).
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from runner.claude.deep import read_values

BOM = b"\xef\xbb\xbf"
JSON_BLANKS = b" \t\r\n"
_SKIP_BLANKS = re.compile(r"[ \t\r\n]*")
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_MAX_INT_DIGITS = 4000
"""CPython refuses to turn more than 4,300 digits into an int; a longer number is read as an infinite one, as ``1e999`` is: a number, never a text."""
_MAX_KEPT_DEPTH = 200
"""Of a value that is nested too deeply for the standard library, what lies below this depth is checked and not kept."""


class Event(msgspec.Struct, gc=False):
    """One JSON object of a transcript, cut down to the fields that mean something here; every field may hold any JSON value.

    A key that is absent and a key that is null are both None. Other keys are checked to be JSON and are skipped, which makes this fast.
    """

    type: Any = None
    subtype: Any = None
    # assistant and user events
    message: Any = None
    parent_tool_use_id: Any = None
    is_replay: Any = msgspec.field(default=None, name="isReplay")
    is_synthetic: Any = msgspec.field(default=None, name="isSynthetic")
    tool_use_result: Any = None
    # result events
    is_error: Any = None
    terminal_reason: Any = None
    api_error_status: Any = None
    stop_reason: Any = None
    result: Any = None
    structured_output: Any = None
    local_command: Any = None
    origin: Any = None
    total_cost_usd: Any = None
    num_turns: Any = None
    usage: Any = None
    errors: Any = None
    permission_denials: Any = None
    # init
    session_id: Any = None
    model: Any = None
    claude_code_version: Any = None
    skills: Any = None
    plugin_errors: Any = None
    mcp_servers: Any = None
    # background tasks
    tasks: Any = None
    task_id: Any = None
    is_backgrounded: Any = None
    patch: Any = None


_FIELDS = {field.encode_name: field.name for field in msgspec.structs.fields(Event)}

_decode_event = msgspec.json.Decoder(Event).decode
_decode_any = msgspec.json.Decoder().decode


@dataclass(slots=True)
class Line:
    """One readable line: its objects in order, and what was odd about it."""

    events: list[Event]
    replaced: int = 0
    """Characters that were no UTF-8 and were read as U+FFFD."""
    lone_surrogates: bool = False


class LineSplitter:
    """Cuts a byte stream at 0x0A with bounded memory. A line over ``max_line_bytes`` comes out as None and sets ``overflow``."""

    def __init__(self, max_line_bytes: int) -> None:
        self.overflow = False
        self._max = max_line_bytes
        self._rest = bytearray()
        self._skipping = False

    def feed(self, chunk: bytes) -> list[bytes | None]:
        """Return the lines that ``chunk`` completes, without their 0x0A."""
        parts: list[bytes | None] = list(chunk.split(b"\n"))
        last = parts.pop()
        assert last is not None
        if parts:
            first = parts[0]
            assert first is not None
            parts[0] = self._finish(first)
            if len(chunk) > self._max:
                parts[1:] = [self._checked(part) for part in parts[1:]]
        self._hold(last)
        return parts

    def close(self) -> list[bytes | None]:
        """Return the unterminated rest, if there is any."""
        if not self._rest and not self._skipping:
            return []
        return [self._finish(b"")]

    def _hold(self, piece: bytes) -> None:
        if self._skipping or not piece:
            return
        if len(self._rest) + len(piece) > self._max:
            self._rest = bytearray()
            self._skipping = self.overflow = True
        else:
            self._rest += piece

    def _finish(self, piece: bytes) -> bytes | None:
        if not self._rest and not self._skipping:
            return self._checked(piece)
        self._hold(piece)
        line = None if self._skipping else bytes(self._rest)
        self._rest = bytearray()
        self._skipping = False
        return line

    def _checked(self, line: bytes | None) -> bytes | None:
        if line is not None and len(line) > self._max:
            self.overflow = True
            return None
        return line


def decode_object(line: bytes) -> Event | None:
    """Read a line in UTF-8 that is one JSON object; None if it is not, or not readable on the fast path (then ask `decode_line`)."""
    try:
        return _decode_event(line)
    except (msgspec.DecodeError, RecursionError):
        return None


def decode_line(line: bytes) -> Line | None:
    """Read one non-blank line. None means unparsable: no JSON, rest left over, or a value that is no object."""
    replaced = 0
    if not line.isascii():
        try:
            line.decode()
        except UnicodeDecodeError:
            text = line.decode(errors="replace")
            replaced = text.count("\ufffd") - line.count(b"\xef\xbf\xbd")
            line = text.encode()
    event = decode_object(line)
    return Line([event], replaced) if event is not None else _decode_slowly(line, replaced)


def loads(data: bytes) -> Any:
    """Read one JSON document leniently (bad UTF-8 as U+FFFD, lone surrogates kept).

    Raises: ValueError when it is no JSON document.
    """
    try:
        return _decode_any(data)
    except (msgspec.DecodeError, RecursionError):
        values = _values(data.decode(errors="replace"))
        if values is None or len(values) != 1:
            raise ValueError("no JSON document") from None
        return values[0]


def _decode_slowly(line: bytes, replaced: int) -> Line | None:
    values = _values(line.decode(errors="replace"))
    if not values:
        return None
    events = []
    for value in values:
        if not isinstance(value, dict):
            return None
        events.append(Event(**{_FIELDS[key]: field for key, field in value.items() if key in _FIELDS}))
    return Line(events, replaced, lone_surrogates=_SURROGATE_ESCAPE.search(line) is not None and _has_surrogate(values))


def _values(text: str) -> list[Any] | None:
    values: list[Any] = []
    position = _skip_blanks(text, 0)
    while position < len(text):
        try:
            value, position = _DECODER.raw_decode(text, position)
        except ValueError:
            return None
        except RecursionError:
            return read_values(text, _DECODER.decode, _MAX_KEPT_DEPTH)
        values.append(value)
        position = _skip_blanks(text, position)
    return values


def _skip_blanks(text: str, position: int) -> int:
    found = _SKIP_BLANKS.match(text, position)
    return found.end() if found else position


def _integer(digits: str) -> int | float:
    if len(digits) <= _MAX_INT_DIGITS:
        return int(digits)
    return -math.inf if digits.startswith("-") else math.inf


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_int=_integer)


def _has_surrogate(values: list[Any]) -> bool:
    stack: list[Any] = list(values)
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
                return True
        elif isinstance(value, dict):
            stack.extend(value.keys())
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)
    return False
