"""The recorded upstream: serves an attempt's exchanges again, each once, in the recorded order of things. It knows no network (facts/replay.md R2–R5).

Boundary: touches: the event loop's clock only. Not here: which differences the rules allow (rules.py), comparing the rest of an attempt (runner/reproduce.py).
Rules: a request gets the answer of the first unserved exchange of its lane (main thread, or one sub-agent) whose body is the same, byte for byte; else of the first that is the same
under the rules, with ids renamed one to one. Never the nearest, never a second time, never anything live. An answer ends only when as many requests have arrived as had arrived when it
ended in the recording (happens-before), within a deadline. Where the CLI went away before the end, it has to go again: the answer stays open until it does. A miss is one refusal that
stops the run and says the first differing field.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from runner.difference import first_difference
from runner.gate.exchange import Exchange, Refusal
from runner.gate.rules import Canonical, Renaming, canonical_request, differing, id_pairs
from runner.gate.upstreams import UpstreamAnswer, UpstreamCut, UpstreamRefusal, UpstreamRequest

ORDER_DEADLINE_S = 30.0
_POLL_S = 0.002


@dataclass
class Served:
    """What was served in a reproduction."""

    exact: int = 0
    """Requests that were the recorded bytes."""
    normalised: int = 0
    """Requests that were the same under the rules only."""
    rules: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)
    """What no exchange answered: place and first difference, in words."""
    late: list[str] = field(default_factory=list)
    """Answers whose recorded order of things did not come about within the deadline."""
    left: int = 0
    """Exchanges that nobody asked for."""


class RecordedUpstream:
    """Plays the exchanges of one attempt."""

    kind = "recorded"

    def __init__(self, exchanges: Sequence[Exchange], *, deadline_s: float = ORDER_DEADLINE_S) -> None:
        """Take the exchanges that were sent upstream; refused and start-up ones are the gate's own to repeat."""
        self._left = [exchange for exchange in exchanges if exchange.kind == "inference"]
        self._forms: dict[int, Canonical | None] = {}
        self.renaming = Renaming()
        """Which id of the recording is which id now, by what was served."""
        self._deadline_s = deadline_s
        self.served = Served(left=len(self._left))

    async def open(self) -> None:
        """Nothing to get ready."""

    async def close(self) -> None:
        """Nothing to give back."""

    @asynccontextmanager
    async def answer(self, request: UpstreamRequest) -> AsyncIterator[UpstreamAnswer]:
        """Answer one request from the recording."""
        exchange = self._take(request)
        if exchange is None:
            message = self._explain(request)
            self.served.missed.append(message)
            raise UpstreamRefusal(Refusal(code="replay-miss", message=message))
        response = exchange.response
        if response is None:
            await self._order(exchange, request)
            if exchange.client_gone:
                await self._until_gone(exchange)
            raise UpstreamCut(reset=True)
        yield UpstreamAnswer(response.status, response.headers, self._body(exchange, request))

    async def _body(self, exchange: Exchange, request: UpstreamRequest) -> AsyncIterator[bytes]:
        response = exchange.response
        assert response is not None
        pieces, start = [], 0
        for size in response.chunks:
            pieces.append(response.body[start : start + size])
            start += size
        if start < len(response.body):
            pieces.append(response.body[start:])
        for piece in pieces[:-1]:
            yield piece
        await self._order(exchange, request)
        for piece in pieces[-1:]:
            yield piece
        if exchange.client_gone:
            await self._until_gone(exchange)
        if response.ending != "complete":
            raise UpstreamCut

    async def _until_gone(self, exchange: Exchange) -> None:
        """Wait for the CLI to close, which cancels this; as long as it took in the recording, and the deadline, then it is told."""
        waited = (exchange.ended_us - exchange.arrived_us) / 1e6 + self._deadline_s
        await asyncio.sleep(waited)
        self.served.late.append(
            f"exchange {exchange.seq}: the CLI had gone away before its answer ended, now it has not in {waited:.0f} s"
        )

    async def _order(self, exchange: Exchange, request: UpstreamRequest) -> None:
        """Wait until every request has arrived that had arrived before this answer ended."""
        waited = 0.0
        while request.arrived() < exchange.before_end:
            if waited >= self._deadline_s:
                self.served.late.append(
                    f"exchange {exchange.seq}: {exchange.before_end} requests had arrived when its answer ended, now {request.arrived()} after {self._deadline_s:.0f} s"
                )
                raise UpstreamCut(reset=True)
            await asyncio.sleep(_POLL_S)
            waited += _POLL_S

    def _take(self, request: UpstreamRequest) -> Exchange | None:
        lane = [exchange for exchange in self._left if self._same_lane(exchange, request)]
        for exchange in lane:
            if exchange.request.body == request.body:
                return self._serve(exchange, request, [], None)
        now = canonical_request(request.body)
        if now is None:
            return None
        for exchange in lane:
            recorded = self._form(exchange)
            counts = differing(recorded, now) if recorded is not None else None
            if recorded is None or counts is None:
                continue
            pairs = id_pairs(recorded, now)
            if self.renaming.agrees([*pairs, *_lane_pair(exchange, request)]):
                return self._serve(exchange, request, pairs, counts)
        return None

    def _serve(
        self, exchange: Exchange, request: UpstreamRequest, pairs: list[tuple[str, str]], counts: Counter[str] | None
    ) -> Exchange:
        self._left.remove(exchange)
        self.renaming.learn([*pairs, *_lane_pair(exchange, request)])
        self.served.left = len(self._left)
        if counts is None:
            self.served.exact += 1
        else:
            self.served.normalised += 1
            self.served.rules += counts
        return exchange

    def _same_lane(self, exchange: Exchange, request: UpstreamRequest) -> bool:
        if exchange.request.target != request.target or exchange.session != request.session:
            return False
        if not exchange.agent or not request.agent:
            return exchange.agent == request.agent
        return self.renaming.agrees(_lane_pair(exchange, request))

    def _form(self, exchange: Exchange) -> Canonical | None:
        if exchange.seq not in self._forms:
            self._forms[exchange.seq] = canonical_request(exchange.request.body)
        return self._forms[exchange.seq]

    def _explain(self, request: UpstreamRequest) -> str:
        """Say which unserved exchange is nearest, and where it first differs; for people only, it is never served."""
        place = f"request {request.seq}{f' of sub-agent {request.agent}' if request.agent else ''}"
        now = canonical_request(request.body)
        if now is None:
            return f"{place}: its body cannot be read"
        forms = [
            (exchange, form)
            for exchange in self._left
            if bool(exchange.agent) == bool(request.agent) and (form := self._form(exchange)) is not None
        ]
        if not forms:
            return f"{place}: every recorded exchange of its lane was served already"
        nearest, form = max(forms, key=lambda pair: (_common(pair[1].text, now.text), -pair[0].seq))
        found = first_difference(json.loads(form.text), json.loads(now.text))
        where = str(found) if found is not None else "the bodies are the same, its lane or its ids are not"
        return f"{place}: no recorded exchange has this body; nearest is exchange {nearest.seq}, first difference at {where}"


def _lane_pair(exchange: Exchange, request: UpstreamRequest) -> list[tuple[str, str]]:
    return [(exchange.agent, request.agent)] if exchange.agent and request.agent else []


def _common(one: str, other: str) -> int:
    """Return the length of the common beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
