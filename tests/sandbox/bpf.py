"""A classic BPF interpreter and libseccomp, for tests of the filter: what a program answers to a call, and what libseccomp would have made of the same rules."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from itertools import product

from sandbox.seccomp import ABSENT, ALLOW, ERRNO, FAMILIES, KILL, REFUSED, RULES, Test
from sandbox.syscalls import ARCHES, number_of

_EQ, _GE, _MASKED_EQ = 4, 5, 7
_ACT_BADARCH = 2
LIBRARY_KNOWS = 454
"""The newest number that libseccomp 2.5.4 takes a rule for."""


def answer(program: bytes, arch: int, number: int, arguments: Sequence[int] = ()) -> int:
    """Return what the program answers; any instruction that the kernel would refuse raises."""
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, arch, 0, *[*arguments, 0, 0, 0, 0, 0, 0][:6])
    lines = list(struct.iter_unpack("<HBBI", program))
    accumulator, at = 0, 0
    while True:
        code, if_true, if_false, value = lines[at]
        at += 1
        match code:
            case 0x20:
                assert value % 4 == 0
                (accumulator,) = struct.unpack_from("<I", data, value)
            case 0x54:
                accumulator &= value
            case 0x05:
                at += value
            case 0x15:
                at += if_true if accumulator == value else if_false
            case 0x25:
                at += if_true if accumulator > value else if_false
            case 0x35:
                at += if_true if accumulator >= value else if_false
            case 0x45:
                at += if_true if accumulator & value else if_false
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"an instruction that is not known: {code:#x}")


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("datum_a", ctypes.c_uint64),
        ("datum_b", ctypes.c_uint64),
    )


def library() -> ctypes.CDLL:
    """libseccomp, which every Debian has for systemd."""
    found = ctypes.CDLL("libseccomp.so.2")
    found.seccomp_init.argtypes, found.seccomp_init.restype = [ctypes.c_uint32], ctypes.c_void_p
    for name in ("seccomp_arch_add", "seccomp_arch_remove"):
        getattr(found, name).argtypes = [ctypes.c_void_p, ctypes.c_uint32]
    found.seccomp_attr_set.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32]
    found.seccomp_rule_add_array.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.POINTER(_Comparison),
    ]
    found.seccomp_export_bpf.argtypes = [ctypes.c_void_p, ctypes.c_int]
    found.seccomp_release.argtypes = [ctypes.c_void_p]
    found.seccomp_syscall_resolve_name.argtypes = [ctypes.c_char_p]
    found.seccomp_syscall_resolve_name_arch.argtypes = [ctypes.c_uint32, ctypes.c_char_p]
    return found


def libseccomp_filter(machine: str) -> bytes:
    """Return libseccomp's program for the same rules, but for the one that it cannot say: numbers above the newest."""
    lib, arch = library(), ARCHES[machine]
    context = lib.seccomp_init(ALLOW)
    try:
        own = ARCHES[os.uname().machine]
        if own != arch:
            assert lib.seccomp_arch_add(context, arch) == 0
            assert lib.seccomp_arch_remove(context, own) == 0
        assert lib.seccomp_attr_set(context, _ACT_BADARCH, KILL) == 0

        def refuse(name: str, error: int, comparisons: Sequence[_Comparison] = ()) -> None:
            number = number_of(name, machine)
            if number is not None and number <= LIBRARY_KNOWS:
                array = (_Comparison * len(comparisons))(*comparisons)
                by_name = lib.seccomp_syscall_resolve_name(name.encode())  # of this machine; it translates
                code = lib.seccomp_rule_add_array(context, ERRNO | error, by_name, len(comparisons), array)
                assert code == 0, (name, code)

        for names, error in ((ABSENT, 38), (REFUSED, 1)):
            for name in names:
                refuse(name, error)
        for rule in RULES:
            for name in rule.names:
                for comparisons in product(*[_comparisons(test) for test in rule.tests]):
                    refuse(name, rule.error, comparisons)
        descriptor = os.memfd_create("bpf")
        assert lib.seccomp_export_bpf(context, descriptor) == 0
        return os.pread(descriptor, 1 << 20, 0)
    finally:
        lib.seccomp_release(context)


def _comparisons(test: Test) -> list[_Comparison]:
    """The alternatives under which a test holds, in libseccomp's terms."""
    if test.holds:
        return [_Comparison(test.argument, _MASKED_EQ, 0xFFFFFFFF, value) for value in test.values]
    if test.mask != 0xFFFFFFFF:
        return [_Comparison(test.argument, _MASKED_EQ, 1 << bit, 1 << bit) for bit in range(32) if test.mask >> bit & 1]
    if test.values == FAMILIES:
        others = [family for family in range(64) if family not in FAMILIES]
        return [
            *[_Comparison(test.argument, _EQ, family, 0) for family in others],
            _Comparison(test.argument, _GE, 64, 0),
        ]
    return [
        _Comparison(test.argument, _MASKED_EQ, 1 << bit, 1 << bit) for bit in range(32)
    ]  # personality: any but 0; that -1 is fine cannot be said beside it
