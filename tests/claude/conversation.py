"""What the tests of verdicts are made of: events and requests as the CLI writes them, and the row that they come to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CASES = Path(__file__).resolve().parents[1] / "cases"

Row = tuple[str, str | None, str | None, bool | None, bool | None]
"""Outcome, code, skill state, and each witness's word."""

INIT = {"type": "system", "subtype": "init", "session_id": "s", "model": "m-1", "skills": ["cf"], "mcp_servers": []}
RESULT = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "terminal_reason": "completed",
    "stop_reason": "end_turn",
    "api_error_status": None,
    "result": "42 units",
    "total_cost_usd": 0.1,
}
MEASURED: Row = ("measured", None, None, None, None)
RAN: Row = ("measured", None, "ran", True, None)
FAILED: Row = ("error", "skill-failed", "failed", False, None)
ABSENT: Row = ("error", "skill-absent", "absent", False, None)
UNPROVEN: Row = ("error", "skill-unproven", "unproven", None, None)
AMBIGUOUS: Row = ("error", "skill-ambiguous", "unproven", None, None)
CF_TAGS = "<command-message>cf</command-message>\n<command-name>/cf</command-name>"
PROSE = {"type": "user", "message": {"role": "user", "content": "do it"}, "parent_tool_use_id": None, "isReplay": True}


def error(code: str) -> Row:
    """An error that no skill was required for."""
    return ("error", code, None, None, None)


def assistant(*blocks: Any, parent: Any = None, model: str = "m-1") -> dict[str, Any]:
    """One assistant event."""
    return {
        "type": "assistant",
        "message": {"id": "msg_1", "role": "assistant", "model": model, "content": list(blocks)},
        "parent_tool_use_id": parent,
    }


def text(words: str = "42 units", **fields: Any) -> dict[str, Any]:
    """One main-thread text."""
    return assistant({"type": "text", "text": words}, **fields)


def call(given: Any, call_id: Any = "t1", *, name: str = "Skill", parent: Any = None) -> dict[str, Any]:
    """One tool call, of the Skill tool unless told otherwise."""
    return assistant({"type": "tool_use", "id": call_id, "name": name, "input": given}, parent=parent)


def answer(
    content: Any = "Launching skill: cf", call_id: Any = "t1", *, parent: Any = None, **fields: Any
) -> dict[str, Any]:
    """One tool result; ``is_error`` stands in the block, other fields in the event."""
    block = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    if "is_error" in fields:
        block["is_error"] = fields.pop("is_error")
    return {"type": "user", "message": {"role": "user", "content": [block]}, "parent_tool_use_id": parent, **fields}


def replay(content: Any, **fields: Any) -> dict[str, Any]:
    """One replayed user event."""
    return {**PROSE, "message": {"role": "user", "content": content}, **fields}


def result(**fields: Any) -> dict[str, Any]:
    """A good result; a field given as ``...`` is left out."""
    return {key: value for key, value in {**RESULT, **fields}.items() if value is not ...}


def data(*events: Any) -> bytes:
    """Events as lines; bytes as they are."""
    return b"".join(event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n" for event in events)


CALL, GOOD, BAD = call({"skill": "cf"}), answer(), answer("no", is_error=True)
NOTE = {"origin": {"kind": "task-notification", "task_id": "b1"}}
