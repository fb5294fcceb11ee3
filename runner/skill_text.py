"""What the CLI makes of the bytes of a SKILL.md: front matter, and the body that it sends to the model (A7).

Boundary: pure. Not here: warnings for the author (lint.py), comparing a body with the wire (runner/claude/evidence.py).
Rules: measured on CLI 2.1.332 by loading some fifty hand-made variants; a change of the pinned CLI means measuring again. Front matter begins at the first byte
(a byte-order mark may stand before it) with ``---``, blanks, a line end; it ends at the next ``---`` *anywhere*, in the middle of a line
too; blanks and line ends after that are dropped, in the sense of JavaScript's ``\\s``. Without front matter nothing is dropped, not even the mark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

MAX_FRONT_MATTER = 64 << 10
"""Bytes of front matter that are read as YAML."""

JS_BLANKS = "\\t\\n\\v\\f\\r \\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff"
"""JavaScript's ``\\s`` as the inside of a character class."""

_FRONT = re.compile(rf"\ufeff?---[{JS_BLANKS}]*\n(?P<yaml>.*?)---[{JS_BLANKS}]*\n?", re.DOTALL)
_LINE = re.compile(r"^([A-Za-z][A-Za-z0-9_-]*)[ \t]*:[ \t]*(.*?)[ \t\r]*$", re.MULTILINE)
_INLINE_COMMAND = re.compile(r"(?:^|(?<=\s))!`([^`]+)`", re.MULTILINE)
_BLOCK_COMMAND = re.compile(r"^```!\s*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_VARIABLE = re.compile(r"\\?\$(?:\{\w+\}|ARGUMENTS(?:\[\d+\])?|\w+)")

FrontMatterState = Literal["none", "read", "repaired", "unclosed"]
"""``none``: there is none; ``read``: YAML; ``repaired``: no YAML, read line by line as the CLI's own repair does; ``unclosed``: begun, never ended."""


@dataclass(frozen=True, slots=True)
class SkillText:
    """A SKILL.md taken apart."""

    body: str
    """The text that the CLI sends, before it fills in placeholders."""
    state: FrontMatterState
    fields: dict[str, object] = field(default_factory=dict)
    """Front matter; every scalar is text (``yes``, ``123`` and dates too), as written."""
    front: str = ""
    """The front matter's own text."""
    problem: str = ""
    """Why the front matter is no YAML."""

    def text(self, key: str) -> str:
        """Return a field that is text, or the empty string."""
        value = self.fields.get(key)
        return value if isinstance(value, str) else ""

    def is_false(self, key: str) -> bool:
        """Whether a field says ``false``."""
        return self.text(key).strip().lower() == "false"

    def is_true(self, key: str) -> bool:
        """Whether a field says ``true``."""
        return self.text(key).strip().lower() == "true"

    @property
    def forks(self) -> bool:
        """Whether the skill may run in a context of its own; in doubt yes, for such a load cannot be proved yet (A4)."""
        return self.text("context").strip().lower() == "fork" or any(
            key.lower() == "context" and value.strip("\"' ").lower() == "fork"
            for key, value in _LINE.findall(self.front)
        )

    @property
    def commands(self) -> tuple[str, ...]:
        """Shell commands that the CLI runs when it loads the skill, in order: ``!`` with a code span, and code blocks opened by `````!``."""
        found = [
            (match.start(), match[1].strip())
            for pattern in (_INLINE_COMMAND, _BLOCK_COMMAND)
            for match in pattern.finditer(self.body)
        ]
        return tuple(command for _, command in sorted(found))

    @property
    def fixed_text(self) -> str:
        """The body without what the CLI fills in, blanks trimmed; empty means that no load could be proved (A7)."""
        rest = _BLOCK_COMMAND.sub("", self.body)
        rest = re.sub(r"!`[^`]*`", "", rest)
        return _VARIABLE.sub("", rest).strip()


def parse_skill_text(data: bytes) -> SkillText:
    """Take the bytes of a SKILL.md apart. Any bytes give a value; nothing is raised."""
    text = data.decode("utf-8", "replace")
    match = _FRONT.match(text)
    if match is None:
        begun = re.match(rf"\ufeff?---[{JS_BLANKS}]*\n", text) is not None
        return SkillText(text, "unclosed" if begun else "none")
    front = match["yaml"]
    body = text[match.end() :]
    fields, problem = _yaml(front)
    if fields is None:
        return SkillText(
            body, "repaired", {key: value.strip("\"'") for key, value in _LINE.findall(front)}, front, problem
        )
    return SkillText(body, "read", fields, front)


def _yaml(front: str) -> tuple[dict[str, object] | None, str]:
    """Read front matter as YAML: text scalars, no aliases, bounded; None and a reason where that cannot be done."""
    import yaml

    if len(front) > MAX_FRONT_MATTER:
        return None, f"longer than {MAX_FRONT_MATTER} characters"

    class Loader(yaml.BaseLoader):  # BaseLoader makes text, lists and maps only, so no tag can do anything
        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("aliases are not read")
            return super().compose_node(parent, index)

    try:
        value = yaml.load(front, Loader)  # noqa: S506 -- a BaseLoader is safer than SafeLoader
    except (yaml.YAMLError, ValueError, TypeError) as error:
        return None, " ".join(str(error).split())[:300]
    except RecursionError:
        return None, "nested too deeply"
    if value is None or value == "":
        return {}, ""
    if not isinstance(value, dict):
        return None, "not a mapping"
    return {key: held for key, held in value.items() if isinstance(key, str)}, ""
