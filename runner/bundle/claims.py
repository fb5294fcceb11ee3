"""What can be claimed of an attempt file: one statement a claim, never one green tick for all (facts/replay.md §2, V0–V2).

Boundary: reads one file; what is outside it (installed tools, recomputing the outcome) comes in as functions. Not here: printing (runner/cli/verify.py).
Rules: ``held`` was checked and is so, ``broken`` was checked and is not so, ``unknown`` could not be checked, and says why. A file that is not intact gives no
evidence for anything else, so that everything after it is ``unknown``. If a claim is added, add it to ``CLAIMS`` in the order in which people read them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runner.bundle.format import PLAN_PART
from runner.bundle.reader import Attempt, open_attempt
from runner.canonical import sha256_hex
from runner.errors import BundleCorrupt, BundleError, BundleUnsupported, InputMissing, RunnerError

Status = Literal["held", "broken", "unknown"]
CLAIMS = ("intact", "format", "plan", "toolchain", "evidence", "records", "signature")
_TOOLCHAIN_PART = "toolchain.json"

Recheck = Callable[[Attempt], Status]
"""Recomputes the outcome from the stored parts and compares it with the stored one."""
CompareToolchain = Callable[[object], tuple[Status, str]]
"""Compares the attempt's ``toolchain.json`` with what is pinned and installed; returns the status and its reason."""
CheckRecords = Callable[[Attempt], tuple[Status, str]]
"""Checks that the attempt's records agree with each other and its output is the recorded one, or a negative control's; returns the status and its reason."""


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
) -> Verification:
    """Check every claim on one attempt file. Whatever is wrong with the file is in the result; nothing is raised for it."""
    try:
        attempt = open_attempt(path)
    except BundleUnsupported as error:
        return _unusable(path, error, Claim("format", "broken", error.message))
    except BundleCorrupt as error:
        return _unusable(path, error, Claim("intact", "broken", f"{error.where}: {error.message}"))
    except InputMissing as error:
        return _unusable(path, error)
    size = sum(part.bytes for part in attempt.manifest.parts)
    claims = (
        Claim("intact", "held", f"{len(attempt.part_names)} parts, {size} bytes, every digest"),
        _format(attempt),
        _plan(attempt),
        _toolchain(attempt, compare_toolchain),
        _evidence(attempt, recheck),
        _records(attempt, check_records),
        Claim("signature", "unknown", "the attempt carries no signature"),
    )
    return Verification(path, attempt.id, claims)


def _unusable(path: Path, error: RunnerError, broken: Claim | None = None) -> Verification:
    rest = "not checked: the file cannot be used"
    claims = tuple(
        broken if broken is not None and broken.name == name else Claim(name, "unknown", rest) for name in CLAIMS
    )
    return Verification(path, None, claims, error)


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


def _records(attempt: Attempt, check: CheckRecords | None) -> Claim:
    if check is None:
        return Claim("records", "unknown", "the records were not compared with each other")
    try:
        return Claim("records", *check(attempt))
    except BundleError as error:
        return Claim("records", "broken", f"{error.where}: {error.message}")
