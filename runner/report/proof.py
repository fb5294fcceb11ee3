"""How each witness shows that the skill ran, in words (A3–A7).

Boundary: reads the staged skill's text from an opened attempt. Not here: the rules (runner/claude/evidence.py, wire.py), which are asked and never repeated.
Rules: the state is the assessment's. What stands beside it says where to look; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runner.assess import Assessment, requirement_of, stored_texts
from runner.bundle.reader import Attempt
from runner.claude.evidence import Requirement, transcript_evidence
from runner.claude.wire import wire_evidence
from runner.gate.exchange import Exchange
from runner.plan import Plan

_MAX_SHOWN = 20

STATES = {
    "ran": "The skill ran.",
    "failed": "The skill was called, and no call had a good result.",
    "absent": "The skill did not run.",
    "unproven": "Whether the skill ran is not proved.",
}
"""What each state means, as a sentence."""


@dataclass(frozen=True, slots=True)
class Witness:
    """One witness."""

    says: bool | None
    """None where it cannot tell or was not asked."""
    how: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Proof:
    """The evidence that the skill under test ran."""

    unit: str
    state: str
    sentence: str
    transcript: Witness
    wire: Witness


def prove(attempt: Attempt, plan: Plan, assessment: Assessment, exchanges: Sequence[Exchange]) -> Proof | None:
    """Return the evidence on an attempt's skill; None where no skill is required. Raises: BundleCorrupt."""
    skill = assessment.case.skill
    if skill.state is None:
        return None
    wanted = requirement_of(plan, stored_texts(attempt, plan))
    return Proof(
        unit=plan.unit.skill,
        state=skill.state,
        sentence=STATES[skill.state],
        transcript=Witness(skill.transcript, _by_transcript(assessment, wanted)),
        wire=Witness(skill.wire, _by_wire(exchanges, wanted)),
    )


def _by_transcript(assessment: Assessment, wanted: Requirement) -> tuple[str, ...]:
    transcript = assessment.case.transcript
    ends = {"loaded": "a good result", "failed": "a bad result", "no-result": "no result"}
    words = []
    for call in transcript.skill_calls:
        thread = "main thread" if call.parent is None else f"sub-agent of call {call.parent}"
        name = "no skill" if call.name is None else call.name
        if call.way == "slash":
            words.append(f"a replayed event is the command tags of /{name} ({thread})")
        else:
            words.append(f"Skill call {call.call_id} names {name} and has {ends[call.state]} ({thread})")
    if not words and not transcript.replays:
        words.append("no Skill call, and no event was replayed")
    elif not words:
        words.append("no Skill call, and no replayed event is a skill's command tags")
    if wanted.reference is not None:
        read = transcript_evidence(transcript, wanted).reference
        words.append(f"{wanted.reference} was {'read' if read else 'not read by a Read call'}")
    return _some(words)


def _by_wire(exchanges: Sequence[Exchange], wanted: Requirement) -> tuple[str, ...]:
    found: dict[str, list[int]] = {}
    for exchange in exchanges:
        seen = wire_evidence([exchange], wanted)
        if seen.slash:
            found.setdefault("the staged text of the skill, straight after its command tags", []).append(exchange.seq)
        if seen.tool:
            found.setdefault("the staged text of the skill, with the good result of its call", []).append(exchange.seq)
        if wanted.reference is not None and seen.reference:
            found.setdefault(f"the text of {wanted.reference}", []).append(exchange.seq)
    return tuple(f"request {numbers[0]} holds {what}{_later(len(numbers) - 1)}" for what, numbers in found.items()) or (
        "no main-thread request holds the skill's text",
    )


def _later(count: int) -> str:
    return "" if not count else f" (and {count} later request{'s' if count > 1 else ''})"


def _some(words: list[str]) -> tuple[str, ...]:
    rest = len(words) - _MAX_SHOWN
    return (*words[:_MAX_SHOWN], *((f"and {rest} more",) if rest > 0 else ()))
