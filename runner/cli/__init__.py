"""The command line: one file a verb; the only place that prints or exits.

Boundary: touches standard streams, signals and the exit status. Not here: the verbs (verbs.py, loaded late: signals are taken over before click is imported), anything
a verb does (runner/*).
Rules: any exception can only ever mean 2 (B11): click's own exits, a bug, a signal, an answer that could not be written. With ``--json`` such an end is one JSON object
too, unless one was begun.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, NoReturn

from runner.cli.interrupt import INTERRUPTS, Interrupted

if TYPE_CHECKING:
    from runner.errors import RunnerError


def run_command(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; known errors, usage errors, interrupts and bugs all come out as 2."""
    try:
        return _run(arguments)
    except (Interrupted, KeyboardInterrupt) as stop:
        return _interrupted(arguments, stop)


def _interrupted(arguments: Sequence[str], stop: BaseException) -> int:
    """Tell that the command was told to end; return 2."""
    INTERRUPTS.hush()
    from runner.errors import RunnerError

    by = f" by {stop}" if str(stop) else ""
    error = RunnerError(
        f"interrupted{by}; nothing of what was under way is kept, finished attempts are", code="interrupted"
    )
    return _failed(arguments, error)


def _run(arguments: Sequence[str]) -> int:
    import click

    from runner.cli.answer import AnswerLost
    from runner.cli.verbs import hermeval
    from runner.errors import RunnerError

    try:
        result = hermeval.main(args=list(arguments), prog_name="hermeval", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return 0 if stop.exit_code == 0 else 2
    except RunnerError as error:
        _raise_if_interrupted(error)
        return _failed(arguments, error)
    except click.ClickException as usage:
        usage.show(file=sys.stderr)
        return _failed(
            arguments, RunnerError(usage.format_message(), code="usage", hint="see --help"), told_people=True
        )
    except click.Abort as stop:  # what click makes of a KeyboardInterrupt
        raise KeyboardInterrupt from stop
    except AnswerLost as lost:
        return _lost(lost)
    except (BrokenPipeError, SystemExit):  # click exits by itself, with 1, where a pipe's reader is gone
        return 2
    except Exception as bug:  # noqa: BLE001  the one boundary: a bug is an error of ours, never a fail
        _raise_if_interrupted(bug)
        return _failed(arguments, _unforeseen(bug))
    return result if isinstance(result, int) else 0


def _raise_if_interrupted(error: Exception) -> None:
    """Take an error that came after a signal for what the signal made of some foreign code. Raises: Interrupted."""
    if INTERRUPTS.first is not None:
        raise Interrupted(INTERRUPTS.first) from error


def _unforeseen(bug: Exception) -> RunnerError:
    """Return what to tell; of a defect the whole traceback is on stderr."""
    from runner.errors import MachineFault
    from runner.unforeseen import unforeseen

    error = unforeseen(bug)
    if not isinstance(error, MachineFault):
        import traceback

        traceback.print_exc()
        error.hint = "this is a defect of hermeval; report it with the lines above"
    return error


def _failed(arguments: Sequence[str], error: RunnerError, *, told_people: bool = False) -> int:
    """Tell of a command that did not come to its own, with ``--json`` as an object too; return 2."""
    import contextlib

    from runner.cli.answer import AnswerLost, print_error
    from runner.cli.verbs import VERBS

    if not told_people:
        with contextlib.suppress(OSError, ValueError):  # nobody is left to be told
            sys.stderr.write(error.diagnostics() + "\n")
    if "--json" in arguments:
        verb = _verb(arguments, VERBS)
        empty = {
            "verdict": "error",
            "summary": {"passed": 0, "measured": 0, "started": 0},
            "attempts": [],
            "results": [],
        }
        try:
            print_error(verb, error, empty)
        except AnswerLost as lost:
            return _lost(lost)
    return 2


def _lost(lost: BaseException) -> int:
    """Tell on stderr that stdout did not take the whole object, of which nothing more is written there; return 2."""
    import contextlib

    from runner.errors import RunnerError

    cause = lost.__cause__
    reason = getattr(cause, "strerror", None) or str(cause or lost) or type(cause).__name__
    hint = "give stdout a reader and room; what was made is kept all the same"
    error = RunnerError(f"the answer could not be written: {reason}", where="stdout", hint=hint, code="answer-lost")
    with contextlib.suppress(OSError, ValueError, AttributeError):  # nobody is left to be told
        sys.stderr.write(error.diagnostics() + "\n")
    return 2


def _verb(arguments: Sequence[str], verbs: Container[str]) -> str:
    """Return the command's name as its objects have it: the verb, with what follows it where it is a group (``toolchain verify``)."""
    words = [word for word in arguments if not word.startswith("-")]
    at = next((place for place, word in enumerate(words) if word in verbs), None)
    if at is None:
        return ""
    named = words[at : at + 2]
    return " ".join(named) if named == ["toolchain", "verify"] else named[0]


def main() -> NoReturn:
    """Entry point of the program ``hermeval``; ends in 0, 1 or 2."""
    code = 2
    try:
        INTERRUPTS.install()
        gc.set_threshold(
            20_000, 20, 50
        )  # imports make much and drop nothing: the usual 700 cost a tenth of a command's start
        # No package that happens to be installed has a say in how evidence is read; not looking for one also saves some milliseconds.
        os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"  # noqa: TID251  said to a library, in the one way that it hears
        _fill_standard_streams()
        code = run_command(sys.argv[1:])
    except Interrupted as stop:  # right before run_command was ready for one: nothing has been said then
        code = _interrupted(sys.argv[1:], stop)
    finally:  # also where something was raised while an error was told: never the interpreter's own 1
        INTERRUPTS.hush()
        if not _flushed():
            code = 2
        sys.exit(code)  # noqa: TID251  the one exit


def _fill_standard_streams() -> None:
    """Put /dev/null where the caller closed a standard stream, so that no file of ours gets its number."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _flushed() -> bool:
    """Flush the streams; one that cannot be is let go, or the interpreter would try again and exit with 120. Returns whether stdout's last bytes went out."""
    whole = True
    for number, stream in ((2, sys.stderr), (1, sys.stdout)):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            whole = number == 2
    return whole
