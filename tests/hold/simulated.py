"""A machine that cannot isolate, made of namespaces, binds, system call filters and stand-ins: ``python simulated.py NAME SCRATCH -- ARGV`` starts ARGV on it.

Rules: nothing outside of this process and its children changes. Root makes a mount namespace; an ordinary user makes a user namespace in which it keeps its own uid. What a setting,
kernel or container would do is done for real wherever a namespace or a filter can; where it cannot (an AppArmor denial, an old bwrap) a stand-in says bwrap's own words.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import struct
import sys
from collections.abc import Callable
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
NEW_MOUNT, NEW_USER = 0x20000, 0x10000000
BIND, RECURSIVE, PRIVATE, READ_ONLY, REMOUNT, DETACH, NO_EXEC = 4096, 16384, 1 << 18, 1, 32, 2, 8
X86 = os.uname().machine == "x86_64"
CALLS = {
    "clone": (56, 220),
    "unshare": (272, 97),
    "clone3": (435, 435),
    "pidfd_open": (434, 434),
    "sendto": (44, 206),
    "mount": (165, 40),
    "prctl": (157, 167),
    "seccomp": (317, 277),
}
PIVOT_ROOT = 155 if X86 else 41
Rule = tuple[str, int | None, int, int]
"""A call, which argument's bits (None for any call of it), the bits (or less than zero: the whole value, negated), the errno."""


def checked(result: int) -> None:
    """Raise where a call of the C library failed."""
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def mount(source: str | Path, target: str | Path, kind: str = "none", flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    checked(LIBC.mount(os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), data.encode()))


def bind(source: Path, target: str) -> None:
    """Lay a file or folder over another."""
    mount(source, target, flags=BIND | RECURSIVE)


def written(path: Path, text: str, mode: int = 0o644) -> Path:
    """Write a file."""
    path.write_text(text)
    path.chmod(mode)
    return path


def separate(*, user_namespace: bool) -> None:
    """Leave the mounts of everybody else, in a user namespace where that is asked for or needed; this uid stays what it is."""
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0 and user_namespace:
        enter_mapped()
    else:
        checked(LIBC.unshare(NEW_MOUNT if uid == 0 else NEW_MOUNT | NEW_USER))
    if uid != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    mount("none", "/", flags=RECURSIVE | PRIVATE)


def enter_mapped() -> None:
    """Make a user namespace in which every uid is itself; only a process that stays outside may write such a map."""
    me = os.getpid()
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.read(ready[0], 1)
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{me}/{name}").write_text("0 0 65536")
        os.write(done[1], b"x")
        os._exit(0)
    checked(LIBC.unshare(NEW_USER | NEW_MOUNT))
    os.write(ready[1], b"x")
    os.read(done[0], 1)
    os.waitpid(child, 0)


def filtered(*rules: Rule) -> None:
    """Have the kernel refuse calls from here on, as a container's filter does."""
    code = [(0x20, 0, 0, 0)]
    for name, argument, bits, number in rules:
        call = CALLS[name][0 if X86 else 1]
        refusal = (0x06, 0, 0, 0x00050000 | number)
        if argument is None:
            code += [(0x15, 0, 1, call), refusal]
        else:
            test = (0x45, 0, 1, bits) if bits >= 0 else (0x15, 0, 1, -bits)
            code += [(0x15, 0, 4, call), (0x20, 0, 0, 16 + 8 * argument), test, refusal, (0x20, 0, 0, 0)]
    code.append((0x06, 0, 0, 0x7FFF0000))
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(program)))
    checked(LIBC.prctl(38, 1, 0, 0, 0))
    checked(LIBC.prctl(22, 2, header))


NO_USER_NAMESPACES: tuple[Rule, ...] = (
    ("clone", 0, NEW_USER, errno.EPERM),
    ("unshare", 0, NEW_USER, errno.EPERM),
    ("clone3", None, 0, errno.ENOSYS),
)


def masked(_: Path) -> None:
    """Cover what Docker covers below /proc, of what there is."""
    for name in ("kcore", "keys", "timer_list", "latency_stats"):
        if Path("/proc", name).exists():
            mount("/dev/null", f"/proc/{name}", flags=BIND)
    for name in ("acpi", "asound", "scsi", "fs"):
        if Path("/proc", name).exists():
            mount("none", f"/proc/{name}", "tmpfs", READ_ONLY)


def settings(scratch: Path, **values: str) -> None:
    """Lay a folder with other kernel settings over /proc/sys/kernel."""
    folder = scratch / "kernel"
    folder.mkdir()
    for name in ("overflowuid", "overflowgid", "cap_last_cap", "osrelease"):
        written(folder / name, Path("/proc/sys/kernel", name).read_text())
    for name, value in values.items():
        written(folder / name, value + "\n")
    folder.chmod(0o755)
    bind(folder, "/proc/sys/kernel")


def stand_in(scratch: Path, version: str, words: str) -> None:
    """Put a script in bwrap's place that tells a version, and else says some words and ends."""
    text = f'#!/bin/sh\ncase "$*" in --version) echo "bubblewrap {version}"; exit 0;; esac\necho "bwrap: {words}" >&2\nexit 1\n'
    bind(written(scratch / "bwrap", text, 0o755), "/usr/bin/bwrap")


def docker(scratch: Path) -> None:
    """Docker: its mark in the root folder, its masks, its filter."""
    root = scratch / "root"
    root.mkdir()
    mount("none", root, "tmpfs", data="mode=755")
    written(root / ".dockerenv", "")
    for entry in Path("/").iterdir():
        target = root / entry.name
        if entry.is_symlink():
            target.symlink_to(entry.readlink())
        elif entry.is_dir():
            target.mkdir()
            bind(entry, str(target))
        else:
            mount(entry, written(target, ""), flags=BIND)
    os.chdir(root)
    checked(LIBC.syscall(PIVOT_ROOT, b".", b"."))
    checked(LIBC.umount2(b".", DETACH))
    os.chdir("/")
    masked(scratch)
    filtered(*NO_USER_NAMESPACES)


def podman(scratch: Path) -> None:
    """Podman with namespaces allowed: its mark, and masks over /proc."""
    mount("none", "/run", "tmpfs", data="mode=755")
    written(Path("/run/.containerenv"), "")
    masked(scratch)


def gvisor(scratch: Path) -> None:
    """The gVisor of some years ago: its /proc/version, and no pidfds."""
    bind(written(scratch / "version", "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n"), "/proc/version")
    filtered(("pidfd_open", None, 0, errno.ENOSYS))


def wsl(scratch: Path) -> None:
    """The first WSL: its /proc/version, and mounts that are refused."""
    bind(
        written(scratch / "version", "Linux version 4.4.0-19041-Microsoft (Microsoft@Microsoft.com)\n"), "/proc/version"
    )
    filtered(("mount", None, 0, errno.EACCES))


def apparmor(scratch: Path) -> None:
    """Ubuntu 24.04: the setting, and the denial of the uid map."""
    settings(scratch, apparmor_restrict_unprivileged_userns="1")
    stand_in(scratch, "0.9.0", "setting up uid map: Permission denied")


def apparmor_network(_: Path) -> None:
    """The same, where the namespace may be made and has no rights: the loopback's address is refused, which is a message to a 12-byte address."""
    filtered(("sendto", 5, 12, errno.EPERM))


def no_more_namespaces(_: Path) -> None:
    """user.max_user_namespaces is 0, in a user namespace around everything."""
    Path("/proc/sys/user/max_user_namespaces").write_text("0")


def set_user_id(scratch: Path) -> None:
    """A set-user-id bwrap, the real one."""
    copy = scratch / "bwrap"
    copy.write_bytes(Path("/usr/bin/bwrap").read_bytes())
    copy.chmod(0o4755)
    bind(copy, "/usr/bin/bwrap")


def file_capabilities(scratch: Path) -> None:
    """A bwrap whose file has capabilities; an ordinary user can give a file none, and gets a stand-in that says what the real one does."""
    if os.geteuid() != 0:
        stand_in(scratch, "0.8.0", "Unexpected capabilities but not setuid, old file caps config?")
        return
    copy = scratch / "bwrap"
    copy.write_bytes(Path("/usr/bin/bwrap").read_bytes())
    copy.chmod(0o755)
    os.setxattr(copy, "security.capability", struct.pack("<5I", 0x02000001, 1 << 21, 0, 0, 0))
    bind(copy, "/usr/bin/bwrap")


def read_only_settings(_: Path) -> None:
    """systemd's ProtectKernelTunables: /proc/sys cannot be written."""
    mount("/proc/sys", "/proc/sys", flags=BIND | RECURSIVE)
    kept = os.statvfs("/proc/sys").f_flag & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)
    mount("none", "/proc/sys", flags=BIND | REMOUNT | READ_ONLY | kept)


def memory_at(flags: dict[str, int]) -> Callable[[Path], None]:
    """Return what mounts an empty file system in memory at each of some places, with these flags."""

    def lay(_: Path) -> None:
        for target, kept in flags.items():
            mount("none", target, "tmpfs", kept, "mode=755")

    return lay


STAGING: dict[str, Callable[[Path], None]] = {
    "run-plain": memory_at({"/run": 0, "/var/lib": 0}),
    "run-noexec": memory_at({"/run": NO_EXEC, "/var/lib": 0}),
    "run-read-only": memory_at({"/run": READ_ONLY, "/var/lib": 0}),
    "both-noexec": memory_at({"/run": NO_EXEC, "/var/lib": NO_EXEC}),
    "both-read-only": memory_at({"/run": READ_ONLY, "/var/lib": READ_ONLY}),
}
"""Machines whose places for root's runs differ; the machine's own stay as they are."""

LIMITED: dict[str, Callable[[Path], None]] = {
    "enough-memory": lambda _: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)),
}
"""Machines that lack something, and run all the same."""

PLACES: dict[str, Callable[[Path], None]] = {
    "unsimulated": lambda _: None,
    "docker": docker,
    "podman": podman,
    "gvisor": gvisor,
    "wsl": wsl,
    "masked-proc": masked,
    "apparmor": apparmor,
    "apparmor-network": apparmor_network,
    "no-user-namespaces": lambda _: filtered(*NO_USER_NAMESPACES),
    "no-user-namespaces-in-the-kernel": lambda _: filtered(
        ("clone", 0, NEW_USER, errno.EINVAL), ("clone3", None, 0, errno.ENOSYS)
    ),
    "no-more-namespaces": no_more_namespaces,
    "set-user-id": set_user_id,
    "bwrap-0.4": lambda scratch: stand_in(scratch, "0.4.1", "Unknown option --disable-userns"),
    "protect-kernel-tunables": read_only_settings,
    "file-capabilities": file_capabilities,
    "little-memory": lambda _: resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20)),
    "no-proc": lambda _: mount("none", "/proc", "tmpfs", 0, "mode=755"),
    "no-system-call-filters": lambda _: filtered(("prctl", 0, -22, errno.EINVAL), ("seccomp", None, 0, errno.EINVAL)),
}


def main() -> None:
    """Make the place and start the program there."""
    name, scratch, _, *argv = sys.argv[1:]
    separate(user_namespace=name == "no-more-namespaces")
    (PLACES | STAGING | LIMITED)[name](Path(scratch))
    os.execv(argv[0], argv)


if __name__ == "__main__":
    main()
