"""The attendant: what it answers, to whom, and that the sandbox's own filter stays the stronger one (facts/replay.md §4)."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from sandbox.determinism.parts import Parts
from sandbox.process import Supervisor, find_host
from sandbox.rootfs import HOST, read_host_rootfs
from sandbox.running import start
from sandbox.seccomp import make_filter
from sandbox.spec import RoBind
from sandbox.view import build_view
from tests.pinned.conftest import SEED, Attend

PYTHON = ("/usr/bin/python3", "-I", "-S", "-c")
NOTHING = 2166136261


def fnv(text: bytes, *, digits: bool) -> int:
    """FNV-1a, over the bytes that are no hexadecimal digits unless those count too."""
    value = NOTHING
    for byte in text:
        if digits or byte not in b"0123456789abcdef":
            value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


def stream(name: int, which: int, call: int, count: int) -> bytes:
    """The bytes of a thread's call, by the library's ChaCha20."""
    nonce = struct.pack("<4I", 0, name, which, call)
    return Cipher(algorithms.ChaCha20(bytes.fromhex(SEED), nonce), None).encryptor().update(bytes(count))


def test_uname_and_exit_status_are_told_as_given(attend: Attend) -> None:
    """The program sees the given kernel, and its exit status or signal comes out as a shell tells it."""
    ran = attend("/bin/sh", "-c", "uname -snrvm; exit 3")
    assert (ran.code, ran.out, ran.err) == (3, "Linux node 6.1.0-x #7 x86_64\n", "")
    assert attend("/bin/sh", "-c", "kill -KILL $$").code == 137


def test_bytes_are_the_stream_of_the_command_line(attend: Attend) -> None:
    """getrandom gives the documented stream: of the seed, the command line without its digits, and the number of the call; long answers are whole."""
    code = "import os; print(os.getrandom(16).hex(), os.getrandom(100000).hex())"
    ran = attend(*PYTHON, code)
    short, long = ran.out.split()
    name = fnv(b"\0".join(word.encode() for word in (*PYTHON, code)) + b"\0", digits=False)
    calls = [call for call in range(20) if stream(name, 0, call, 16).hex() == short]
    assert len(calls) == 1
    assert stream(name, 0, calls[0] + 1, 100000).hex() == long


def test_the_same_again_and_not_the_same_for_another_seed(attend: Attend) -> None:
    """Two runs give the same names and numbers; another seed gives others, and so does a second process with the same command."""
    script = "mktemp -u; mktemp -u; python3 -I -S -c 'import os, random; print(random.random(), hash(str()), os.getrandom(4))'"
    first, again = attend("/bin/sh", "-c", script), attend("/bin/sh", "-c", script)
    assert first == again
    names = first.out.splitlines()
    assert names[0] != names[1]
    other = attend("/bin/sh", "-c", script, seed="f" * 64)
    assert not set(other.out.splitlines()) & set(names)


def test_threads_do_not_disturb_each_other(attend: Attend) -> None:
    """What the first thread draws does not depend on what others draw meanwhile."""
    code = "import os, sys, threading\n" + (
        "others = [threading.Thread(target=lambda: [os.getrandom(8) for _ in range(%d)]) for _ in range(3)]\n"
        "[other.start() for other in others]\nprint([os.getrandom(8).hex() for _ in range(20)])\n[other.join() for other in others]"
    )
    quiet, busy = attend(*PYTHON, code % 0), attend(*PYTHON, code % 99)
    assert quiet.out
    assert quiet.out == busy.out


def test_wrong_calls_get_the_kernels_errors(attend: Attend) -> None:
    """Unknown flags are EINVAL, a bad address is EFAULT, no bytes are none; a good call in between works."""
    code = (
        "import ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\nroom = ctypes.create_string_buffer(8)\n"
        "def call(*words):\n    value = libc.syscall(*words)\n    return value if value >= 0 else errno.errorcode[ctypes.get_errno()]\n"
        "import os\nnumber, uname = {'x86_64': (318, 63), 'aarch64': (278, 160)}[os.uname().machine]\n"
        "print(call(number, room, 8, 99), call(number, ctypes.c_void_p(1), 8, 0), call(number, room, 8, 0), call(number, room, 0, 0), call(uname, ctypes.c_void_p(1)))"
    )
    assert attend(*PYTHON, code).out == "EINVAL EFAULT 8 0 EFAULT\n"


def test_one_processor(attend: Attend) -> None:
    """The program and what it starts have one processor, so that the order of draws is the same."""
    assert attend("/bin/sh", "-c", "nproc; python3 -c 'import os; print(len(os.sched_getaffinity(0)))'").out == "1\n1\n"


def test_orphans_are_still_answered(attend: Attend) -> None:
    """A process whose parent is gone draws and hears uname like any other; the attendant ends with the program."""
    script = "(setsid sh -c 'sleep 0.2; uname -r; mktemp -u' &); sleep 0.6; echo end"
    assert attend("/bin/sh", "-c", script).out.splitlines()[::2] == ["6.1.0-x", "end"]


@pytest.mark.parametrize("arguments", [(), ("x", "r", "v", "m", "n", "/bin/true"), ("0" * 64, "r", "v", "m", "n")])
def test_a_wrong_start_is_the_attendants_own_failure(parts: Parts, arguments: tuple[str, ...]) -> None:
    """Without a seed or a program the attendant says how it is started, with its own exit status; so it does for a program that is missing."""
    done = subprocess.run([str(parts.attend), *arguments], capture_output=True, check=False)
    assert done.returncode == 125
    assert done.stderr.startswith(b"hermeval pinned: ")


def test_a_missing_program_is_said(attend: Attend) -> None:
    """A program that cannot be started is told as the attendant's failure."""
    ran = attend("/nonexistent")
    assert (ran.code, ran.err) == (125, "hermeval pinned: /nonexistent: No such file or directory\n")


def test_nothing_waits_for_an_attendant_that_died(parts: Parts) -> None:
    """The program ends with its attendant, and what it started gets an error instead of an answer that never comes."""
    ask = "import os, sys, time\nfor _ in range(3000):\n    try: os.getrandom(8)\n    except OSError as error: sys.exit(print(error.errno, flush=True))\n    time.sleep(0.01)\n"
    script = f"echo ready; /usr/bin/python3 -I -S -c '{ask}'; echo more"
    argv = [str(parts.attend), SEED, "r", "v", "m", "n", "/bin/sh", "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as attendant:
        assert attendant.stdout is not None
        assert attendant.stdout.readline() == "ready\n"
        attendant.kill()
        assert attendant.stdout.read().split() in (["38"], [])  # ENOSYS; nothing where it was not yet there


Inside = Callable[..., tuple[int | None, str, str]]


@pytest.fixture
def inside(parts: Parts) -> Inside:
    """Run a shell script in a sandbox with the deny filter, under the attendant or without it."""

    def run(script: str, *, pinned: bool = True) -> tuple[int | None, str, str]:
        program = ("/opt/attend", SEED, "6.1.0-x", "#7", "x86_64", "eval") if pinned else ()
        spec = build_view(
            rootfs=HOST,
            system=read_host_rootfs(),
            argv=(*program, "/bin/sh", "-c", script),
            env={"PATH": "/usr/bin:/bin", "HOME": "/home/eval"},
            binds=(RoBind(source="@attend", target="/opt/attend"),),
            seccomp=make_filter(os.uname().machine),
        )
        output = bytearray()
        with start(
            Supervisor(find_host(), None),
            spec,
            on_stdout=output.extend,
            wall_clock_s=60,
            sources={"attend": parts.attend},
        ) as running:
            running.release()
            ended = running.wait()
        assert ended is not None
        return ended.exit_status, output.decode(), ended.stderr.decode()

    return run


def test_the_deny_filter_holds_under_the_attendant(inside: Inside) -> None:
    """What the sandbox refuses is refused under the attendant with the same errors, for the program and for the attendant, which has both filters below it or above."""
    code = (
        "import ctypes, errno, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "def call(name, *words):\n    value = getattr(libc, name)(*words)\n    return errno.errorcode[ctypes.get_errno()] if value < 0 else value\n"
        "print(call('unshare', 0x10000000), call('ptrace', 16, os.getppid(), 0, 0), call('mount', b'a', b'/tmp', b'tmpfs', 0, None), call('personality', 0x40000), call('socket', 38, 5, 0))"
    )
    script = f'python3 -I -S -c "{code}"; grep Seccomp_filters /proc/self/status'
    free, pinned = inside(script, pinned=False), inside(script)
    errors = "EPERM EPERM EPERM EPERM EAFNOSUPPORT"
    assert free[1].splitlines() == [errors, "Seccomp_filters:\t1"]
    assert pinned[1].splitlines() == [errors, "Seccomp_filters:\t2"]


def test_the_program_cannot_reach_into_the_attendant(inside: Inside) -> None:
    """The attendant's memory and descriptors are closed to the program, which has the same uid; its own are open to it."""
    script = "for p in $PPID $$; do (: </proc/$p/mem) 2>/dev/null && echo open || echo closed; ls /proc/$p/fd >/dev/null 2>&1 && echo seen || echo hidden; done"
    assert inside(script)[1].split() == ["closed", "hidden", "open", "seen"]


def test_a_process_that_cannot_be_written_to_is_answered_by_the_kernel(inside: Inside) -> None:
    """A process that made itself undumpable works with the kernel's own answers, and stderr says that it did."""
    code = "import ctypes, os; ctypes.CDLL(None).prctl(4, 0); print(len(os.getrandom(16)), os.uname().release != '6.1.0-x')"
    status, out, err = inside(f'python3 -I -S -c "{code}"')
    assert (status, out) == (0, "16 True\n")
    assert "hermeval pinned: a process was answered by the kernel itself" in err


def test_the_chacha_of_the_library_is_the_one_of_the_standard() -> None:
    """The reference stream is RFC 8439's (test vector 2.4.2), so that the attendant's is too."""
    key, nonce = bytes(range(32)), bytes.fromhex("01000000000000000000004a00000000")
    block = Cipher(algorithms.ChaCha20(key, nonce), None).encryptor().update(bytes(16))
    assert block.hex() == "224f51f3401bd9e12fde276fb8631ded"
