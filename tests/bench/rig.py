"""What the benches of whole runs share: the job, the scripted server outside a run, and the CLI with nothing around it.

Rules: all sides do the same work: the fixture ``missing-account`` (two requests), its own script, the same arguments, environment, input and seeded home of the CLI, the
same copy of the CLI. A round that did not do the work is an error; how long it took never is.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from runner.attempt import Job, Machine, plan_job, run_attempt
from runner.cli.batch import open_machine
from runner.fixture import load_fixture
from runner.gate.script import parse_script
from runner.gate.server import Gate
from runner.gate.settings import Ceilings, GateSettings
from runner.gate.upstreams import Upstream
from runner.gate.upstreams.scripted import ScriptedUpstream
from runner.plan import Plan, PlanOptions, Provider
from runner.skills import SKILLS_INSIDE, stage
from runner.toolchain import default_cache_root
from tests.copies import copy_folder

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "fixtures"
FIXTURE = "missing-account"
REQUESTS = 2
"""Requests of one run of the fixture."""
Mode = Literal["first-party", "base-url"]
_HOME_INSIDE = SKILLS_INSIDE.removesuffix("/.claude/skills")


def child_environment(**more: str) -> dict[str, str]:
    """Return the environment of a child that runs the product from this checkout: as the command has it, compiled modules kept."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "HERMEVAL_CACHE") if name in os.environ}
    cache = os.environ.get("PYTHONPYCACHEPREFIX") or str(default_cache_root(os.geteuid(), os.environ) / "pycache")
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONNOUSERSITE": "1", "PYTHONPYCACHEPREFIX": cache, **more}


def this_machine() -> Machine:
    """Return what runs need on this machine."""
    return open_machine(os.environ)


def script_source() -> bytes:
    """Return the fixture's script."""
    return (FIXTURES / "scripts" / f"{FIXTURE}.json").read_bytes()


def make_job(mode: Mode, out: Path) -> Job:
    """Return one run of the fixture against its own script."""
    script = parse_script(script_source())
    return Job(
        load_fixture(FIXTURES / f"{FIXTURE}.json"),
        PlanOptions(mode=mode),
        FIXTURES / "skills",
        FIXTURES / "recipes",
        Provider(kind="scripted", script=FIXTURE, script_sha256="0" * 64),
        lambda: ScriptedUpstream(script),
        out,
    )


def run_marked(job: Job, machine: Machine) -> dict[str, float]:
    """Do one run and return when each of its steps was done, in seconds of the monotonic clock. Raises AssertionError where it was not measured."""
    marks = {"begun": time.perf_counter()}

    def tell(step: str, _facts: Mapping[str, Any]) -> None:
        marks[step] = time.perf_counter()

    attempted = run_attempt(job, machine, tell=tell, cancelled=threading.Event())
    marks["kept"] = time.perf_counter()
    outcome = attempted.row["outcome"]
    assert (outcome["kind"], attempted.row["skill_state"]) == ("measured", "ran"), outcome
    attempted.kept.path.unlink()
    return marks


@contextmanager
def serve(upstream: Upstream) -> Iterator[tuple[Gate, int]]:
    """Serve an upstream through a gate at a loopback port, without ceilings that a bench could reach; gives gate and port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    port = int(listener.getsockname()[1])
    ceilings = Ceilings(usd=None, requests=1_000_000, parallel=64, tokens=10**12, record_bytes=1 << 32)
    gate = Gate(GateSettings(mode="base-url", base_url_port=port, ceilings=ceilings), upstream)
    gate.serve(listener)
    try:
        yield gate, port
    finally:
        gate.close()


def endless(source: bytes) -> ScriptedUpstream:
    """Return an upstream that plays a script's replies without end: the server of many runs."""
    value = json.loads(source)
    for rule in value["replies"]:
        rule["times"] = None
    return ScriptedUpstream(parse_script(json.dumps(value).encode()))


@dataclass(frozen=True)
class BareCli:
    """The CLI by itself, in a home and a workspace on this machine."""

    plan: Plan
    program: Path
    directory: Path
    port: int

    def run(self) -> float:
        """Run it once in a fresh home; return the seconds from its start to its end. Raises AssertionError where it gave no result."""
        home, workspace = self.directory / "home", self.directory / "workspace"
        for path in (home, workspace):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
        for name, text in self.plan.launch.home_files.items():
            (home / name).write_text(text)
        copy_folder(FIXTURES / "skills", home / ".claude" / "skills")
        as_other: dict[str, Any] = {}
        if os.geteuid() == 0:  # the CLI refuses bypassPermissions as root, and our runs drop to another uid too
            as_other = {"user": 65534, "group": 65534, "extra_groups": []}
            for path in (home, workspace, *home.rglob("*")):
                os.chown(path, 65534, 65534)
        env = {**self.plan.launch.env, "HOME": str(home), "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self.port}"}
        started = time.perf_counter()
        ended = subprocess.run(
            [str(self.program), *self.plan.launch.argv[1:]],
            input=self.plan.launch.stdin.encode(),
            capture_output=True,
            env=env,
            cwd=workspace,
            check=False,
            timeout=120,
            **as_other,
        )
        seconds = time.perf_counter() - started
        assert ended.returncode == 0, ended.stderr[-500:]
        assert b'"subtype":"success"' in ended.stdout, ended.stdout[-500:]
        return seconds


@contextmanager
def bare_cli(machine: Machine) -> Iterator[BareCli]:
    """Give the CLI by itself, with the plan's own launch, against a scripted server in this process. At the end every request is known to have been answered."""
    with tempfile.TemporaryDirectory(prefix="hermeval-bare-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        with tempfile.TemporaryDirectory(prefix="hermeval-plan-") as scratch:
            job = make_job("base-url", directory)
            plan = plan_job(job, stage(job.skills, Path(scratch) / "skills"), machine.toolchain)
        source = script_source().replace(_HOME_INSIDE.encode(), str(directory / "home").encode())
        with serve(endless(source)) as (gate, port):
            yield BareCli(plan, machine.toolchain.claude_executable, directory, port)
            record = gate.close()
        assert record.unscripted == record.refused == 0, record.ended_by
        assert record.requests % REQUESTS == 0, record.requests


def load() -> str:
    """Say how busy the machine is, for the reader of the figures."""
    one, five, _ = os.getloadavg()
    return f"load {one:.2f} (1 min), {five:.2f} (5 min), {os.cpu_count()} CPUs, Python {sys.version.split()[0]}"
