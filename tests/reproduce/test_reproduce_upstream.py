"""The recorded upstream by itself: what it serves, in which order of things, and how it ends an answer (issue 3; facts/replay.md R2–R5)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from runner.gate.exchange import Exchange, Request, Response
from runner.gate.upstreams import UpstreamCut, UpstreamRefusal, UpstreamRequest
from runner.gate.upstreams.recorded import RecordedUpstream, Served

BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]}).encode()
PIECES = (b"one", b"two", b"three")
WAIT_S = 0.1
"""How long an answer that must stay open is watched."""


def exchange(seq: int = 1, *, body: bytes = BODY, ending: Any = "complete", **more: Any) -> Exchange:
    """One recorded exchange, answered in three pieces."""
    response = Response(status=200, body=b"".join(PIECES), ending=ending, chunks=tuple(map(len, PIECES)))
    fields: dict[str, Any] = {"response": response, "before_end": 1, **more}
    return Exchange(
        seq=seq, kind="inference", request=Request(method="POST", target="/v1/messages", body=body), **fields
    )


def asked(body: bytes = BODY, arrived: Callable[[], int] = lambda: 1) -> UpstreamRequest:
    """The same request as it comes again."""
    return UpstreamRequest(1, "messages", "/v1/messages", (), body, json.loads(body), "", "", arrived)


def served(
    exchanges: Sequence[Exchange], *requests: UpstreamRequest, deadline_s: float = 30.0
) -> tuple[Served, list[str]]:
    """Ask one request after the other; returns what was served and how each answer ended: ``complete``, ``cut``, ``reset``, ``refused`` or ``open``."""
    endings: list[str] = []

    async def ask(upstream: RecordedUpstream, request: UpstreamRequest) -> None:
        got = b""
        try:
            async with upstream.answer(request) as answer:
                async for piece in answer.body:
                    got += piece
            endings.append("complete")
        except UpstreamRefusal:
            endings.append("refused")
        except UpstreamCut as error:
            endings.append("reset" if error.reset else "cut")
        except asyncio.CancelledError:
            endings.append("open")
            raise
        finally:
            assert got in (b"", b"".join(PIECES[:2]), b"".join(PIECES))

    async def all_of_them() -> Served:
        upstream = RecordedUpstream(exchanges, deadline_s=deadline_s)
        for request in requests:
            await asyncio.wait([task := asyncio.create_task(ask(upstream, request))], timeout=WAIT_S + deadline_s % 30)
            task.cancel()
            await asyncio.wait([task])
        return upstream.served

    return asyncio.run(all_of_them()), endings


@pytest.mark.parametrize("ending", ["complete", "cut"])
def test_an_answer_ends_as_it_had_ended(ending: str) -> None:
    """All bytes come, then the end or the cut; nothing is late, nothing is left."""
    found, endings = served([exchange(ending=ending)], asked())
    assert endings == [ending]
    assert (found.exact, found.left, found.late, found.missed) == (1, 0, [], [])


@pytest.mark.parametrize(
    "gone",
    [exchange(ending="client-gone"), exchange(response=None, unanswered=True)],
    ids=["midway", "before it began"],
)
def test_where_the_cli_went_away_the_answer_stays_open_until_it_does(gone: Exchange) -> None:
    """A cut in its place would be something new to the CLI, which may ask again; without an end of the CLI's the wait is told, and cut."""
    found, endings = served([gone], asked())
    assert (endings, found.late, found.exact) == (["open"], [], 1)
    found, endings = served([gone], asked(), deadline_s=0.05)
    assert endings == ["reset" if gone.response is None else "cut"]
    assert "the CLI had gone away" in found.late[0]


def test_an_answer_that_never_began_is_reset() -> None:
    """The control of the one before: the provider, not the CLI, ended it."""
    assert served([exchange(response=None)], asked())[1] == ["reset"]


def test_an_exchange_is_served_once_and_never_to_another_body() -> None:
    """The second of two equal requests, and one of another body, are refused with the first difference."""
    found, endings = served([exchange()], asked(), asked())
    assert endings == ["complete", "refused"]
    assert "served already" in found.missed[0]
    found, endings = served([exchange()], asked(BODY.replace(b"hello", b"hullo")))
    assert (endings, found.left) == (["refused"], 1)
    assert "nearest is exchange 1" in found.missed[0]
    assert served([exchange(1), exchange(2)], asked(), asked())[1] == ["complete", "complete"]


def test_the_last_piece_waits_for_the_recorded_order() -> None:
    """It comes once as many requests have arrived as had arrived then; if they do not, that is told and the answer is reset."""
    counts = iter([1, 1, 1, 2])
    assert served([exchange(before_end=2)], asked(arrived=lambda: next(counts)))[1] == ["complete"]
    found, endings = served([exchange(before_end=2)], asked(), deadline_s=0.05)
    assert endings == ["reset"]
    assert "2 requests had arrived" in found.late[0]
