"""Where answers come from: one interface, with a scripted, a live and (issue 3) a recorded form.

Boundary: pure (types only). Not here: the decision whether a request is sent (policy.py, ledger.py), the record (record.py).
Rules: an upstream is used from the gate's event loop only, many requests at a time. It never retries. It gets a request that policy has let through
and ledger has booked. It answers, or raises ``UpstreamRefusal`` (it will not answer: the gate refuses) or ``UpstreamFailed`` (it could not: the gate
answers 502); once it has answered, its body may end early with ``UpstreamCut``. It leaves redaction, limits and recording to the gate.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from runner.gate.exchange import Headers, Refusal
from runner.gate.ledger import Endpoint


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """One request as the gate hands it on."""

    seq: int
    """The exchange's number in the record."""
    endpoint: Endpoint
    target: str
    """The raw target: path and query, one of the few that policy lets through."""
    headers: Headers
    """The request's own header list as it arrived; an upstream that sends it on picks by an allow list."""
    body: bytes
    document: Mapping[str, Any]
    """The body, parsed."""
    session: str
    agent: str
    """The sub-agent's id, or empty for the main thread."""
    arrived: Callable[[], int] = lambda: 0
    """How many requests, start-up ones aside, have arrived at the gate by the time it is called (replay.md R4)."""

    @property
    def stream(self) -> bool:
        """Whether an event stream is asked for."""
        return bool(self.document.get("stream", False))


@dataclass(frozen=True, slots=True)
class UpstreamAnswer:
    """The beginning of an answer; the body follows piece by piece."""

    status: int
    headers: Headers
    body: AsyncIterator[bytes]
    """Pieces as they were delivered, content encoding untouched. May raise UpstreamCut."""


class UpstreamRefusal(Exception):
    """The upstream will not answer this request (nothing scripted, nothing recorded)."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class UpstreamFailed(Exception):
    """No answer could be had. ``retryable``: whether asking again may help (a lost connection), or not (a wrong certificate).
    ``sent``: whether the provider may have got any of the request; where no connection was made it cannot bill anything.
    """

    def __init__(self, message: str, *, retryable: bool, sent: bool = True) -> None:
        super().__init__(message)
        self.message = message
        self.retryable = retryable
        self.sent = sent


class UpstreamCut(Exception):
    """The body ended early; the gate ends its own answer the same way. ``reset``: by a reset rather than by closing.

    Raised instead of an answer, it ends the connection before any byte of one.
    """

    def __init__(self, *, reset: bool = False) -> None:
        super().__init__("reset" if reset else "cut")
        self.reset = reset


class Upstream(Protocol):
    """The interface. ``kind`` is ``scripted``, ``anthropic`` or ``recorded``."""

    @property
    def kind(self) -> str:
        """The upstream's name in the attempt."""
        ...

    async def open(self) -> None:
        """Get ready, in the gate's event loop. Raises: GateError."""
        ...

    def answer(self, request: UpstreamRequest) -> AbstractAsyncContextManager[UpstreamAnswer]:
        """Answer one request; leaving the context gives everything back, whether or not the body was read to its end.

        Entering it raises: UpstreamRefusal, UpstreamFailed, UpstreamCut.
        """
        ...

    async def close(self) -> None:
        """Give everything back."""
        ...
