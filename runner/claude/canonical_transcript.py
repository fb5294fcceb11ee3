"""A transcript in the form in which two runs of one plan are compared (DESIGN "Bit for bit"; facts/namespaces-and-gate.md "Same bytes").

Boundary: pure. Not here: the rules for text (runner/gate/rules.py), the comparison of whole attempts (runner/reproduce.py).
Rules: left out are event ids (of the CLI's own messages too), stamps and everything measured in milliseconds, by the names of their keys, but in the input of a tool; text goes through the same rules as requests. Nothing else is changed, so that
whatever else differs is seen. Events of parallel tools and sub-agents come as they come: where only the order differs, that is counted as ``event-order``. What the model said has one order
in each thread, and the first and the last event are what they are.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from runner.claude.lines import loads
from runner.difference import Difference, first_difference, text_difference
from runner.gate.rules import ID_RULES, Renaming, canonical_value

EVENT_ORDER = "event-order"
LEFT_OUT = frozenset({"uuid", "timestamp", "logical_parent_uuid", "run_id", "start_time", "end_time"})

Values = tuple[tuple[str, str], ...]
"""Rule and value, as an event has them."""


@dataclass(frozen=True)
class CanonicalEvents:
    """A transcript's events in order, each as canonical JSON, with what the rules replaced."""

    events: tuple[str, ...]
    values: tuple[Values, ...]


def canonical_events(transcript: bytes) -> CanonicalEvents:
    """Return a transcript's lines in canonical form; a line that is no JSON stands as it is."""
    events, values = [], []
    for line in transcript.split(b"\n"):
        if not line.strip():
            continue
        found: list[tuple[str, str]] = []
        try:
            value = canonical_value(_without_measures(loads(line)), found)
            events.append(json.dumps(value, sort_keys=True, separators=(",", ":")))
        except (ValueError, TypeError, RecursionError):  # TypeError: nested too deeply to be kept (lines.py)
            events.append(line.decode("utf-8", "surrogateescape"))
        values.append(tuple(found))
    return CanonicalEvents(tuple(events), tuple(values))


def compare_events(
    recorded: CanonicalEvents, now: CanonicalEvents, renaming: Renaming | None = None
) -> tuple[Counter[str], Difference | None]:
    """Return which rules were needed and how often, and the first difference that no rule explains. ``renaming`` is what the requests have shown of ids; it is not changed."""
    if recorded.events == now.events:
        rules = _counted(zip(recorded.values, now.values, strict=True))
    elif sorted(recorded.events) == sorted(now.events) and _threads(recorded.events) == _threads(now.events):
        moved = sum(old != new for old, new in zip(recorded.events, now.events, strict=True))
        pairs = zip(
            _by_text(recorded), _by_text(now), strict=True
        )  # which of two that are alike is which cannot be known
        rules = _counted((olds, news) for (_, olds), (_, news) in pairs) + Counter({EVENT_ORDER: moved})
    else:
        return Counter(), _first(recorded.events, now.events)
    difference = _id_difference(recorded, now, renaming or Renaming())
    return (rules, None) if difference is None else (Counter(), difference)


def _counted(pairs: Iterable[tuple[Values, Values]]) -> Counter[str]:
    return Counter(rule for olds, news in pairs for (rule, old), (_, new) in zip(olds, news, strict=True) if old != new)


def _by_text(given: CanonicalEvents) -> list[tuple[str, Values]]:
    return sorted(zip(given.events, given.values, strict=True), key=lambda event: event[0])


def _first(recorded: tuple[str, ...], now: tuple[str, ...]) -> Difference:
    for number, (old, new) in enumerate(zip(recorded, now, strict=False), 1):
        if old != new:
            return _event_difference(old, new, f"/event/{number}")
    count = min(len(recorded), len(now)) + 1
    return Difference(f"/event/{count}", f"{len(recorded)} events", f"{len(now)} events")


def _id_difference(recorded: CanonicalEvents, now: CanonicalEvents, known: Renaming) -> Difference | None:
    """Return the first id that stands for another one than elsewhere. Events that are alike but for their ids may have changed places, so that they tell nothing."""
    renaming = Renaming(dict(known.there), dict(known.back))
    once = {text for text, count in Counter(recorded.events).items() if count == 1}
    found = {text: values for text, values in zip(now.events, now.values, strict=True) if text in once}
    for number, (text, values) in enumerate(zip(recorded.events, recorded.values, strict=True), 1):
        for (rule, old), (_, new) in zip(values, found.get(text, ()), strict=False):
            if rule in ID_RULES:
                if not renaming.agrees([(old, new)]):
                    other = f"{renaming.there.get(old, 'another id')} elsewhere"
                    return Difference(f"/event/{number}", f"{rule} {old}", f"{new}, and {other}")
                renaming.learn([(old, new)])
    return None


def _threads(events: tuple[str, ...]) -> dict[str, list[str]]:
    """Return what each thread's model said, in order, by the call that began the thread; under ``ends`` the first and the last event."""
    threads: dict[str, list[str]] = {"ends": [*events[:1], *events[-1:]]}
    for event in events:
        try:
            value = json.loads(event)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and value.get("type") == "assistant":
            threads.setdefault(f"thread {value.get('parent_tool_use_id')}", []).append(event)
    return threads


def _event_difference(old: str, new: str, pointer: str) -> Difference:
    try:
        found = first_difference(json.loads(old), json.loads(new), pointer)
    except (ValueError, RecursionError):
        found = None
    return found or text_difference(old, new, pointer)


def _without_measures(value: Any) -> Any:
    if isinstance(value, dict):
        synthetic = value.get("model") == "<synthetic>"  # the CLI's own message: it draws an id for it
        call = value.get("type") == "tool_use"  # what a model asks a tool for has keys of the tool's, none of the CLI's
        return {
            key: item if call and key == "input" else _without_measures(item)
            for key, item in value.items()
            if key not in LEFT_OUT and not key.endswith(("_ms", "Ms")) and not (synthetic and key == "id")
        }
    if isinstance(value, list):
        return [_without_measures(item) for item in value]
    return value
