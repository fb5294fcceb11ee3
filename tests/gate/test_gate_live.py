"""The live upstream against a loopback provider over real TLS: what is sent, and what comes back when things go wrong."""

from __future__ import annotations

import asyncio
import gzip
import os
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.errors import GateUnavailable, KeyMissing, SettingInvalid
from runner.gate.upstreams import UpstreamCut, UpstreamRequest
from runner.gate.upstreams.anthropic import AnthropicUpstream, Timeouts
from tests.gate.listening import ListeningTls

KEY = "sk-ant-real-0123456789-abcdefghij"
START = (
    b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}\n\n'
)
END = b'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":4}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n'
SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nRequest-Id: req_1\r\nSet-Cookie: a=b\r\nanthropic-organization-id: o\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Provider(ListeningTls):
    """Plays one list of actions a request: bytes to send, seconds to wait, ``close`` or ``reset``."""

    def __init__(self, directory: Path, plays: list[list[bytes | float | str]]) -> None:
        self.requests: list[bytes] = []
        self._plays = plays
        super().__init__(directory)

    def one(self, sock: ssl.SSLSocket) -> bool:
        data = b""
        while b"\r\n\r\n" not in data:
            piece = sock.recv(65536)
            if not piece:
                return False
            data += piece
        head, body = data.split(b"\r\n\r\n", 1)
        length = next(
            int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
        )
        while len(body) < length:
            body += sock.recv(65536)
        self.requests.append(head + b"\r\n\r\n" + body)
        for action in self._plays[min(len(self.requests), len(self._plays)) - 1]:
            if isinstance(action, bytes):
                sock.sendall(action)
            elif isinstance(action, float):
                time.sleep(action)
            elif action == "reset":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            else:
                return False
        return True


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Callable[..., Provider]]:
    made: list[Provider] = []

    def make(*plays: list[bytes | float | str]) -> Provider:
        made.append(Provider(tmp_path, list(plays)))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def live(provider: Callable[..., Provider], rig: Callable[..., Any]) -> Callable[..., tuple[Any, Provider]]:
    """Make a gate in front of a provider that plays the given lists."""

    def make(*plays: list[bytes | float | str], path: str = "", **options: Any) -> tuple[Any, Provider]:
        one = provider(*plays)
        options = {"ca_file": one.ca_file, **options}
        upstream = AnthropicUpstream(KEY, base_url=one.url + path, **options)
        return rig(upstream, tls=True, gate={"real_key": KEY}), one

    return make


def test_a_request_goes_out_with_the_key_and_nothing_from_inside_that_it_must_not_have(
    live: Callable[..., Any], ask: Callable[..., Any]
) -> None:
    """The body to the byte, headers from the list, the key last; credentials, hop-by-hop and forwarding headers stay; so do cookies on the way back."""
    one, provider = live([SSE_HEAD + chunk(START) + chunk(END) + b"0\r\n\r\n"], path="/prefix/")
    data = one.request(
        ask(stream=True),
        X_Api_Key="sk-placeholder",
        Authorization="Bearer placeholder",
        Connection="x-api-key",
        X_Forwarded_For="1.2.3.4",
        Cookie="c=d",
        Accept_Encoding="gzip, br, zstd",
        anthropic_beta="b1",
        anthropic_version="2023-06-01",
        User_Agent="claude-cli/2",
        x_app="cli",
        X_Stainless_Arch="x64",
        X_Claude_Code_Session_Id="s",
    )
    answer = one.send(data)
    assert (answer.status, answer.body, answer.whole) == (200, START + END, True)
    assert answer.headers == {
        "content-type": "text/event-stream",
        "request-id": "req_1",
        "transfer-encoding": "chunked",
    }
    (sent,) = provider.requests
    head, body = sent.split(b"\r\n\r\n", 1)
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /prefix/v1/messages?beta=true HTTP/1.1"
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
    assert headers == {
        "host": f"localhost:{provider.port}",
        "content-type": "application/json",
        "content-length": str(len(body)),
        "anthropic-beta": "b1",
        "anthropic-version": "2023-06-01",
        "user-agent": "claude-cli/2",
        "x-app": "cli",
        "x-stainless-arch": "x64",
        "x-claude-code-session-id": "s",
        "accept-encoding": "identity",
        "x-api-key": KEY,
    }
    assert body == data.split(b"\r\n\r\n", 1)[1]
    record = one.close()
    assert (record.input_tokens, record.output_tokens, record.upstream_kind) == (9, 4, "anthropic")
    assert KEY not in record.model_dump_json()


def test_the_bearer_scheme_sends_the_key_that_way(live: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """For gateways that ask for it; x-api-key is then not sent."""
    one, provider = live([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"], scheme="bearer")
    assert one.post(ask()).status == 200
    assert b"\r\nauthorization: Bearer " + KEY.encode() in provider.requests[0]
    assert b"x-api-key" not in provider.requests[0].lower()


def test_awkward_chunks_and_pings_come_through_in_order(live: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """Chunks of one byte, a chunk over two events, pings between: the same body, as it arrives."""
    ping = b'event: ping\ndata: {"type": "ping"}\n\n'
    play: list[bytes | float | str] = [
        SSE_HEAD,
        *[chunk(START[n : n + 1]) for n in range(len(START))],
        0.05,
        chunk(ping),
        0.05,
        chunk(ping + END),
        b"0\r\n\r\n",
    ]
    one, _ = live(play)
    answer = one.post(ask(stream=True))
    assert answer.body == START + ping + ping + END
    (exchange,) = one.close().exchanges
    assert exchange.response is not None
    assert len(exchange.response.chunks) >= 3
    assert exchange.ended_us - exchange.first_byte_us >= 90_000


def test_a_connection_is_used_again(live: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """A TLS handshake for each request would cost more than the gate does."""
    one, provider = live([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"])
    assert [one.post(ask()).status for _ in range(3)] == [200] * 3
    assert provider.connections == 1


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize(
    "head",
    [SSE_HEAD, b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 10000\r\n\r\n"],
    ids=["chunked", "length"],
)
def test_a_cut_stream_is_passed_on_and_recorded_as_cut(
    live: Callable[..., Any], ask: Callable[..., Any], head: bytes, end: str
) -> None:
    """Never repaired, never asked for again; what the prompt cost is booked, and a bound for the output."""
    one, provider = live([head + (chunk(START) if head is SSE_HEAD else START), 0.1, end])
    answer = one.post(ask(stream=True))
    assert (answer.status, answer.whole, answer.body) == (200, False, START)
    record = one.close()
    assert record.exchanges[0].response is not None
    assert record.exchanges[0].response.ending == "cut"
    assert len(provider.requests) == 1
    assert (record.input_tokens, record.output_tokens) == (9, 100)


@pytest.mark.parametrize("end", ["close", "reset"])
def test_what_came_before_a_cut_reaches_a_slow_reader(provider: Callable[..., Provider], end: str) -> None:
    """The CLI still reads the first piece when the second one comes and the connection ends: both pieces are passed on, then the cut."""
    one = provider([SSE_HEAD, chunk(START), 0.3, chunk(END), 0.3, end])
    pieces: list[bytes] = []

    async def read_slowly() -> None:
        upstream = AnthropicUpstream(KEY, base_url=one.url, ca_file=one.ca_file)
        await upstream.open()
        request = UpstreamRequest(1, "messages", "/v1/messages", (), b"{}", {}, "", "")
        try:
            async with upstream.answer(request) as answer:
                async for piece in answer.body:
                    pieces.append(piece)
                    await asyncio.sleep(1)
        finally:
            await upstream.close()

    with pytest.raises(UpstreamCut):
        asyncio.run(read_slowly())
    assert pieces == [START, END]


def test_an_error_event_in_the_stream_is_passed_on(live: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """The provider's way to fail in the middle."""
    event = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"x"}}\n\n'
    one, _ = live([SSE_HEAD + chunk(START) + chunk(event) + b"0\r\n\r\n"])
    answer = one.post(ask(stream=True))
    assert (answer.whole, answer.body) == (True, START + event)


def test_an_error_status_is_passed_on_with_the_headers_that_matter(
    live: Callable[..., Any], ask: Callable[..., Any]
) -> None:
    """retry-after reaches the CLI, rate-limit figures of the account do not; nothing is asked twice."""
    body = b'{"type":"error","error":{"type":"overloaded_error","message":"x"}}'
    head = b"HTTP/1.1 529 Overloaded\r\nContent-Type: application/json\r\nretry-after: 3\r\nanthropic-ratelimit-tokens-limit: 5\r\nContent-Length: %d\r\n\r\n"
    one, provider = live([head % len(body) + body])
    answer = one.post(ask())
    assert (answer.status, answer.body, answer.headers["retry-after"]) == (529, body, "3")
    assert "anthropic-ratelimit-tokens-limit" not in answer.headers
    assert len(provider.requests) == 1
    assert one.close().tokens == 0


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"gzip,chunked", b"GZIP, Chunked", b"gzip\r\nTransfer-Encoding: chunked", b"gzip", b"identity", b"x, chunked"])  # fmt: skip
def test_an_answer_in_another_transfer_coding_is_not_passed_on(
    live: Callable[..., Any], ask: Callable[..., Any], coding: bytes
) -> None:
    """The gate frames anew and would pass packed bytes on as plain ones, unsearched; chunked alone, in any case, is read (the control)."""
    packed = gzip.compress(b'{"key":"' + KEY.encode() + b'"}')
    head = SSE_HEAD.replace(b"Transfer-Encoding: chunked", b"Transfer-Encoding: " + coding)
    one, _ = live([head + chunk(packed) + b"0\r\n\r\n", "close"])
    answer = one.post(ask(stream=True))
    record = one.close()
    assert answer.status == 502
    assert packed not in answer.raw
    assert packed not in record.exchanges[0].response.body
    control, _ = live([SSE_HEAD.replace(b"chunked", b"Chunked") + chunk(START) + b"0\r\n\r\n"])
    assert (control.post(ask(stream=True)).body, control.close().refused) == (START, 0)


def test_a_redirect_is_not_followed(live: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """The key would go to where it points."""
    one, provider = live([b"HTTP/1.1 302 Found\r\nLocation: https://localhost:1/\r\nContent-Length: 0\r\n\r\n"])
    answer = one.post(ask())
    assert (answer.status, answer.headers["x-should-retry"]) == (502, "false")
    assert len(provider.requests) == 1


def test_a_key_that_the_provider_echoes_reaches_neither_cli_nor_record(
    live: Callable[..., Any], ask: Callable[..., Any]
) -> None:
    """Plain over two chunks, and gzipped although identity was asked for."""
    plain = b'{"error":"bad key %b"}' % KEY.encode()
    one, _ = live(
        [
            b"HTTP/1.1 401 Unauthorized\r\nTransfer-Encoding: chunked\r\n\r\n",
            chunk(plain[:25]),
            0.05,
            chunk(plain[25:]),
            b"0\r\n\r\n",
        ]
    )
    answer = one.post(ask())
    record = one.close()
    assert answer.body == plain.replace(KEY.encode(), one.gate.settings.placeholder_key.encode())
    assert record.key_redactions == 1
    zipped = gzip.compress(plain)
    one, _ = live(
        [b"HTTP/1.1 401 Unauthorized\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(zipped), zipped)]
    )
    assert one.post(ask()).status == 502
    assert KEY not in one.close().model_dump_json()


def test_a_compressed_answer_without_the_key_is_left_as_it_is(
    live: Callable[..., Any], ask: Callable[..., Any]
) -> None:
    """Same bytes, same content-encoding."""
    zipped = gzip.compress(START + END)
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
        % len(zipped)
    )
    one, _ = live([head + zipped])
    answer = one.post(ask(stream=True))
    assert (answer.body, answer.headers["content-encoding"]) == (zipped, "gzip")
    assert one.close().output_tokens == 4


def test_a_provider_that_is_not_trusted_gets_no_request(live: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """Without its authority the handshake fails; asking again would not help."""
    one, provider = live([b""], ca_file=None)
    answer = one.post(ask())
    assert (answer.status, answer.headers["x-should-retry"]) == (502, "false")
    assert "certificate" in answer.error["message"]
    assert provider.requests == []


@pytest.mark.parametrize(
    ("play", "timeouts", "message"),
    [
        ([5.0], Timeouts(first_byte_s=0.2), "did not answer in time"),
        (["close"], None, "the connection to the provider failed"),
        (["reset"], None, "the connection to the provider failed"),
        ([b"garbage\r\n\r\n", "close"], None, "the connection to the provider failed"),
    ],
)
def test_no_answer_is_a_502_that_may_be_retried(
    live: Callable[..., Any], ask: Callable[..., Any], play: Any, timeouts: Timeouts | None, message: str
) -> None:
    """The gate asks once; whether to ask again is the CLI's own affair."""
    one, provider = live([*(min(step, 0.5) if isinstance(step, float) else step for step in play)], timeouts=timeouts)
    answer = one.post(ask())
    assert (answer.status, "x-should-retry" in answer.headers) == (502, False)
    assert message in answer.error["message"]
    assert len(provider.requests) == 1
    (exchange,) = one.close().exchanges
    assert (exchange.kind, exchange.refusal) == ("inference", None)


def test_a_stream_that_falls_silent_is_cut(live: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """The idle deadline counts between pieces."""
    one, _ = live([SSE_HEAD + chunk(START), 3.0, "close"], timeouts=Timeouts(idle_s=0.2))
    started = time.monotonic()
    answer = one.post(ask(stream=True))
    assert (answer.whole, answer.body) == (False, START)
    assert time.monotonic() - started < 2.9


def test_a_closed_port_is_a_502(rig: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """Plain HTTP is taken on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    one = rig(AnthropicUpstream(KEY, base_url=f"http://127.0.0.1:{port}"), gate={"real_key": KEY})
    assert one.post(ask()).status == 502


@pytest.mark.parametrize("stream", [False, True])
def test_what_no_provider_was_sent_is_not_booked(
    live: Callable[..., Any], rig: Callable[..., Any], ask: Callable[..., Any], stream: bool
) -> None:
    """A refused connection, an absent socket and a certificate that is not trusted cost nothing, and count as requests all the same; a request that was sent and not answered is booked."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    refused = rig(AnthropicUpstream(KEY, base_url=f"http://127.0.0.1:{port}"), gate={"real_key": KEY})
    absent = rig(AnthropicUpstream(None, base_url="unix:///nonexistent/socket"))
    untrusted, _ = live([b""], ca_file=None)
    for one in (refused, absent, untrusted):
        assert [one.post(ask(stream=stream)).status for _ in range(2)] == [502, 502]
        record = one.close()
        assert (record.requests, record.tokens, record.cost_estimate_usd) == (2, 0, "0")
    sent, _ = live(["close"])
    assert sent.post(ask(stream=stream)).status == 502
    assert sent.close().tokens > 0


@pytest.mark.parametrize(
    "base_url",
    [
        "http://provider.invalid",
        "ftp://x.invalid",
        "https://",
        "https://u:p@x.invalid",
        "https://x.invalid?a=b",
        "https://x.invalid#f",
        "https://x.invalid:99999",
        "https://x.invalid/ a",
        "",
    ],
)
def test_an_address_that_cannot_be_right_is_refused(base_url: str) -> None:
    """Before anything is sent; the key would go in the clear over plain HTTP."""
    AnthropicUpstream(KEY, base_url="https://gateway.invalid/anthropic/")
    with pytest.raises(SettingInvalid):
        AnthropicUpstream(KEY, base_url=base_url)


@pytest.mark.parametrize("key", ["", "two words", "line\nfeed", "k\u00e4y"])
def test_a_missing_or_broken_key_is_said(key: str) -> None:
    """A key file with a line feed at its end is the usual case; stripping it is the reader's job."""
    with pytest.raises(KeyMissing):
        AnthropicUpstream(key)


@pytest.mark.parametrize("kind", ["absent", "empty", "fifo", "device"])
def test_a_trust_file_that_cannot_be_used_makes_the_gate_unavailable(
    rig: Callable[..., Any], tmp_path: Path, until: Callable[..., None], kind: str
) -> None:
    """Said at the start, not at the first request; a pipe is not waited for, and a device that never ends not read."""
    path = Path("/dev/zero") if kind == "device" else tmp_path / "given.pem"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "empty":
        path.touch()
    one = rig(AnthropicUpstream(KEY, ca_file=path))
    until(lambda: one.gate.failure is not None)
    with pytest.raises(GateUnavailable):
        one.close()
    one.record = one.gate._record
