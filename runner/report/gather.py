"""From an attempt's file to what a page shows of it.

Boundary: reads one attempt file and the evaluations beside it. Not here: drawing (pages.py, markdown.py), which files (runner/cli/report.py).
Rules: the outcome is recomputed from the stored parts by the functions that judged the run, and compared with the stored one; a page never repeats a summary that the evidence
does not give. A file that cannot be read is an error of its own and stays in the count. Nothing of this machine (a path, a clock) is in a view.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from runner.assess import Assessment, assess_attempt, follows, stored_plan, stored_row
from runner.bundle.reader import Attempt, open_attempt
from runner.bundle.version1 import is_version1
from runner.canonical import sha256_hex
from runner.errors import RunnerError
from runner.gate.prices import PriceTable
from runner.grade.control import OUTPUT_PART, Control, stored_control
from runner.grade.judge_plan import JudgePlan
from runner.grade.judge_saved import assess_judge, is_judge, stored_judge_plan
from runner.plan import Plan, RunPlan
from runner.report.bounds import Bounds, Excerpt, excerpt, excerpt_bytes
from runner.report.evaluation import EvaluationView, Point, read_points, text_of, undecided
from runner.report.headline import bare_row, gate_facts, key_facts, make_row
from runner.report.proof import prove
from runner.report.provenance import limit_facts, provenance, sandbox_lines
from runner.report.saved import Saved, find_evaluations
from runner.report.timeline import read_timeline
from runner.report.traffic import read_traffic
from runner.report.version1 import view_version1
from runner.report.view import AttemptView, ControlView, Word
from runner.report.workspace import mapping, read_skill_files, read_trace, read_workspace


@dataclass(frozen=True, slots=True)
class Opened:
    """An attempt that could be read, and what was concluded from it."""

    attempt: Attempt
    plan: RunPlan
    assessment: Assessment
    recheck: Literal["held", "broken"]
    """Whether the stored outcome is the one that the evidence gives."""
    row: Mapping[str, Any]
    """The attempt's row of the JSON contract."""
    rubric: Mapping[str, str]
    """Criteria of the fixture, by id."""
    control: Control | None
    saved: Saved


@dataclass(frozen=True, slots=True)
class _Verdict:
    word: Word
    code: str
    message: str
    hint: str


def view_attempt(
    path: Path, number: int, bounds: Bounds, prices: PriceTable, evaluations: Path | None = None
) -> AttemptView:
    """Return what a page shows of the attempt in ``path``; of a file that cannot be read, that and why. ``number`` is its place on the page.

    ``evaluations`` is a directory that holds further evaluations, later than those beside the attempt.
    """
    try:
        if is_version1(path):
            return view_version1(path, number, bounds, evaluations)
        return _view(_open(path, bounds, evaluations), number, bounds, prices)
    except RunnerError as error:
        return unreadable(path, number, bounds, error)


def unreadable(path: Path, number: int, bounds: Bounds, error: RunnerError) -> AttemptView:
    """Return the view of a file of which nothing can be said but why."""
    where = error.where if error.where.startswith(("part ", "manifest")) else ""
    message = f"{where}: {error.message}" if where else error.message
    row = bare_row(number, path.name, word="error", measured=False, code=error.code, message=message)
    return AttemptView(row, bounds.level, excerpt(message, bounds.reason_chars), error.hint, "unknown")


def _open(path: Path, bounds: Bounds, evaluations: Path | None) -> Opened:
    attempt = open_attempt(path)
    plan: RunPlan
    if is_judge(attempt.manifest.summary):
        plan = stored_judge_plan(attempt)
        assessment, _, stored = assess_judge(attempt)
    else:
        plan = stored_plan(attempt)
        assessment, stored = assess_attempt(attempt)
    held = follows(assessment, stored)
    rubric = rubric_texts(attempt.part("fixture.json")) if attempt.has("fixture.json") else {}
    return Opened(
        attempt=attempt,
        plan=plan,
        assessment=assessment,
        recheck="held" if held else "broken",
        row=stored_row(attempt, assessment, path.name),
        rubric=rubric,
        control=stored_control(attempt),
        saved=Saved(None)  # a pinned run is never scored, whoever laid an evaluation beside it
        if plan.pinned is not None
        else find_evaluations(path, attempt.id, rubric, bounds, evaluations),
    )


def rubric_texts(fixture: bytes) -> dict[str, str]:
    """Return the criteria of a fixture's source, by id; none for a source that is no fixture."""
    try:
        rows = mapping(json.loads(fixture)).get("rubric")
    except (ValueError, RecursionError):
        return {}
    return {
        text_of(row.get("id")): text_of(row.get("criterion"))
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, dict)
    }


def _view(opened: Opened, number: int, bounds: Bounds, prices: PriceTable) -> AttemptView:
    attempt, plan, row, evaluation = opened.attempt, opened.plan, opened.row, opened.saved.latest
    verdict, output = _verdict(opened), _output(opened)
    whole, detailed = bounds.level == "whole", bounds.level != "brief"
    exchanges = attempt.exchanges() if detailed else ()
    traffic = read_traffic(exchanges, bounds, prices) if detailed else None
    digest, files_total, files = read_skill_files(attempt, bounds)
    notes = [text_of(note) for note in row["notes"]]
    proof = None
    if isinstance(plan, Plan) and detailed:
        proof = prove(attempt, plan, opened.assessment, exchanges)
    return AttemptView(
        row=make_row(
            number,
            attempt,
            row,
            plan,
            evaluation,
            word=verdict.word,
            measured=opened.assessment.outcome.kind == "measured" and opened.recheck == "held",
            code=verdict.code,
            message=verdict.message,
            is_control=opened.control is not None,
        ),
        level=bounds.level,
        message=excerpt(verdict.message, bounds.reason_chars),
        hint=verdict.hint,
        recheck=opened.recheck,
        control=None if opened.control is None else _control_view(opened.control, bounds),
        key_facts=key_facts(row, plan),
        answer=None if output is None else excerpt(output, bounds.answer_chars),
        answer_scored=opened.assessment.outcome.kind == "measured",
        answer_source="negative control" if opened.control is not None else text_of(row.get("output_source")),
        evaluation=evaluation,
        earlier=opened.saved.earlier,
        rubric=_rubric(opened, bounds),
        judge_lines=_judge_lines(plan, evaluation),
        proof=proof,
        timeline=None if traffic is None else read_timeline(attempt.part("transcript.jsonl"), bounds, traffic.sources),
        traffic=traffic,
        gate=gate_facts(attempt) if whole else (),
        trace=read_trace(attempt, bounds) if detailed else None,
        workspace=read_workspace(attempt, bounds) if detailed else None,
        notes=tuple(excerpt(note, bounds.reason_chars) for note in notes[: bounds.notes]),
        notes_left_out=max(0, len(notes) - bounds.notes),
        stderr=_stderr(attempt, bounds),
        provenance=provenance(attempt, plan, (digest, files_total), "" if output is None else _sha256(output)),
        skill_files=files if whole else (),
        skill_files_total=files_total,
        argv=excerpt("\n".join(plan.launch.argv), bounds.text_chars) if whole else None,
        sandbox=sandbox_lines(attempt) if whole else (),
        limits=limit_facts(attempt) if whole else (),
    )


def _verdict(opened: Opened) -> _Verdict:
    outcome, evaluation = opened.assessment.outcome, opened.saved.latest
    if opened.recheck == "broken":
        told = f"the stored outcome is not the one that the stored evidence gives: {outcome.message}"
        return _Verdict("error", "integrity", told, "hermeval verify names the claim that is broken")
    if outcome.kind == "error":
        return _Verdict("error", outcome.code or "", outcome.message, outcome.hint)
    if isinstance(opened.plan, JudgePlan):
        return _Verdict("measured", "", "the judge decided every criterion", "")
    if opened.plan.pinned is not None:
        told = "the run is complete; its clock stood and its random bytes repeat, so it is never scored"
        return _Verdict("measured", "", told, "hermeval reproduce runs it again, to the same bytes")
    if evaluation is None:
        return _Verdict("measured", "", outcome.message, outcome.hint)
    return _Verdict(evaluation.verdict, evaluation.code, evaluation.message, evaluation.hint)


def _output(opened: Opened) -> str | None:
    """Return the answer; of a negative control the output in its place, which its generation record does not give."""
    if opened.control is None or not opened.attempt.has(OUTPUT_PART):
        return opened.assessment.answer
    return opened.attempt.part(OUTPUT_PART).decode("utf-8", "backslashreplace")


def _control_view(control: Control, bounds: Bounds) -> ControlView:
    return ControlView(
        reason=excerpt(control.reason, bounds.reason_chars),
        parent=f"attempt {control.parent.attempt}",
        replacements=tuple(
            (excerpt(one.old, bounds.reason_chars), excerpt(one.new, bounds.reason_chars), one.count)
            for one in control.replacements[: bounds.checks]
        ),
    )


def _rubric(opened: Opened, bounds: Bounds) -> tuple[Point, ...]:
    """Return the rubric's criteria: as decided, or undecided."""
    if isinstance(opened.plan, JudgePlan):
        texts = {criterion.id: criterion.criterion for criterion in opened.plan.rubric}
        return read_points(opened.row.get("criteria"), texts, bounds) or undecided(texts, bounds)
    if opened.saved.latest is not None and opened.saved.latest.criteria:
        return opened.saved.latest.criteria
    return undecided(opened.rubric, bounds)


def _judge_lines(plan: RunPlan, evaluation: EvaluationView | None) -> tuple[str, ...]:
    if isinstance(plan, JudgePlan):
        return (f"vote {plan.vote} on the output of attempt {plan.judged.attempt}",)
    return () if evaluation is None else evaluation.judge_lines


def _stderr(attempt: Attempt, bounds: Bounds) -> Excerpt | None:
    return excerpt_bytes(attempt.part("stderr"), bounds.stderr_chars, end="last") if attempt.has("stderr") else None


def _sha256(output: str) -> str:
    return sha256_hex(output.encode("utf-8", "surrogatepass"))
