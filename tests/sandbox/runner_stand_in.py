"""A runner to be killed: starts a sandbox and says how far it is, a line a step, then waits for ever. Not a test.

``python runner_stand_in.py TOKEN RUNTIME-DIR [hold]``
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from sandbox.process import Supervisor, find_host
from sandbox.rootfs import HOST, read_host_rootfs
from sandbox.running import start
from sandbox.staging import choose_staging, make_staging
from sandbox.view import build_view


def say(step: str) -> None:
    """Tell the test."""
    sys.stdout.write(step + "\n")
    sys.stdout.flush()


def main(token: str, runtime_dir: Path, hold: bool) -> None:
    """Do as ``supervise`` and ``start`` do, with the staging path told first."""
    host = find_host()
    script = f"setsid sh -c 'while :; do sleep 1; echo {token}; done' & while :; do sleep 1; done"
    spec = build_view(
        rootfs=HOST, system=read_host_rootfs(), argv=("/bin/sh", "-c", script), env={"PATH": "/usr/bin"}, port=443
    )
    path = choose_staging(host.identity, runtime_dir=runtime_dir)
    say(str(path))
    supervisor = Supervisor(host, path)
    make_staging(path, host.identity)
    for name in ("a", "b"):
        (path / name).mkdir()
        (path / name / "file").write_text("staged")
    running = start(supervisor, spec, on_stdout=lambda _: None)
    say(f"held {supervisor.pid}")
    if not hold:
        running.release()
        say("released")
    time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), "hold" in sys.argv[3:])
