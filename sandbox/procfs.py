"""What the supervisor learns about processes and namespaces from /proc. Part of the supervisor's program.

Boundary: reads /proc, opens directory handles. Standard library only; imported by supervisor.py and box.py from the directory they lie in.
Rules: every answer may be outdated by the time it is used, so callers hold a pidfd of what they ask about. Nothing here follows a link of the sandbox.
"""

# ruff: noqa: PTH123 - importing pathlib would double the start-up time

import fcntl

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
else:
    import posix as os

NS_GET_USERNS = 0xB701


def outer_uid() -> int:
    """Return the uid, one level up, that this process's uid stands for; its own uid in the first namespace."""
    own = os.getuid()
    with open("/proc/self/uid_map", "rb") as file:
        for line in file:
            inside, outside, count = (int(word) for word in line.split())
            if inside <= own < inside + count:
                return outside + own - inside
    return own


def parent_of(pid: int) -> int:
    """Return a process's parent, or -1."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return -1


def children_of(pid: int) -> list[int]:
    """Return a process's children, by looking at every process."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and parent_of(int(name)) == pid]


def owner_of_network(pid: int) -> int:
    """Return the inode of the user namespace that owns the network namespace of ``pid``, or 0 while it cannot be had."""
    try:
        network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        owner = fcntl.ioctl(network, NS_GET_USERNS)
    except OSError:
        return 0
    finally:
        os.close(network)
    try:
        return os.fstat(owner).st_ino
    finally:
        os.close(owner)


def is_settled(pid: int, owner: int) -> bool:
    """Whether bwrap has done all its mounts.

    Right after the last mount it moves from the user namespace that owns the network namespace into a second one, and nothing but the block comes after.
    """
    try:
        return os.stat(f"/proc/{pid}/ns/user").st_ino != owner
    except OSError:
        return False


def open_handle(pid: int, path: bytes, shared: "dict[bytes, tuple[int, int]] | None" = None) -> int:
    """Open a directory of the sandbox from outside, and prove that it is the sandbox's tmpfs and not a host directory of that name.

    ``shared`` has the device and inode of those that are a directory of the host on purpose: they must be that very one. Raises OSError.
    """
    handle = os.open(b"/proc/%d/root%s" % (pid, path), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(handle)
    if shared is not None and path in shared:
        if (found.st_dev, found.st_ino) != shared[path]:
            os.close(handle)
            raise OSError(f"{path.decode('utf-8', 'replace')} is not the directory that was to be shared")
        return handle
    device = found.st_dev
    wanted = b"%d:%d" % (os.major(device), os.minor(device))
    kind = b""
    with open(f"/proc/{pid}/mountinfo", "rb") as file:
        for line in file:
            words = line.split()
            if words[4].replace(b"\\040", b" ").replace(b"\\134", b"\\") == path:
                kind = words[words.index(b"-") + 1] if words[2] == wanted else b""
    if kind != b"tmpfs":
        os.close(handle)
        raise OSError(f"{path.decode('utf-8', 'replace')} is not the sandbox's own tmpfs")
    return handle
