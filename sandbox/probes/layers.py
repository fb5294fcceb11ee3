"""The layers of the sandbox as data: which probes each holds, which layers overlap it, and how a test turns it off.

Boundary: pure. Not here: the probes (table.py). Rules: no layer is decoration: with it and its overlaps off, at least one of ``probes`` fails, and tests/sandbox shows it. Where a sandbox does not start at all
without a layer, ``off`` is None and ``because`` says what stops it. Changes are of the description or of bwrap's arguments; there is no switch for them outside of tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sandbox.spec import Dev, File, Mount, Proc, RoBind, SandboxSpec, Tmpfs

Args = list[str]


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
    shown_by: tuple[int, ...] = ()
    """Probes that fail with the layer and its overlaps off."""
    because: str = ""
    """Why it cannot be turned off, and what shows that it counts."""


def with_mounts(change: Callable[[Mount], Mount]) -> Callable[[SandboxSpec], SandboxSpec]:
    """Return a change of every mount."""
    return lambda spec: spec.model_copy(update={"mounts": tuple(change(mount) for mount in spec.mounts)})


def without_filter(spec: SandboxSpec) -> SandboxSpec:
    """Take the system call filter away."""
    return spec.model_copy(update={"seccomp": None})


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
    """Give /dev/shm no size to speak of."""
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


LAYERS = (
    Layer("system-call-filter", (2, 3, 4, 5, 12, 14, 17, 18, 19, 20, 21, 22, 25, 26, 58, 59), ("no-capabilities", "no-further-user-namespace", "own-keyring"), off=without_filter, shown_by=(3, 5, 12, 20, 25)),
    Layer("read-only-mounts", (1, 23), off=writable_system, shown_by=(23,)),
    Layer("staged-copies", (30, 74), off=writable_tree, shown_by=(74,)),
    Layer("masks", (11,), off=with_mounts(unmasked), shown_by=(11,)),
    Layer("host-name", (11,), off=lambda spec: spec.model_copy(update={"hostname": "other"}), shown_by=(11,)),
    Layer("mount-namespace", (10, 22, 28), off=with_sys, shown_by=(22,)),
    Layer("sized-tmpfs", (23, 48), off=with_mounts(large), shown_by=(23,)),
    Layer("execute-only-cli", (59,), ("system-call-filter",), off=lambda spec: with_mounts(plain_program)(without_filter(spec)), shown_by=(59,)),
    Layer("rlimits", (46, 49, 52), off=many_files, shown_by=(49,)),
    Layer("own-session", (16, 17), args_off=own_session, because="shown by a signal to the process group, which then ends the supervisor (tests/sandbox)"),
    Layer("no-further-user-namespace", (4,), ("system-call-filter",), because="a sandbox is known to be up by its second user namespace; without it none is released"),
    Layer("no-capabilities", (2, 19, 26, 52), ("system-call-filter",), because="bwrap gives an ordinary user's program none; the canary refuses a sandbox that has any"),
    Layer("network-namespace", (24, 45), because="the listener is made in the namespace that the sandbox's own user namespace owns; without it none comes up"),
    Layer("process-namespace", (15, 16, 53), because="pid 1 is what the supervisor kills and waits for; the canary refuses a shared one"),
    Layer("ipc-namespace", (32,), because="the canary refuses a shared one"),
    Layer("run-uid", (1, 31), because="root is given up before bwrap starts; uid 0 is refused one level up"),
    Layer("canary", (1, 2, 4, 23, 24, 74), because="it only ever ends a sandbox in which another layer is missing (tests/sandbox/test_sandbox_canary.py)"),
)  # fmt: skip
"""Those that an inside probe can show. What holds the host's probes is turned off where those are tested: gate, collector, staging and supervisor have controls of their own."""


def table() -> str:
    """Return the layers, a line each, for people."""
    rows = []
    for layer in LAYERS:
        shown = f"without it fails {', '.join(map(str, layer.shown_by))}" if layer.shown_by else layer.because
        rows.append(
            f"{layer.name}: probes {', '.join(map(str, layer.probes))}; overlaps {', '.join(layer.overlaps) or 'none'}; {shown}"
        )
    return "\n".join(rows)
