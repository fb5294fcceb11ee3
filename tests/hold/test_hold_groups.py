"""Control groups: where one may be made, what it holds by the kernel's own word, and that nothing of it is left. The real kernel where it lets us, and a tree that behaves like one for the rest."""

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
from sandbox.cgroup import ASIDE, NoPlace, Own, Place, find_place, look, mount_of
from sandbox.doctor import check_limits
from sandbox.group import Group, KernelTree
from sandbox.limits import MIB, Limits, held_limits, not_held
from sandbox.probes.trying import python, spec_of
from sandbox.process import Host, Supervisor, find_host
from sandbox.running import start
from tests.hold.group_tree import TOP, FakeTree

ROOT = Path(__file__).resolve().parents[2]
MOUNTINFO = f"30 24 0:26 / {TOP} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


def own(group: str = "/", **changes: object) -> Own:
    """This process, as the tests would have it: root in a group of its own with nobody else."""
    plain = Own(0, MOUNTINFO, f"0::{group}\n", lambda _: False, lambda pid: pid == 7, lambda _: True)
    return replace(plain, **changes)  # type: ignore[arg-type]  # each of its own type


def tree_with(*groups: str, pids: tuple[int, ...] = (7,)) -> FakeTree:
    """A tree whose last group has processes, every controller handed on all the way."""
    tree = FakeTree("cpu", "memory", "pids")
    path = TOP
    for name in groups:
        tree.on[path] = ["cpu", "memory", "pids"]
        path = f"{path}/{name}"
        tree.make(path)
    tree.pids[path] = list(pids)
    return tree


# -- where


def test_root_gets_a_group_of_its_own_beside_systemds() -> None:
    """On a version 2 host root's place is ``hermeval`` at the top; an ordinary user's session is nobody's to move about."""
    tree = tree_with("user.slice", "session-1.scope", pids=(7, 8))
    assert find_place(tree, own("/user.slice/session-1.scope")) == Place(f"{TOP}/hermeval")
    assert tree.pids[f"{TOP}/user.slice/session-1.scope"] == [7, 8]
    refused = find_place(tree, own("/user.slice/session-1.scope", uid=1000))
    assert isinstance(refused, NoPlace)
    assert "not delegated" in refused.reason
    assert "systemd-run --scope -p Delegate=yes" in refused.reason


@pytest.mark.parametrize("group", ["/hermeval.slice/hermeval-eval@1.service", "/user.slice/app.slice/run-1.scope"])
def test_a_delegated_unit_is_the_place_and_its_processes_move_aside(group: str) -> None:
    """Marked by systemd, or a system unit that is this uid's: what is in it moves into a group beside, once; a second look and a child find the same place."""
    tree = tree_with(*group[1:].split("/"), pids=(7, 8))
    marked = "user.slice" in group
    me = own(group, uid=1000, is_delegated=lambda _: marked)
    assert find_place(tree, me) == Place(TOP + group)
    assert (tree.pids[TOP + group], tree.pids[f"{TOP}{group}/{ASIDE}"]) == ([], [7, 8])
    assert find_place(tree, own(f"{group}/{ASIDE}", uid=1000)) == Place(TOP + group)


def test_a_scope_with_nobody_else_is_a_place() -> None:
    """``systemd-run --user --scope -p Delegate=yes`` on a systemd that does not mark it; with somebody else in it, it is none (the control)."""
    assert find_place(tree_with("user.slice", "x.scope"), own("/user.slice/x.scope", uid=1000)) == Place(
        f"{TOP}/user.slice/x.scope"
    )
    with_others = tree_with("user.slice", "x.scope", pids=(7, 8))
    assert isinstance(find_place(with_others, own("/user.slice/x.scope", uid=1000)), NoPlace)


@pytest.mark.parametrize(
    ("tree", "me", "words"),
    [
        (tree_with("a"), own("/a", mountinfo="1 2 0:3 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"), "no cgroup v2 is mounted"),
        (tree_with("a"), replace(own(), group="4:memory:/a\n"), "in no group of version 2"),
        (FakeTree("hugetlb"), own(), "no memory and no pids"),
        (FakeTree("pids", "cpu"), own(), "no memory here"),
        (tree_with("a"), own("/a", uid=1000, can_write=lambda _: False), "may not be written"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(tree: FakeTree, me: Own, words: str) -> None:
    """No version 2, not in it, controllers that version 1 has, not writable: each by its own words."""
    found = find_place(tree, me)
    assert isinstance(found, NoPlace)
    assert words in found.reason


def test_the_mount_of_a_whole_tree_is_found() -> None:
    """Hybrid, unified, and a bind of a part, which is no whole."""
    assert mount_of(MOUNTINFO) == TOP
    assert mount_of("1 2 0:3 /part /mnt rw - cgroup2 cgroup2 rw\n" + MOUNTINFO) == TOP
    assert mount_of("1 2 0:3 /part /mnt rw - cgroup2 cgroup2 rw\n") is None


# -- what it holds


def grouped(tree: FakeTree) -> Group:
    """A group that is made."""
    group = Group(f"{TOP}/hermeval/hermeval-1", tree)
    group.make()
    return group


def test_limits_are_set_read_back_and_claimed() -> None:
    """Memory, swap, pids and processor time; the process is in; the tier is ``cgroup``, and what was insisted on is held."""
    tree = FakeTree("cpu", "memory", "pids")
    group = grouped(tree)
    read_back = group.hold(42, 512 * MIB, 64, 150)
    assert read_back == {
        "memory_max_bytes": 512 * MIB,
        "memory_oom_group": 1,
        "pids_max": 64,
        "cpu_percent": 150,
    }
    assert tree.pids[group.path] == [42]
    assert tree.values[f"{group.path}/memory.swap.max"] == "0"
    held = held_limits(
        Limits(memory_bytes=256 * MIB, processes=64, cpu_percent=150),
        {**read_back, "mounts_bytes": 256 * MIB, "processes": 64},
    )
    assert (held.memory, held.processes, held.cpu) == ("cgroup", "cgroup", "cgroup")
    assert not_held(("memory", "pids"), held) == ()


@pytest.mark.parametrize(
    ("file", "kept", "memory", "processes"),
    [
        ("memory.max", "max", "watchdog", "cgroup"),
        ("memory.max", str(1 << 40), "watchdog", "cgroup"),
        ("memory.swap.max", "max", "watchdog", "cgroup"),
        ("pids.max", "max", "cgroup", "rlimit"),
        ("pids.max", "65", "cgroup", "rlimit"),
    ],
)
def test_a_value_that_does_not_read_back_is_not_claimed(file: str, kept: str, memory: str, processes: str) -> None:
    """Unlimited, more than was asked for, or room to swap: the next tier is what holds (systemd#9641)."""
    tree = FakeTree("memory", "pids")
    tree.rounded[file] = kept
    read_back = grouped(tree).hold(42, 256 * MIB, 64, 0)
    held = held_limits(
        Limits(memory_bytes=256 * MIB, processes=64), {**read_back, "processes": 64, "memory_bytes": 256 * MIB}
    )
    assert (held.memory, held.processes, held.cpu) == (memory, processes, "none")


def test_a_process_that_does_not_come_in_is_not_held() -> None:
    """Nothing is claimed of a group that the sandbox is not in; nor of one that could not be made."""
    tree = FakeTree("memory", "pids")
    group = grouped(tree)
    tree.unwritable.add(f"{group.path}/cgroup.procs")
    assert group.hold(42, 256 * MIB, 64, 0) == {}
    assert group.facts() == {}
    unmade = Group("/nowhere/hermeval-1", FakeTree())
    unmade.make()
    assert (unmade.there, unmade.hold(42, 1, 1, 0), unmade.remove()) == (False, {}, True)


def test_a_kernel_without_swap_accounting_counts_where_the_machine_has_no_swap() -> None:
    """memory.swap.max is not there then."""
    tree = FakeTree("memory", "pids", swap=False)
    assert grouped(tree).hold(42, 256 * MIB, 64, 0)["memory_max_bytes"] == 256 * MIB


def test_what_ran_out_is_told() -> None:
    """Kills for want of memory, refused processes and the peak."""
    tree = FakeTree("memory", "pids")
    group = grouped(tree)
    group.hold(42, 256 * MIB, 64, 0)
    tree.values |= {
        f"{group.path}/memory.events": "low 0\noom 1\noom_kill 3\n",
        f"{group.path}/memory.peak": "1234\n",
        f"{group.path}/pids.events": "max 5\n",
    }
    assert group.facts() == {"memory_oom_kills": 3, "pids_refused": 5, "memory_peak": 1234}


def test_everything_in_it_is_killed_and_it_goes() -> None:
    """Kill, empty, removed, and the shared parent with the last; another run's stays, and so does its parent."""
    tree = FakeTree("memory", "pids")
    first, second = grouped(tree), Group(f"{TOP}/hermeval/hermeval-2", tree)
    second.make()
    first.hold(42, 256 * MIB, 64, 0)
    assert first.remove()
    assert (tree.killed, first.path in tree.pids, second.path in tree.pids) == ([first.path], False, True)
    assert second.remove()
    assert set(tree.pids) == {TOP}


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
