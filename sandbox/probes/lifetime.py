"""Probes of lifetime (facts/sandbox.md §2, E): daemons, killed runners, threads that end, signals.

Boundary: starts sandboxes, and runners that are killed (victim.py). Rules: nothing is left behind.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sandbox.collect import collect
from sandbox.probes.table import Seen
from sandbox.probes.trying import Site, probe, shell, spec_of, works
from sandbox.process import Supervisor
from sandbox.running import start

GONE_S = 10.0
KILL_AFTER_MS = (0, 1, 3, 6, 10, 30)


@probe(53, "A daemon outlives the program", "absent", "process-namespace", {"after": ("=0",)}, "supervisor")
def daemon(site: Site) -> Seen:
    """When the end is told, nothing of the sandbox lives."""
    mark = f"hermeval-probe-53-{os.getpid()}"
    code = f"python3 -I -S -c 'import time; time.sleep(60)' {mark}"
    ended, _, _ = shell(
        site,
        f"setsid {code} </dev/null >/dev/null 2>&1 & sleep 0.3; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c {mark} >/dev/null && exit 7",
    )
    return Seen(
        {"after": f"={len(marked(mark))}"},
        {"it was there": "=yes" if ended.exit_status == 7 else f"{ended.exit_status}"},
    )


@probe(54, "A daemon rewrites the workspace while the program ends", "held", "supervisor", {"changes": ("=0",)})
def rewriting(site: Site) -> Seen:
    """Between two looks at the collected tree nothing changes: pid 1 is dead by then."""
    changes, files = 0, 0
    for _ in range(8):

        def look(handle: int) -> tuple[object, object]:
            first = collect(handle).entries
            time.sleep(0.02)
            return first, collect(handle).entries

        _, _, found = shell(
            site, "(setsid sh -c 'n=0; while :; do n=$((n+1)); echo $n >f; done' &) ; sleep 0.05", look=look
        )
        assert isinstance(found, tuple)
        changes += found[0] != found[1]
        files += len(found[0])
    return Seen({"changes": f"={changes}"}, {"files": f"={files}" if files else "none"})


def marked(mark: str) -> list[int]:
    """Return processes with a mark among their arguments."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark.encode() in words:
                found.append(int(name))
    return found


def gone(mark: str) -> str:
    """Return ``=0`` once no process with the mark is left, or how many are after the time."""
    deadline = time.monotonic() + GONE_S
    while (left := len(marked(mark))) and time.monotonic() < deadline:
        time.sleep(0.02)
    return f"={left}"


@contextmanager
def victim(mark: str, wanted: str) -> Iterator[tuple[int, int]]:
    """Start a runner to be killed; yields its pid and the pipe that it talks on."""
    receive, send = os.pipe()
    root = str(Path(__file__).resolve().parents[2])
    argv = [sys.executable, "-P", "-m", "sandbox.probes.victim", mark, wanted]
    pid = os.posix_spawn(
        sys.executable,
        argv,
        {"PYTHONPATH": os.pathsep.join([root, *filter(None, sys.path)])},
        file_actions=[(os.POSIX_SPAWN_DUP2, send, 1), (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0)],
        setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
    )
    os.close(send)
    try:
        yield pid, receive
    finally:
        os.close(receive)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def await_word(pipe: int, word: bytes) -> None:
    """Read until a line comes. Raises OSError."""
    heard = b""
    while word not in heard:
        if not select.select([pipe], [], [], 60)[0]:
            raise OSError(errno.ETIMEDOUT, "the runner did not get so far")
        piece = os.read(pipe, 100)
        if not piece:
            raise OSError(errno.EPIPE, "the runner ended")
        heard += piece


def killed(wanted: str, word: bytes, after_ms: float, number: int) -> tuple[str, int]:
    """Kill a runner so long after its word; return what is left of its sandbox, and how many processes it had before."""
    mark = f"hermeval-probe-{os.getpid()}-{time.monotonic_ns()}"
    with victim(mark, wanted) as (pid, pipe):
        await_word(pipe, word)
        time.sleep(after_ms / 1000)
        before = len(marked(mark))
        os.kill(pid, number)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return gone(mark), before


@probe(
    55,
    "The runner is killed",
    "absent",
    "supervisor",
    {f"after {wait} ms": ("=0",) for wait in (*KILL_AFTER_MS, "500")},
    "die-with-parent",
)
def runner_killed(_: Site) -> Seen:
    """Whenever it happens, no process of the sandbox is left."""
    found = {f"after {wait} ms": killed("release", b"ready", wait, signal.SIGKILL)[0] for wait in KILL_AFTER_MS}
    found["after 500 ms"], before = killed("release", b"up", 500, signal.SIGKILL)
    return Seen(found, {"it ran": f"={before}" if before > 1 else f"{before} processes"})


@probe(
    56,
    "The runner dies while the program is held",
    "absent",
    "hold",
    {"left": ("=0",), "started": ("=0",)},
    "supervisor",
)
def dies_holding(_: Site) -> Seen:
    """The program is never released by the runner's death."""
    mark = f"hermeval-probe-{os.getpid()}-{time.monotonic_ns()}"
    with victim(mark, "hold") as (pid, pipe):
        await_word(pipe, b"up")
        before = len(marked(mark))
        os.kill(pid, signal.SIGKILL)
        started = 0
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            started = max(started, sum(name_of(one) == "python3" for one in marked(mark)) - (name_of(pid) == "python3"))
        return Seen(
            {"left": gone(mark), "started": f"={max(0, started)}"},
            {"it was held": f"={before}" if before > 1 else "no"},
        )


def name_of(pid: int) -> str:
    """Return a process's own name, or nothing."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


@probe(57, "The thread that started it ends", "held", "supervisor", {"status": ("=0",), "said": ("=later",)})
def thread_ends(site: Site) -> Seen:
    """A sandbox belongs to no thread of the runner's."""
    output, made = bytearray(), []

    def begin() -> None:
        running = start(
            Supervisor(site.host, None), spec_of("/bin/sh", "-c", "sleep 0.4; echo later"), on_stdout=output.extend
        )
        running.release()
        made.append(running)

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    with made[0] as running:
        ended = running.wait()
    assert ended is not None
    return Seen({"status": f"={ended.exit_status}", "said": f"={output.decode().strip()}"}, works(site))


@probe(60, "The CLI is stopped or killed", "held", "wall-clock", {"SIGSTOP": ("=timeout",), "SIGKILL": ("=137",)})
def stopped(site: Site) -> Seen:
    """A stopped one meets the wall clock, a killed one has that for a status; neither is an honest end."""
    stop = shell(site, "sh -c 'kill -STOP $PPID'; sleep 0.1", wall_s=0.7)[0].reason
    return Seen({"SIGSTOP": f"={stop}", "SIGKILL": f"={shell(site, 'kill -9 $$')[0].exit_status}"}, works(site))
