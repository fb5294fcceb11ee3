"""The program that doctor runs inside a sandbox, and what it must have seen.

Boundary: pure; ``PROBE`` is text, run inside by /usr/bin/python3. Not here: starting it (doctor.py). Rules: it prints one ``name value`` line for each thing it tried; with the argument ``keyring`` only that one, so that
doctor can ask the same outside.
"""

from __future__ import annotations

from collections.abc import Mapping

PROBE = r"""
import ctypes, os, socket, subprocess, sys

def tell(name, attempt):
    try:
        print(name, attempt())
    except OSError as error:
        print(name, "errno", error.errno)

def ask(port):
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        return connection.recv(100).decode()

def write(path):
    with open(path, "w") as file:
        file.write("x")
    return "written"

def keyring():
    libc = ctypes.CDLL(None, use_errno=True)
    number = {"x86_64": 250, "aarch64": 219}[os.uname().machine]
    serial = libc.syscall(number, 0, -3, 0)
    if serial < 0:
        raise OSError(ctypes.get_errno(), "keyctl")
    return serial

tell("keyring", keyring)
if sys.argv[1:] == ["keyring"]:
    sys.exit()
tell("ids", lambda: f"{os.getuid()} {os.getgid()} {os.uname().nodename}")
tell("cwd", os.getcwd)
for path in ("/x", "/dev/x", "/etc/x", "/usr/x", "/opt/x"):
    tell("write" + path, lambda: write(path))
for path in ("/workspace/x", "/home/eval/x", "/tmp/x", "/dev/shm/x"):
    tell("write" + path, lambda: write(path))
tell("devices", lambda: len(open("/dev/urandom", "rb").read(8)) + open("/dev/null", "w").write("x"))
tell("descriptors", lambda: " ".join(sorted(set(os.listdir("/proc/self/fd")) - {"3"})))
tell("interfaces", lambda: " ".join(line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]))
tell("routes", lambda: len(open("/proc/net/route").readlines()) - 1)
tell("allowed", lambda: ask(443))
tell("refused", lambda: ask(444))
tell("outside", lambda: socket.create_connection(("192.0.2.1", 443), 5))
tell("staged", lambda: subprocess.run(["/opt/probe/script"], capture_output=True, text=True).stdout.strip())
tell("staged-write", lambda: write("/opt/probe/x"))
"""

_READ_ONLY = ("errno 30", "errno 13")
_EXPECTED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "inside": {
        "ids": ("1000 1000 eval",),
        "cwd": ("/workspace",),
        **{f"write{path}": _READ_ONLY for path in ("/x", "/dev/x", "/etc/x", "/usr/x")},
        **{f"write{path}": ("written",) for path in ("/workspace/x", "/home/eval/x", "/tmp/x", "/dev/shm/x")},  # noqa: S108 - inside
        "devices": ("9",),
        "descriptors": ("0 1 2",),
    },
    "network": {
        "interfaces": ("lo",),
        "routes": ("0",),
        "allowed": ("answer",),
        "refused": ("errno 111",),
        "outside": ("errno 101",),
    },
    "staging": {"staged": ("ran",), "staged-write": _READ_ONLY},
}


def expect(group: str, facts: Mapping[str, str]) -> list[str]:
    """Return what the probe saw that is not as it must be, a phrase each."""
    wrong = []
    for name, allowed in _EXPECTED[group].items():
        seen = facts.get(name, "nothing")
        if seen not in allowed:
            wrong.append(f"{name} is {seen!r} and not {allowed[0]!r}")
    return wrong
