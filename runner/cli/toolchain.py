"""``hermeval toolchain verify``: hash the installed tools again and compare with what is pinned.

Boundary: prints. Not here: the hashing (runner/toolchain.py), fetching (ci/bootstrap.sh). Exit 0 where all that is installed holds, 2 where something does not, or
nothing is installed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from runner.cli.answer import print_results
from runner.cli.paths import NamedPath
from runner.errors import ToolchainMissing
from runner.text import visible

if TYPE_CHECKING:
    from runner.toolchain import ToolCheck


@click.group("toolchain", short_help="Check the pinned tools against their recorded hashes.")
def command() -> None:
    """Look after the pinned tools: the Claude CLI, Node and Promptfoo."""


@command.command("verify")
@click.option(
    "--cache",
    type=NamedPath(),
    default=None,
    help="The toolchain cache (default: HERMEVAL_CACHE, or this user's).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def verify_command(cache: Path | None, as_json: bool) -> int:
    """Hash every installed tree and tool and compare with the lock, one line each; names both hashes where they differ."""
    from runner.toolchain import default_cache_root, load_lock, verify

    environ = os.environ  # noqa: TID251 -- commands are where the environment is read
    root = cache or default_cache_root(os.geteuid(), environ)
    checks = verify(load_lock(), root)
    if all(check.status == "unknown" for check in checks):
        raise ToolchainMissing(
            "no pinned tools are installed", where=str(root), hint="start once through ci/hermeval, which installs them"
        )
    for check in checks:
        click.echo(_line(check), err=as_json)
    exit_code = 2 if any(check.status == "broken" for check in checks) else 0
    if as_json:
        held = [check.status == "held" for check in checks]
        known = [check.status != "unknown" for check in checks]
        print_results(
            "toolchain verify", exit_code, [_row(check) for check in checks], passed=sum(held), measured=sum(known)
        )
    return exit_code


def _line(check: ToolCheck) -> str:
    hashes = (
        check.expected if check.status != "broken" else f"{check.actual or 'no hash'}, the lock says {check.expected}"
    )
    note = f"  ({visible(check.cause)})" if check.cause else ""
    return f"{check.name:<16}  {check.status:<7}  {check.version or '':<9}  {hashes}{note}"


def _row(check: ToolCheck) -> dict[str, object]:
    return {
        "id": check.name,
        "status": check.status,
        "version": check.version,
        "expected": check.expected,
        "actual": check.actual,
        "path": str(check.path),
        "cause": check.cause,
    }
