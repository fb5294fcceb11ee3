"""Where two JSON values first differ, as a pointer and both sides, shortened for people.

Boundary: pure. Not here: what may differ (runner/gate/rules.py).
Rules: order is document order, keys of an object in their sorted order, so that the same pair always gives the same answer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_AROUND = 60
_ENTRY = 300
"""Characters of an item that only one side has: enough for an entry of a workspace with its path and digest."""
_ABSENT = object()


@dataclass(frozen=True)
class Difference:
    """The first place where two values differ."""

    pointer: str
    """JSON pointer; empty for the whole value. For text, ``@N`` behind it is the character where the two part."""
    recorded: str
    now: str

    def __str__(self) -> str:
        """Return one line for people; the caller escapes it."""
        return f"{self.pointer or '(whole)'}: recorded {self.recorded}, now {self.now}"

    def as_json(self) -> dict[str, str]:
        """Return pointer and both sides."""
        return {"pointer": self.pointer, "recorded": self.recorded, "now": self.now}


def first_difference(recorded: Any, now: Any, pointer: str = "") -> Difference | None:
    """Return the first difference of two JSON values, or None."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        for key in sorted({*recorded, *now}):
            step = f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"
            found = first_difference(recorded.get(key, _ABSENT), now.get(key, _ABSENT), step)
            if found is not None:
                return found
        return None
    if isinstance(recorded, list) and isinstance(now, list):
        for index, (old, new) in enumerate(zip(recorded, now, strict=False)):
            found = first_difference(old, new, f"{pointer}/{index}")
            if found is not None:
                return found
        if len(recorded) != len(now):
            at = min(len(recorded), len(now))
            return Difference(f"{pointer}/{at}", _entry(recorded, at), _entry(now, at))
        return None
    if isinstance(recorded, str) and isinstance(now, str):
        return None if recorded == now else text_difference(recorded, now, pointer)
    if type(recorded) is type(now) and recorded == now:
        return None
    return Difference(pointer, _shown(recorded), _shown(now))


def text_difference(recorded: str, now: str, pointer: str = "") -> Difference:
    """Return where two texts part, with a little of what is around."""
    at = next(
        (index for index, (old, new) in enumerate(zip(recorded, now, strict=False)) if old != new),
        min(len(recorded), len(now)),
    )
    start = max(0, at - _AROUND // 3)
    return Difference(f"{pointer}@{at}", _excerpt(recorded, start), _excerpt(now, start))


def _excerpt(text: str, start: int) -> str:
    piece = text[start : start + _AROUND]
    return f"{'…' if start else ''}{json.dumps(piece)}{'…' if start + _AROUND < len(text) else ''}"


def _entry(items: list[Any], at: int) -> str:
    """Return the item that one of two lists has more, or that there is none, and how long the list is."""
    shown = _shown(items[at], _ENTRY) if at < len(items) else "nothing"
    return f"{shown} ({len(items)} {'item' if len(items) == 1 else 'items'})"


def _shown(value: Any, most: int = _AROUND) -> str:
    if value is _ABSENT:
        return "nothing"
    text = json.dumps(value, ensure_ascii=True, sort_keys=True, default=str)
    return text if len(text) <= most else f"{text[:most]}…"
