"""A slice of the random kills, and that their script sees what it looks for (issue 4, acceptance 3)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.kills import Figures, table
from tests.faults.scene import COMMANDS, Scene, digests, new_file_fault
from tests.run.conftest import ROOT

SLICE_S = 60.0


@pytest.mark.timeout(480)
def test_a_slice_of_random_kills_leaves_nothing(tmp_path: Path) -> None:
    """A minute of SIGKILL and SIGTERM at random moments of all five commands: nothing left behind, no half file, no attempt lost, no false answer."""
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "tests.faults.kills",
            "--seconds",
            str(SLICE_S),
            "--seed",
            str(os.getpid()),
            "--json",
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=450,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = {verb: Figures(**fields) for verb, fields in json.loads(done.stdout).items()}
    assert set(figures) == {*COMMANDS, "verify"}
    assert [what for one in figures.values() for what in one.found] == []
    assert sum(one.kills for one in figures.values()) >= 3
    assert figures["verify"].new_files > 0
    assert list(tmp_path.iterdir()) == []


def test_damage_is_seen(scene: Scene, tmp_path: Path) -> None:
    """The controls: a lost, a changed, a half and a temporary file, and an evaluation that says fail, are each told."""
    trial = scene.trial(tmp_path / "trial")
    assert trial.damage() == []
    worker = trial.out / scene.worker
    whole = worker.read_bytes()
    (trial.out / "x-0123456789ab.attempt").write_bytes(whole[:-10])
    (trial.out / ".x.0123456789abcdef.tmp").write_bytes(b"")
    (trial.out / "x.0001.evaluation.json").write_text('{"verdict": "fail"}')
    (trial.out / "report.html").write_text("<html>")
    worker.unlink()
    told = trial.damage()
    assert sorted(what.split(":")[0] for what in told) == ["changed", "half", "left", "lost", "verdict fail"]
    assert new_file_fault(trial.out / "report.html") == "half: report.html"
    assert digests(trial.out) != trial.before


def test_the_table_has_a_line_for_each_command() -> None:
    """Figures are printed as they go into the documents."""
    lines = table({verb: Figures(kills=3, left=["x"]) for verb in COMMANDS}).splitlines()
    assert len(lines) == 2 + len(COMMANDS)
    assert lines[2].startswith("| run | 3 |")
