"""What the hostile program's probes share. Part of program.py: run inside, never imported."""

# ruff: noqa: D103, PTH123 - a hostile program is short and blunt
# mypy: ignore-errors

import ctypes
import errno
import json
import os
import signal
import socket
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
X86 = os.uname().machine == "x86_64"
LIMIT_S = 30
PROBES = {}
CONTEXT = json.load(sys.stdin)
NEW_USER, NEW_MOUNT = 0x10000000, 0x20000
NO_CALL = 0xFFFF
"""No kernel has a call of this number."""
DEEP = "/workspace/probes"


def call(x86, arm, *arguments):
    ctypes.set_errno(0)
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result = LIBC.syscall(ctypes.c_long(x86 if X86 else arm), *words)
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result


def attempt(act):
    try:
        return f"={act()}"
    except OSError as error:
        if isinstance(error, socket.gaierror):
            return {-2: "EAI_NONAME", -3: "EAI_AGAIN"}.get(error.errno, str(error.errno))
        return errno.errorcode.get(error.errno or 0, str(error))


def in_child(act):
    child = os.fork()
    if not child:
        try:
            act()
            os._exit(0)
        except OSError as error:
            os._exit(error.errno)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        raise OSError(0, signal.Signals(os.WTERMSIG(status)).name)
    if os.WEXITSTATUS(status):
        raise OSError(os.WEXITSTATUS(status), "refused")
    return 0


def signalled(act):
    try:
        in_child(act)
    except OSError as error:
        if error.errno == 0:
            return error.args[1]
        raise
    return "survived"


def probe(number):
    def keep(make):
        PROBES[number] = make
        return make

    return keep


def text(path):
    with open(path, "rb") as file:
        return file.read().decode("utf-8", "replace")


def write(path, content="x"):
    with open(path, "w") as file:
        file.write(content)
    return "written"


def made(name, mode=0o644):
    path = f"{DEEP}/{name}"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, mode))
    return path
