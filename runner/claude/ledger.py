"""The compact record of main-thread texts, tool calls, tool results and answers that tamper.py compares with the gate's record.

Boundary: pure, but that its digests are keyed by a secret of this process. Not here: the comparison (tamper.py).
Rules: a record has a fixed size whatever the text's length, so that a gigabyte of transcript leaves a few tens of megabytes behind; both
sides of the comparison make their digests here and nowhere else. Digests mean nothing outside the process: they are never stored, shown or sent.
A digest is Python's own hash (SipHash, 64 bits) over a secret and the text: who writes a forged line does not know the secret, so two texts have one digest by chance only. Twelve
bytes of BLAKE2 were the half of all the time that parsing takes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from runner.claude.names import canonical_tool, result_text

Kind = Literal["text", "call", "result", "answer"]
Digest = int
NO_DIGEST: Digest = 0
"""Stands where there is nothing to make a digest of."""
_KINDS: tuple[Kind, ...] = ("text", "call", "result", "answer")
_TEXT, _CALL, _RESULT, _ANSWER = range(4)
_RECORD = struct.Struct("<BIqq")
_pack = _RECORD.pack
_MAX_EVENT = 0xFFFFFFFF
_SECRET = os.urandom(16).hex()
"""PYTHONHASHSEED may be known to others; this is not."""
_REMINDER_START, _REMINDER_END = "<system-reminder>", "</system-reminder>"
_MAX_REMINDERS = 20


@dataclass(frozen=True, slots=True)
class Entry:
    """One main-thread fact: for a text and a call ``key`` is the message id's digest, for a tool's result the call id's; what a ``result`` event holds (``answer``) has none."""

    kind: Kind
    event: int
    """The event's number in the transcript, from 1."""
    key: Digest
    content: Digest


def digest(text: str) -> Digest:
    """Return the number that stands for a text in this process."""
    return hash(_SECRET + text)


def text_content(text: str) -> Digest:
    """Return the digest under which a text block is compared: blanks at the ends do not count."""
    return digest(text.strip())


def call_content(call_id: Any, name: Any) -> Digest:
    """Return the digest under which a tool call is compared: its id and its tool, not its input (the CLI normalises inputs)."""
    return hash(f"{_SECRET}{call_id}\n{canonical_tool(name) if isinstance(name, str) else name}")


def sent_result_contents(content: Any) -> set[Digest]:
    """Return the digests of a sent tool result: as it is, and without the reminders that the CLI appends on the wire only."""
    text = result_text(content).rstrip()
    digests = {text_content(text)}
    while text.endswith(_REMINDER_END) and (start := text.rfind(_REMINDER_START)) >= 0:
        text = text[:start].rstrip()
        digests.add(text_content(text))
        if len(digests) > _MAX_REMINDERS:
            break
    return digests


def text_record(event: int, key: Digest, text: str) -> bytes:
    """Return the fixed-size form of a text block's entry."""
    return _pack(_TEXT, event if event < _MAX_EVENT else _MAX_EVENT, key, hash(_SECRET + text.strip()))


def answer_record(event: int, text: str) -> bytes:
    """Return the fixed-size form of the entry of a result that claims an answer."""
    return _pack(_ANSWER, event if event < _MAX_EVENT else _MAX_EVENT, NO_DIGEST, hash(_SECRET + text.strip()))


def call_record(event: int, key: Digest, call_id: Any, name: Any) -> bytes:
    """Return the fixed-size form of a tool call's entry."""
    return _pack(_CALL, event if event < _MAX_EVENT else _MAX_EVENT, key, call_content(call_id, name))


def result_record(event: int, call_id: str, content: Any) -> bytes:
    """Return the fixed-size form of a tool result's entry."""
    text = content if isinstance(content, str) else result_text(content)
    return _pack(
        _RESULT, event if event < _MAX_EVENT else _MAX_EVENT, hash(_SECRET + call_id), hash(_SECRET + text.strip())
    )


def unpack(ledger: bytes | bytearray) -> Iterator[Entry]:
    """Yield the entries of a ledger in order."""
    for kind, event, key, content in _RECORD.iter_unpack(ledger):
        yield Entry(_KINDS[kind], event, key, content)
