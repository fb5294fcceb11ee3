"""From nothing to a released program's end: the supervised sandbox beside bare bwrap with the same arguments."""

from __future__ import annotations

import os
import subprocess
import time

from sandbox.argv import Descriptors, bwrap_args, data_of
from sandbox.process import Supervisor, find_host
from sandbox.request import memory_file, present_masks
from sandbox.rootfs import HOST, read_host_rootfs
from sandbox.running import start
from sandbox.view import build_view
from tests.bench.figures import interleave, table, versus

TITLE = "sandbox start (from the call to the end of /usr/bin/true)"


def main(runs: int = 40) -> None:
    """Print the figures. ``waiting supervisor`` is the order of a real run: it starts before the skill tree is staged and boots meanwhile."""
    host = find_host()
    spec = build_view(
        rootfs=HOST,
        system=read_host_rootfs(),
        argv=("/usr/bin/true",),
        env={"PATH": "/usr/bin"},
        port=443,
        home_files={".claude.json": b"{}"},
    )
    masks = present_masks(spec)

    def bare() -> float:
        descriptors = [memory_file("data", entry.content or b"") for entry in data_of(spec, masks)]
        args = bwrap_args(spec, Descriptors(-1, -1, tuple(descriptors)), sources={}, masks=masks)
        held = args.index("--json-status-fd")
        del args[held : held + 4]
        started = time.perf_counter()
        subprocess.run([str(host.bwrap), *args, "--", "/usr/bin/true"], check=True, pass_fds=descriptors)
        taken = time.perf_counter() - started
        for descriptor in descriptors:
            os.close(descriptor)
        return taken

    def supervised(*, head_start_s: float) -> float:
        started = time.perf_counter()
        supervisor = Supervisor(host, None)
        if head_start_s:
            time.sleep(head_start_s)
            started = time.perf_counter()
        with start(supervisor, spec, on_stdout=lambda _: None) as running:
            running.release()
            running.wait()
            return time.perf_counter() - started

    figures = interleave(
        {
            "bare bwrap": bare,
            "waiting supervisor": lambda: supervised(head_start_s=0.05),
            "supervisor and all": lambda: supervised(head_start_s=0.0),
        },
        runs=runs,
    )
    table(TITLE, list(figures.values()))
    versus(figures["waiting supervisor"], figures["bare bwrap"], at_most_more_s=0.015)
    versus(figures["supervisor and all"], figures["bare bwrap"], at_most_more_s=0.015)


if __name__ == "__main__":
    main()
