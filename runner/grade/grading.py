"""Grade saved attempts: profile, Promptfoo, verdict, evaluation (step 8).

Boundary: the orchestrator of grading over the profile host and Promptfoo; writes evaluations. Not here: which attempts (runner/replay.py), a command's output (runner/cli).
Rules: one attempt's fault is its own evaluation's error and stops no other. Tools that are missing, altered or of another version stop everything before anything is graded, and
nothing is skipped for want of them (B10). Judgements come in as values that were recomputed from the judges' own attempts; none is asked for here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from runner.claude.row import error_row
from runner.errors import GraderFault, NotJudged, ProfileUnknown, RunnerError
from runner.grade.answers import CheckResult, DiagnosticResult
from runner.grade.assertions import Criterion, ask, has_code, unjudged
from runner.grade.evaluation import Evaluation, Inputs, save_evaluation
from runner.grade.judge_verdict import JUDGE_ERROR, Judgement, Panel, Rule, tally
from runner.grade.profile_host import ProfileHost
from runner.grade.promptfoo import Promptfoo, driver_sha256
from runner.grade.subject import Subject, load_subject
from runner.grade.verdict import Verdict, VerdictWord, decide
from runner.profile import PROFILES
from runner.toolchain import GraderToolchain, ToolchainLock, load_lock, open_grader
from sandbox.process import Host

FindJudgements = Callable[[Path, Subject, bytes], list[Judgement]]
"""Directory, attempt, its output → the judgements on that very output by its rubric. Raises: BundleError."""


@dataclass(frozen=True)
class GradedAttempt:
    """What became of one file."""

    path: Path
    row: Mapping[str, Any]
    """The attempt's row of the JSON contract, graded."""
    verdict: VerdictWord
    evaluation: Evaluation | None
    """None where the file could not be read, so that there is no attempt to speak of."""
    saved: Path | None


@dataclass
class _Found:
    """What was found of an attempt so far."""

    checks: tuple[CheckResult, ...] = ()
    diagnostics: tuple[DiagnosticResult, ...] = ()
    criteria: tuple[Criterion, ...] = ()
    panel: Panel | None = None


class Grader:
    """The two grading programs and the tools that they are. A context; everything is gone after it."""

    def __init__(
        self,
        host: Host,
        *,
        lock: ToolchainLock | None = None,
        cache_root: Path,
        profiles: Path = PROFILES,
        judgements: FindJudgements | None = None,
        rule: Rule = "unanimous",
        require_rubric: bool = False,
    ) -> None:
        """Check the tools and start both programs; Promptfoo's import goes on by itself.

        Raises: ToolchainMissing, ToolchainMismatch, ToolchainError; SandboxFailure.
        """
        self.toolchain: GraderToolchain = open_grader(lock or load_lock(), cache_root)
        self._judgements = judgements
        self._inner = host.inner
        self._rule = rule
        self._require_rubric = require_rubric
        self._profiles = ProfileHost(host, profiles)
        self._promptfoo = Promptfoo(host, self.toolchain)
        try:
            self._promptfoo.begin()
            self._profiles.begin()
        except BaseException:
            self.close()
            raise

    def grade(self, subject: Subject) -> Evaluation:
        """Grade one attempt; whatever is wrong with it or its profile is in the evaluation.

        Raises: ToolchainError, SandboxFailure: nothing can be graded then.
        """
        found = _Found()
        if subject.output is None:
            outcome = subject.outcome
            return self._evaluation(subject, found, RunnerError(outcome.message, hint=outcome.hint, code=outcome.code))
        try:
            return self._evaluation(subject, found, self._decide(subject, subject.output, found))
        except (GraderFault, NotJudged, ProfileUnknown) as fault:
            return self._evaluation(subject, found, fault)

    def _decide(self, subject: Subject, output: str, found: _Found) -> Verdict:
        """Fill ``found`` step by step, so that what was found before a fault is told too. Raises: GraderFault, NotJudged, ProfileUnknown."""
        assert subject.graded is not None
        fixture = subject.fixture
        answer = self._profiles.check(
            subject.attempt_id,
            fixture.profile,
            subject.fixture_json,
            output,
            subject.context,
            unmeasured=subject.unmeasured,
        )
        found.checks, found.diagnostics = answer.checks, answer.diagnostics
        found.panel = self._panel(subject)
        decided = _criteria(subject, found.panel)
        asked = ask(answer.checks, fixture, decided)
        domain = fixture.sha256 if has_code(fixture) else ""
        found.checks, found.criteria = self._promptfoo.grade(subject.graded, asked, domain=domain)
        left = unjudged(fixture, found.criteria)
        if left and self._require_rubric:
            raise NotJudged(f"no judge decided {', '.join(left)}", hint="judge it with hermeval judge")
        return decide(found.checks, found.criteria, found.diagnostics)

    def close(self) -> None:
        """End both programs."""
        self._profiles.close()
        self._promptfoo.close()

    def _panel(self, subject: Subject) -> Panel | None:
        """Return the votes on this very output, or None where there are none. Raises: GraderFault, NotJudged."""
        if self._judgements is None or subject.output is None:
            return None
        output = subject.output.encode("utf-8", "surrogatepass")
        try:
            found = self._judgements(subject.path.parent, subject, output)
            return tally([line.id for line in subject.fixture.rubric], found, self._rule) if found else None
        except ValueError as error:
            raise NotJudged(f"the judgements do not fit this attempt: {error}", hint="hermeval judge") from error
        except RunnerError as error:
            raise NotJudged(
                f"a judgement cannot be used: {error.message}", where=error.where, hint=error.hint
            ) from error

    def _evaluation(self, subject: Subject, found: _Found, end: Verdict | RunnerError) -> Evaluation:
        return Evaluation(
            attempt_id=subject.attempt_id,
            attempt_format=subject.format_version,
            fixture=subject.fixture.id,
            verdict=end.word if isinstance(end, Verdict) else "error",
            message=end.message,
            inputs=self._inputs(subject, found.panel),
            grader={**self.toolchain.as_record(), **({} if self._inner == "namespaces" else {"inner": self._inner})},
            checks=found.checks,
            criteria=found.criteria,
            not_judged=unjudged(subject.fixture, found.criteria),
            diagnostics=found.diagnostics,
            effort=subject.effort,
            error=end if isinstance(end, RunnerError) else None,
            judge=None if found.panel is None else found.panel.as_json(),
            control=subject.control,
        )

    def _inputs(self, subject: Subject, panel: Panel | None) -> Inputs:
        modules = self._profiles.modules
        try:
            profile_sha256: str | None = self._profiles.find(subject.fixture.profile).sha256
        except ProfileUnknown:
            profile_sha256 = None
        judges = () if panel is None else panel.judgements
        return Inputs(
            output_sha256=subject.output_sha256,
            fixture_sha256=subject.fixture.sha256,
            skill_sha256=subject.skill_sha256,
            profile=subject.fixture.profile,
            profile_sha256=profile_sha256,
            modules_sha256=modules.sha256,
            driver_sha256=driver_sha256(),
            judges=tuple(one.judge_attempt_id for one in judges if one.judge_attempt_id is not None),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def grade_attempts(
    paths: Iterable[Path], grader: Grader, *, save: bool = True, out: Path | None = None
) -> Iterator[GradedAttempt]:
    """Grade saved attempts, in order; each evaluation is saved beside its attempt, or into ``out``.

    Raises: ToolchainError, SandboxFailure, BundleUnwritable: nothing more can be graded then.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="hermeval-load") as pool:
        pending = iter(paths)
        path = next(pending, None)
        loading = None if path is None else pool.submit(_load, path)
        while path is not None and loading is not None:
            subject = loading.result()
            following = next(pending, None)
            loading = None if following is None else pool.submit(_load, following)  # while this one is graded
            if isinstance(subject, RunnerError):
                yield GradedAttempt(path, error_row(subject, path=str(path)), "error", None, None)
            else:
                evaluation = grader.grade(subject)
                saved = save_evaluation(evaluation, path, out) if save else None
                row = {**evaluation.row(subject.row), "evaluation": None if saved is None else str(saved)}
                yield GradedAttempt(path, row, evaluation.verdict, evaluation, saved)
            path = following


def _load(path: Path) -> Subject | RunnerError:
    try:
        return load_subject(path)
    except RunnerError as error:
        return error


def _criteria(subject: Subject, panel: Panel | None) -> tuple[Criterion, ...]:
    """Return the decided criteria with their texts. Raises: NotJudged (``judge-error``) where a vote failed or votes disagree (G01, G03)."""
    if panel is None:
        return ()
    fault = panel.error
    if fault is not None:
        raise NotJudged(f"{fault.cause}: {fault.message}", hint=fault.hint, code=JUDGE_ERROR)
    texts = {line.id: line.criterion for line in subject.fixture.rubric}
    return tuple(
        Criterion(result.id, texts[result.id], result.met, result.reason)
        for result in panel.criteria
        if result.met is not None
    )
