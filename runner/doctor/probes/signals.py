"""Probe 61: a command that has sandboxes gets signals.

Boundary: starts this very program (``hermeval doctor --probes``, whose first sandbox lives for seconds, and which is never let to come to this probe) and looks at its processes. Not here: a runner that is killed (sandbox/probes/lifetime.py).
Rules: nothing is left behind; what lives after its time is ended here.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess  # noqa: TID251 - the command is tried as a process
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sandbox.probes.table import Probe, Seen
from sandbox.probes.trying import Site, Try
from sandbox.procfs import parent_of

GONE_S = 20.0
UP_S = 60.0
BWRAPS = 2
"""A sandbox has two processes of that name at first: the one outside, and the one that becomes its pid 1."""
PROGRAM = ("-m", "runner.cli")
HEARING = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""What whoever started this command ignores (nohup), the command leaves ignored: the one that is signalled here must hear."""
SIGNALS: dict[str, tuple[int, ...]] = {
    "SIGINT": (signal.SIGINT,),
    "SIGTERM": (signal.SIGTERM,),
    "SIGHUP": (signal.SIGHUP,),
    "SIGINT twice": (signal.SIGINT, signal.SIGINT),
}
SEEN: list[tuple[Probe, Try]] = []
ENDED = "=2, told once, 0 left"


def family(pid: int) -> list[int]:
    """Return everything that came from a process, by one look at all."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            children.setdefault(parent_of(int(name)), []).append(int(name))
    found = list(children.get(pid, ()))
    for one in found:
        found += children.get(one, ())
    return found


def staging_of(pids: Sequence[int]) -> list[Path]:
    """Return the private directories that supervisors among the processes answer for."""
    found = []
    for pid in pids:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        found += [Path(os.fsdecode(word)) for word in words if b"/hermeval-" in word and not word.endswith(b".py")]
    return found


def signalled(numbers: Sequence[int], runtime: Path | None) -> tuple[str, int]:
    """Start the command, signal it once a sandbox of it is up, and return what it came to and how many processes it had."""
    root = str(Path(__file__).resolve().parents[3])
    environment = {"PYTHONPATH": os.pathsep.join([root, *filter(None, sys.path)]), "PATH": "/usr/bin:/bin", "HOME": "/"}
    if sys.pycache_prefix is not None:
        environment["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    if runtime is not None:
        environment["XDG_RUNTIME_DIR"] = str(runtime)
    with subprocess.Popen(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            HEARING,
            sys.executable,
            "-B",
            "-P",
            *PROGRAM,
            "doctor",
            "--probes",
            "--json",
        ],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        pidfds: dict[int, int] = {}
        try:
            pids = await_sandbox(process)
            places = staging_of(pids)
            pidfds = {pid: descriptor for pid in pids if (descriptor := opened(pid)) >= 0}
            for number in numbers:
                process.send_signal(number)
            out, errors = process.communicate(timeout=GONE_S + 40)
            left = still_there(list(pidfds.values())) + sum(path.exists() for path in places)
            said = errors.count(b"error[interrupted]")
            once = "told once" if said == 1 and answers(out) == 1 else f"told {said} times, {answers(out)} objects"
            return f"={process.returncode}, {once}, {left} left", len(pids)
        finally:
            process.kill()
            for descriptor in pidfds.values():
                end(descriptor)


def opened(pid: int) -> int:
    """Return a handle of a process, or -1 where it is gone."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return -1


def end(descriptor: int) -> None:
    """End what lives still, and close the handle."""
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    finally:
        os.close(descriptor)


def await_sandbox(process: subprocess.Popen[bytes]) -> list[int]:
    """Wait until a bubblewrap of the command runs; return all its processes. Raises: OSError."""
    deadline = time.monotonic() + UP_S
    while time.monotonic() < deadline and process.poll() is None:
        pids = family(process.pid)
        if sum(name_of(pid) == "bwrap" for pid in pids) >= BWRAPS:
            return pids
        time.sleep(0.01)
    raise OSError(f"no sandbox of the command came up; it ended with {process.poll()}")


def name_of(pid: int) -> str:
    """Return a process's own name, or nothing."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def still_there(pidfds: list[int]) -> int:
    """Return how many processes live after their time."""
    deadline = time.monotonic() + GONE_S
    return sum(not select.select([one], [], [], max(0.0, deadline - time.monotonic()))[0] for one in pidfds)


def answers(out: bytes) -> int:
    """Return how many JSON objects of an interrupted command were printed."""
    lines = [line for line in out.splitlines() if line.strip()]
    return sum(json.loads(line).get("error", {}).get("code") == "interrupted" for line in lines)


def act(site: Site) -> Seen:
    """Each signal ends it in good order and in exit status 2, which is this program's for every interrupt; a second one changes nothing."""
    with ThreadPoolExecutor(len(SIGNALS)) as pool:
        came = dict(
            zip(SIGNALS, pool.map(lambda numbers: signalled(numbers, site.runtime_dir), SIGNALS.values()), strict=True)
        )
    had = min(number for _, number in came.values())
    return Seen(
        {name: ended for name, (ended, _) in came.items()},
        {"it had processes": f"={had}" if had > BWRAPS else f"{had}"},
    )


SEEN.append(
    (
        Probe(
            61,
            "The runner gets a signal",
            "host",
            "absent",
            "supervisor",
            dict.fromkeys(SIGNALS, (ENDED,)),
            ("signals",),
        ),
        act,
    )
)
