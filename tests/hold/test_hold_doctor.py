"""Machines that cannot isolate: doctor names each by its stable code, with cause and cure, and no run starts on any (simulated.py makes them)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.hold.simulated import PLACES

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FIXTURE = "missing-account"

NAMED: dict[str, tuple[str, str, tuple[str, ...], str]] = {
    "docker": ("namespaces", "userns-forbidden", ("/.dockerenv", "a Docker container", "filter"), "seccomp=unconfined"),
    "podman": ("proc", "proc-masked", ("/run/.containerenv", "a Podman container"), "unmask=ALL"),
    "gvisor": ("run-uid", "no-pidfd", ("gVisor's", "/proc/version"), "Linux kernel"),
    "wsl": ("namespaces", "mounts-forbidden", ("Windows Subsystem for Linux",), "run outside"),
    "masked-proc": ("proc", "proc-masked", ("covered below /proc:",), "systempaths=unconfined"),
    "apparmor": (
        "namespaces",
        "userns-restricted",
        ("AppArmor", "kernel.apparmor_restrict_unprivileged_userns is 1"),
        "bwrap-userns-restrict",
    ),
    "apparmor-network": ("namespaces", "userns-network-restricted", ("AppArmor",), "bwrap-userns-restrict"),
    "no-user-namespaces": ("namespaces", "userns-forbidden", ("may not make user namespaces",), "unprivileged_userns_clone=1"),
    "no-user-namespaces-in-the-kernel": ("namespaces", "userns-unsupported", ("no user namespaces",), "CONFIG_USER_NS"),
    "no-more-namespaces": ("namespaces", "userns-limit", ("user.max_user_namespaces is 0",), "sysctl user.max_user_namespaces"),
    "set-user-id": ("bwrap", "bwrap-setuid", ("CVE-2026-41163",), "chmod ug-s /usr/bin/bwrap"),
    "bwrap-0.4": ("bwrap-version", "bwrap-too-old", ("0.4.1",), "0.8 or later"),
    "protect-kernel-tunables": ("namespaces", "proc-sys-read-only", ("covered below /proc: /proc/sys",), "ProtectKernelTunables=false"),
    "file-capabilities": ("bwrap" if os.getuid() == 0 else "namespaces", "bwrap-capabilities", ("capabilities",), "setcap -r /usr/bin/bwrap"),
    "little-memory": ("run-uid", "memory-too-limited", ("600 MiB", "RLIMIT_AS"), "ulimit -v unlimited"),
    "no-proc": ("run-uid", "proc-missing", ("/proc/self/uid_map", "No such file"), "mount -t proc"),
    "no-system-call-filters": ("inside", "seccomp-unavailable", ("system call filter", "PR_SET_SECCOMP"), "CONFIG_SECCOMP_FILTER"),
}  # fmt: skip
"""Place → the first check that fails there, the code that its cause begins with, words of its cause, words of its cure."""
SAID_FIRST = {} if os.getuid() == 0 else {"no-proc": "toolchain-untrusted"}
"""An ordinary user's place is a user namespace, in which root's files belong to nobody; without /proc the run cannot know why, and refuses them before it comes to the sandbox."""


def command(place: str, scratch: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    """Run hermeval on a simulated machine; returns exit status, object and stderr."""
    scratch.mkdir(mode=0o755)
    for folder in scratch.parents:
        if folder.name.startswith("pytest-"):
            folder.chmod(folder.stat().st_mode | 0o011)
    hermeval = [sys.executable, "-P", "-m", "runner.cli", *words, "--json"]
    done = subprocess.run(
        [sys.executable, str(HERE / "simulated.py"), place, str(scratch), "--", *hermeval],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def test_every_place_but_the_control_is_expected_to_be_named() -> None:
    """None is made and then not looked at."""
    assert PLACES.keys() - {"unsimulated"} == NAMED.keys()


@pytest.mark.parametrize("place", NAMED)
def test_doctor_names_it_and_no_run_starts(place: str, tmp_path: Path) -> None:
    """Exit 2 from both; doctor's first failure has code, cause and cure; the run says ``host-cannot-isolate``, and no byte came from a CLI or to the gate."""
    check_id, code, causes, cure = NAMED[place]
    tmp_path.chmod(0o755)
    out = ("--out", str(tmp_path / "attempts"))
    with ThreadPoolExecutor(2) as pool:
        examined = pool.submit(command, place, tmp_path / "doctor", "doctor", *out)
        started = pool.submit(command, place, tmp_path / "run", "run", "--no-grade", *out, FIXTURE)
    status, answer, told = examined.result()
    assert (status, answer["exit_code"]) == (2, 2), told
    first = next(row for row in answer["results"] if row["status"] == "failed")
    assert (first["id"], first["cause"].split(":")[0]) == (check_id, code), first
    assert [word for word in causes if word not in first["cause"]] == [], first
    assert cure in first["cure"], first
    assert "error[host-cannot-isolate]" in told
    status, answer, told = started.result()
    assert status == 2, told
    assert SAID_FIRST.get(place, "host-cannot-isolate") in told + json.dumps(answer)
    for row in answer.get("attempts", []):
        assert (row["outcome"]["kind"], row["outcome"]["code"]) == ("error", "host-cannot-isolate"), row
        assert (row["events_seen"], row["exit_status"], row["requests"]["sent"], row["requests"]["refused"]) == (
            0,
            None,
            0,
            0,
        )


def test_the_same_machine_unsimulated_can_run(tmp_path: Path) -> None:
    """The control: in namespaces of its own with nothing changed, doctor finds nothing failed, and a run is measured."""
    tmp_path.chmod(0o755)
    status, answer, told = command("unsimulated", tmp_path / "doctor", "doctor", "--out", str(tmp_path / "attempts"))
    assert status == 0, told
    assert [row for row in answer["results"] if row["status"] == "failed"] == []
    status, answer, told = command(
        "unsimulated", tmp_path / "run", "run", "--no-grade", "--out", str(tmp_path / "attempts"), FIXTURE
    )
    assert answer["attempts"][0]["outcome"]["kind"] == "measured", told


def test_a_limit_on_memory_that_leaves_room_is_told_and_runs(tmp_path: Path) -> None:
    """The control of the tighter one: doctor calls it degraded with its cure, and a run is measured."""
    tmp_path.chmod(0o755)
    out = ("--out", str(tmp_path / "attempts"))
    status, answer, told = command("enough-memory", tmp_path / "doctor", "doctor", *out)
    assert status == 0, told
    (row,) = (row for row in answer["results"] if row["id"] == "limits")
    assert (row["status"], "4096 MiB here (RLIMIT_AS)" in row["cause"]) == ("degraded", True), row
    assert "ulimit -v unlimited" in row["cure"]
    _, answer, told = command("enough-memory", tmp_path / "run", "run", "--no-grade", *out, FIXTURE)
    assert answer["attempts"][0]["outcome"]["kind"] == "measured", told
