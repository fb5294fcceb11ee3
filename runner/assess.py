"""From recorded evidence to an outcome: the one pure function behind ``run``, ``show`` and the claim ``evidence`` of ``verify`` (steps 6 and 9).

Boundary: pure; ``assess_attempt`` reads an opened attempt's parts. Not here: the rules themselves (runner/claude/*), making the evidence (attempt.py).
Rules: everything that decides is in the bundle: plan, skill tree, exchanges, transcript, and what was seen from outside (``RunFacts``). If ``assess`` looks at something new, it
must be kept in the bundle, or ``verify`` cannot hold the run to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from runner.canonical import canonical_json, parse_canonical
from runner.claude.case import Case, Ending, Outcome, SetupFailure, answer_of
from runner.claude.evidence import Requirement, judge_skill
from runner.claude.outcome import classify
from runner.claude.row import attempt_row
from runner.claude.tamper import tamper_findings
from runner.claude.transcript import TranscriptParser
from runner.claude.wire import wire_evidence
from runner.errors import BundleCorrupt
from runner.gate.exchange import Exchange, Refusal
from runner.pinned import NEVER_SCORED
from runner.plan import Plan, RunPlan
from runner.run_facts import GateFacts, RunFacts
from runner.skill_text import parse_skill_text
from runner.workspace_gaps import Omitted, omitted_of, workspace_notes

if TYPE_CHECKING:
    from runner.bundle.reader import Attempt
    from runner.claude.facts import Transcript

EVIDENCE_PART = "evidence.json"


@dataclass(frozen=True)
class Assessment:
    """A judged run."""

    case: Case
    outcome: Outcome
    row: dict[str, Any]
    """The attempt's row of the JSON contract, without id and path."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """What else was concluded (a judge's judgement), in the canonical subset."""

    @property
    def answer(self) -> str | None:
        """The answer's text, scored or not."""
        return answer_of(self.case.transcript).text


def assess(
    *,
    plan: RunPlan,
    unit_texts: Mapping[str, str],
    transcript: Transcript,
    exchanges: tuple[Exchange, ...],
    run: RunFacts,
    gate: GateFacts,
    toolchain: Mapping[str, Any],
    omitted: Omitted = (),
) -> Assessment:
    """Judge a run by A2–A9. A judge's run has no unit under test, so that no skill is required of it.

    ``omitted`` is what of the workspace is not kept; it is told first, where no number of other notes can push it out of sight.

    ``unit_texts`` holds the staged text of the unit under test: ``body`` as the CLI sends it and, for a reference unit, ``reference``; absent where nothing is staged.
    """
    requirement = requirement_of(plan, unit_texts) if isinstance(plan, Plan) else None
    wire = None if requirement is None else wire_evidence(exchanges, requirement)
    refusal, others = ending_refusal(exchanges, transcript)
    tampered = [f"{path}: changed in the staged skill tree during the run" for path in run.skill_tree_changed]
    tampered += tamper_findings(
        transcript,
        exchanges,
        stopped_by_us=run.ended_by is not None or run.exit_status is None,
        exit_status=run.bwrap_status,
        status_fd_exit=run.exit_status,
    )
    case = Case(
        transcript=transcript,
        ending=Ending(
            exit_status=run.exit_status,
            ended_by=run.ended_by,
            setup=None
            if run.setup is None
            else SetupFailure(run.setup.step, run.setup.code, run.setup.message, run.setup.hint),
            refusal=refusal,
            other_refusals=others,
            limit=run.limit,
        ),
        skill=judge_skill(transcript, requirement, wire),
        tampered=tuple(tampered),
        pinned_model=plan.model if plan.model.startswith("claude-") else None,
        budget_usd=plan.gate.ceilings.usd,
    )
    outcome = classify(case)
    row = {"fixture": plan.fixture.id, **attempt_row(case, outcome), **_run_row(plan, exchanges, gate, toolchain)}
    if row["cost_usd"] is None and gate.requests:
        row["cost_usd"] = float(gate.cost_estimate_usd)  # the gate knows the sum where no result tells it (case W09)
    row["notes"] = [*workspace_notes(run, omitted), *row["notes"]]
    if plan.determinism == "pinned":
        row["notes"] = [*row["notes"], NEVER_SCORED]
    return Assessment(case, outcome, row)


def requirement_of(plan: Plan, unit_texts: Mapping[str, str]) -> Requirement:
    """Return what must have run by a plan and the staged texts of its unit (see ``assess``; of a saved attempt: ``stored_texts``)."""
    return Requirement(
        names=plan.unit.names,
        reference=plan.unit.reference,
        directory=plan.unit.base_dir,
        body=unit_texts.get("body"),
        reference_body=unit_texts.get("reference"),
    )


def ending_refusal(exchanges: Iterable[Exchange], transcript: Transcript) -> tuple[Refusal | None, int]:
    """Return the refusal that ended the run, if one did, and how many others there were (A8, rule 4).

    A refusal ended the run where the CLI's last main-thread request was refused and no good result followed: a refused request is never retried
    (``x-should-retry: false``), so the CLI gives up on it. Requests that did not come from the CLI (another session header) are never the reason.
    """
    refused, last = 0, None
    for exchange in exchanges:
        if exchange.kind == "start-up":
            continue
        refused += exchange.kind == "refused"
        if exchange.from_cli is not False and exchange.request.method == "POST" and not exchange.agent:
            last = exchange
    result = transcript.answering
    well = result is not None and not result.is_error
    if last is None or last.kind != "refused" or well:
        return None, refused
    return last.refusal, refused - 1


def _run_row(
    plan: RunPlan, exchanges: Iterable[Exchange], gate: GateFacts, toolchain: Mapping[str, Any]
) -> dict[str, Any]:
    found = toolchain.get("agent")
    agent: Mapping[str, Any] = found if isinstance(found, dict) else {}
    worker = plan if isinstance(plan, Plan) else None
    return {
        **plan.told(),
        "invocation": None if worker is None else worker.invocation,
        "launch": plan.launch.setting,
        "gate_mode": gate.mode,
        "provider": gate.upstream,
        "determinism": plan.determinism,
        "pinned": None if plan.pinned is None else plan.pinned.model_dump(mode="json"),
        "repeat": None if worker is None else worker.repeat,
        "plan_sha256": plan.sha256,
        "model": {"asked": plan.model, "wire": list(wire_models(exchanges))},
        "requests": {"sent": gate.requests, "refused": gate.refused, "unscripted": gate.unscripted},
        "cost_estimate_usd": gate.cost_estimate_usd,
        "toolchain": {"claude": agent.get("claude"), "node": agent.get("node"), "promptfoo": None},
    }


def wire_models(exchanges: Iterable[Exchange]) -> tuple[str, ...]:
    """Return the models that forwarded requests asked for, each once, in order (B16)."""
    from runner.claude.lines import loads

    found = []
    for exchange in exchanges:
        if exchange.kind == "inference":
            try:
                body = loads(exchange.request.body)
            except ValueError:
                continue
            found.append(body.get("model") if isinstance(body, dict) else None)
    return tuple(dict.fromkeys(model for model in found if isinstance(model, str)))


def evidence_part(assessment: Assessment, run: RunFacts, gate: GateFacts) -> bytes:
    """Return the part ``evidence.json``: facts from outside, the gate's totals, and what was concluded from all evidence."""
    return canonical_json(
        {
            "schema_version": 1,
            "run": run.model_dump(mode="json"),
            "gate": gate.model_dump(mode="json"),
            "concluded": concluded(assessment),
        }
    )


def concluded(assessment: Assessment) -> dict[str, Any]:
    """Return the conclusions in the canonical subset: outcome, skill state, both witnesses, the answer's digest."""
    from runner.canonical import sha256_hex

    case, outcome, answer = assessment.case, assessment.outcome, assessment.answer
    return {
        "outcome": {
            "kind": outcome.kind,
            "code": outcome.code,
            "message": plain(outcome.message),
            "hint": plain(outcome.hint),
        },
        "skill_state": case.skill.state,
        "witnesses": {"transcript": case.skill.transcript, "wire": case.skill.wire},
        "answer_sha256": None if answer is None else sha256_hex(answer.encode("utf-8", "surrogatepass")),
        "events_seen": case.transcript.events_seen,
        "unparsed_lines": case.transcript.unparsed_lines,
        **assessment.further,
    }


def follows(assessment: Assessment, stored: Any) -> bool:
    """Whether stored conclusions are those that follow from the evidence. Words for people do not count: a later release may put them otherwise."""
    return canonical_json(_without_words(concluded(assessment))) == canonical_json(_without_words(stored))


def _without_words(value: Any) -> Any:
    """Return conclusions without the message and the hint that stand beside a code (of an outcome, of a judge's fault)."""
    if isinstance(value, dict):
        words = ("message", "hint") if "code" in value else ()
        return {name: _without_words(held) for name, held in value.items() if name not in words}
    return [_without_words(held) for held in value] if isinstance(value, list) else value


def plain(text: str) -> str:
    """Return the text with lone surrogates spelt out, so that it can stand in canonical JSON."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def parse_transcript(data: bytes, on_unparsed: Callable[[int], None] | None = None) -> Transcript:
    """Parse a whole transcript."""
    parser = TranscriptParser(on_unparsed=on_unparsed)
    parser.feed(data)
    return parser.close()


def assess_attempt(attempt: Attempt) -> tuple[Assessment, Any]:
    """Judge a saved attempt from its parts alone. Returns the assessment and the stored ``concluded``.

    Raises: BundleCorrupt for a part that is missing or is not what its name says.
    """
    plan = stored_plan(attempt)
    return assess_parts(attempt, plan, stored_texts(attempt, plan))


def assess_parts(attempt: Attempt, plan: RunPlan, unit_texts: Mapping[str, str]) -> tuple[Assessment, Any]:
    """Judge a saved attempt, a worker's or a judge's, by its plan. Returns the assessment and the stored ``concluded``. Raises: BundleCorrupt."""
    run, gate, stored = _stored_evidence(attempt)
    toolchain = attempt.json("toolchain.json")
    assessment = assess(
        plan=plan,
        unit_texts=unit_texts,
        transcript=parse_transcript(attempt.part("transcript.jsonl")),
        exchanges=attempt.exchanges(),
        run=run,
        gate=gate,
        toolchain=toolchain if isinstance(toolchain, dict) else {},
        omitted=stored_omitted(attempt),
    )
    return assessment, stored


def recheck(attempt: Attempt) -> Literal["held", "broken", "unknown"]:
    """Compare the stored conclusions with those recomputed from the stored evidence: the claim ``evidence``.

    Unknown where the attempt keeps no evidence of its own (another kind of attempt). Raises: BundleCorrupt.
    """
    if not attempt.has(EVIDENCE_PART):
        return "unknown"
    assessment, stored = assess_attempt(attempt)
    return "held" if follows(assessment, stored) else "broken"


def stored_row(attempt: Attempt, assessment: Assessment, path: str) -> dict[str, Any]:
    """Return a saved attempt's row: the very one that ``run`` printed. Raises: BundleCorrupt."""
    observed, sandbox = attempt.json("observations.json"), attempt.json("sandbox.json")
    duration_us = observed.get("duration_us", 0) if isinstance(observed, dict) else 0
    rootfs = sandbox.get("rootfs") if isinstance(sandbox, dict) else None
    kind = rootfs.get("kind") if isinstance(rootfs, dict) else None
    return kept_row(attempt.id, path, assessment, duration_us if isinstance(duration_us, int) else 0, str(kind))


def kept_row(attempt_id: str, path: str, assessment: Assessment, duration_us: int, rootfs: str) -> dict[str, Any]:
    """Return the whole row of a kept attempt."""
    return {"id": attempt_id, "path": path, **assessment.row, "duration_s": duration_us / 1e6, "rootfs": rootfs}


def stored_plan(attempt: Attempt) -> Plan:
    """Return an attempt's plan. Raises: BundleCorrupt."""
    try:
        return Plan.read(attempt.part("plan.json"))
    except ValueError as error:
        raise BundleCorrupt("the plan is not one of this release", where="part plan.json") from error


def _stored_evidence(attempt: Attempt) -> tuple[RunFacts, GateFacts, Any]:
    from pydantic import ValidationError

    try:
        value: Any = parse_canonical(attempt.part(EVIDENCE_PART))
        dump = canonical_json  # strict models take tuples from JSON text only
        run = RunFacts.model_validate_json(dump(value["run"]))
        gate = GateFacts.model_validate_json(dump(value["gate"]))
        stored = value["concluded"]
    except (ValidationError, ValueError, TypeError, KeyError) as error:
        raise BundleCorrupt("the evidence is not readable", where=f"part {EVIDENCE_PART}") from error
    return run, gate, stored


def stored_omitted(attempt: Attempt) -> Omitted:
    """Return what of an attempt's workspace is not kept, as its listing says. Raises: BundleCorrupt."""
    return omitted_of(attempt.json("workspace.json")) if attempt.has("workspace.json") else ()


def stored_run(attempt: Attempt) -> RunFacts:
    """Return what was seen of an attempt's run from outside. Raises: BundleCorrupt."""
    return _stored_evidence(attempt)[0]


def stored_texts(attempt: Attempt, plan: Plan) -> dict[str, str]:
    """Return the staged texts of the unit under test, as the attempt keeps them. Raises: BundleCorrupt."""
    if plan.unit.base_dir is None:
        return {}
    folder = plan.unit.base_dir.rstrip("/").rsplit("/", 1)[-1]
    texts = {"body": parse_skill_text(attempt.part(f"skill-tree/{folder}/SKILL.md")).body}
    if plan.unit.reference is not None and attempt.has(f"skill-tree/{folder}/{plan.unit.reference}"):
        texts["reference"] = attempt.part(f"skill-tree/{folder}/{plan.unit.reference}").decode("utf-8", "replace")
    return texts
