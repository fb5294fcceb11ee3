"""A signal in the first instants of a command: from the moment that it has a handler, there is an answer (B11)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.run.conftest import ROOT


def interrupted(program: str) -> str:
    """Run a program that is told to end and must say so, once, in exit status 2 and one object; returns the traceback on stderr, or nothing."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "interrupted"), done.stderr
    return done.stderr if "Traceback" in done.stderr else ""


EARLY = """
import os, signal, sys
import runner.cli
real = runner.cli.{place}
def early(*given):
    os.kill(os.getpid(), signal.SIGTERM)
    return real(*given)
runner.cli.{place} = early
sys.argv = ["hermeval", "verify", "--json", "x.attempt"]
runner.cli.main()
"""


@pytest.mark.parametrize("place", ["_fill_standard_streams", "run_command", "_run"])
def test_a_signal_before_anything_was_said_is_told(place: str) -> None:
    """Exit status 2 and one object with the code ``interrupted``, also between the handlers and the first line of the command."""
    assert interrupted(EARLY.format(place=place)) == ""


SWALLOWED = """
import os, signal, sys
import runner.cli, runner.cli.verify
from runner.cli.interrupt import Interrupted
from runner.errors import BundleCorrupt
def command(**given):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except Interrupted as stop:
        raise {raised} from None
runner.cli.verify.command.callback = command
sys.argv = ["hermeval", "verify", "--json", "x.attempt"]
runner.cli.main()
"""


@pytest.mark.parametrize("raised", ["ValueError(str(stop))", "BundleCorrupt('so it seems')"])
def test_foreign_code_that_makes_another_error_of_a_signal(raised: str) -> None:
    """What comes of a signal inside code that turns every exception into its own is the interruption, and neither a defect nor a damaged file."""
    assert interrupted(SWALLOWED.format(raised=raised)) == ""


FINALISER = """
import os, signal, sys, time
import runner.cli, runner.cli.verify
class Last:
    def __del__(self):
        {inside}
def command(**given):
    Last()
    {after}
runner.cli.verify.command.callback = command
sys.argv = ["hermeval", "verify", "--json", "x.attempt"]
runner.cli.main()
"""
SIGNALLED = "os.kill(os.getpid(), signal.SIGTERM)"


@pytest.mark.parametrize(
    "after",
    [
        "time.sleep(50)",
        "with runner.cli.interrupt.INTERRUPTS.deferred(lambda: None): time.sleep(50)",
    ],
)
def test_a_signal_in_a_finaliser_is_heard(after: str) -> None:
    """CPython swallows what is raised there and prints it: the command ends all the same, soon, and without a traceback."""
    assert interrupted(FINALISER.format(inside=SIGNALLED, after=after)) == ""


def test_another_error_in_a_finaliser_is_still_printed() -> None:
    """The control: what CPython prints of others is not lost."""
    assert "ZeroDivisionError" in interrupted(FINALISER.format(inside="1 / 0", after=SIGNALLED))


def test_a_signal_while_one_is_told_changes_nothing() -> None:
    """A further signal in the middle of telling is not told, which would wait for what the first one holds; one that comes later is told again."""
    from runner.cli.interrupt import Interrupted, Interrupts

    interrupts, told = Interrupts(), 0

    def tell() -> None:
        nonlocal told
        told += 1
        interrupts._take(signal.SIGTERM, None)

    def work() -> None:
        with interrupts.deferred(tell):
            interrupts._take(signal.SIGINT, None)
            assert told == 1
            interrupts._take(signal.SIGTERM, None)
            assert told == 2

    with pytest.raises(Interrupted, match="SIGINT"):
        work()
