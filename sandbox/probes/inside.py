"""Run the hostile program in a real sandbox and take in what it came to.

Boundary: starts sandboxes; makes a listener, an abstract socket and a shared memory segment on the host for the program to look for. Not here: what must come of it (table.py).
Rules: the sandbox is the fixed view with the filter, the one that agents get, with a staged folder and an execute-only program beside it. ``change`` is for tests that turn a layer off.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.probes.table import INSIDE, Result, Seen, judge_all
from sandbox.process import Host, supervise
from sandbox.rootfs import find_rootfs
from sandbox.running import start
from sandbox.seccomp import own_filter
from sandbox.spec import File, Proc, RoBind, SandboxSpec
from sandbox.view import HOME_BYTES, TMP_BYTES, WORKSPACE_BYTES, build_view

PROGRAM = "program.py"
PARTS = (PROGRAM, "tools.py", "host.py", "further.py")
HERE = Path(__file__).resolve().parent
PORT = 8080
CANARY = "hermeval-probe-canary"
WALL_S = 240.0


def examine_inside(
    host: Host,
    *,
    runtime_dir: Path | None = None,
    numbers: Sequence[int] = (),
    change: Callable[[SandboxSpec], SandboxSpec] = lambda spec: spec,
    agents: Sequence[str] = (),
) -> list[Result]:
    """Try the probes of program.py (all, or those of ``numbers``). ``agents`` are socket paths of the caller's own session. Raises nothing: what fails is a hole."""
    probes = [probe for probe in INSIDE if not numbers or probe.number in numbers]
    try:
        with targets() as context:
            context |= {"numbers": [probe.number for probe in probes], "agents": list(agents)}
            context |= {"masks": Proc().masks, "most_mib": max(HOME_BYTES, TMP_BYTES, WORKSPACE_BYTES) >> 20}
            seen = run_program(host, context, runtime_dir, change)
    except (SandboxError, OSError) as error:
        seen = {probe.number: Seen(failure=str(error)) for probe in probes}
    for probe in probes:
        stray = seen[probe.number].attempts.keys() - probe.expects.keys() if probe.number in seen else set()
        if stray:
            seen[probe.number].failure = f"nothing says what must come of {', '.join(sorted(stray))}"
    return judge_all(probes, seen)


@contextlib.contextmanager
def targets() -> Iterator[dict[str, object]]:
    """Make things on the host that the program must not find; each is tried from outside first. Yields what the program is told."""
    name = f"hermeval-probe-{os.getpid()}"
    with (
        socket.socket(socket.AF_UNIX) as abstract,
        socket.create_server(("127.0.0.1", 0)) as loopback,
        shared_memory() as key,
    ):
        abstract.bind("\0" + name)
        abstract.listen()
        port = loopback.getsockname()[1]
        for family, address in ((socket.AF_UNIX, "\0" + name), (socket.AF_INET, ("127.0.0.1", port))):
            with socket.socket(family) as control:
                control.connect(address)
        yield {
            "canary": CANARY,
            "needles": [str(Path.home()) if Path.home() != Path("/root") else "/root", str(HERE.parents[1])],
            "abstract": name,
            "loopback": port,
            "port": PORT,
            "shm_key": key,
        }


@contextlib.contextmanager
def shared_memory() -> Iterator[int]:
    """Make a SysV segment; yields its key."""
    libc, key = ctypes.CDLL(None, use_errno=True), 0x48000000 | os.getpid()
    segment = libc.shmget(key, 4096, 0o1600 | 0o66)
    if segment < 0:
        raise OSError(ctypes.get_errno(), "shmget")
    try:
        yield key
    finally:
        libc.shmctl(segment, 0, None)


def run_program(
    host: Host, context: Mapping[str, object], runtime_dir: Path | None, change: Callable[[SandboxSpec], SandboxSpec]
) -> dict[int, Seen]:
    """Run the program; return what each probe came to. Raises: SandboxError, OSError."""
    output = bytearray()
    with supervise(host, runtime_dir=runtime_dir) as supervisor:
        staged, quiet = supervisor.staging / "staged", supervisor.staging / "quiet"
        staged.mkdir(mode=0o755)
        (staged / "file").write_text("staged\n", encoding="ascii")
        (staged / "file").chmod(0o644)
        shutil.copyfile("/usr/bin/sleep", quiet)
        quiet.chmod(0o111)
        spec = change(probe_spec())
        sources = {"staged": staged, "quiet": quiet}
        with start(
            supervisor,
            spec,
            stdin=json.dumps(context).encode(),
            on_stdout=output.extend,
            sources=sources,
            wall_clock_s=WALL_S,
        ) as running:
            server = threading.Thread(target=accept, args=(running.listener,), daemon=True)
            server.start()
            running.release()
            ended = running.wait()
            if running.listener is not None:
                running.listener.shutdown(socket.SHUT_RDWR)
            server.join(5)
    lines = output.decode("utf-8", "replace").splitlines()
    if not lines or lines[0] != "marker":
        stderr = b"" if ended is None else ended.stderr[-500:]
        raise SandboxError(f"the program did not start: {stderr.decode('utf-8', 'replace')}")
    return dict(parse(line) for line in lines[1:])


def parse(line: str) -> tuple[int, Seen]:
    """Return one line of the program's."""
    found = json.loads(line)
    return found["number"], Seen(found.get("attempts", {}), found.get("controls", {}), found.get("failure", ""))


def probe_spec() -> SandboxSpec:
    """Return the sandbox of the program."""
    rootfs = find_rootfs()
    files = [File(target=f"/opt/probes/{part}", content=(HERE / part).read_bytes(), mode=0o444) for part in PARTS]
    return build_view(
        rootfs=rootfs.kind,
        system=rootfs.mounts,
        argv=("/usr/bin/python3", "-I", "-S", f"/opt/probes/{PROGRAM}"),
        env={"PATH": "/usr/bin:/bin", "HOME": "/home/eval", "PROBE_MARK": "own"},
        port=PORT,
        binds=(RoBind(source="@staged", target="/opt/staged"), RoBind(source="@quiet", target="/opt/quiet")),
        files=files,
        seccomp=own_filter(),
    )


def accept(listener: socket.socket | None) -> None:
    """Take connections until the listener is shut down."""
    while listener is not None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        connection.close()
