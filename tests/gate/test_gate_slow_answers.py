"""An answer that takes longer than a head may: nothing of the gate's own is ever written into it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from runner.gate import connection
from runner.gate.settings import Ceilings
from runner.gate.upstreams import UpstreamAnswer, UpstreamRequest

TEXT = {"message": {"content": [{"type": "text", "text": "hello"}]}}
SLOW = [{"reply": {**TEXT, "chunk_bytes": 100, "chunk_delay_ms": 80}, "times": None}]
"""Over a second for the whole answer."""


@pytest.fixture
def gate(rig: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """A gate whose answers take longer than its deadline for heads."""
    monkeypatch.setattr(connection, "HEAD_DEADLINE_S", 0.2)
    return rig(SLOW, tls=request.param, ceilings=Ceilings(usd=None))


@pytest.mark.parametrize("gate", [False, True], indirect=True, ids=["plain", "tls"])
@pytest.mark.parametrize("size", [10, 100_000, 1_000_000])
def test_a_long_answer_to_a_request_of_any_size_stays_whole(
    gate: Any, size: int, ask: Callable[..., Any], read: Callable[..., Any]
) -> None:
    """However the request's body was taken in, piece by piece and with pauses, no deadline for a head runs while it is answered; the connection serves the next one too."""
    with gate.connect() as sock:
        for _ in range(2):
            begun = time.monotonic()
            sock.sendall(gate.request(ask("x" * size, stream=True)))
            answer = read(sock)
            assert time.monotonic() - begun > 0.4
            assert (answer.status, answer.whole) == (200, True)
            assert b"message_stop" in answer.body
    exchanges = gate.close().exchanges
    assert [(one.kind, one.response.ending) for one in exchanges] == [("inference", "complete")] * 2


class Waiting:
    """Answers when it is told to."""

    kind = "waiting"

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked = 0

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    @asynccontextmanager
    async def answer(self, request: UpstreamRequest) -> AsyncIterator[UpstreamAnswer]:
        self.asked += 1
        yield UpstreamAnswer(200, (("content-type", "application/json"),), self._body())

    async def _body(self) -> AsyncIterator[bytes]:
        yield b'{"usage":'
        while not self.go.is_set():  # noqa: ASYNC110  (another thread sets it)
            await asyncio.sleep(0.005)
        yield b'{"input_tokens":10,"output_tokens":5}}'


def test_what_follows_too_early_is_recorded_and_not_answered(
    rig: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[..., Any],
    read: Callable[..., Any],
    until: Callable[..., None],
) -> None:
    """The beginning of a next request that never ends, while an answer is under way: that answer stays whole, and the connection ends with it."""
    monkeypatch.setattr(connection, "HEAD_DEADLINE_S", 0.1)
    upstream = Waiting()
    one = rig(upstream)
    with one.connect() as sock:
        sock.sendall(one.request(ask()))
        until(lambda: upstream.asked == 1)
        sock.sendall(b"POST /v1/mess")
        until(lambda: one.gate.recorder.arrived == 2)
        upstream.go.set()
        answer = read(sock)
        assert (answer.status, answer.whole) == (200, True)
        assert answer.raw.count(b"HTTP/1.1 ") == 1
        assert answer.body == b'{"usage":{"input_tokens":10,"output_tokens":5}}'
        assert sock.recv(1000) == b""
    first, second = one.close().exchanges
    assert (first.kind, first.response.ending) == ("inference", "complete")
    assert (second.kind, second.response, second.refusal.code) == ("refused", None, "head-timeout")
