"""The 78 probes of facts/sandbox.md §2 as data: what each must come to, and which layers hold it.

Boundary: pure data. Not here: the attempts (program.py inside, outside.py on the host's side, runner/doctor/probes for gate, collector and skill tree).
Rules: ``expects`` has an entry for each attempt, with everything that it may come to; anything else is a hole. ``layer`` is the one that answers first, ``overlaps`` would answer if it
were off; a test turns both off and sees the probe fail (layers.py). A probe that could not be tried is a hole, and its cause says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Status = Literal["refused", "absent", "held", "hole"]
Expects = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Probe:
    """One probe."""

    number: int
    name: str
    place: Literal["inside", "host"]
    status: Status
    """What it must come to: refused with an errno, absent (there is nothing), or held (it happens, and is bounded)."""
    layer: str
    expects: Expects
    overlaps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    """What a probe came to."""

    probe: Probe
    status: Status
    errno: str
    """What the first attempt came to where that is an errno or a signal, else empty."""
    control: bool
    """Whether every harmless twin worked."""
    cause: str = ""

    def as_json(self) -> dict[str, object]:
        """Return the stable JSON form."""
        return {
            "id": f"probe-{self.probe.number}",
            "number": self.probe.number,
            "title": self.probe.name,
            "place": self.probe.place,
            "status": self.status,
            "errno": self.errno or None,
            "layer": self.probe.layer,
            "control": self.control,
            "cause": self.cause,
        }

    @property
    def good(self) -> bool:
        """Whether it is as its data says, and its controls worked."""
        return self.status == self.probe.status and self.control


@dataclass
class Seen:
    """What the attempts and controls of one probe came to: ``=`` and a value, an errno's name, or a signal's."""

    attempts: dict[str, str] = field(default_factory=dict)
    controls: dict[str, str] = field(default_factory=dict)
    failure: str = ""
    """Why it could not be tried."""


def judge(probe: Probe, seen: Seen) -> Result:
    """Compare what was seen with what must be (pure)."""
    wrong = [
        f"{name}: {seen.attempts.get(name, 'not tried')}, not {' or '.join(allowed)}"
        for name, allowed in probe.expects.items()
        if seen.attempts.get(name) not in allowed
    ]
    failed = [f"control {name}: {value}" for name, value in seen.controls.items() if not value.startswith("=")]
    if not seen.controls:
        failed.append("no control was tried")
    if seen.failure:
        wrong.insert(0, f"could not be tried: {seen.failure}")
    first = next(iter(seen.attempts.values()), "")
    return Result(
        probe,
        "hole" if wrong else probe.status,
        first.removeprefix("=") if first.startswith("=SIG") else "" if first.startswith("=") else first,
        not failed,
        "; ".join([*wrong, *failed]),
    )


def judge_all(probes: Iterable[Probe], seen: Mapping[int, Seen]) -> list[Result]:
    """Judge every probe; one that nothing was seen of is a hole."""
    return [judge(probe, seen.get(probe.number, Seen(failure="it did not come to it"))) for probe in probes]


def inside(number: int, name: str, status: Status, layer: str, expects: Expects, *overlaps: str) -> Probe:
    """Return a probe that is tried inside."""
    return Probe(number, name, "inside", status, layer, expects, overlaps)


EPERM, ENOSYS, EROFS, ENOENT = ("EPERM",), ("ENOSYS",), ("EROFS",), ("ENOENT",)
KILLED = ("=SIGSYS",)
NOFAMILY = ("EAFNOSUPPORT",)
FILTER, READ_ONLY, UID, USERNS = "system-call-filter", "read-only-mounts", "run-uid", "no-further-user-namespace"
MASKS, ENVIRONMENT, NETWORK, PIDS, IPC = (
    "masks",
    "empty-environment",
    "network-namespace",
    "process-namespace",
    "ipc-namespace",
)
VIEW, SESSION, LIMITS, SIZES, QUIET = "inside-view", "own-session", "rlimits", "sized-tmpfs", "execute-only-cli"
CAPABILITIES, KEYRING, DEVICES, MOUNTS, HOSTNAME, FIRST = (
    "no-capabilities",
    "own-keyring",
    "own-devices",
    "mount-namespace",
    "host-name",
    "covered-first-process",
)
MACHINE = "machine-type-check"
"""A part of the filter. A kernel without the 32-bit calls ends a program that tries one by SIGSEGV, and another processor has no such instruction."""

INSIDE: tuple[Probe, ...] = (
    inside(1, "Write /proc/sys/kernel/core_pattern", "refused", READ_ONLY, {"write": ("EROFS", "EACCES")}, UID),
    inside(2, "Remount or unmount the system", "refused", FILTER, {"remount": EPERM, "umount": EPERM}, CAPABILITIES),
    inside(3, "Make a set-user-id file", "refused", FILTER, {"chmod": EPERM, "open": EPERM, "fchmodat2": EPERM, "mknod": EPERM, "openat2": ENOSYS}),
    inside(4, "Make a user namespace", "refused", FILTER, {"unshare": EPERM, "clone": EPERM}, USERNS),
    inside(5, "Use the new mount interface", "refused", FILTER, {"clone3": ENOSYS, "setns": EPERM, "open_tree": ENOSYS, "fsopen": ENOSYS, "mount_setattr": ENOSYS}),
    inside(9, "Read the runner's environment", "absent", ENVIRONMENT, {"pid 1": ("=",), "canary": ("=0",)}),
    inside(10, "Find host paths in command lines and mounts", "absent", "argument-file", {"cmdline": ("=[]",), "options": ("=[]",), "mountinfo": ("=[]",)}, "covered-first-process"),
    inside(11, "Read what tells of the host", "absent", MASKS, {"files": ("=0",), "host name": ("=eval",)}, HOSTNAME),
    inside(12, "Read or add kernel keys", "refused", FILTER, {"keyctl": EPERM, "search": EPERM, "add_key": EPERM}, KEYRING),
    inside(13, "Use an inherited descriptor", "absent", "no-inherited-descriptors", {"listed": ("=[]",), "climbed": ("=[]",)}),
    inside(14, "Trace pid 1", "refused", FILTER, {"attach": EPERM, "seize": EPERM}),
    inside(15, "Kill or stop pid 1", "held", PIDS, {"SIGKILL": ("=True",), "SIGSTOP": ("=True",)}),
    inside(17, "Type into the terminal", "refused", SESSION, {"TIOCSTI": EPERM, "/dev/tty": ("ENXIO", "EIO")}, FILTER),
    inside(18, "TIOCSTI and TIOCLINUX with high bits", "refused", FILTER, dict.fromkeys(("TIOCSTI", "TIOCSTI, wide", "TIOCLINUX", "TIOCLINUX, wide"), EPERM)),
    inside(19, "Make a device, be root, change root and host name", "refused", FILTER, {"mknod": EPERM, "setuid": ("EPERM", "EINVAL"), "sethostname": EPERM, "chroot": EPERM, "pivot_root": EPERM}, CAPABILITIES),
    inside(20, "Dangerous kernel interfaces", "refused", FILTER, {"io_uring_setup": ENOSYS, "userfaultfd": EPERM, "perf_event_open": EPERM, "bpf": EPERM, "kcmp": EPERM, "process_vm_readv": EPERM, "personality": EPERM, "modify_ldt": ("EPERM", "ENOSYS")}),
    inside(21, "Calls of another machine type", "refused", FILTER, {"x32": (*KILLED, "ENOSYS"), "int 0x80": (*KILLED, "=SIGSEGV", "ENOSYS")}, MACHINE),
    inside(22, "Kernel files and log", "absent", MOUNTS, {"/sys": ENOENT, "/run": ENOENT, "/dev/kmsg": ENOENT, "sysrq": ("EACCES", "EROFS", "ENOENT"), "syslog": EPERM}, FILTER),
    inside(23, "Write to the system; fill /dev/shm", "refused", READ_ONLY, {"/": EROFS, "/dev": EROFS, "/usr": EROFS, "/dev/shm": ("=True",)}, SIZES),  # noqa: S108 - inside
    inside(24, "Reach the host's network", "refused", NETWORK, {"abstract socket": ("ECONNREFUSED",), "loopback": ("ECONNREFUSED",), "UDP 53": ("ENETUNREACH",), "getaddrinfo": ("EAI_AGAIN", "EAI_NONAME")}),
    inside(25, "A socket to the hypervisor", "refused", FILTER, {"vsock": NOFAMILY}),
    inside(26, "Rare socket families", "refused", FILTER, {"packet": NOFAMILY, "xdp": NOFAMILY, "alg": NOFAMILY, "bluetooth": NOFAMILY, "a new family": NOFAMILY, "raw": EPERM}, CAPABILITIES),
    inside(28, "Sockets of the host's services", "absent", MOUNTS, {"visible": ("=[]",)}),
    inside(29, "Take the gate's port", "refused", "listener-first", {"bind": ("EADDRINUSE",), "SO_REUSEPORT": ("EADDRINUSE",)}),
    inside(32, "The host's shared memory and queues", "absent", IPC, {"SysV shm": ENOENT, "SysV list": ("=0",), "mq": ("ENOENT", "EACCES", "ENOSYS")}),
    inside(46, "A fork bomb", "refused", LIMITS, {"5000 processes": ("EAGAIN",)}),
    inside(48, "Fill what can be written", "refused", SIZES, {"/dev/shm": ("ENOSPC",), "/tmp": ("ENOSPC",), "home": ("ENOSPC",), "/workspace": ("ENOSPC",)}),  # noqa: S108 - inside
    inside(49, "A file of a terabyte", "refused", LIMITS, {"truncate": ("EFBIG", "=SIGXFSZ")}),
    inside(52, "Descriptors, locked memory, real time, priority", "refused", LIMITS, {"descriptors": ("EMFILE",), "mlock": ("ENOMEM", "EPERM"), "real time": EPERM, "nice": ("EACCES", "EPERM")}, CAPABILITIES),
    inside(58, "Forge the exit status", "refused", FIRST, {"pidfd_getfd": EPERM, "/proc/1/fd": ENOENT, "memory": ENOENT, "memory of its thread": ENOENT}, FILTER),
    inside(59, "Write into the CLI's transcript and memory", "refused", QUIET, {"stdout": ("EACCES",), "memory": ("EACCES",), "pidfd_getfd": EPERM}, FILTER),
    inside(74, "Change the skill tree", "refused", READ_ONLY, dict.fromkeys(("write", "create", "chmod", "utime", "rename", "unlink"), EROFS)),
)  # fmt: skip
