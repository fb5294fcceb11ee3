"""One attempt's row of the JSON contract, from facts and outcome (DESIGN, "Commands" and "Decided").

Boundary: pure. Not here: an attempt's id, path, fixture and toolchain (runner/attempt.py, runner/cli/show.py add them).
Rules: additive only. Texts are as the agent wrote them; whoever prints one escapes it (JSON output is ASCII).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runner.claude.case import Case, Outcome, answer_of
from runner.claude.notes import notes_of
from runner.claude.readings import bounded_json
from runner.errors import RunnerError


def attempt_row(case: Case, outcome: Outcome) -> dict[str, Any]:
    """Return the part of an attempt's row that the transcript and the evidence decide.

    An error's answer is under ``unscored_output`` and nowhere else (A2); a measured one is ``output``.
    """
    transcript, skill = case.transcript, case.skill
    answer = answer_of(transcript)
    measured = outcome.kind == "measured"
    result = transcript.answering
    return {
        "verdict": None if measured else "error",
        "outcome": {"kind": outcome.kind, "code": outcome.code, "message": outcome.message, "hint": outcome.hint},
        "skill_state": skill.state,
        "witnesses": {"transcript": skill.transcript, "wire": skill.wire},
        "checks": [],
        "criteria": [],
        "cost_usd": transcript.cost_usd,
        "output": answer.text if measured else None,
        "output_source": answer.source,
        "unscored_output": None if measured else answer.text,
        "structured_output": bounded_json(result.structured_output) if measured and result is not None else None,
        "skills_invoked": skills_invoked(case),
        "skill_call_inputs": [call.input for call in transcript.skill_calls if call.way == "tool"],
        "skill_calls": [
            {
                "name": call.name,
                "way": call.way,
                "state": call.state,
                "parent_tool_use_id": call.parent,
                **({"after_answer": True} if call.after_answer else {}),
            }
            for call in transcript.skill_calls
        ],
        "unparsed_lines": transcript.unparsed_lines,
        "events_seen": transcript.events_seen,
        "last_event_type": transcript.last_event_type,
        "rounds": transcript.rounds,
        "models": list(transcript.models),
        "exit_status": case.ending.exit_status,
        "notes": list(notes_of(case)),
    }


def error_row(error: RunnerError, *, fixture: str | None = None, path: str | None = None) -> dict[str, Any]:
    """Return the row of something of which there is no attempt, or none that can be read: every key of the contract is there."""
    return {
        "id": None,
        "path": path,
        "fixture": fixture,
        "verdict": "error",
        "outcome": {
            "kind": "error",
            "code": error.code,
            "message": error.message,
            "hint": error.hint,
            "where": error.where,
        },
        "skill_state": None,
        "witnesses": {"transcript": None, "wire": None},
        "checks": [],
        "criteria": [],
        "cost_usd": None,
        "unscored_output": None,
        "toolchain": {"claude": None, "node": None, "promptfoo": None},
    }


def skills_invoked(case: Case) -> list[str]:
    """Return the names of the skills that were called or loaded, each once, in order; a sub-agent's too (``skill_calls`` says by whom)."""
    return list(dict.fromkeys(call.name for call in case.transcript.skill_calls if call.name is not None))


def envelope(command: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the command's JSON object over rows that are not graded: exit 2 if any is an error, else 0 (B11)."""
    measured = sum(row["outcome"]["kind"] == "measured" for row in rows)
    failed = measured < len(rows)
    return {
        "schema_version": 1,
        "command": command,
        "verdict": "error" if failed else None,
        "exit_code": 2 if failed else 0,
        "summary": {"passed": 0, "measured": measured, "started": len(rows)},
        "attempts": list(rows),
    }


def run_envelope(command: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the command's JSON object over rows that may be graded: the worst verdict decides, an ungraded measurement counts as measured (DESIGN "Decided")."""
    plain = envelope(command, rows)
    words = [row["verdict"] for row in rows]
    verdict = next(
        (word for word in ("error", "fail") if word in words), "pass" if words and None not in words else None
    )
    passed = words.count("pass")
    return {
        **plain,
        "verdict": verdict,
        "exit_code": {"error": 2, "fail": 1}.get(verdict or "", 0),
        "summary": {**plain["summary"], "passed": passed},
    }
