"""One grading of one attempt, and its file beside the attempt (B10).

Boundary: ``save_evaluation`` and ``read_evaluations`` touch files beside an attempt; the rest is pure. Not here: making one (grading.py).
Rules: a file is written whole under a number that was free, never over an earlier one: ``<attempt's stem>.<number>.evaluation.json``. It names the attempt, the tools and
everything that went in, so that another grading with the same inputs can be compared. It holds no time and no path of a machine. Additive only.
"""

from __future__ import annotations

import contextlib
import json
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner import __version__
from runner.bundle.format import SUFFIX
from runner.errors import BundleExists, BundleUnwritable, InputMissing, RunnerError
from runner.grade.answers import CheckResult, DiagnosticResult
from runner.grade.assertions import Criterion
from runner.grade.subject import Effort
from runner.grade.verdict import VerdictWord, call_quality
from runner.whole_file import WholeFile, leftovers_of, whole_file

FORMAT = "hermeval-evaluation"
EVALUATION_SUFFIX = ".evaluation.json"
MAX_BYTES = 64 << 20
_HOLES = 8
_LEFTOVERS = leftovers_of(r"[A-Za-z0-9._-]+\.evaluation")


@dataclass(frozen=True)
class Inputs:
    """Everything that a grading depends on."""

    output_sha256: str | None
    fixture_sha256: str
    skill_sha256: str | None
    profile: str
    profile_sha256: str | None
    """Of the profile's own module; None where it was not found."""
    modules_sha256: str
    """Over all modules of the profiles folder: a profile may use its neighbours."""
    driver_sha256: str
    judges: tuple[str, ...] = ()
    """Ids of the judges' attempts."""

    def as_json(self) -> dict[str, Any]:
        """Return the inputs by name."""
        return {**vars(self), "judges": list(self.judges)}


@dataclass(frozen=True)
class Evaluation:
    """One grading."""

    attempt_id: str
    attempt_format: int
    fixture: str
    verdict: VerdictWord
    message: str
    inputs: Inputs
    grader: Mapping[str, Any]
    """The grading tools, as ``GraderToolchain.as_record`` gives them; and ``inner: none`` where they ran without a sandbox of their own, in Nix's."""
    checks: tuple[CheckResult, ...] = ()
    criteria: tuple[Criterion, ...] = ()
    not_judged: tuple[str, ...] = ()
    """Criteria of the rubric that no judge decided."""
    diagnostics: tuple[DiagnosticResult, ...] = ()
    effort: Effort = field(default_factory=Effort)
    error: RunnerError | None = None
    """Why there is neither pass nor fail."""
    judge: Mapping[str, Any] | None = None
    """The votes, where there are any."""
    control: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the evaluation as it is saved."""
        return {
            "format": FORMAT,
            "schema_version": 1,
            "created_by": {"hermeval": __version__},
            "attempt": self.attempt_id,
            "attempt_format_version": self.attempt_format,
            "fixture": self.fixture,
            "verdict": self.verdict,
            "message": self.message,
            "error": None if self.error is None else self.error.as_json(),
            "inputs": self.inputs.as_json(),
            "grader": dict(self.grader),
            "checks": [check.as_json() for check in self.checks],
            "criteria": [criterion.as_json() for criterion in self.criteria],
            "not_judged": list(self.not_judged),
            "judge": None if self.judge is None else dict(self.judge),
            "diagnostics": [diagnostic.as_json() for diagnostic in self.diagnostics],
            "call_quality": {"status": call_quality(self.diagnostics)},
            "effort": self.effort.as_json(),
            "negative_control": None if self.control is None else dict(self.control),
        }

    def row(self, base: Mapping[str, Any]) -> dict[str, Any]:
        """Return an attempt's row of the JSON contract with what was graded in it; what could not be graded is an error of its own code."""
        row = {
            **base,
            "verdict": self.verdict,
            "checks": [check.as_json() for check in self.checks],
            "criteria": [criterion.as_json() for criterion in self.criteria],
            "not_judged": list(self.not_judged),
            "judge": None if self.judge is None else dict(self.judge),
            "diagnostics": [diagnostic.as_json() for diagnostic in self.diagnostics],
            "call_quality": {"status": call_quality(self.diagnostics)},
            "effort": self.effort.as_json(),
            "toolchain": {**base.get("toolchain", {}), "promptfoo": self.grader.get("promptfoo")},
        }
        if "inner" in self.grader:
            row["inner"] = self.grader["inner"]
        if self.error is not None:
            told = self.error.as_json()
            row["outcome"] = {"kind": "error", **{key: told[key] for key in ("code", "message", "hint")}}
        return row


def save_evaluation(evaluation: Evaluation, attempt_path: Path, directory: Path | None = None) -> Path:
    """Write an evaluation beside its attempt (or into ``directory``) under the next free number and return its path.

    Raises: BundleUnwritable; nothing is left under the final name then.
    """
    folder = directory or attempt_path.parent
    stem = attempt_path.name.removesuffix(SUFFIX)
    data = json.dumps(evaluation.as_json(), ensure_ascii=True, sort_keys=True, indent=1).encode("ascii") + b"\n"
    try:
        with whole_file(folder, f"{stem}.evaluation", kind=_LEFTOVERS) as whole:
            whole.file.write(data)
            return _publish(whole, folder, stem)
    except OSError as error:
        raise BundleUnwritable(
            f"the evaluation could not be saved: {error.strerror}",
            where=str(folder),
            hint="make the directory writable, or name another with --out",
        ) from error


def evaluation_paths(attempt_path: Path, directory: Path | None = None) -> tuple[Path, ...]:
    """Return the files of an attempt's evaluations, the earliest first."""
    folder = directory or attempt_path.parent
    stem = attempt_path.name.removesuffix(SUFFIX)
    return tuple(path for _, path in _in_order(folder, stem))


def read_evaluations(attempt_path: Path, attempt_id: str, also: Path | None = None) -> Iterator[dict[str, Any]]:
    """Yield the evaluations that lie beside an attempt and name it, the earliest first, then those in ``also`` (``replay --out``); files that are none are passed over.

    Raises: InputMissing for one that is there and cannot be read: the verdict may stand in it.
    """
    folders = [attempt_path.parent]
    if also is not None and not _same(also, attempt_path.parent):
        folders.append(also)
    for path in (path for folder in folders for path in evaluation_paths(attempt_path, folder)):
        try:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:  # a pipe would be waited for
                continue
            value = json.loads(path.read_bytes())
        except (FileNotFoundError, ValueError, RecursionError):
            continue
        except OSError as error:
            raise InputMissing(f"an evaluation cannot be read: {error.strerror}", where=str(path)) from error
        if isinstance(value, dict) and value.get("format") == FORMAT and value.get("attempt") == attempt_id:
            yield value


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _publish(whole: WholeFile, folder: Path, stem: str) -> Path:
    number = max((found for found, _ in _in_order(folder, stem)), default=0)
    while True:
        number += 1
        final = folder / f"{stem}.{number:04d}{EVALUATION_SUFFIX}"
        with contextlib.suppress(BundleExists):
            whole.publish(final)
            return final


def _in_order(folder: Path, stem: str) -> Iterator[tuple[int, Path]]:
    """Yield the evaluations of one attempt by their numbers, without listing the folder, which may hold thousands; a few that were removed leave no hole."""
    number = missing = 0
    while missing < _HOLES:
        number += 1
        path = folder / f"{stem}.{number:04d}{EVALUATION_SUFFIX}"
        if path.exists():
            missing = 0
            yield number, path
        else:
            missing += 1
