"""What can be claimed of an attempt file: one statement a claim, never one green tick for all (facts/replay.md §2, V0–V5; ADR 0013).

Boundary: reads one file; what is outside it (installed tools, recomputing the outcome, a signature) comes in as functions. Not here: printing (runner/cli/verify.py).
Rules: ``held`` was checked and is so, ``broken`` was checked and is not so, ``unknown`` could not be checked, and says why. A file that is not intact gives no
evidence for anything else, so that everything after it is ``unknown``, but for a signature beside it, which then is none of this file. What takes a run to know (grades, requests, results) is
never guessed from the file: it is ``unknown`` and names the command that finds out. If a claim is added, add it to ``CLAIMS`` in the order in which people read them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runner.bundle.format import PLAN_PART
from runner.bundle.reader import Attempt, open_attempt
from runner.bundle.version1 import is_version1, read_version1
from runner.canonical import sha256_hex
from runner.errors import BundleCorrupt, BundleError, BundleUnsupported, InputMissing, RunnerError

Status = Literal["held", "broken", "unknown"]
CLAIMS = (
    "intact",
    "format",
    "plan",
    "toolchain",
    "evidence",
    "records",
    "trace",
    "signature",
    "grades",
    "requests",
    "results",
)
_TOOLCHAIN_PART = "toolchain.json"

Recheck = Callable[[Attempt], Status]
"""Recomputes the outcome from the stored parts and compares it with the stored one."""
CompareToolchain = Callable[[object], tuple[Status, str]]
"""Compares the attempt's ``toolchain.json`` with what is pinned and installed; returns the status and its reason."""
CheckRecords = Callable[[Attempt], tuple[Status, str]]
"""Checks that the attempt's records agree with each other and its output is the recorded one, or a negative control's; returns the status and its reason."""


CheckTrace = Callable[[Attempt], tuple[Status, str]]
"""Recomputes the tool trace of a simulated service from its contract and the recorded calls; returns the status and its reason."""
CheckSignature = Callable[[Path, str | None], tuple[Status, str]]
"""Says who signed the attempt in a file, given its id, or None where it is not intact; returns the status and its reason."""


@dataclass(frozen=True)
class Claim:
    """One claim, whether it holds, and why."""

    name: str
    status: Status
    reason: str


@dataclass(frozen=True)
class Verification:
    """Everything that was claimed of one file."""

    path: Path
    attempt_id: str | None
    claims: tuple[Claim, ...]
    error: RunnerError | None = None
    """Why the file could not be used, where that is so."""

    @property
    def exit_code(self) -> int:
        """2 where a claim is broken or the file could not be read, else 0 (B11)."""
        return 2 if self.error is not None or any(claim.status == "broken" for claim in self.claims) else 0


def verify_attempt(
    path: Path,
    *,
    compare_toolchain: CompareToolchain | None,
    recheck: Recheck | None,
    check_records: CheckRecords | None = None,
    check_trace: CheckTrace | None = None,
    check_signature: CheckSignature | None = None,
) -> Verification:
    """Check every claim on one attempt file. Whatever is wrong with the file is in the result; nothing is raised for it."""
    try:
        if is_version1(path):
            return _version1(path, check_signature)
        attempt = open_attempt(path)
    except BundleUnsupported as error:
        return _unusable(path, error, Claim("format", "broken", error.message))
    except BundleCorrupt as error:
        intact = Claim("intact", "broken", f"{error.where}: {error.message}")
        return _unusable(path, error, intact, _signature(path, None, check_signature))
    except InputMissing as error:
        return _unusable(path, error)
    size = sum(part.bytes for part in attempt.manifest.parts)
    claims = (
        Claim("intact", "held", f"{len(attempt.part_names)} parts, {size} bytes, every digest"),
        _format(attempt),
        _plan(attempt),
        _toolchain(attempt, compare_toolchain),
        _evidence(attempt, recheck),
        _checked("records", attempt, check_records, "the records were not compared with each other"),
        _checked("trace", attempt, check_trace, "the tool trace was not recomputed"),
        _signature(path, attempt.id, check_signature),
        *_for_a_run(attempt),
    )
    return Verification(path, attempt.id, claims)


def _version1(path: Path, check_signature: CheckSignature | None) -> Verification:
    attempt_id, found = read_version1(path)
    control = found.negative_control
    told = "output and generation record agree"
    if control is not None:
        told = f"a negative control of the output {control.parent_output_sha256[:12]}: {control.reason}"
    known = (
        Claim("intact", "held", "every digest that the file holds"),
        Claim("format", "held", f"{found.format} version {found.format_version}"),
        Claim("records", "held", told),
        _signature(path, attempt_id, check_signature),
        Claim("grades", "unknown", _GRADES),
    )
    return Verification(path, attempt_id, _all(known, "attempts of version 1 hold nothing to check it by"))


def _unusable(path: Path, error: RunnerError, *known: Claim) -> Verification:
    return Verification(path, None, _all(known, "not checked: the file cannot be used"), error)


def _all(known: Sequence[Claim], rest: str) -> tuple[Claim, ...]:
    """Return all claims in their order; those that are not known are unknown for the reason given."""
    by_name = {claim.name: claim for claim in known}
    return tuple(by_name.get(name) or Claim(name, "unknown", rest) for name in CLAIMS)


def _format(attempt: Attempt) -> Claim:
    try:
        exchanges = attempt.exchanges()
    except BundleError as error:
        return Claim("format", "broken", f"{error.where}: {error.message}")
    manifest = attempt.manifest
    return Claim("format", "held", f"{manifest.format} version {manifest.format_version}, {len(exchanges)} exchanges")


def _plan(attempt: Attempt) -> Claim:
    if not attempt.has(PLAN_PART):
        return Claim("plan", "broken", "the attempt holds no plan")
    stored, named = sha256_hex(attempt.part(PLAN_PART)), attempt.manifest.plan_sha256
    if stored != named:
        return Claim("plan", "broken", f"the manifest names plan {named}, the stored plan is {stored}")
    return Claim("plan", "held", f"the stored plan is {named}")


def _toolchain(attempt: Attempt, compare: CompareToolchain | None) -> Claim:
    if compare is None or not attempt.has(_TOOLCHAIN_PART):
        return Claim("toolchain", "unknown", "nothing recorded" if compare is not None else "nothing to compare with")
    try:
        return Claim("toolchain", *compare(attempt.json(_TOOLCHAIN_PART)))
    except BundleError as error:
        return Claim("toolchain", "broken", error.message)


def _checked(name: str, attempt: Attempt, check: CheckRecords | CheckTrace | None, unasked: str) -> Claim:
    if check is None:
        return Claim(name, "unknown", unasked)
    try:
        return Claim(name, *check(attempt))
    except BundleError as error:
        return Claim(name, "broken", f"{error.where}: {error.message}")


def _signature(path: Path, attempt_id: str | None, check: CheckSignature | None) -> Claim:
    if check is None:
        return Claim("signature", "unknown", "no signature was looked for")
    return Claim("signature", *check(path, attempt_id))


_GRADES = "takes the graders: hermeval replay grades the saved output again"
_REQUESTS = "takes a run: hermeval reproduce runs the CLI again and compares its requests with the recorded ones"
_RESULTS = "takes a run: hermeval reproduce compares output, workspace, tool trace and evidence too"


def _for_a_run(attempt: Attempt) -> tuple[Claim, ...]:
    """Return what cannot be known from the file (V3, V4, V5), and how to find out."""
    try:
        exchanges = any(exchange.kind == "inference" for exchange in attempt.exchanges())
    except BundleError:
        exchanges = False
    summary, grades = attempt.manifest.summary, _GRADES
    if summary.get("kind") == "judge":
        grades = "a judge's attempt has no grades of its own"
    elif summary.get("determinism") == "pinned":
        grades = "the run was pinned, and pinned runs are never scored"
    bare = "the attempt holds no exchanges to run it again on"
    return (
        Claim("grades", "unknown", grades),
        Claim("requests", "unknown", _REQUESTS if exchanges else bare),
        Claim("results", "unknown", _RESULTS if exchanges else bare),
    )


def _evidence(attempt: Attempt, recheck: Recheck | None) -> Claim:
    if recheck is None:
        return Claim("evidence", "unknown", "the outcome was not recomputed")
    try:
        status = recheck(attempt)
    except BundleError as error:
        return Claim("evidence", "broken", f"{error.where}: {error.message}")
    reasons: dict[Status, str] = {
        "held": "the outcome recomputed from the stored parts is the stored one",
        "broken": "the outcome recomputed from the stored parts is another than the stored one",
        "unknown": "the stored parts do not suffice to recompute the outcome",
    }
    return Claim("evidence", status, reasons[status])
