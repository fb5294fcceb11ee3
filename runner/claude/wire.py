"""The second witness: did the skill's own text reach the model? (A7)

Boundary: pure. Not here: the first witness and how the two are joined (evidence.py), comparing a body (body.py).
Rules: main-thread inference requests that were sent upstream, user messages only. A body counts in two places: straight after the block of
command tags for the skill (slash), or in the message that holds the good result of a Skill call that names it (tool). The sentence "already
loaded above" is no witness by itself. A request that cannot be read proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from runner.claude.body import body_matches, lines_cover, strip_line_numbers
from runner.claude.evidence import Requirement, WireEvidence
from runner.claude.lines import loads
from runner.claude.names import READ_TOOL, SKILL_TOOL, called_name, command_tags, good_result, names_skill, result_text
from runner.gate.exchange import Exchange

_PREFIX = "Base directory for this skill: "


def wire_evidence(exchanges: Iterable[Exchange], requirement: Requirement) -> WireEvidence:
    """Return what the recorded requests show of the unit, over all of them."""
    search = _Search(requirement)
    previous = b""
    exchanges = list(exchanges)
    marked = any(exchange.from_cli for exchange in exchanges)
    for exchange in exchanges:
        if marked and exchange.from_cli is False:  # a program inside may send any text that it likes
            continue
        body = exchange.request.body
        if exchange.kind != "inference" or not exchange.is_main_inference or body == previous:
            continue
        previous = body
        search.take(_messages(body))
    return WireEvidence(search.tool, search.slash, search.reference)


class _Search:
    """Collects the three facts over any number of requests."""

    def __init__(self, requirement: Requirement) -> None:
        self.tool = False
        self.slash = False
        self._requirement = requirement
        self._in_prompt = requirement.reference is None
        self._read: dict[str, dict[int, str]] = {}
        self._read_path = False

    @property
    def reference(self) -> bool:
        """Whether the reference's text is there, in a Read result or in a prompt; without a staged text a good Read of its path will do."""
        body = self._requirement.reference_body
        if self._in_prompt:
            return True
        if body is None:
            return self._read_path
        return any(lines_cover(lines, body) for lines in self._read.values())

    def take(self, messages: list[dict[str, Any]]) -> None:
        """Take one request's messages; calls are bound to results within the request, of duplicate ids the last before the result."""
        calls: dict[str, dict[str, Any]] = {}
        for message in messages:
            content = message.get("content")
            if message.get("role") == "assistant":
                calls.update(
                    (block["id"], block) for block in _blocks(content, "tool_use") if isinstance(block.get("id"), str)
                )
            elif message.get("role") == "user":
                self._user_message(content, calls)

    def _user_message(self, content: Any, calls: dict[str, dict[str, Any]]) -> None:
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        tagged = False
        for block in blocks:
            text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
            if isinstance(text, str):
                if self._is_load(text):
                    self.slash = self.slash or tagged
                    self.tool = self.tool or self._holds_good_result(blocks, calls)
                name = command_tags(text)
                tagged = name is not None and names_skill(self._requirement.names, name)
                self._look_for_reference(text)
            else:
                tagged = False
        self._take_reads(blocks, calls)

    def _is_load(self, text: str) -> bool:
        """Whether a text block is ``Base directory for this skill: DIR``, a blank line, and the skill's body."""
        if not text.startswith(_PREFIX):
            return False
        directory, separator, body = text[len(_PREFIX) :].partition("\n\n")
        if not separator or not body.strip() or "\n" in directory or not self._requirement.is_directory(directory):
            return False
        return self._requirement.body is None or body_matches(self._requirement.body, body)

    def _holds_good_result(self, blocks: list[Any], calls: dict[str, dict[str, Any]]) -> bool:
        for result in _blocks(blocks, "tool_result"):
            call = calls.get(result["tool_use_id"]) if isinstance(result.get("tool_use_id"), str) else None
            name = called_name(call.get("input")) if call is not None and call.get("name") == SKILL_TOOL else None
            if name is not None and names_skill(self._requirement.names, name) and good_result(result, None, name):
                return True
        return False

    def _look_for_reference(self, text: str) -> None:
        body = self._requirement.reference_body
        if body is not None and not self._in_prompt and body.strip():
            self._in_prompt = body.removeprefix("\ufeff").strip() in text

    def _take_reads(self, blocks: list[Any], calls: dict[str, dict[str, Any]]) -> None:
        if self._requirement.reference is None:
            return
        for result in _blocks(blocks, "tool_result"):
            call = calls.get(result["tool_use_id"]) if isinstance(result.get("tool_use_id"), str) else None
            if (
                call is None
                or call.get("name") != READ_TOOL
                or not isinstance(call.get("input"), dict)
                or result.get("is_error")
            ):
                continue
            path = call["input"].get("file_path")
            if not isinstance(path, str):
                continue
            self._read_path = self._read_path or self._requirement.is_reference(path)
            lines = strip_line_numbers(result_text(result.get("content")))
            if lines is not None:
                self._read.setdefault(path, {}).update(lines)


def _messages(body: bytes) -> list[dict[str, Any]]:
    try:
        document = loads(body)
    except ValueError:
        return []
    messages = document.get("messages") if isinstance(document, dict) else None
    return [message for message in messages if isinstance(message, dict)] if isinstance(messages, list) else []


def _blocks(content: Any, kind: str) -> Iterator[dict[str, Any]]:
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == kind:
            yield block
