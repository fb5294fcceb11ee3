"""The record of one provider exchange: raw bytes both ways, and the order in which things happened.

Boundary: pure. Not here: reading a response's meaning (message.py), deciding on a request (policy.py).
Rules: bodies are the bytes as they went over the wire to the CLI; derived views are never stored. A real key is in no field.
Order is kept as counts, not as clock times: ``before_end`` of an exchange is the number of requests (of any kind but start-up) that had
arrived when its answer ended, itself included (facts/replay.md R4).
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Headers = tuple[tuple[str, str], ...]
"""Header list in wire order, names as written, values decoded as latin-1."""

ExchangeKind = Literal["inference", "start-up", "refused"]
"""``inference`` was sent to the upstream; ``start-up`` is a known start-up path that the gate answered with 404; ``refused`` never left the gate."""


class Value(BaseModel):
    """A frozen value with no unknown fields. Its validator is built when the first one is made, since a command uses few of all values."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class Request(Value):
    """One HTTP request as it arrived."""

    method: str
    target: str
    """The raw request target, decoded as latin-1; never normalised."""
    headers: Headers = ()
    body: bytes = b""


class Response(Value):
    """One HTTP response as it was sent to the CLI."""

    status: int
    headers: Headers = ()
    body: bytes = b""
    """The body bytes as sent, content encoding untouched."""
    ending: Literal["complete", "cut", "client-gone"] = "complete"
    """``cut``: the upstream ended early and so did we; ``client-gone``: the CLI closed first."""
    chunks: tuple[int, ...] = ()
    """Sizes of the pieces in which the upstream delivered the body."""


class Refusal(Value):
    """Why the gate did not forward a request, or stopped one."""

    code: str
    """Stable: see runner/gate/policy.py for the table."""
    message: str
    over_budget: bool = False
    """True for a ceiling (``over-budget``), false for a policy refusal (``gate-refused``)."""


class Exchange(Value):
    """One request and what became of it."""

    seq: int
    """1-based order of arrival among all requests of the attempt."""
    kind: ExchangeKind
    session: str = ""
    """Value of ``x-claude-code-session-id``, or empty."""
    agent: str = ""
    """Value of ``x-claude-code-agent-id`` (a sub-agent's request), or empty for the main thread."""
    from_cli: bool | None = None
    """Whether the request looks like the CLI's own (session header matches the plan); None where it cannot be told."""
    request: Request
    response: Response | None = None
    refusal: Refusal | None = None
    unanswered: bool = False
    """The CLI closed before an answer began; with ``response`` None and this false, the answer was cut before its first byte."""
    before_end: int = 0
    key_redactions: int = 0
    """How often the real key was found in the response and replaced by the placeholder."""
    arrived_us: int = 0
    """Observation: microseconds from the gate's start to the whole request's arrival."""
    first_byte_us: int = 0
    """Observation: microseconds from the gate's start to the first response byte."""
    ended_us: int = 0
    """Observation: microseconds from the gate's start to the end of the response."""

    @property
    def client_gone(self) -> bool:
        """Whether the CLI closed before its answer ended."""
        return self.unanswered or (self.response is not None and self.response.ending == "client-gone")

    @property
    def path(self) -> str:
        """The target's part before ``?``."""
        return self.request.target.split("?", 1)[0]

    @property
    def is_inference(self) -> bool:
        """A request for an answer of the model, on whatever thread: POST, path /v1/messages."""
        return self.request.method == "POST" and self.path == "/v1/messages"

    @property
    def is_main_inference(self) -> bool:
        """A main-thread inference request of A7: POST, path /v1/messages, no agent id."""
        return self.is_inference and not self.agent
