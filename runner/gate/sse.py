"""Server-sent events as a list: bytes in, events out.

Boundary: pure. Not here: what the events of the Messages API mean (message.py).
Rules: tolerant and total: whatever the bytes, the answer is a list. An event without its closing blank line was not delivered and is left
out, as a browser would (case N07); a response that ends so is told by message.py as incomplete.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One dispatched event."""

    event: str
    """The ``event:`` field, or empty."""
    data: str
    """The ``data:`` lines joined by line ends; undecodable bytes as U+FFFD."""


def parse_sse(body: bytes) -> list[SseEvent]:
    """Return the events of a stream that were delivered whole, in order. Comments and events without data are left out."""
    events: list[SseEvent] = []
    name = ""
    data: list[str] = []
    lines = _LINE_END.split(body.decode(errors="replace").removeprefix("\ufeff"))
    lines.pop()  # what follows the last line end is no line yet
    for line in lines:
        if not line:
            if data:
                events.append(SseEvent(name, "\n".join(data)))
            name, data = "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
    return events
