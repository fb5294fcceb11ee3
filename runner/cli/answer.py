"""The one JSON object that a command with ``--json`` prints.

Boundary: prints on stdout. Not here: people's text (each command's own).
Rules: exactly one object on stdout, ``schema_version`` and ``command`` first, ``exit_code`` always; the contract (DESIGN "Commands") only ever grows. The bytes are ASCII,
so that foreign text, lone surrogates included, can neither raise on the way out nor act on a terminal. Once it has begun nothing else is printed there: whoever gets no
whole object gets exit status 2, and stderr says why (``answer-lost``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

from runner.cli.interrupt import INTERRUPTS
from runner.errors import RunnerError


class AnswerLost(Exception):
    """The object could not be written whole: the reader is gone, the disk is full, stdout is closed, or a signal came."""


def print_answer(command: str, exit_code: int, fields: Mapping[str, object]) -> int:
    """Print the object and return ``exit_code``, for a command to return.

    Raises: AnswerLost.
    """
    answer = {"schema_version": 1, "command": command, "exit_code": exit_code, **fields}
    text = json.dumps(answer, ensure_ascii=True, allow_nan=False)
    if sys.stdout is None:
        raise AnswerLost("stdout is closed")
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BaseException as error:
        raise AnswerLost from error
    finally:
        INTERRUPTS.hush()  # the last word is said
    return exit_code


def print_results(
    command: str, exit_code: int, results: Sequence[Mapping[str, object]], *, passed: int, measured: int
) -> int:
    """Print the object of a command that gives ``results``: the verdict that its exit code means, and how many were in order, could be looked at, and were begun (B11)."""
    return print_answer(
        command,
        exit_code,
        {
            "verdict": ("pass", "fail", "error")[exit_code],
            "summary": {"passed": passed, "measured": measured, "started": len(results)},
            "results": list(results),
        },
    )


def print_error(command: str, error: RunnerError, fields: Mapping[str, object]) -> int:
    """Print the object for a command that could not do its work, with ``error`` beside its usual (empty) ``fields``; return 2."""
    return print_answer(command, 2, {**fields, "error": error.as_json()})
