"""The system call filter: its bytes, its answers on both machine types, beside libseccomp's, and in a real sandbox."""

from __future__ import annotations

import errno
import json
import os
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.errors import SandboxUnavailable
from sandbox.seccomp import ABSENT, ALLOW, ERRNO, FAMILIES, KILL, REFUSED, RULES, make_filter
from sandbox.syscalls import ARCHES, NEWEST, NUMBERS, number_of
from tests.sandbox.bpf import LIBRARY_KNOWS, answer, library, libseccomp_filter

if TYPE_CHECKING:
    from tests.sandbox.conftest import Run

GOLDEN = {
    "x86_64": (175, "3199c6c37c2e785d53a3a6277dd4cd75778c264e7150ae0ed013b16a4944e1cc"),
    "aarch64": (141, "e91caa64ecda4819924e6256f6bc932bdac02bf6e0c775db8b3d5c68f6fba05c"),
}
EPERM, ENOSYS = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS
MACHINES = sorted(ARCHES)
PROGRAMS = {machine: make_filter(machine) for machine in MACHINES}
INTERESTING = (
    0, 1, 2, 3, 10, 16, 17, 38, 40, 44, 64, 0o40, 0o100, 0o101, 0o644, 0o755, 0o2000, 0o2755, 0o4000, 0o4755, 0o6755, 0o20200000,
    0x5401, 0x5412, 0x541C, 0x11, 0x003D0F00, 0x10000000, 0x10000011, 0x7E020000, 0x80000000, 0xFFFFFFFF, 0x00040000,
)  # fmt: skip


def ask(machine: str, name: str, *arguments: int) -> int | None:
    """What our filter answers to a call; None where the machine type has no such call."""
    number = number_of(name, machine)
    return None if number is None else answer(PROGRAMS[machine], ARCHES[machine], number, arguments)


@pytest.mark.parametrize("machine", MACHINES)
def test_the_bytes_are_the_golden_ones(machine: str) -> None:
    """A change of the filter is a change of this test, so that nobody changes it unaware."""
    count, digest = GOLDEN[machine]
    assert (len(PROGRAMS[machine]) // 8, sha256(PROGRAMS[machine]).hexdigest()) == (count, digest)
    assert count <= 4096  # the kernel's limit


def test_another_machine_type_has_no_filter_and_no_run() -> None:
    """There is no fall-back: the error has a code of its own."""
    with pytest.raises(SandboxUnavailable) as caught:
        make_filter("riscv64")
    assert caught.value.code == "seccomp-unavailable"


@pytest.mark.parametrize("machine", MACHINES)
def test_listed_calls_are_refused_and_all_others_allowed(machine: str) -> None:
    """Number by number: EPERM, ENOSYS or allowed; the rules about arguments allow where arguments are harmless."""
    refused = {number_of(name, machine) for name in REFUSED}
    absent = {number_of(name, machine) for name in ABSENT}
    refused.add(number_of("personality", machine))  # 1 is none that is allowed
    for number in range(NEWEST + 1):
        wanted = EPERM if number in refused else ENOSYS if number in absent else ALLOW
        assert answer(PROGRAMS[machine], ARCHES[machine], number, (1, 0, 0, 0)) == wanted, number


@pytest.mark.parametrize("machine", MACHINES)
def test_closed_ends(machine: str) -> None:
    """The other machine type's calls kill, as x32's do; unknown numbers do not exist; the question -1 is answered and not killed."""
    program, own = PROGRAMS[machine], ARCHES[machine]
    for arch in (*(set(ARCHES.values()) - {own}), 0x40000003, 0x40000028, 0):
        assert answer(program, arch, 0) == KILL
    assert answer(program, own, NEWEST) == ENOSYS  # file_setattr
    assert answer(program, own, NEWEST + 1) == ENOSYS
    assert answer(program, own, 0x3FFFFFFF) == ENOSYS
    assert answer(program, own, 0xFFFFFFFF) == ENOSYS
    x32 = answer(program, own, 0x40000000 + 39)
    assert x32 == (KILL if machine == "x86_64" else ENOSYS)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "bad", "good"),
    [
        ("clone", (0x10000011,), (0x003D0F00,)),
        ("ioctl", (0, 0x5412), (0, 0x5413)),
        ("ioctl", (0, 0x541C), (0, 0x541B)),
        ("ioctl", (0, 0x1_00005412), (0, 0x1_00005413)),
        ("chmod", (0, 0o4755), (0, 0o1755)),
        ("fchmod", (0, 0o2755), (0, 0o755)),
        ("fchmodat", (0, 0, 0o6755), (0, 0, 0o777)),
        ("fchmodat2", (0, 0, 0o4000), (0, 0, 0o777)),
        ("open", (0, 0o101, 0o4755), (0, 0o101, 0o755)),
        ("open", (0, 0o20200001, 0o4755), (0, 0o200000, 0o4755)),
        ("openat", (0, 0, 0o101, 0o2755), (0, 0, 0, 0o6755)),
        ("creat", (0, 0o4755), (0, 0o755)),
        ("mknod", (0, 0o104755), (0, 0o010644)),
        ("mknodat", (0, 0, 0o104755), (0, 0, 0o010644)),
        ("personality", (0x0040000,), (0xFFFFFFFF,)),
    ],
)  # fmt: skip
def test_arguments_decide(machine: str, name: str, bad: tuple[int, ...], good: tuple[int, ...]) -> None:
    """A harmful argument is refused, also with other bits set in the half that the kernel does not read; a harmless one passes."""
    assert ask(machine, name, *bad) in (EPERM, None)
    assert ask(machine, name, *(value | 0xDEADBEEF << 32 for value in bad)) in (EPERM, None)
    assert ask(machine, name, *good) in (ALLOW, None)


@pytest.mark.parametrize("machine", MACHINES)
def test_socket_families(machine: str) -> None:
    """Four families exist; vsock, packet, alg, bluetooth, xdp and what is not yet thought of do not."""
    for name in ("socket", "socketpair"):
        for family in range(80):
            wanted = ALLOW if family in FAMILIES else ERRNO | errno.EAFNOSUPPORT
            assert ask(machine, name, family) == wanted


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_libseccomps(machine: str) -> None:
    """Every number that the installed libseccomp knows too is the same there, and so is a call's absence."""
    resolve, known = library().seccomp_syscall_resolve_name_arch, 0
    for name in NUMBERS:
        found = resolve(ARCHES[machine], name.encode())
        if found == -1:  # newer than the library
            assert (number_of(name, machine) or 0) >= 454, name
            continue
        known += 1
        assert number_of(name, machine) == (found if found >= 0 else None), name
    assert known >= 60


@pytest.mark.parametrize("machine", MACHINES)
def test_answers_are_those_of_libseccomp(machine: str) -> None:
    """The same rules compiled by libseccomp answer alike: every number, with interesting arguments in each place."""
    ours, theirs, arch = PROGRAMS[machine], libseccomp_filter(machine), ARCHES[machine]
    assert answer(theirs, 0x40000003, 1) == KILL  # the control: theirs is a filter
    decided = {number_of(name, machine) for rule in RULES for name in rule.names}
    for number in range(LIBRARY_KNOWS + 1):
        values = INTERESTING if number in decided else INTERESTING[:3]
        for first in values:
            for second in values:
                for arguments in ((first, second, 0, 0), (0, first, second, 0), (0, 0, first, second)):
                    if number == number_of("personality", machine) and arguments[0] == 0xFFFFFFFF:
                        continue  # libseccomp cannot say that one; test_arguments_decide has it
                    assert answer(ours, arch, number, arguments) == answer(theirs, arch, number, arguments), (
                        number,
                        arguments,
                    )


LIBSECCOMP = {machine: libseccomp_filter(machine) for machine in MACHINES}


@given(
    st.sampled_from(MACHINES),
    st.integers(0, LIBRARY_KNOWS),
    st.lists(st.integers(0, 2**32 - 1), min_size=6, max_size=6),
)
@settings(max_examples=400)
def test_answers_are_those_of_libseccomp_for_any_arguments(machine: str, number: int, arguments: list[int]) -> None:
    """Random calls, too."""
    arch = ARCHES[machine]
    assert answer(PROGRAMS[machine], arch, number, arguments) == answer(LIBSECCOMP[machine], arch, number, arguments)


TRY = r"""
import ctypes, json, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def one(number, *arguments):
    child = os.fork()
    if not child:
        ctypes.set_errno(0)
        result = libc.syscall(*[ctypes.c_long(value) for value in (number, *arguments)])
        os._exit(0 if result >= 0 else ctypes.get_errno())
    status = os.waitpid(child, 0)[1]
    return os.waitstatus_to_exitcode(status)
print(json.dumps([one(*call) for call in json.loads(sys.argv[1])]))
"""


def try_inside(run: Run, calls: list[list[int]], *, seccomp: bytes | None) -> list[int]:
    """Make calls in a real sandbox, each in a process of its own; returns errno, 0, or minus the signal."""
    seen = run("", view={"argv": ("/usr/bin/python3", "-I", "-S", "-c", TRY, json.dumps(calls)), "seccomp": seccomp})
    assert seen.ended.exit_status == 0, seen.ended.stderr
    found: list[int] = json.loads(seen.out)
    return found


def test_the_kernel_answers_as_the_filter_says(run: Run) -> None:
    """With bad arguments, every listed call is refused in a real sandbox; without the filter most have another answer (the control)."""
    machine = os.uname().machine
    names = [name for name in (*REFUSED, *ABSENT) if number_of(name, machine) is not None]
    calls = [[number_of(name, machine) or 0, -1, -1, -1, -1, -1, -1] for name in names]
    with_filter = dict(zip(names, try_inside(run, calls, seccomp=PROGRAMS[machine]), strict=True))
    assert with_filter == {name: errno.EPERM if name in REFUSED else errno.ENOSYS for name in names}
    without = dict(zip(names, try_inside(run, calls, seccomp=None), strict=True))
    assert sum(without[name] != with_filter[name] for name in names) >= 25


def test_x32_is_killed_and_threads_and_families_work(run: Run) -> None:
    """A call of the x32 table ends the process by SIGSYS; what programs need is answered by the kernel."""
    machine = os.uname().machine
    socket, personality = number_of("socket", machine) or 0, number_of("personality", machine) or 0
    calls = [
        [0x40000000 + 39],
        [NEWEST + 60],
        [socket, 40, 1, 0],
        [socket, 1, 1, 0],
        [socket, 16, 3, 0],
        [personality, 0xFFFFFFFF],
    ]
    foreign = -31 if machine == "x86_64" else errno.ENOSYS
    assert try_inside(run, calls, seccomp=PROGRAMS[machine]) == [foreign, errno.ENOSYS, errno.EAFNOSUPPORT, 0, 0, 0]
    seen = run(
        "python3 -I -c 'import threading, multiprocessing as m; t = threading.Thread(target=print, args=(1,)); t.start(); t.join(); p = m.get_context(\"fork\").Process(target=print, args=(2,)); p.start(); p.join()'; mkfifo f && echo 3; umask 022; touch g; chmod 1755 g && echo 4",
        view={"seccomp": PROGRAMS[machine]},
    )
    assert seen.out.split() == ["1", "2", "3", "4"]
