"""How much memory a sandbox takes: the tier for hosts that give no cgroup. Part of the supervisor's program.

Boundary: reads the sandbox's own /proc through a handle from outside. Standard library only; imported by box.py from the directory it lies in.
Rules: counted are private and shared memory of every process, what is swapped out, and memory files that somebody has open; a page that several have mapped counts for each in the quick sum, and by
its share in the exact one, which is slow and made only where the quick one is too much. Sized tmpfs mounts are bounded by themselves. A process that ends while it is read counts nothing.
"""

# ruff: noqa: PTH123 - importing pathlib would double the start-up time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
else:
    import posix as os

PERIOD_S = 0.25
COUNTED = (b"RssAnon", b"RssShmem", b"VmSwap")
SHARES = (b"Pss_Anon", b"Pss_Shmem", b"SwapPss")
BLOCK = 512
INODE = 1024
"""About what an empty file costs (facts/sandbox.md §2, 48)."""


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


def used_bytes(view: int, limit: int) -> int:
    """Return how much memory the sandbox's processes take; exactly, where that might be more than the limit."""
    total = 0
    files: dict[int, int] = {}
    names = [name for name in os.listdir(view) if name.isdigit()]
    for name in names:
        total += sum_of(view, f"{name}/status", COUNTED) or 0
        memory_files(view, name, files)
    if total + sum(files.values()) > limit:
        total = sum(exact_bytes(view, name) for name in names)
    return total + sum(files.values())


def inode_bytes(places: "list[int]") -> int:
    """Return the kernel's memory for what lies in tmpfs mounts, which their sizes do not count."""
    facts = [os.statvfs(place) for place in places]
    return sum((fact.f_files - fact.f_ffree) * INODE for fact in facts)


def exact_bytes(view: int, name: str) -> int:
    """Return a process's memory with its share of what it shares; of the CLI, which cannot be looked into, the quick sum."""
    share = sum_of(view, f"{name}/smaps_rollup", SHARES)
    if share is None:
        share = sum_of(view, f"{name}/status", COUNTED)
    return share or 0


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


def memory_files(view: int, name: str, files: "dict[int, int]") -> None:
    """Add the memory files that a process has open, by inode; the CLI's own descriptors cannot be read, and are none."""
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
    for number in numbers:
        try:
            if os.readlink(f"{name}/fd/{number}", dir_fd=view).startswith("/memfd:"):
                facts = os.stat(f"{name}/fd/{number}", dir_fd=view)
                files[facts.st_ino] = facts.st_blocks * BLOCK
        except OSError:
            continue
