"""How a run can end, and that each end is told apart from the others."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandbox.errors import SandboxSetupFailed, SandboxUnavailable, SpecInvalid
from sandbox.process import Host, Supervisor
from sandbox.request import hold_pipe
from sandbox.running import start

if TYPE_CHECKING:
    from tests.sandbox.conftest import MakeSpec, Run


@pytest.mark.parametrize(
    ("script", "status", "by_signal"),
    [
        ("exit 0", 0, None),
        ("exit 1", 1, None),
        ("exit 77", 77, None),
        ("kill -KILL $$", 137, 9),
        ("kill -SEGV $$", 139, 11),
    ],
)
def test_the_exit_status_comes_from_outside(run: Run, script: str, status: int, by_signal: int | None) -> None:
    """bwrap's status pipe gives the program's own status, signals in the shell's way."""
    ended = run(script).ended
    assert (ended.exit_status, ended.signal, ended.reason, ended.setup_error) == (status, by_signal, None, None)
    assert ended.dead
    assert ended.duration_s > 0


def test_a_program_that_cannot_be_started_is_no_exit_status(run: Run) -> None:
    """A missing program is a set-up error, though bwrap ends with 1 as the program might."""
    ended = run("", view={"argv": ("/opt/none",)}).ended
    assert ended.exit_status is None
    assert ended.setup_error is not None
    assert ended.setup_error.startswith("program-missing")
    control = run("exit 1").ended
    assert (control.exit_status, control.setup_error) == (1, None)


def test_words_of_bwrap_from_inside_are_no_setup_error(run: Run) -> None:
    """A program that prints bwrap's words and ends is judged by its status."""
    ended = run('echo "bwrap: Can\'t mount proc on /newroot/proc: Operation not permitted" >&2; exit 1').ended
    assert (ended.exit_status, ended.setup_error) == (1, None)


def test_a_missing_source_fails_the_start(host: Host, make_spec: MakeSpec) -> None:
    """A bind whose source is missing is told before anything starts; one that is not named at all is a fault of the description."""
    from sandbox.spec import RoBind

    spec = make_spec(binds=(RoBind(source="@tree", target="/opt/tree"),))
    with pytest.raises(SandboxSetupFailed, match="cannot be bound"):
        start(Supervisor(host, None), spec, on_stdout=lambda _: None, sources={"tree": Path("/nonexistent")})
    with pytest.raises(SpecInvalid, match="was given no path"):
        start(Supervisor(host, None), spec, on_stdout=lambda _: None)


def test_a_mount_that_bwrap_refuses_fails_the_start(host: Host, make_spec: MakeSpec, tmp_path: Path) -> None:
    """What only bwrap finds out is a set-up failure with its cause, never an exit status."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    from sandbox.spec import RoBind

    spec = make_spec(binds=(RoBind(source="@tree", target="/opt/tree"),))
    hidden.chmod(0)
    inner = hidden / "inner"
    if host.identity.uid == 0:
        hidden.chmod(0o700)
        inner.mkdir()
        expected: type[Exception] = SandboxSetupFailed
    else:
        expected = SandboxSetupFailed
    with pytest.raises(expected):
        start(Supervisor(host, None), spec, on_stdout=lambda _: None, sources={"tree": inner})
    hidden.chmod(0o700)


@pytest.mark.parametrize(
    ("says", "code"),
    [
        ("bwrap: setting up uid map: Permission denied", "userns-restricted"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "userns-network-restricted"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "proc-masked"),
    ],
)
def test_a_host_that_cannot_isolate_has_a_code_of_its_own(
    host: Host, make_spec: MakeSpec, readable_tmp: Path, says: str, code: str
) -> None:
    """bwrap's refusal on such a host is host-cannot-isolate, with cause and cure (cases D02, D04)."""
    stub = readable_tmp / "bwrap"
    stub.write_text(f'#!/bin/sh\necho "{says}" >&2\nexit 1\n')
    stub.chmod(0o755)
    broken = Host(host.identity, host.program, stub, host.python)
    with pytest.raises(SandboxUnavailable) as caught:
        start(Supervisor(broken, None), make_spec(), on_stdout=lambda _: None)
    assert caught.value.code == "host-cannot-isolate"
    assert caught.value.where == code
    assert caught.value.hint


def test_a_missing_bwrap_is_told(host: Host, make_spec: MakeSpec) -> None:
    """Without bwrap the start fails with a sandbox error."""
    broken = Host(host.identity, host.program, Path("/nonexistent/bwrap"), host.python)
    with pytest.raises(SandboxSetupFailed, match="No such file"):
        start(Supervisor(broken, None), make_spec(), on_stdout=lambda _: None)


def test_the_wall_clock_ends_a_run_that_ignores_signals(run: Run) -> None:
    """The supervisor kills at the wall clock, whatever the program does about signals; grandchildren go too (case D12)."""
    before = time.monotonic()
    ended = run(
        "trap '' TERM HUP INT; setsid sh -c 'while :; do sleep 1; done' & while :; do sleep 1; done", wall_clock_s=0.5
    ).ended
    assert (ended.reason, ended.exit_status, ended.dead) == ("timeout", None, True)
    assert 0.4 < ended.duration_s < 5
    assert time.monotonic() - before < 8


def test_a_flood_is_capped(host: Host, make_spec: MakeSpec) -> None:
    """stdout over its cap ends the run with output-limit; what was delivered is exactly the cap, in order."""
    taken = bytearray()
    with start(Supervisor(host, None), make_spec("yes"), on_stdout=taken.extend, stdout_cap=1_000_001) as running:
        running.release()
        ended = running.wait()
    assert ended is not None
    assert (ended.reason, ended.exit_status) == ("output-limit", None)
    assert bytes(taken) == (b"y\n" * 500_001)[:1_000_001]
    assert ended.stdout_bytes > 1_000_001


def test_stdout_up_to_the_cap_is_fine(run: Run) -> None:
    """The control: exactly the cap is no flood."""
    seen = run("head -c 100000 /dev/zero", stdout_cap=100_000)
    assert (seen.ended.exit_status, seen.ended.reason, len(seen.out)) == (0, None, 100_000)


def test_stderr_is_kept_at_both_ends(run: Run) -> None:
    """A long stderr ends nothing: head and tail are kept, and the gap says how much is missing."""
    ended = run("echo first >&2; head -c 3000000 /dev/zero >&2; echo last >&2", stderr_cap=1000).ended
    assert ended.exit_status == 0
    assert ended.stderr.startswith(b"first")
    assert ended.stderr.endswith(b"last\n")
    assert b"bytes left out" in ended.stderr
    assert ended.stderr_bytes == 3_000_011
    assert len(ended.stderr) < 1100


def test_a_reader_that_raises_ends_the_run_and_is_heard(host: Host, make_spec: MakeSpec) -> None:
    """An exception of the reader kills the sandbox and comes out of wait."""

    def broken(_: bytes) -> None:
        raise ValueError("reader broke")

    with start(Supervisor(host, None), make_spec("while :; do echo x; sleep 0.1; done"), on_stdout=broken) as running:
        running.release()
        with pytest.raises(ValueError, match="reader broke"):
            running.wait()


def test_kill_is_heard_from_any_thread_and_the_first_reason_stays(host: Host, make_spec: MakeSpec) -> None:
    """kill can be called often and from elsewhere; wait with a timeout returns None until the end."""
    with start(Supervisor(host, None), make_spec("sleep 60"), on_stdout=lambda _: None) as running:
        running.release()
        assert running.wait(0.05) is None

        def kill_twice() -> None:
            running.kill("first")
            running.kill("second")

        thread = threading.Thread(target=kill_twice)
        thread.start()
        ended = running.wait(20)
        thread.join()
        assert ended is not None
        assert ended.reason == "first"
        running.kill("late")
        assert running.wait() is ended


def test_a_held_sandbox_can_be_killed_or_left(host: Host, make_spec: MakeSpec) -> None:
    """A sandbox that is never released ends without the program having run."""
    out = bytearray()
    with start(Supervisor(host, None), make_spec("echo ran"), on_stdout=out.extend) as running:
        running.kill("no")
        ended = running.wait()
    assert ended is not None
    assert (ended.reason, ended.duration_s, ended.exit_status) == ("no", 0.0, None)
    with start(Supervisor(host, None), make_spec("echo ran"), on_stdout=out.extend):
        time.sleep(0.1)
    assert out == b""


def test_an_end_of_file_never_releases(tmp_path: Path) -> None:
    """The hold stays when every other end of it is closed (finding 56); the control is an ordinary pipe, whose end releases."""
    args = [
        "bwrap",
        "--ro-bind",
        "/usr",
        "/usr",
        "--symlink",
        "usr/lib",
        "/lib",
        "--symlink",
        "usr/lib64",
        "/lib64",
        "--unshare-pid",
        "--die-with-parent",
    ]

    def try_with(read_end: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*args, "--block-fd", str(read_end), "/usr/bin/true"], pass_fds=[read_end], start_new_session=True
        )
        os.close(read_end)
        return process

    plain_read, plain_write = os.pipe()
    control = try_with(plain_read)
    held = try_with(hold_pipe())
    os.close(plain_write)
    assert control.wait(20) == 0
    with pytest.raises(subprocess.TimeoutExpired):
        held.wait(0.5)
    os.killpg(held.pid, signal.SIGKILL)  # the group: bwrap's own death does not reach a child that is still held
    held.wait()


def test_a_daemon_is_dead_before_the_workspace_is_read(run: Run) -> None:
    """A double-forked daemon that goes on writing cannot change the tree any more once wait has returned."""
    sizes: list[int] = []

    def look(running: object) -> None:
        handle = running.handle("/workspace")  # type: ignore[attr-defined]
        for _ in range(20):
            sizes.append(os.stat("log", dir_fd=handle).st_size)
            time.sleep(0.005)

    run(
        "setsid sh -c 'while :; do echo x >>/workspace/log; done' </dev/null >/dev/null 2>&1 & while ! test -s log; do :; done",
        look=look,
    )
    assert len(set(sizes)) == 1
    assert sizes[0] > 0
