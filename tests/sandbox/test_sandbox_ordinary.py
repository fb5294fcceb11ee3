"""The same tests under an ordinary uid, where the suite itself is run by root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
UID = 1001


@pytest.mark.parametrize("module", ["inside", "endings", "listener", "lifetime", "collect", "doctor", "canary"])
def test_an_ordinary_user_gets_the_same(module: str) -> None:
    """A root caller's drop is not what makes it work: everything holds for a caller that never was root. (The probes: tests/hold/test_hold_probes.py.)"""
    if os.getuid() != 0:
        return  # this very run is by an ordinary user
    place = Path(f"/run/hermeval-test-{os.getpid()}-{module}")
    try:
        for name in ("sandbox", "tests/sandbox"):
            shutil.copytree(
                HERE.parents[1] / name,
                place / name,
                ignore=shutil.ignore_patterns("__pycache__", "toolchain", "test_sandbox_ordinary.py"),
            )
        shutil.copy(HERE.parents[1] / "pyproject.toml", place)
        (place / "tests/run").mkdir()
        shutil.copy(HERE.parent / "run/leftovers.py", place / "tests/run")
        (place / "tmp").mkdir()
        os.chown(place / "tmp", UID, UID)
        argv = [
            sys.executable,
            "-B",
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"--basetemp={place}/tmp/base",
            f"tests/sandbox/test_sandbox_{module}.py",
        ]
        env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(place / "tmp"),
            "TMPDIR": str(place / "tmp"),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(place / "tmp" / "hypothesis"),
        }
        done = subprocess.run(
            argv, user=UID, group=UID, extra_groups=(), cwd=place, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        assert " passed" in done.stdout
        assert "skipped" not in done.stdout
    finally:
        subprocess.run(["rm", "-rf", str(place)], check=True)
