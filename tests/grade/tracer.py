"""Run a command and tell which programs it and its children execute and which sockets they open: a system call trace that needs no program and no privilege.

Usage: ``python tracer.py REPORT COMMAND…``; REPORT gets one JSON object a line: ``{"pid", "call": "exec", "exe"}``, ``{"pid", "call": "socket", "family"}``,
``{"pid", "call": "connect"|"sendto"|"sendmsg"|"bind", "family"}``. Exits as the command does.

A seccomp filter in the command, inherited by all its children whatever namespaces they enter, stops exactly those calls for the tracer; everything else runs at full speed.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import struct
import sys
from pathlib import Path
from typing import Any

_NUMBERS = {
    "x86_64": {
        "socket": 41,
        "connect": 42,
        "sendto": 44,
        "sendmsg": 46,
        "bind": 49,
        "sendmmsg": 307,
        "io_uring_setup": 425,
    },
    "aarch64": {
        "socket": 198,
        "connect": 203,
        "sendto": 206,
        "sendmsg": 211,
        "bind": 200,
        "sendmmsg": 269,
        "io_uring_setup": 425,
    },
}[platform.machine()]
_NAMES = {number: name for name, number in _NUMBERS.items()}
_CONT, _SEIZE, _LISTEN, _SYSCALL_INFO, _EVENT_MESSAGE = 7, 0x4206, 0x4208, 0x420E, 0x4201
_OPTIONS = 0x02 | 0x04 | 0x08 | 0x10 | 0x80 | 0x100000  # fork, vfork, clone, exec, seccomp, exit-kill
_EVENT_EXEC, _EVENT_SECCOMP, _EVENT_STOP = 4, 7, 128
_WALL = 0x40000000
_ALLOW, _TRACE = 0x7FFF0000, 0x7FF00000
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def install_filter() -> None:
    """Make every call of the table stop for the tracer; runs in the child, before the command."""
    numbers = sorted(_NAMES)
    program = struct.pack("=HBBI", 0x20, 0, 0, 0)  # load the call's number
    for place, number in enumerate(numbers):
        program += struct.pack("=HBBI", 0x15, len(numbers) - place, 0, number)  # equal: jump to the last line
    program += struct.pack("=HBBI", 0x06, 0, 0, _ALLOW) + struct.pack("=HBBI", 0x06, 0, 0, _TRACE)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer)))
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, header, 0, 0):
        raise OSError(ctypes.get_errno(), "no seccomp filter")


def request(kind: int, pid: int, address: Any = None, data: Any = None) -> int:
    """Make one ptrace request; a process that is gone meanwhile is no error."""
    return int(libc.ptrace(kind, pid, address, data))


def memory(pid: int, address: int, count: int) -> bytes:
    """Read a process's memory; empty where it cannot be read."""
    try:
        with Path(f"/proc/{pid}/mem").open("rb") as file:
            file.seek(address)
            return file.read(count)
    except (OSError, ValueError, OverflowError):
        return b""


def family_at(pid: int, address: int) -> int | None:
    """Return the family of a socket address in a process's memory."""
    data = memory(pid, address, 2) if address else b""
    return int.from_bytes(data, sys.byteorder) if len(data) == 2 else None


def call_of(pid: int) -> dict[str, Any]:
    """Return the call at which a process has stopped."""
    buffer = ctypes.create_string_buffer(88)
    request(_SYSCALL_INFO, pid, len(buffer), ctypes.addressof(buffer))
    number, *arguments = struct.unpack_from("@7Q", buffer.raw, 24)
    name = _NAMES.get(number, str(number))
    if name == "socket":
        return {"pid": pid, "call": name, "family": arguments[0] & 0xFFFFFFFF}
    if name in ("connect", "bind"):
        return {"pid": pid, "call": name, "family": family_at(pid, arguments[1])}
    if name == "sendto":
        return {"pid": pid, "call": name, "family": family_at(pid, arguments[4])}
    if name == "sendmsg":
        head = memory(pid, arguments[1], 8)
        return {"pid": pid, "call": name, "family": family_at(pid, int.from_bytes(head, sys.byteorder))}
    return {"pid": pid, "call": name, "family": None}


def main() -> int:
    """Trace the command of the arguments."""
    report, command = sys.argv[1], sys.argv[2:]
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        install_filter()
        os.execvp(command[0], command)
    os.waitpid(child, os.WUNTRACED)
    if request(_SEIZE, child, None, _OPTIONS) != 0:
        raise OSError(ctypes.get_errno(), "ptrace is not allowed here")
    os.kill(child, signal.SIGCONT)
    status_of_child = 0
    with Path(report).open("w", encoding="ascii") as out:
        while True:
            try:
                pid, status = os.waitpid(-1, _WALL)
            except ChildProcessError:
                break
            if not os.WIFSTOPPED(status):
                if pid == child:
                    status_of_child = status
                continue
            event, number = status >> 16, os.WSTOPSIG(status)
            pass_on = 0
            if event == _EVENT_SECCOMP:
                out.write(json.dumps(call_of(pid)) + "\n")
            elif event == _EVENT_EXEC:
                try:
                    exe = os.readlink(f"/proc/{pid}/exe")
                except OSError:
                    exe = ""
                out.write(json.dumps({"pid": pid, "call": "exec", "exe": exe}) + "\n")
            elif event == _EVENT_STOP and number in (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
                request(_LISTEN, pid)
                continue
            elif event == 0:
                pass_on = number
            request(_CONT, pid, None, pass_on)
    return os.waitstatus_to_exitcode(status_of_child)


if __name__ == "__main__":
    sys.exit(main())
