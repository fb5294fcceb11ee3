"""The C parts of pinned runs as this machine has them, and what it means when the attendant gives up.

Boundary: reads, and on first use makes, files below the toolchain cache. Not here: compiling (sandbox/determinism/parts.py), what is pinned (pinned.py).
Rules: the parts run with every right of the program that they start, so they count only where nobody but root and the caller could have put them there. Asked for by pinned runs and
shifted clocks alone: no other run needs a compiler.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from runner.errors import ToolchainError
from runner.toolchain_stamp import require_private
from sandbox.determinism.parts import SEARCH, Parts, find_parts
from sandbox.errors import SandboxUnavailable
from sandbox.pinned import read_pins

FAILED = 125
"""The attendant's exit status where it could not do its work (attend.c)."""
PREFIX = b"hermeval pinned: "


def no_parts() -> Parts:
    """Stand for the parts of a machine that was opened without a place for them. Raises: SandboxUnavailable."""
    raise SandboxUnavailable(
        "pinned runs need two small programs, and no place for them was named",
        hint="open the machine with a cache",
        code="pinned-unavailable",
    )


def open_parts(cache_root: Path, *, uid: int | None = None, search: str | None = None) -> Parts:
    """Return the parts: the flake's, or those of the cache, made now where they are not there yet.

    ``search`` is where the compiler is looked for, as PATH is written. Raises: SandboxUnavailable: ``compiler-missing``, ``pinned-build-failed``, ``toolchain-untrusted`` (another user could have changed them).
    """
    parts = find_parts(cache_root / "determinism", search=search or SEARCH)
    if read_pins() is not None:
        return parts
    try:
        for path in (parts.attend.parent, parts.attend, parts.clock):
            require_private(path, os.geteuid() if uid is None else uid)
    except ToolchainError as error:
        raise SandboxUnavailable(error.message, where=error.where, hint=error.hint, code=error.code) from error
    return parts


def pinned_sources(parts: Parts, readable: Path | None) -> dict[str, Path]:
    """Return what a pinned or shifted sandbox binds. ``readable`` is the CLI of a pinned run: the attendant writes into its memory, which the kernel allows for a file that can be read.

    That is the installed tree's own file, whose stamp was checked: a copy of 400 MB would show nothing more.
    """
    sources = {"attend": parts.attend, "clock": parts.clock}
    return sources if readable is None else {**sources, "claude": readable}


def attendant_fault(exit_status: int | None, stderr: bytes) -> dict[str, Any] | None:
    """Return step, code, message and hint where a pinned run ended because its attendant could not do its work, else None. Inside that can be feigned; then too the run is an error."""
    said = [line for line in stderr.splitlines() if line.startswith(PREFIX)]
    if exit_status != FAILED or not said:
        return None
    return {
        "step": "pinned",
        "code": "pinned-unavailable",
        "message": said[-1].removeprefix(PREFIX).decode("utf-8", "replace")[:500],
        "hint": "hermeval doctor --pinned tells whether this machine can pin; --determinism free needs none of it",
    }
