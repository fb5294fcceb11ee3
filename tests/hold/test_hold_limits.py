"""Limits that a caller insists on: held by the kernel, or no run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.cgroup import Place
from sandbox.limits import HeldLimits, not_held
from sandbox.process import find_host

ROOT = Path(__file__).resolve().parents[2]


def test_a_watchdog_is_no_kernel_limit() -> None:
    """Memory that is only looked at does not satisfy; processes held by an rlimit do; a cgroup holds both (the control)."""
    degraded = HeldLimits(memory="watchdog", processes="rlimit")
    assert not_held(("memory", "pids"), degraded) == ("memory",)
    assert not_held(("pids",), degraded) == ()
    assert not_held((), HeldLimits()) == ()
    assert not_held(("memory", "pids"), HeldLimits()) == ("memory", "pids")
    assert not_held(("memory", "pids"), HeldLimits(memory="cgroup", processes="cgroup")) == ()


def run(out: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """Run one fixture of the folder, ungraded."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "runner.cli", "run", "--no-grade", "--json", "--out", str(out), *options, FIXTURE],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


FIXTURE = next(
    path.stem
    for path in sorted((ROOT / "fixtures").glob("*.json"))
    if (ROOT / "fixtures" / "scripts" / path.name).is_file()
)


def test_a_run_without_the_required_memory_limit_is_an_error(tmp_path: Path) -> None:
    """Where no cgroup holds memory the program is never released, and the code says why; pids are held here, and the run is measured (the control). Where one does, it is measured too."""
    code, answer, _ = run(tmp_path / "a", "--require-limits", "pids")
    (row,) = answer["attempts"]
    assert row["outcome"]["kind"] == "measured", row
    code, answer, _ = run(tmp_path / "b", "--require-limits", "memory,pids")
    (row,) = answer["attempts"]
    if isinstance(find_host().groups, Place):
        assert row["outcome"]["kind"] == "measured", row
        return
    assert (code, row["outcome"]["code"]) == (2, "limits-unavailable")
    assert "memory" in row["outcome"]["message"]


@pytest.mark.parametrize("value", ["", "disk", "memory,,pids"])
def test_an_unknown_limit_is_a_usage_error(tmp_path: Path, value: str) -> None:
    """What cannot be insisted on is refused before anything starts."""
    code, _, stderr = run(tmp_path / "c", "--require-limits", value)
    assert code == 2
    assert "is not memory or pids" in stderr
    assert not (tmp_path / "c").exists()
