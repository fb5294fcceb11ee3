"""The scripted upstream over real sockets: its delays, cuts and refusals as a client sees them."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

import pytest

from runner.gate.serving import REST_POLL_S, REST_S

TEXT = {"message": {"content": [{"type": "text", "text": "hello"}]}}


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_stream_arrives_event_by_event(rig: Callable[..., Any], ask: Callable[..., Any], tls: bool) -> None:
    """The positive control: a whole event stream, recorded piece by piece."""
    one = rig([{"reply": TEXT}], tls=tls)
    answer = one.post(ask(stream=True))
    assert (answer.status, answer.whole, answer.headers["content-type"]) == (
        200,
        True,
        "text/event-stream; charset=utf-8",
    )
    assert answer.body.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')
    (exchange,) = one.close().exchanges
    assert exchange.response is not None
    assert (exchange.response.body, len(exchange.response.chunks)) == (answer.body, 6)
    assert answer.headers["request-id"] == "req_0001"


def test_an_unscripted_request_is_an_error_and_never_an_invented_answer(
    rig: Callable[..., Any], ask: Callable[..., Any]
) -> None:
    """One answer of class 400 that says not to retry; the record says why; the orchestrator is told."""
    one = rig([{"when": {"model": "other"}, "reply": TEXT}])
    answer = one.post(ask(stream=True))
    assert (answer.status, answer.headers["x-should-retry"]) == (403, "false")
    record = one.close()
    assert (record.unscripted, record.refused, record.exchanges[0].kind) == (1, 1, "refused")
    assert [stop.code for stop in one.stops] == ["unscripted"]
    assert "model does not hold" in one.stops[0].message
    assert record.cost_estimate_usd == "0"


def test_an_error_reply_has_its_status_type_and_headers(rig: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """Every API error can be scripted, with what the CLI looks at."""
    one = rig(
        [
            {
                "reply": {
                    "error": {
                        "status": 429,
                        "type": "rate_limit_error",
                        "message": "slow",
                        "headers": {"retry-after": "3"},
                    }
                }
            }
        ]
    )
    answer = one.post(ask())
    assert (answer.status, answer.error, answer.headers["retry-after"]) == (
        429,
        {"type": "rate_limit_error", "message": "slow"},
        "3",
    )
    assert "x-should-retry" not in answer.headers


def test_a_raw_reply_is_given_as_it_is(rig: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """HTML with status 200, or nothing at all."""
    one = rig([{"reply": {"raw": {"headers": {"content-type": "text/html"}, "body": "<p>"}}}, {"reply": {"raw": {}}}])
    answer, empty = one.post(ask()), one.post(ask())
    assert (answer.status, answer.headers["content-type"], answer.body) == (200, "text/html", b"<p>")
    assert (empty.status, empty.body, empty.whole) == (200, b"", True)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize(
    "cut",
    [
        {"cut_after_bytes": 0},
        {"cut_after_bytes": 100},
        {"cut_after_event": "content_block_delta"},
        {"cut_after_event": 3},
    ],
)
def test_a_cut_closes_the_connection_in_the_middle(
    rig: Callable[..., Any], ask: Callable[..., Any], cut: dict[str, Any], tls: bool
) -> None:
    """The client gets the bytes before the cut, and no end; the record holds the same and says cut."""
    one = rig([{"reply": {**TEXT, **cut}}], tls=tls)
    answer = one.post(ask(stream=True))
    assert (answer.status, answer.whole) == (200, False)
    (exchange,) = one.close().exchanges
    assert exchange.response is not None
    assert (exchange.response.body, exchange.response.ending) == (answer.body, "cut")


@pytest.mark.parametrize("busy_looks", [0, 15])
def test_a_stream_is_cut_only_once_the_client_rests(
    busy_looks: int, rig: Callable[..., Any], ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cut comes after the client has been at rest, look after look, however long it is busy before; one that never rests is cut all the same, later."""
    one = rig([{"reply": {**TEXT, "cut_after_bytes": 100}, "times": 2}])
    looks: list[bool] = []

    def look() -> bool:
        looks.append(len(looks) >= busy_looks)
        return looks[-1]

    one.gate.at_rest = look
    assert not one.post(ask(stream=True)).whole
    assert looks[:busy_looks] == [False] * busy_looks
    assert sum(looks) == pytest.approx(REST_S / REST_POLL_S, abs=1)
    monkeypatch.setattr("runner.gate.serving.REST_DEADLINE_S", 0.1)
    one.gate.at_rest = lambda: False
    assert not one.post(ask(stream=True)).whole


def test_a_bare_reset_comes_before_any_byte(rig: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """A real TCP reset; the record has the request and no answer."""
    one = rig([{"reply": {"reset": True}}])
    with one.connect() as sock:
        sock.sendall(one.request(ask(stream=True)))
        with pytest.raises(ConnectionResetError):
            sock.recv(1000)
    (exchange,) = one.close().exchanges
    assert (exchange.kind, exchange.response, exchange.refusal) == ("inference", None, None)


def test_a_bare_reset_is_one_under_tls_too(rig: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """Seen below TLS, since Python's TLS socket calls a reset an end of file."""
    one = rig([{"reply": {"reset": True}}], tls=True)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cadata=one.authority.ca_pem.decode())
    tls = context.wrap_bio(incoming, outgoing, server_hostname="api.anthropic.com")
    with socket.create_connection(one.address, timeout=10) as sock:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(outgoing.read())
                incoming.write(sock.recv(65536))
        tls.write(one.request(ask(stream=True)))
        sock.sendall(outgoing.read())
        with pytest.raises(ConnectionResetError):
            read_to_end(sock)


def read_to_end(sock: socket.socket) -> bytes:
    """Read until the connection is closed in good order."""
    received = b""
    while piece := sock.recv(65536):
        received += piece
    return received


def test_a_reset_in_the_middle_follows_the_bytes_before_it(rig: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """What was sent before the reset can be read."""
    one = rig([{"reply": {**TEXT, "cut_after_event": 2, "reset": True}}])
    with one.connect() as sock:
        sock.sendall(one.request(ask(stream=True)))
        time.sleep(0.2)
        with pytest.raises(ConnectionResetError):
            read_to_end(sock)
    (exchange,) = one.close().exchanges
    assert exchange.response is not None
    assert exchange.response.ending == "cut"
    assert exchange.response.body.count(b"event: ") == 2


def test_delays_pings_and_pieces_keep_their_time(rig: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """A delay before the head; or pings while the first event waits; pieces one after the other."""
    one = rig(
        [
            {"reply": {**TEXT, "delay_ms": 150}},
            {"reply": {**TEXT, "delay_ms": 150, "ping_every_ms": 50}},
            {"reply": {**TEXT, "chunk_bytes": 300, "chunk_delay_ms": 50}},
        ]
    )
    for _ in range(3):
        one.post(ask(stream=True))
    delayed, pinged, pieces = one.close().exchanges
    assert delayed.first_byte_us - delayed.arrived_us >= 150_000
    assert pinged.first_byte_us - pinged.arrived_us < 100_000
    assert pinged.ended_us - pinged.first_byte_us >= 145_000
    assert pinged.response is not None
    assert pinged.response.body.startswith(b'event: ping\ndata: {"type": "ping"}\n\n' * 3 + b"event: message_start")
    assert pieces.response is not None
    assert set(pieces.response.chunks[:-1]) == {300}
    assert pieces.ended_us - pieces.first_byte_us >= 50_000 * (len(pieces.response.chunks) - 1)


def test_the_first_event_is_not_held_back_by_the_next(rig: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """Streaming is streaming: the first bytes are there while the rest waits."""
    one = rig([{"reply": {**TEXT, "chunk_bytes": 200, "chunk_delay_ms": 400}}])
    with one.connect() as sock:
        started = time.monotonic()
        sock.sendall(one.request(ask(stream=True)))
        data = b""
        while b"message_start" not in data:
            data += sock.recv(1000)
        assert time.monotonic() - started < 0.3


def test_a_client_that_leaves_during_a_stream_is_recorded(
    rig: Callable[..., Any], ask: Callable[..., Any], until: Callable[..., None]
) -> None:
    """client-gone, with what had been sent; the place is free again and the output that may have been made is booked."""
    one = rig([{"reply": {**TEXT, "chunk_bytes": 100, "chunk_delay_ms": 50}}])
    with one.connect() as sock:
        sock.sendall(one.request(ask(stream=True)))
        sock.recv(100)
        sock.shutdown(socket.SHUT_RDWR)
    until(lambda: not one.gate.ledger.under_way and one.gate.ledger.requests == 1)
    record = one.close()
    (exchange,) = record.exchanges
    assert exchange.response is not None
    assert exchange.response.ending == "client-gone"
    assert record.output_tokens == min(100, len(exchange.response.body))


def test_a_client_that_leaves_before_the_answer_is_recorded(
    rig: Callable[..., Any], ask: Callable[..., Any], until: Callable[..., None]
) -> None:
    """It is told apart from an answer that was cut before its first byte, since a reproduction has to wait for it to leave again."""
    one = rig([{"reply": {"reset": True}}, {"reply": {**TEXT, "delay_ms": 60_000}}])
    for number in (1, 2):
        with one.connect() as sock:
            sock.sendall(one.request(ask()))
            until(lambda: one.gate.ledger.requests == number)  # noqa: B023
            if number == 2:
                sock.shutdown(socket.SHUT_RDWR)
            until(lambda: not one.gate.ledger.under_way)
    told = [(exchange.response, exchange.unanswered, exchange.client_gone) for exchange in one.close().exchanges]
    assert told == [(None, False, False), (None, True, True)]
