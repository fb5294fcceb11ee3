"""Abuse of the listener, as raw bytes on real sockets: refused, recorded, and nothing reaches the upstream."""

from __future__ import annotations

import asyncio
import gzip
import re
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest

from runner.gate import connection, places, serving
from runner.gate.upstreams import UpstreamAnswer, UpstreamRequest
from tests.gate.conftest import CountingUpstream

BODY = b'{"model":"claude-sonnet-5-5","max_tokens":5,"messages":[]}'
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
HOST = b"Host: {host}\r\n"
JSON = b"Content-Type: application/json\r\n"
LINE = b"POST /v1/messages HTTP/1.1\r\n"
GOOD = LINE + HOST + JSON + LENGTH + b"\r\n" + BODY

STATUS_LINE = re.compile(rb"HTTP/1\.1 \d{3} ")

FORMS: dict[str, tuple[bytes, set[str]]] = {
    "content-length and transfer-encoding": (LINE + HOST + JSON + LENGTH + b"Transfer-Encoding: chunked\r\n\r\n" + BODY, {"malformed", "transfer-encoding"}),
    "transfer-encoding only": (LINE + HOST + JSON + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY), {"transfer-encoding"}),
    "transfer-encoding identity": (LINE + HOST + JSON + LENGTH + b"Transfer-Encoding: identity\r\n\r\n" + BODY, {"malformed", "transfer-encoding"}),
    "two content-lengths": (LINE + HOST + JSON + LENGTH + LENGTH + b"\r\n" + BODY, {"malformed", "content-length"}),
    "two other content-lengths": (LINE + HOST + JSON + LENGTH + b"Content-Length: 5\r\n\r\n" + BODY, {"malformed", "content-length"}),
    "content-length with a sign": (LINE + HOST + JSON + b"Content-Length: +5\r\n\r\n" + BODY, {"malformed", "content-length"}),
    "content-length with an underscore": (LINE + HOST + JSON + b"Content-Length: 1_0\r\n\r\n" + BODY, {"malformed", "content-length"}),
    "negative content-length": (LINE + HOST + JSON + b"Content-Length: -1\r\n\r\n" + BODY, {"malformed", "content-length"}),
    "no content-length": (LINE + HOST + JSON + b"\r\n", {"content-length"}),
    "two hosts": (LINE + HOST + HOST + JSON + LENGTH + b"\r\n" + BODY, {"malformed", "host"}),
    "no host": (LINE + JSON + LENGTH + b"\r\n" + BODY, {"malformed", "host"}),
    "another host": (LINE + b"Host: evil.invalid\r\n" + JSON + LENGTH + b"\r\n" + BODY, {"host"}),
    "absolute form": (b"POST http://evil.invalid/v1/messages HTTP/1.1\r\n" + GOOD[len(LINE) :], {"target-form"}),
    "absolute form of the right host": (b"POST http://{host}/v1/messages HTTP/1.1\r\n" + GOOD[len(LINE) :], {"target-form"}),
    "double slash": (b"POST //evil.invalid/v1/messages HTTP/1.1\r\n" + GOOD[len(LINE) :], {"target-form"}),
    "dot segments": (b"POST /v1/messages/../admin HTTP/1.1\r\n" + GOOD[len(LINE) :], {"target-form"}),
    "encoded dot segments": (b"POST /v1/%2e%2e/v1/messages HTTP/1.1\r\n" + GOOD[len(LINE) :], {"target-form"}),
    "path parameter": (b"POST /v1/messages;x HTTP/1.1\r\n" + GOOD[len(LINE) :], {"target-form"}),
    "another query": (b"POST /v1/messages?beta=true&x=1 HTTP/1.1\r\n" + GOOD[len(LINE) :], {"query"}),
    "another path": (b"POST /v1/files HTTP/1.1\r\n" + GOOD[len(LINE) :], {"path"}),
    "bytes beyond ascii": (b"POST /v1/mess\xe4ges HTTP/1.1\r\n" + GOOD[len(LINE) :], {"malformed", "target-form"}),
    "connect": (b"CONNECT evil.invalid:443 HTTP/1.1\r\n" + HOST + b"\r\n", {"method", "malformed"}),
    "get": (b"GET /v1/messages HTTP/1.1\r\n" + HOST + b"\r\n", {"method"}),
    "http 1.0": (GOOD.replace(b"HTTP/1.1", b"HTTP/1.0"), {"http-version"}),
    "http 2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {"malformed", "http-version"}),
    "expect": (LINE + HOST + JSON + LENGTH + b"Expect: 100-continue\r\n\r\n", {"expect"}),
    "upgrade": (LINE + HOST + JSON + LENGTH + b"Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n\r\n" + BODY, {"upgrade"}),
    "websocket": (b"GET /v1/messages HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", {"upgrade"}),
    "gzip body": (LINE + HOST + JSON + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(gzip.compress(BODY, mtime=0)), gzip.compress(BODY, mtime=0)), {"content-encoding"}),
    "folded header": (LINE + HOST + JSON + LENGTH + b"X-A: b\r\n c\r\n\r\n" + BODY, {"malformed"}),
    "space before the colon": (LINE + b"Host : {host}\r\n" + JSON + LENGTH + b"\r\n" + BODY, {"malformed"}),
    "bare line feeds": (GOOD.replace(b"\r\n", b"\n"), {"malformed"}),
    "nul in a value": (LINE + HOST + JSON + LENGTH + b"X-A: b\x00c\r\n\r\n" + BODY, {"malformed"}),
    "carriage return in a value": (LINE + HOST + JSON + LENGTH + b"X-A: b\rc\r\n\r\n" + BODY, {"malformed"}),
    "one big header": (LINE + HOST + JSON + LENGTH + b"X-A: " + b"b" * 20_000 + b"\r\n\r\n" + BODY, {"head-too-large"}),
    "a megabyte of header": (LINE + HOST + b"X-A: " + b"b" * 1_000_000 + b"\r\n\r\n", {"head-too-large"}),
    "many headers": (LINE + HOST + JSON + LENGTH + b"".join(b"X-%d: y\r\n" % n for n in range(5000)) + b"\r\n" + BODY, {"head-too-large", "malformed"}),
    "huge body": (LINE + HOST + JSON + b"Content-Length: 1073741824\r\n\r\n" + b"x" * 1000, {"body-too-large"}),
    "not http": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100 + b"\r\n\r\n", {"malformed"}),
    "not json": (LINE + HOST + JSON + b"Content-Length: 3\r\n\r\n{a}", {"body-not-json"}),
    "another content type": (LINE + HOST + b"Content-Type: text/plain\r\n" + LENGTH + b"\r\n" + BODY, {"content-type"}),
}  # fmt: skip


class Held(CountingUpstream):
    """Answers once ``go`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    @asynccontextmanager
    async def answer(self, request: UpstreamRequest) -> AsyncIterator[UpstreamAnswer]:
        async with super().answer(request) as answer:
            while not self.go.is_set():  # noqa: ASYNC110  (another thread sets it)
                await asyncio.sleep(0.005)
            yield answer


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_good_request_is_answered(rig: Callable[..., Any], tls: bool) -> None:
    """The positive control: the same bytes that the forms below change reach the upstream, once."""
    one = rig(tls=tls)
    answer = one.send(GOOD.replace(b"{host}", one.gate.settings.expected_host.encode()))
    assert (answer.status, answer.whole) == (200, True)
    assert [asked.body for asked in one.upstream.asked] == [BODY]
    (exchange,) = one.close().exchanges
    assert (exchange.kind, exchange.request.body, exchange.refusal) == ("inference", BODY, None)


@pytest.mark.parametrize("name", FORMS)
def test_each_form_of_abuse_is_refused_recorded_and_not_sent(rig: Callable[..., Any], name: str) -> None:
    """One answer that says not to try again, a closed connection, one record with the code, and an upstream that saw nothing."""
    one = rig()
    data, codes = FORMS[name]
    data = data.replace(b"{host}", one.gate.settings.expected_host.encode())
    with one.connect() as sock:
        sock.sendall(data)
        received = read_to_end(sock)
    record = one.close()
    assert one.upstream.asked == []
    first = record.exchanges[0]
    assert (first.kind, first.refusal is not None and first.refusal.code in codes) == ("refused", True), first.refusal
    assert all(exchange.kind == "refused" for exchange in record.exchanges)
    assert len(STATUS_LINE.findall(received)) == 1
    head, body = received.split(b"\r\n\r\n", 1)
    assert first.response is not None
    assert int(head.split(b" ")[1]) == first.response.status >= 400
    assert b"\r\nx-should-retry: false" in head
    assert b"\r\nconnection: close" in head
    assert body == first.response.body
    assert body.startswith(b'{"type":"error","error":{"type":"')
    assert record.notes == ()


def read_to_end(sock: socket.socket) -> bytes:
    """Read until the gate closes; a reset after its answer is a close too."""
    received = b""
    try:
        while piece := sock.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


def test_what_the_parser_refuses_is_kept_with_its_bytes(rig: Callable[..., Any]) -> None:
    """The record shows the line as far as it could be read, and the raw bytes."""
    one = rig()
    one.send(b"POST /v1/messages HTTP/1.1\r\nHost : x\r\n\r\n")
    (exchange,) = one.close().exchanges
    assert (exchange.request.method, exchange.request.target) == ("POST", "/v1/messages")
    assert exchange.request.body == b"POST /v1/messages HTTP/1.1\r\nHost : x\r\n\r\n"


@pytest.mark.parametrize("first", ["refused", "answered"])
def test_a_pipelined_request_is_dropped_and_recorded(rig: Callable[..., Any], first: str) -> None:
    """Behind a refused request as behind an answered one: one answer, then the connection closes; the second is never sent."""
    one = rig()
    good = GOOD.replace(b"{host}", one.gate.settings.expected_host.encode())
    bad = good.replace(b"/v1/messages", b"/v1/files")
    with one.connect() as sock:
        sock.sendall((bad if first == "refused" else good) + good + good)
        received = read_to_end(sock)
    record = one.close()
    assert len(STATUS_LINE.findall(received)) == 1
    assert len(one.upstream.asked) == (0 if first == "refused" else 1)
    codes = sorted(exchange.refusal.code if exchange.refusal else "" for exchange in record.exchanges)
    assert codes == (["path", "pipelined", "pipelined"] if first == "refused" else ["", "pipelined", "pipelined"])


def test_requests_one_after_another_share_a_connection(rig: Callable[..., Any], read: Callable[..., Any]) -> None:
    """Keep-alive is not pipelining."""
    one = rig()
    good = GOOD.replace(b"{host}", one.gate.settings.expected_host.encode())
    with one.connect() as sock:
        for _ in range(3):
            sock.sendall(good)
            assert read(sock).status == 200
    assert [exchange.seq for exchange in one.close().exchanges] == [1, 2, 3]


def test_a_slow_head_is_ended_at_its_deadline(rig: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Dripping bytes do not push the deadline away; a quick client is served meanwhile."""
    monkeypatch.setattr(connection, "HEAD_DEADLINE_S", 0.3)
    one = rig()
    with one.connect() as sock:
        sock.sendall(b"POST /v1/mess")
        for _ in range(3):
            time.sleep(0.05)
            sock.sendall(b"x")
        assert one.post(BODY).status == 200
        received = read_to_end(sock)
    assert received.startswith(b"HTTP/1.1 408 ")
    assert [exchange.refusal.code for exchange in one.close().exchanges if exchange.refusal] == ["head-timeout"]


def test_a_slow_body_is_ended_at_its_deadline(rig: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that does not come is refused, not awaited."""
    monkeypatch.setattr(serving, "BODY_DEADLINE_S", 0.2)
    monkeypatch.setattr(connection, "LINGER_S", 0.1)
    one = rig()
    with one.connect() as sock:
        sock.sendall(one.request(BODY)[:-5])
        received = read_to_end(sock)
    assert received.startswith(b"HTTP/1.1 408 ")
    assert [exchange.refusal.code for exchange in one.close().exchanges] == ["body-timeout"]
    assert one.upstream.asked == []


def test_a_client_that_leaves_in_the_middle_is_recorded(rig: Callable[..., Any], until: Callable[..., None]) -> None:
    """In its head and in its body: a record without an answer."""
    one = rig()
    for data in (b"POST /v1/messages HTTP/1.1\r\nHo", one.request(BODY)[:-5]):
        before = one.gate.recorder.arrived
        with one.connect() as sock:
            sock.sendall(data)
            time.sleep(0.05)
        until(lambda: one.gate.recorder.arrived > before)  # noqa: B023  (called before the next round)
    record = one.close()
    assert [exchange.refusal.code for exchange in record.exchanges] == ["malformed", "body-incomplete"]
    assert [exchange.response for exchange in record.exchanges] == [None, None]
    assert one.upstream.asked == []


def test_idle_connections_neither_slow_nor_starve_others(
    rig: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More silent connections than there are places: the longest idle give way, requests are served at once."""
    monkeypatch.setattr(places, "MAX_CONNECTIONS", 20)
    one = rig()
    idle = [one.connect() for _ in range(60)]
    started = time.monotonic()
    assert all(one.post(BODY).status == 200 for _ in range(5))
    assert time.monotonic() - started < 2
    for sock in idle:
        sock.close()
    assert one.close().connections_failed >= 40


@pytest.mark.parametrize(
    ("part", "code"), [(b"P", "malformed"), (GOOD[:-5], "body-incomplete")], ids=["a head", "a body"]
)
def test_unfinished_requests_neither_slow_nor_starve_others(
    rig: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, until: Callable[..., None], part: bytes, code: str
) -> None:
    """More halves of a request than there are places: the oldest give way before any deadline and are in the record, whole requests are answered; a half that is completed is one of them (the control)."""
    monkeypatch.setattr(places, "MAX_CONNECTIONS", 20)
    one = rig()
    part = part.replace(b"{host}", one.gate.settings.expected_host.encode())
    good = GOOD.replace(b"{host}", one.gate.settings.expected_host.encode())
    sent = []
    for _ in range(30):
        sent.append(one.connect())
        sent[-1].sendall(part)
        time.sleep(0.005)  # for most of them to be read: one that was not is idle, and counted
    until(lambda: one.gate.recorder.arrived + one.gate.connections_failed >= 10)
    assert all(one.send(good).status == 200 for _ in range(5))
    with one.connect() as late:
        late.sendall(part)
        time.sleep(0.05)
        late.sendall(good[len(part) :])
        assert late.recv(13) == b"HTTP/1.1 200 "
    for sock in sent:
        sock.close()
    record = one.close()
    refused = [exchange.refusal for exchange in record.exchanges if exchange.refusal]
    assert {refusal.code for refusal in refused} == {code}
    gave_way = sum("gave way" in refusal.message for refusal in refused)
    assert gave_way > 0
    assert gave_way + record.connections_failed >= 10
    assert len(one.upstream.asked) == 6


def test_a_newcomer_keeps_its_place_until_it_can_speak(
    rig: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, read: Callable[..., Any], until: Callable[..., None]
) -> None:
    """Older halves go before a connection that is silent because it is new."""
    monkeypatch.setattr(places, "MAX_CONNECTIONS", 4)
    one = rig()
    good = GOOD.replace(b"{host}", one.gate.settings.expected_host.encode())
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(one.connect()).sendall(good[:-5])
            time.sleep(0.01)
        newcomer = stack.enter_context(one.connect())
        for _ in range(2):
            stack.enter_context(one.connect()).sendall(good[:-5])
        until(lambda: one.gate.recorder.arrived + one.gate.connections_failed == 2)
        newcomer.sendall(good)
        assert read(newcomer).status == 200


def test_an_idle_connection_goes_before_an_older_half(
    rig: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, read: Callable[..., Any]
) -> None:
    """Nothing is lost with the one that was answered; the half that came before it can still be completed (the control)."""
    monkeypatch.setattr(places, "MAX_CONNECTIONS", 4)
    one = rig()
    good = GOOD.replace(b"{host}", one.gate.settings.expected_host.encode())
    with one.connect() as half, one.connect() as idle:
        half.sendall(good[:-5])
        idle.sendall(good)
        assert read(idle).status == 200
        with one.connect() as third, one.connect() as fourth, one.connect() as fifth:
            for sock in (third, fourth):
                sock.sendall(good[:-5])
            fifth.sendall(good)
            assert read(fifth).status == 200
            assert idle.recv(1) == b""
            half.sendall(good[-5:])
            assert read(half).status == 200


def test_what_is_being_answered_gives_way_to_nobody(
    rig: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, until: Callable[..., None], read: Callable[..., Any]
) -> None:
    """A whole request keeps its place while halves of requests come and go around it; with no other place a newcomer is closed, and counted."""
    monkeypatch.setattr(places, "MAX_CONNECTIONS", 2)
    upstream = Held()
    one = rig(upstream)
    good = GOOD.replace(b"{host}", one.gate.settings.expected_host.encode())
    with one.connect() as asking, one.connect() as second:
        asking.sendall(good)
        until(lambda: len(upstream.asked) == 1)
        for _ in range(5):
            with one.connect() as half:
                half.sendall(good[:-5])
                time.sleep(0.02)
        second.close()
        with one.connect() as other:
            other.sendall(good)
            until(lambda: len(upstream.asked) == 2)
            failed = one.gate.connections_failed
            with one.connect() as late:
                assert late.recv(1) == b""
            assert one.gate.connections_failed == failed + 1
            upstream.go.set()
            assert (read(asking).status, read(other).status) == (200, 200)


def test_silence_and_plain_http_on_the_tls_port_are_counted(
    rig: Callable[..., Any], until: Callable[..., None]
) -> None:
    """What never becomes a request is a count, and a good client is served beside it."""
    one = rig(tls=True)
    with socket.create_connection(one.address) as plain:
        plain.sendall(GOOD)
        plain.settimeout(5)
        assert b"HTTP/1.1 200" not in read_to_end(plain)
    until(lambda: one.gate.connections_failed == 1)
    assert one.post(BODY).status == 200
    assert len(one.close().exchanges) == 1


def test_start_up_paths_get_404_and_leave_method_and_path_only(rig: Callable[..., Any]) -> None:
    """Not counted, not ordered, not refused; no header and no body of theirs is kept."""
    one = rig()
    host = one.gate.settings.expected_host.encode()
    assert (
        one.send(
            b"GET /api/claude_code/settings?x=secret HTTP/1.1\r\nHost: " + host + b"\r\nX-Secret: s\r\n\r\n"
        ).status
        == 404
    )
    assert one.send(b"HEAD /api/hello HTTP/1.1\r\nHost: " + host + b"\r\n\r\n").status == 404
    batch = (
        b"POST /api/event_logging/v2/batch HTTP/1.1\r\nHost: "
        + host
        + b"\r\nContent-Length: 300000\r\n\r\n"
        + b"s" * 300_000
    )
    assert one.send(batch).status == 404
    assert one.post(BODY).status == 200
    record = one.close()
    start_up, inference = record.exchanges[:3], record.exchanges[3]
    assert [(exchange.kind, exchange.request.method, exchange.request.target) for exchange in start_up] == [
        ("start-up", "GET", "/api/claude_code/settings"),
        ("start-up", "HEAD", "/api/hello"),
        ("start-up", "POST", "/api/event_logging/v2/batch"),
    ]
    assert all(exchange.request.headers == () and exchange.request.body == b"" for exchange in start_up)
    assert (inference.before_end, record.refused, record.requests) == (1, 0, 1)


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_a_start_up_request_whose_body_is_cut_has_an_end(
    rig: Callable[..., Any], until: Callable[..., None], reset: bool
) -> None:
    """The client left before it was answered, and the record says so; the same body whole is answered (the control)."""
    one = rig()
    head = f"POST /api/event_logging/v2/batch HTTP/1.1\r\nHost: {one.gate.settings.expected_host}\r\n"
    data = (head + "Content-Length: 50\r\n\r\n").encode() + b"s" * 50
    with one.connect() as sock:
        sock.sendall(data[:-5])
        until(lambda: len(one.gate.recorder.exchanges()) == 1)
        if reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    until(lambda: one.gate.recorder.exchanges()[0].ended_us > 0)
    assert one.send(data).status == 404
    cut, whole = one.close().exchanges
    assert (cut.kind, cut.response, cut.unanswered) == ("start-up", None, True)
    assert (whole.response.ending, whole.unanswered) == ("complete", False)


def test_kept_refusals_are_bounded_and_the_rest_counted(
    rig: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop inside cannot fill the runner's memory."""
    monkeypatch.setattr("runner.gate.record.MAX_KEPT", 3)
    one = rig()
    for _ in range(5):
        one.send(b"GET /x HTTP/1.1\r\nHost: evil.invalid\r\n\r\n")
    record = one.close()
    assert (len(record.exchanges), record.not_kept, record.refused) == (3, 2, 3)


def test_a_reader_that_takes_nothing_does_not_hold_the_gate(
    rig: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write deadline ends it; others are served."""
    monkeypatch.setattr("runner.gate.relay.WRITE_DEADLINE_S", 0.3)
    big = {"reply": {"raw": {"body": "x" * 15_000_000}, "chunk_bytes": 1_000_000}}
    one = rig([big, {"reply": {"raw": {"body": "{}"}}, "times": None}])
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(one.address)
        sock.sendall(one.request(BODY))
        time.sleep(0.1)
        assert one.post(BODY).status == 200
        time.sleep(0.6)
        record = one.close()
    assert [exchange.response.ending for exchange in record.exchanges if exchange.response] == [
        "client-gone",
        "complete",
    ]
