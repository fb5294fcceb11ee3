"""Reading a judge's answer: every criterion once, a boolean and a reason each, and nothing else (B12).

Boundary: pure. Not here: where the answer comes from (judge_saved.py), what several answers amount to (judge_verdict.py).
Rules: any text gives either a vote on every criterion or an ``AnswerRefused`` with a stable cause; there is no third thing, no repair and no default. What is not exactly the form is
a fault of the judge and never a "no" (case G01). Of all wrapping only one code fence around the whole is taken off, since models put it there unasked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

from runner.strict_json import StrictJsonError, parse_strict

MAX_ANSWER_BYTES = 256 * 1024
MAX_DEPTH = 8
_BLANKS = " \t\r\n"
_FENCE = "```"
_FENCED = re.compile(r"```(?:json|JSON)?[ \t]*\r?\n(?P<body>.*)\n[ \t]*```", re.DOTALL)
_FENCE_LINE = re.compile(r"^[ \t]*```", re.MULTILINE)
_WORDS = ("true", "false", "null")
_SHOWN = 120

Cause = Literal[
    "answer-blank",
    "answer-too-long",
    "fenced-twice",
    "prose-around",
    "truncated",
    "not-json",
    "duplicate-key",
    "not-an-object",
    "wrong-keys",
    "not-boolean",
    "no-reason",
    "criterion-missing",
    "criterion-twice",
    "criterion-unknown",
]


@dataclass(frozen=True)
class CriterionVote:
    """One criterion as one judge decided it."""

    id: str
    met: bool
    reason: str

    def as_json(self) -> dict[str, object]:
        """Return the vote as it stands in rows and evaluations."""
        return {"id": self.id, "met": self.met, "reason": self.reason}


class AnswerRefused(ValueError):
    """The answer is not of the one form."""

    def __init__(self, cause: Cause, message: str) -> None:
        super().__init__(message)
        self.cause: Cause = cause
        self.message = message


def parse_answer(answer: str, ids: Sequence[str]) -> tuple[CriterionVote, ...]:
    """Return the vote on each criterion of ``ids``, in that order.

    Raises: AnswerRefused.
    """
    value = _document(_unfenced(answer.strip(_BLANKS)))
    if not isinstance(value, dict):
        _refuse("not-an-object", f"the answer is {_kind(value)}, not an object")
    _check_keys(value, {"criteria"}, "the answer")
    rows = value["criteria"]
    if not isinstance(rows, list):
        _refuse("wrong-keys", f"criteria is {_kind(rows)}, not a list")
    votes: dict[str, CriterionVote] = {}
    for number, row in enumerate(rows):
        vote = _vote(row, f"criteria[{number}]")
        if vote.id not in ids:
            _refuse("criterion-unknown", f"the rubric has no criterion {_quoted(vote.id)}")
        if vote.id in votes:
            _refuse("criterion-twice", f"criterion {vote.id!r} stands there twice")
        votes[vote.id] = vote
    missing = [name for name in ids if name not in votes]
    if missing:
        _refuse("criterion-missing", f"no verdict on {', '.join(missing)}")
    return tuple(votes[name] for name in ids)


def _unfenced(text: str) -> str:
    """Take one code fence off that goes around the whole."""
    if not text.startswith(_FENCE):
        return text
    found = _FENCED.fullmatch(text)
    if found is None:
        _refuse("prose-around", "the answer begins with a code fence that does not go around the whole of it")
    body = found["body"].strip(_BLANKS)
    if _FENCE_LINE.search(body):
        _refuse("fenced-twice", "there is more than one code fence")
    return body


def _document(text: str) -> object:
    if not text:
        _refuse("answer-blank", "the answer is blank")
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > MAX_ANSWER_BYTES:
        _refuse("answer-too-long", f"the answer has {len(data)} bytes; at most {MAX_ANSWER_BYTES} are read")
    try:
        return parse_strict(data, max_bytes=MAX_ANSWER_BYTES, max_depth=MAX_DEPTH)
    except StrictJsonError as error:
        _refuse(_why_not_json(text, error), f"{error.message}{f' at {error.pointer}' if error.pointer else ''}")
    except RecursionError:
        _refuse("not-json", "nested too deeply")


def _why_not_json(text: str, error: StrictJsonError) -> Cause:
    """Name the fault that a person would see: an object that breaks off, one with words around it, or no JSON at all."""
    cause = error.__cause__
    if isinstance(cause, json.JSONDecodeError):
        if cause.msg == "Extra data" or (text[0] not in "{[" and "{" in text):
            return "prose-around"
        rest = text[cause.pos :]
        cut = cause.msg.startswith("Unterminated string") or any(word.startswith(rest) for word in _WORDS)
        if text[0] in "{[" and cut:
            return "truncated"
        return "not-json"
    return "duplicate-key" if "twice" in error.message else "not-json"


def _vote(row: object, place: str) -> CriterionVote:
    if not isinstance(row, dict):
        _refuse("wrong-keys", f"{place} is {_kind(row)}, not an object")
    _check_keys(row, {"id", "met", "reason"}, place)
    name, met, reason = row["id"], row["met"], row["reason"]
    if not isinstance(name, str):
        _refuse("wrong-keys", f"{place}.id is {_kind(name)}, not a text")
    if not isinstance(met, bool):
        _refuse("not-boolean", f"{place}.met is {_kind(met)}, not true or false")
    if not isinstance(reason, str) or not any(character.isalnum() for character in reason):
        _refuse("no-reason", f"{place}.reason is {_kind(reason) if not isinstance(reason, str) else 'empty'}")
    return CriterionVote(name, met, reason)


def _check_keys(value: dict[str, object], wanted: set[str], place: str) -> None:
    if value.keys() != wanted:
        extra = ", ".join(_quoted(key) for key in sorted(value.keys() - wanted)[:5])
        missing = ", ".join(sorted(wanted - value.keys()))
        parts = [f"has {extra} besides" if extra else "", f"lacks {missing}" if missing else ""]
        _refuse("wrong-keys", f"{place} {' and '.join(part for part in parts if part)}")


def _kind(value: object) -> str:
    """Return what a JSON value is, in words."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the text {_quoted(value)}"
        case int() | float():
            return f"the number {str(value)[:20]}"
        case list():
            return "a list"
        case _:
            return "an object"


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def _refuse(cause: Cause, message: str) -> NoReturn:
    raise AnswerRefused(cause, message)
