"""How much memory a sandbox takes: the tier for hosts that give no cgroup. Part of the supervisor's program.

Boundary: reads the sandbox's own /proc through a handle from outside. Standard library only; imported by box.py from the directory it lies in.
Rules: counted are private and shared memory of every process, what is swapped out, and memory files that somebody has open; a page that several have mapped counts for each in the quick sum, and by
its share in the exact one, which is slow and made only where the quick one is too much. Sized tmpfs mounts are bounded by themselves. A process that ends while it is read counts nothing.
A look is made in small pieces, since a sandbox chooses how many processes and descriptors there are to look at, and the wall clock must not wait for that. What nobody can be
asked for (socket buffers, descriptors under way, shared segments without a process) only a control group holds; here the machine's own free memory is the last bound.
"""

# ruff: noqa: PTH123 - importing pathlib would double the start-up time

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
else:
    import posix as os

PERIOD_S = 0.25
SLICE_S = 0.02
"""How long a look may take before the supervisor hears its runner again."""
COUNTED = (b"RssAnon", b"RssShmem", b"VmSwap", b"VmPTE")
TABLES = (b"VmPTE",)
SHARES = (b"Pss_Anon", b"Pss_Shmem", b"SwapPss")
BLOCK = 512
INODE = 1024
"""About what an empty file costs (facts/sandbox.md §2, 48)."""


class Watchdog:
    """Looks at one sandbox's memory, a moment at a time. ``floor`` is of this machine's free memory."""

    def __init__(self, view: int, places: "list[int]", limit: int) -> None:
        self.view = view
        self.places = places
        self.limit = limit
        self.peak = 0
        self.floor = floor_bytes(read_meminfo())
        self.pieces: Iterator[int] | None = None

    def look(self) -> "tuple[bytes, float]":
        """Go on looking for a moment. Returns why the sandbox must end, or nothing, and when to go on (``time.monotonic``). Raises OSError."""
        until = time.monotonic() + SLICE_S
        reason = b""
        if self.pieces is None:
            if field_of(read_meminfo(), b"MemAvailable") < self.floor:
                reason = b"host-memory"
            self.pieces = weigh(self.view, self.places, self.limit)
        for used in self.pieces:
            if used >= 0:
                self.peak = max(self.peak, used)
                if used > self.limit:
                    reason = b"memory-limit"
                break
            if time.monotonic() >= until:
                return reason, until
        self.pieces = None
        return reason, time.monotonic() + PERIOD_S


def open_view(pid: int) -> int:
    """Return a handle of the sandbox's /proc, or -1 where it has none (its own processes are then not to be told apart)."""
    try:
        view = os.open(f"/proc/{pid}/root/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return -1
    if "1" in os.listdir(view) and "self" in os.listdir(view):
        return view
    os.close(view)
    return -1


def open_places(pid: int, paths: "list[bytes]") -> "list[int]":
    """Return handles of the sandbox's sized mounts. Raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    return [os.open(b"/proc/%d/root%s" % (pid, path), flags) for path in paths if path not in (b"/", b"/dev")]


def weigh(view: int, places: "list[int]", limit: int) -> "Iterator[int]":
    """Look at how much memory a sandbox takes, and yield -1 after each piece of work and the number of bytes at last; exactly, where that might be more than ``limit``.

    Ends early with what it has where memory files alone are too much.
    """
    inodes = inode_bytes(places)
    total, held = inodes, 0
    files: dict[int, int] = {}
    names = [name for name in os.listdir(view) if name.isdigit()]
    for name in names:
        total += sum_of(view, f"{name}/status", COUNTED) or 0
        yield -1
        for found, size in memory_files(view, name):
            if found >= 0:
                held += size - files.get(found, 0)
                files[found] = size
            yield -1
        if inodes + held > limit:
            yield inodes + held
            return
    if total + held > limit:
        total = inodes
        for name in names:
            total += exact_bytes(view, name)
            yield -1
    yield total + held


def floor_bytes(meminfo: bytes) -> int:
    """Return the free memory below which this machine is in danger: a twentieth of it, at most 256 MiB, and never more than half of what is free now (``/proc/meminfo``)."""
    return min(field_of(meminfo, b"MemTotal") // 20, 256 << 20, field_of(meminfo, b"MemAvailable") // 2)


def field_of(meminfo: bytes, name: bytes) -> int:
    """Return a field of ``/proc/meminfo`` in bytes; 0 where there is none."""
    for line in meminfo.split(b"\n"):
        label, _, value = line.partition(b":")
        if label == name:
            return int(value.split()[0]) * 1024
    return 0


def read_meminfo() -> bytes:
    """Return this machine's ``/proc/meminfo``. Raises OSError."""
    with open("/proc/meminfo", "rb") as file:
        return file.read()


def inode_bytes(places: "list[int]") -> int:
    """Return the kernel's memory for what lies in tmpfs mounts, which their sizes do not count."""
    facts = [os.statvfs(place) for place in places]
    return sum((fact.f_files - fact.f_ffree) * INODE for fact in facts)


def exact_bytes(view: int, name: str) -> int:
    """Return a process's memory with its share of what it shares; of the CLI, which cannot be looked into, the quick sum."""
    share = sum_of(view, f"{name}/smaps_rollup", SHARES)
    if share is None:
        return sum_of(view, f"{name}/status", COUNTED) or 0
    return share + (sum_of(view, f"{name}/status", TABLES) or 0)


def sum_of(view: int, path: str, labels: "tuple[bytes, ...]") -> "int | None":
    """Return the sum of some fields of a file, in bytes; None where it cannot be read."""
    total = 0
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=view), "rb") as file:
            for line in file:
                label, _, value = line.partition(b":")
                if label in labels:
                    total += int(value.split()[0]) * 1024
    except OSError:
        return None
    return total


def memory_files(view: int, name: str) -> "Iterator[tuple[int, int]]":
    """Yield inode and bytes of each memory file that a process has open, and (-1, 0) in between; the CLI's own descriptors cannot be read, and are none."""
    try:
        folder = os.open(f"{name}/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=view)
    except OSError:
        return
    try:
        numbers = os.listdir(folder)
    except OSError:
        numbers = []
    finally:
        os.close(folder)
    for count, number in enumerate(numbers):
        try:
            if os.readlink(f"{name}/fd/{number}", dir_fd=view).startswith("/memfd:"):
                facts = os.stat(f"{name}/fd/{number}", dir_fd=view)
                yield facts.st_ino, facts.st_blocks * BLOCK
            elif count % 64 == 63:
                yield -1, 0
        except OSError:
            continue
