"""Does a text equal a skill's staged body, placeholders filled? (A7)

Boundary: pure. Not here: where the text stands on the wire (wire.py), how a body is cut from SKILL.md (runner/skills.py).
Rules: the body belongs to whoever wrote the skill, so matching is a search for literal segments from left to right, linear in both texts;
no regular expression is ever built from it. A body with no literal text matches nothing.
"""

from __future__ import annotations

import re

PLACEHOLDER = re.compile(
    r"\\?\$(?:\{\w+\}|ARGUMENTS\[\d+\]|\w+)|!`[^`]*`|^```!\s*\n.*?^```",
    re.MULTILINE | re.DOTALL,
)
"""What the CLI fills in at load, each of which stands for any text: ``$word``, ``$N``, ``$ARGUMENTS``, ``$ARGUMENTS[N]``, ``${WORD}`` (a
backslash before it goes with it), a command in backticks after ``!``, and a code block opened by ``!`` (runner/skill_text.py). The pattern is fixed
and its stretches cannot overlap, so it is linear on any body."""

_TAIL = "ARGUMENTS: "
_NUMBERED_LINE = re.compile(r" *(\d+)\t(.*)")


def literal_segments(body: str) -> list[str]:
    """Return the literal texts between the placeholders of a body; leading blanks and a BOM are off, blanks at the end too."""
    return PLACEHOLDER.split(body.removeprefix("\ufeff").strip())


def body_matches(body: str, text: str) -> bool:
    """Whether ``text`` is ``body`` with each placeholder filled by any text, optionally followed by an ``ARGUMENTS: …`` tail.

    Blanks at either end do not count, except beside a placeholder: the CLI trims the leading ones before it fills anything in.
    """
    segments = literal_segments(body)
    text = text.removeprefix("\ufeff")  # the CLI keeps it where there is no front matter
    if not any(segment.strip() for segment in segments):
        return False
    head, last = segments[0], segments[-1]
    text = text.lstrip() if head else text
    text = text.rstrip() if last else text
    if not text.startswith(head):
        return False
    if len(segments) == 1:
        return _is_end(text, len(head))
    position = len(head)
    for segment in segments[1:-1]:
        position = text.find(segment, position)
        if position < 0:
            return False
        position += len(segment)
    # The last segment stands at the text's end, or before a tail; the placeholder before it takes whatever lies between.
    if len(text) - len(last) >= position and text.endswith(last):
        return True
    return _last_before_tail(text, last, position)


def _last_before_tail(text: str, last: str, position: int) -> bool:
    """Find ``last``, at or after ``position``, right before a tail. Walks from tail to tail, so it stays linear."""
    tail = text.find(_TAIL, position + len(last))
    while tail >= 0:
        end = tail
        while end > 0 and text[end - 1] in "\r\n":
            end -= 1
        if end < tail and end - len(last) >= position and text.startswith(last, end - len(last)):
            return True
        tail = text.find(_TAIL, tail + 1)
    return False


def _is_end(text: str, position: int) -> bool:
    """Whether nothing, or line ends and a tail, follows at ``position``."""
    rest = text[position:]
    return not rest or (rest[0] in "\r\n" and rest.lstrip("\r\n").startswith(_TAIL))


def strip_line_numbers(text: str) -> dict[int, str] | None:
    """Return a Read result's lines by number (``NUMBER<TAB>line``), or None if the text has another form.

    A ``<system-reminder>`` after the last line is left out.
    """
    text = text.split("\n<system-reminder>", 1)[0].rstrip("\n") if "<system-reminder>" in text else text
    lines: dict[int, str] = {}
    for line in text.split("\n"):
        found = _NUMBERED_LINE.fullmatch(line)
        if found is None or len(found[1]) > 12:
            return None
        lines[int(found[1])] = found[2].removesuffix("\r")
    return lines


def lines_cover(read: dict[int, str], body: str) -> bool:
    """Whether the numbered lines hold every line of ``body`` (blank lines at its end aside); a body without text is covered by nothing."""
    wanted = body.removeprefix("\ufeff").rstrip().split("\n")
    if not body.strip():
        return False
    return all(read.get(number) == line.removesuffix("\r") for number, line in enumerate(wanted, 1))
