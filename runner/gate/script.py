"""A scripted provider's script: its form, and which reply a request gets.

Boundary: pure (bytes and values in, values out). Not here: the reply's bytes (script_wire.py), its timing (upstreams/scripted.py).
Rules: replies are tried in the order of the file and the first that matches is taken. All given conditions must hold; none given matches anything.
A reply is used once, unless ``times`` says otherwise (null: without end). A request that no reply matches is unscripted: an error, never
an invented answer.

Lanes: the main thread is one lane, each sub-agent (``x-claude-code-agent-id``) is another; ``nth`` counts the requests of the request's own lane
from 1, matched or not, repeats by the CLI included. So a script that tells sub-agents apart does it by text, not by their order of
arrival, which is random.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, ValidationError, model_validator

from runner.errors import ScriptInvalid
from runner.gate.exchange import Value
from runner.gate.ledger import Endpoint
from runner.schema_words import first_complaint

MAX_SCRIPT_BYTES = 16 * 1024 * 1024


class When(Value):
    """What a request must be for a reply; all given conditions must hold."""

    endpoint: Endpoint = "messages"
    lane: Literal["main", "sub"] | None = None
    nth: int | None = Field(default=None, ge=1)
    """The n-th request of its lane."""
    last_user_contains: str | None = None
    """In the text of the last user message, tool results included."""
    any_contains: str | None = None
    """In any text of the request: system, messages, tool calls and results."""
    not_contains: str | None = None
    """In no text of the request."""
    has_tool_result: str | None = None
    """A tool result for this ``tool_use_id`` is among the messages."""
    tool_offered: str | None = None
    """A tool of this name is offered."""
    model: str | None = None
    stream: bool | None = None


class TextBlock(Value):
    """A text."""

    type: Literal["text"]
    text: str


class ToolUseBlock(Value):
    """A tool call."""

    type: Literal["tool_use"]
    id: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    name: str = Field(min_length=1)
    input: dict[str, JsonValue] = Field(default_factory=dict)


class ThinkingBlock(Value):
    """A thought, with the signature that the CLI sends back."""

    type: Literal["thinking"]
    thinking: str
    signature: str = "scripted"


Block = Annotated[TextBlock | ToolUseBlock | ThinkingBlock, Field(discriminator="type")]


class ScriptedUsage(Value):
    """Token counts that the reply claims."""

    input_tokens: int = Field(default=100, ge=0)
    output_tokens: int = Field(default=20, ge=0)
    cache_creation_input_tokens: int = Field(default=0, ge=0)
    cache_read_input_tokens: int = Field(default=0, ge=0)


class Message(Value):
    """A message; an event stream or one JSON object, as the request asks."""

    content: tuple[Block, ...] = ()
    stop_reason: str | None = None
    """Left out: ``tool_use`` if there is a tool call, else ``end_turn``."""
    usage: ScriptedUsage = ScriptedUsage()
    model: str | None = None
    """Left out: the model that was asked for."""
    id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_-]{1,64}$")
    """Left out: ``msg_0001`` for the script's first reply, and so on (``msg_0001_2`` for its second use)."""


HeaderText = Annotated[str, Field(pattern=r"^[\x20-\x7e]*$")]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,80}$")]


class ErrorReply(Value):
    """An error in the provider's shape."""

    status: int = Field(ge=400, le=599)
    type: str = "api_error"
    message: str = "scripted error"
    headers: dict[HeaderName, HeaderText] = Field(default_factory=dict)


class RawReply(Value):
    """Any status, headers and text. Headers go through the gate's allow list; framing is the gate's."""

    status: int = Field(default=200, ge=200, le=599)
    headers: dict[HeaderName, HeaderText] = Field(default_factory=dict)
    body: str = ""


class ErrorEvent(Value):
    """An ``error`` event in a stream that has begun."""

    type: str = "overloaded_error"
    message: str = "scripted error event"


class Reply(Value):
    """One answer (exactly one of the first four), and what goes wrong with it."""

    message: Message | None = None
    error: ErrorReply | None = None
    raw: RawReply | None = None
    count_tokens: int | None = Field(default=None, ge=0)
    delay_ms: int = Field(default=0, ge=0)
    """Before the status line; with ``ping_every_ms`` before the first event."""
    ping_every_ms: int | None = Field(default=None, ge=1)
    """``ping`` events while the delay lasts (messages as streams only)."""
    chunk_bytes: int | None = Field(default=None, ge=1)
    """Body in pieces of that size; left out: one piece an event."""
    chunk_delay_ms: int = Field(default=0, ge=0)
    """Between pieces."""
    cut_after_bytes: int | None = Field(default=None, ge=0)
    """The connection closes after that many bytes of the body."""
    cut_after_event: int | str | None = None
    """The connection closes after the n-th event, or after the first event of that name."""
    error_event: ErrorEvent | None = None
    """In place of what comes after ``cut_after_event`` (left out: after the first event); the stream then ends in good order."""
    malformed: bool = False
    """The first content delta (of a JSON body: the whole) breaks off in the middle of its JSON."""
    reset: bool = False
    """The cut is a TCP reset; without a cut, before any byte."""

    @model_validator(mode="after")
    def _one_answer(self) -> Reply:
        given = [name for name in ("message", "error", "raw", "count_tokens") if getattr(self, name) is not None]
        if len(given) != 1 and not (self.reset and not given):
            raise ValueError("exactly one of message, error, raw and count_tokens is needed (none with a bare reset)")
        if self.cut_after_bytes is not None and self.cut_after_event is not None:
            raise ValueError("cut_after_bytes and cut_after_event exclude each other")
        return self


class Rule(Value):
    """A reply and when it is given."""

    when: When = When()
    reply: Reply
    times: int | None = Field(default=1, ge=1)
    """How often it may be given; null for any number."""
    note: str = ""
    """For the reader of the script."""


class Script(Value):
    """A whole script."""

    schema_version: Literal[1]
    replies: tuple[Rule, ...] = Field(min_length=1)
    note: str = ""


@dataclass(frozen=True)
class Asked:
    """What a script may look at in a request."""

    endpoint: Endpoint
    agent: str
    document: Mapping[str, Any] = field(repr=False)

    @property
    def lane(self) -> Literal["main", "sub"]:
        """``main``, or ``sub`` for any sub-agent."""
        return "sub" if self.agent else "main"

    @cached_property
    def messages(self) -> list[dict[str, Any]]:
        """The messages that are objects."""
        given = self.document.get("messages")
        return [message for message in given if isinstance(message, dict)] if isinstance(given, list) else []

    @cached_property
    def last_user(self) -> str:
        """All text of the last user message."""
        last: dict[str, Any] = next(
            (message for message in reversed(self.messages) if message.get("role") == "user"), {}
        )
        return "\n".join(_texts(last.get("content")))

    @cached_property
    def all_text(self) -> str:
        """All text of the request."""
        return "\n".join(_texts([self.document.get("system"), [message.get("content") for message in self.messages]]))

    def has_tool_result(self, call: str) -> bool:
        """Say whether a result of that call is among the messages."""
        blocks = (
            block
            for message in self.messages
            if isinstance(message.get("content"), list)
            for block in message["content"]
        )
        return any(
            isinstance(block, dict) and block.get("type") == "tool_result" and block.get("tool_use_id") == call
            for block in blocks
        )

    def offers(self, tool: str) -> bool:
        """Say whether a tool of that name is offered."""
        tools = self.document.get("tools")
        return isinstance(tools, list) and any(
            isinstance(offered, dict) and offered.get("name") == tool for offered in tools
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a script has come: uses by rule, requests by lane (agent id)."""

    uses: Mapping[int, int] = field(default_factory=dict)
    lanes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """The rule (0-based) that matched, and how often it had been used before."""

    index: int
    rule: Rule
    used_before: int

    @property
    def default_id(self) -> str:
        """The message id, where the script gives none: the same whatever else happened before."""
        return f"msg_{self.index + 1:04d}" + (f"_{self.used_before + 1}" if self.used_before else "")


def parse_script(data: bytes, name: str = "script") -> Script:
    """Return the script in ``data``.

    Raises: ScriptInvalid, ``where`` naming the place as a JSON pointer.
    """
    if len(data) > MAX_SCRIPT_BYTES:
        raise ScriptInvalid(f"the script has {len(data)} bytes; at most {MAX_SCRIPT_BYTES} are read", where=name)
    try:
        json.loads(data, object_pairs_hook=_no_doubles)
        return Script.model_validate_json(data)
    except ValidationError as error:
        pointer, words, hint = first_complaint(error, Script)
        raise ScriptInvalid(f"the script is not usable: {words}", where=f"{name}#{pointer}", hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise ScriptInvalid(f"the script is not usable: {error}", where=name) from error


def choose(script: Script, asked: Asked, progress: Progress) -> tuple[Choice | None, Progress]:
    """Return the reply for a request, or None, and the script's new progress."""
    lanes = dict(progress.lanes)
    if asked.endpoint == "messages":
        lanes[asked.agent] = lanes.get(asked.agent, 0) + 1
    for index, rule in enumerate(script.replies):
        used = progress.uses.get(index, 0)
        if (rule.times is None or used < rule.times) and mismatch(rule.when, asked, lanes.get(asked.agent, 0)) is None:
            return Choice(index, rule, used), Progress({**progress.uses, index: used + 1}, lanes)
    return None, Progress(progress.uses, lanes)


def mismatch(when: When, asked: Asked, nth: int) -> str | None:
    """Return the name of the first condition that does not hold, or None if all do."""
    return next((name for name, holds in _conditions(when, asked, nth) if not holds), None)


def _conditions(when: When, asked: Asked, nth: int) -> Iterator[tuple[str, bool]]:
    yield "endpoint", when.endpoint == asked.endpoint
    yield "lane", when.lane is None or when.lane == asked.lane
    yield "nth", when.nth is None or when.nth == nth
    yield "model", when.model is None or when.model == asked.document.get("model")
    yield "stream", when.stream is None or when.stream == bool(asked.document.get("stream", False))
    yield "tool_offered", when.tool_offered is None or asked.offers(when.tool_offered)
    yield "has_tool_result", when.has_tool_result is None or asked.has_tool_result(when.has_tool_result)
    yield "last_user_contains", when.last_user_contains is None or when.last_user_contains in asked.last_user
    yield "any_contains", when.any_contains is None or when.any_contains in asked.all_text
    yield "not_contains", when.not_contains is None or when.not_contains not in asked.all_text


def explain(script: Script, asked: Asked, progress: Progress) -> str:
    """Say why no reply matched: for the first few rules the condition that failed. ``progress`` is the one after the request."""
    nth = progress.lanes.get(asked.agent, 0)
    why: list[str] = []
    for index, rule in enumerate(script.replies):
        failed = mismatch(rule.when, asked, nth)
        why.append(f"reply {index + 1}: " + (f"{failed} does not hold" if failed else "used up"))
    shown = "; ".join(why[:8]) + ("; …" if len(why) > 8 else "")
    said = asked.last_user[-80:].strip()
    return f"no scripted reply for request {nth} of lane {asked.lane} (last user text ends {said!r}): {shown}"


def _texts(value: Any) -> Iterator[str]:
    """Yield the strings of message content, tool calls and results, in order; not ids, types and signatures."""
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, list):
            todo.extend(reversed(item))
        elif isinstance(item, dict):
            kept = (
                item
                if "type" not in item
                else {key: item[key] for key in ("text", "thinking", "name", "input", "content") if key in item}
            )
            if item.get("type") == "tool_use" and isinstance(item.get("input"), dict):
                kept = {**kept, "input": json.dumps(item["input"], ensure_ascii=False)}
            todo.extend(reversed(list(kept.values())))


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("an object has the same key twice")
    return made
