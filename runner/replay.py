"""Regrade saved attempts with today's profiles and the pinned Promptfoo; nothing is run again and no model is asked (B10).

Boundary: reads attempts, writes evaluations beside them; through runner/grade it starts the two grading programs. Not here: printing (runner/cli/replay.py).
Rules: every replay writes a new evaluation. Judgements are recomputed from the judges' attempts that lie beside, each directory looked through once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.bundle.format import SUFFIX
from runner.bundle.reader import open_attempt, read_manifest
from runner.canonical import sha256_hex
from runner.errors import BundleCorrupt, BundleError, InputMissing, NotJudged
from runner.grade.grading import GradedAttempt, Grader, grade_attempts
from runner.grade.judge_saved import is_judge, read_judgement, stored_judge_plan
from runner.grade.judge_verdict import Judgement, Rule
from runner.grade.subject import Subject
from runner.grade.verdict import EXIT_CODES, VerdictWord, worst
from runner.profile import PROFILES
from runner.toolchain import ToolchainLock
from sandbox.process import Host


@dataclass(frozen=True)
class ReplaySettings:
    """How saved attempts are regraded."""

    cache_root: Path
    lock: ToolchainLock | None = None
    profiles: Path = PROFILES
    rule: Rule = "unanimous"
    require_rubric: bool = False
    """Whether an attempt whose rubric no judge decided is an error; otherwise its verdict is that of its checks, and says so."""
    save: bool = True
    out: Path | None = None


@dataclass
class JudgementIndex:
    """Finds judgements beside attempts. A directory's manifests are read once, so that thousands of attempts in it do not mean millions of reads."""

    _directories: dict[Path, dict[tuple[str, str], list[Path]]] = field(default_factory=dict)

    def find(self, directory: Path, subject: Subject, output: bytes) -> list[Judgement]:
        """Return the judgements on an attempt's output by its rubric whose own attempts lie directly in ``directory``, by vote.

        Raises: BundleError where a judge's attempt that says it is on that output is damaged or is not.
        """
        if directory not in self._directories:
            self._directories[directory] = _judges_of(directory)
        found = []
        for path in self._directories[directory].get((subject.attempt_id, sha256_hex(output)), ()):
            judgement = read_judgement(path, output)
            if judgement.attempt_id != subject.attempt_id:
                raise BundleCorrupt("the manifest names another attempt than the plan", where=str(path))
            if stored_judge_plan(open_attempt(path)).rubric == subject.fixture.rubric:
                found.append(judgement)
        refuse_strangers(subject.row.get("provider"), found)
        return sorted(found, key=lambda judgement: (judgement.vote, judgement.judge_attempt_id or ""))


def refuse_strangers(provider: object, judgements: Sequence[Judgement]) -> None:
    """Refuse scripted votes on a live provider's output: a script beside an attempt would decide what a model was paid to decide. Raises: NotJudged."""
    scripted = [judgement for judgement in judgements if judgement.provider != "anthropic"]
    if provider == "anthropic" and scripted:
        raise NotJudged(
            f"{len(scripted)} of the votes beside this live attempt are not a live judge's",
            where=str(scripted[0].path or ""),
            hint="move the scripted judges' attempts away, and judge with --provider anthropic",
        )


def replay(paths: Sequence[Path], host: Host, settings: ReplaySettings) -> Iterator[GradedAttempt]:
    """Regrade saved attempts, in order.

    Raises: ToolchainError, SandboxFailure: nothing could be graded; BundleUnwritable.
    """
    with Grader(
        host,
        lock=settings.lock,
        cache_root=settings.cache_root,
        profiles=settings.profiles,
        judgements=JudgementIndex().find,
        rule=settings.rule,
        require_rubric=settings.require_rubric,
    ) as grader:
        yield from grade_attempts(paths, grader, save=settings.save, out=settings.out)


def graded_envelope(command: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a command's JSON object over graded rows: the worst verdict, its exit code, and passed / measured / started (B11)."""
    words: list[VerdictWord] = [row["verdict"] for row in rows]
    verdict = worst(words)
    return {
        "schema_version": 1,
        "command": command,
        "verdict": verdict,
        "exit_code": EXIT_CODES[verdict],
        "summary": {
            "passed": words.count("pass"),
            "measured": sum(row["outcome"]["kind"] == "measured" for row in rows),
            "started": len(rows),
        },
        "attempts": list(rows),
    }


def _judges_of(directory: Path) -> dict[tuple[str, str], list[Path]]:
    found: dict[tuple[str, str], list[Path]] = {}
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        try:
            summary = read_manifest(path).summary
        except (BundleError, InputMissing):
            continue
        judges = summary.get("judges")
        if is_judge(summary) and isinstance(judges, dict):
            found.setdefault((str(judges.get("attempt")), str(judges.get("output_sha256"))), []).append(path)
    return found
