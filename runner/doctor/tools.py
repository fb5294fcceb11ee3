"""The pinned tools, tried where they are used: inside a sandbox.

Boundary: reads the toolchain cache; starts throw-away sandboxes. Not here: hashing everything again (``hermeval toolchain verify``), a run (cases.py).
Rules: the very file that a run executes is executed (case D10): never another copy, never outside.
"""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from runner.doctor.check import Check, failed_by
from runner.errors import RunnerError

if TYPE_CHECKING:
    from runner.toolchain import AgentToolchain, GraderToolchain
    from runner.toolchain_lock import ToolchainLock
    from sandbox.process import Host
    from sandbox.rootfs import Rootfs
    from sandbox.spec import SandboxSpec

LOADER_CURE = (
    "run on a machine whose loader is where the binary expects it (Debian 12: /lib64/ld-linux-x86-64.so.2), "
    "or through the flake, which gives the sandbox a closure with its own loader; never strip or patch the binary"
)
_REINSTALL = "remove the cache directory and start once through ci/hermeval, which installs the pinned tools anew"


def check_toolchain(cache_root: Path, lock_path: Path | None = None) -> tuple[Check, AgentToolchain | None]:
    """The tools are installed, and their stamps hold."""
    from runner.toolchain import load_lock, open_agent

    title = "The pinned Claude CLI and Node are installed, unchanged since they were hashed"
    try:
        lock: ToolchainLock = load_lock(lock_path)
        toolchain = open_agent(lock, cache_root)
    except RunnerError as error:
        return failed_by("toolchain", title, error, _REINSTALL), None
    claude, node = toolchain.claude, toolchain.node
    facts = f"claude {claude.version} {claude.nar_sha256}, node {node.version} {node.nar_sha256}"
    return Check("toolchain", title, "ok", facts), toolchain


def check_grader(cache_root: Path, lock_path: Path | None = None) -> tuple[Check, GraderToolchain | None]:
    """The grading tools are installed, and their stamp holds; without them only ungraded runs can be had."""
    from runner.toolchain import load_lock, open_grader

    title = "The pinned Promptfoo is installed, unchanged since it was hashed"
    try:
        grader = open_grader(load_lock(lock_path), cache_root)
    except RunnerError as error:
        check = failed_by("grader", title, error, _REINSTALL)
        return replace(check, cure=f"{check.cure}; or run with --no-grade"), None
    return Check("grader", title, "ok", f"promptfoo {grader.promptfoo.version} {grader.promptfoo.nar_sha256}"), grader


def check_grading(host: Host, grader: GraderToolchain) -> Check:
    """Promptfoo starts in its sandbox and gives one met and one unmet check back by name."""
    from runner.grade.assertions import Asked
    from runner.grade.promptfoo import Graded, Promptfoo

    title = "The pinned Promptfoo grades inside its sandbox"
    wanted = {"met": True, "unmet": False}
    asked = [
        Asked("profile", name, {"group": "profile", "id": name, "met": met, "reason": name}, expected=met)
        for name, met in wanted.items()
    ]
    try:
        with Promptfoo(host, grader) as promptfoo:
            checks, _ = promptfoo.grade(Graded("0" * 64, "hello"), asked)
    except RunnerError as error:
        return failed_by("grading", title, error, _REINSTALL)
    if {check.id: check.met for check in checks} != wanted:
        return Check("grading", title, "failed", f"it says {checks}", _REINSTALL)
    return Check("grading", title, "ok", "one check met, one not, both by name")


def check_copy(executable: Path) -> Check:
    """The CLI's copy can be executed and not read, so that nobody inside can open its descriptors and write in its name."""
    title = "The CLI runs from an execute-only copy"
    try:
        mode = stat.S_IMODE(executable.stat().st_mode)
    except OSError as error:
        return Check("cli-copy", title, "failed", f"{executable}: {error.strerror}", _REINSTALL)
    if mode != 0o111:
        cause = f"{executable} has mode {mode:04o}, not 0111: an agent could write into the CLI's output"
        return Check("cli-copy", title, "failed", cause, _REINSTALL)
    return Check("cli-copy", title, "ok", f"{executable}, mode 0111")


def check_version(host: Host, id_: str, name: str, program: Path, wanted: str) -> Check:
    """``program --version``, inside a sandbox, tells the pinned version.

    ``program`` is the very file that runs use; ``wanted`` is the version in the lock.
    """
    from sandbox.errors import SandboxError
    from sandbox.rootfs import find_rootfs
    from sandbox.running import run_once

    title = f"The pinned {name} starts inside the sandbox and is version {wanted}"
    inside = f"/opt/{program.name}"
    try:
        rootfs = find_rootfs()
        if (
            rootfs.pinned and id_ == "node-version"
        ):  # a pinned system holds no libstdc++: Node is given its own, as for grading
            ended, out = run_once(host, _sealed(program, inside))
        else:
            ended, out = run_once(host, _viewed(rootfs, inside), sources={"program": program})
    except SandboxError as error:
        return Check(id_, title, "failed", str(error), error.hint or _REINSTALL)
    said = out.decode("utf-8", "replace").strip()
    complaint = ended.stderr.decode("utf-8", "replace").strip()
    if ended.setup_error is not None:
        return Check(id_, title, "failed", f"{program}: {ended.setup_error}", LOADER_CURE)
    if ended.exit_status != 0:
        cause = f"{program} ended with {ended.exit_status or ended.reason}: {(complaint or said)[:500]}"
        stub = ended.exit_status == 127 or "dynamically linked" in complaint + said
        return Check(id_, title, "failed", cause, LOADER_CURE if stub else _REINSTALL)
    version = said.split(" ", 1)[0].removeprefix("v")
    if version != wanted:
        cause = f"{program} says {said[:200]!r}, the lock says {wanted}"
        return Check(id_, title, "failed", cause, _REINSTALL)
    return Check(id_, title, "ok", said)


def _viewed(rootfs: Rootfs, inside: str) -> SandboxSpec:
    from sandbox.spec import RoBind
    from sandbox.view import HOME, build_view

    return build_view(
        rootfs=rootfs.kind,
        system=rootfs.mounts,
        argv=(inside, "--version"),
        env={"HOME": HOME, "PATH": "/usr/bin:/bin"},
        binds=(RoBind(source="@program", target=inside),),
    )


def _sealed(program: Path, inside: str) -> SandboxSpec:
    from sandbox.limits import Limits
    from sandbox.programs import program_binds
    from sandbox.sealed import sealed_spec

    return sealed_spec(
        rootfs="node",
        binds=program_binds([(program, inside)]),
        files={},
        argv=(inside, "--version"),
        env={},
        limits=Limits(),
    )
