"""The canonical rules: what may differ between two runs of one plan, and nothing else (DESIGN "Bit for bit"; facts/replay.md R3, claude-cli.md §6).

Boundary: pure. Not here: serving recorded answers (upstreams/recorded.py), comparing whole attempts (runner/reproduce.py).
Rules: few, named, versioned, each with its reason. A rule puts a fixed word in the place of a value and keeps the value; two texts are equal under the rules if they are equal with
the words in place, and every value that differed is counted under its rule's name. A value that names something (an id) must be renamed the same way everywhere: ``Renaming``. A body
that cannot be read has no canonical form and equals nothing (case N03). A new rule needs a new ``RULES_VERSION``.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from runner.gate.document import BadDocument, parse_document

RULES_VERSION = 1


@dataclass(frozen=True)
class TextRule:
    """A stretch of text that depends on the host, the clock or chance."""

    name: str
    pattern: re.Pattern[str]
    """Its only group is the value."""
    reason: str
    is_id: bool = False


TEXT_RULES = (
    TextRule(
        "date", re.compile(r"(?<=Today's date is )(\d{4}-\d{2}-\d{2})"), "the CLI tells the model the day of the run"
    ),
    TextRule(
        "kernel",
        re.compile(r"(?<=OS Version: )(Linux [^\n]{1,200})"),
        "the CLI tells the model the host's kernel release",
    ),
    TextRule(
        "agent-id",
        re.compile(r"(?<![0-9A-Za-z])(a[0-9a-f]{16})(?![0-9A-Za-z])"),
        "sub-agents get ids at random",
        is_id=True,
    ),
    TextRule(
        "duration",
        re.compile(r"(?<=duration_ms>)(\d{1,12})(?=</)|(?<=duration_ms: )(\d{1,12})|(?<=duration_ms\":)(\d{1,12})"),
        "results of sub-agents tell how long they took",
    ),
    TextRule(
        "prompt-id",
        re.compile(r"(?<=cc_prompt_id=)([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"),
        "the CLI draws an id for a prompt that is no command, in its billing line",
        is_id=True,
    ),
    TextRule(
        "budget",
        re.compile(r"(?<=USD budget: )(\$[0-9.]+/\$[0-9.]+; \$[0-9.]+ remaining)"),
        "the CLI tells the model what is left of its budget, as far as it has booked it when it writes the request",
    ),
    TextRule(
        "cch", re.compile(r"(?<=cch=)([0-9a-f]{1,64})"), "a hash of the request's own bytes in the CLI's billing line"
    ),
)
ID_RULES = frozenset(rule.name for rule in TEXT_RULES if rule.is_id)
TOOL_RESULT_ORDER = "tool-result-order"
REASONS = {rule.name: rule.reason for rule in TEXT_RULES} | {
    TOOL_RESULT_ORDER: "results of parallel tools stand in the order in which they came",
}
"""Every rule for requests, with its reason; kept with each result that used one."""

_ANY = re.compile("|".join(f"(?P<r{index}>{rule.pattern.pattern})" for index, rule in enumerate(TEXT_RULES)))
_WORD = re.compile(rf"<(?=(?:literal )*(?:{'|'.join(rule.name for rule in TEXT_RULES)})>)")
"""Where a text looks like one of the rules' words."""


@dataclass(frozen=True)
class Canonical:
    """A request body under the rules."""

    text: str
    """Canonical JSON with a word in the place of each value."""
    values: tuple[tuple[str, str], ...]
    """Rule and value, in document order."""
    order: tuple[str, ...]
    """Ids of tool results as they stood, message by message."""


@dataclass
class Renaming:
    """Which id of the recording is which id now; one to one."""

    there: dict[str, str] = field(default_factory=dict)
    back: dict[str, str] = field(default_factory=dict)

    def agrees(self, pairs: list[tuple[str, str]]) -> bool:
        """Say whether these (recorded, now) pairs fit what is known and each other."""
        there, back = dict(self.there), dict(self.back)
        return all(there.setdefault(old, new) == new and back.setdefault(new, old) == old for old, new in pairs)

    def learn(self, pairs: list[tuple[str, str]]) -> None:
        """Take pairs that agree."""
        for old, new in pairs:
            self.there[old] = new
            self.back[new] = old


def canonical_request(body: bytes) -> Canonical | None:
    """Return a request body under the rules; None where it cannot be read, or is nested without end."""
    values: list[tuple[str, str]] = []
    try:
        document = parse_document(body)
        order = _sort_tool_results(document)
        value = canonical_value(document, values)
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    except (BadDocument, RecursionError):
        return None
    return Canonical(text, tuple(values), order)


def canonical_value(value: Any, values: list[tuple[str, str]]) -> Any:
    """Return a JSON value with the text rules applied to every string, keys in order; what was replaced is appended to ``values``."""
    if isinstance(value, str):
        return canonical_text(value, values)
    if isinstance(value, list):
        return [canonical_value(item, values) for item in value]
    if isinstance(value, dict):
        return {key: canonical_value(value[key], values) for key in sorted(value)}
    return value


def canonical_text(text: str, values: list[tuple[str, str]]) -> str:
    """Return a text with the rules' words in place. A text that holds such a word already keeps it as ``<literal NAME>``, so that it equals no value."""

    def put(match: re.Match[str]) -> str:
        rule = TEXT_RULES[int((match.lastgroup or "r0")[1:])]
        values.append((rule.name, match[0]))
        return f"<{rule.name}>"

    return _ANY.sub(put, _WORD.sub("<literal ", text))


def differing(recorded: Canonical, now: Canonical) -> Counter[str] | None:
    """Return which rules two equal canonical forms needed, and how often; None where the forms differ. Both empty: equal but for spelling."""
    if recorded.text != now.text:
        return None
    counts = Counter(rule for (rule, old), (_, new) in zip(recorded.values, now.values, strict=True) if old != new)
    moved = sum(old != new for old, new in zip(recorded.order, now.order, strict=True))
    if moved:
        counts[TOOL_RESULT_ORDER] = moved
    return counts


def id_pairs(recorded: Canonical, now: Canonical) -> list[tuple[str, str]]:
    """Return the (recorded, now) pairs of ids of two equal canonical forms."""
    return [(old, new) for (rule, old), (_, new) in zip(recorded.values, now.values, strict=True) if rule in ID_RULES]


def _sort_tool_results(document: dict[str, Any]) -> tuple[str, ...]:
    """Bring the tool results of each user message into the order of their ids, among the places that they have. Returns the ids as they stood."""
    order: list[str] = []
    for content in _contents(document):
        places = [
            place
            for place, block in enumerate(content)
            if isinstance(block, dict) and block.get("type") == "tool_result"
        ]
        results = [content[place] for place in places]
        order += [str(result.get("tool_use_id")) for result in results]
        for place, result in zip(
            places, sorted(results, key=lambda result: str(result.get("tool_use_id"))), strict=True
        ):
            content[place] = result
    return tuple(order)


def _contents(document: dict[str, Any]) -> Iterator[list[Any]]:
    messages = document.get("messages")
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, dict) and message.get("role") == "user" and isinstance(message.get("content"), list):
            yield message["content"]
