"""Probes of network, resources, lifetime and skill tree (facts/sandbox.md §2, B, D, E, G). Part of program.py: run inside, never imported."""

# ruff: noqa: PTH123, S103, S108, TID251 - a hostile program is short and blunt
# mypy: ignore-errors

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import time

from tools import CONTEXT, DEEP, LIBC, call, in_child, made, probe, text, write


@probe(24)
def _network():
    def connect(family, address):
        with socket.socket(family) as one:
            one.settimeout(5)
            one.connect(address)

    def datagram():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.sendto(b"x", ("192.0.2.1", 53))

    return {
        "abstract socket": lambda: connect(socket.AF_UNIX, "\0" + CONTEXT["abstract"]),
        "loopback": lambda: connect(socket.AF_INET, ("127.0.0.1", CONTEXT["loopback"])),
        "UDP 53": datagram,
        "getaddrinfo": lambda: socket.getaddrinfo("example.com", 443),
    }, {"the one port": lambda: connect(socket.AF_INET, ("127.0.0.1", CONTEXT["port"]))}


@probe(25)
def _vsock():
    return {"vsock": lambda: socket.socket(40, socket.SOCK_STREAM)}, {"unix": lambda: socket.socket(1).close()}


@probe(26)
def _families():
    kinds = {
        "packet": (17, 3),
        "xdp": (44, 3),
        "alg": (38, 5),
        "bluetooth": (31, 3),
        "a new family": (64, 1),
        "raw": (2, 3, 1),
    }
    return {name: lambda kind=kind: socket.socket(*kind).close() for name, kind in kinds.items()}, {
        "inet": lambda: socket.socket(2, 1).close()
    }


@probe(28)
def _sockets_of_services():
    places = [
        "/nix/var/nix/daemon-socket/socket",
        "/run/docker.sock",
        "/var/run/docker.sock",
        "/run/user",
        "/run/dbus/system_bus_socket",
    ]
    places += [place for place in CONTEXT["agents"] if place]
    return {"visible": lambda: [place for place in places if os.path.lexists(place)]}, {
        "/usr": lambda: os.path.lexists("/usr") or 1 / 0
    }


@probe(29)
def _rebind():
    def bind(port, reuse):
        with socket.socket() as one:
            if reuse:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            one.bind(("127.0.0.1", port))
            one.listen()

    return {"bind": lambda: bind(CONTEXT["port"], False), "SO_REUSEPORT": lambda: bind(CONTEXT["port"], True)}, {
        "another port": lambda: bind(CONTEXT["port"] + 1, True)
    }


@probe(30)
def _lock():
    def lock():
        with open("/opt/staged/file") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            write(f"{DEEP}/locked")
            time.sleep(0.2)

    return {"flock": lock}, {"read": lambda: text("/opt/staged/file")}


@probe(32)
def _ipc():
    return {
        "SysV shm": lambda: call(29, 194, CONTEXT["shm_key"], 0, 0),
        "SysV list": lambda: len(text("/proc/sysvipc/shm").splitlines()) - 1,
        "mq": lambda: call(240, 180, b"hermeval-probe-none", 0, 0, 0),
    }, {"own shm": lambda: call(31, 195, call(29, 194, 0, 4096, 0o1600), 0, 0)}


@probe(46)
def _fork_bomb():
    def bomb():
        children = []
        try:
            while len(children) < 5000:
                child = os.fork()
                if not child:
                    time.sleep(60)
                    os._exit(0)
                children.append(child)
        finally:
            for child in children:
                os.kill(child, 9)
            for child in children:
                os.waitpid(child, 0)

    return {"5000 processes": bomb}, {"one": lambda: in_child(lambda: None)}


@probe(48)
def _fill():
    def fill(place):
        path, piece = f"{place}/big", bytes(1 << 20)
        try:
            with open(path, "wb", buffering=0) as file:
                for _ in range(CONTEXT["most_mib"] + 8):
                    if file.write(piece) < len(piece):
                        file.write(piece)
        finally:
            os.unlink(path)

    places = {"/dev/shm": "/dev/shm", "/tmp": "/tmp", "home": "/home/eval", "/workspace": "/workspace"}
    return {name: lambda place=place: fill(place) for name, place in places.items()}, {
        f"a little in {place}": lambda place=place: write(f"{place}/x") for place in places.values()
    }


@probe(49)
def _huge_file():
    path = made("huge")
    return {"truncate": lambda: os.truncate(path, 1 << 40)}, {"truncate": lambda: os.truncate(path, 1 << 20)}


@probe(52)
def _kernel_budgets():
    def opened():
        held = []
        try:
            while len(held) < 100_000:
                held.append(os.open("/dev/null", os.O_RDONLY))
        finally:
            for one in held:
                os.close(one)

    def real_time():
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))

    def lock_memory():
        size = 1 << 30
        import mmap

        room = mmap.mmap(-1, size)
        address = ctypes.addressof(ctypes.c_char.from_buffer(room))
        if LIBC.mlock(ctypes.c_void_p(address), ctypes.c_size_t(size)):
            raise OSError(ctypes.get_errno(), "mlock")

    return {
        "descriptors": opened,
        "mlock": lock_memory,
        "real time": real_time,
        "nice": lambda: os.setpriority(os.PRIO_PROCESS, 0, -5),
    }, {"nice": lambda: in_child(lambda: os.nice(1))}


@probe(58)
def _forge_status():
    def steal():
        return call(438, 438, os.pidfd_open(1), 3, 0)

    def write_to_all():
        for number in os.listdir("/proc/1/fd"):
            if "eventfd" not in os.readlink(f"/proc/1/fd/{number}"):
                continue
            os.write(os.open(f"/proc/1/fd/{number}", os.O_WRONLY), struct.pack("Q", 1))

    def open_memory(path):
        with open(path, "r+b", buffering=0) as memory:
            return memory.fileno()

    return {
        "pidfd_getfd": steal,
        "/proc/1/fd": write_to_all,
        "memory": lambda: open_memory("/proc/1/mem"),
        "memory of its thread": lambda: open_memory("/proc/1/task/1/mem"),
    }, {
        "own descriptors": lambda: len(os.listdir("/proc/self/fd")),
        "own memory": lambda: open_memory("/proc/self/mem"),
    }


@probe(59)
def _forge_transcript():
    def started(program):
        child = subprocess.Popen([program, "20"], stdout=subprocess.PIPE)
        time.sleep(0.1)
        return child

    quiet, plain = started("/opt/quiet"), started("/usr/bin/sleep")

    def into(child, name):
        with open(f"/proc/{child.pid}/{name}", "r+b" if name == "mem" else "wb") as file:
            return len(file.read(0)) if name == "mem" else file.write(b'{"type":"result"}\n')

    return {
        "stdout": lambda: into(quiet, "fd/1"),
        "memory": lambda: into(quiet, "mem"),
        "pidfd_getfd": lambda: call(438, 438, os.pidfd_open(quiet.pid), 1, 0),
    }, {"stdout of another": lambda: into(plain, "fd/1"), "it runs": lambda: quiet.poll() is None or 1 / 0}


@probe(74)
def _skill_tree():
    place = "/opt/staged"
    return {
        "write": lambda: write(f"{place}/file"),
        "create": lambda: write(f"{place}/new"),
        "chmod": lambda: os.chmod(f"{place}/file", 0o777),
        "utime": lambda: os.utime(f"{place}/file", (1, 1)),
        "rename": lambda: os.rename(f"{place}/file", f"{place}/other"),
        "unlink": lambda: os.unlink(f"{place}/file"),
    }, {"read": lambda: text(f"{place}/file")}
