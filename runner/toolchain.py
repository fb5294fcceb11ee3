"""The pinned tools: what the lock says, where they are installed, and whether they are still what was hashed.

Boundary: reads the lock files and the toolchain cache; writes only there (a stamp or the execute-only copy made anew). Not here: fetching (ci/bootstrap.sh),
installing (toolchain_install.py), the lock's form (toolchain_lock.py), the hash itself (nar.py), stamps (toolchain_stamp.py).
Rules: a run checks a stamp; ``verify`` hashes everything again. A tree whose hash differs from the lock is refused with both hashes (C2), and nothing falls back
to another version. Cache: ``<root>/<kind>-<system>-<first 16 hex of sha256(package-lock.json)>/{node_modules,stamp.json}`` and
``<root>/exec/<first 16 hex of the CLI's NAR hash>/claude``. In the flake's package the trees lie in a Nix store instead, and a stamp would say nothing there: a tree is taken
where its path is the one that Nix gives to the lock's very hash (store_path.py), which Nix does only after hashing. The execute-only copy is in the cache all the same.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from runner.errors import InputError, InputMissing, ToolchainError, ToolchainMismatch, ToolchainMissing
from runner.nar import nar_sha256
from runner.store_path import fixed_output_path
from runner.toolchain_lock import AgentLock, Kind, ToolchainLock, ToolLock, executable_directory, load_lock
from runner.toolchain_stamp import (
    Stamp,
    executable_copy_holds,
    make_executable_copy,
    read_stamp,
    require_private,
    tree_fingerprint,
    write_stamp,
)

__all__ = [
    "AgentToolchain",
    "GraderToolchain",
    "Kind",
    "Tool",
    "ToolCheck",
    "ToolchainLock",
    "compare_record",
    "current_system",
    "default_cache_root",
    "expect_grader",
    "load_lock",
    "mismatch",
    "open_agent",
    "open_grader",
    "verify",
    "verify_tree",
]

Claim = Literal["held", "broken", "unknown"]
_INSTALL_HINT = "start once through ci/hermeval, which installs the pinned tools"


@dataclass(frozen=True)
class Tool:
    """One installed tool: its version, the NAR hash of its package, and where its program is."""

    version: str
    nar_sha256: str
    path: Path

    def as_record(self) -> dict[str, str]:
        """Return what an attempt keeps of it (C2)."""
        return {"version": self.version, "nar_sha256": self.nar_sha256}


@dataclass(frozen=True)
class AgentToolchain:
    """The installed tools of a run."""

    system: str
    root: Path
    """``node_modules``."""
    nar_sha256: str
    claude: Tool
    node: Tool
    claude_executable: Path
    """The copy that can be executed and not read (mode 0111)."""

    def as_record(self) -> dict[str, object]:
        """Return the part ``toolchain.json`` of an attempt: system, and under ``agent`` the hash of the tree and of each tool."""
        agent = {"nar_sha256": self.nar_sha256, "claude": self.claude.as_record(), "node": self.node.as_record()}
        return {"schema_version": 1, "system": self.system, "agent": agent}


@dataclass(frozen=True)
class GraderToolchain:
    """The installed tools of grading."""

    system: str
    root: Path
    """``node_modules``."""
    nar_sha256: str
    node: Tool
    promptfoo: Tool

    def as_record(self) -> dict[str, object]:
        """Return what an evaluation keeps of them: system, the hash of the tree and of each tool."""
        return {
            "system": self.system,
            "nar_sha256": self.nar_sha256,
            "node": self.node.as_record(),
            "promptfoo": self.promptfoo.as_record(),
        }


@dataclass(frozen=True)
class ToolCheck:
    """One line of ``toolchain verify``: a tree or a tool, what the lock says and what is there."""

    name: str
    """``agent``, ``agent/claude``, …, ``exec/claude``."""
    status: Claim
    version: str | None
    expected: str
    actual: str | None
    path: Path
    cause: str = ""


def current_system() -> str:
    """Return this machine's system, such as ``x86_64-linux``."""
    return f"{os.uname().machine}-linux"


def default_cache_root(uid: int, environ: Mapping[str, str]) -> Path:
    """Return where the tools are kept: ``HERMEVAL_CACHE``, or for root a place that an unprivileged run uid can read, else the user's cache."""
    if environ.get("HERMEVAL_CACHE"):
        return Path(environ["HERMEVAL_CACHE"])
    if uid == 0:
        return Path("/var/cache/hermeval")
    base = environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path is invalid and is ignored.
    return (Path(base) if base.startswith("/") else Path(environ.get("HOME") or "/nonexistent") / ".cache") / "hermeval"


def open_agent(
    lock: ToolchainLock, cache_root: Path, *, system: str | None = None, uid: int | None = None
) -> AgentToolchain:
    """Return the installed tools of a run after checking their stamps, or their paths in a store; a few lstat calls, no contents are read.

    Where a stamp does not hold (a restored cache, another inode), the tree is hashed again (a second or so) and stamped anew where that can be written.
    ``uid`` is the caller's (default: the process's): stamps count only where nobody but root and ``uid`` could have written them.

    Raises:
        ToolchainMissing: not installed.
        ToolchainMismatch: another hash than the lock's; both are in the message.
        ToolchainError: code ``toolchain-untrusted``, another user could have changed the tools.
    """
    system = system or current_system()
    uid = os.geteuid() if uid is None else uid
    pinned = lock.system(system).agent
    root = _checked_tree(lock, "agent", system, cache_root, uid)
    directory = executable_directory(pinned, cache_root)
    name = Path(pinned.claude.path).name
    if not executable_copy_holds(directory, name, pinned.claude.nar_sha256):
        _remake_copy(pinned, root, directory)
    require_private(directory, uid)
    return AgentToolchain(
        system, root, pinned.nar_sha256, _tool(pinned.claude, root), _tool(pinned.node, root), directory / name
    )


def open_grader(
    lock: ToolchainLock, cache_root: Path, *, system: str | None = None, uid: int | None = None
) -> GraderToolchain:
    """Return the installed tools of grading after checking their stamp: one lstat for each of 35,000 files, a third of a second.

    Any change of a file's bytes changes its stamp; the tree is then hashed again and refused where its hash is another than the lock's.
    Raises: as ``open_agent``.
    """
    system = system or current_system()
    uid = os.geteuid() if uid is None else uid
    pinned = lock.system(system).grader
    root = _checked_tree(lock, "grader", system, cache_root, uid)
    return GraderToolchain(system, root, pinned.nar_sha256, _tool(pinned.node, root), _tool(pinned.promptfoo, root))


def expect_grader(lock: ToolchainLock, cache_root: Path) -> None:
    """Refuse grading tools that are missing or are not the lock's by their stamp, before anything is paid for. ``open_grader`` looks at their files, while the first run is under way.

    Raises: as ``open_agent``.
    """
    system = current_system()
    directory = lock.tree_directory("grader", system, cache_root)
    if lock.pinned_tree("grader", system) is None and (directory / "node_modules").is_dir():
        require_private(directory, os.geteuid())
        stamp = read_stamp(directory)
        if stamp is not None and stamp.nar_sha256 == lock.system(system).grader.nar_sha256:
            return
    open_grader(lock, cache_root)


def verify(lock: ToolchainLock, cache_root: Path, *, system: str | None = None) -> list[ToolCheck]:
    """Hash every installed tree and tool again and compare with the lock; what is not installed comes out ``unknown``.

    The execute-only copy cannot be read by its owner; its stamp is checked instead, and its line says so.
    """
    system = system or current_system()
    checks: list[ToolCheck] = []
    kinds: tuple[Kind, ...] = ("agent", "grader")
    for kind in kinds:
        checks += verify_tree(lock, kind, cache_root, system=system)
    return [*checks, _check_copy(lock.system(system).agent, cache_root)]


def verify_tree(lock: ToolchainLock, kind: Kind, cache_root: Path, *, system: str) -> list[ToolCheck]:
    """Hash one installed tree and each of its tools again; the first check is the tree's."""
    from concurrent.futures import ThreadPoolExecutor  # late: a run does not need it

    pinned = lock.system(system).tree(kind)
    root = lock.root(kind, system, cache_root)
    wanted: list[tuple[str, str | None, str, Path]] = [(kind, None, pinned.nar_sha256, root)]
    wanted += [
        (f"{kind}/{name}", tool.version, tool.nar_sha256, root / tool.package) for name, tool in pinned.tools().items()
    ]
    # The tree and its packages at the same time: hashing releases the interpreter lock, and 600 MB take a second each.
    with ThreadPoolExecutor(2) as pool:
        actual = list(pool.map(_hash_if_there, [path for _, _, _, path in wanted]))
    return [
        _check(name, version, expected, found, path)
        for (name, version, expected, path), found in zip(wanted, actual, strict=True)
    ]


def compare_record(record: object, lock: ToolchainLock, cache_root: Path) -> tuple[Claim, str]:
    """Compare an attempt's ``toolchain.json`` with the lock and with what is installed; return the claim and its reason, tool by tool (C2)."""
    try:
        found = msgspec.convert(record, _Record)
    except (ValueError, RecursionError) as error:
        return "broken", f"the recorded toolchain cannot be read: {error}"
    if found.system not in lock.systems:
        return "unknown", f"nothing is pinned here for {found.system}"
    pinned = lock.system(found.system).agent
    pairs = [
        (
            "claude",
            found.agent.claude.nar_sha256,
            pinned.claude.nar_sha256,
            f"{found.agent.claude.version}, pinned {pinned.claude.version}",
        ),
        (
            "node",
            found.agent.node.nar_sha256,
            pinned.node.nar_sha256,
            f"{found.agent.node.version}, pinned {pinned.node.version}",
        ),
        ("agent tree", found.agent.nar_sha256, pinned.nar_sha256, "whole node_modules"),
    ]
    differing = [
        f"{name} ({note}): attempt {recorded}, lock {locked}"
        for name, recorded, locked, note in pairs
        if recorded != locked
    ]
    if differing:
        return "broken", "; ".join(differing)
    try:
        open_agent(lock, cache_root, system=found.system)
    except ToolchainMissing:
        return "unknown", f"equal to the lock; the tools of {found.system} are not installed here"
    except ToolchainError as error:
        return "broken", f"equal to the lock, but the installed tools are not: {error.message}"
    return (
        "held",
        f"claude {found.agent.claude.version}, node {found.agent.node.version}: equal to the lock and installed",
    )


class _RecordedTool(msgspec.Struct, frozen=True):
    version: str
    nar_sha256: str


class _RecordedAgent(msgspec.Struct, frozen=True):
    nar_sha256: str
    claude: _RecordedTool
    node: _RecordedTool


class _Record(msgspec.Struct, frozen=True):
    system: str
    agent: _RecordedAgent


def mismatch(check: ToolCheck) -> ToolchainMismatch:
    """Return the error for a check that is broken, with both hashes."""
    return ToolchainMismatch(
        f"{check.name} has NAR hash {check.actual or 'none'}; the lock says {check.expected}",
        where=str(check.path),
        hint="remove that directory and start once through ci/hermeval, which fetches it anew",
    )


def _checked_tree(lock: ToolchainLock, kind: Kind, system: str, cache_root: Path, uid: int) -> Path:
    pinned = lock.pinned_tree(kind, system)
    if pinned is not None:
        return _store_tree(lock, kind, system, pinned)
    directory = lock.tree_directory(kind, system, cache_root)
    root = directory / "node_modules"
    expected = lock.system(system).tree(kind).nar_sha256
    if not root.is_dir():
        raise ToolchainMissing(
            f"the {kind} tools of {system} are not installed", where=str(directory), hint=_INSTALL_HINT
        )
    require_private(directory, uid)
    before = tree_fingerprint(root, uid)
    stamp = read_stamp(directory)
    if stamp is not None and stamp.fingerprint == before and stamp.nar_sha256 == expected:
        return root
    actual = nar_sha256(root)
    if actual != expected:
        raise mismatch(ToolCheck(kind, "broken", None, expected, actual, root))
    if tree_fingerprint(root, uid) != before:
        raise ToolchainError(
            f"the {kind} tools changed while they were hashed",
            where=str(root),
            hint="start again when nothing writes there",
        )
    try:
        write_stamp(directory, Stamp(1, actual, before))
    except OSError:
        return root  # a read-only cache: the hash was right, only the next start has to compute it again
    return root


def _store_tree(lock: ToolchainLock, kind: Kind, system: str, root: Path) -> Path:
    """Return a tree of the store whose path stands for the lock's hash."""
    assert lock.pins is not None
    expected = lock.system(system).tree(kind).nar_sha256
    right = fixed_output_path(expected, root.name.partition("-")[2], lock.pins.store)
    if str(root) != right:
        raise ToolchainMismatch(
            f"the {kind} tools lie at {root}; a tree with the lock's hash {expected} lies at {right}",
            where=str(root),
            hint="build the flake's package again: its tools and its lock are not of one piece",
        )
    if not root.is_dir():
        raise ToolchainMissing(
            f"the {kind} tools of {system} are not in the store",
            where=str(root),
            hint="build the flake's package again",
        )
    return root


def _remake_copy(pinned: AgentLock, root: Path, directory: Path) -> None:
    package = root / pinned.claude.package
    actual = nar_sha256(package)
    if actual != pinned.claude.nar_sha256:
        raise mismatch(ToolCheck("agent/claude", "broken", None, pinned.claude.nar_sha256, actual, package))
    try:
        directory.parent.parent.mkdir(parents=True, exist_ok=True)  # the cache itself, where tools come from a store
        make_executable_copy(root / pinned.claude.path, directory, actual)
    except OSError as error:
        raise ToolchainMissing(
            f"the execute-only copy of the CLI cannot be made: {error.strerror}",
            where=str(directory),
            hint=_INSTALL_HINT,
        ) from error


def _tool(pinned: ToolLock, root: Path) -> Tool:
    return Tool(pinned.version, pinned.nar_sha256, root / pinned.path)


def _hash_if_there(path: Path) -> str | InputError:
    try:
        return nar_sha256(path)
    except InputError as error:
        return error


def _check_copy(pinned: AgentLock, cache_root: Path) -> ToolCheck:
    directory = executable_directory(pinned, cache_root)
    name = Path(pinned.claude.path).name

    def line(status: Claim, cause: str) -> ToolCheck:
        return ToolCheck(
            "exec/claude", status, pinned.claude.version, pinned.claude.nar_sha256, None, directory / name, cause
        )

    if not directory.exists():
        return line("unknown", "not installed")
    if not executable_copy_holds(directory, name, pinned.claude.nar_sha256):
        return line("broken", "not the copy that was made at install")
    return line("held", "by its stamp: it cannot be read")


def _check(name: str, version: str | None, expected: str, actual: str | InputError, path: Path) -> ToolCheck:
    if isinstance(actual, InputMissing) and not path.exists():
        return ToolCheck(name, "unknown", version, expected, None, path, "not installed")
    if isinstance(actual, InputError):
        return ToolCheck(name, "broken", version, expected, None, path, f"{actual.where}: {actual.message}")
    if actual != expected:
        return ToolCheck(name, "broken", version, expected, actual, path, "another hash than the lock's")
    return ToolCheck(name, "held", version, expected, actual, path)
