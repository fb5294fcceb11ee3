"""How much of an attempt a page shows, and texts that say how much of them is missing.

Boundary: pure. Not here: escaping (pages.py, markdown.py).
Rules: whatever is left out is counted and said. A text is cut by characters before anything else is done with it, so that a line of any length costs no more than its limit.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Literal

Level = Literal["whole", "short", "brief"]
_LEAD_CHARS = 140
_IN_PLACE_CHARS = 420
_IN_PLACE_LINES = 7


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is shown of one attempt at most."""

    level: Level
    answer_chars: int
    text_chars: int
    """Of a message, a tool's input or a tool's result."""
    reason_chars: int
    stderr_chars: int
    first_steps: int
    last_steps: int
    exchanges: int
    files: int
    previews: int
    """Files of the workspace whose content is shown."""
    notes: int
    checks: int


_MAX_USD = 1e9
WHOLE = Bounds("whole", 200_000, 20_000, 4_000, 20_000, 600, 200, 500, 500, 40, 200, 1_000)
"""A page of one attempt."""
SHORT = Bounds("short", 4_000, 1_200, 1_000, 2_000, 30, 10, 40, 40, 0, 20, 100)
"""A batch that people read attempt by attempt."""
BRIEF = Bounds("brief", 600, 240, 300, 400, 0, 0, 0, 0, 0, 5, 12)
"""A batch of any size: the verdict and what explains it."""

SHORT_UP_TO = 40
"""Attempts in a batch that are shown at ``SHORT``; a larger batch is shown at ``BRIEF``."""


def bounds_for(count: int) -> Bounds:
    """Return the bounds of a page of ``count`` attempts."""
    if count == 1:
        return WHOLE
    return SHORT if count <= SHORT_UP_TO else BRIEF


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A text, or as much of it as is shown."""

    text: str
    shown: int
    """How much of the whole ``text`` is."""
    total: int
    """Length of the whole."""
    unit: Literal["characters", "bytes"] = "characters"
    end: Literal["first", "last"] = "first"
    """Which end of the whole is shown."""

    def __bool__(self) -> bool:
        return bool(self.text)

    @property
    def cut(self) -> str:
        """What is missing, in words; empty where nothing is."""
        if self.shown >= self.total:
            return ""
        return f"shortened: the {self.end} {self.shown:,} of {self.total:,} {self.unit}"

    @property
    def lead(self) -> str:
        """The first line that says something, cut to a line's length."""
        lines = self.text[: 8 * _LEAD_CHARS].splitlines()
        line = next((line for line in lines if any(ch.isalnum() for ch in line)), "").strip()
        return line if len(line) <= _LEAD_CHARS else line[:_LEAD_CHARS] + "…"

    @property
    def in_place(self) -> bool:
        """Whether it is short enough to stand where it is, without being folded."""
        return len(self.text) <= _IN_PLACE_CHARS and self.text.count("\n") < _IN_PLACE_LINES


def excerpt(text: str, limit: int, *, end: Literal["first", "last"] = "first") -> Excerpt:
    """Return ``text``, or its first (last) ``limit`` characters."""
    shown = text if len(text) <= limit else text[:limit] if end == "first" else text[len(text) - limit :]
    return Excerpt(shown, len(shown), len(text), end=end)


def excerpt_bytes(data: bytes, limit: int, *, end: Literal["first", "last"] = "first") -> Excerpt:
    r"""Return bytes that should be UTF-8 as text; one that is not is written ``\xNN``. The size that is said is the whole's, in bytes."""
    part = data if len(data) <= limit else data[:limit] if end == "first" else data[len(data) - limit :]
    return Excerpt(part.decode("utf-8", "backslashreplace"), len(part), len(data), "bytes", end)


def excerpt_json(value: Any, limit: int) -> Excerpt:
    """Return a JSON value as indented text, cut; whatever it is, there is a text."""
    if isinstance(value, str):
        return excerpt(value, limit)
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False)
    except (RecursionError, ValueError, TypeError):
        text = f"({type(value).__name__} that cannot be shown)"
    return excerpt(text, limit)


def size_text(count: int) -> str:
    """Return a number of bytes as people read it: ``640 B``, ``47.4 KiB``."""
    if count < 1024:
        return f"{count} B"
    amount, units = count / 1024, ["KiB", "MiB", "GiB"]
    while amount >= 1000 and len(units) > 1:
        amount /= 1024
        units.pop(0)
    return f"{amount:.1f} {units[0]}"


def seconds_text(seconds: float) -> str:
    """Return a duration as people read it: ``40 ms``, ``0.77 s``, ``3 min 12 s``."""
    if 0 < seconds < 0.1:
        return f"{seconds * 1000:.{0 if seconds >= 0.01 else 1}f} ms"
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 120:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 7200:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def known_usd(value: object) -> float | None:
    """Return an amount that can be shown and drawn; None for one that is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < _MAX_USD and math.isfinite(value) else None


def usd_text(amount: float | None) -> str:
    """Return an amount of US dollars; a dash where none is known."""
    if amount is None:
        return "–"
    return f"USD {amount:.2f}" if amount >= 1 else f"USD {amount:.4f}"
