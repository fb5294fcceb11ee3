"""The layers of the sandbox as data: which probes each holds, which layers overlap it, and how a test turns it off.

Boundary: pure. Not here: the probes (table.py), the layers of gate, collector and readers (runner/doctor/probes/layers.py). Rules: no layer is decoration: with it and its overlaps off, at least
one of ``probes`` fails, and tests/sandbox shows it. Changes are of the description, of bwrap's arguments, or of a copy of the supervisor's program: a line of it for another; what the caller's own
process holds (output-caps) the test turns off there. There is no switch for them outside of tests. Where nothing can be turned off, ``because`` says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sandbox.seccomp import ALLOW, KILL, RETURN, Instruction, assemble
from sandbox.spec import Dev, File, Mount, Proc, RoBind, SandboxSpec, Tmpfs
from sandbox.view import WORKSPACE

Args = list[str]
Edit = tuple[str, str, str]
"""A file of the supervisor's program, a piece of its text, and what stands there instead."""


@dataclass(frozen=True)
class Layer:
    """One layer."""

    name: str
    probes: tuple[int, ...]
    """Those inside probes that it answers first, or would answer if the first were off."""
    overlaps: tuple[str, ...] = ()
    off: Callable[[SandboxSpec], SandboxSpec] | None = None
    """The description without it."""
    args_off: Callable[[Args], Args] | None = None
    """bwrap's arguments without it."""
    edits: tuple[Edit, ...] = ()
    """The supervisor's program without it."""
    shown_by: tuple[int, ...] = ()
    """Probes that fail with the layer and its overlaps off."""
    because: str = ""
    """Why it cannot be turned off, and what shows that it counts."""
    callers: str = ""
    """Where only some callers can show it: who, and why."""
    machine: str = ""
    """The one machine type that can show it, where not all can."""


def with_mounts(change: Callable[[Mount], Mount]) -> Callable[[SandboxSpec], SandboxSpec]:
    """Return a change of every mount."""
    return lambda spec: spec.model_copy(update={"mounts": tuple(change(mount) for mount in spec.mounts)})


def without_filter(spec: SandboxSpec) -> SandboxSpec:
    """Take the system call filter away."""
    return spec.model_copy(update={"seccomp": None})


def any_machine(spec: SandboxSpec) -> SandboxSpec:
    """Have the filter take calls of another machine type, which is what it asks about first."""
    assert spec.seccomp is not None
    kill, allow = (assemble([Instruction(RETURN, 0, 0, value)]) for value in (KILL, ALLOW))
    return spec.model_copy(update={"seccomp": spec.seccomp.replace(kill, allow, 1)})


def writable_system(spec: SandboxSpec) -> SandboxSpec:
    """Leave the root and /dev writable."""
    return spec.model_copy(update={"remount_ro": ()})


def plain_program(mount: Mount) -> Mount:
    """Bind an ordinary program in the place of the execute-only one."""
    if isinstance(mount, RoBind) and mount.target == "/opt/quiet":
        return RoBind(source="/usr/bin/sleep", target=mount.target)
    return mount


def with_sys(spec: SandboxSpec) -> SandboxSpec:
    """Bind the host's /sys."""
    return spec.model_copy(update={"mounts": (*spec.mounts, RoBind(source="/sys", target="/sys"))})


def large(mount: Mount) -> Mount:
    """Give /dev/shm and the workspace no size to speak of."""
    if isinstance(mount, Tmpfs) and mount.target == WORKSPACE:
        return mount.model_copy(update={"size_bytes": 1 << 36})
    return mount.model_copy(update={"shm_bytes": 1 << 36}) if isinstance(mount, Dev) else mount


def unmasked(mount: Mount) -> Mount:
    """Cover nothing below /proc."""
    return mount.model_copy(update={"masks": ()}) if isinstance(mount, Proc) else mount


def writable_tree(spec: SandboxSpec) -> SandboxSpec:
    """Put a writable copy in the place of the read-only staged tree."""
    mounts = [mount for mount in spec.mounts if mount.target != "/opt/staged"]
    copy = (
        Tmpfs(target="/opt/staged", size_bytes=1 << 20),
        File(target="/opt/staged/file", content=b"staged\n", mode=0o644),
    )
    return spec.model_copy(update={"mounts": (*mounts, *copy)})


def own_session(args: Args) -> Args:
    """Stay in the supervisor's session."""
    return [word for word in args if word != "--new-session"]


def many_files(spec: SandboxSpec) -> SandboxSpec:
    """Allow files of a terabyte."""
    return spec.model_copy(update={"limits": spec.limits.model_copy(update={"file_bytes": 1 << 40})})


def less(*words: str) -> Callable[[Args], Args]:
    """Leave options out of bwrap's arguments."""
    return lambda args: [word for word in args if word not in words]


def shared_processes(args: Args) -> Args:
    """Stay in the host's process namespace, of which the kernel gives no fresh /proc: the host's own is bound instead."""
    args = less("--unshare-pid")(args)
    at = args.index("--proc")
    return [*args[:at], "--bind", "/proc", "/proc", *args[at + 2 :]]


def every_capability(args: Args) -> Args:
    """Keep all that a user namespace gives."""
    at = args.index("--cap-drop")
    return [*args[:at], "--cap-add", "ALL", *args[at + 2 :]]


def writable_settings(args: Args) -> Args:
    """Do not cover /proc/sys."""
    at = args.index("/proc/sys") - 1
    return [*args[:at], *args[at + 3 :]]


def first_process(args: Args) -> Args:
    """Leave what /proc says of pid 1."""
    at = args.index("/proc/1") - 5
    return [*args[:at], *args[at + 8 :]]


def no_listener(spec: SandboxSpec) -> SandboxSpec:
    """Make no listener from outside, so that a program inside may be first."""
    return spec.model_copy(update={"network": None})


NO_CANARY: tuple[Edit, ...] = (("box.py", "if not faults:", "if True:"),)
BY_CAPABILITIES: tuple[Edit, ...] = (
    (
        "procfs.py",
        'return os.stat(f"/proc/{pid}/ns/user").st_ino != owner',
        'return b"CapEff:\\t0000000000000000" in open(f"/proc/{pid}/status", "rb").read()',
    ),
)
"""A sandbox without a second user namespace is known to be up by its last act before the hold, which is to give up capabilities."""
OWN_USERS: tuple[Edit, ...] = (("procfs.py", "/proc/{pid}/ns/net", "/proc/{pid}/ns/uts"),)
"""A sandbox without a network namespace is known by the user namespace that owns its host name."""
AS_ROOT: tuple[Edit, ...] = (("roles.py", "procfs.outer_uid() == 0", "False"),)
ENVIRONMENT: tuple[Edit, ...] = (("box.py", "argv, {}, file_actions", 'argv, {"HERMEVAL": "1"}, file_actions'),)
DESCRIPTOR: tuple[Edit, ...] = (
    (
        "box.py",
        "self.block = descriptors[3]\n",
        'self.block = descriptors[3]\n        os.set_inheritable(os.open("/", os.O_RDONLY), True)\n',
    ),
)
LIFELINE: tuple[Edit, ...] = (("box.py", 'self.reason = self.reason or b"runner-gone"', "pass"),)
NO_WEIGHING: tuple[Edit, ...] = (("watchdog.py", "if used > self.limit:", "if False:"),)
OWN_ARGUMENTS: tuple[Edit, ...] = (
    ("box.py", 'b"--args", b"%d" % (FD_BASE + 1), ', '*os.pread(descriptors[4], 1 << 20, 0).split(b"\\0")[:-1], '),
)
NO_CLOCK: tuple[Edit, ...] = (("box.py", "deadline = self.released_at + wall_s", "pass"),)
CANARY = "canary"

LAYERS = (
    Layer("system-call-filter", (2, 3, 4, 5, 12, 14, 17, 18, 19, 20, 21, 22, 25, 26, 58, 59), ("no-capabilities", "no-further-user-namespace", "own-keyring"), off=without_filter, shown_by=(3, 5, 12, 20, 25)),
    Layer("machine-type-check", (21,), off=any_machine, shown_by=(21,), machine="x86_64"),
    Layer("read-only-mounts", (1, 23), off=writable_system, shown_by=(23,)),
    Layer("staged-copies", (30, 74), off=writable_tree, shown_by=(74,)),
    Layer("masks", (11,), off=with_mounts(unmasked), shown_by=(11,)),
    Layer("covered-first-process", (58,), (CANARY,), args_off=first_process, edits=NO_CANARY, shown_by=(58,)),
    Layer("host-name", (11,), off=lambda spec: spec.model_copy(update={"hostname": "other"}), shown_by=(11,)),
    Layer("mount-namespace", (10, 22, 28), off=with_sys, shown_by=(22,)),
    Layer("sized-tmpfs", (23, 48), off=with_mounts(large), shown_by=(23, 48)),
    Layer("execute-only-cli", (59,), ("system-call-filter",), off=lambda spec: with_mounts(plain_program)(without_filter(spec)), shown_by=(59,)),
    Layer("rlimits", (46, 49, 52), off=many_files, shown_by=(49,)),
    Layer("own-session", (16, 17), ("process-namespace",), args_off=own_session, shown_by=(16,)),
    Layer("no-further-user-namespace", (4,), ("system-call-filter",), off=without_filter, args_off=less("--disable-userns"), edits=BY_CAPABILITIES, shown_by=(4,)),
    Layer("no-capabilities", (2, 19, 26, 52), ("system-call-filter", CANARY), off=without_filter, args_off=every_capability, edits=NO_CANARY, shown_by=(19,)),
    Layer("network-namespace", (24, 45), (CANARY,), off=no_listener, args_off=less("--unshare-net"), edits=(*NO_CANARY, *OWN_USERS), shown_by=(24,)),
    Layer("process-namespace", (15, 16, 53), (CANARY,), off=with_mounts(unmasked), args_off=shared_processes, edits=NO_CANARY, shown_by=(53,)),
    Layer("ipc-namespace", (32,), (CANARY,), args_off=less("--unshare-ipc"), edits=NO_CANARY, shown_by=(32,)),
    Layer("run-uid", (1, 31), ("read-only-mounts", CANARY), args_off=writable_settings, edits=(*NO_CANARY, *AS_ROOT), shown_by=(1,), callers="root: nobody else could give a sandbox root's uid"),
    Layer("canary", (1, 2, 4, 23, 24, 32, 74), ("ipc-namespace",), args_off=less("--unshare-ipc"), edits=NO_CANARY, shown_by=(32,)),
    Layer("empty-environment", (9,), ("covered-first-process", CANARY), args_off=first_process, edits=(*ENVIRONMENT, *NO_CANARY), shown_by=(9,)),
    Layer("no-inherited-descriptors", (13,), edits=DESCRIPTOR, shown_by=(13,)),
    Layer("listener-first", (29,), off=no_listener, shown_by=(29,)),
    Layer("argument-file", (10,), ("covered-first-process", CANARY), args_off=first_process, edits=(*OWN_ARGUMENTS, *NO_CANARY), shown_by=(10,)),
    Layer("supervisor", (53, 54, 55, 56, 57, 61), ("die-with-parent", "hold"), edits=LIFELINE, args_off=less("--die-with-parent"), shown_by=(55,)),
    Layer("hold", (56,), ("supervisor", "die-with-parent"), edits=LIFELINE, args_off=less("--die-with-parent"), shown_by=(56,)),
    Layer("watchdog", (47,), ("cgroup",), edits=NO_WEIGHING, shown_by=(47,)),
    Layer("checked-description", (6, 77), because="turned off by tests/sandbox itself: it is a function, and no part of a description", shown_by=(6,)),
    Layer("handles", (7,), because="the same", shown_by=(7,)),
    Layer("wall-clock", (51, 60), edits=NO_CLOCK, shown_by=(51,)),
    Layer("output-caps", (50,), shown_by=(50,)),
)  # fmt: skip
"""Those of the sandbox, held by probes of either side."""


def table() -> str:
    """Return the layers, a line each, for people."""
    rows = []
    for layer in LAYERS:
        shown = f"without it fails {', '.join(map(str, layer.shown_by))}" if layer.shown_by else layer.because
        rows.append(
            f"{layer.name}: probes {', '.join(map(str, layer.probes))}; overlaps {', '.join(layer.overlaps) or 'none'}; {shown}"
        )
    return "\n".join(rows)
