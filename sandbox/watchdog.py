"""How much memory a sandbox takes: the tier for hosts that give no cgroup. Part of the supervisor's program.

Boundary: reads the sandbox's own /proc through a handle from outside. Standard library only; imported by box.py from the directory it lies in.
Rules: counted are private and shared memory of every process, what is swapped out, and memory files that somebody has open; a page that several have mapped counts for each, so the sum errs to
the upper side. Sized tmpfs mounts are bounded by themselves. A process that ends while it is read counts nothing.
"""

# ruff: noqa: PTH123 - importing pathlib would double the start-up time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
else:
    import posix as os

PERIOD_S = 0.25
COUNTED = (b"RssAnon", b"RssShmem", b"VmSwap")
BLOCK = 512


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


def used_bytes(view: int) -> int:
    """Return how much memory the sandbox's processes take."""
    total = 0
    files: dict[int, int] = {}
    for name in os.listdir(view):
        if name.isdigit():
            total += process_bytes(view, name)
            memory_files(view, name, files)
    return total + sum(files.values())


def process_bytes(view: int, name: str) -> int:
    """Return one process's memory."""
    total = 0
    try:
        with open(os.open(f"{name}/status", os.O_RDONLY | os.O_CLOEXEC, dir_fd=view), "rb") as file:
            for line in file:
                label, _, value = line.partition(b":")
                if label in COUNTED:
                    total += int(value.split()[0]) * 1024
    except OSError:
        return 0
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
