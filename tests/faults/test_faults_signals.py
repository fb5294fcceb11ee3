"""A signal in the first instants of a command: from the moment that it has a handler, there is an answer (B11)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.run.conftest import ROOT

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
    done = subprocess.run(
        [sys.executable, "-P", "-c", EARLY.format(place=place)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "interrupted"
    assert "Traceback" not in done.stderr


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
    done = subprocess.run(
        [sys.executable, "-P", "-c", SWALLOWED.format(raised=raised)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "interrupted"
    assert "Traceback" not in done.stderr


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
