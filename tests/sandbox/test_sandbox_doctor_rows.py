"""What doctor concludes from what it saw, row by row: each beside the nearest one that is fine."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

import sandbox.doctor as doctor
from sandbox.doctor import Check, check_bwrap_mode, check_effects, check_keyring, check_limits, check_version
from sandbox.errors import SandboxUnavailable
from sandbox.limits import HeldLimits
from sandbox.process import Host, find_host
from sandbox.running import Ended

HELD: dict[str, Any] = {"memory": "cgroup", "processes": "rlimit", "open_files": "rlimit", "file_bytes": "rlimit"}


def ended(**limits: Any) -> Ended:
    """How a throw-away sandbox ended that held these limits."""
    return Ended(
        exit_status=0,
        reason=None,
        setup_error=None,
        dead=True,
        stderr=b"",
        stderr_bytes=0,
        stdout_bytes=0,
        duration_s=0.1,
        setup_s=0.1,
        limits=HeldLimits(**{**HELD, **limits}),
    )


def script(path: Path, body: str) -> Path:
    """Write a program that the sandbox's account can run."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("kind", ["processes", "open_files", "file_bytes"])
def test_a_limit_that_nothing_holds_is_a_failure(host: Host, kind: str) -> None:
    """Each of the three alone; with all of them held by the kernel it is fine."""
    assert check_limits(ended(), host).status == "ok"
    assert check_limits(ended(**{kind: "none"}), host).status == "failed"


@pytest.mark.parametrize("memory", ["watchdog", "none"])
def test_memory_that_no_control_group_holds_is_degraded(host: Host, memory: str) -> None:
    """Runs can start, and cause and cure say what is missing."""
    check = check_limits(ended(memory=memory), host)
    assert check.status == "degraded"
    assert "memory" in check.cause
    assert check.cure


@pytest.mark.parametrize("bit", [stat.S_ISUID, stat.S_ISGID])
def test_neither_a_setuid_nor_a_setgid_bwrap_is_taken(tmp_path: Path, bit: int) -> None:
    """By doctor and by a run alike; the same file without the bit is fine."""
    stub = script(tmp_path / "bwrap", "exit 0")
    assert check_bwrap_mode(stub).status == "ok"
    stub.chmod(0o755 | bit)
    assert stub.stat().st_mode & bit
    assert check_bwrap_mode(stub).status == "failed"
    with pytest.raises(SandboxUnavailable) as caught:
        find_host(bwrap=stub)
    assert caught.value.where == "bwrap-setuid"


@pytest.mark.parametrize(
    ("version", "status"),
    [("0.5.0", "failed"), ("0.7.99", "failed"), ("0.8.0", "ok"), ("0.10.0", "ok"), ("1.0.0", "ok")],
)
def test_the_oldest_bwrap_is_0_8(host: Host, readable_tmp: Path, version: str, status: str) -> None:
    """Versions are compared number by number, and the oldest one is fine itself."""
    stub = script(readable_tmp / "bwrap", f"echo bubblewrap {version}")
    check = check_version(Host(host.identity, host.program, stub, host.python))
    assert (check.status, version in check.cause) == (status, True)
    assert check.cause.startswith("bwrap-too-old: ") is (status == "failed")


@pytest.mark.parametrize(
    ("inside", "status"), [("77", "ok"), ("errno 1", "ok"), ("errno 126", "ok"), ("1234", "degraded"), ("", "degraded")]
)
def test_a_session_keyring_that_is_the_same_inside_is_degraded(
    host: Host, readable_tmp: Path, inside: str, status: str
) -> None:
    """Another keyring or none is fine; the caller's own is not, and neither is not to know."""
    stub = script(readable_tmp / "python", "echo keyring 1234")
    check = check_keyring(Host(host.identity, host.program, host.bwrap, stub), inside, "title")
    assert check.status == status


def test_a_staging_directory_that_is_still_there_is_a_failure(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was seen inside is fine both times; only where the directory is gone afterwards is the check."""
    facts = {"staged": "ran", "staged-write": "errno 30"}
    left = tmp_path / "left"

    def staging() -> Check:
        monkeypatch.setattr(doctor, "look_inside", lambda *_: (facts, ended(), left))
        return next(check for check in check_effects(host, None) if check.id == "staging")

    assert staging().status == "ok"
    left.mkdir()
    check = staging()
    assert (check.status, check.cause) == ("failed", f"{left} is still there")
