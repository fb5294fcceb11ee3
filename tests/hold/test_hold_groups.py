"""Control groups: where one may be made, what it holds by the kernel's own word, and that nothing of it is left. The real kernel where it lets us, and a tree that behaves like one for the rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.cgroup import ASIDE, NoPlace, Own, Place, find_place, mount_of
from sandbox.group import Group
from sandbox.limits import MIB, Limits, held_limits, not_held
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
