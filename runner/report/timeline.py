"""What happened in a run, in order: messages, tool calls with their results, and the result, from the transcript.

Boundary: pure. Not here: what the events mean for the outcome (runner/claude), drawing (templates/).
Rules: a view and never evidence. Whatever the bytes, the answer is a timeline; a line that is no JSON object is counted. Memory is bounded by the bounds, not by the transcript:
the first and the last steps are kept and the rest is counted. A result goes to the last call of its id on the same thread, wherever it stands in the stream.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from runner.claude.case import shown
from runner.claude.lines import JSON_BLANKS, Event, LineSplitter, decode_line, decode_object
from runner.claude.names import result_text
from runner.claude.transcript import MAX_LINE_BYTES
from runner.report.bounds import Bounds, Excerpt, excerpt, excerpt_json, known_usd, usd_text

StepKind = Literal["start", "prompt", "user", "skill", "text", "thinking", "call", "other", "result"]
CallState = Literal["good", "error", "open"]

_SKILL_TEXT = "Base directory for this skill: "
_CHUNK = 1 << 20
_MAX_WAITING = 1_000
"""Calls without a result that are remembered."""
_MAX_LANES = 1_000
_MAX_KINDS = 20
_MAX_NAME = 80
_SUMMARY_KEYS = ("skill", "command", "file_path", "path", "pattern", "query", "url", "description", "subject")
_SUMMARY_CHARS = 160


@dataclass(slots=True)
class Step:
    """One thing that happened. Filled in while the stream is read (a call's result comes later), not changed afterwards."""

    kind: StepKind
    title: str
    text: Excerpt
    lane: int = 0
    """0 for the main thread, else the number of the sub-agent in order of appearance."""
    message: str = ""
    """Id of the model's message."""
    request: int | None = None
    """Number of the exchange that brought this message."""
    at_us: int | None = None
    """When that request arrived at the gate, in microseconds of the gate's clock."""
    summary: str = ""
    """Of a call: the argument that says most."""
    state: CallState | None = None
    result: Excerpt | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """Which exchange a message came from."""

    request: int
    at_us: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """The steps that are shown, and what is not."""

    first: tuple[Step, ...]
    left_out: int
    """Steps between the first and the last ones."""
    last: tuple[Step, ...]
    calls: int
    failed_calls: int
    agents: int
    """Sub-agents that were seen."""
    other_events: tuple[tuple[str, int], ...]
    """Kinds of events that are no step, with their number."""
    unparsed: int

    @property
    def steps(self) -> tuple[Step, ...]:
        """Everything that is shown."""
        return self.first + self.last

    @property
    def total(self) -> int:
        """All steps, shown or not."""
        return len(self.first) + self.left_out + len(self.last)


def read_timeline(transcript: bytes, bounds: Bounds, sources: Mapping[str, Source]) -> Timeline:
    """Return the timeline of a transcript. ``sources`` says which exchange brought a message, by its id."""
    builder = _Builder(bounds, sources)
    for line in _lines(transcript):
        if line is None:
            builder.unparsed += 1
            continue
        stripped = line.strip(JSON_BLANKS)
        if not stripped:
            continue
        event = decode_object(stripped)
        events = [event] if event is not None else None
        if events is None:
            read = decode_line(stripped.removeprefix(b"\xef\xbb\xbf"))
            events = None if read is None else read.events
        if events is None:
            builder.unparsed += 1
            continue
        for one in events:
            builder.take(one)
    return builder.close()


def _lines(transcript: bytes) -> Iterator[bytes | None]:
    splitter = LineSplitter(MAX_LINE_BYTES)
    for start in range(0, len(transcript), _CHUNK):
        yield from splitter.feed(transcript[start : start + _CHUNK])
    yield from splitter.close()


@dataclass(slots=True)
class _Builder:
    bounds: Bounds
    sources: Mapping[str, Source]
    unparsed: int = 0
    _first: list[Step] = field(default_factory=list)
    _last: deque[Step] = field(default_factory=deque)
    _left_out: int = 0
    _calls: int = 0
    _failed: int = 0
    _waiting: OrderedDict[tuple[int, str], Step] = field(default_factory=OrderedDict)
    _lanes: dict[str, int] = field(default_factory=dict)
    _said: Excerpt | None = None
    """The main thread's last text."""
    _others: Counter[str] = field(default_factory=Counter)

    def take(self, event: Event) -> None:
        lane = self._lane(event.parent_tool_use_id)
        match event.type:
            case "assistant":
                self._assistant(event.message, lane)
            case "user":
                self._user(event, lane)
            case "result":
                self._result(event)
            case "system" if event.subtype == "init":
                self._start(event)
            case _:
                self._other(event)

    def close(self) -> Timeline:
        return Timeline(
            tuple(self._first),
            self._left_out,
            tuple(self._last),
            self._calls,
            self._failed,
            len(self._lanes),
            tuple(sorted(self._others.items())),
            self.unparsed,
        )

    def _add(self, step: Step) -> None:
        if len(self._first) < self.bounds.first_steps:
            self._first.append(step)
            return
        self._last.append(step)
        if len(self._last) > self.bounds.last_steps:
            self._last.popleft()
            self._left_out += 1

    def _lane(self, parent: Any) -> int:
        if not isinstance(parent, str) or not parent:
            return 0
        if parent not in self._lanes and len(self._lanes) < _MAX_LANES:
            self._lanes[parent] = len(self._lanes) + 1
        return self._lanes.get(parent, _MAX_LANES)

    def _text(self, value: Any) -> Excerpt:
        return excerpt(value if isinstance(value, str) else shown(value), self.bounds.text_chars)

    def _start(self, event: Event) -> None:
        skills = len(event.skills) if isinstance(event.skills, list) else 0
        words = f"Claude CLI {shown(event.claude_code_version)}, model {shown(event.model)}, {skills} skills listed"
        self._add(Step("start", "The CLI has started", self._text(words)))

    def _assistant(self, message: Any, lane: int) -> None:
        fields = message if isinstance(message, dict) else {}
        given_id = fields.get("id")
        message_id = given_id if isinstance(given_id, str) else ""
        source = self.sources.get(message_id)
        for block in _blocks(fields.get("content")):
            step = self._block(block, lane)
            step.lane, step.message = lane, message_id
            if step.kind == "text" and not lane:
                self._said = step.text
            if source is not None:
                step.request, step.at_us = source.request, source.at_us
            self._add(step)

    def _block(self, block: dict[str, Any], lane: int) -> Step:
        match block.get("type"):
            case "text":
                return Step("text", "The model says", self._text(block.get("text")))
            case "thinking":
                return Step("thinking", "The model thinks", self._text(block.get("thinking")))
            case "tool_use":
                return self._call(block, lane)
            case kind:
                return Step("other", f"Block of type {shown(kind)}", excerpt_json(block, self.bounds.text_chars))

    def _call(self, block: dict[str, Any], lane: int) -> Step:
        self._calls += 1
        given = block.get("input")
        step = Step(
            "call",
            shown(block.get("name"))[:_MAX_NAME],
            excerpt_json(given, self.bounds.text_chars),
            summary=_summary(given),
            state="open",
        )
        if isinstance(block.get("id"), str):
            self._waiting[lane, block["id"]] = step
            if len(self._waiting) > _MAX_WAITING:
                self._waiting.popitem(last=False)
        return step

    def _user(self, event: Event, lane: int) -> None:
        content = event.message.get("content") if isinstance(event.message, dict) else None
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        for block in _blocks(content):
            match block.get("type"):
                case "tool_result":
                    self._tool_result(block, lane)
                case "text":
                    self._add(self._user_text(block.get("text"), lane, replay=event.is_replay is True))
                case kind:
                    words = f"User block of type {shown(kind)}"
                    self._add(Step("other", words, excerpt_json(block, self.bounds.text_chars), lane))

    def _user_text(self, text: Any, lane: int, *, replay: bool) -> Step:
        if isinstance(text, str) and text.startswith(_SKILL_TEXT):
            return Step("skill", "A skill's text was given to the model", self._text(text), lane)
        if replay:
            return Step("prompt", "The prompt", self._text(text), lane)
        return Step("user", "Given to the sub-agent" if lane else "Given to the model", self._text(text), lane)

    def _tool_result(self, block: dict[str, Any], lane: int) -> None:
        bad = bool(block.get("is_error"))
        self._failed += bad
        text = excerpt(_result_words(block.get("content")), self.bounds.text_chars)
        call_id = block.get("tool_use_id")
        step = self._waiting.pop((lane, call_id), None) if isinstance(call_id, str) else None
        if step is None:
            self._add(Step("other", "A result without its call", text, lane))
            return
        step.result, step.state = text, "error" if bad else "good"

    def _result(self, event: Event) -> None:
        facts = [
            f"subtype {shown(event.subtype)}",
            "is_error " + (str(event.is_error).lower() if isinstance(event.is_error, bool) else shown(event.is_error)),
        ]
        if event.terminal_reason is not None:
            facts.append(f"terminal_reason {shown(event.terminal_reason)}")
        if event.num_turns is not None:
            facts.append(f"num_turns {shown(event.num_turns)}")
        cost = event.total_cost_usd
        if isinstance(cost, (int, float)) and not isinstance(cost, bool):
            facts.append(usd_text(known_usd(cost)))
        text = self._text("" if event.result is None else event.result)
        if text and text == self._said:
            facts.append("its text is the model's last message")
            text = self._text("")
        step = Step("result", "The CLI's result", text, summary=", ".join(facts))
        self._add(step)

    def _other(self, event: Event) -> None:
        kind = shown(event.type) if event.subtype is None else f"{shown(event.type)} {shown(event.subtype)}"
        kind = kind[:_MAX_NAME]
        self._others[kind if kind in self._others or len(self._others) < _MAX_KINDS else "(others)"] += 1


def _blocks(content: Any) -> Iterator[dict[str, Any]]:
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict):
            yield block


def _result_words(content: Any) -> str:
    """Return a tool result as text; blocks that are no text are named by their type."""
    text = result_text(content)
    others = [shown(block.get("type")) for block in _blocks(content) if block.get("type") != "text"]
    if not others:
        return text
    return "\n".join([text, *(f"[block of type {kind}]" for kind in others[:20])]).lstrip("\n")


def _summary(given: Any) -> str:
    """Return the argument of a call that says most, on one line."""
    if not isinstance(given, dict):
        return ""
    words = next((given[key] for key in _SUMMARY_KEYS if isinstance(given.get(key), str)), "")
    line = " ".join(words[: 4 * _SUMMARY_CHARS].split())
    return line if len(line) <= _SUMMARY_CHARS else line[:_SUMMARY_CHARS] + "…"
