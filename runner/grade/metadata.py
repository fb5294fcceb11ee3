"""What checks are told of a run beside its answer: texts, tool calls, and the result's numbers, under the names that Promptfoo's own Claude provider uses (facts/promptfoo.md (g)).

Boundary: pure. Not here: whether the skill ran (runner/claude/evidence.py decides it, and its skill calls are taken as they are), the simulator's trace (it is a part of its own).
Rules: a value is as the transcript has it, or absent; nothing is guessed. What no other program could read (nested too deeply, a number without end) is told in words (``bounded_json``). Of duplicate call ids on one thread the last wins (A8). A lost line changes the outcome and is not met here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.claude.facts import SkillCall
from runner.claude.lines import BOM, JSON_BLANKS, Event, decode_line, loads
from runner.claude.readings import bounded_json, thread_of

_SYNTHETIC = "<synthetic>"
_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "content_filter",
}
_RESULT_NAMES = (
    ("numTurns", "num_turns"),
    ("durationMs", "duration_ms"),
    ("durationApiMs", "duration_api_ms"),
    ("modelUsage", "modelUsage"),
    ("permissionDenials", "permission_denials"),
    ("terminalReason", "terminal_reason"),
    ("structuredOutput", "structured_output"),
    ("apiErrorStatus", "api_error_status"),
    ("sessionId", "session_id"),
)


@dataclass(slots=True)
class ToolCall:
    """One tool call of any thread, with its result where there is one."""

    id: str
    name: str
    input: Any
    parent: str | None
    """The sub-agent call on whose thread it stands; None on the main thread."""
    output: Any = None
    is_error: bool = False
    answered: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the call under the provider's names."""
        return {
            "id": self.id,
            "name": self.name,
            "input": self.input,
            "output": self.output,
            "is_error": self.is_error,
            "parentToolUseId": self.parent,
        }


@dataclass(frozen=True)
class Seen:
    """What a transcript shows."""

    main_texts: tuple[str, ...] = ()
    """Every non-blank text of the main thread by a real model, in order."""
    tool_calls: tuple[ToolCall, ...] = ()
    result: Mapping[str, Any] = field(default_factory=dict)
    """The answering result event, raw."""

    @property
    def finish_reason(self) -> str | None:
        """Why the model stopped, in Promptfoo's words."""
        reason = self.result.get("stop_reason")
        return _FINISH.get(reason, reason) if isinstance(reason, str) else None


def read_seen(transcript: bytes) -> Seen:
    """Read a whole transcript."""
    texts: list[str] = []
    calls: dict[tuple[str | None, str], ToolCall] = {}
    results: list[dict[str, Any]] = []
    for line in transcript.removeprefix(BOM).split(b"\n"):
        decoded = decode_line(line) if line.strip(JSON_BLANKS) else None
        for event in decoded.events if decoded is not None else ():
            if event.type == "assistant":
                _assistant(event, texts, calls)
            elif event.type == "user":
                _user(event, calls)
            elif event.type == "result":
                results.append(_raw(line, event))
    own = [result for result in results if not _notified(result)]
    answering = (own or results or [{}])[-1]
    return Seen(tuple(texts), tuple(calls.values()), answering)


def metadata_of(seen: Seen, skill_calls: Sequence[SkillCall]) -> dict[str, Any]:
    """Return the provider's metadata: ``skillCalls``, ``toolCalls``, ``numTurns``, … ; what the result does not say is absent.

    ``skillCalls`` lists slash loads too (``source: slash``), which the provider itself cannot see.
    """
    metadata: dict[str, Any] = {
        "skillCalls": [
            {
                "name": call.name,
                "input": call.input,
                "is_error": call.state != "loaded",
                "source": call.way,
                "parentToolUseId": call.parent,
            }
            for call in skill_calls
            if call.name is not None
        ],
        "toolCalls": [call.as_json() for call in seen.tool_calls],
    }
    for name, key in _RESULT_NAMES:
        if seen.result.get(key) is not None:
            metadata[name] = bounded_json(seen.result[key])
    return metadata


def spans_of(calls: Iterable[ToolCall]) -> list[dict[str, Any]]:
    """Return the tool calls as trace spans, one after another, for ``trajectory:*`` and ``trace-*``. Times are an order and no durations."""
    import json

    spans: list[dict[str, Any]] = []
    for number, call in enumerate(calls):
        attributes = {"tool.name": call.name, "tool.arguments": json.dumps(call.input)}
        span: dict[str, Any] = {
            "spanId": f"{number + 1:016x}",
            "name": call.name,
            "startTime": number * 2,
            "endTime": number * 2 + 1,
            "attributes": attributes,
        }
        if call.is_error or not call.answered:
            span |= {"statusCode": 2, "statusMessage": "error" if call.answered else "no result"}
        spans.append(span)
    return spans


def _assistant(event: Event, texts: list[str], calls: dict[tuple[str | None, str], ToolCall]) -> None:
    message = event.message
    if not isinstance(message, dict):
        return
    parent = thread_of(event.parent_tool_use_id)
    content = message.get("content")
    for block in [{"type": "text", "text": content}] if isinstance(content, str) else _blocks(content):
        if block.get("type") == "text" and parent is None and message.get("model") != _SYNTHETIC:
            text = block.get("text")
            if isinstance(text, str) and text.strip():
                texts.append(text)
        elif block.get("type") == "tool_use" and isinstance(block.get("name"), str):
            call_id = block.get("id")
            name = call_id if isinstance(call_id, str) else f"(none {len(calls)})"
            calls.pop((parent, name), None)
            calls[parent, name] = ToolCall(name, block["name"], bounded_json(block.get("input")), parent)


def _user(event: Event, calls: dict[tuple[str | None, str], ToolCall]) -> None:
    content = event.message.get("content") if isinstance(event.message, dict) else None
    parent = thread_of(event.parent_tool_use_id)
    for block in _blocks(content):
        call_id = block.get("tool_use_id")
        call = calls.get((parent, call_id)) if isinstance(call_id, str) else None
        if block.get("type") == "tool_result" and call is not None:
            call.output, call.is_error, call.answered = (
                bounded_json(_flat(block.get("content"))),
                bool(block.get("is_error")),
                True,
            )


def _flat(content: Any) -> Any:
    """Return a result's text where it is one text or text blocks only, else its JSON."""
    blocks = _blocks(content)
    if (
        isinstance(content, list)
        and len(blocks) == len(content)
        and all(isinstance(block.get("text"), str) for block in blocks)
    ):
        return "".join(block["text"] for block in blocks)
    return content


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _raw(line: bytes, event: Event) -> dict[str, Any]:
    """Return a result event with all its members; of a joined line only those that every reader knows."""
    try:
        value = loads(line)
    except ValueError:
        value = None
    if isinstance(value, dict):
        return value
    names = ("origin", "num_turns", "terminal_reason", "api_error_status", "stop_reason", "structured_output")
    return {name: getattr(event, name) for name in names}


def _notified(result: Mapping[str, Any]) -> bool:
    origin = result.get("origin")
    return (origin.get("kind") if isinstance(origin, dict) else origin) == "task-notification"
