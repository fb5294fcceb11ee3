"""``hermeval verify ATTEMPT…``: what can be claimed of an attempt file, one line a claim.

Boundary: prints. Not here: the claims (runner/bundle/claims.py). Exit 0 where no claim is broken, 2 where one is, or a file cannot be read.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from runner.bundle.claims import CheckRecords, Claim, Recheck, Status, Verification, verify_attempt
from runner.bundle.reader import Attempt
from runner.cli.answer import print_results
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


@click.command("verify", short_help="Check what an attempt claims, one line a claim.")
@click.argument("attempts", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="ATTEMPT...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(attempts: tuple[Path, ...], as_json: bool) -> int:
    """Check integrity, format, plan, toolchain, evidence, records and signature of attempt files.

    Each claim is held, broken, or unknown where it cannot be checked here. Exit status 2 if any is broken, else 0.
    """
    results = [
        verify_attempt(path, compare_toolchain=_compare_toolchain, recheck=RECHECK, check_records=CHECK_RECORDS)
        for path in attempts
    ]
    exit_code = max(result.exit_code for result in results)
    for result in results:
        _show(result, err=as_json)
    if as_json:
        print_results(
            "verify",
            exit_code,
            [_row(result) for result in results],
            passed=sum(result.exit_code == 0 for result in results),
            measured=sum(result.error is None for result in results),
        )
    return exit_code


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


def _show(result: Verification, *, err: bool) -> None:
    click.echo(visible(f"{result.path}  id {result.attempt_id or 'not known'}"), err=err)
    if result.error is not None:
        click.echo(visible(result.error.diagnostics(), newlines=True), err=True)
    for claim in result.claims:
        click.echo(_line(claim), err=err)


def _line(claim: Claim) -> str:
    return f"  {claim.name:<9}  {claim.status:<7}  {visible(claim.reason)}"
