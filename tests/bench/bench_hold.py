"""What holding costs a run: making the system call filter, and looking at a sandbox before its release. Prints; asserts no absolute time.

Aims: filter below 1 ms, canaries below 10 ms.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable

from sandbox.canary import is_filtered, look
from sandbox.process import Supervisor, find_host
from sandbox.request import writable_places
from sandbox.rootfs import find_rootfs
from sandbox.running import start
from sandbox.seccomp import make_filter
from sandbox.view import build_view
from sandbox.watchdog import open_view, weigh
from tests.bench.rig import load


def milliseconds(act: Callable[[], object], rounds: int) -> str:
    """Return median and worst of some rounds."""
    took = []
    for _ in range(rounds):
        begun = time.perf_counter_ns()
        act()
        took.append((time.perf_counter_ns() - begun) / 1e6)
    return f"median {statistics.median(took):.3f} ms, worst {max(took):.3f} ms"


def first_process(parent: int) -> int:
    """Return the sandbox's pid 1 below a supervisor."""
    while True:
        done = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True, check=False)
        children = done.stdout.split()
        if not children:
            return parent
        parent = int(children[-1])


def main(rounds: int = 50) -> None:
    """Print the figures."""
    machine = os.uname().machine
    print(f"\nholding a run; {load()}")
    print(
        f"filter made:      {milliseconds(lambda: make_filter(machine), rounds)}; {len(make_filter(machine)) // 8} instructions"
    )
    rootfs = find_rootfs()
    spec = build_view(
        rootfs=rootfs.kind, system=rootfs.mounts, argv=("/bin/sleep", "60"), env={}, seccomp=make_filter(machine)
    )
    places = [place.encode() for place in writable_places(spec)]
    supervisor = Supervisor(find_host(), None)
    with start(supervisor, spec, on_stdout=lambda _: None) as running:
        assert supervisor.pid is not None
        first = first_process(supervisor.pid)
        assert look(first, places, shared_places=[]) == []
        print(f"canaries, held:   {milliseconds(lambda: look(first, places, shared_places=[]), rounds)}")
        begun = time.perf_counter_ns()
        running.release()
        while not is_filtered(first):
            pass
        print(f"filter is there:  {(time.perf_counter_ns() - begun) / 1e6:.3f} ms after the release")
        view = open_view(first)
        print(f"memory weighed:   {milliseconds(lambda: list(weigh(view, [], 1 << 40)), rounds)}, four times a second")
        os.close(view)


if __name__ == "__main__":
    main()
