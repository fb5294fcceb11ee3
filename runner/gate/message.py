"""What a recorded response says: the Messages API's answer, streamed or whole, as one value.

Boundary: pure. Not here: the recorded bytes (exchange.py), money (ledger.py).
Rules: a view for judging and counting, never what is stored. Total: whatever the bytes, the answer is a Message or None. ``complete`` is true only
for a stream with its ``message_stop``, or for a whole JSON message, whose transfer was not cut; a block counts as complete by its own stop event.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from runner.gate.exchange import Exchange, Response
from runner.gate.sse import parse_sse

MAX_DECODED_BYTES = 256 * 1024 * 1024
"""A body that unpacks to more is not looked into (a compression bomb is no message)."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one response; 0 where the response says nothing."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """One content block."""

    type: str
    text: str = ""
    """Of a text block."""
    id: str = ""
    """Of a tool_use block."""
    name: str = ""
    """Of a tool_use block."""
    input: Any = None
    """Of a tool_use block; None where its JSON is unreadable or unfinished."""
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Message:
    """One answer of the Messages API."""

    id: str = ""
    model: str = ""
    blocks: tuple[Block, ...] = ()
    stop_reason: str | None = None
    usage: Usage = Usage()
    complete: bool = False


def read_message(exchange: Exchange) -> Message | None:
    """Return the message in an exchange's response; None if there is none: no response, an error status, or another content."""
    response = exchange.response
    if response is None or not 200 <= response.status < 300:
        return None
    body = decoded_body(response)
    message = _read(body) if body is not None else None
    if message is not None and response.ending == "client-gone":
        return replace(message, complete=False)  # what was sent last may never have been read
    return message


def usage_of(source: Exchange | bytes) -> Usage:
    """Return the token counts that a response (or its decoded body) reports, a cut one's as far as it got; zeros where it has none."""
    message = read_message(source) if isinstance(source, Exchange) else _read(source)
    return message.usage if message is not None else Usage()


def decoded_body(response: Response) -> bytes | None:
    """Return the body with its content encodings taken off, a cut one as far as it goes; None for an unknown encoding or a bomb."""
    values = [value for name, value in response.headers if name.lower() == "content-encoding"]
    encodings = [
        token
        for value in values
        for token in (part.strip().lower() for part in value.split(","))
        if token not in ("", "identity")
    ]
    body: bytes | None = response.body
    for encoding in reversed(encodings):
        decode = _DECODERS.get(encoding)
        body = decode(body) if decode is not None and body is not None else None
    return body


def _read(body: bytes) -> Message | None:
    return _from_document(body) if body.lstrip()[:1] == b"{" else _from_stream(body)


def _inflate(data: bytes, window: int) -> bytes | None:
    unpacker = zlib.decompressobj(window)
    try:
        body = unpacker.decompress(data, MAX_DECODED_BYTES)
    except zlib.error:
        return None
    return None if unpacker.unconsumed_tail else body


def _gunzip(data: bytes) -> bytes | None:
    return _inflate(data, 16 + zlib.MAX_WBITS)


def _undeflate(data: bytes) -> bytes | None:
    body = _inflate(data, zlib.MAX_WBITS)
    return body if body is not None else _inflate(data, -zlib.MAX_WBITS)


def _unzstd(data: bytes) -> bytes | None:
    import zstandard

    pieces: list[bytes] = []
    left = MAX_DECODED_BYTES
    try:
        with zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(data, read_across_frames=True) as reader:
            while left >= 0 and (piece := reader.read(1 << 20)):
                pieces.append(piece)
                left -= len(piece)
    except zstandard.ZstdError:
        if not pieces:
            return None
    return b"".join(pieces) if left >= 0 else None


_DECODERS: Mapping[str, Callable[[bytes], bytes | None]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _undeflate,
    "zstd": _unzstd,
}
"""Brotli is not among them: the gate asks the provider for what it can read."""


def _loads(data: str | bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _from_document(body: bytes) -> Message | None:
    document = _loads(body)
    if not isinstance(document, dict) or document.get("type") != "message":
        return None
    content = document.get("content")
    blocks = (
        tuple(_whole_block(block) for block in content if isinstance(block, dict)) if isinstance(content, list) else ()
    )
    return Message(
        id=_text(document.get("id")),
        model=_text(document.get("model")),
        blocks=blocks,
        stop_reason=_text(document.get("stop_reason")) or None,
        usage=_with_usage(Usage(), document.get("usage")),
        complete=True,
    )


def _whole_block(block: dict[str, Any]) -> Block:
    type_, text, id_, name = (_text(block.get(key)) for key in ("type", "text", "id", "name"))
    return Block(type_, text=text, id=id_, name=name, input=block.get("input"))


def _from_stream(body: bytes) -> Message | None:
    reading = _Stream()
    for event in parse_sse(body):
        reading.take(_loads(event.data))
    return reading.message()


class _Stream:
    """Puts the events of one streamed answer together."""

    def __init__(self) -> None:
        self._head: dict[str, Any] | None = None
        self._blocks: dict[int, _OpenBlock] = {}
        self._stop_reason: str | None = None
        self._usage = Usage()
        self._stopped = False
        self._damaged = False

    def take(self, event: Any) -> None:
        """Take one event's data; anything unreadable makes the answer incomplete, unknown types change nothing."""
        kind = event.get("type") if isinstance(event, dict) else None
        if not isinstance(kind, str) or kind == "error":
            self._damaged = True
        elif kind == "message_start":
            head = event.get("message")
            self._head = head if isinstance(head, dict) else {}
            self._usage = _with_usage(self._usage, self._head.get("usage"))
        elif kind.startswith("content_block_"):
            self._block_event(kind, event)
        elif kind == "message_delta":
            delta = event.get("delta")
            if isinstance(delta, dict):
                self._stop_reason = _text(delta.get("stop_reason")) or self._stop_reason
            self._usage = _with_usage(self._usage, event.get("usage"))
        elif kind == "message_stop":
            self._stopped = True

    def message(self) -> Message | None:
        """Return what came, or None if no message began."""
        if self._head is None:
            return None
        return Message(
            id=_text(self._head.get("id")),
            model=_text(self._head.get("model")),
            blocks=tuple(block.close() for _, block in sorted(self._blocks.items())),
            stop_reason=self._stop_reason,
            usage=self._usage,
            complete=self._stopped and not self._damaged,
        )

    def _block_event(self, kind: str, event: dict[str, Any]) -> None:
        index = event.get("index")
        if not isinstance(index, int):
            self._damaged = True
        elif kind == "content_block_start":
            start = event.get("content_block")
            self._blocks[index] = _OpenBlock(start if isinstance(start, dict) else {})
        elif index not in self._blocks:
            self._damaged = True
        elif kind == "content_block_delta":
            self._blocks[index].add(event.get("delta"))
        elif kind == "content_block_stop":
            self._blocks[index].complete = True


class _OpenBlock:
    """A content block that is still being streamed."""

    def __init__(self, start: dict[str, Any]) -> None:
        self.complete = False
        self._start = start
        self._texts = [_text(start.get("text"))]
        self._inputs: list[str] = []

    def add(self, delta: Any) -> None:
        """Take a delta; other kinds (thinking, signatures, citations) are no part of the view."""
        kind = delta.get("type") if isinstance(delta, dict) else None
        if kind == "text_delta":
            self._texts.append(_text(delta.get("text")))
        elif kind == "input_json_delta":
            self._inputs.append(_text(delta.get("partial_json")))

    def close(self) -> Block:
        """Return the block as far as it came."""
        block = replace(_whole_block(self._start), text="".join(self._texts), complete=self.complete)
        written = "".join(self._inputs)
        return replace(block, input=_loads(written)) if written else block


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _with_usage(usage: Usage, reported: Any) -> Usage:
    """Return the counts with those replaced that ``reported`` names: later reports of a stream are totals, not increments."""
    if not isinstance(reported, Mapping):
        return usage
    names = {
        "input": "input_tokens",
        "output": "output_tokens",
        "cache_read": "cache_read_input_tokens",
        "cache_write": "cache_creation_input_tokens",
    }
    counts = {ours: reported.get(theirs) for ours, theirs in names.items()}
    return replace(
        usage, **{name: count for name, count in counts.items() if type(count) is int and 0 <= count < 2**63}
    )
