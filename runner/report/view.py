"""Everything that a page shows of one attempt, as values.

Boundary: pure. Not here: where they come from (gather.py), how they look (templates/).
Rules: texts are as they were found, cut by bounds.py and not escaped. What is not known is None or empty, and the templates say so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from runner.report.bounds import Excerpt, Level
from runner.report.evaluation import EvaluationView, Point
from runner.report.proof import Proof
from runner.report.timeline import Timeline
from runner.report.traffic import Traffic
from runner.report.workspace import SkillFile, TraceView, WorkspaceView

Word = Literal["pass", "fail", "error", "measured"]
"""``measured`` is an attempt that could be graded and was not."""

WORDS: tuple[Word, ...] = ("pass", "fail", "error", "measured")
"""In the order in which they are drawn and counted."""

LABELS: dict[Word, str] = {
    "pass": "Pass",
    "fail": "Fail",
    "error": "Error",
    "measured": "Measured, not graded",
}


@dataclass(frozen=True, slots=True)
class Row:
    """An attempt as one line of a batch."""

    number: int
    """1-based, in the order of the page."""
    id: str
    """Empty where the file could not be read."""
    name: str
    """Name of the file, without its directory."""
    fixture: str
    kind: Literal["worker", "judge"]
    word: Word
    measured: bool
    code: str
    """Of an error."""
    why: Excerpt
    """One sentence: what is wrong, or what holds."""
    skill_state: str
    model: str
    checks_met: int | None
    checks_total: int | None
    criteria_met: int | None
    criteria_total: int | None
    cost_usd: float | None
    paid: bool
    """Whether the provider was a live one."""
    duration_s: float | None

    is_control: bool = False
    """Whether it is a negative control, whose output was changed on purpose."""
    pinned: bool = False
    """Whether its clock and random bytes were pinned: it is never scored."""
    debug: bool = False
    """Whether it is for debugging only: its workspace was a directory of the host."""

    @property
    def tags(self) -> tuple[str, ...]:
        """What sets it apart, in a word each."""
        told = (("control", self.is_control), ("pinned", self.pinned), ("debug", self.debug))
        return tuple(word for word, holds in told if holds)

    @property
    def label(self) -> str:
        """The verdict in words."""
        return "Judged" if self.kind == "judge" and self.word == "measured" else LABELS[self.word]

    @property
    def anchor(self) -> str:
        """The id of its article on the page."""
        return f"a{self.number}"


@dataclass(frozen=True, slots=True)
class ControlView:
    """How a negative control differs from its parent (B9)."""

    reason: Excerpt
    parent: str
    """What is known of the parent: its id, or the digest of its output."""
    replacements: tuple[tuple[Excerpt, Excerpt, int], ...]
    """Old text, new text, how often."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A titled list of names and values."""

    title: str
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt on a page."""

    row: Row
    level: Level
    message: Excerpt
    hint: str
    recheck: Literal["held", "broken", "unknown"]
    """Whether the stored outcome is the one that the stored evidence gives."""
    control: ControlView | None = None
    key_facts: tuple[tuple[str, str], ...] = ()
    answer: Excerpt | None = None
    answer_scored: bool = False
    answer_source: str = ""
    evaluation: EvaluationView | None = None
    judge_lines: tuple[str, ...] = ()
    """Who judged and by which rule; or whom a judge's run judged."""
    earlier: tuple[tuple[str, str], ...] = ()
    """Earlier evaluations: file name and verdict."""
    rubric: tuple[Point, ...] = ()
    """Criteria, decided or not."""
    proof: Proof | None = None
    timeline: Timeline | None = None
    traffic: Traffic | None = None
    gate: tuple[tuple[str, str], ...] = ()
    trace: TraceView | None = None
    workspace: WorkspaceView | None = None
    notes: tuple[Excerpt, ...] = ()
    notes_left_out: int = 0
    stderr: Excerpt | None = None
    provenance: tuple[Facts, ...] = ()
    skill_files: tuple[SkillFile, ...] = ()
    skill_files_total: int = 0
    argv: Excerpt | None = None
    sandbox: tuple[str, ...] = ()
    limits: tuple[tuple[str, str], ...] = ()

    @property
    def request_numbers(self) -> frozenset[int]:
        """The exchanges that have a row on the page."""
        return frozenset() if self.traffic is None else frozenset(row.seq for row in self.traffic.rows)

    @property
    def checks_told(self) -> str:
        """How many checks are met."""
        if self.evaluation is None or not self.evaluation.checks_total:
            return ""
        return f"{self.evaluation.checks_met} of {self.evaluation.checks_total} met"

    @property
    def rubric_told(self) -> str:
        """How many criteria are met, or that none was judged."""
        decided = [point for point in self.rubric if point.met is not None]
        if not decided:
            return "not judged"
        return f"{sum(point.met is True for point in decided)} of {len(self.rubric)} met"

    @property
    def answer_told(self) -> str:
        """Where the answer comes from, and what it is not."""
        told = "" if self.answer_source in ("result", "none") else f"taken from: {self.answer_source}"
        if self.answer_scored:
            return told
        return "kept for diagnosis, never graded" + (f"; {told}" if told else "")

    @property
    def timeline_told(self) -> str:
        """How much happened."""
        if self.timeline is None:
            return ""
        line = self.timeline
        told = [f"{line.total:,} steps", f"{line.calls:,} tool call{'' if line.calls == 1 else 's'}"]
        if line.failed_calls:
            told.append(f"{line.failed_calls:,} with an error result")
        if line.agents:
            told.append(f"{line.agents} sub-agent{'' if line.agents == 1 else 's'}")
        return ", ".join(told)

    @property
    def sections(self) -> tuple[tuple[str, str, str], ...]:
        """The sections of a whole page: id, title and a count."""
        evaluation, line, space = self.evaluation, self.timeline, self.workspace
        worker = self.row.kind == "worker"
        every = (
            (
                "checks",
                "Checks",
                "–"
                if evaluation is None or not evaluation.checks_total
                else f"{evaluation.checks_met}/{evaluation.checks_total}",
                worker,
            ),
            ("rubric", "Rubric", _share(self.rubric), bool(self.rubric)),
            ("answer", "Answer" if self.answer_scored else "Unscored answer", "", True),
            ("evidence", "Evidence", "", self.proof is not None),
            ("timeline", "Timeline", "" if line is None else f"{line.total:,}", line is not None),
            (
                "trace",
                "Simulated tools",
                "" if self.trace is None else str(len(self.trace.rows)),
                self.trace is not None,
            ),
            (
                "exchanges",
                "Exchanges",
                "" if self.traffic is None else str(len(self.traffic.rows)),
                self.traffic is not None,
            ),
            (
                "diagnostics",
                "Diagnostics",
                "" if evaluation is None else str(len(evaluation.diagnostics)),
                evaluation is not None,
            ),
            ("notes", "Notes", str(len(self.notes)), bool(self.notes)),
            ("workspace", "Workspace", "" if space is None else str(space.total), True),
            ("stderr", "Standard error", "", self.stderr is not None),
            ("provenance", "Provenance", "", bool(self.provenance)),
            ("sandbox", "Sandbox", "", bool(self.sandbox)),
        )
        return tuple((name, title, count) for name, title, count, there in every if there)


def _share(points: tuple[Point, ...]) -> str:
    decided = [point for point in points if point.met is not None]
    return f"{sum(point.met is True for point in decided)}/{len(points)}" if decided else "–"


@dataclass(frozen=True, slots=True)
class Summary:
    """How many of what: every attempt that was started is counted, whatever became of it."""

    passed: int
    measured: int
    started: int
    counts: tuple[tuple[Word, int], ...]
    """By word, in the order of ``WORDS``."""


def summarize(rows: list[Row]) -> Summary:
    """Return the summary of a batch. A judge's run is no attempt at the fixture and is not counted."""
    workers = [row for row in rows if row.kind == "worker"]
    counts = tuple((word, sum(row.word == word for row in workers)) for word in WORDS)
    return Summary(
        passed=sum(row.word == "pass" for row in workers),
        measured=sum(row.measured for row in workers),
        started=len(workers),
        counts=counts,
    )
