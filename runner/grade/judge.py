"""Judging: one isolated model run for each vote on each output, kept as an attempt of its own (B12, C1).

Boundary: the orchestrator of judge runs, over runner/conduct.py. Not here: reading a worker's attempt (subject.py), what is asked (judge_prompt.py, judge_plan.py), what a run amounts to
(judge_saved.py), several votes together (judge_verdict.py).
Rules: only measured outputs are judged; an errored attempt costs nothing and gets no judgement. A fault of one vote is that judgement's own and stops no other. The same steps, the
same gate and the same record as a worker's run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from runner.attempt import Work, assess_run, keep
from runner.conduct import Cancelled, Machine, Tell, carry_out, open_supervisor
from runner.envelope import Fixture, check_settings
from runner.errors import NotJudged, RunnerError, SettingInvalid
from runner.gate.upstreams import Upstream
from runner.grade.judge_plan import MAX_VOTES, JudgeOptions, build_judge_plan
from runner.plan import Provider
from runner.skills import stage
from runner.unforeseen import unforeseen
from runner.waiting import wait_all

if TYPE_CHECKING:  # and late where used: a command looks for its judges before it runs anything, and needs no more of this room by then
    from pydantic import JsonValue

    from runner.grade.judge_verdict import Judgement
    from runner.grade.subject import Subject

Source = tuple[Provider, Callable[[], Upstream]]
"""Who answers, as it stands in the plan, and what makes the upstream of one run."""


@dataclass(frozen=True)
class Candidate:
    """A worker's measured output, to be judged."""

    attempt_id: str
    fixture: Fixture
    """As the attempt keeps it, rubric and judge settings in it."""
    output: str
    output_sha256: str
    out: Path
    """Where the judges' attempts are written."""


@dataclass(frozen=True)
class JudgeTerms:
    """How judging is done."""

    source: Callable[[Fixture], Source]
    """Called once for each vote."""
    models: tuple[str, ...] = ()
    """One judge each; empty: the fixture's, else the default."""
    votes: int = 1
    """Of each judge."""
    options: JudgeOptions = field(default_factory=JudgeOptions)
    jobs: int = 1
    real_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse what makes no sense. Raises: SettingInvalid."""
        for model in self.models:
            check_settings(model=model)
        if len(set(self.models)) != len(self.models):
            raise SettingInvalid(
                "a judge is named twice", where="models", hint="use votes for several votes of one model"
            )
        if not 1 <= self.votes * max(1, len(self.models)) <= MAX_VOTES:
            raise SettingInvalid(f"there are 1 to {MAX_VOTES} votes on an output", where="votes")

    @property
    def seats(self) -> tuple[tuple[int, str | None], ...]:
        """Vote number, from 1 over all judges, and model."""
        models: tuple[str | None, ...] = self.models or (None,)
        return tuple(enumerate((model for model in models for _ in range(self.votes)), start=1))


@dataclass(frozen=True)
class _Job:
    """The terms of one run, as conduct.py asks for them."""

    upstream: Callable[[], Upstream]
    out: Path
    real_key: str | None = field(repr=False)
    keep_dir: Path | None = None
    shared: None = None


def candidate_of(subject: Subject, out: Path | None = None) -> Candidate:
    """Return what is to be judged of a worker's attempt; its judges' attempts go to ``out``, else beside it.

    Raises: NotJudged for an attempt in error.
    """
    if subject.output is None or subject.output_sha256 is None:
        outcome = subject.outcome
        message = f"an attempt in error has no output to judge ({outcome.code}: {outcome.message})"
        raise NotJudged(message, where=str(subject.path))
    return Candidate(
        subject.attempt_id, subject.fixture, subject.output, subject.output_sha256, out or subject.path.parent
    )


def judge_attempts(
    candidates: Sequence[Candidate], terms: JudgeTerms, machine: Machine, *, tell: Tell, cancelled: threading.Event
) -> list[Judgement]:
    """Run every vote on every candidate and return the judgements, in the candidates' order and each one's by vote.

    Whatever goes wrong with one vote is its judgement's fault. Raises: Cancelled; InputError where there is nobody to answer.
    """
    work = [(candidate, vote, model) for candidate in candidates for vote, model in terms.seats]
    sources = [
        terms.source(candidate.fixture) for candidate, _, _ in work
    ]  # a missing script is found before a run is paid

    def one(candidate: Candidate, vote: int, model: str | None, source: Source) -> Judgement:
        if cancelled.is_set():
            raise Cancelled
        return judge_once(candidate, vote, model, source, terms, machine, tell=tell, cancelled=cancelled)

    with ThreadPoolExecutor(terms.jobs, "hermeval-judge") as pool:
        futures = [pool.submit(one, *item, source) for item, source in zip(work, sources, strict=True)]
        wait_all(futures)
    return [future.result() for future in futures]


def judge_once(
    candidate: Candidate,
    vote: int,
    model: str | None,
    source: Source,
    terms: JudgeTerms,
    machine: Machine,
    *,
    tell: Tell,
    cancelled: threading.Event,
) -> Judgement:
    """Run one vote and keep its attempt. Raises: Cancelled."""
    from runner.grade.judge_saved import conclude

    provider, upstream = source
    job = _Job(upstream, candidate.out, terms.real_key)
    record: dict[str, JsonValue] = machine.toolchain.as_record()  # type: ignore[assignment]  # a JSON value, told as objects
    judgement: Judgement | None = None
    try:
        with open_supervisor(machine) as supervisor:
            tree = stage(None, supervisor.staging / "skills")
            plan = build_judge_plan(
                fixture=candidate.fixture,
                attempt_id=candidate.attempt_id,
                output=candidate.output,
                output_sha256=candidate.output_sha256,
                vote=vote,
                model=model,
                tree=tree,
                provider=provider,
                toolchain=record,
                options=terms.options,
            )
            tell("planned", {"plan": plan})
            seen = carry_out(plan, tree, job, machine, supervisor, tell=tell, cancelled=cancelled)
        work = Work(plan=plan, fixture_source=candidate.fixture.source, tree=tree, skill_files={})
        assessment, judgement = conclude(plan, assess_run(work, seen, machine), seen.exchanges)
        kept, _ = keep(work, seen, assessment, job, machine)
    except Cancelled:
        raise
    except RunnerError as error:
        return _unkept(candidate, vote, model, judgement, error)
    except Exception as bug:  # noqa: BLE001  one vote's bug stops no other
        return _unkept(candidate, vote, model, judgement, unforeseen(bug))
    return judgement.kept_as(kept.id, str(kept.path))


def _unkept(
    candidate: Candidate, vote: int, model: str | None, judgement: Judgement | None, error: RunnerError
) -> Judgement:
    """Return the judgement of a vote whose attempt could not be made or kept: a fault, since nobody could check it."""
    from runner.grade.judge_verdict import JudgeFault, Judgement

    return Judgement(
        attempt_id=candidate.attempt_id,
        output_sha256=candidate.output_sha256,
        vote=vote,
        model=judgement.model if judgement is not None else model or "",
        error=JudgeFault(error.code, error.message, error.hint),
        models_wire=judgement.models_wire if judgement is not None else (),
        cost_usd=judgement.cost_usd if judgement is not None else None,
    )
