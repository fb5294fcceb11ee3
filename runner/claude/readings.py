"""Reads single events of a transcript into facts: init, result, usage, background tasks, and the system events worth a note.

Boundary: pure. Not here: the stream (transcript.py).
Rules: every function takes any JSON value and never raises; a value of the wrong type is as good as none, except where it would hide an error.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

from runner.claude.facts import Init, Result, Usage
from runner.claude.lines import Event

_MAX_DEPTH = 64
_MAX_TEXT = 500
_MAX_ITEMS = 20
_MAX_TASKS = 10_000
_MAX_SKILLS = 10_000
_OFF = ("completed", "failed", "killed", "stopped", "cancelled", "error")
_NOTED_SUBTYPES = {
    "api_retry": "API retries",
    "permission_denied": "tool calls denied",
    "model_fallback": "switches to another model",
    "compact_boundary": "context compactions",
    "session_writes_lost": "lost session writes",
    "model_refusal_no_fallback": "refusals by the model's safeguards",
}


def thread_of(parent_tool_use_id: Any) -> str | None:
    """Return None for the main thread (null or absent), else the sub-agent call's id."""
    if parent_tool_use_id is None or isinstance(parent_tool_use_id, str):
        return parent_tool_use_id
    return "(no text)"


def read_init(event: Event, earlier: Init | None) -> Init:
    """Read an init event; a later one adds its lists to the earlier one's and keeps the earlier fields."""
    skills = frozenset(name for name in _list(event.skills)[:_MAX_SKILLS] if isinstance(name, str))
    errors = _plugin_errors(event.plugin_errors)
    servers = tuple(
        f"{_text(server.get('name'))}: {_text(server.get('status'))}"
        for server in _list(event.mcp_servers)[:_MAX_ITEMS]
        if isinstance(server, dict) and server.get("status") != "connected"
    )
    if earlier is None:
        return Init(
            session_id=_text(event.session_id),
            model=_text(event.model),
            version=_text(event.claude_code_version),
            skills=skills,
            plugin_errors=errors,
            failed_servers=servers,
        )
    merged = tuple(dict.fromkeys(earlier.plugin_errors + errors))[:_MAX_ITEMS]
    failed = tuple(dict.fromkeys(earlier.failed_servers + servers))[:_MAX_ITEMS]
    return Init(earlier.session_id, earlier.model, earlier.version, earlier.skills | skills, merged, failed)


def read_result(event: Event) -> Result:
    """Read a result event. ``is_error`` is true for anything but false, null, 0 and an empty value."""
    origin = event.origin
    kind = origin.get("kind") if isinstance(origin, dict) else origin
    cost, turns = event.total_cost_usd, event.num_turns
    return Result(
        subtype=event.subtype,
        is_error=bool(event.is_error),
        terminal_reason=event.terminal_reason,
        api_error_status=event.api_error_status,
        stop_reason=event.stop_reason,
        text=event.result,
        structured_output=event.structured_output,
        local_command=event.local_command,
        origin_notification=kind == "task-notification",
        cost_usd=_amount(cost),
        num_turns=turns if isinstance(turns, int) and not isinstance(turns, bool) else None,
        usage=read_usage(event.usage),
        errors=tuple(_text(error) for error in _list(event.errors)[:_MAX_ITEMS]),
        permission_denials=len(_list(event.permission_denials)),
    )


def says_nothing_new(event: Event, earlier: Event) -> bool:
    """Whether an init event's lists equal an earlier one's: the CLI writes one every turn."""
    try:
        return bool(
            event.skills == earlier.skills
            and event.plugin_errors == earlier.plugin_errors
            and event.mcp_servers == earlier.mcp_servers
        )
    except RecursionError:
        return False


def read_usage(usage: Any) -> Usage:
    """Read the four token counts of a ``usage`` object."""
    if not isinstance(usage, dict):
        return Usage()
    get = usage.get
    return Usage(
        _count(get("input_tokens")),
        _count(get("output_tokens")),
        _count(get("cache_read_input_tokens")),
        _count(get("cache_creation_input_tokens")),
    )


def add_usage(left: Usage, right: Usage) -> Usage:
    """Return the sum of two counts."""
    return Usage(
        left.input_tokens + right.input_tokens,
        left.output_tokens + right.output_tokens,
        left.cache_read_input_tokens + right.cache_read_input_tokens,
        left.cache_creation_input_tokens + right.cache_creation_input_tokens,
    )


def bounded_json(value: Any) -> Any:
    """Return a JSON value that can be written again by anyone: equal to the given one, but a number that is too large for a float is its name
    as a text (``inf``), and a sentence stands for the whole where it is nested so deeply that writing it could fail.
    """
    level: list[Any] = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, dict | list)
        ]
        if not level:
            return _finite(value)
    return f"(an input nested more than {_MAX_DEPTH} levels deep)"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {key: _finite(held) for key, held in value.items()}
    return [_finite(held) for held in value] if isinstance(value, list) else value


class BackgroundTasks:
    """Which background tasks run, as far as the stream has said."""

    def __init__(self) -> None:
        self._running: set[str] = set()

    @property
    def running(self) -> bool:
        """Whether any runs."""
        return bool(self._running)

    def take(self, event: Event) -> None:
        """Take a system event; ``background_tasks_changed`` lists all that run, the others start or end one."""
        subtype, task = event.subtype, event.task_id
        if subtype == "background_tasks_changed":
            tasks = [entry.get("task_id") for entry in _list(event.tasks) if isinstance(entry, dict)]
            self._running = {_text(entry) for entry in tasks[:_MAX_TASKS]}
        elif subtype == "task_started" and event.is_backgrounded is True and len(self._running) < _MAX_TASKS:
            self._running.add(_text(task))
        elif subtype == "task_notification":
            self._running.discard(_text(task))
        elif subtype == "task_updated":
            patch = event.patch
            if isinstance(patch, dict) and patch.get("status") in _OFF:
                self._running.discard(_text(task))


class Tally:
    """Counts the system events that a reader of the outcome wants to hear of."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def take(self, event: Event) -> None:
        """Count a system event if it is one of the noted ones; unknown subtypes are no news."""
        subtype = event.subtype
        if isinstance(subtype, str) and subtype in _NOTED_SUBTYPES:
            self._counts[subtype] += 1

    def count(self, subtype: str) -> int:
        """Return how many events of one noted subtype came."""
        return self._counts[subtype]

    def notes(self) -> list[str]:
        """Return one sentence per kind."""
        return [f"{_NOTED_SUBTYPES[subtype]}: {count}" for subtype, count in self._counts.items()]


def _plugin_errors(value: Any) -> tuple[str, ...]:
    if not value:
        return ()
    found = []
    for error in value[:_MAX_ITEMS] if isinstance(value, list) else [value]:
        if isinstance(error, dict):
            found.append(
                ": ".join(_text(error.get(name)) for name in ("plugin", "type", "message") if error.get(name))
                or "unnamed"
            )
        else:
            found.append(_text(error))
    return tuple(found)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value[:_MAX_TEXT]
    if isinstance(value, dict | list):
        return json.dumps(bounded_json(value))[:_MAX_TEXT]
    return str(value)[:_MAX_TEXT]


def _amount(value: Any) -> float | None:
    """Return an amount of money; nobody was ever paid for a run."""
    number = _number(value)
    return number if number is None or number >= 0 else None


def _number(value: Any) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _count(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 2**63 else 0
