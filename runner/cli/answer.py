"""The one JSON object that a command with ``--json`` prints.

Boundary: prints on stdout. Not here: people's text (each command's own).
Rules: exactly one object on stdout, ``schema_version`` and ``command`` first, ``exit_code`` always; the contract (DESIGN "Commands") only ever grows. The bytes are ASCII,
so that foreign text, lone surrogates included, can neither raise on the way out nor act on a terminal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import click

from runner.errors import RunnerError


def print_answer(command: str, exit_code: int, fields: Mapping[str, object]) -> int:
    """Print the object and return ``exit_code``, for a command to return."""
    click.echo(
        json.dumps({"schema_version": 1, "command": command, "exit_code": exit_code, **fields}, ensure_ascii=True)
    )
    return exit_code


def print_error(command: str, error: RunnerError, fields: Mapping[str, object]) -> int:
    """Print the object for a command that could not do its work, with ``error`` beside its usual (empty) ``fields``; return 2."""
    return print_answer(command, 2, {**fields, "error": error.as_json()})
