"""The second half of ``run``: judge the rubric and grade what was measured, with the grading programs started while the first runs are still under way.

Boundary: starts a thread; writes judges' attempts and evaluations beside the attempts. Not here: judging (runner/grade/judge.py), grading (runner/grade/grading.py), text (story.py).
Rules: the pinned grader and each rubric's judge are looked for before anything is paid: where one is missing, nothing starts (B10); the grader's files are checked before it starts.
An attempt in error is neither judged nor graded. A rubric that was to be judged and was not is an error and never a pass: only ``--no-judge`` leaves the verdict to the checks.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.errors import InputMissing
from runner.waiting import join

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from runner.attempt import Machine
    from runner.cli.batch import Request
    from runner.cli.story import Story
    from runner.envelope import Fixture
    from runner.grade.grading import Grader
    from runner.grade.judge import JudgeTerms, Source
    from runner.grade.judge_verdict import Judgement
    from runner.grade.subject import Subject


@dataclass(frozen=True)
class GradingChoice:
    """How measured attempts are judged and graded."""

    judge: bool = True
    votes: int = 1
    rule: Any = "unanimous"


class GradingDesk:
    """Holds the grading programs of one command. A context; they are gone after it."""

    def __init__(
        self, request: Request, machine: Machine, choice: GradingChoice, fixtures: Iterable[Fixture] = ()
    ) -> None:
        """Look for the pinned grader, and for who judges each of the ``fixtures``.

        Raises: ToolchainMissing, ToolchainMismatch, ToolchainError; InputMissing, ScriptInvalid, SettingInvalid, KeyMissing.
        """
        from runner.toolchain import default_cache_root, expect_grader, load_lock

        self._machine, self._choice = machine, choice
        self._terms = _judge_terms(request, choice, fixtures) if choice.judge else None
        self._unkept: list[Judgement] = []
        self._cache_root = default_cache_root(os.geteuid(), request.environ)
        expect_grader(
            load_lock(), self._cache_root
        )  # its 35,000 files are looked at later: that takes as long as all of a start
        self._grader: Grader | None = None
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._open, name="hermeval-grader", daemon=True)
        self._begun = threading.Lock()

    def warm(self) -> None:
        """Start the grading programs, once; from any thread."""
        if self._begun.acquire(blocking=False):
            self._thread.start()

    def finish(self, rows: Sequence[dict[str, Any]], story: Story, cancelled: threading.Event) -> list[dict[str, Any]]:
        """Judge and grade the rows that were measured; return all rows, in order.

        Raises: ToolchainError, SandboxFailure: nothing can be graded; BundleUnwritable.
        """
        from runner.grade.grading import grade_attempts
        from runner.grade.judge import candidate_of, judge_attempts
        from runner.grade.subject import load_subject

        measured = [Path(row["path"]) for row in rows if row["outcome"]["kind"] == "measured"]
        if not measured:
            return list(rows)
        if self._terms is not None:
            candidates = [candidate_of(load_subject(path)) for path in measured]
            judged = judge_attempts(candidates, self._terms, self._machine, tell=story.judging, cancelled=cancelled)
            self._unkept = [judgement for judgement in judged if judgement.judge_attempt_id is None]
        self.warm()
        join(self._thread)
        if self._fault is not None:
            raise self._fault
        assert self._grader is not None
        graded = {str(done.path): done for done in grade_attempts(measured, self._grader)}
        out = []
        for row in rows:
            done = graded.get(str(row["path"]))
            out.append(row if done is None else {**row, **done.row})
            if done is not None:
                story.graded(out[-1])
        return out

    def close(self) -> None:
        """End the grading programs."""
        if self._begun.locked() and self._thread.ident is not None:
            join(self._thread)
        if self._grader is not None:
            self._grader.close()
            self._grader = None

    def __enter__(self) -> GradingDesk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> None:
        try:
            from runner.grade.grading import Grader
            from runner.replay import JudgementIndex

            index = JudgementIndex()

            def find(directory: Path, subject: Subject, output: bytes) -> list[Judgement]:
                """Return the kept judgements, and the faults of votes of which nothing could be kept: those would otherwise not be missed."""
                lost = [judgement for judgement in self._unkept if judgement.attempt_id == subject.attempt_id]
                return index.find(directory, subject, output) + lost

            self._grader = Grader(
                self._machine.host,
                cache_root=self._cache_root,
                judgements=find,
                rule=self._choice.rule,
                require_rubric=self._choice.judge,
            )
        except BaseException as fault:  # noqa: BLE001  raised again in finish()
            self._fault = fault


def _judge_terms(request: Request, choice: GradingChoice, fixtures: Iterable[Fixture]) -> JudgeTerms:
    """Return how judging is done, once somebody was found to answer for each fixture. Raises: InputMissing, ScriptInvalid, SettingInvalid, KeyMissing."""
    from runner.cli.judge import JUDGE_SCRIPT
    from runner.cli.provider import make_source, read_key
    from runner.grade.judge import JudgeTerms
    from runner.grade.judge_plan import JudgeOptions

    key = read_key(request) if request.provider == "anthropic" else None
    own = replace(request, script=None)

    def source(fixture: Fixture) -> Source:
        name = JUDGE_SCRIPT.format(fixture.script_name)
        script = request.folder / "scripts" / f"{name}.json"
        if request.provider == "scripted" and not script.is_file():
            hint = "write one, judge with --provider anthropic, or grade by checks alone with --no-judge"
            raise InputMissing("the rubric's scripted judge has no script", where=str(script), hint=hint)
        return make_source(own, name, key)

    for fixture in fixtures:
        source(fixture)
    return JudgeTerms(
        source,
        votes=choice.votes,
        options=JudgeOptions(request.gate_mode, most_usd=request.max_usd, most_s=request.timeout_s),
        jobs=request.jobs,
        real_key=key,
    )
