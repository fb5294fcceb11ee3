"""A scripted reply as bytes: status, headers, and the body in its pieces.

Boundary: pure. Not here: which reply (script.py), waiting and cutting (upstreams/scripted.py).
Rules: the same reply gives the same bytes, always. Event shapes are the provider's: message_start (output_tokens 1), a start, one delta and a stop
for each block, message_delta with the real usage, message_stop.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from runner.gate.exchange import Headers
from runner.gate.policy import error_body
from runner.gate.script import Block, Choice, Message, Reply, TextBlock, ThinkingBlock

PING = b'event: ping\ndata: {"type": "ping"}\n\n'


@dataclass(frozen=True, slots=True)
class Rendered:
    """A reply's answer; ``cut`` says that the connection ends after the last piece, in disorder."""

    status: int
    headers: Headers
    pieces: tuple[bytes, ...]
    cut: bool = False
    event_stream: bool = False


def render(choice: Choice, *, model: str, stream: bool) -> Rendered:
    """Return what the chosen reply sends for a request for ``model``."""
    reply = choice.rule.reply
    made = _answer(choice, reply, model=model, stream=stream)
    pieces, cut = made.pieces, False
    if reply.cut_after_event is not None or reply.error_event is not None:
        pieces, cut = _after_event(reply, pieces)
    if reply.cut_after_bytes is not None:
        pieces, cut = (b"".join(pieces)[: reply.cut_after_bytes],), True
    if reply.chunk_bytes is not None:
        body = b"".join(pieces)
        pieces = tuple(body[start : start + reply.chunk_bytes] for start in range(0, len(body), reply.chunk_bytes))
    return Rendered(made.status, made.headers, tuple(piece for piece in pieces if piece), cut, made.event_stream)


def _answer(choice: Choice, reply: Reply, *, model: str, stream: bool) -> Rendered:
    if reply.error is not None:
        body = error_body(reply.error.type, reply.error.message)
        return Rendered(reply.error.status, (*_JSON, *reply.error.headers.items()), (body,))
    if reply.raw is not None:
        return Rendered(reply.raw.status, tuple(reply.raw.headers.items()), (reply.raw.body.encode(),))
    if reply.count_tokens is not None:
        return Rendered(200, _JSON, (_dump({"input_tokens": reply.count_tokens}),))
    assert reply.message is not None
    message = _message(reply.message, reply.message.id or choice.default_id, model)
    headers = (("request-id", message["id"].replace("msg", "req", 1)),)
    if stream:
        events = tuple(_events(reply.message, message, malformed=reply.malformed))
        return Rendered(
            200, (("content-type", "text/event-stream; charset=utf-8"), *headers), events, event_stream=True
        )
    body = _dump(message)
    return Rendered(200, (*_JSON, *headers), (body[: len(body) // 2] if reply.malformed else body,))


def _after_event(reply: Reply, events: tuple[bytes, ...]) -> tuple[tuple[bytes, ...], bool]:
    """Drop what comes after the named event; an error event in its place ends the stream in good order."""
    after = reply.cut_after_event if reply.cut_after_event is not None else 1
    if isinstance(after, int):
        kept = events[:after]
    else:
        start = f"event: {after}\n".encode()
        found = next((index for index, event in enumerate(events) if event.startswith(start)), len(events) - 1)
        kept = events[: found + 1]
    if reply.error_event is None:
        return kept, True
    error = {"type": "error", "error": {"type": reply.error_event.type, "message": reply.error_event.message}}
    return (*kept, _event("error", error)), False


def _message(message: Message, message_id: str, model: str) -> dict[str, Any]:
    calls = any(block.type == "tool_use" for block in message.content)
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": message.model or model,
        "content": [block.model_dump() for block in message.content],
        "stop_reason": message.stop_reason or ("tool_use" if calls else "end_turn"),
        "stop_sequence": None,
        "usage": message.usage.model_dump(),
    }


def _events(scripted: Message, message: dict[str, Any], *, malformed: bool) -> Iterator[bytes]:
    usage = {**message["usage"], "output_tokens": min(1, message["usage"]["output_tokens"])}
    yield _event(
        "message_start",
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "usage": usage}},
    )
    for index, block in enumerate(scripted.content):
        begin, deltas = _parts(block)
        yield _event("content_block_start", {"type": "content_block_start", "index": index, "content_block": begin})
        for delta in deltas:
            event = _event("content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta})
            if malformed:
                event, malformed = event[: len(event) * 2 // 3].rstrip(b'\\"}\n') + b"\n\n", False
            yield event
        yield _event("content_block_stop", {"type": "content_block_stop", "index": index})
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield _event(
        "message_delta",
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": message["usage"]["output_tokens"]}},
    )
    yield _event("message_stop", {"type": "message_stop"})


def _parts(block: Block) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a block's opening form and its deltas."""
    if isinstance(block, TextBlock):
        return {"type": "text", "text": ""}, [{"type": "text_delta", "text": block.text}]
    if isinstance(block, ThinkingBlock):
        deltas = [
            {"type": "thinking_delta", "thinking": block.thinking},
            {"type": "signature_delta", "signature": block.signature},
        ]
        return {"type": "thinking", "thinking": "", "signature": ""}, deltas
    opening = {"type": "tool_use", "id": block.id, "name": block.name, "input": {}}
    return opening, [{"type": "input_json_delta", "partial_json": json.dumps(block.input, ensure_ascii=False)}]


def _event(name: str, data: dict[str, Any]) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + _dump(data) + b"\n\n"


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


_JSON: Headers = (("content-type", "application/json"),)
