"""Nothing outlives the runner, however it goes."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandbox.errors import SandboxError, SandboxUnavailable
from sandbox.process import Host, Supervisor, supervise
from sandbox.running import Running, start

if TYPE_CHECKING:
    from tests.sandbox.conftest import MakeSpec

ROOT = Path(__file__).resolve().parents[2]
LEFT_AFTER_S = 2.0


def processes_with(*words: str) -> list[str]:
    """Return the command lines of live processes that hold one of the words; a dead one has none."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if any(word in line for word in words) and int(path.parent.name) != os.getpid():
            found.append(line)
    return found


def wait_until(condition: Callable[[], bool], timeout_s: float = LEFT_AFTER_S) -> bool:
    """Wait for a condition, by looking."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def is_all_gone(token: str, staging: Path) -> bool:
    """Whether no process and no directory of a run is there any more, or will be in time."""
    return wait_until(lambda: not processes_with(token, staging.name) and not staging.exists())


def start_stand_in(token: str, runtime_dir: Path, *options: str) -> subprocess.Popen[str]:
    """Start a runner that can be killed."""
    argv = [sys.executable, str(Path(__file__).with_name("runner_stand_in.py")), token, str(runtime_dir), *options]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})


def read_line(process: subprocess.Popen[str]) -> str:
    """Return the stand-in's next line."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_nothing_is_left_after_the_runner_is_killed_at_any_moment(tmp_path: Path) -> None:
    """SIGKILL at 20 moments from the supervisor's start on: after two seconds no process and no directory of the run is there."""
    released = 0
    for turn in range(20):
        token = f"hermeval-canary-{os.getpid()}-{turn}"
        delay_s = int.from_bytes(hashlib.sha256(token.encode()).digest()[:4]) / 2**32 * 0.12
        process = start_stand_in(token, tmp_path)
        with process:
            staging = Path(read_line(process))
            time.sleep(delay_s)
            process.kill()
            assert process.stdout is not None
            released += "released" in process.stdout.read()
        assert is_all_gone(token, staging), (processes_with(token, staging.name), staging)
    assert released > 0, "the control: some of the kills hit a running sandbox"


@pytest.mark.parametrize("options", [("hold",), ()])
def test_the_supervisor_ignores_signals_meant_for_the_runner(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Ctrl-C, SIGTERM and SIGHUP to the supervisor change nothing: the runner decides, and its death ends all."""
    token = f"hermeval-signals-{os.getpid()}-{len(options)}"
    process = start_stand_in(token, tmp_path, *options)
    with process:
        staging = Path(read_line(process))
        supervisor = int(read_line(process).split()[1])
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            os.kill(supervisor, number)
        time.sleep(0.2)
        assert processes_with(token)
        process.kill()
    assert is_all_gone(token, staging)


@pytest.mark.parametrize("released", [False, True])
def test_a_killed_supervisor_takes_the_sandbox_with_it(host: Host, make_spec: MakeSpec, released: bool) -> None:
    """When the supervisor itself is killed, held or running, the runner is told, sweeps what is left, and removes the staging directory."""
    token = f"hermeval-swept-{os.getpid()}-{released}"
    supervisor = supervise(host)
    staging = supervisor.staging
    with start(
        supervisor, make_spec(f"while :; do sleep 1; echo {token} >/dev/null; done"), on_stdout=lambda _: None
    ) as running:
        if released:
            running.release()
            assert wait_until(lambda: len(processes_with(token)) >= 2)
        assert supervisor.pid is not None
        children = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text().split()
        for pid in (supervisor.pid, *(int(child) for child in children)):  # a root caller's is a pair
            os.kill(pid, signal.SIGKILL)
        ended = running.wait(30)
        assert ended is not None
        assert (ended.reason, ended.exit_status, ended.dead) == ("supervisor-gone", None, False)
        with pytest.raises(SandboxError, match="not known to be dead"):
            running.handle("/workspace")
    assert wait_until(lambda: not processes_with(token))
    assert not staging.exists()


def test_close_can_be_called_again_and_frees_the_memory(host: Host, make_spec: MakeSpec) -> None:
    """close is idempotent, also from an interrupted block; descriptors do not add up."""
    before = len(os.listdir("/proc/self/fd"))
    running = start(supervise(host), make_spec("sleep 60", port=443), on_stdout=lambda _: None)

    def interrupted() -> None:
        with running:
            running.release()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    running.close()
    running.close()
    running.kill("late")
    running.release()
    assert len(os.listdir("/proc/self/fd")) == before


def test_failed_starts_leave_nothing_open(host: Host, make_spec: MakeSpec) -> None:
    """A start that fails in the description, in the request or in bwrap closes everything that it made."""
    before = len(os.listdir("/proc/self/fd"))
    for changes in ({"cwd": "relative"}, {"mounts": ()}):
        spec = make_spec().model_copy(update=changes)
        with pytest.raises(SandboxError):
            start(supervise(host), spec, on_stdout=lambda _: None)
    broken = Host(host.identity, host.program, Path("/usr/bin/false"), host.python)
    with pytest.raises(SandboxError):
        start(supervise(broken), make_spec(), on_stdout=lambda _: None)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_sandbox_outlives_the_thread_that_started_it(host: Host, make_spec: MakeSpec) -> None:
    """A parent-death signal would fire when the starting thread ends (finding 57); the lifeline does not."""
    made: list[Running] = []
    thread = threading.Thread(
        target=lambda: made.append(
            start(Supervisor(host, None), make_spec("sleep 0.3; exit 5"), on_stdout=lambda _: None)
        )
    )
    thread.start()
    thread.join()
    with made[0] as running:
        time.sleep(0.1)
        running.release()
        ended = running.wait()
    assert ended is not None
    assert ended.exit_status == 5


def test_many_at_once_do_not_meet(host: Host, make_spec: MakeSpec) -> None:
    """Sandboxes started from several threads each have their own listener, output and end."""
    results: dict[int, bytes] = {}

    def one(number: int) -> None:
        out = bytearray()
        with start(
            Supervisor(host, None), make_spec(f"echo {number}; ls | wc -l; touch x"), on_stdout=out.extend
        ) as running:
            running.release()
            running.wait()
        results[number] = bytes(out)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: b"%d\n0\n" % number for number in range(6)}


def test_the_outer_uid_zero_is_refused(host: Host) -> None:
    """In a user namespace that maps the caller to the host's root, nothing starts; mapped to another uid it goes on."""
    script = (
        "from sandbox.identity import read_identity\nfrom sandbox.errors import SandboxUnavailable\n"
        "try: print(read_identity().run_uid)\nexcept SandboxUnavailable as e: print(e.code)"
    )
    argv = ["unshare", "--user", "--map-user=1000", "--map-group=1000", sys.executable, "-c", script]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd="/"
    )
    assert done.stdout.strip() == ("host-cannot-isolate" if os.getuid() == 0 else "1000"), done.stderr


def test_the_supervisor_refuses_the_outer_uid_zero_itself(host: Host, make_spec: MakeSpec, readable_tmp: Path) -> None:
    """The supervisor checks its own uid map, whatever the runner decided."""
    if (
        os.getuid() != 0
    ):  # an ordinary user cannot be mapped to root; the pure decision is tested in test_sandbox_tables.py
        assert host.identity.run_uid != 0
        return
    python = readable_tmp / "python"
    python.write_text(f'#!/bin/sh\nexec unshare --user --map-user=1000 --map-group=1000 {host.python} "$@"\n')
    python.chmod(0o755)
    wrapped = Host(host.identity._replace(run_as=None), host.program, host.bwrap, python)
    with pytest.raises(SandboxUnavailable, match="uid 0 one level up"):
        start(Supervisor(wrapped, None), make_spec(), on_stdout=lambda _: None)
