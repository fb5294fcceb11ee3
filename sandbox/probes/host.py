"""Probes of the host's boundary (facts/sandbox.md §2, A). Part of program.py: run inside, never imported."""

# ruff: noqa: D103, S103, S108, TID251 - a hostile program is short and blunt
# mypy: ignore-errors

import ctypes
import fcntl
import os
import signal
import socket
import struct
import time

from tools import CONTEXT, DEEP, NEW_MOUNT, NEW_USER, NO_CALL, X86, call, in_child, made, probe, signalled, text, write


@probe(1)
def _core_pattern():
    pattern = "/proc/sys/kernel/core_pattern"
    return {"write": lambda: write(pattern, text(pattern))}, {"read": lambda: len(text(pattern))}


@probe(2)
def _remount():
    flags = 32 | 4096  # MS_REMOUNT, MS_BIND
    return {
        "remount": lambda: call(165, 40, b"none", b"/usr", None, flags, None),
        "umount": lambda: call(166, 39, b"/usr", 2),
    }, {"is read-only": lambda: os.statvfs("/usr").f_flag & os.ST_RDONLY}


@probe(3)
def _set_id():
    path = made("plain", 0o755)
    return {
        "chmod": lambda: os.chmod(path, 0o6755),
        "open": lambda: os.open(f"{DEEP}/new", os.O_CREAT | os.O_WRONLY, 0o4755),
        "fchmodat2": lambda: call(452, 452, -100, path.encode(), 0o4755, 0),
        "mknod": lambda: os.mknod(f"{DEEP}/node", 0o104755),
        "openat2": lambda: call(437, 437, -100, f"{DEEP}/new2".encode(), struct.pack("3Q", 0o101, 0o4755, 0), 24),
    }, {"chmod": lambda: os.chmod(path, 0o755), "mkfifo": lambda: os.mkfifo(f"{DEEP}/fifo3")}


@probe(4)
def _user_namespace():
    return {
        "unshare": lambda: in_child(lambda: call(272, 97, NEW_USER | NEW_MOUNT)),
        "clone": lambda: in_child(clone),
    }, {"fork": lambda: in_child(lambda: None)}


def clone():
    child = call(56, 220, NEW_USER | signal.SIGCHLD, 0, 0, 0, 0)
    if child:
        os.waitpid(child, 0)
    os._exit(0)


@probe(5)
def _mount_interface():
    return {
        "clone3": lambda: call(435, 435, 0, 0),
        "setns": lambda: call(308, 268, 0, 0),
        "open_tree": lambda: call(428, 428, -100, b"/", 0),
        "fsopen": lambda: call(430, 430, b"tmpfs", 0),
        "mount_setattr": lambda: call(442, 442, -100, b"/", 0, 0, 0),
    }, {"threads": threads}


def threads():
    import _thread

    lock = _thread.allocate_lock()
    lock.acquire()
    _thread.start_new_thread(lock.release, ())
    return lock.acquire(timeout=5)


@probe(9)
def _environment():
    def search():
        found = [pid for pid in os.listdir("/proc") if pid.isdigit() and CONTEXT["canary"] in readable(pid, "environ")]
        return len(found)

    return {"pid 1": lambda: readable(1, "environ"), "canary": search}, {"own": lambda: os.environ["PROBE_MARK"]}


def readable(pid, name):
    try:
        return text(f"/proc/{pid}/{name}")
    except OSError:
        return ""


@probe(10)
def _host_paths():
    def search(name):
        found = readable("1", name) + readable("self", name)
        return [needle for needle in CONTEXT["needles"] if needle in found]

    def options():
        return [
            word for word in ("--bind", "--ro-bind", "--unshare-user") if word in readable("1", "cmdline").split("\0")
        ]

    found = {"cmdline": lambda: search("cmdline"), "options": options, "mountinfo": lambda: search("mountinfo")}
    return found, {"mountinfo": lambda: "/workspace" in text("/proc/self/mountinfo") or 1 / 0}


@probe(11)
def _telling_files():
    told = ("cmdline", "version", "keys", "key-users", "kallsyms", "modules", "sys/kernel/random/boot_id")
    names = {*told, *CONTEXT["masks"]}

    def lengths():
        return sum(len(text(f"/proc/{name}")) for name in names if os.path.exists(f"/proc/{name}"))

    return {"files": lengths, "host name": lambda: os.uname().nodename}, {"uptime": lambda: len(text("/proc/uptime"))}


@probe(12)
def _keys():
    return {
        "keyctl": lambda: call(250, 219, 0, -3, 0),
        "search": lambda: call(250, 219, 10, -3, b"user", b"probe", 0),
        "add_key": lambda: call(248, 217, b"user", b"probe", b"x", 1, -3),
    }, {"getpid": lambda: call(39, 172)}


@probe(13)
def _descriptors():
    def others():
        return sorted(set(CONTEXT["opened"]) - {"0", "1", "2"})

    def climb():
        climbed = []
        for number in (0, 1, 2):
            try:
                climbed.append(os.open("..", os.O_RDONLY, dir_fd=number))
            except NotADirectoryError:
                continue
        return climbed

    return {"listed": others, "climbed": climb}, {"a directory": lambda: os.close(os.open("/", os.O_RDONLY))}


@probe(14)
def _ptrace():
    return {"attach": lambda: call(101, 117, 16, 1, 0, 0), "seize": lambda: call(101, 117, 0x4206, 1, 0, 0)}, {
        "getppid": lambda: call(110, 173)
    }


@probe(15)
def _kill_first():
    def alive(number):
        """Whether pid 1 goes on with its work, which is to take the dead that nobody else waits for."""
        os.kill(1, number)
        time.sleep(0.05)
        orphan = orphaned()
        for _ in range(200):
            try:
                os.kill(orphan, 0)
            except ProcessLookupError:
                return True
            time.sleep(0.01)
        return False

    return {"SIGKILL": lambda: alive(9), "SIGSTOP": lambda: alive(19)}, {
        "own child": lambda: signalled(lambda: os.kill(os.getpid(), 9))
    }


def orphaned():
    """Return the pid of a process that has ended, and whose parent is gone."""
    reading, writing = os.pipe()
    middle = os.fork()
    if not middle:
        orphan = os.fork()
        if orphan:
            os.write(writing, struct.pack("i", orphan))
        os._exit(0)
    os.waitpid(middle, 0)
    said = os.read(reading, 4)
    os.close(reading)
    os.close(writing)
    return struct.unpack("i", said)[0]


@probe(17)
def _terminal():
    def push():
        fcntl.ioctl(0, 0x5412, b"x")

    return {"TIOCSTI": push, "/dev/tty": lambda: os.open("/dev/tty", os.O_RDWR)}, {"a terminal of its own": pty}


def pty():
    first, second = os.openpty()
    os.close(first)
    os.close(second)


@probe(18)
def _high_bits():
    _, terminal = os.openpty()
    wide = ctypes.create_string_buffer(64)
    return {
        "TIOCSTI": lambda: call(16, 29, terminal, 0x5412, wide),
        "TIOCSTI, wide": lambda: call(16, 29, terminal, 0x100005412, wide),
        "TIOCLINUX": lambda: call(16, 29, terminal, 0x541C, wide),
        "TIOCLINUX, wide": lambda: call(16, 29, terminal, 0x10000541C, wide),
    }, {"TCGETS": lambda: call(16, 29, terminal, 0x5401, wide)}


@probe(19)
def _privileged():
    return {
        "mknod": lambda: os.mknod(f"{DEEP}/mem", 0o020600, os.makedev(1, 1)),
        "setuid": lambda: os.setuid(0),
        "sethostname": lambda: socket.sethostname("x"),
        "chroot": lambda: os.chroot("/tmp"),
        "pivot_root": lambda: call(155, 41, b"/tmp", b"/tmp"),
    }, {"mkfifo": lambda: os.mkfifo(f"{DEEP}/fifo19")}


@probe(20)
def _interfaces():
    attempts = {
        "io_uring_setup": lambda: call(425, 425, 1, ctypes.create_string_buffer(256)),
        "userfaultfd": lambda: call(323, 282, 1),
        "perf_event_open": lambda: call(298, 241, ctypes.create_string_buffer(128), 0, -1, -1, 0),
        "bpf": lambda: call(321, 280, 0, 0, 0),
        "kcmp": lambda: call(312, 272, 1, os.getpid(), 0, 0, 0),
        "process_vm_readv": lambda: call(310, 270, 1, 0, 0, 0, 0, 0),
        "personality": lambda: call(135, 92, 0x0040000),
    }
    attempts["modify_ldt"] = lambda: call(154, NO_CALL, 0, ctypes.create_string_buffer(16), 16)
    return attempts, {"personality": lambda: call(135, 92, -1)}


@probe(21)
def _foreign_calls():
    return {
        "x32": lambda: signalled(lambda: call(0x40000000 + 39, 0x40000000 + 39)),
        "int 0x80": lambda: signalled(other_gate),
    }, {"native": native}


def other_gate():
    """Ask for getpid by the 32-bit calls' own instruction, which a program of 64 bits has too; another processor has no such instruction."""
    return machine_code(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3") if X86 else call(0, NO_CALL)


def native():
    return machine_code(b"\xb8\x27\x00\x00\x00\x0f\x05\xc3") if X86 else call(39, 172)


def machine_code(code):
    import mmap

    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()


@probe(22)
def _kernel_files():
    return {
        "/sys": lambda: os.listdir("/sys"),
        "/run": lambda: os.listdir("/run"),
        "/dev/kmsg": lambda: os.open("/dev/kmsg", os.O_RDONLY),
        "sysrq": lambda: write("/proc/sysrq-trigger", "h"),
        "syslog": lambda: call(103, 116, 3, ctypes.create_string_buffer(64), 64),
    }, {"/dev/null": lambda: write("/dev/null")}


@probe(23)
def _system():
    def room():
        facts = os.statvfs("/dev/shm")
        return facts.f_blocks * facts.f_frsize <= 64 << 20

    return {
        "/": lambda: write("/x"),
        "/dev": lambda: write("/dev/x"),
        "/usr": lambda: write("/usr/x"),
        "/dev/shm": room,
    }, {
        "/workspace": lambda: write(f"{DEEP}/x"),
        "/dev/shm": lambda: write("/dev/shm/x"),
    }
