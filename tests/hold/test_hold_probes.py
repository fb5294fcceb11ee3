"""The whole probe suite by its command: every number, every control, none left out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runner.doctor.probes import COUNT, examine_probes
from runner.doctor.probes.files import FILES
from runner.doctor.probes.signals import SEEN
from runner.doctor.probes.traffic import TRAFFIC
from runner.doctor.probes.trees import TREES
from sandbox.errors import SandboxUnavailable
from sandbox.probes.suite import lifetime, outside
from sandbox.probes.table import INSIDE
from sandbox.probes.trying import TABLE

UID = 1001
ROOT = Path(__file__).resolve().parents[2]
HERE = {probe.number: (probe, act) for probe, act in (*SEEN, *TRAFFIC, *FILES, *TREES)}
assert (lifetime.GONE_S, len(outside.BOMBS)) > (0, 0)  # both have entered their probes


def test_every_number_has_one_probe() -> None:
    """The tables together are the 78 of the facts, each once, and each expects something."""
    probes = [*INSIDE, *(probe for probe, _ in (*TABLE, *HERE.values()))]
    assert sorted(probe.number for probe in probes) == list(range(1, COUNT + 1))
    assert all(probe.expects and probe.layer for probe in probes)


def test_a_host_without_a_sandbox_fails_every_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be tried is a hole that says so, never left out."""

    def none() -> None:
        raise SandboxUnavailable("no bubblewrap")

    monkeypatch.setattr("sandbox.process.find_host", none)
    results = list(examine_probes(None))
    assert [result.probe.number for result in results] == list(range(1, COUNT + 1))
    assert {result.status for result in results} == {"hole"}
    assert not any(result.control for result in results)
    assert all("no bubblewrap" in result.cause for result in results)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("caller", ["own", "ordinary"])
def test_the_command_tells_all_in_one_object(caller: str) -> None:
    """``doctor --probes --json``: exit status 0, 78 rows in order, every control true, each with layer and status as DESIGN has them; for a root caller once more under an ordinary uid."""
    if caller == "ordinary" and os.getuid() != 0:
        return  # the other one was by an ordinary user
    place = Path(f"/run/hermeval-test-{os.getpid()}-probes")
    try:
        root, options, env = ROOT, {}, {**os.environ}
        if caller == "ordinary":
            root, options, env = (
                copied(place),
                {"user": UID, "group": UID, "extra_groups": ()},
                {"PATH": "/usr/bin:/bin"},
            )
            env["HOME"] = env["TMPDIR"] = str(place / "tmp")
        done = subprocess.run(
            [sys.executable, "-B", "-P", "-m", "runner.cli", "doctor", "--probes", "--json"],
            env={**env, "PYTHONPATH": str(root)},
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
            **options,  # type: ignore[call-overload]  # those of Popen
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout)
    rows = answer["results"]
    assert (answer["command"], answer["exit_code"]) == ("doctor", 0)
    assert [row["number"] for row in rows] == list(range(1, COUNT + 1))
    good = ("refused", "absent", "held")
    assert [row for row in rows if row["control"] is not True or row["status"] not in good or not row["layer"]] == []


def copied(place: Path) -> Path:
    """Copy what the command needs to where an ordinary user can read it."""
    for name in ("runner", "sandbox", "profiles", "fixtures", "ci"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    (place / "tmp").mkdir()
    os.chown(place / "tmp", UID, UID)
    return place
