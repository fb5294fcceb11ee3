"""A system call trace of a whole replay: what it starts, and that nothing in it reaches for a network (acceptance 4; B10)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.grade.conftest import ROOT, Remade

TRACER = ("-P", "-m", "tests.grade.tracer")
NETWORKS = {2: "IPv4", 10: "IPv6", 17: "packet"}


def traced(tmp_path: Path, *command: str) -> tuple[int, list[dict[str, Any]]]:
    report = tmp_path / "report"
    done = subprocess.run(
        [sys.executable, *TRACER, str(report), *command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=200,
        check=False,
    )
    return done.returncode, [json.loads(line) for line in report.read_text().splitlines()]


def test_the_trace_sees_programs_and_sockets(tmp_path: Path) -> None:
    """The positive control: a command that starts a program and opens a network socket is seen doing both."""
    script = "import socket, subprocess; subprocess.run(['/bin/true'], check=True); socket.socket().connect_ex(('127.0.0.1', 1))"
    code, calls = traced(tmp_path, sys.executable, "-c", script)
    assert code == 0
    assert any(call["call"] == "exec" and call["exe"].endswith(("/true", "/coreutils")) for call in calls)
    assert {(call["call"], call["family"]) for call in calls if call["call"] in ("socket", "connect")} == {
        ("socket", 2),
        ("connect", 2),
    }


@pytest.mark.parametrize("count", [1, 5])
def test_replay_starts_bwrap_the_profile_host_and_one_node(remade: Remade, tmp_path: Path, count: int) -> None:
    """However many attempts: two sandboxes, each with its supervisor, one profile host, one Node, no other program; no network socket is ever opened."""
    paths = [str(remade(number=number)) for number in range(count)]
    code, calls = traced(tmp_path, sys.executable, "-P", "-m", "runner.cli", "replay", "--no-save", *paths)
    assert code == 0
    started = Counter(Path(call["exe"]).name.split("3")[0] for call in calls if call["call"] == "exec")
    # The command itself, two supervisors, the profile host; for a root caller once also the compiler of the supervisor's modules.
    assert started.pop("python") in (4, 5)
    assert started == {"bwrap": 2, "node": 1}
    assert [call for call in calls if call.get("family") in NETWORKS] == []
    assert {call["call"] for call in calls} <= {"exec", "socket", "connect", "bind", "sendto", "sendmsg"}
