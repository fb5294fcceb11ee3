"""What a run does not import before its CLI is released: a command's start is a promise (acceptance 9), and one line at the head of a module breaks it unseen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.bench.rig import FIXTURE, child_environment

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
    "runner.grade.grading",
    "runner.grade.judge_saved",
    "runner.grade.promptfoo",
    "runner.grade.subject",
    "runner.kept",
    "runner.report",
    "runner.simulate.contract",
    "runner.simulate.server",
)
_PROGRAM = """
import json, os, signal, sys
from runner.cli import main
from runner.cli.story import Story

teller = Story.teller

def asked_too(story, *arguments):
    tell = teller(story, *arguments)

    def told(step, facts):
        if step == "started":
            print(json.dumps(sorted(sys.modules)))
            os.kill(os.getpid(), signal.SIGTERM)
        tell(step, facts)

    return told

Story.teller = asked_too
main()
"""


def test_a_run_starts_without_what_it_needs_later(tmp_path: Path) -> None:
    """When ``hermeval run`` releases the CLI in base-URL mode, the gate's server, what judges and keeps the run, and what judges, grades and reports outputs are not imported yet."""
    argv = [sys.executable, "-P", "-c", _PROGRAM, "run", FIXTURE, "--gate-mode", "base-url", "--out", str(tmp_path)]
    done = subprocess.run(argv, env=child_environment(), cwd="/", stdout=subprocess.PIPE, check=False, timeout=120)
    assert done.returncode == 2
    loaded = set(json.loads(done.stdout))
    assert {"pydantic", "runner.cli.grading", "runner.gate.server", "sandbox.running"} <= loaded
    assert loaded.isdisjoint(_LATE), sorted(loaded & set(_LATE))
    assert not list(tmp_path.iterdir()), "an ended run keeps nothing"
