"""Did the skill under test run? Two witnesses, one state (A3–A7).

Boundary: pure. Not here: finding the witnesses' facts in bytes (transcript.py, wire.py), the outcome that follows (outcome.py).
Rules: what init lists is evidence neither for nor against; it only tells whether a bare name is ambiguous. ``ran`` needs one way of loading
(tool or slash) that both witnesses show; a transcript that cannot tell, by A3's own words (no replayed event and no call that names the skill),
leaves it to the wire, and a bare transcript is judged by itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from runner.claude.facts import Transcript
from runner.claude.names import ambiguous, bare_name, names_skill

SkillState = Literal["ran", "failed", "absent", "unproven"]
_REFERENCE_UNIT = re.compile(r"(?P<skill>[^/]+)/(?P<reference>references/.+\.md)")


@dataclass(frozen=True, slots=True)
class Requirement:
    """The unit under test, as far as the evidence needs it."""

    names: tuple[str, ...]
    """The skill's names: its directory and its front-matter name, or the one that was asked for."""
    reference: str | None = None
    """For a reference unit its path beneath the skill's directory: ``references/<file>.md``."""
    directory: str | None = None
    """The skill's directory inside the sandbox, by the plan; None where no plan is known."""
    body: str | None = None
    """The staged SKILL.md, front matter off; None where nothing was staged: then directories are compared only."""
    reference_body: str | None = None

    @classmethod
    def parse(cls, text: str) -> Requirement:
        """Read a skill name or ``<skill>/references/<file>.md`` as a person gives it (B2)."""
        found = _REFERENCE_UNIT.fullmatch(text.removeprefix("/"))
        if found is None:
            return cls(names=(text,))
        return cls(names=(found["skill"],), reference=found["reference"])

    def is_directory(self, path: str) -> bool:
        """Whether ``path`` is this skill's directory: the plan's, or without a plan one that is called by one of its names."""
        if self.directory is not None:
            return path.rstrip("/") == self.directory.rstrip("/")
        return bare_name(path.rstrip("/")) in {bare_name(name) for name in self.names}

    def is_reference(self, path: str) -> bool:
        """Whether ``path`` is this unit's reference file."""
        suffix = f"/{self.reference}"
        return self.reference is not None and path.endswith(suffix) and self.is_directory(path.removesuffix(suffix))


@dataclass(frozen=True, slots=True)
class TranscriptEvidence:
    """What the transcript shows of the unit."""

    tool: bool
    """A main-thread Skill call names the skill and has a good result."""
    slash: bool | None
    """A replayed event is the skill's command tags; None when nothing was replayed, so that it cannot tell."""
    called: bool
    """A main-thread Skill call names the skill."""
    again: bool
    """The CLI's own text says that the called skill "is already loaded above"."""
    reference: bool
    """A main-thread Read call read the reference."""

    @property
    def witness(self) -> bool | None:
        """Whether it shows a load; None when it cannot tell (A3: no replayed event and no such call)."""
        if self.tool or self.slash:
            return True
        return False if self.called or self.slash is False else None


@dataclass(frozen=True, slots=True)
class WireEvidence:
    """What the recorded requests show of the unit (wire.py)."""

    tool: bool
    slash: bool
    reference: bool
    """The reference's own text is there; true as well where the unit is no reference."""


@dataclass(frozen=True, slots=True)
class SkillVerdict:
    """The state, each witness's word, and the error code that follows (None when the skill ran or none is required)."""

    state: SkillState | None = None
    transcript: bool | None = None
    wire: bool | None = None
    code: str | None = None
    message: str = ""


NOT_REQUIRED = SkillVerdict()


def transcript_evidence(transcript: Transcript, requirement: Requirement) -> TranscriptEvidence:
    """Return what the transcript shows of the unit: main thread only (A4)."""
    named = [
        call
        for call in transcript.skill_calls
        if call.parent is None and call.name is not None and names_skill(requirement.names, call.name)
    ]
    tools = [call for call in named if call.way == "tool"]
    return TranscriptEvidence(
        tool=any(call.state == "loaded" and not call.after_answer for call in tools),
        slash=any(call.way == "slash" and not call.after_answer for call in named) if transcript.replays else None,
        called=bool(tools),
        again=any(names_skill(requirement.names, name) for name in transcript.loaded_above),
        reference=any(requirement.is_reference(path) for path in transcript.references_read),
    )


def judge_skill(transcript: Transcript, requirement: Requirement | None, wire: WireEvidence | None) -> SkillVerdict:
    """Return the skill's state by A3 and A7; ``wire`` is None for a bare transcript."""
    if requirement is None:
        return NOT_REQUIRED
    several = ambiguous(requirement.names, transcript.init.skills if transcript.init else ())
    if several:
        message = (
            f"{_unit(requirement)} could be any of the listed skills {', '.join(several)}; name it with its namespace"
        )
        return SkillVerdict("unproven", code="skill-ambiguous", message=message)
    seen = transcript_evidence(transcript, requirement)
    verdict = _by_transcript(seen, requirement) if wire is None else _by_both(seen, wire, requirement)
    if requirement.reference is not None and verdict.state == "ran":
        return _with_reference(verdict, seen, wire, requirement)
    return verdict


def _by_transcript(seen: TranscriptEvidence, requirement: Requirement) -> SkillVerdict:
    if seen.witness is None:
        message = f"the transcript cannot tell whether {_unit(requirement)} ran: no replayed user event and no Skill call that names it"
        return SkillVerdict("unproven", code="skill-unproven", message=message)
    if seen.witness:
        return SkillVerdict("ran", transcript=True)
    return _not_loaded(seen, None, requirement)


def _by_both(seen: TranscriptEvidence, wire: WireEvidence, requirement: Requirement) -> SkillVerdict:
    loaded = wire.tool or wire.slash
    if seen.witness is None:
        if loaded:
            return SkillVerdict("ran", wire=True)
        return SkillVerdict("absent", wire=False, code="skill-absent", message=_absent(requirement))
    # One and the same way has both witnesses. Where nothing was replayed, a good call that is answered by "already loaded above" is the transcript's
    # own word for an earlier load, and the wire shows which one; a failed call is no such word, so that then the witnesses disagree.
    slash = seen.slash if seen.slash is not None else seen.tool and seen.again
    if (seen.tool and wire.tool) or (slash and wire.slash):
        return SkillVerdict("ran", transcript=True, wire=True)
    if seen.witness or loaded:
        message = f"the transcript {_says(seen.tool, seen.slash)} and the requests {_says(wire.tool, wire.slash)} that {_unit(requirement)} was loaded"
        return SkillVerdict(
            "unproven", transcript=seen.witness, wire=loaded, code="witnesses-disagree", message=message
        )
    return _not_loaded(seen, False, requirement)


def _not_loaded(seen: TranscriptEvidence, wire: bool | None, requirement: Requirement) -> SkillVerdict:
    if seen.called:
        message = f"a Skill call names {_unit(requirement)} and none of these calls has a good result before the answer"
        return SkillVerdict("failed", transcript=False, wire=wire, code="skill-failed", message=message)
    return SkillVerdict("absent", transcript=False, wire=wire, code="skill-absent", message=_absent(requirement))


def _with_reference(
    verdict: SkillVerdict, seen: TranscriptEvidence, wire: WireEvidence | None, requirement: Requirement
) -> SkillVerdict:
    """Ask for the reference as well, once its SKILL.md is proved: SKILL.md alone is ``absent`` (A7)."""
    if wire.reference if wire is not None else seen.reference:
        return verdict
    if wire is not None and seen.reference:
        message = f"the transcript shows {requirement.reference} read and the requests do not hold its text"
        return SkillVerdict("unproven", transcript=True, wire=False, code="witnesses-disagree", message=message)
    message = f"SKILL.md of {requirement.names[0]} was loaded, but {requirement.reference} was not read"
    told = None if seen.witness is None else False
    return SkillVerdict(
        "absent", transcript=told, wire=None if wire is None else False, code="skill-absent", message=message
    )


def _unit(requirement: Requirement) -> str:
    return f"skill {requirement.names[0]!r}"


def _absent(requirement: Requirement) -> str:
    return f"{_unit(requirement)} was not loaded: neither a Skill call nor a slash command brought it to the model"


def _says(tool: bool, slash: bool | None) -> str:
    ways = [way for way, is_so in (("by a Skill call", tool), ("by a slash command", slash)) if is_so]
    return f"shows {' and '.join(ways)}" if ways else "does not show"
