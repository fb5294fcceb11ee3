"""``hermeval verify ATTEMPT…``: what can be claimed of an attempt file, one line a claim.

Boundary: prints. Not here: the claims (runner/bundle/claims.py). Exit 0 where no claim is broken, 2 where one is, a file cannot be read, or a required claim is not held.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from runner.bundle.claims import (
    CLAIMS,
    CheckRecords,
    CheckSignature,
    CheckTrace,
    Claim,
    Recheck,
    Status,
    Verification,
    verify_attempt,
)
from runner.bundle.reader import Attempt
from runner.cli.answer import print_results
from runner.cli.paths import NamedPath
from runner.errors import RunnerError
from runner.text import visible


def _recheck(attempt: Attempt) -> Status:
    from runner.assess import recheck
    from runner.grade.judge_saved import is_judge, recheck_judge

    return recheck_judge(attempt) if is_judge(attempt.manifest.summary) else recheck(attempt)


RECHECK: Recheck = _recheck
"""Recomputes an attempt's outcome from its stored parts."""


def _check_records(attempt: Attempt) -> tuple[Status, str]:
    from runner.grade.provenance import check_records

    return check_records(attempt)


CHECK_RECORDS: CheckRecords = _check_records
"""Compares an attempt's records with each other."""


def _check_trace(attempt: Attempt) -> tuple[Status, str]:
    from runner.grade.provenance import check_trace

    return check_trace(attempt)


CHECK_TRACE: CheckTrace = _check_trace
"""Recomputes an attempt's tool trace."""


@click.command("verify", short_help="Check what an attempt claims, one line a claim.")
@click.argument("attempts", nargs=-1, required=True, type=NamedPath(), metavar="ATTEMPT...")
@click.option(
    "--allowed-signers",
    type=NamedPath(),
    metavar="FILE",
    help="Whose signatures count, as ssh-keygen has it: a name, then a public key, a line each.",
)
@click.option(
    "--require",
    "required",
    multiple=True,
    type=click.Choice(CLAIMS),
    help="A claim that must be held: unknown is not enough then. May be given again.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(attempts: tuple[Path, ...], allowed_signers: Path | None, required: tuple[str, ...], as_json: bool) -> int:
    """Check integrity, format, plan, toolchain, evidence, records, trace and signature of attempt files.

    Each claim is held, broken, or unknown where it cannot be checked here. Exit status 2 if any is broken, or one that is required is not held; else 0.
    """
    check_signature = _signature_check(allowed_signers)
    results = [
        verify_attempt(
            path,
            compare_toolchain=_compare_toolchain,
            recheck=RECHECK,
            check_records=CHECK_RECORDS,
            check_trace=CHECK_TRACE,
            check_signature=check_signature,
        )
        for path in attempts
    ]
    lacking = [_lacking(result, required) for result in results]
    good = [result.exit_code == 0 and not missing for result, missing in zip(results, lacking, strict=True)]
    exit_code = 0 if all(good) else 2
    for result, missing in zip(results, lacking, strict=True):
        _show(result, missing, err=as_json)
    if as_json:
        print_results(
            "verify",
            exit_code,
            [_row(result) for result in results],
            passed=sum(good),
            measured=sum(result.error is None for result in results),
        )
    return exit_code


def _signature_check(allowed_signers: Path | None) -> CheckSignature:
    """Return the check of a signature against the named signers, or nobody. Raises: InputMissing; SigningUnavailable where signers are named and nothing could check them."""
    from runner.signing.claim import check_signature, read_allowed
    from runner.signing.keygen import Keygen, open_keygen

    environ = dict(os.environ)  # noqa: TID251 -- commands are where the environment is read

    def keygen() -> Keygen:
        return open_keygen(environ)

    allowed = None
    if allowed_signers is not None:
        allowed = read_allowed(allowed_signers)
        keygen()
    return lambda path, attempt_id: check_signature(path, attempt_id, open_keygen=keygen, allowed=allowed)


def _lacking(result: Verification, required: tuple[str, ...]) -> list[str]:
    return [claim.name for claim in result.claims if claim.name in required and claim.status == "unknown"]


def _compare_toolchain(record: object) -> tuple[Status, str]:
    from runner.toolchain import compare_record, default_cache_root, load_lock

    try:
        lock = load_lock()
    except RunnerError as error:
        return "unknown", error.message
    environ = os.environ  # noqa: TID251 -- commands are where the environment is read
    return compare_record(record, lock, default_cache_root(os.geteuid(), environ))


def _row(result: Verification) -> dict[str, object]:
    row: dict[str, object] = {
        "id": result.attempt_id,
        "path": str(result.path),
        "claims": {claim.name: claim.status for claim in result.claims},
        "reasons": {claim.name: claim.reason for claim in result.claims},
    }
    if result.error is not None:
        row["error"] = result.error.as_json()
    return row


def _show(result: Verification, lacking: list[str], *, err: bool) -> None:
    click.echo(visible(f"{result.path}  id {result.attempt_id or 'not known'}"), err=err)
    if result.error is not None:
        click.echo(visible(result.error.diagnostics(), newlines=True), err=True)
    for claim in result.claims:
        click.echo(_line(claim), err=err)
    if lacking:
        click.echo(f"{visible(str(result.path))}: required and not held: {', '.join(lacking)}", err=True)


def _line(claim: Claim) -> str:
    return f"  {claim.name:<9}  {claim.status:<7}  {visible(claim.reason)}"
