"""An attempt of format version 1 as a page shows it: the output, the rubric, and what little provenance it has (B8).

Boundary: reads one file and the evaluations beside it. Not here: the format (runner/bundle/version1.py).
Rules: what the form does not hold is not known and is said to be so; nothing is made up.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from runner.bundle.version1 import read_version1
from runner.report.bounds import Bounds, excerpt, known_usd
from runner.report.evaluation import text_of, undecided
from runner.report.headline import bare_row
from runner.report.saved import find_evaluations
from runner.report.view import AttemptView, ControlView, Facts, Word

_MESSAGE = "an attempt of version 1: its outcome was not recorded"


def view_version1(path: Path, number: int, bounds: Bounds, also: Path | None = None) -> AttemptView:
    """Return what a page shows of an attempt of version 1. Raises: InputMissing, BundleCorrupt."""
    attempt_id, found = read_version1(path)
    rows = found.fixture.get("rubric")
    texts = {
        text_of(row.get("id")): text_of(row.get("criterion"))
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, dict)
    }
    saved = find_evaluations(path, attempt_id, texts, bounds, also)
    evaluation = saved.latest
    word: Word = "measured" if evaluation is None else evaluation.verdict
    code, message, hint = (
        ("", _MESSAGE, "") if evaluation is None else (evaluation.code, evaluation.message, evaluation.hint)
    )
    cost = found.generation.cost_usd
    row = replace(
        bare_row(number, path.name, word=word, measured=True, code=code if word == "error" else "", message=message),
        id=attempt_id,
        fixture=text_of(found.fixture.get("id")),
        model=found.generation.model,
        checks_met=None if evaluation is None else evaluation.checks_met,
        checks_total=None if evaluation is None else evaluation.checks_total,
        criteria_met=None if evaluation is None else evaluation.criteria_met,
        criteria_total=None if evaluation is None else evaluation.criteria_total,
        cost_usd=None if cost is None else known_usd(float(cost)),
        paid=True,
        is_control=found.negative_control is not None,
    )
    own = (
        ("attempt id", attempt_id),
        ("format", f"{found.format} version {found.format_version}"),
        ("answer sha256", found.output_sha256),
        ("generated output sha256", found.generation.output_sha256),
        ("model", found.generation.model),
        ("revision", found.generation.revision),
    )
    skills = tuple((name, digest) for name, digest in sorted(found.skill_sha256.items())[: bounds.files or 5])
    control = found.negative_control
    return AttemptView(
        row=row,
        level=bounds.level,
        message=excerpt(message, bounds.reason_chars),
        hint=hint,
        recheck="unknown",
        control=None
        if control is None
        else ControlView(
            excerpt(control.reason, bounds.reason_chars), f"output sha256 {control.parent_output_sha256}", ()
        ),
        answer=excerpt(found.output, bounds.answer_chars),
        answer_scored=True,
        evaluation=evaluation,
        earlier=saved.earlier,
        rubric=evaluation.criteria if evaluation is not None and evaluation.criteria else undecided(texts, bounds),
        judge_lines=() if evaluation is None else evaluation.judge_lines,
        provenance=(Facts("Attempt", own), Facts("Skill sources (sha256)", skills)),
    )
