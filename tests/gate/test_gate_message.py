"""Recorded responses as messages: whole, streamed, cut, packed, broken."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from runner.gate import message as message_module
from runner.gate.exchange import Exchange, Request, Response
from runner.gate.message import Block, Message, Usage, decoded_body, read_message, usage_of
from runner.gate.sse import SseEvent, parse_sse

CASES = Path(__file__).resolve().parents[1] / "cases"
DOCUMENT = {
    "type": "message",
    "id": "msg_1",
    "model": "m-1",
    "content": [
        {"type": "text", "text": "hi"},
        {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2},
}
MESSAGE = Message(
    "msg_1",
    "m-1",
    (Block("text", text="hi"), Block("tool_use", id="t1", name="Bash", input={"command": "ls"})),
    "tool_use",
    Usage(10, 5, 3, 2),
    complete=True,
)
STREAM: list[dict[str, Any]] = [
    {
        "type": "message_start",
        "message": {
            **DOCUMENT,
            "content": [],
            "stop_reason": None,
            "usage": {
                "input_tokens": 10,
                "output_tokens": 1,
                "cache_read_input_tokens": 3,
                "cache_creation_input_tokens": 2,
            },
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "h"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "i"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}},
    },
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"comm'}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": 'and": "ls"}'}},
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}},
    {"type": "message_stop"},
]


def _sse(events: list[dict[str, Any]]) -> bytes:
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


def _exchange(body: bytes, status: int = 200, encoding: str = "", **fields: Any) -> Exchange:
    headers = (("Content-Encoding", encoding),) if encoding else ()
    response = Response(status=status, headers=headers, body=body, **fields)
    return Exchange(seq=1, kind="inference", request=Request(method="POST", target="/v1/messages"), response=response)


def test_a_document_and_a_stream_of_one_answer_are_one_message() -> None:
    """Both forms give the same blocks, stop reason and usage; later usage reports of a stream are totals."""
    assert read_message(_exchange(json.dumps(DOCUMENT).encode())) == MESSAGE
    assert read_message(_exchange(_sse(STREAM))) == MESSAGE


@pytest.mark.parametrize("count", range(len(STREAM)))
def test_a_cut_stream_is_incomplete_as_far_as_it_came(count: int) -> None:
    """Without message_stop nothing is complete; blocks are by their own stop; before message_start there is no message."""
    message = read_message(_exchange(_sse(STREAM[:count]), ending="cut"))
    if count == 0:
        assert message is None
        return
    assert message is not None
    assert not message.complete
    assert [block.complete for block in message.blocks] == [count > 5, count > 9][: len(message.blocks)]
    assert message.usage.output == (5 if count > 10 else 1)


def test_an_unfinished_input_is_none() -> None:
    """Half of a tool's input is no input; the block's id and name are there."""
    message = read_message(_exchange(_sse(STREAM[:8])))
    assert message is not None
    assert message.blocks[1] == Block("tool_use", id="t1", name="Bash", input=None, complete=False)


def test_the_recorded_cut_of_a_tool_call_is_incomplete() -> None:
    """N07: the call's block is whole, the message is not: the stream ends without message_stop."""
    message = read_message(_exchange((CASES / "inputs" / "N07.sse").read_bytes(), ending="cut"))
    assert message is not None
    assert (message.complete, message.stop_reason) == (False, None)
    assert message.blocks == (Block("tool_use", id="t1", name="Bash", input={"command": "touch /workspace/once"}),)


def test_an_error_or_a_malformed_event_makes_a_stream_incomplete() -> None:
    """Also though message_stop follows; unknown event types change nothing."""
    for odd in (
        b'data: {"type": "error", "error": {}}\n\n',
        b'data: {"type": "message_start", BROKEN\n\n',
        b"data: 7\n\n",
    ):
        message = read_message(_exchange(_sse(STREAM[:-1]) + odd + _sse(STREAM[-1:])))
        assert message is not None
        assert not message.complete
    future = read_message(_exchange(_sse([*STREAM[:-1], {"type": "future_event"}, STREAM[-1]])))
    assert future == MESSAGE


@pytest.mark.parametrize(
    ("fields", "there"),
    [({}, True), ({"status": 201}, True), ({"status": 400}, False), ({"status": 529}, False), ({"status": 302}, False)],
)
def test_only_a_good_status_holds_a_message(fields: dict[str, Any], there: bool) -> None:
    """An error's body is no answer, and an exchange without a response has none."""
    assert (read_message(_exchange(json.dumps(DOCUMENT).encode(), **fields)) is not None) is there
    assert read_message(_exchange(b"").model_copy(update={"response": None})) is None


def test_an_answer_whose_reader_left_is_incomplete() -> None:
    """What was sent last may never have been read; a cut after message_stop lost nothing."""
    for ending, complete in (("client-gone", False), ("cut", True), ("complete", True)):
        message = read_message(_exchange(_sse(STREAM), ending=ending))
        assert message is not None
        assert message.complete is complete


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("GZIP", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", lambda data: zlib.compress(data)[2:-4]),
        ("zstd", lambda data: zstandard.ZstdCompressor().compress(data)),
        ("identity", lambda data: data),
        ("gzip, zstd", lambda data: zstandard.ZstdCompressor().compress(gzip.compress(data))),
    ],
)
def test_packed_bodies_are_read(encoding: str, pack: Any) -> None:
    """The encodings that the gate asks for; a packed stream that was cut is read as far as it goes."""
    assert read_message(_exchange(pack(_sse(STREAM)), encoding=encoding)) == MESSAGE


@pytest.mark.parametrize("encoding", ["br", "gzip", "deflate", "zstd", "nonsense"])
def test_what_cannot_be_unpacked_is_no_message(encoding: str) -> None:
    """An unknown encoding, or bytes that are not in the stated one."""
    assert read_message(_exchange(b"\x01\x02 no packed body", encoding=encoding)) is None


def test_a_cut_packed_body_is_read_as_far_as_it_goes() -> None:
    """Half of the packed bytes give the events before the cut."""
    packed = gzip.compress(_sse([*STREAM[:5], *[{"type": "ping", "n": str(number) * 50} for number in range(300)]]))
    message = read_message(_exchange(packed[: len(packed) // 2], encoding="gzip", ending="cut"))
    assert message is not None
    assert message.blocks[0].text == "hi"


def test_a_compression_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than the bound is no body; exactly the bound is one."""
    monkeypatch.setattr(message_module, "MAX_DECODED_BYTES", 3 << 20)
    for pack, encoding in ((gzip.compress, "gzip"), (zstandard.ZstdCompressor().compress, "zstd")):
        for size, readable in ((3 << 20, True), ((3 << 20) + 1, False)):
            response = Response(status=200, headers=(("content-encoding", encoding),), body=pack(b"x" * size))
            assert (decoded_body(response) is not None) is readable, (encoding, size)


def test_usage_of_anything_is_counts() -> None:
    """An exchange, a body, a cut stream and nonsense all give counts; nonsense gives zeros and odd counts are none."""
    assert (
        usage_of(_exchange(_sse(STREAM)))
        == usage_of(_sse(STREAM))
        == usage_of(json.dumps(DOCUMENT).encode())
        == Usage(10, 5, 3, 2)
    )
    assert usage_of(_sse(STREAM[:1])) == Usage(10, 1, 3, 2)
    assert usage_of(b"<html>") == Usage()
    odd = {
        **DOCUMENT,
        "usage": {
            "input_tokens": -1,
            "output_tokens": True,
            "cache_read_input_tokens": 2**70,
            "cache_creation_input_tokens": "1",
        },
    }
    assert usage_of(json.dumps(odd).encode()) == Usage()


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["type", "index", "delta", "message", "content_block", "usage"]),
            st.none()
            | st.integers(0, 2)
            | st.sampled_from(
                [
                    "message_start",
                    "content_block_start",
                    "content_block_delta",
                    "content_block_stop",
                    "message_delta",
                    "message_stop",
                    "text_delta",
                ]
            )
            | st.just({"type": "text_delta", "text": 7}),
        ),
        max_size=6,
    )
)
def test_any_events_are_a_message_or_none(events: list[Any]) -> None:
    """Whatever the events hold, nothing is raised."""
    body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    read_message(_exchange(body))


@given(st.binary(max_size=200), st.sampled_from(["", "gzip", "deflate", "zstd", "br"]))
def test_any_body_is_a_message_or_none(body: bytes, encoding: str) -> None:
    """Whatever the bytes, nothing is raised."""
    read_message(_exchange(body, encoding=encoding))
    usage_of(body)


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b"data: a\n\n", [SseEvent("", "a")]),
        (b"event: x\r\ndata: a\r\n\r\n", [SseEvent("x", "a")]),
        (b"event: x\rdata: a\r\r", [SseEvent("x", "a")]),
        (b"data: a\ndata: b\n\n", [SseEvent("", "a\nb")]),
        (b"data:a\ndata:  b\n\n", [SseEvent("", "a\n b")]),
        (b": comment\nretry: 5\nid: 1\ndata: a\n\n", [SseEvent("", "a")]),
        (b"event: x\n\ndata: a\n\n", [SseEvent("", "a")]),
        (b"data\n\n", [SseEvent("", "")]),
        (b"data: a\n", []),
        (b"data: a\n\ndata: b", [SseEvent("", "a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [SseEvent("", "a")]),
        (b"data: \xff\n\n", [SseEvent("", "\ufffd")]),
        (b"", []),
    ],
)
def test_events_are_cut_as_the_format_says(body: bytes, events: list[SseEvent]) -> None:
    """Line ends of three kinds, several data lines, comments; an event without its blank line was not delivered."""
    assert parse_sse(body) == events


@given(st.binary(max_size=200))
def test_any_bytes_are_a_list_of_events(body: bytes) -> None:
    """Whatever the bytes, nothing is raised."""
    assert isinstance(parse_sse(body), list)
