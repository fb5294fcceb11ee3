"""A saved attempt as the graders see it: fixture, output, and everything that is told beside them.

Boundary: reads attempt files. Not here: whether its records agree (provenance.py), grading (grading.py).
Rules: an attempt in error has no output to grade, and stays an error. A workspace that is not kept whole is shown to nobody: what a check asks for may be what is missing. What an older form does not hold is absent, never made up. Profiles get plain JSON values
(``profiles/_types.py`` lists them).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from runner.assess import Assessment, assess_attempt, stored_omitted, stored_plan, stored_row, stored_run
from runner.bundle.reader import Attempt, open_attempt
from runner.bundle.version1 import Version1, is_version1, read_version1
from runner.canonical import sha256_hex
from runner.claude.case import Outcome
from runner.errors import BundleCorrupt, FixtureInvalid, NeverScored
from runner.fixture import Fixture, parse_fixture
from runner.grade.control import OUTPUT_PART, Control
from runner.grade.metadata import Seen, metadata_of, read_seen, spans_of
from runner.grade.promptfoo import Graded
from runner.grade.provenance import output_text, require_agreement, require_records
from runner.workspace_gaps import unmeasured

DEFAULT_PROFILE = "artifact"
"""Of an attempt whose fixture names none (version 1)."""
_MAX_FILE_BYTES = 1 << 20
_MAX_FILES_BYTES = 8 << 20


@dataclass(frozen=True)
class Effort:
    """What a run took, as it was observed (B10); None where it is not known."""

    turns: int | None = None
    requests: int | None = None
    tool_calls: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: float | None = None
    duration_s: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the numbers by name."""
        return dict(vars(self))


@dataclass(frozen=True)
class Subject:
    """One attempt, to be graded."""

    attempt_id: str
    path: Path
    format_version: int
    fixture: Fixture
    fixture_json: Mapping[str, Any]
    """As it stands in the attempt: what profiles get."""
    outcome: Outcome
    output: str | None
    """None where the attempt is an error."""
    row: Mapping[str, Any]
    """The attempt's row of the JSON contract, not yet graded."""
    context: Mapping[str, Any] = field(default_factory=dict)
    graded: Graded | None = None
    effort: Effort = field(default_factory=Effort)
    skill_sha256: str | None = None
    unmeasured: str = ""
    """Why no check may look at the workspace; empty where one may."""
    control: Mapping[str, Any] | None = None
    """Of a negative control: its reason and the parent's output sha256."""

    @property
    def output_sha256(self) -> str | None:
        """Hex sha256 of the output."""
        return None if self.output is None else sha256_hex(self.output.encode("utf-8", "surrogatepass"))


def load_subject(path: Path) -> Subject:
    """Read, verify and judge a saved attempt of any version.

    The one door to grading and judging, so that what is never scored is refused here.
    Raises: InputMissing; BundleError where bytes or records cannot be trusted; FixtureInvalid where its fixture is none of this release; NeverScored.
    """
    if is_version1(path):
        return _from_version1(path, *read_version1(path))
    attempt = open_attempt(path)
    if attempt.manifest.summary.get("kind") not in (None, "worker"):
        raise BundleCorrupt(
            "this is no worker's attempt, so there is no output to grade",
            where=str(path),
            hint="name the worker's attempt",
        )
    require_records(attempt)
    plan = stored_plan(attempt)
    if plan.determinism == "pinned":
        raise NeverScored(
            "the attempt ran with pinned determinism, which is never scored",
            where=str(path),
            hint="run the fixture with --determinism free; this attempt is for hermeval reproduce",
        )
    assessment, stored = assess_attempt(attempt)
    control = require_agreement(attempt, plan, assessment, stored)
    fixture = stored_fixture(attempt)
    measured = assessment.outcome.kind == "measured"
    output = output_text(attempt.part(OUTPUT_PART)) if measured else None
    row = stored_row(attempt, assessment, str(path))
    if control is not None and measured:
        row = {**row, "output": output, "output_source": "negative-control", "negative_control": _control_row(control)}
    seen = read_seen(attempt.part("transcript.jsonl")) if measured else Seen()
    unread = (unmeasured(stored_run(attempt), stored_omitted(attempt)) or _unshown(attempt)) if measured else ""
    skill_calls = assessment.case.transcript.skill_calls
    return Subject(
        attempt_id=attempt.id,
        path=path,
        format_version=attempt.manifest.format_version,
        fixture=fixture,
        fixture_json=fixture.as_json(),
        outcome=assessment.outcome,
        output=output,
        row=row,
        context=_context(attempt, assessment, seen, row, unread) if measured else {},
        graded=None
        if output is None
        else Graded(
            attempt_id=attempt.id,
            output=output,
            metadata=metadata_of(seen, skill_calls),
            cost_usd=row["cost_usd"],
            latency_ms=row["duration_s"] * 1e3,
            finish_reason=seen.finish_reason,
            spans=spans_of(seen.tool_calls),
        ),
        effort=_effort(attempt, seen, row),
        skill_sha256=plan.skills.digest,
        unmeasured=unread,
        control=None if control is None else _control_row(control),
    )


def stored_fixture(attempt: Attempt) -> Fixture:
    """Return an attempt's fixture. Raises: FixtureInvalid, BundleCorrupt."""
    return _parsed(attempt.part("fixture.json"), attempt.manifest.fixture)


@lru_cache(maxsize=256)
def _parsed(source: bytes, name: str) -> Fixture:
    return parse_fixture(source, name)


def _control_row(control: Control) -> dict[str, Any]:
    return {
        "reason": control.reason,
        "parent": control.parent.attempt,
        "parent_output_sha256": control.parent.output_sha256,
    }


def _context(
    attempt: Attempt, assessment: Assessment, seen: Seen, row: Mapping[str, Any], unread: str
) -> dict[str, Any]:
    context: dict[str, Any] = {
        "main_texts": list(seen.main_texts),
        "tool_calls": [call.as_json() for call in seen.tool_calls],
        "structured_output": row["structured_output"],
        "skill_state": row["skill_state"],
        "skills_invoked": row["skills_invoked"],
        "witnesses": row["witnesses"],
    }
    if attempt.has("trace.json"):
        trace = attempt.json("trace.json")
        rows = trace.get("rows") if isinstance(trace, dict) else None
        if not isinstance(trace, dict) or not isinstance(rows, list):
            raise BundleCorrupt("the tool trace is not readable", where="part trace.json")
        context |= {"tool_trace": rows, "final_state": trace.get("final_state")}
    if attempt.has("workspace.json") and not unread:
        context["workspace"] = _workspace(attempt)
    return context


def _workspace(attempt: Attempt) -> list[dict[str, Any]]:
    """Return the workspace's entries, small text files with their ``text``."""
    listing = attempt.json("workspace.json")
    entries = listing.get("entries") if isinstance(listing, dict) else None
    if not isinstance(entries, list):
        raise BundleCorrupt("the workspace's listing is not readable", where="part workspace.json")
    files = []
    for entry in entries:
        if not isinstance(entry, dict):
            raise BundleCorrupt("the workspace's listing is not readable", where="part workspace.json")
        shown = {key: value for key, value in entry.items() if key != "part"}
        if _small(entry):
            try:
                shown["text"] = attempt.part(entry["part"]).decode("utf-8")
            except UnicodeDecodeError:
                shown["text"] = None
        files.append(shown)
    return files


def _small(entry: Mapping[str, Any]) -> bool:
    """Whether a listed file is one whose text a profile gets."""
    part, size = entry.get("part"), entry.get("bytes")
    return isinstance(part, str) and isinstance(size, int) and size <= _MAX_FILE_BYTES


def _unshown(attempt: Attempt) -> str:
    """Return why the workspace's texts cannot be shown, or an empty text: an agent that left many could choose by their names which ones would be."""
    listing = attempt.json("workspace.json") if attempt.has("workspace.json") else None
    entries = listing.get("entries") if isinstance(listing, dict) else None
    rows = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    size = sum(entry["bytes"] for entry in rows if _small(entry))
    if size <= _MAX_FILES_BYTES:
        return ""
    return f"its small files are {size} bytes together, and a check is shown at most {_MAX_FILES_BYTES}"


def _effort(attempt: Attempt, seen: Seen, row: Mapping[str, Any]) -> Effort:
    evidence = attempt.json("evidence.json")
    found = evidence.get("gate") if isinstance(evidence, dict) else None
    gate: Mapping[str, Any] = found if isinstance(found, dict) else {}
    turns = seen.result.get("num_turns")
    return Effort(
        turns=turns if isinstance(turns, int) else row["rounds"],
        requests=gate.get("requests"),
        tool_calls=len(seen.tool_calls),
        input_tokens=gate.get("input_tokens"),
        output_tokens=gate.get("output_tokens"),
        cache_read_tokens=gate.get("cache_read_tokens"),
        cache_write_tokens=gate.get("cache_write_tokens"),
        cost_usd=row["cost_usd"],
        duration_s=row["duration_s"],
    )


def _from_version1(path: Path, attempt_id: str, found: Version1) -> Subject:
    fixture_json = {"profile": DEFAULT_PROFILE, **found.fixture}
    name = fixture_json.get("id")
    if not isinstance(name, str):
        raise FixtureInvalid("the fixture has no id", where=f"{path}#/fixture/id")
    fixture = _parsed(json.dumps(fixture_json).encode("ascii"), name)
    control = found.negative_control
    cost = found.generation.cost_usd
    row = _bare_row(attempt_id, path, name, found.output, float(cost) if cost else None)
    told = None if control is None else {"reason": control.reason, "parent_output_sha256": control.parent_output_sha256}
    return Subject(
        attempt_id=attempt_id,
        path=path,
        format_version=1,
        fixture=fixture,
        fixture_json=fixture_json,
        outcome=Outcome("measured", None, "an attempt of version 1: its outcome was not recorded", ""),
        output=found.output,
        row=row if told is None else {**row, "negative_control": told},
        graded=Graded(attempt_id, found.output, cost_usd=row["cost_usd"]),
        effort=Effort(cost_usd=row["cost_usd"]),
        control=told,
    )


def _bare_row(attempt_id: str, path: Path, fixture: str, output: str, cost_usd: float | None) -> dict[str, Any]:
    return {
        "id": attempt_id,
        "path": str(path),
        "fixture": fixture,
        "verdict": None,
        "outcome": {"kind": "measured", "code": None, "message": "an attempt of version 1", "hint": ""},
        "skill_state": None,
        "witnesses": {"transcript": None, "wire": None},
        "checks": [],
        "criteria": [],
        "cost_usd": cost_usd,
        "output": output,
        "unscored_output": None,
        "skills_invoked": None,
        "skill_call_inputs": None,
        "unparsed_lines": None,
        "events_seen": None,
        "last_event_type": None,
        "notes": ["an attempt of version 1: what its exchanges and its transcript would show is not known"],
        "duration_s": None,
        "toolchain": {"claude": None, "node": None, "promptfoo": None},
    }
