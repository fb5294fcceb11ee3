"""Start a program that can make no user namespace: ``deny_namespaces.py PROGRAM ARG…``, for the flake's check ``without-namespaces``.

A filter of system calls answers EPERM to ``clone`` and ``unshare`` with CLONE_NEWUSER and ENOSYS to ``clone3``, as a hardened machine does. Standard library only.
"""

import ctypes
import os
import struct
import sys

NUMBERS = {"x86_64": (0xC000003E, 56, 272, 435), "aarch64": (0xC00000B7, 220, 97, 435)}
"""Audit architecture, then the numbers of clone, unshare and clone3."""
NEW_USER = 0x10000000
ALLOW, EPERM, ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06


def main(argv: list[str]) -> None:
    """Load the filter and become the program."""
    architecture, clone, unshare, clone3 = NUMBERS[os.uname().machine]
    steps = [
        (LOAD, 0, 0, 4),
        (EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, ALLOW),
        (LOAD, 0, 0, 0),
        (EQUAL, 6, 0, clone3),
        (EQUAL, 1, 0, clone),
        (EQUAL, 0, 3, unshare),
        (LOAD, 0, 0, 16),
        (ANY_BIT, 0, 1, NEW_USER),
        (RETURN, 0, 0, EPERM),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, ENOSYS),
    ]
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    held = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):  # no new privileges; the filter
        raise OSError(ctypes.get_errno(), "the filter cannot be loaded")
    os.execv(argv[0], argv)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main(sys.argv[1:])
