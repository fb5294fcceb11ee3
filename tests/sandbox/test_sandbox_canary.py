"""What is seen of a sandbox from outside before its program starts, and the watch over its memory after."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sandbox import canary
from sandbox.argv import bwrap_args
from sandbox.canary import faults_in, is_filtered, look, mount_faults
from sandbox.errors import SandboxUnavailable
from sandbox.limits import Limits
from sandbox.process import Supervisor
from sandbox.request import writable_places
from sandbox.running import start
from sandbox.seccomp import own_filter

if TYPE_CHECKING:
    from sandbox.process import Host
    from tests.sandbox.conftest import MakeSpec, Run

MIB = 1024 * 1024
STATUS = b"Name:\tbwrap\nUid:\t65534\t65534\t65534\t65534\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t0\n"
MAP = b"      1000      65534          1\n"
NET = b"Inter-|   Receive\n face |bytes\n    lo:       0       0\n"
MOUNTS = (
    b"157 110 0:44 /newroot / ro,nosuid,nodev - tmpfs tmpfs rw\n159 157 0:45 / /proc rw,nosuid,nodev,noexec - proc proc rw\n"
    b"160 159 0:46 / /proc/1 ro,nosuid,nodev - tmpfs tmpfs ro\n"
    b"168 167 0:6 /null /dev/null rw,nosuid - devtmpfs devtmpfs rw\n176 157 0:49 / /tmp rw,nosuid,nodev - tmpfs tmpfs rw\n"
)


@pytest.mark.parametrize(
    ("was", "now", "wanted"),
    [
        (b"NoNewPrivs:\t1", b"NoNewPrivs:\t0", "set-user-id programs would work"),
        (b"NoNewPrivs:\t1\n", b"", "set-user-id programs would work"),
        (b"CapEff:\t0000000000000000", b"CapEff:\t0000000000200000", "CapEff is not empty"),
        (b"CapBnd:\t0000000000000000", b"CapBnd:\t000001ffffffffff", "CapBnd is not empty"),
        (b"CapAmb:\t0000000000000000\n", b"", "CapAmb is not empty"),
        (b"Uid:\t65534\t65534", b"Uid:\t65534\t0", "it is not one unprivileged user"),
        (MAP, b"         0       1000          1\n", "it is not one unprivileged user"),
        (MAP, b"      1000          0          1\n", "it is not one unprivileged user"),
        (MAP, b"         0          0 4294967295\n", "it is not one unprivileged user"),
        (MAP, b"      1000      65534          2\n", "it is not one unprivileged user"),
        (MAP, MAP + b"      1001      65533          1\n", "it is not one unprivileged user"),
        (MAP, b"", "it is not one unprivileged user"),
        (NET, NET + b"  eth0: 1 2\n", "there is another network interface than the loopback"),
        (b"/ ro,nosuid,nodev - tmpfs", b"/ rw,nosuid,nodev - tmpfs", "/ can be written"),
        (b"/proc rw,nosuid,nodev,noexec - proc", b"/proc rw,nosuid - ext4", "/proc can be written"),
        (b"/tmp rw,nosuid,nodev - tmpfs", b"/tmp rw,nosuid,nodev - ext4", "/tmp can be written"),
        (b"/tmp rw,nosuid", b"/tmp rw,noexec", "/tmp would heed set-user-id files"),
        (b"/ /tmp rw", b"/ /srv rw", "/srv can be written"),
        (b"/ /proc/1 ro", b"/ /proc/2 ro", "its first process can be written to"),
    ],
)  # fmt: skip
def test_each_departure_is_found(was: bytes, now: bytes, wanted: str) -> None:
    """What is as it must be has no fault (the control); each change of it has exactly its own."""
    texts = (STATUS, MAP, NET, MOUNTS)
    assert faults_in(STATUS, MAP, NET, MOUNTS, [b"/tmp"], []) == []
    changed = tuple(text.replace(was, now) for text in texts)
    assert changed != texts
    status, uid_map, net, mounts = changed
    assert faults_in(status, uid_map, net, mounts, [b"/tmp"], []) == [wanted]


def test_a_shared_namespace_is_found() -> None:
    """A namespace that is the supervisor's own is a fault; a process that shares them all has one for each kind."""
    assert faults_in(STATUS, MAP, NET, MOUNTS, [b"/tmp"], ["net"]) == ["the net namespace is ours"]
    assert mount_faults(b"", []) == []
    found = [fault for fault in look(os.getpid(), [], []) if fault.endswith("namespace is ours")]
    assert found == [f"the {name} namespace is ours" for name in ("user", "mnt", "pid", "net", "ipc", "uts")]


@pytest.mark.parametrize(
    ("line", "filtered"),
    [(b"Seccomp:\t2", True), (b"Seccomp:\t0", False), (b"Seccomp:\t1", False), (b"Seccomp:\t22", False), (b"", False)],
)
def test_only_the_kernels_own_word_for_a_filter_counts(
    line: bytes, filtered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mode 2 is a filter; the old strict mode, none, another number and a status without the line are not."""
    monkeypatch.setattr(canary, "read", lambda pid, name: STATUS.replace(b"Seccomp:\t0", line))
    assert is_filtered(1) is filtered


def test_a_process_that_is_gone_needs_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can do nothing any more; one that is there is looked at (control)."""
    monkeypatch.setattr(canary, "read", lambda pid, name: STATUS)
    assert not is_filtered(1)

    def gone(pid: int, name: str) -> bytes:
        raise ProcessLookupError

    monkeypatch.setattr(canary, "read", gone)
    assert is_filtered(1)


def test_a_sandbox_with_a_writable_system_is_never_released(
    host: Host, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place that was asked to be read-only and is not ends the run before the program starts, with a code of its own; told as writable it runs (the control)."""
    spec = make_spec("echo ran").model_copy(update={"remount_ro": ()})
    output = bytearray()
    with start(Supervisor(host, None), spec, on_stdout=output.extend) as running:
        running.release()
        ended = running.wait()
        assert ended is not None
        assert ended.exit_status == 0
    assert bytes(output) == b"ran\n"
    monkeypatch.setattr(
        "sandbox.request.writable_places", lambda spec: [place for place in writable_places(spec) if place != "/"]
    )
    with pytest.raises(SandboxUnavailable, match="/ can be written") as caught:
        start(Supervisor(host, None), spec, on_stdout=output.extend)
    assert caught.value.code == "sandbox-canary"
    assert bytes(output) == b"ran\n"


def test_a_program_without_the_filter_is_ended(
    host: Host, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a filter is expected and none is there, the sandbox is ended at once; with one it runs to its end (the control)."""
    spec = make_spec("sleep 3; echo ran", seccomp=own_filter())
    real = bwrap_args

    def without(*given: object, **named: object) -> list[str]:
        args = real(*given, **named)  # type: ignore[arg-type]
        at = args.index("--seccomp")
        return args[:at] + args[at + 2 :]

    output = bytearray()
    with start(Supervisor(host, None), spec, on_stdout=output.extend) as running:
        running.release()
        ended = running.wait()
    assert ended is not None
    assert (ended.reason, bytes(output)) == (None, b"ran\n")
    monkeypatch.setattr("sandbox.request.bwrap_args", without)
    with start(Supervisor(host, None), spec, on_stdout=output.extend) as running:
        running.release()
        ended = running.wait()
    assert ended is not None
    assert (ended.reason, ended.exit_status) == ("no-system-call-filter", None)
    assert bytes(output) == b"ran\n"


BOMBS = {
    "private memory": "x = []\nwhile True: x.append(b'x' * (4 << 20))",
    "memory files": "import os\nx = []\nwhile True:\n f = os.memfd_create('x'); x.append(f); os.write(f, b'x' * (4 << 20))",
    "many processes": "import os, time\nfor _ in range(20):\n if not os.fork(): x = b'x' * (16 << 20); time.sleep(60)\ntime.sleep(60)",
}


@pytest.mark.parametrize("kind", sorted(BOMBS))
def test_a_memory_bomb_ends_the_run(run: Run, kind: str) -> None:
    """However memory is taken, a run that takes more than it may is ended for that reason, and its peak is told."""
    seen = run(
        "", view={"argv": ("/usr/bin/python3", "-I", "-S", "-c", BOMBS[kind]), "limits": Limits(memory_bytes=128 * MIB)}
    )
    assert (seen.ended.reason, seen.ended.exit_status) == ("memory-limit", None)
    assert seen.ended.observations["memory_peak_bytes"] > 128 * MIB
    assert seen.ended.limits.memory == "watchdog"


def test_an_honest_program_keeps_its_memory(run: Run) -> None:
    """The control: a program below its limit runs to its end."""
    code = "import time; x = b'x' * (48 << 20); time.sleep(1); print(len(x))"
    seen = run(
        "", view={"argv": ("/usr/bin/python3", "-I", "-S", "-c", code), "limits": Limits(memory_bytes=128 * MIB)}
    )
    assert seen.ended.reason is None
    assert seen.out.strip() == str(48 * MIB)
    assert seen.ended.observations["memory_peak_bytes"] > 48 * MIB
