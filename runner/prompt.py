"""The prompt: a pure function of the fixture, one form each for routing, slash and reference (DESIGN "Decided").

Boundary: pure. Not here: how it reaches the CLI (runner/claude/launch.py).
Rules: golden files in tests/plan hold the exact bytes; a change of one is a change of every attempt. Only the unit, ``references``, ``task`` and ``input`` are
read: ``rubric`` and ``expect`` never are (B3). A prompt that begins with ``/`` is command-shaped (``/NAME``, one blank), else the CLI would send it as prose
and withhold the list of skills (facts/claude-cli.md, trap 9); the fixture's rules keep a task from beginning with ``/``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from runner.envelope import Fixture

DEFAULT_TASK = "Handle this case; the input below holds every fact."
"""Asks where the fixture has no ``task``. It names no skill, so that routing is not helped."""


def build_prompt(fixture: Fixture) -> str:
    """Return the prompt of a fixture, without a line end at its end."""
    block = fenced_json(fixture.input)
    task = fixture.task or DEFAULT_TASK
    match fixture.form:
        case "routing":
            return f"{task}\n\n{block}"
        case "slash":
            return f"/{fixture.skill_name} {task}\n\n{block}"
        case "direct":
            asks = [f"Read {fixture.reference} in this skill's directory and apply it to the input below."]
            if fixture.references:
                asks.append(f"Beneath the skills directory it may also use {', '.join(fixture.references)}.")
            if fixture.task is not None:
                asks.append(fixture.task)
            return f"/{fixture.skill_name} {' '.join(asks)}\n\n{block}"


def fenced_json(value: Mapping[str, object] | Sequence[object]) -> str:
    """Return a JSON value as a fenced block: two blanks of indent, sorted keys, text unescaped, and a fence longer than any run of backticks in it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2, sort_keys=True)
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}json\n{text}\n{fence}"
