"""Two system calls that the standard library lacks before Python 3.12 (setns) or altogether (keyctl), and the limit on descriptors. Part of the supervisor's program.

Boundary: calls the C library. Standard library only; imported by roles.py and listener.py from the directory they lie in.
Rules: ``_ctypes`` is what ctypes is made of, at a fifth of its import time, which lies on every run's path. Its functions take integers as C ints and None as NULL.
"""

import resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable
else:
    import posix as os

KEYCTL_JOIN_SESSION_KEYRING = 1
KEYCTL = {"x86_64": 250, "aarch64": 219}


def load_setns() -> "Callable[[int, int], None]":
    """Return ``setns(fd, kind)``: the standard library's from 3.12 on, the C library's before."""
    ready: Callable[[int, int], None] | None = getattr(os, "setns", None)
    if ready is not None:
        return ready
    call = load_function("setns")

    def setns(descriptor: int, kind: int) -> None:
        if call(descriptor, kind):
            raise OSError("setns was refused")

    return setns


def leave_session_keyring() -> bool:
    """Give this process, and so the sandbox, a new and empty session keyring; returns whether that was done.

    The caller's is readable inside otherwise (facts/sandbox.md, finding 4). A system call filter is the other layer; a kernel without keyrings has nothing to leave.
    """
    number = KEYCTL.get(os.uname().machine)
    if number is None:
        return False
    return load_function("syscall")(number, KEYCTL_JOIN_SESSION_KEYRING, None) > 0


def load_function(name: str) -> "Callable[..., int]":
    """Return a function of the C library."""
    import _ctypes

    process = _ctypes.dlopen(None, os.RTLD_NOW)  # type: ignore[arg-type]  # None is this process, as for dlopen(3)
    address = _ctypes.dlsym(process, name)

    def call(*arguments: int | None) -> int:
        result: int = _ctypes.call_function(address, arguments)
        return result

    return call


def make_room(descriptors: int) -> None:
    """Let this process have so many descriptors, whatever its caller had set as its own lower limit. Raises OSError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard <= descriptors:
        raise OSError(f"{descriptors + 1} descriptors are needed and {hard} are allowed (ulimit -Hn)")
    if soft != resource.RLIM_INFINITY and soft <= descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors + 1, hard))
