"""The gate under abuse, before a real upstream socket that counts bytes: whatever is refused, not one byte goes out."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from runner.gate import connection, places, serving
from runner.gate.upstreams.anthropic import AnthropicUpstream
from tests.gate.abuse import BODY, FORMS, GOOD
from tests.gate.listening import Listening

KEY = "sk-ant-api03-synthetic-of-the-abuse-0123456789"
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
STATUS_LINE = re.compile(rb"HTTP/1\.1 \d{3} ")


class Counter(Listening):
    """A provider on a real socket that keeps every byte and every connection it gets, and answers each request that it can make out."""

    def __init__(self) -> None:
        self.received = bytearray()
        super().__init__()
        self.url = f"http://127.0.0.1:{self.port}"

    def talk(self, raw: socket.socket) -> None:
        with raw:
            raw.settimeout(20)
            try:
                while piece := raw.recv(65536):
                    self.received += piece
                    if self.received.endswith(BODY):
                        raw.sendall(ANSWER)
            except OSError:
                return

    @property
    def requests(self) -> int:
        """How often the honest body came."""
        return self.received.count(BODY)


@pytest.fixture
def counter() -> Iterator[Counter]:
    made = Counter()
    yield made
    made.close()


@pytest.fixture
def gate(counter: Counter, rig: Callable[..., Any]) -> Iterator[Any]:
    """A gate with the live upstream before that socket; closed first."""
    one = rig(AnthropicUpstream(KEY, base_url=counter.url), gate={"real_key": KEY})
    yield one
    one.close()


def filled(one: Any, data: bytes) -> bytes:
    return data.replace(b"{host}", one.gate.settings.expected_host.encode())


def told(one: Any, data: bytes, *, end: bool = True) -> bytes:
    """Send bytes, say that no more come, and read until the gate closes, or a good answer is whole; a reset after its answer is a close too."""
    received = piece = b""
    with one.connect() as sock:
        try:
            sock.sendall(filled(one, data))
            if end:
                sock.shutdown(socket.SHUT_WR)
            while (piece := sock.recv(65536)) and not (received + piece).endswith(b"\r\n0\r\n\r\n"):
                received += piece
        except (ConnectionResetError, BrokenPipeError):
            piece = b""
    return received + piece


def nothing_went_out(counter: Counter) -> tuple[int, int]:
    """How many connections and bytes the provider has had."""
    return counter.connections, len(counter.received)


def test_no_refused_form_sends_a_byte(counter: Counter, gate: Any) -> None:
    """Every form of the table, one after another at one gate: no answer of success, a record of a refusal for each, zero connections and bytes at the provider. Then the honest request, once: exactly one goes out (the control)."""
    wrong: dict[str, Any] = {}
    for name, data in FORMS.items():
        before = gate.gate.recorder.arrived
        answer = told(gate, data, end=False)
        statuses = [int(line.split()[1]) for line in STATUS_LINE.findall(answer)]
        gone = nothing_went_out(counter)
        if (
            len(statuses) > 1
            or not all(status >= 400 for status in statuses)
            or gone != (0, 0)
            or gate.gate.recorder.arrived == before
        ):
            wrong[name] = (statuses, gone, gate.gate.recorder.arrived - before)
            counter.received.clear()
            counter.connections = 0
    assert wrong == {}
    assert b" 200 " in told(gate, GOOD.replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r\nConnection: close\r\n", 1), end=False)
    assert (counter.requests, counter.connections) == (1, 1)
    record = gate.close()
    assert (record.requests, record.notes) == (1, ())
    refused = [exchange for exchange in record.exchanges if exchange.kind == "refused"]
    assert len(refused) + record.not_kept >= len(FORMS)


@pytest.mark.parametrize("first", ["refused", "answered"])
def test_what_is_pipelined_is_not_sent(counter: Counter, gate: Any, first: str) -> None:
    """Behind a refused request nothing goes out, behind an answered one only that; also where the second is glued to the first's body."""
    bad = GOOD.replace(b"/v1/messages", b"/v1/files")
    answer = told(gate, (bad if first == "refused" else GOOD) + GOOD + GOOD, end=False)
    assert len(STATUS_LINE.findall(answer)) == 1
    assert counter.requests == (0 if first == "refused" else 1)


@pytest.mark.parametrize("before", [b"", b"\r\n", b"\r\n\r\n"])
def test_empty_lines_before_a_request_are_none_of_its(counter: Counter, gate: Any, before: bytes) -> None:
    """The control of the halves of a line's end that are refused there: whole ones are skipped, as RFC 9112 has it."""
    data = before + GOOD.replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r\nConnection: close\r\n", 1)
    assert b" 200 " in told(gate, data, end=False)
    assert counter.requests == 1


@pytest.mark.parametrize("cut", [1, 20, len(GOOD) - len(BODY) - 2, len(GOOD) - 1])
def test_a_request_that_does_not_come_whole_is_not_sent(counter: Counter, gate: Any, cut: int) -> None:
    """In its line, its headers and its body: the client leaves, and nothing went out."""
    told(gate, filled(gate, GOOD)[:cut])
    assert nothing_went_out(counter) == (0, 0)


def test_deadlines_of_head_and_body_send_nothing(counter: Counter, gate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that drips and a body that stays away end by 408, with zero bytes out."""
    monkeypatch.setattr(connection, "HEAD_DEADLINE_S", 0.3)
    monkeypatch.setattr(serving, "BODY_DEADLINE_S", 0.3)
    monkeypatch.setattr(connection, "LINGER_S", 0.1)
    for data in (b"POST /v1/mess", filled(gate, GOOD)[:-5]):
        assert told(gate, data, end=False).startswith(b"HTTP/1.1 408 ")
    assert nothing_went_out(counter) == (0, 0)


def test_connections_beyond_the_cap_send_nothing(
    counter: Counter, gate: Any, monkeypatch: pytest.MonkeyPatch, until: Callable[..., None]
) -> None:
    """Idle ones give way to new ones; none of them reaches the provider, and an honest one is served beside them."""
    monkeypatch.setattr(places, "MAX_CONNECTIONS", 20)
    idle = [gate.connect() for _ in range(60)]
    until(lambda: gate.gate.connections_failed >= 40)
    assert nothing_went_out(counter) == (0, 0)
    assert b" 200 " in told(gate, GOOD.replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r\nConnection: close\r\n", 1), end=False)
    for sock in idle:
        sock.close()
    assert counter.requests == 1


def test_what_the_client_says_of_itself_does_not_go_out(counter: Counter, gate: Any) -> None:
    """Keys, hop-by-hop headers and forwarding headers of an honest request are not passed on; the host is the provider's, the key the gate's."""
    own = b"x-api-key: mine\r\nAuthorization: Bearer mine\r\nProxy-Authorization: mine\r\nX-Forwarded-Host: evil.invalid\r\nConnection: close, x-api-key\r\nCookie: a=mine\r\nForwarded: host=evil.invalid\r\n"
    assert b" 200 " in told(gate, GOOD.replace(b"\r\n\r\n", b"\r\n" + own + b"\r\n", 1), end=False)
    head = bytes(counter.received).split(b"\r\n\r\n")[0]
    assert KEY.encode() in head
    assert all(word not in head for word in (b"mine", b"evil", b"orwarded", b"ookie", b"roxy"))
