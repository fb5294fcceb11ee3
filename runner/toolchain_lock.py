"""The toolchain lock: which tools are pinned, for which system, with which hashes; and, in the flake's package, where Nix has put them.

Boundary: reads sandbox/toolchain. Not here: what is installed (runner/toolchain.py).
Rules: the file is data that people review, so unknown keys, odd paths and hashes in any but the SRI form are refused. Hashes are NAR hashes, so that a person
can check each with ``nix-hash``. If a key is added here, add it to sandbox/toolchain/toolchain.json for every system.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from runner.canonical import sha256_hex
from runner.errors import InputMissing, ToolchainError, ToolchainMissing
from runner.nar import hex_from_sri
from sandbox.errors import SandboxError
from sandbox.pinned import FILE as PINS
from sandbox.pinned import Pins, read_pins

Kind = Literal["agent", "grader"]
_LOCK = Path(__file__).resolve().parent.parent / "sandbox" / "toolchain" / "toolchain.json"


class ToolLock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One pinned tool. ``path`` is relative to ``node_modules``; ``nar_sha256`` is of the package's directory."""

    version: str
    path: str
    nar_sha256: str

    @property
    def package(self) -> str:
        """The package's directory, relative to ``node_modules``."""
        return "/".join(self.path.split("/")[: 2 if self.path.startswith("@") else 1])


class AgentLock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The pinned tree that a run needs; ``nar_sha256`` is of its whole ``node_modules``."""

    nar_sha256: str
    claude: ToolLock
    node: ToolLock

    def tools(self) -> dict[str, ToolLock]:
        """Return the tools by name."""
        return {"claude": self.claude, "node": self.node}


class GraderLock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The pinned tree that grading needs; ``nar_sha256`` is of its whole ``node_modules``."""

    nar_sha256: str
    node: ToolLock
    promptfoo: ToolLock

    def tools(self) -> dict[str, ToolLock]:
        """Return the tools by name."""
        return {"node": self.node, "promptfoo": self.promptfoo}


class SystemLock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The pinned trees of one system; ``status`` says whether they have ever run."""

    status: str
    agent: AgentLock
    grader: GraderLock

    def tree(self, kind: Kind) -> AgentLock | GraderLock:
        """Return the tree of a kind."""
        return self.agent if kind == "agent" else self.grader


class _LockFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema_version: int
    systems: dict[str, SystemLock]


@dataclass(frozen=True)
class ToolchainLock:
    """The hashes of every system, and the directory that holds them and npm's lock files."""

    directory: Path
    systems: Mapping[str, SystemLock]
    pins: Pins | None = None
    """Where the trees lie in a Nix store, for the flake's package; None for the toolchain cache."""

    def system(self, name: str) -> SystemLock:
        """Return the pinned trees of a system.

        Raises:
            ToolchainMissing: nothing is pinned for it.
        """
        if name not in self.systems:
            raise ToolchainMissing(
                f"nothing is pinned for {name}",
                where=str(self.directory),
                hint=f"systems: {', '.join(sorted(self.systems))}",
            )
        return self.systems[name]

    def pinned_tree(self, kind: Kind, system: str) -> Path | None:
        """Return where Nix has put a tree (its ``node_modules``), or None where it lies in the cache."""
        return self.pins.trees[kind] if self.pins is not None and self.pins.system == system else None

    def root(self, kind: Kind, system: str, cache_root: Path) -> Path:
        """Return a tree's ``node_modules``, wherever it is."""
        return self.pinned_tree(kind, system) or self.tree_directory(kind, system, cache_root) / "node_modules"

    def tree_directory(self, kind: Kind, system: str, cache_root: Path) -> Path:
        """Return where a tree is installed in the cache: the directory of ``node_modules`` and ``stamp.json``."""
        npm_lock = self.directory / kind / system / "package-lock.json"
        try:
            key = sha256_hex(npm_lock.read_bytes())[:16]
        except OSError as error:
            raise InputMissing(f"cannot be read: {error.strerror}", where=str(npm_lock)) from error
        return cache_root / f"{kind}-{system}-{key}"


def load_lock(path: Path | None = None) -> ToolchainLock:
    """Return the toolchain lock (by default the one of this checkout).

    Raises:
        InputMissing: the file is not there.
        ToolchainError: it does not follow its schema; the message holds the JSON path. Or the pins beside it do not (``pins-invalid``).
    """
    path = path or _LOCK
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_LockFile)
        _check_lock(found)
    except OSError as error:
        raise InputMissing(f"the toolchain lock cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise ToolchainError(f"the toolchain lock is not valid: {error}", where=str(path)) from error
    try:
        pins = read_pins(path.parent / PINS.name)
    except SandboxError as error:
        raise ToolchainError(error.message, where=error.where, hint=error.hint, code=error.code) from error
    return ToolchainLock(path.parent, found.systems, pins)


def executable_directory(pinned: AgentLock, cache_root: Path) -> Path:
    """Return the directory of the execute-only copy of the CLI."""
    return cache_root / "exec" / hex_from_sri(pinned.claude.nar_sha256)[:16]


def _check_lock(found: _LockFile) -> None:
    if found.schema_version != 1:
        raise ValueError(f"schema_version {found.schema_version} is not known")
    for tree in (tree for system in found.systems.values() for tree in (system.agent, system.grader)):
        hex_from_sri(tree.nar_sha256)
        for tool in tree.tools().values():
            hex_from_sri(tool.nar_sha256)
            if any(part in ("", ".", "..") for part in tool.path.split("/")):
                raise ValueError(f"path {tool.path!a} is not relative and plain")
