"""Accept a freshly fetched npm tree: hash it, refuse a difference, stamp it, make the execute-only copy of the CLI.

Boundary: touches the toolchain cache; the one program of ci/bootstrap.sh, run as ``python -m runner.toolchain_install KIND --cache DIR`` after ``npm ci``.
Not here: fetching. Rules: a tree gets a stamp only after its hash and each tool's hash were equal to the lock's; ``stamp.json`` is written last, so that its
presence means "complete". Modes are made equal everywhere (0755 and 0644, whatever the umask), because a root caller's run uid has to read the tree and nobody
else may write it; the NAR hash sees the owner's executable bit only.
"""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from runner.errors import InputMissing, RunnerError, ToolchainMissing
from runner.toolchain import Kind, ToolchainLock, current_system, load_lock, mismatch, verify_tree
from runner.toolchain_lock import AgentLock, executable_directory
from runner.toolchain_stamp import Stamp, make_executable_copy, require_private, tree_fingerprint, write_stamp


def install(
    kind: Kind, lock: ToolchainLock, cache_root: Path, *, system: str | None = None, uid: int | None = None
) -> Path:
    """Accept the tree of ``kind`` that lies in its place below ``cache_root``; return its directory.

    Raises:
        ToolchainMissing: there is no tree, or the cache cannot be written.
        ToolchainMismatch: the tree or a tool has another hash; both are in the message, nothing is stamped.
        ToolchainError: another user could change the tree.
    """
    system = system or current_system()
    uid = os.geteuid() if uid is None else uid
    pinned = lock.system(system).tree(kind)
    directory = lock.tree_directory(kind, system, cache_root)
    root = directory / "node_modules"
    if not root.is_dir():
        raise ToolchainMissing(
            f"there is no tree of {kind} to accept",
            where=str(root),
            hint="run npm ci there first, or start through ci/hermeval",
        )
    try:
        (root / ".package-lock.json").unlink(missing_ok=True)  # npm's own note; its content depends on npm's version
        _plain_modes(directory)
        require_private(directory, uid)
        before = tree_fingerprint(root, uid)
        for check in verify_tree(lock, kind, cache_root, system=system):
            if check.status != "held":
                raise mismatch(check)
        if isinstance(pinned, AgentLock):
            copy = executable_directory(pinned, cache_root)
            make_executable_copy(root / pinned.claude.path, copy, pinned.claude.nar_sha256)
        if tree_fingerprint(root, uid) != before:
            raise ToolchainMissing(
                "the tree changed while it was hashed", where=str(root), hint="start again when nothing writes there"
            )
        write_stamp(directory, Stamp(1, pinned.nar_sha256, before))
    except OSError as error:
        raise ToolchainMissing(
            f"the toolchain cache cannot be written: {error.strerror}", where=str(directory)
        ) from error
    return directory


def main(arguments: Sequence[str]) -> int:
    """Run as a program; return 0, or 2 with the error on stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m runner.toolchain_install", description="Accept a fetched tree of pinned tools."
    )
    parser.add_argument("kind", choices=["agent", "grader"])
    parser.add_argument("--cache", type=Path, required=True, help="the toolchain cache, which holds the tree already")
    parser.add_argument("--lock", type=Path, default=None, help="the toolchain lock (default: this checkout's)")
    chosen = parser.parse_args(arguments)
    kind: Kind = "agent" if chosen.kind == "agent" else "grader"
    try:
        directory = install(kind, load_lock(chosen.lock), chosen.cache)
    except RunnerError as error:
        sys.stderr.write(error.diagnostics() + "\n")
        return 2
    sys.stderr.write(f"hermeval: {kind} tools accepted: {directory}\n")
    return 0


def _plain_modes(directory: Path) -> None:
    for parent, names, files in os.walk(directory, onerror=_unreadable):
        os.chmod(parent, 0o755)  # noqa: S103 -- see the rules above
        for name in (*names, *files):
            found = os.lstat(os.path.join(parent, name))
            if stat.S_ISREG(found.st_mode):
                wanted = 0o755 if found.st_mode & stat.S_IXUSR else 0o644
                if stat.S_IMODE(found.st_mode) != wanted:
                    os.chmod(os.path.join(parent, name), wanted)


def _unreadable(error: OSError) -> None:
    raise InputMissing(f"cannot be read: {error.strerror}", where=str(error.filename)) from error


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
