"""A run on a pinned root file system: the real, unpatched CLI on a closure's loader, and an attempt that says so (C1–C3)."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from runner.attempt import Job, Machine, run_attempt
from runner.bundle.reader import open_attempt
from runner.fixture import load_fixture
from runner.gate.script import Script
from runner.gate.upstreams.scripted import ScriptedUpstream
from runner.plan import PlanOptions, Provider
from runner.toolchain import default_cache_root, load_lock, open_agent
from sandbox.process import find_host
from sandbox.rootfs import Rootfs, host_rootfs
from tests.run.conftest import Place, replies, text, tool
from tests.sandbox.closures import INSIDE, LIBC, STORE, made_closure

SCRIPT = 'cat /proc/self/maps | while read -r line; do case $line in */*) echo "/${line#*/}";; esac; done; ls /usr'


def attempt_on(place: Place, rootfs: Rootfs) -> Path:
    """Run a fixture whose agent looks around with its shell; returns the attempt's file."""
    name = place.case(
        "look-around",
        replies(tool("Skill", "toolu_1", skill="workflow"), tool("Bash", "toolu_2", command=SCRIPT), text()),
    )
    machine = Machine(find_host(), open_agent(load_lock(), default_cache_root(os.geteuid(), os.environ)), None, rootfs)
    script = Script.model_validate_json((place.folder / "scripts" / f"{name}.json").read_bytes())
    job = Job(
        load_fixture(place.folder / f"{name}.json"),
        PlanOptions(),
        place.folder / "skills",
        None,
        Provider(kind="scripted", script=name, script_sha256="0" * 64),
        lambda: ScriptedUpstream(script),
        place.out,
    )
    place.out.mkdir()
    attempted = run_attempt(job, machine, tell=lambda *_: None, cancelled=threading.Event())
    assert attempted.row["outcome"]["kind"] == "measured", attempted.row["outcome"]
    assert attempted.row["rootfs"] == rootfs.kind
    return Path(attempted.row["path"])


@pytest.mark.parametrize("pinned", [True, False])
def test_the_cli_runs_on_a_closure_and_the_attempt_names_every_path(place: Place, pinned: bool) -> None:
    """On a closure the agent's shell and its libraries come from the store alone, and the attempt keeps each path with its hash; the control runs on the host's system."""
    agent = open_agent(load_lock(), default_cache_root(os.geteuid(), os.environ))
    programs = ["bash", "sh", "cat", "ls"]
    with made_closure(programs, needed_by=[agent.claude.path]) as closure:
        path = attempt_on(place, closure.rootfs() if pinned else host_rootfs())
    attempt = open_attempt(path)
    recorded = json.loads(attempt.part("sandbox.json"))["rootfs"]
    assert (recorded["kind"], recorded["pinned"]) == (("nix", True) if pinned else ("host", False))
    assert attempt.manifest.summary["rootfs"] == recorded["kind"]
    seen = [line for line in attempt.part("transcript.jsonl").decode().split("\\n") if "/" in line]
    libraries = {line for line in seen if ".so" in line and line.startswith("/")}
    assert libraries
    assert all(line.startswith(f"{STORE}/{LIBC}/") for line in libraries) is pinned
    if pinned:
        assert set(recorded["identity"]["closure"]) == {f"{STORE}/{LIBC}", f"{STORE}/{INSIDE}"}
        assert place.hermeval("report", str(path), "-o", str(place.out / "page.html")).code == 0
        assert "nix, pinned: 2 store paths" in (place.out / "page.html").read_text()
