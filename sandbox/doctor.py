"""What a sandbox needs of this host, each thing tried for real, with cause and cure.

Boundary: starts throw-away sandboxes through process.py and running.py. Not here: printing (runner/cli), what bwrap's messages mean (diagnose.py), the probe suite.
Rules: a check does what a run does and looks at the effect inside, never at a configuration (greywall#104). ``failed`` means that no run can start; ``degraded`` that a layer is
missing which others stand in for, and says which. A check that depends on a failed one is failed too, and says so. Where the reason is a known one, the cause begins
with its stable code (diagnose.py), and ends with what this place is known by (where.py).
"""

from __future__ import annotations

import os
import re
import socket
import stat
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sandbox.argv import mount_args
from sandbox.cgroup import CURE
from sandbox.errors import HOST_CANNOT_ISOLATE, SandboxError
from sandbox.identity import RUN_USER
from sandbox.inside_probe import PROBE, expect
from sandbox.pinned import find_programs
from sandbox.process import (
    ENOUGH_MEMORY,
    MEMORY_CURE,
    Host,
    find_host,
    has_capabilities,
    least_memory,
    supervise,
    try_program,
)
from sandbox.rootfs import find_rootfs
from sandbox.running import Ended, run_once, start
from sandbox.seccomp import own_filter
from sandbox.spec import Dev, Proc, RoBind, SandboxSpec
from sandbox.staging import passed_over
from sandbox.view import build_view
from sandbox.where import apparmor_cure, read_marks

Status = Literal["ok", "degraded", "failed"]
OLDEST_BWRAP = (0, 8, 0)
_APPARMOR = ("userns-restricted", "userns-network-restricted")


@dataclass(frozen=True)
class Check:
    """One thing that was tried."""

    id: str
    title: str
    status: Status
    cause: str = ""
    """What was found; for ``ok`` a fact worth knowing, or empty."""
    cure: str = ""

    def as_json(self) -> dict[str, str]:
        """Return the stable JSON form."""
        return {"id": self.id, "title": self.title, "status": self.status, "cause": self.cause, "cure": self.cure}


def verdict_of(checks: tuple[Check, ...]) -> str | None:
    """Return the stable code of a host on which no run can start, or None (pure)."""
    return HOST_CANNOT_ISOLATE if any(check.status == "failed" for check in checks) else None


def examine(
    *, runtime_dir: Path | None = None, bwrap: Path | None = None, python: Path | None = None
) -> tuple[Check, ...]:
    """Try everything, in the order in which a run needs it, with the programs that runs use unless others are given."""
    checks = [check_surroundings(), check_bwrap_mode(bwrap or find_programs().bwrap)]
    if checks[-1].status == "failed":
        return tuple(checks)
    try:
        host = find_host(bwrap=bwrap, python=python)
    except SandboxError as error:
        title = "An unprivileged uid for the sandbox, and the programs and the kernel that it needs"
        checks.append(Check("run-uid", title, "failed", *why(error, bwrap or find_programs().bwrap)))
        return tuple(checks)
    checks += [check_version(host), check_run_uid(host), check_python(host)]
    checks += check_isolation(host)
    if any(check.status == "failed" for check in checks):
        return tuple(checks)
    checks += check_effects(host, runtime_dir)
    checks.append(check_links(host, runtime_dir))
    return tuple(checks)


def check_surroundings() -> Check:
    """What this place is; never a failure by itself."""
    return Check("surroundings", "What kind of place this system is", "ok", "; ".join(read_marks()))


def why(error: SandboxError, bwrap: Path) -> tuple[str, str]:
    """Return cause and cure of a sandbox that was not had: with its stable code, and what this place is known by."""
    code = error.where if error.where and "/" not in error.where else ""
    cure = apparmor_cure(bwrap) if code in _APPARMOR else error.hint
    return "; ".join([f"{code}: {error}" if code else str(error), *read_marks()]), cure


def check_bwrap_mode(bwrap: Path) -> Check:
    """Bubblewrap is there, not set-user-id, and without capabilities of its own."""
    title = "bubblewrap is installed, and not set-user-id"
    try:
        mode = bwrap.stat().st_mode
    except OSError as error:
        return Check("bwrap", title, "failed", f"{bwrap}: {error.strerror}", "install the package bubblewrap")
    if mode & (stat.S_ISUID | stat.S_ISGID):
        cure = f"chmod ug-s {bwrap}; user namespaces are used instead"
        return Check(
            "bwrap",
            title,
            "failed",
            f"bwrap-setuid: {bwrap} is set-user-id (CVE-2026-41163: root for whoever may run it)",
            cure,
        )
    if has_capabilities(bwrap):
        cause = f"bwrap-capabilities: {bwrap} has file capabilities, and refuses to start with them"
        return Check("bwrap", title, "failed", cause, f"setcap -r {bwrap}; user namespaces are used instead")
    return Check("bwrap", title, "ok", str(bwrap))


def check_version(host: Host) -> Check:
    """Bubblewrap runs and is new enough."""
    title = "bubblewrap runs and knows the options that are needed"
    tried = try_program(host, [str(host.bwrap), "--version"])
    found = re.search(r"bubblewrap (\d+)\.(\d+)\.(\d+)", tried.out)
    if tried.status or found is None:
        return Check(
            "bwrap-version",
            title,
            "failed",
            tried.err.decode("utf-8", "replace").strip() or "it does not tell its version",
            "install the package bubblewrap",
        )
    if tuple(int(part) for part in found.groups()) < OLDEST_BWRAP:
        return Check(
            "bwrap-version",
            title,
            "failed",
            f"bwrap-too-old: {found[0]} lacks options that are needed",
            "install bubblewrap 0.8 or later",
        )
    return Check("bwrap-version", title, "ok", found[0])


def check_run_uid(host: Host) -> Check:
    """The sandbox's uid is no root, and no other service's where that can be helped."""
    title = "The sandbox runs under an unprivileged uid"
    identity = host.identity
    if identity.run_as is None:
        return Check("run-uid", title, "ok", f"the caller's own, {identity.run_uid}")
    if identity.run_as.uid == 65534:
        cause = "root drops to nobody (65534), which other services may use too: they share budgets for processes, inotify and keys"
        return Check(
            "run-uid",
            title,
            "degraded",
            cause,
            f"useradd --system --no-create-home --shell /usr/sbin/nologin {RUN_USER}",
        )
    return Check("run-uid", title, "ok", f"root drops to {identity.run_as.uid}")


def check_python(host: Host) -> Check:
    """The supervisor's interpreter starts without any site packages and has what the supervisor uses."""
    title = "The supervisor's Python starts by itself and has pidfds"
    code = "import posix, select, resource, fcntl, _socket, _signal; posix.pidfd_open; posix.posix_spawn; _signal.pidfd_send_signal; resource.prlimit; print('fine')"
    tried = try_program(host, [str(host.python), "-I", "-S", "-c", code])
    if tried.out.strip() == "fine":
        return Check("python", title, "ok", str(host.python))
    last = tried.err.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return Check("python", title, "failed", f"{host.python}: {last}", "install the package python3, 3.9 or later")


def check_isolation(host: Host) -> list[Check]:
    """Namespaces, then with a fresh /proc, then with devices: the real flag set each time, more of the view each time."""
    steps: list[tuple[str, str, Callable[[SandboxSpec], SandboxSpec]]] = [
        (
            "namespaces",
            "User, mount, process, network, IPC and host name namespaces, no further user namespace",
            lambda spec: without(spec, Proc, Dev),
        ),
        ("proc", "A fresh /proc of the sandbox's own, with the telling files covered", lambda spec: without(spec, Dev)),
        ("view", "The whole inside view: devices, sized memory, read-only system", lambda spec: spec),
    ]
    checks: list[Check] = []
    for id_, title, change in steps:
        if checks and checks[-1].status == "failed":
            checks.append(
                Check(
                    id_,
                    title,
                    "failed",
                    f"not tried: {checks[0].id if len(checks) == 1 else checks[-1].id} failed",
                    "see there",
                )
            )
            continue
        try:
            rootfs = find_rootfs()
            spec = change(build_view(rootfs=rootfs.kind, system=rootfs.mounts, argv=("/usr/bin/true",), env={}))
            ended, _ = run_once(host, spec)
        except SandboxError as error:
            checks.append(Check(id_, title, "failed", *why(error, host.bwrap)))
            continue
        checks.append(
            Check(id_, title, "ok")
            if ended.exit_status == 0 and ended.dead
            else Check(id_, title, "failed", ended_badly(ended), ended.setup_cure or "see the cause")
        )
    return checks


def ended_badly(ended: Ended) -> str:
    """Return why a throw-away program did not end well."""
    stderr = ended.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return ended.setup_error or ended.reason or f"the program ended with {ended.exit_status}: {stderr}"


def without(spec: SandboxSpec, *kinds: type) -> SandboxSpec:
    """Return the description without some kinds of mounts (pure)."""
    kept = tuple(mount for mount in spec.mounts if not isinstance(mount, kinds))
    return spec.model_copy(
        update={
            "mounts": kept,
            "remount_ro": tuple(target for target in spec.remount_ro if target == "/" or Dev not in kinds),
        }
    )


def check_effects(host: Host, runtime_dir: Path | None) -> list[Check]:
    """Look from inside: identity, network, the one listener, keys, limits, and a staged file that can be run."""
    titles = {
        "inside": "Inside is user 1000 on host eval, behind the system call filter, with nothing writable but the sized places",
        "network": "Inside there is a loopback and no route; one port answers from outside, the others refuse",
        "staging": "A private directory for a run, readable and executable inside, gone afterwards",
        "keyring": "The kernel keys of the caller's session are out of reach inside",
    }
    try:
        facts, ended, staging = look_inside(host, runtime_dir)
    except (SandboxError, OSError) as error:
        cause, cure = why(error, host.bwrap) if isinstance(error, SandboxError) else (str(error), "see the cause")
        return [Check(id_, title, "failed", cause, cure) for id_, title in titles.items() if id_ != "keyring"]
    checks = []
    for id_ in ("inside", "network", "staging"):
        wrong = expect(id_, facts)
        if id_ == "staging" and staging.exists():
            wrong = [f"{staging} is still there"]
        checks.append(
            Check(id_, titles[id_], "failed", "; ".join(wrong), "see the cause")
            if wrong
            else Check(id_, titles[id_], "ok", passed_over(host.identity, runtime_dir) if id_ == "staging" else "")
        )
    checks.append(check_keyring(host, facts.get("keyring", ""), titles["keyring"]))
    return [*checks, check_limits(ended, host)]


def check_keyring(host: Host, inside: str, title: str) -> Check:
    """Compare the session keyring inside with the one outside."""
    outside = (
        try_program(host, [str(host.python), "-I", "-S", "-c", PROBE, "keyring"]).out.strip().removeprefix("keyring ")
    )
    if inside.startswith("errno") or (inside and inside != outside):
        return Check("keyring", title, "ok", f"inside: {inside}, outside: {outside}")
    cause = "a program inside can read the keys of the session that started the run"
    return Check("keyring", title, "degraded", cause, "start runs from a session without keys (keyctl new_session)")


def look_inside(host: Host, runtime_dir: Path | None) -> tuple[Mapping[str, str], Ended, Path]:
    """Run the inside probe against a one-answer server; return what it saw, how it ended, and where its staging directory was.

    Raises: SandboxError, OSError.
    """
    out = bytearray()
    supervisor = supervise(host, runtime_dir=runtime_dir)
    tree = supervisor.staging / "probe"
    try:
        tree.mkdir()
        tree.chmod(0o755)
        (tree / "script").write_text("#!/bin/sh\necho ran\n", encoding="ascii")
        (tree / "script").chmod(0o755)
    except BaseException:
        supervisor.close()
        raise
    rootfs = find_rootfs()
    spec = build_view(
        rootfs=rootfs.kind,
        system=rootfs.mounts,
        argv=("/usr/bin/python3", "-I", "-S", "-c", PROBE),
        env={"PATH": "/usr/bin:/bin"},
        port=443,
        binds=(RoBind(source="@probe", target="/opt/probe"),),
        seccomp=own_filter(),
    )
    with start(supervisor, spec, on_stdout=out.extend, sources={"probe": tree}, wall_clock_s=20.0) as running:
        assert running.listener is not None
        server = threading.Thread(target=_answer_once, args=(running.listener,), daemon=True)
        server.start()
        running.release()
        ended = running.wait()
        running.listener.close()
    assert ended is not None
    facts = dict(line.partition(" ")[::2] for line in out.decode("utf-8", "replace").splitlines())
    if ended.exit_status != 0:
        raise SandboxError(
            ended.setup_error or f"the probe did not run: {ended_badly(ended)}",
            hint=ended.setup_cure or "see the cause",
        )
    return facts, ended, supervisor.staging


def _answer_once(listener: socket.socket) -> None:
    listener.settimeout(20.0)
    try:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"answer")
    except OSError:
        return


def check_limits(ended: Ended, host: Host) -> Check:
    """Which limits hold, and by what (facts/sandbox.md §5)."""
    title = "Limits on processes, memory, open files and disk"
    held = ended.limits
    tiers = f"processes: {held.processes}, memory: {held.memory}, open files: {held.open_files}, disk: {held.disk}"
    if "none" in (held.processes, held.open_files, held.file_bytes):
        return Check("limits", title, "failed", tiers, "let this service set resource limits (prlimit)")
    memory = least_memory()
    if memory is not None and memory[1] <= ENOUGH_MEMORY:
        cause = f"{tiers}; programs may have {memory[1] >> 20} MiB here ({memory[0]}), and those that use WebAssembly may want more"
        return Check("limits", title, "degraded", cause, MEMORY_CURE)
    if held.memory != "cgroup":
        return Check(
            "limits",
            title,
            "degraded",
            f"{tiers}: memory is looked at four times a second, and no kernel limit holds it{host.without_group}"
            if held.memory == "watchdog"
            else f"{tiers}: a program inside can use all of the machine's memory{host.without_group}",
            f"run on a machine of its own, or {CURE}",
        )
    return Check("limits", title, "ok", tiers)


def check_links(host: Host, runtime_dir: Path | None) -> Check:
    """Whether this bubblewrap follows links of a hostile tree out of the sandbox while it mounts (CVE-2026-87766), tried with a tree of our own."""
    title = "bubblewrap does not follow links out of the sandbox while it mounts"
    try:
        supervisor = supervise(host, runtime_dir=runtime_dir)
    except SandboxError as error:
        return Check("bwrap-links", title, "failed", *why(error, host.bwrap))
    with supervisor:
        outside, hostile = supervisor.staging / "outside", supervisor.staging / "hostile"
        account = host.identity.run_as
        for directory in (outside, hostile):
            directory.mkdir(mode=0o700)
            if account is not None:
                os.chown(directory, account.uid, account.gid)
        (hostile / "link").symlink_to(f"/oldroot{outside}")
        argv = [str(host.bwrap), "--unshare-user"]
        for mount in find_rootfs().mounts:
            argv += mount_args(mount, {}, (), iter(()))
        argv += ["--bind", str(hostile), "/work", "--dir"]
        plain = try_program(host, [*argv, "/work/made", "/usr/bin/true"])
        if plain.status or not (hostile / "made").is_dir():
            last = plain.err.decode("utf-8", "replace").strip().rpartition("\n")[2]
            cause = f"not known: a directory below a bound tree was not made ({last or f'status {plain.status}'}); this program never mounts below a tree that a skill or an agent wrote"
            return Check(
                "bwrap-links",
                title,
                "degraded",
                cause,
                f"see whether {host.bwrap} is bubblewrap, and works for this user",
            )
        try_program(host, [*argv, "/work/link/made", "/usr/bin/true"])  # the fix may refuse it or make it inside
        followed = (outside / "made").exists()
    if followed:
        cause = "it follows them (CVE-2026-87766); this program never mounts below a tree that a skill or an agent wrote, so runs are not affected"
        return Check("bwrap-links", title, "degraded", cause, "install bubblewrap 0.12 or a package with the fix")
    return Check("bwrap-links", title, "ok")
