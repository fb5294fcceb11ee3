"""``hermeval sign ATTEMPT… --key KEY``: a detached signature beside each attempt, by ``ssh-keygen`` and offline.

Boundary: touches the environment and the terminal; prints. Not here: signing (runner/signing). Exit 0 all signed, 2 one was not; nothing is overwritten.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from runner.cli.paths import NamedPath
from runner.errors import RunnerError
from runner.text import visible


@click.command("sign", short_help="Sign attempts with an SSH key.")
@click.argument("attempts", nargs=-1, required=True, type=NamedPath(), metavar="ATTEMPT...")
@click.option(
    "--key",
    required=True,
    type=NamedPath(),
    metavar="KEY",
    help="The private key's file; or the public key's, for a key that ssh-agent holds.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(attempts: tuple[Path, ...], key: Path, as_json: bool) -> int:
    """Write ATTEMPT.sig beside each ATTEMPT: a statement of the key's owner about this very file.

    The key stays with ssh-keygen. Without a terminal nobody is asked for a passphrase: the command fails. ``hermeval verify --allowed-signers FILE`` checks the signature.
    """
    from runner.signing.keygen import open_keygen

    keygen = open_keygen(dict(os.environ))  # noqa: TID251  commands are where the environment is read
    ask = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    rows = []
    for path in attempts:
        row = _row(path, key, keygen, ask=ask)
        rows.append(row)
        if "error" not in row:
            click.echo(visible(f"{row['path']}: signed with {row['key']}: {row['signature']}"), err=as_json)
    failed = sum("error" in row for row in rows)
    exit_code = 2 if failed else 0
    if as_json:
        from runner.cli.answer import print_results

        print_results("sign", exit_code, rows, passed=len(rows) - failed, measured=len(rows) - failed)
    return exit_code


def _row(path: Path, key: Path, keygen: Any, *, ask: bool) -> dict[str, Any]:
    from runner.signing.sign import sign_attempt

    try:
        made = sign_attempt(path, key, keygen, ask=ask)
    except RunnerError as error:
        click.echo(f"{visible(str(path))}: {visible(error.diagnostics(), newlines=True)}", err=True)
        return {"id": None, "path": str(path), "signature": None, "key": None, "error": error.as_json()}
    return {"id": made.attempt_id, "path": str(path), "signature": str(made.path), "key": made.key}
