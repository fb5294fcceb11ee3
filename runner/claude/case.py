"""What the rules of A8 look at and what they say, as frozen values, and which text is the run's answer.

Boundary: pure. Not here: the rules (outcome.py), the notes beside them (notes.py).
Rules: a value from the transcript may be any JSON value; `among` and `shown` are the only ways in which the rules compare or print one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from runner.claude.evidence import NOT_REQUIRED, SkillVerdict
from runner.claude.facts import Transcript
from runner.gate.exchange import Refusal

EndedBy = Literal["timeout", "output-limit", "grace"]
"""Who ended the CLI, if we did: its wall clock, an output cap, or the 5 s after a result with nothing running (then the outcome stands)."""

_MAX_SHOWN = 300
_MAX_REPR = 2000


@dataclass(frozen=True, slots=True)
class SetupFailure:
    """A named set-up step (staging, toolchain, gate, sandbox-start, cli-start) that failed or passed its own deadline."""

    step: str
    code: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """How the CLI's process ended, as seen from outside the sandbox."""

    exit_status: int | None = None
    """As the status descriptor says it; -N for signal N. None: unknown, and then no rule reads it."""
    ended_by: EndedBy | None = None
    setup: SetupFailure | None = None
    refusal: Refusal | None = None
    """The gate's refusal that ended the run; one that did not is only counted in ``other_refusals``."""
    other_refusals: int = 0
    limit: str = ""
    """The limit that was passed, in words: ``600 s wall clock``."""

    @property
    def status(self) -> int | None:
        """The exit status with -N as 128+N; None where we ended the CLI ourselves after its result, or where it is unknown."""
        if self.exit_status is None or self.ended_by == "grace":
            return None
        return 128 - self.exit_status if self.exit_status < 0 else self.exit_status


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that the rules look at."""

    transcript: Transcript
    ending: Ending = Ending()
    skill: SkillVerdict = NOT_REQUIRED
    tampered: tuple[str, ...] = ()
    pinned_model: str | None = None
    """The full model name that the run was pinned to; None where none was."""
    budget_usd: str | None = None
    """The spend ceiling that was passed to the CLI; None where it is not known."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Measured, or an error with a stable code."""

    kind: Literal["measured", "error"]
    code: str | None = None
    message: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The run's answer and where it was taken from."""

    text: str | None
    source: Literal["result", "structured-output", "main-thread-text", "repr", "none"]
    """``repr``: what the result holds is no text and cannot be graded."""


def answer_of(transcript: Transcript) -> Answer:
    """Return the answering result's text or structured output, or if those are blank the last non-blank main-thread text (A8)."""
    result = transcript.answering
    if result is not None:
        if result.text is not None and not isinstance(result.text, str):
            return Answer(representation(result.text), "repr")
        if result.text is not None and result.text.strip():
            return Answer(result.text, "result")
        structured = result.structured_output
        if isinstance(structured, str):
            if structured.strip():
                return Answer(structured, "structured-output")
        elif structured is not None:
            written = _json(structured)
            return (
                Answer(representation(structured), "repr") if written is None else Answer(written, "structured-output")
            )
    return Answer(transcript.last_text, "main-thread-text" if transcript.last_text is not None else "none")


def among(value: Any, values: tuple[str | None, ...]) -> bool:
    """Whether a JSON value is one of a few words or null; a value of another kind never is."""
    return (value is None or isinstance(value, str)) and value in values


def shown(value: Any) -> str:
    """Return any JSON value as a short text: a text as it is, anything else as JSON, where it can be; whoever prints it escapes it."""
    text = value if isinstance(value, str) else _json(value) or representation(value)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"


def representation(value: Any) -> str:
    """Return a bounded repr of any JSON value."""
    try:
        return repr(value)[:_MAX_REPR]
    except (RecursionError, ValueError):
        return f"({type(value).__name__} that cannot be shown)"


def _json(value: Any) -> str | None:
    """Return a JSON value as text; None where no text is equal to it: nested too deeply, or with a number that is too large."""
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False)
    except (RecursionError, TypeError, ValueError):
        return None
