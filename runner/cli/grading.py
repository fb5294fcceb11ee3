"""The second half of ``run``: judge the rubric and grade what was measured, with the grading programs started while the first runs are still under way.

Boundary: starts a thread; writes judges' attempts and evaluations beside the attempts. Not here: judging (runner/grade/judge.py), grading (runner/grade/grading.py), text (story.py).
Rules: the pinned grader is looked for before anything is paid: where it is missing or another by its stamp, nothing starts (B10); its files are checked before it starts. An attempt in error is neither judged nor graded. A rubric without a
judge (no script for the scripted one) is said, and the verdict is that of the checks.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.errors import InputMissing, RunnerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.attempt import Machine
    from runner.cli.batch import Request
    from runner.cli.story import Story
    from runner.grade.grading import Grader


@dataclass(frozen=True)
class GradingChoice:
    """How measured attempts are judged and graded."""

    judge: bool = True
    votes: int = 1
    rule: Any = "unanimous"


class GradingDesk:
    """Holds the grading programs of one command. A context; they are gone after it."""

    def __init__(self, request: Request, machine: Machine, choice: GradingChoice) -> None:
        """Look for the pinned grader. Raises: ToolchainMissing, ToolchainMismatch, ToolchainError."""
        from runner.toolchain import default_cache_root, expect_grader, load_lock

        self._request, self._machine, self._choice = request, machine, choice
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

        measured = [Path(row["path"]) for row in rows if row["outcome"]["kind"] == "measured"]
        if not measured:
            return list(rows)
        if self._choice.judge:
            self._judge(measured, story, cancelled)
        self.warm()
        self._thread.join()
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
            self._thread.join()
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

            self._grader = Grader(
                self._machine.host,
                cache_root=self._cache_root,
                judgements=JudgementIndex().find,
                rule=self._choice.rule,
            )
        except BaseException as fault:  # noqa: BLE001  raised again in finish()
            self._fault = fault

    def _judge(self, paths: Sequence[Path], story: Story, cancelled: threading.Event) -> None:
        """Judge each output; a fixture whose scripted judge has no script is told and left unjudged."""
        from runner.cli.judge import JUDGE_SCRIPT
        from runner.cli.provider import make_source, read_key
        from runner.grade.judge import JudgeTerms, candidate_of, judge_attempts
        from runner.grade.judge_plan import JudgeOptions
        from runner.grade.subject import load_subject

        request = self._request
        key = read_key(request) if request.provider == "anthropic" else None
        candidates = []
        for path in paths:
            candidate = candidate_of(load_subject(path))
            script = request.folder / "scripts" / f"{JUDGE_SCRIPT.format(candidate.fixture.script_name)}.json"
            if request.provider == "scripted" and not script.is_file():
                missing = InputMissing("the rubric is not judged: the scripted judge has no script", where=str(script))
                story.warn(candidate.fixture.id, missing)
                continue
            candidates.append(candidate)
        if not candidates:
            return
        terms = JudgeTerms(
            lambda fixture: make_source(replace(request, script=None), JUDGE_SCRIPT.format(fixture.script_name), key),
            votes=self._choice.votes,
            options=JudgeOptions(request.gate_mode, None, None),
            jobs=request.jobs,
            real_key=key,
        )
        try:
            judge_attempts(candidates, terms, self._machine, tell=story.judging, cancelled=cancelled)
        except RunnerError as error:
            story.warn("judge", error)
