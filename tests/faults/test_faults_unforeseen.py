"""What nobody foresaw is the machine's fault or a defect, and the two are told apart (runner/unforeseen.py)."""

from __future__ import annotations

import errno
import os

import pytest

from runner.errors import GateUnavailable, InputMissing, MachineFault
from runner.unforeseen import step_fault, unforeseen
from sandbox.errors import SandboxUnavailable


@pytest.mark.parametrize("name", ["ENOSPC", "EDQUOT", "EIO", "EROFS", "EMFILE", "ENFILE", "ENOMEM", "EAGAIN"])
def test_what_a_machine_lacks_is_its_fault(name: str) -> None:
    """The code is ``machine-fault``, the system's own words and the file are told, and there is something to do."""
    number = getattr(errno, name)
    told = unforeseen(OSError(number, os.strerror(number), "/some/where"))
    assert isinstance(told, MachineFault)
    assert (told.code, told.where) == ("machine-fault", "/some/where")
    assert os.strerror(number) in told.message
    assert told.hint


def test_a_cause_counts() -> None:
    """An exception that was raised over such an error, and one that a thread could not be had for, are the machine's too."""
    outer = ImportError("no module")
    outer.__context__ = OSError(errno.EMFILE, "Too many open files")
    assert unforeseen(outer).code == "machine-fault"
    assert unforeseen(MemoryError()).code == "machine-fault"
    assert unforeseen(RuntimeError("can't start new thread")).code == "machine-fault"


@pytest.mark.parametrize(
    "bug", [KeyError("x"), OSError(errno.EBADF, "Bad file descriptor"), FileNotFoundError(2, "gone")]
)
def test_everything_else_is_a_defect(bug: Exception) -> None:
    """A bug is told as one, with its kind."""
    told = unforeseen(bug)
    assert (type(told).__name__, told.code) == ("RunnerError", "internal")
    assert type(bug).__name__ in told.message


def test_exceptions_in_a_ring_end() -> None:
    """Exceptions that led to each other are looked at once."""
    one, two = KeyError(1), KeyError(2)
    one.__context__, two.__context__ = two, one
    assert unforeseen(one).code == "internal"


def test_a_steps_fault_keeps_its_code() -> None:
    """The sandbox's and the gate's own errors keep code and words; the machine's get the step at which it was met."""
    assert step_fault("sandbox-start", SandboxUnavailable("no bwrap"))["code"] == SandboxUnavailable("no bwrap").code
    assert step_fault("sandbox-start", GateUnavailable("it died"))["step"] == "gate"
    told = step_fault("gate", OSError(errno.ENOSPC, "No space left on device", "/run/x"))
    assert (told["step"], told["code"]) == ("gate", "machine-fault")
    assert "/run/x" in told["message"]


@pytest.mark.parametrize("error", [KeyError("x"), InputMissing("gone")])
def test_what_is_no_steps_fault_is_raised_again(error: Exception) -> None:
    """A defect, and an error that has a rule of its own, go on as they are."""
    with pytest.raises(type(error)):
        step_fault("gate", error)
