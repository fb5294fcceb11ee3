"""One control group (cgroup v2) for one sandbox: made before root is given up, entered by the held pid 1, killed and removed at the end. Part of the supervisor's program.

Boundary: files of a cgroup v2 file system, through a port, so that a test can put a tree of its own in the kernel's place. Standard library only; imported by roles.py and box.py from the
directory it lies in. Not here: where such a group may be made (cgroup.py).
Rules: the kernel asks who opened a file and not who writes to it, so files are opened before root is given up, and kept. What is claimed is what the kernel reads back. A group that cannot
be had costs nothing but the claim: whoever insists on it is told by the limits. The parent named ``hermeval`` is made on demand and removed with the last group in it.
"""

import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import Protocol
else:
    import posix as os

    Protocol = object

SHARED = "hermeval"
"""The name of a parent that is ours."""
KEPT = (
    "cgroup.procs",
    "cgroup.kill",
    "cgroup.events",
    "memory.max",
    "memory.swap.max",
    "memory.oom.group",
    "memory.events",
    "memory.peak",
    "pids.max",
    "pids.events",
    "cpu.max",
)
GONE_S = 10.0
PERIOD_US = 100_000
"""Of cpu.max."""


class Tree(Protocol):
    """What is done to a cgroup file system."""

    def make(self, path: str) -> None:
        """Make a group; one that is there is fine. Raises OSError."""

    def keep(self, path: str, names: "tuple[str, ...]") -> None:
        """Open those of a group's files that there are, for later."""

    def read(self, path: str) -> str:
        """Return a file's text. Raises OSError."""

    def write(self, path: str, text: str) -> None:
        """Write to a file. Raises OSError."""

    def remove(self, path: str) -> None:
        """Remove an empty group. Raises OSError."""


class KernelTree:
    """The kernel's own."""

    def __init__(self) -> None:
        self.kept: dict[str, int] = {}

    def make(self, path: str) -> None:
        """Make a group; one that is there is fine."""
        try:
            os.mkdir(path, 0o755)
        except FileExistsError:
            return

    def keep(self, path: str, names: "tuple[str, ...]") -> None:
        """Open those of a group's files that there are, for later."""
        for name in names:
            for how in (os.O_RDWR, os.O_WRONLY, os.O_RDONLY):
                try:
                    self.kept[f"{path}/{name}"] = os.open(f"{path}/{name}", how | os.O_CLOEXEC)
                except OSError:
                    continue
                break

    def read(self, path: str) -> str:
        """Return a file's text."""
        if path in self.kept:
            return os.pread(self.kept[path], 4096, 0).decode()
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(descriptor, 4096, 0).decode()
        finally:
            os.close(descriptor)

    def write(self, path: str, text: str) -> None:
        """Write to a file."""
        if path in self.kept:
            os.pwrite(self.kept[path], text.encode(), 0)
            return
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def remove(self, path: str) -> None:
        """Remove an empty group."""
        os.rmdir(path)


class Group:
    """A control group of our own, or nothing where it could not be had."""

    def __init__(self, path: str, tree: "Tree | None" = None) -> None:
        self.path = path
        self.tree: Tree = tree or KernelTree()
        self.there = False
        self.entered = False

    @property
    def parent(self) -> str:
        """The group that ours lies in."""
        return self.path.rpartition("/")[0]

    def make(self) -> None:
        """Make it, with the controllers that its parent has, and open its files; before root is given up. Without effect where that is not possible."""
        for _ in range(3):  # another run may remove the parent in between
            try:
                self.tree.make(self.parent)
                self.enable(self.parent.rpartition("/")[0] if self.is_shared() else "")
                self.enable(self.parent)
                self.tree.make(self.path)
            except FileNotFoundError:
                continue
            except OSError:
                return
            self.tree.keep(self.path, KEPT)
            self.there = True
            return

    def is_shared(self) -> bool:
        """Whether the parent is one that is made on demand."""
        return self.parent.rpartition("/")[2] == SHARED

    def enable(self, path: str) -> None:
        """Hand a group's controllers on to what lies in it, one by one."""
        if not path:
            return
        has, on = (self.tree.read(f"{path}/cgroup.{name}").split() for name in ("controllers", "subtree_control"))
        for name in ("memory", "pids", "cpu"):
            if name in has and name not in on:
                try:
                    self.tree.write(f"{path}/cgroup.subtree_control", f"+{name}")
                except OSError:
                    continue

    def hold(self, pid: int, memory: int, processes: int, cpu_percent: int) -> "dict[str, int]":
        """Set the limits, take the held process in, and return what the kernel reads back; nothing where it is not in. 0 is: no such limit."""
        if not self.there:
            return {}
        asked = {"memory.max": str(memory), "memory.swap.max": "0", "memory.oom.group": "1", "pids.max": str(processes)}
        if not memory:
            asked = {"pids.max": str(processes)}
        if cpu_percent:
            asked["cpu.max"] = f"{cpu_percent * PERIOD_US // 100} {PERIOD_US}"
        for name, value in asked.items():
            self.try_write(name, value)
        try:
            self.tree.write(f"{self.path}/cgroup.procs", str(pid))
            self.entered = str(pid) in self.tree.read(f"{self.path}/cgroup.procs").split()
        except OSError:
            self.entered = False
        if not self.entered:
            return {}
        return self.read_back(asked)

    def read_back(self, asked: "dict[str, str]") -> "dict[str, int]":
        """Return the values that hold, by name. Memory counts only where nothing can be swapped out beside it."""
        found = {name: self.value(name) for name in asked}
        held = {}
        if found.get("memory.max", -1) > 0 and self.no_swap():
            held["memory_max_bytes"] = found["memory.max"]
            held["memory_oom_group"] = max(0, found["memory.oom.group"])
        if found.get("pids.max", -1) > 0:
            held["pids_max"] = found["pids.max"]
        if "cpu.max" in asked and found["cpu.max"] > 0:
            period = self.words("cpu.max")[1]
            held["cpu_percent"] = found["cpu.max"] * 100 // int(period)
        return held

    def no_swap(self) -> bool:
        """Whether nothing of this group is ever swapped out: the limit says so, or, in a kernel without it, the machine has none."""
        if self.words("memory.swap.max"):
            return self.value("memory.swap.max") == 0
        try:
            return len(self.tree.read("/proc/swaps").splitlines()) < 2
        except OSError:
            return False

    def words(self, name: str) -> "list[str]":
        """Return a file's words; none where it cannot be read."""
        try:
            return self.tree.read(f"{self.path}/{name}").split()
        except OSError:
            return []

    def value(self, name: str) -> int:
        """Return a file's first number; -1 where it is ``max`` or cannot be read."""
        first = (self.words(name) or ["max"])[0]
        return int(first) if first.isdigit() else -1

    def count(self, name: str, key: str) -> int:
        """Return one line's number of an events file; 0 where there is none."""
        words = self.words(name)
        pairs = dict(zip(words[::2], words[1::2], strict=False))
        return int(pairs.get(key, 0))

    def try_write(self, name: str, text: str) -> None:
        """Write to one of its files; one that is not there or refuses is seen at the read-back."""
        try:
            self.tree.write(f"{self.path}/{name}", text)
        except OSError:
            return

    def facts(self) -> "dict[str, int]":
        """Return what it counted: the highest memory, how often memory ran out, how often a process was refused."""
        if not self.entered:
            return {}
        counted = {
            "memory_oom_kills": self.count("memory.events", "oom_kill"),
            "pids_refused": self.count("pids.events", "max"),
        }
        peak = self.value("memory.peak")
        return {**counted, "memory_peak": peak} if peak > 0 else counted

    def kill(self) -> None:
        """Kill everything in it."""
        if self.there:
            self.try_write("cgroup.kill", "1")

    def is_empty(self) -> bool:
        """Whether no process is in it."""
        return self.count("cgroup.events", "populated") == 0

    def remove(self) -> bool:
        """Kill what is left, wait until it is empty, and remove it; returns whether it is gone."""
        if not self.there:
            return True
        self.kill()
        deadline = time.monotonic() + GONE_S
        while True:
            try:
                self.tree.remove(self.path)
            except FileNotFoundError:
                pass
            except OSError:
                if time.monotonic() < deadline:
                    select.select([], [], [], 0.002)
                    continue
                return False
            break
        self.there = False
        if self.is_shared():
            try:
                self.tree.remove(self.parent)
            except OSError:
                return True  # another run's group is in it
        return True
