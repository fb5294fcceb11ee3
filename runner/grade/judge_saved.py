"""What a judge's run amounts to, and reading it back from its attempt: the one function behind ``judge``, ``show`` and ``verify`` (B12).

Boundary: ``conclude`` is pure; the rest reads attempt files. Not here: running a judge (judge.py), the form of an answer (judge_answer.py), several votes (judge_verdict.py).
Rules: a judgement is a function of the judge's attempt alone, so that anybody can recompute it offline; no other file holds one. The answer is taken from the gate's record, whole:
a judge that speaks twice has not answered in the one form. A request that held anything else than the plan's message, or offered a tool, makes the judgement void.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from runner.assess import Assessment, assess_parts, follows, plain, stored_row, wire_models
from runner.bundle.reader import open_attempt
from runner.canonical import sha256_hex
from runner.claude.case import Outcome
from runner.claude.lines import loads
from runner.errors import BundleCorrupt
from runner.gate.exchange import Exchange
from runner.gate.message import Message, read_message
from runner.grade.judge_answer import AnswerRefused, parse_answer
from runner.grade.judge_plan import JUDGE_KIND, JudgePlan
from runner.grade.judge_verdict import JUDGE_ERROR, JudgeFault, Judgement

if TYPE_CHECKING:
    from runner.bundle.reader import Attempt

_HINT = "look at the judge's own attempt, and judge again"


def is_judge(summary: Mapping[str, Any]) -> bool:
    """Whether a manifest's summary is that of a judge's attempt."""
    return summary.get("kind") == JUDGE_KIND


def conclude(plan: JudgePlan, assessment: Assessment, exchanges: Iterable[Exchange]) -> tuple[Assessment, Judgement]:
    """Return the judgement of a judge's run, and its assessment with the judgement in it.

    A run that is an error by A8 stays that error; one whose answer is not usable becomes ``judge-error``. Either way the judgement has the fault.
    """
    exchanges = tuple(exchanges)
    sent = [exchange for exchange in exchanges if exchange.kind == "inference"]
    outcome = assessment.outcome
    said = whole_answer(sent)
    judgement = Judgement(
        attempt_id=plan.judged.attempt,
        output_sha256=plan.judged.output_sha256,
        vote=plan.vote,
        model=plan.model,
        error=JudgeFault(outcome.code or JUDGE_ERROR, outcome.message, outcome.hint),
        models_wire=wire_models(exchanges),
        raw_answer=said if isinstance(said, str) else assessment.answer,
        plan_sha256=plan.sha256,
        cost_usd=assessment.row["cost_usd"],
        provider=plan.provider.kind,
    )
    if outcome.kind == "measured":
        fault = _isolation_fault(plan, sent) or (said if isinstance(said, JudgeFault) else None)
        if fault is None:
            assert isinstance(said, str)
            try:
                judgement = replace(judgement, criteria=parse_answer(said, plan.ids), error=None)
            except AnswerRefused as refused:
                fault = JudgeFault(refused.cause, f"the judge's answer is not usable: {refused.message}", _HINT)
        if fault is not None:
            judgement = replace(judgement, error=fault)
            outcome = Outcome("error", JUDGE_ERROR, f"{fault.cause}: {fault.message}", fault.hint)
    return _with_judgement(assessment, outcome, judgement), judgement


def whole_answer(sent: Iterable[Exchange]) -> str | JudgeFault:
    """Return the text of the one response that has any, all its text blocks joined, or the fault that there is none or more than one.

    The CLI's result would be the last text block of the last message: words before it, or a first half that was cut off, would go unseen.
    """
    messages = [message for exchange in sent if (message := read_message(exchange)) is not None]
    spoken = [message for message in messages if _text(message).strip()]
    if not spoken:
        return JudgeFault("answer-unread", "no recorded response holds a text", _HINT)
    if len(spoken) > 1:
        return JudgeFault("answer-in-pieces", f"the judge spoke in {len(spoken)} responses instead of one", _HINT)
    return _text(spoken[0])


def _text(message: Message) -> str:
    return "".join(block.text for block in message.blocks if block.type == "text")


def _isolation_fault(plan: JudgePlan, sent: Iterable[Exchange]) -> JudgeFault | None:
    """Return the fault where a request held anything but what the plan says, or the message did not arrive whole."""
    for exchange in sent:
        problem = _not_isolated(plan, exchange)
        if problem is not None:
            message = f"request {exchange.seq} {problem}"
            return JudgeFault("not-isolated", message, "a judge sees output and rubric alone; look at the exchange")
    return None


def _not_isolated(plan: JudgePlan, exchange: Exchange) -> str | None:
    try:
        body = loads(exchange.request.body)
    except ValueError:
        return "cannot be read"
    if not isinstance(body, dict) or exchange.agent or exchange.from_cli is False:
        return "is not the judge's own"
    if body.get("tools"):
        return "offers tools"
    given = body.get("messages")
    messages = given if isinstance(given, list) else []
    first = messages[0] if messages else None
    if not isinstance(first, dict) or first.get("role") != "user" or _texts(first.get("content")) != list(plan.blocks):
        return "does not begin with the planned message, whole and alone"
    later = [message for message in messages[1:] if not isinstance(message, dict) or message.get("role") == "system"]
    if later:
        return "holds a message of the system's beside the planned one"
    if plan.system_prompt not in (_texts(body.get("system")) or ()):
        return "has not the planned system prompt"
    return None


def _texts(content: Any) -> list[str] | None:
    """Return the texts of a list of text blocks; None where it holds anything else."""
    if not isinstance(content, list):
        return None
    texts = [
        block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None for block in content
    ]
    return [text for text in texts if isinstance(text, str)] if all(isinstance(text, str) for text in texts) else None


def _with_judgement(assessment: Assessment, outcome: Outcome, judgement: Judgement) -> Assessment:
    measured = outcome.kind == "measured"
    row = {
        **assessment.row,
        "verdict": None if measured else "error",
        "outcome": {"kind": outcome.kind, "code": outcome.code, "message": outcome.message, "hint": outcome.hint},
        "criteria": [vote.as_json() for vote in judgement.criteria],
        "output": judgement.raw_answer if measured else None,
        "unscored_output": None if measured else judgement.raw_answer,
        "structured_output": None,
    }
    fault = judgement.error
    said = {
        "criteria": [vote.as_json() for vote in judgement.criteria],
        "fault": None if fault is None else {"cause": fault.cause, "message": plain(fault.message)},
    }
    return replace(assessment, outcome=outcome, row=row, further={"judgement": said})


def stored_judge_plan(attempt: Attempt) -> JudgePlan:
    """Return a judge attempt's plan. Raises: BundleCorrupt."""
    try:
        return JudgePlan.read(attempt.part("plan.json"))
    except ValueError as error:
        raise BundleCorrupt("the plan is not a judge's of this release", where="part plan.json") from error


def assess_judge(attempt: Attempt) -> tuple[Assessment, Judgement, Any]:
    """Recompute a saved judge attempt: its assessment, its judgement, and the stored ``concluded``. Raises: BundleCorrupt."""
    plan = stored_judge_plan(attempt)
    assessment, stored = assess_parts(attempt, plan, {})
    assessment, judgement = conclude(plan, assessment, attempt.exchanges())
    return assessment, judgement.kept_as(attempt.id, str(attempt.path)), stored


def recheck_judge(attempt: Attempt) -> Literal["held", "broken"]:
    """Compare what a judge attempt says of itself with what follows from its parts: the claim ``evidence``. Raises: BundleCorrupt."""
    assessment, _, stored = assess_judge(attempt)
    return "held" if follows(assessment, stored) else "broken"


def judge_row(attempt: Attempt, path: str) -> dict[str, Any]:
    """Return the row of a judge's attempt. Raises: BundleCorrupt."""
    assessment, _, _ = assess_judge(attempt)
    return stored_row(attempt, assessment, path)


def read_judgement(path: Path, output: bytes) -> Judgement:
    """Return the judgement on ``output`` in a judge's attempt file, recomputed from its parts.

    Raises: InputMissing; BundleError for a damaged file, another kind of attempt, one on another output, or one whose conclusions do not follow from its evidence.
    """
    attempt = open_attempt(path)
    if not is_judge(attempt.manifest.summary):
        raise BundleCorrupt("this is no attempt of a judge", where=str(path))
    plan = stored_judge_plan(attempt)
    assessment, judgement, stored = assess_judge(attempt)
    if not follows(assessment, stored):
        raise BundleCorrupt("the stored judgement does not follow from the evidence", where=str(path), hint=_HINT)
    if plan.judged.output_sha256 != sha256_hex(output) or not plan.shows(output.decode("utf-8", "surrogatepass")):
        raise BundleCorrupt("the judge was shown another output than the one that is asked about", where=str(path))
    return judgement
