"""What counts as a skill's name, its refusal and its slash tags (A4–A6).

Boundary: pure. Not here: which event carries them (transcript.py), what follows from them (evidence.py, wire.py).
Rules: names are compared whole. Text in ``args`` or in any other field of a Skill call is never a name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

SKILL_TOOL = "Skill"
READ_TOOL = "Read"
CANONICAL_TOOL = {"Task": "Agent"}
"""The sub-agent tool is ``Task`` in init and in denials, ``Agent`` in calls and on the wire (case P15)."""

_MESSAGE = r"<command-message>[^<]*</command-message>"
_TAGS = re.compile(
    rf"\s*(?P<before>{_MESSAGE}\s*)?<command-name>/?(?P<name>[^<>\s][^<>]*)</command-name>\s*(?P<after>{_MESSAGE}\s*)?"
    r"(?:<command-args>.*</command-args>\s*)?",
    re.DOTALL,
)
"""One message and one name, in the pinned CLI's order or the other (A4 asks for the tags, not for their order), then arguments."""
_ALREADY_LOADED = re.compile(r"\s*Skill /?(?P<name>\S+) is already loaded above\b")
_REFUSED_BY_RULES = "Skill execution blocked by permission rules"
_EXECUTE = re.compile(r"(?:<error>\s*|^\s*(?:Error: *)?)Execute skill: */?(?P<name>[\w:/.-]+)", re.MULTILINE)
"""The name runs as far as name characters go, so that ``cf`` is not ``cf-generate``; a sentence's full stop is cut off afterwards."""


def canonical_tool(name: str) -> str:
    """Return the one name under which a tool is known in checks."""
    return CANONICAL_TOOL.get(name, name)


def called_name(skill_input: Any) -> str | None:
    """Return the skill that a Skill call names: the text under the tool's real name key, ``skill`` (A5), without a leading ``/``."""
    if not isinstance(skill_input, dict):
        return None
    name = skill_input.get("skill")
    if not isinstance(name, str) or not name.removeprefix("/"):
        return None
    return name.removeprefix("/")


def bare_name(name: str) -> str:
    """Drop a leading ``/`` and a plugin or path namespace."""
    return re.split(r"[:/]", name)[-1]


def has_namespace(name: str) -> bool:
    """Whether a name, its leading ``/`` aside, is qualified by a plugin or a path."""
    return re.search(r"[:/]", name.removeprefix("/")) is not None


def names_skill(wanted: Iterable[str], name: str) -> bool:
    """Whether ``name`` is one of the wanted names: whole where the wanted one has a namespace, else after dropping its own."""
    name = name.removeprefix("/")
    return any(
        want and want == (name if has_namespace(want) else bare_name(name))
        for want in (want.removeprefix("/") for want in wanted)
    )


def ambiguous(wanted: Iterable[str], listed: Collection[str]) -> tuple[str, ...]:
    """Return the listed skills that end in a bare wanted name, when there are two or more different ones, else ()."""
    bare = {want.removeprefix("/") for want in wanted if not has_namespace(want)}
    ends = sorted({name for name in listed if bare_name(name) in bare})
    return tuple(ends) if len(ends) > 1 else ()


def refusal_text(text: str, skill: str) -> bool:
    """Whether a Skill call's result text says that ``skill`` was not executed (A6).

    The forms are ``<error>Execute skill: NAME</error>``, ``Execute skill: NAME. …`` at a line's start, and the permission rules' sentence.
    NAME must be this call's skill, with or without its namespace: another skill's failure condemns nothing.
    """
    if _REFUSED_BY_RULES in text:
        return True
    for found in _EXECUTE.finditer(text) if "Execute skill:" in text else ():
        refused = found["name"].rstrip(".:/")
        qualified = has_namespace(refused) and has_namespace(skill)
        if skill and (refused == skill if qualified else bare_name(refused) == bare_name(skill)):
            return True
    return False


def command_tags(text: str) -> str | None:
    """Return the skill that the command tags name, if the *whole* text is command tags, else None. Without the leading ``/``."""
    if "<command-name>" not in text:
        return None
    found = _TAGS.fullmatch(text)
    if found is None or (found["before"] is None) == (found["after"] is None):
        return None
    return found["name"].strip()


def loaded_above(text: str) -> str | None:
    """Return the skill of which the CLI's own text says that it "is already loaded above", else None: the call's load is an earlier one."""
    found = _ALREADY_LOADED.match(text) if "already loaded above" in text else None
    return found["name"] if found else None


def whole_text(content: Any) -> str | None:
    """Return a message's content as one text: a string, or a list of nothing but text blocks; else None."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        return None
    texts = []
    for block in content:
        if not isinstance(block, dict) or block.get("type") != "text" or not isinstance(block.get("text"), str):
            return None
        texts.append(block["text"])
    return "".join(texts)


def result_text(content: Any) -> str:
    """Return the text of a tool result's content: a string, or the texts of its blocks joined by line ends; anything else is left out.

    A block without a type, and a bare string among the blocks, is text as well: a refusal must not be missed for its form.
    """
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else [content]
    texts = (block.get("text") if isinstance(block, dict) else block for block in blocks)
    return "\n".join(text for text in texts if isinstance(text, str))


def good_result(block: dict[str, Any], tool_use_result: Any, skill: str | None) -> bool:
    """Whether a Skill call's result block says that the skill was loaded (A4): no error flag, no text of A6, no ``success: false``."""
    if block.get("is_error"):
        return False
    if isinstance(tool_use_result, dict) and tool_use_result.get("success") is False:
        return False
    if isinstance(tool_use_result, str) and refusal_text(tool_use_result, skill or ""):
        return False
    text = result_text(block.get("content"))
    if text.lstrip().startswith("<tool_use_error>"):
        return False
    return not refusal_text(text, skill or "")
