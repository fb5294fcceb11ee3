"""A runner that is to be killed: ``python -m sandbox.probes.victim MARK release|hold`` starts a sandbox whose program is known by a mark, and waits.

Boundary: a program of the probes 55 and 56 (lifetime.py). Rules: ``ready`` is written when all is imported, right before the sandbox is started; ``up`` once it is held or released.
"""

from __future__ import annotations

import sys
import time

from sandbox.process import Supervisor, find_host
from sandbox.rootfs import find_rootfs
from sandbox.running import start
from sandbox.view import build_view


def main(mark: str, wanted: str) -> None:
    """Start it and wait for the end that comes from outside."""
    rootfs = find_rootfs()
    argv = ("/usr/bin/python3", "-I", "-S", "-c", "import time; time.sleep(600)", mark)
    spec = build_view(rootfs=rootfs.kind, system=rootfs.mounts, argv=argv, env={})
    host = find_host()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    with start(Supervisor(host, None), spec, on_stdout=lambda _: None) as running:
        if wanted == "release":
            running.release()
        sys.stdout.write("up\n")
        sys.stdout.flush()
        time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
