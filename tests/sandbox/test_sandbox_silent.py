"""Parts of the sandbox that somebody else stopped or killed, and callers with few descriptors: each is told as what it is, and nothing is left."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox import running
from sandbox.errors import SandboxError
from sandbox.process import Host, supervise
from sandbox.running import run_once, start
from tests.sandbox.conftest import MakeSpec
from tests.sandbox.test_sandbox_lifetime import processes_with, wait_until


def below(pid: int) -> list[int]:
    """Return the children of a process."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def supervising(pid: int) -> list[int]:
    """Return the processes of a supervisor, which are two for a root caller; bwrap is a child of the last."""
    return [pid, *below(pid)[:1]] if os.geteuid() == 0 else [pid]


@pytest.mark.parametrize("by_kill", [False, True], ids=["wall clock", "kill"])
def test_a_stopped_supervisor_is_not_waited_for(
    host: Host, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, by_kill: bool
) -> None:
    """A supervisor that lives and does nothing holds nobody up: the runner ends the sandbox without it."""
    monkeypatch.setattr(running, "OVERDUE_S", 0.3)
    monkeypatch.setattr(running, "REMINDER_S", 0.3)
    token = f"hermeval-silent-{os.getpid()}-{by_kill}"
    supervisor = supervise(host)
    staging = supervisor.staging
    spec = make_spec(f"while :; do sleep 1; echo {token} >/dev/null; done")
    with start(supervisor, spec, on_stdout=lambda _: None, wall_clock_s=600 if by_kill else 0.5) as sandbox:
        sandbox.release()
        assert wait_until(lambda: len(processes_with(token)) >= 2)
        assert supervisor.pid is not None
        for pid in supervising(supervisor.pid):
            os.kill(pid, signal.SIGSTOP)
        if by_kill:
            sandbox.kill("cancelled")
        ended = sandbox.wait(30)
        assert ended is not None
        assert (ended.reason, ended.exit_status, ended.dead) == ("supervisor-silent", None, False)
    assert wait_until(lambda: not processes_with(token))
    assert not staging.exists()


def test_a_supervisor_that_was_stopped_for_a_while_goes_on(
    host: Host, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that slept is no fault: what is told again and answers is heard, with its own reason."""
    monkeypatch.setattr(running, "OVERDUE_S", 0.3)
    monkeypatch.setattr(running, "REMINDER_S", 30.0)
    supervisor = supervise(host)
    with start(supervisor, make_spec("sleep 600"), on_stdout=lambda _: None, wall_clock_s=0.5) as sandbox:
        sandbox.release()
        assert supervisor.pid is not None
        stopped = supervising(supervisor.pid)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        assert sandbox.wait(1.5) is None
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        ended = sandbox.wait(30)
    assert ended is not None
    assert (ended.reason, ended.dead) == ("timeout", True)


def test_a_killed_bwrap_is_no_failed_start(host: Host, make_spec: MakeSpec) -> None:
    """Somebody kills bwrap while the program runs: that is said, and not that the program was never there; left alone the same program ends with its own status."""
    supervisor = supervise(host)
    with start(supervisor, make_spec("echo up; sleep 600"), on_stdout=lambda _: None) as sandbox:
        sandbox.release()
        assert supervisor.pid is not None
        last = supervising(supervisor.pid)[-1]
        assert wait_until(lambda: any(below(bwrap) for bwrap in below(last)))
        os.kill(below(last)[0], signal.SIGKILL)
        ended = sandbox.wait(30)
    assert ended is not None
    assert (ended.reason, ended.exit_status, ended.setup_error, ended.dead) == ("bwrap-killed", None, None, True)
    assert ended.observations["bwrap_status"] == -signal.SIGKILL
    control, _ = run_once(host, make_spec("echo up; exit 3"))
    assert (control.reason, control.exit_status) == (None, 3)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("exit 3", "bwrap ended with status 3"),
        ("kill -9 $$", "bwrap was killed by signal 9"),
        ("echo first >&2; echo last >&2; exit 1", "last"),
        ("echo bwrap: of its own >&2; echo other >&2; exit 1", "of its own"),
    ],
)
def test_a_bwrap_that_ends_early_is_told_by_its_own_words(
    host: Host, make_spec: MakeSpec, readable_tmp: Path, body: str, said: str
) -> None:
    """Its complaint, else its last line, else how it ended."""
    stub = readable_tmp / "bwrap"
    stub.write_text(f"#!/bin/sh\n{body}\n")
    stub.chmod(0o755)
    with pytest.raises(SandboxError, match=f"the sandbox did not come up: {said}$"):
        start(supervise(replace(host, bwrap=stub)), make_spec(), on_stdout=lambda _: None)


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """This process may have 256 descriptors, of which it could have more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_descriptors")
def test_a_callers_own_low_limit_on_descriptors_is_no_hindrance(host: Host, make_spec: MakeSpec) -> None:
    """The supervisor takes what the caller may have anyway."""
    ended, output = run_once(host, make_spec("echo up"))
    assert (ended.exit_status, output) == (0, b"up\n")


@pytest.mark.parametrize(("hard", "said"), [(500, "501 descriptors are needed and 500 are allowed"), (501, "501 501")])
def test_too_few_descriptors_are_told(hard: int, said: str) -> None:
    """What may not be had is named with the limit; one more is enough."""
    code = (
        "import resource, sys; sys.path.insert(0, sys.argv[1]); import kernel; "
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (100, {hard})); kernel.make_room(500); print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    place = Path(__file__).resolve().parents[2] / "sandbox"
    done = subprocess.run([sys.executable, "-I", "-c", code, place], capture_output=True, text=True, check=False)
    assert said in done.stdout + done.stderr
