"""Control groups of the real kernel, where it lets us: a sandbox lives and dies in its own, and nothing of it is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.bundle.reader import open_attempt
from runner.canonical import parse_canonical
from sandbox.abandoned import AGE_S, remove_abandoned_groups
from sandbox.cgroup import ASIDE, NoPlace, Own, Place, find_place, look, mount_of
from sandbox.doctor import check_limits
from sandbox.group import Group, KernelTree
from sandbox.limits import MIB, Limits, not_held
from sandbox.probes.trying import python, spec_of
from sandbox.process import Host, Supervisor, find_host
from sandbox.running import start

ROOT = Path(__file__).resolve().parents[2]


# -- the real kernel


def unified() -> str:
    """Where this machine has its version 2 tree; every one that the tests are run on has one, be it without a controller."""
    found = mount_of(Path("/proc/self/mountinfo").read_text())
    assert found, "no cgroup v2 file system is mounted"
    return found


@pytest.fixture
def real() -> Iterator[Host]:
    """This host, with a place at the top of the real tree, whatever controllers that has; what is left in it is a failure."""
    parent = f"{unified()}/hermeval"
    yield replace(find_host(), groups=Place(parent))
    assert not Path(parent).exists() or os.geteuid() != 0


def groups_of(pid: int) -> str:
    """The group of a process, of version 2."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return next(line for line in lines if line.startswith("0::"))


SAY_GROUP = "print([l for l in open('/proc/self/cgroup') if l.startswith('0::')][0], end='', flush=True)\nimport time; time.sleep(30)"


def test_a_sandbox_lives_and_dies_in_its_real_group(real: Host) -> None:
    """Root: its program is in it, ``cgroup.kill`` by itself ends the run, ``populated`` falls to 0, and it is gone. An ordinary user, who has none here, runs without."""
    said = bytearray()
    supervisor = Supervisor(real, None)
    with start(supervisor, python(SAY_GROUP), on_stdout=said.extend, wall_clock_s=25) as running:
        running.release()
        deadline = time.monotonic() + 20
        while b"\n" not in said and time.monotonic() < deadline:
            time.sleep(0.01)
        group = supervisor.group
        if os.geteuid() != 0:
            assert not Path(group).exists()
            assert b"hermeval-" not in said
            running.kill("done")
            running.wait()
            return
        assert Path(group).name in said.decode()
        assert "populated 1" in Path(group, "cgroup.events").read_text()
        Path(group, "cgroup.kill").write_text("1")
        ended = running.wait()
        assert ended is not None
        assert (ended.reason, ended.exit_status in (None, 137), ended.dead) == (None, True, True)
        assert "populated 0" in Path(group, "cgroup.events").read_text()
    assert not Path(group).exists()


def test_a_group_that_nobody_is_left_to_remove_goes_with_the_next_run(real: Host) -> None:
    """Root: runner and supervisor killed at once leave an empty group; it goes when it is old enough, one with a process in it does not. An ordinary user, who has none here, leaves none."""
    assert isinstance(real.groups, Place)
    parent = Path(real.groups.parent)
    if os.geteuid() != 0:
        assert not os.access(parent.parent, os.W_OK)
        return
    empty, used = parent / "hermeval-00000000000000ee", parent / "hermeval-00000000000000ff"
    for group in (empty, used):
        group.mkdir(parents=True)
    try:
        with subprocess.Popen(["sleep", "60"]) as process:
            (used / "cgroup.procs").write_text(str(process.pid))
            remove_abandoned_groups(parent, time.time())
            assert empty.exists(), "it is young"
            remove_abandoned_groups(parent, time.time() + 2 * AGE_S)
            assert (empty.exists(), used.exists()) == (False, True)
            process.kill()
        remove_abandoned_groups(parent, time.time() + 2 * AGE_S)
        assert not used.exists()
    finally:
        for group in (empty, used, parent):
            if group.exists():
                group.rmdir()


def test_what_this_kernel_limits_is_read_back_and_else_refused() -> None:
    """Where the real tree has memory and pids the tiers are ``cgroup`` and a bomb is the kernel's to end; where it has none, the reason is said, doctor says ``degraded``, and ``--require-limits`` refuses with that reason."""
    host = find_host()
    limits = Limits(memory_bytes=96 * MIB)
    with start(
        Supervisor(host, None),
        python("x = []\nwhile True: x.append(b'x' * (4 << 20))", limits=limits),
        on_stdout=lambda _: None,
    ) as running:
        held = running.limits
        running.release()
        ended = running.wait()
        assert ended is not None
    assert ended.reason == "memory-limit"
    if isinstance(host.groups, Place):
        assert (held.memory, held.processes) == ("cgroup", "cgroup")
        assert not_held(("memory", "pids"), held) == ()
        return
    assert (held.memory, held.processes) == ("watchdog", "rlimit")
    assert not_held(("memory",), held) == ("memory",)
    check = check_limits(ended, host)
    assert (check.status, host.groups.reason in check.cause, "Delegate=yes" in check.cure) == ("degraded", True, True)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "runner.cli", "run", "--no-grade", "--json", "--require-limits", "memory", "missing-account"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    (row,) = json.loads(done.stdout)["attempts"]
    observed: Any = parse_canonical(open_attempt(Path(row["path"])).part("observations.json"))
    assert observed["control_group"] == host.groups.reason
    Path(row["path"]).unlink()
    assert (done.returncode, row["outcome"]["code"]) == (2, "limits-unavailable")
    assert host.groups.reason in row["outcome"]["message"]


@pytest.mark.parametrize("victim", ["runner", "supervisor"])
def test_nothing_is_left_when_somebody_is_killed(real: Host, victim: str) -> None:
    """SIGKILL of the runner: the supervisor removes the group. SIGKILL of the supervisor: the runner does."""
    if victim == "runner":
        code = (
            "import sys, time; from dataclasses import replace; from sandbox.cgroup import Place; from sandbox.probes.trying import spec_of\n"
            "from sandbox.process import Supervisor, find_host; from sandbox.running import start\n"
            "s = Supervisor(replace(find_host(), groups=Place(sys.argv[1])), None)\n"
            "with start(s, spec_of('/bin/sleep', '60'), on_stdout=lambda _: None) as r:\n r.release(); print(s.group, flush=True); time.sleep(60)"
        )
        assert isinstance(real.groups, Place)
        with subprocess.Popen(
            [sys.executable, "-P", "-c", code, real.groups.parent],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            group = process.stdout.readline().strip()
            assert Path(group).exists() == (os.geteuid() == 0)
            process.kill()
        deadline = time.monotonic() + 20
        while Path(group).exists() and time.monotonic() < deadline:
            time.sleep(0.01)
    else:
        supervisor = Supervisor(real, None)
        group = supervisor.group
        with start(supervisor, spec_of("/bin/sleep", "60"), on_stdout=lambda _: None) as running:
            running.release()
            assert supervisor.pid is not None
            os.killpg(supervisor.pid, signal.SIGKILL)
            running.wait()
    assert group.rpartition("/")[2].startswith("hermeval-")
    assert not Path(group).exists()


def test_a_real_controller_is_handed_on_set_and_read_back() -> None:
    """Whatever controller this kernel's version 2 tree has: root hands it to a group, writes a limit and reads it back; an ordinary user is told that it may not."""
    top, tree = unified(), KernelTree()
    controllers = tree.read(f"{top}/cgroup.controllers").split()
    found = find_place(tree, replace(read(), is_ours=lambda _: False), tuple(controllers[:1]))
    if os.geteuid() != 0:
        assert isinstance(found, NoPlace)
        assert "written" in found.reason or "delegated" in found.reason
        return
    assert found == Place(f"{top}/hermeval")
    group = Group(f"{top}/hermeval-test-{os.getpid()}/hermeval-1", tree)
    group.make()
    try:
        assert group.there
        group.try_write("cgroup.max.descendants", "3")
        assert (group.value("cgroup.max.descendants"), group.value("cgroup.max.depth")) == (3, -1)
        with subprocess.Popen(["/bin/sleep", "60"]) as child:
            group.tree.write(f"{group.path}/cgroup.procs", str(child.pid))
            assert groups_of(child.pid).endswith(group.path.removeprefix(top))
            assert not group.is_empty()
            group.kill()
            assert child.wait(20) == -signal.SIGKILL
        assert group.is_empty()
    finally:
        assert group.remove()
        os.rmdir(group.parent)


DELEGATED = """
import os, sys, time
os.setgid(1001); os.setuid(1001)
from dataclasses import replace
from sandbox.cgroup import find_place, read_own
from sandbox.group import Group, KernelTree
tree = KernelTree()
place = find_place(tree, read_own(), ())
group = Group(f"{place.parent}/hermeval-1", tree)
group.make()
child = os.fork()
if not child:
    time.sleep(60)
tree.write(f"{group.path}/cgroup.procs", str(child))
print(place.parent, group.there, not group.is_empty(), flush=True)
print(group.remove(), os.WTERMSIG(os.waitpid(child, 0)[1]), os.path.exists(group.path))
"""


def test_an_ordinary_user_uses_what_the_kernel_delegates_to_it() -> None:
    """A real group that was given to a uid: that uid's program moves aside in it, makes one below, moves a child in, kills and removes it. Only root can give; an ordinary user here is told that it was given none."""
    if os.geteuid() != 0:
        found = find_place(KernelTree(), read(), ())
        assert isinstance(found, NoPlace)
        assert "Delegate=yes" in found.reason
        return
    given = Path(unified(), f"hermeval-test-{os.getpid()}.service")
    given.mkdir()
    try:
        for path in (given, *(given / name for name in ("cgroup.procs", "cgroup.subtree_control", "cgroup.threads"))):
            os.chown(path, 1001, 1001)
        # The program enters while it is still root, as systemd has it; what it needs is readable for all.
        enter = f"open({str(given / 'cgroup.procs')!r}, 'w').write('0')\nimport sys; sys.path.append({str(ROOT)!r})\nimport sandbox.cgroup"
        done = subprocess.run(
            [sys.executable, "-P", "-c", enter + DELEGATED], capture_output=True, text=True, check=False
        )
        assert done.stdout.splitlines() == [f"{given} True True", "True 9 False"], done.stderr
        assert (given / ASIDE / "cgroup.events").read_text().startswith("populated 0")
    finally:
        (given / ASIDE).rmdir()
        given.rmdir()


def read() -> Own:
    """This process as it is."""
    from sandbox.cgroup import read_own

    return read_own()


def test_this_machine_is_looked_at_without_a_trace() -> None:
    """A look alone makes no group beside the others."""
    before = {name for name in os.listdir(unified()) if name in (ASIDE, "hermeval")}
    look()
    assert {name for name in os.listdir(unified()) if name in (ASIDE, "hermeval")} == before
