"""The facts that stand first: an attempt's line in a batch, and the strip below its verdict.

Boundary: pure; ``gate_facts`` reads a part of an opened attempt. Not here: the verdict (gather.py).
Rules: a number that is not finite, or is no number, is not known. Nothing is rounded before it is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runner.bundle.reader import Attempt
from runner.plan import Plan, RunPlan
from runner.report.bounds import excerpt, known_usd, seconds_text, usd_text
from runner.report.evaluation import EvaluationView, text_of
from runner.report.view import Row, Word
from runner.report.workspace import mapping

Pairs = tuple[tuple[str, str], ...]
_WHY_CHARS = 240
_MAX_MODELS = 5
_WITNESS = {True: "yes", False: "no", None: "cannot tell"}
_GATE = (
    ("requests", "requests sent"),
    ("refused", "refused"),
    ("unscripted", "not in the script"),
    ("not_kept", "not kept"),
    ("input_tokens", "input tokens"),
    ("output_tokens", "output tokens"),
    ("cache_read_tokens", "cache read tokens"),
    ("cache_write_tokens", "cache write tokens"),
    ("unpriced_requests", "requests without a price"),
    ("key_redactions", "key redactions"),
    ("connections_failed", "failed connections"),
)
_GATE_ALWAYS = frozenset({"requests", "refused", "input_tokens", "output_tokens"})
_MAX_S = 1e9
_MAX_GATE_NOTES = 10


def bare_row(number: int, name: str, *, word: Word, measured: bool, code: str, message: str) -> Row:
    """Return the line of an attempt of which little is known."""
    return Row(
        number=number,
        id="",
        name=name,
        fixture="",
        kind="worker",
        word=word,
        measured=measured,
        code=code,
        why=excerpt(message, _WHY_CHARS),
        skill_state="",
        model="",
        checks_met=None,
        checks_total=None,
        criteria_met=None,
        criteria_total=None,
        cost_usd=None,
        paid=False,
        duration_s=None,
    )


def make_row(
    number: int,
    attempt: Attempt,
    row: Mapping[str, Any],
    plan: RunPlan,
    evaluation: EvaluationView | None,
    *,
    word: Word,
    measured: bool,
    code: str,
    message: str,
    is_control: bool,
) -> Row:
    """Return the line of an attempt; ``row`` is its row of the JSON contract."""
    models = [text_of(model) for model in mapping(row.get("model")).get("wire") or ()]
    return Row(
        number=number,
        id=attempt.id,
        name=attempt.path.name,
        fixture=attempt.manifest.fixture,
        kind="worker" if isinstance(plan, Plan) else "judge",
        word=word,
        measured=measured,
        code=code if word == "error" else "",
        why=excerpt(message, _WHY_CHARS),
        skill_state=text_of(row.get("skill_state")),
        model=", ".join(models[:_MAX_MODELS]) or plan.model,
        checks_met=None if evaluation is None else evaluation.checks_met,
        checks_total=None if evaluation is None else evaluation.checks_total,
        criteria_met=None if evaluation is None else evaluation.criteria_met,
        criteria_total=None if evaluation is None else evaluation.criteria_total,
        cost_usd=known_usd(row.get("cost_usd")),
        paid=plan.provider.kind == "anthropic",
        duration_s=_duration(row.get("duration_s")),
        is_control=is_control,
        pinned=isinstance(plan, Plan) and plan.pinned is not None,
        debug=bool(plan.shared_workspace),
    )


def key_facts(row: Mapping[str, Any], plan: RunPlan) -> Pairs:
    """Return the strip of facts below the verdict."""
    witnesses, requests, model = (mapping(row.get(name)) for name in ("witnesses", "requests", "model"))
    facts = []
    if plan.shared_workspace:
        facts.append(("Debug", "the workspace was a directory of the host, shared for debugging; not for results"))
    if isinstance(plan, Plan):
        facts.append(("Skill", f"{plan.unit.skill}: {text_of(row.get('skill_state')) or 'none required'}"))
        told = (f"{name} {_WITNESS[_flag(witnesses, name)]}" for name in ("transcript", "wire"))
        facts.append(("Witnesses", ", ".join(told)))
        facts.append(("Invocation", f"{plan.invocation}, {plan.launch.setting} launch"))
    wire = ", ".join(text_of(name) for name in (model.get("wire") or ())[:_MAX_MODELS]) or "none asked"
    facts.append(("Model", f"{plan.model} → {wire}"))
    facts.append(("Provider", plan.provider.kind + ("" if plan.provider.kind == "anthropic" else ", nothing was paid")))
    refused = f", {text_of(requests.get('refused'))} refused" if requests.get("refused") else ""
    facts.append(("Requests", f"{text_of(requests.get('sent'))} sent{refused}"))
    facts.append(("Rounds", text_of(row.get("rounds"))))
    duration, cost = _duration(row.get("duration_s")), known_usd(row.get("cost_usd"))
    if duration is not None:
        facts.append(("Duration", seconds_text(duration)))
    facts.append(("Cost", "not known" if cost is None else f"{usd_text(cost)} at list prices"))
    if row.get("exit_status") is not None:
        facts.append(("CLI exit status", text_of(row["exit_status"])))
    return tuple(facts)


def gate_facts(attempt: Attempt) -> Pairs:
    """Return the gate's own totals. Raises: BundleCorrupt."""
    gate = mapping(mapping(attempt.json("evidence.json")).get("gate")) if attempt.has("evidence.json") else {}
    facts = []
    for name, title in _GATE:
        count = gate.get(name)
        if type(count) is int and (count or name in _GATE_ALWAYS):
            facts.append((title, f"{count:,}"))
    cost = text_of(gate.get("cost_estimate_usd"))
    if cost:
        facts.append(("estimate", f"USD {cost}, at the list prices of {text_of(gate.get('prices_date')) or '?'}"))
    notes = gate.get("notes")
    facts += [("note", text_of(note)) for note in (notes if isinstance(notes, list) else ())[:_MAX_GATE_NOTES]]
    return tuple(facts)


def _duration(value: object) -> float | None:
    return value if isinstance(value, float) and 0 < value < _MAX_S else None


def _flag(values: Mapping[str, Any], name: str) -> bool | None:
    value = values.get(name)
    return value if isinstance(value, bool) else None
