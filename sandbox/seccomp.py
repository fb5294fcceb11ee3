"""The system call filter of every sandbox, as a classic BPF program made here.

Boundary: pure, but that ``own_filter`` asks what this machine is. Not here: the calls' numbers (syscalls.py), loading it (bwrap does, just before the program starts; box.py sees that it did).
Rules: a deny list with three closed ends: another machine type or the x32 table kills, a number above the newest known one does not exist, a socket family that is not listed does not
either (facts/sandbox.md §5). An allow list would break tools that are not ours. Arguments are compared in the 32 bits that the kernel reads (CVE-2019-10063). What takes its arguments in
memory cannot be looked at, so it does not exist (clone3, openat2). A changed byte changes the golden digests of tests/sandbox: read the difference before they are renewed.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from sandbox.errors import SandboxUnavailable
from sandbox.syscalls import ARCHES, NEWEST, number_of

ALLOW: Final = 0x7FFF0000
KILL: Final = 0x80000000
ERRNO: Final = 0x00050000
X32_BIT: Final = 0x40000000

_LOAD, _AND, _EQUAL, _ABOVE, _AT_LEAST = 0x20, 0x54, 0x15, 0x25, 0x35
RETURN: Final = 0x06
_NR, _ARCH, _ARGUMENTS = 0, 4, 16
_BLOCK: Final = 200
"""Comparisons before their answer; a jump reaches 255 instructions."""

REFUSED: Final = tuple(
    """
    add_key keyctl request_key
    ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd
    unshare setns mount umount2 pivot_root chroot
    bpf perf_event_open userfaultfd syslog acct quotactl quotactl_fd swapon swapoff reboot kexec_load kexec_file_load
    init_module finit_module delete_module iopl ioperm open_by_handle_at name_to_handle_at lookup_dcookie uselib modify_ldt vhangup
    settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname
    move_pages migrate_pages mbind set_mempolicy set_mempolicy_home_node fanotify_init fanotify_mark memfd_secret lsm_set_self_attr
    """.split()  # noqa: SIM905 - a list of a hundred strings cannot be read
)
"""EPERM."""
ABSENT: Final = tuple(
    """
    clone3 openat2 io_uring_setup io_uring_enter io_uring_register
    open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick mount_setattr statmount listmount file_setattr
    """.split()  # noqa: SIM905 - a list of a hundred strings cannot be read
)
"""ENOSYS: a C library or a program then takes the older way."""

NEW_NAMESPACES: Final = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET; clone cannot make a time namespace."""
SET_ID: Final = 0o6000
MAKES_A_FILE: Final = 0o100 | 0o20000000
"""O_CREAT and the bit of O_TMPFILE that is not O_DIRECTORY."""
FAMILIES: Final = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK."""
TERMINAL_REQUESTS: Final = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX."""
PERSONALITIES: Final = (0, 0xFFFFFFFF)
"""The usual one, and the question which one it is."""


class Instruction(NamedTuple):
    """One BPF instruction."""

    code: int
    if_true: int
    if_false: int
    value: int


class Test(NamedTuple):
    """A comparison of one argument: of its lower 32 bits, those of ``mask`` only."""

    argument: int
    mask: int
    values: tuple[int, ...]
    holds: bool
    """Whether the comparison holds where the bits are one of ``values``, or where they are none of them."""


class Rule(NamedTuple):
    """Refuse a call where all tests hold."""

    names: tuple[str, ...]
    tests: tuple[Test, ...]
    error: int = errno.EPERM


def any_of(argument: int, mask: int) -> Test:
    """Any of these bits is set."""
    return Test(argument, mask, (0,), holds=False)


_ALL = 0xFFFFFFFF
RULES: Final = (
    Rule(("clone",), (any_of(0, NEW_NAMESPACES),)),
    Rule(("ioctl",), (Test(1, _ALL, TERMINAL_REQUESTS, holds=True),)),
    Rule(("chmod", "fchmod", "creat", "mknod"), (any_of(1, SET_ID),)),
    Rule(("fchmodat", "fchmodat2", "mknodat"), (any_of(2, SET_ID),)),
    Rule(("open",), (any_of(1, MAKES_A_FILE), any_of(2, SET_ID))),
    Rule(("openat",), (any_of(2, MAKES_A_FILE), any_of(3, SET_ID))),
    Rule(("socket", "socketpair"), (Test(0, _ALL, FAMILIES, holds=False),), errno.EAFNOSUPPORT),
    Rule(("personality",), (Test(0, _ALL, PERSONALITIES, holds=False),)),
)


def make_filter(machine: str) -> bytes:
    """Return the compiled filter of a machine type: ``x86_64`` or ``aarch64``.

    Raises: SandboxUnavailable (code ``seccomp-unavailable``) for any other: no run starts without it.
    """
    return assemble(program_of(machine))


def own_filter() -> bytes:
    """Return the filter of this machine's type. Raises: as ``make_filter``."""
    return make_filter(os.uname().machine)


def program_of(machine: str) -> list[Instruction]:
    """Return the filter's instructions. Raises: as ``make_filter``."""
    if machine not in ARCHES:
        raise SandboxUnavailable(
            f"there is no system call filter for this machine type: {machine}",
            hint="run on x86_64 or aarch64",
            code="seccomp-unavailable",
        )
    program = [_load(_ARCH), Instruction(_EQUAL, 1, 0, ARCHES[machine]), _answer(KILL), _load(_NR)]
    if machine == "x86_64":  # -1 is no x32 call: a tracer's "skip this one"
        program += [Instruction(_EQUAL, 2, 0, _ALL), Instruction(_AT_LEAST, 0, 1, X32_BIT), _answer(KILL)]
    program += [Instruction(_ABOVE, 0, 1, NEWEST), _answer(ERRNO | errno.ENOSYS)]
    program += _answers(_numbers(ABSENT, machine), ERRNO | errno.ENOSYS)
    program += _answers(_numbers(REFUSED, machine), ERRNO | errno.EPERM)
    for rule in RULES:
        for number in _numbers(rule.names, machine):
            program += _when(number, rule)
    return [*program, _answer(ALLOW)]


def assemble(program: Iterable[Instruction]) -> bytes:
    """Return the bytes of a program for a little-endian machine."""
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def _numbers(names: Iterable[str], machine: str) -> list[int]:
    found = (number_of(name, machine) for name in names)
    return [number for number in found if number is not None]


def _answers(numbers: list[int], answer: int) -> list[Instruction]:
    """Answer each of these calls in one way; the call's number is loaded, and stays."""
    program = []
    for start in range(0, len(numbers), _BLOCK):
        block = numbers[start : start + _BLOCK]
        for place, number in enumerate(block):
            last = place == len(block) - 1
            program.append(Instruction(_EQUAL, len(block) - 1 - place, 1 if last else 0, number))
        program.append(_answer(answer))
    return program


def _when(number: int, rule: Rule) -> list[Instruction]:
    """Refuse one call where its rule's tests hold, and allow it otherwise: no other rule is about it."""
    body: list[Instruction] = []
    answers = [_answer(ERRNO | rule.error), _answer(ALLOW)]
    for test in reversed(rule.tests):
        body = _test(test, len(body)) + body
    body += answers
    return [Instruction(_EQUAL, 0, len(body), number), *body]


def _test(test: Test, behind: int) -> list[Instruction]:
    """One test, ``behind`` instructions before the rule's two answers: go on where it holds, else to the second."""
    program = [_load(_ARGUMENTS + 8 * test.argument)]
    if test.mask != _ALL:
        program.append(Instruction(_AND, 0, 0, test.mask))
    for place, value in enumerate(test.values):
        left = len(test.values) - 1 - place
        met = left if test.holds else left + behind + 1
        last = left == 0
        missed = (behind + 1 if test.holds else 0) if last else 0
        program.append(Instruction(_EQUAL, met, missed, value))
    return program


def _load(offset: int) -> Instruction:
    return Instruction(_LOAD, 0, 0, offset)


def _answer(value: int) -> Instruction:
    return Instruction(RETURN, 0, 0, value)
