"""Run a command and tell which programs it and its children execute and which sockets they open: a system call trace that needs no program and no privilege.

Usage: ``python -m tests.grade.tracer REPORT COMMAND…``; REPORT gets one JSON object a line: ``{"pid", "call": "exec", "exe"}``, ``{"pid", "call": "socket", "family"}``,
``{"pid", "call": "connect"|"sendto"|"sendmsg"|"bind", "family"}``. Exits as the command does.

Boundary: as tests/faults/tracing.py, which does the tracing.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import IO, Any

from tests.faults.tracing import MADE, Call, Tracer, Verdict, memory

CALLS = ("socket", "connect", "sendto", "sendmsg", "bind", "sendmmsg", "io_uring_setup")


def family_at(pid: int, address: int) -> int | None:
    """Return the family of a socket address in a process's memory."""
    data = memory(pid, address, 2) if address else b""
    return int.from_bytes(data, sys.byteorder) if len(data) == 2 else None


def family_of(call: Call) -> int | None:
    """Return the family that a call is about, where it says one."""
    match call.name:
        case "socket":
            return call.arguments[0] & 0xFFFFFFFF
        case "connect" | "bind":
            return family_at(call.tid, call.arguments[1])
        case "sendto":
            return family_at(call.tid, call.arguments[4])
        case "sendmsg":
            return family_at(call.tid, int.from_bytes(memory(call.tid, call.arguments[1], 8), sys.byteorder))
        case _:
            return None


def trace(command: list[str], out: IO[str]) -> int:
    """Trace a command; return its status."""

    def tell(**row: Any) -> None:
        out.write(json.dumps(row) + "\n")

    def on_call(call: Call) -> Verdict:
        tell(pid=call.tid, call=call.name, family=family_of(call))
        return MADE

    def on_exec(pid: int) -> None:
        try:
            exe = os.readlink(f"/proc/{pid}/exe")
        except OSError:
            exe = ""
        tell(pid=pid, call="exec", exe=exe)

    return Tracer(CALLS, on_call, on_exec).run(command)


def main() -> int:
    """Trace the command of the arguments."""
    with Path(sys.argv[1]).open("w", encoding="ascii") as out:
        return trace(sys.argv[2:], out)


if __name__ == "__main__":
    sys.exit(main())
