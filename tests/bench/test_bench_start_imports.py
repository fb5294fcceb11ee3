"""What a run does not import before its CLI is released: a command's start is a promise (acceptance 9), and one line at the head of a module breaks it unseen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.bench.rig import child_environment

_LATE = (
    "aiohttp",
    "asyncio",
    "cryptography",
    "jinja2",
    "mcp",
    "rich",
    "zstandard",
    "runner.assess",
    "runner.bundle.writer",
    "runner.gate.serving",
    "runner.grade",
    "runner.kept",
    "runner.report",
    "runner.simulate.contract",
    "runner.simulate.server",
)
_PROGRAM = """
import json, sys, threading
from pathlib import Path
from runner.attempt import Cancelled, run_attempt
import runner.cli.run
from tests.bench.rig import make_job, this_machine

cancelled = threading.Event()

def tell(step, facts):
    if step == "started":
        print(json.dumps(sorted(sys.modules)))
        cancelled.set()

try:
    run_attempt(make_job("base-url", Path(sys.argv[1])), this_machine(), tell=tell, cancelled=cancelled)
except Cancelled:
    pass
"""


def test_a_run_starts_without_what_it_needs_later(tmp_path: Path) -> None:
    """When the CLI is released, in base-URL mode, the gate's server, what judges and keeps the run, and what grades and reports it are not imported yet."""
    argv = [sys.executable, "-P", "-c", _PROGRAM, str(tmp_path)]
    done = subprocess.run(argv, env=child_environment(), cwd="/", stdout=subprocess.PIPE, check=True, timeout=120)
    loaded = set(json.loads(done.stdout))
    assert {"pydantic", "runner.conduct", "runner.gate.server", "sandbox.running"} <= loaded
    assert loaded.isdisjoint(_LATE), sorted(loaded & set(_LATE))
    assert not list(tmp_path.iterdir()), "a cancelled run keeps nothing"
