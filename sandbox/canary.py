"""Whether a sandbox that is up is what was asked for, seen from outside before its program is released. Part of the supervisor's program.

Boundary: reads /proc of the sandbox's pid 1; ``faults_in`` is pure. Standard library only; imported by box.py from the directory it lies in.
Rules: effects are looked at, never options (greywall#104). Any fault ends the sandbox, whose program then has never started. The system call filter is the one thing that comes after the
release, as bwrap's last act before it starts the program; box.py waits for it and ends a sandbox that has none.
"""

# ruff: noqa: PTH123 - importing pathlib would double the start-up time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

    from sandbox import procfs
else:
    import posix as os

    if __package__:  # imported by a test or a bench, not by box.py beside it
        from sandbox import procfs
    else:
        import procfs

NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts")
DEVICES = (b"/dev/null", b"/dev/zero", b"/dev/full", b"/dev/random", b"/dev/urandom", b"/dev/tty", b"/dev/console")
KINDS = {b"/proc": b"proc", b"/dev/pts": b"devpts"}
"""Writable places that are no tmpfs, by the kind of file system that they must be."""
CAPABILITIES = (b"CapInh", b"CapPrm", b"CapEff", b"CapBnd", b"CapAmb")


def look(pid: int, writable: "list[bytes]", shared_places: "list[bytes]") -> "list[str]":
    """Return what is wrong with the sandbox whose pid 1 is held; empty where nothing is. Raises OSError.

    ``writable`` are the sized mounts; ``shared_places`` the ones where a directory of the host lies on purpose.
    """
    own = [os.stat(f"/proc/self/ns/{name}").st_ino for name in NAMESPACES]
    shared = [
        name for name, inode in zip(NAMESPACES, own, strict=True) if os.stat(f"/proc/{pid}/ns/{name}").st_ino == inode
    ]
    status, uid_map, net_dev, mountinfo = (read(pid, name) for name in ("status", "uid_map", "net/dev", "mountinfo"))
    return faults_in(status, uid_map, net_dev, mountinfo, writable, shared, shared_places)


def read(pid: int, name: str) -> bytes:
    """Return a file of a process."""
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()


def faults_in(
    status: bytes,
    uid_map: bytes,
    net_dev: bytes,
    mountinfo: bytes,
    writable: "list[bytes]",
    shared: "list[str]",
    shared_places: "list[bytes] | tuple[()]" = (),
) -> "list[str]":
    """Return what is wrong, a phrase each (pure). ``shared`` are the namespaces that are ours too; the rest as for ``look``."""
    facts = facts_of(status)
    faults = [f"the {name} namespace is ours" for name in shared]
    if facts.get(b"NoNewPrivs") != b"1":
        faults.append("set-user-id programs would work")
    faults += [f"{name.decode()} is not empty" for name in CAPABILITIES if facts.get(name, b"?").strip(b"0")]
    ids = facts.get(b"Uid", b"0").split()
    maps = [line.split() for line in uid_map.splitlines()]
    if b"0" in ids or len(maps) != 1 or maps[0][0] == b"0" or maps[0][1] == b"0" or maps[0][2] != b"1":
        faults.append("it is not one unprivileged user")
    interfaces = [line.partition(b":")[0].strip() for line in net_dev.splitlines()[2:]]
    if interfaces != [b"lo"]:
        faults.append("there is another network interface than the loopback")
    last = {words[4]: words[5].split(b",") for words in map(bytes.split, mountinfo.splitlines())}
    if b"/proc" in last and b"ro" not in last.get(b"/proc/1", ()):
        faults.append("its first process can be written to")
    return faults + mount_faults(mountinfo, writable, shared_places)


def facts_of(status: bytes) -> "dict[bytes, bytes]":
    """Return a status file's fields."""
    pairs = (line.partition(b":\t") for line in status.splitlines())
    return {name: value for name, _, value in pairs}


def mount_faults(
    mountinfo: bytes, writable: "list[bytes]", shared_places: "list[bytes] | tuple[()]" = ()
) -> "list[str]":
    """Return mounts that can be written and were not meant to be, or where set-user-id files would count."""
    faults = []
    for line in mountinfo.splitlines():
        words = line.split()
        target, options, kind = words[4], words[5].split(b","), words[words.index(b"-") + 1]
        name = target.decode("utf-8", "replace")
        if b"nosuid" not in options:
            faults.append(f"{name} would heed set-user-id files")
        if b"ro" in options or target in DEVICES or target in shared_places:
            continue
        wanted = KINDS.get(target, b"tmpfs" if target in writable else b"")
        if kind != wanted:
            faults.append(f"{name} can be written")
    return faults


def is_filtered(pid: int) -> bool:
    """Whether a process has a system call filter; one that is gone needs none."""
    try:
        return facts_of(read(pid, "status")).get(b"Seccomp") == b"2"
    except OSError:
        return True


def runs_bare(pid: int) -> bool:
    """Whether a program that pid 1 of a sandbox has started runs without a filter: bwrap loads it before it becomes that program."""
    try:
        own = read(pid, "cmdline")
        return any(read(child, "cmdline") != own and not is_filtered(child) for child in procfs.children_of(pid))
    except OSError:  # one of them is gone
        return False
