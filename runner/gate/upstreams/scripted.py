"""The scripted upstream: answers from a script, with its delays and faults. No key, no network, no cost.

Boundary: touches: the event loop's clock only. Not here: matching (script.py), bytes (script_wire.py).
Rules: requests are matched in their order of arrival here; what no reply matches is refused as ``unscripted``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from runner.gate.exchange import Refusal
from runner.gate.script import Asked, Progress, Reply, Script, choose, explain
from runner.gate.script_wire import PING, Rendered, render
from runner.gate.upstreams import UpstreamAnswer, UpstreamCut, UpstreamRefusal, UpstreamRequest


class ScriptedUpstream:
    """Plays one script for one attempt."""

    kind = "scripted"

    def __init__(self, script: Script) -> None:
        self._script = script
        self._progress = Progress()

    async def open(self) -> None:
        """Nothing to get ready."""

    async def close(self) -> None:
        """Nothing to give back."""

    @asynccontextmanager
    async def answer(self, request: UpstreamRequest) -> AsyncIterator[UpstreamAnswer]:
        """Answer one request as the script says."""
        asked = Asked(request.endpoint, request.agent, request.document)
        choice, self._progress = choose(self._script, asked, self._progress)
        if choice is None:
            raise UpstreamRefusal(Refusal(code="unscripted", message=explain(self._script, asked, self._progress)))
        reply = choice.rule.reply
        bare_reset = reply.reset and reply.cut_after_bytes is None and reply.cut_after_event is None
        if bare_reset:
            await _pause(reply.delay_ms / 1000)
            raise UpstreamCut(reset=True)
        made = render(choice, model=str(request.document.get("model", "")), stream=request.stream)
        pings = made.event_stream and reply.ping_every_ms is not None
        if reply.delay_ms and not pings:
            await _pause(reply.delay_ms / 1000)
        yield UpstreamAnswer(made.status, made.headers, _body(made, reply, pings=pings))


async def _pause(seconds: float) -> None:
    import asyncio  # late: a command makes its upstream before the sandbox starts, and needs no event loop yet

    await asyncio.sleep(seconds)


async def _body(made: Rendered, reply: Reply, *, pings: bool) -> AsyncIterator[bytes]:
    if pings and reply.ping_every_ms is not None:
        left = reply.delay_ms
        while left > 0:
            await _pause(min(left, reply.ping_every_ms) / 1000)
            left -= reply.ping_every_ms
            yield PING
    for index, piece in enumerate(made.pieces):
        if index and reply.chunk_delay_ms:
            await _pause(reply.chunk_delay_ms / 1000)
        yield piece
    if made.cut:
        raise UpstreamCut(reset=reply.reset)
