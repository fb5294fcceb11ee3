"""The record while it is being made: drafts of exchanges, numbered as they arrive.

Boundary: pure (the clock is a parameter). Not here: the frozen form (exchange.py), reading and answering (serving.py).
Rules: a number is given once, on arrival. ``arrived`` counts every request but the start-up ones; an exchange takes that count when its answer ends
(replay.md R4). Nothing holds the real key: a request that does is kept with the placeholder in its place. Kept bodies are bounded by
``Ceilings.record_bytes``, kept refusals and start-up requests by ``MAX_KEPT``; what is not kept is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from runner.gate.exchange import Exchange, ExchangeKind, Headers, Refusal, Request, Response

MAX_KEPT = 1000
"""Refused requests and start-up requests that are kept in full, each."""

SESSION_HEADER = "x-claude-code-session-id"
AGENT_HEADER = "x-claude-code-agent-id"


@dataclass(slots=True)
class Draft:
    """One exchange in the making."""

    seq: int
    kind: ExchangeKind
    request: Request
    session: str = ""
    agent: str = ""
    from_cli: bool | None = None
    arrived_us: int = 0
    refusal: Refusal | None = None
    status: int | None = None
    headers: Headers = ()
    chunks: list[bytes] = field(default_factory=list)
    first_byte_us: int = 0
    ending: Literal["complete", "cut", "client-gone"] | None = None
    ended_us: int = 0
    before_end: int = 0
    key_redactions: int = 0

    def exchange(self) -> Exchange:
        """Return the frozen form; an answer that never ended was cut by the gate's end."""
        response = None
        if self.status is not None:
            response = Response(
                status=self.status,
                headers=self.headers,
                body=b"".join(self.chunks),
                ending=self.ending or "cut",
                chunks=tuple(len(chunk) for chunk in self.chunks),
            )
        return Exchange(
            seq=self.seq,
            kind=self.kind,
            session=self.session,
            agent=self.agent,
            from_cli=self.from_cli,
            request=self.request,
            response=response,
            refusal=self.refusal,
            unanswered=response is None and self.ending == "client-gone",
            before_end=self.before_end,
            key_redactions=self.key_redactions,
            arrived_us=self.arrived_us,
            first_byte_us=self.first_byte_us,
            ended_us=self.ended_us,
        )


class Recorder:
    """All drafts of one attempt."""

    def __init__(
        self, now_us: Callable[[], int], *, session_id: str | None, record_bytes: int, keep: bool = True
    ) -> None:
        """Make a record. Without ``keep`` requests are numbered and counted and nothing of them stays: for a gate that outlives attempts."""
        self.arrived = 0
        self.body_bytes = 0
        self.not_kept = 0
        self.redactions_not_kept = 0
        """Replaced keys in ended answers that are not kept."""
        self._now_us = now_us
        self._session_id = session_id
        self._record_bytes = record_bytes
        self._keep = keep
        self._seq = 0
        self._kept: dict[ExchangeKind, list[Draft]] = {"inference": [], "start-up": [], "refused": []}

    def room_for(self, count: int) -> bool:
        """Say whether ``count`` more body bytes may be kept."""
        return self.body_bytes + count <= self._record_bytes

    def arrive(self, kind: ExchangeKind, request: Request, refusal: Refusal | None = None) -> Draft:
        """Number a request that has arrived, whole or as far as it was read."""
        self._seq += 1
        if kind != "start-up":
            self.arrived += 1
        found = {key.lower(): value for key, value in request.headers if key.lower() in {SESSION_HEADER, AGENT_HEADER}}
        session = found.get(SESSION_HEADER, "")
        draft = Draft(
            seq=self._seq,
            kind=kind,
            request=request,
            session=session,
            agent=found.get(AGENT_HEADER, ""),
            from_cli=None if self._session_id is None or kind == "start-up" else session == self._session_id,
            arrived_us=self._now_us(),
            refusal=refusal,
        )
        if not self._keep or (kind != "inference" and len(self._kept[kind]) >= MAX_KEPT):
            self.not_kept += 1
        else:
            self._kept[kind].append(draft)
            self.body_bytes += len(request.body)
        return draft

    def started(self, draft: Draft, status: int, headers: Headers) -> None:
        """Note that an answer's head has been sent."""
        draft.status, draft.headers, draft.first_byte_us = status, headers, self._now_us()

    def sent(self, draft: Draft, piece: bytes) -> None:
        """Note a piece of the body that has been sent."""
        if self._keep:
            draft.chunks.append(piece)
            self.body_bytes += len(piece)

    def ended(self, draft: Draft, ending: Literal["complete", "cut", "client-gone"]) -> None:
        """Note the end of an answer, or of waiting for one."""
        draft.ending, draft.ended_us, draft.before_end = ending, self._now_us(), self.arrived
        if not self._keep:
            self.redactions_not_kept += draft.key_redactions

    def refused(self, draft: Draft, refusal: Refusal) -> None:
        """Turn an arrived request into a refused one."""
        if draft.kind == "inference":
            draft.kind = "refused"
        draft.refusal = refusal

    def exchanges(self) -> tuple[Exchange, ...]:
        """Return everything kept, in order of arrival."""
        drafts = sorted((draft for kept in self._kept.values() for draft in kept), key=lambda draft: draft.seq)
        return tuple(draft.exchange() for draft in drafts)
