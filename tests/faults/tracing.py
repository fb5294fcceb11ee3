"""The system calls of a command and of everything that it starts, seen and changed from outside, with no program and no privilege.

Boundary: ptrace and seccomp of the machine the tests run on. Not here: which calls, and what becomes of them (inject.py, tests/grade/tracer.py).
Rules: a seccomp filter in the command, inherited by all its children whatever namespaces they enter, stops exactly the named calls for the tracer; everything else runs at full
speed. The command dies with its tracer. Calls are changed where they are entered: they are left out, and the caller gets a result of our own.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_X86 = {
    "read": 0, "write": 1, "open": 2, "close": 3, "pread64": 17, "pwrite64": 18, "access": 21, "dup": 32, "connect": 42, "socket": 41, "sendto": 44, "recvfrom": 45,
    "sendmsg": 46, "recvmsg": 47, "bind": 49, "listen": 50, "socketpair": 53, "fsync": 74, "fdatasync": 75, "ftruncate": 77, "getdents64": 217, "rename": 82, "mkdir": 83,
    "rmdir": 84, "link": 86, "unlink": 87, "chmod": 90, "fchmod": 91, "gettimeofday": 96, "prctl": 157, "time": 201, "epoll_wait": 232, "clock_gettime": 228, "openat": 257,
    "mkdirat": 258, "unlinkat": 263, "renameat": 264, "linkat": 265, "accept4": 288, "eventfd2": 290, "epoll_create1": 291, "dup3": 292, "pipe2": 293, "recvmmsg": 299,
    "sendmmsg": 307, "renameat2": 316, "memfd_create": 319, "io_uring_setup": 425, "pidfd_open": 434, "clone3": 435,
}  # fmt: skip
_ARM = {
    "read": 63, "write": 64, "close": 57, "pread64": 67, "pwrite64": 68, "dup": 23, "connect": 203, "socket": 198, "sendto": 206, "recvfrom": 207, "sendmsg": 211,
    "recvmsg": 212, "bind": 200, "listen": 201, "socketpair": 199, "fsync": 82, "fdatasync": 83, "ftruncate": 46, "getdents64": 61, "fchmod": 52, "prctl": 167, "gettimeofday": 169,
    "clock_gettime": 113, "openat": 56, "mkdirat": 34, "unlinkat": 35, "renameat": 38, "linkat": 37, "accept4": 242, "eventfd2": 19, "epoll_create1": 20, "dup3": 24,
    "pipe2": 59, "recvmmsg": 243, "sendmmsg": 269, "renameat2": 276, "memfd_create": 279, "io_uring_setup": 425, "pidfd_open": 434, "clone3": 435,
}  # fmt: skip
NUMBERS = {"x86_64": _X86, "aarch64": _ARM}[platform.machine()]
"""Calls that can be named, on this machine."""
WALL_CLOCKS = frozenset({0, 5})
"""``clock_gettime`` stops for the clocks that people set only: CLOCK_REALTIME and its coarse form."""

_CONT, _POKEUSER, _GETREGSET, _SETREGSET = 7, 6, 0x4204, 0x4205
_SEIZE, _EVENT_MESSAGE, _LISTEN, _SYSCALL_INFO = 0x4206, 0x4201, 0x4208, 0x420E
_OPTIONS = 0x02 | 0x04 | 0x08 | 0x10 | 0x80 | 0x100000  # fork, vfork, clone, exec, seccomp, exit-kill
_EVENT_EXEC, _EVENT_SECCOMP, _EVENT_STOP = 4, 7, 128
_WALL, _HANG_NOT = 0x40000000, 1
_ALLOW, _TRACE = 0x7FFF0000, 0x7FF00000
_AUXV_VDSO, _AUXV_IGNORE = 33, 1
_X86_RAX, _X86_ORIG_RAX = 10 * 8, 15 * 8
_ARM_GENERAL, _ARM_CALL = 1, 0x404
_STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
_POLL_S = 0.001
_STACK_BYTES = 4 << 20

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


@dataclass(frozen=True)
class Call:
    """A system call that is about to be made."""

    tid: int
    name: str
    arguments: tuple[int, ...]


@dataclass(frozen=True)
class Verdict:
    """What becomes of a call: it is held for a time, then made, or left out with a result of ours."""

    result: int | None = None
    """What the caller gets instead; ``-errno`` for an error. None: the call is made."""
    hold_s: float = 0.0


MADE = Verdict()


@dataclass
class Tracer:
    """Watches one command."""

    calls: Iterable[str]
    on_call: Callable[[Call], Verdict]
    on_exec: Callable[[int], None] = lambda pid: None
    """Gets the process that has begun to execute another program, before its first instruction."""
    own_clock: bool = False
    """Whether programs ask the kernel for the time, so that ``clock_gettime`` can be answered: the shared page that spares them the call is taken away."""
    child: int = 0

    def run(self, command: list[str]) -> int:
        """Run a command to the end of everything that it started; return its status, ``-N`` after signal N."""
        numbers = {NUMBERS[name]: name for name in self.calls if name in NUMBERS}
        self.child = os.fork()
        if self.child == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
            install_filter(numbers)
            os.execvp(command[0], command)
        os.waitpid(self.child, os.WUNTRACED)
        if request(_SEIZE, self.child, None, _OPTIONS) != 0:
            raise OSError(ctypes.get_errno(), "ptrace is not allowed here")
        os.kill(self.child, signal.SIGCONT)
        return self._watch(numbers)

    def _watch(self, numbers: dict[int, str]) -> int:
        held: list[tuple[float, int]] = []
        status_of_child = 0
        while True:
            try:
                tid, status = os.waitpid(-1, _WALL | (_HANG_NOT if held else 0))
            except ChildProcessError:
                break
            now = time.monotonic()
            for item in [item for item in held if item[0] <= now]:
                held.remove(item)
                request(_CONT, item[1])
            if tid == 0:
                time.sleep(_POLL_S)
            elif os.WIFSTOPPED(status):
                hold_s = self._stopped(tid, status, numbers)
                if hold_s > 0:
                    held.append((now + hold_s, tid))
            elif tid == self.child:
                status_of_child = status
        return os.waitstatus_to_exitcode(status_of_child)

    def _stopped(self, tid: int, status: int, numbers: dict[int, str]) -> float:
        """Deal with a thread that has stopped, and let it go on; returns for how long it is to be held, if it is."""
        event, number = status >> 16, os.WSTOPSIG(status)
        if event == _EVENT_SECCOMP:
            call = call_of(tid, numbers)
            verdict = MADE if call is None else self.on_call(call)
            if verdict.result is not None:
                leave_out(tid, verdict.result)
            if verdict.hold_s > 0:
                return verdict.hold_s
        elif event == _EVENT_EXEC:
            if self.own_clock:
                take_shared_clock(tid)
            self.on_exec(tid)
        elif event == _EVENT_STOP and number in _STOPS:
            request(_LISTEN, tid)
            return 0.0
        request(_CONT, tid, None, number if event == 0 else 0)
        return 0.0


def install_filter(numbers: Iterable[int]) -> None:
    """Make these calls stop for the tracer; runs in the child, before the command."""
    program = filter_of(numbers)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer)))
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, header, 0, 0):
        raise OSError(ctypes.get_errno(), "no seccomp filter")


def filter_of(numbers: Iterable[int]) -> bytes:
    """Return the filter's program: load the call's number; each wanted one jumps to the last line, which stops it; the line before lets the rest go."""
    others = sorted(set(numbers) - {NUMBERS["clock_gettime"]})
    clocks = sorted(WALL_CLOCKS) if len(others) < len(set(numbers)) else []
    head = len(clocks) + 3 if clocks else 0
    last = 1 + head + len(others) + 1
    lines = [(0x20, 0, 0, 0)]
    if clocks:  # the clock's number is the first argument; its lines end the program either way, so that it is never taken for a call's number
        lines += [(0x15, 0, head - 1, NUMBERS["clock_gettime"]), (0x20, 0, 0, 16)]
        lines += [(0x15, last - 4 - place, 0, clock) for place, clock in enumerate(clocks)]
        lines += [(0x06, 0, 0, _ALLOW)]
    lines += [(0x15, len(others) - place, 0, number) for place, number in enumerate(others)]
    lines += [(0x06, 0, 0, _ALLOW), (0x06, 0, 0, _TRACE)]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def request(kind: int, pid: int, address: Any = None, data: Any = None) -> int:
    """Make one ptrace request; a process that is gone meanwhile is no error."""
    return int(libc.ptrace(kind, pid, address, data))


def call_of(tid: int, numbers: dict[int, str]) -> Call | None:
    """Return the call at which a thread has stopped; None for one that is gone."""
    buffer = ctypes.create_string_buffer(88)
    request(_SYSCALL_INFO, tid, len(buffer), ctypes.addressof(buffer))
    number, *arguments = struct.unpack_from("@7Q", buffer.raw, 24)
    name = numbers.get(number)
    return None if name is None else Call(tid, name, tuple(arguments))


def leave_out(tid: int, result: int) -> None:
    """Have the call at which a thread has stopped not made, and give its caller a result."""
    if platform.machine() == "x86_64":
        request(_POKEUSER, tid, _X86_ORIG_RAX, ctypes.c_void_p(-1 & (1 << 64) - 1))
        request(_POKEUSER, tid, _X86_RAX, ctypes.c_void_p(result & (1 << 64) - 1))
        return
    registers = ctypes.create_string_buffer(272)
    vector = struct.pack("@PN", ctypes.addressof(registers), len(registers))
    area = ctypes.create_string_buffer(vector, len(vector))
    request(_GETREGSET, tid, _ARM_GENERAL, ctypes.addressof(area))
    struct.pack_into("@q", registers, 0, result)
    request(_SETREGSET, tid, _ARM_GENERAL, ctypes.addressof(area))
    number = ctypes.create_string_buffer(struct.pack("@i", -1), 4)
    vector = struct.pack("@PN", ctypes.addressof(number), 4)
    area = ctypes.create_string_buffer(vector, len(vector))
    request(_SETREGSET, tid, _ARM_CALL, ctypes.addressof(area))


def memory(pid: int, address: int, count: int) -> bytes:
    """Read a process's memory; empty where it cannot be read."""
    try:
        with Path(f"/proc/{pid}/mem").open("rb") as file:
            file.seek(address)
            return file.read(count)
    except (OSError, ValueError, OverflowError):
        return b""


def put_memory(pid: int, address: int, data: bytes) -> bool:
    """Write a process's memory; says whether that could be done."""
    try:
        with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as file:
            file.seek(address)
            return file.write(data) == len(data)
    except (OSError, ValueError, OverflowError):
        return False


def text_at(pid: int, address: int) -> bytes:
    """Return the C string at an address."""
    found = b""
    while address and len(found) < 4096:
        page = memory(pid, address + len(found), 256 - (address + len(found)) % 256)
        if not page:
            break
        head, end, _ = page.partition(b"\0")
        found += head
        if end:
            break
    return found


def take_shared_clock(pid: int) -> None:
    """Take the kernel's shared page out of what a program that is about to start is told, so that it asks for the time by a system call."""
    try:
        vector = Path(f"/proc/{pid}/auxv").read_bytes()
        stack = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[25])  # startstack
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as file:
            file.seek(stack)
            top = file.read(_STACK_BYTES) or b""
    except (OSError, ValueError):
        return
    place = top.find(vector[:64])
    kinds = [kind for kind, _ in struct.iter_unpack("@QQ", vector[: len(vector) // 16 * 16])]
    if place >= 0 and _AUXV_VDSO in kinds:
        put_memory(pid, stack + place + 16 * kinds.index(_AUXV_VDSO), struct.pack("@Q", _AUXV_IGNORE))
