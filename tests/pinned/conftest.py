"""The C parts as this machine makes them, programs under the attendant, and a place for real runs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from runner.pinned_parts import open_parts
from sandbox.determinism.parts import Parts
from tests.run.conftest import place
from tests.run.installed import CACHE

SEED = "0123456789abcdef" * 4
NOON = 1767268800
"""2026-01-01T12:00:00Z."""


class Ran(NamedTuple):
    """What a program left."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def parts() -> Parts:
    """The two parts, made by the system's compiler where they are not there yet: without one every test here fails."""
    return open_parts(CACHE, search=os.environ.get("PATH"))


Attend = Callable[..., Ran]


@pytest.fixture
def attend(parts: Parts) -> Attend:
    """Run a program under the attendant, outside any sandbox."""

    def run(*program: str, seed: str = SEED, env: Mapping[str, str] | None = None) -> Ran:
        argv = [str(parts.attend), seed, "6.1.0-x", "#7", "x86_64", "node", *program]
        surroundings = {"PATH": "/usr/bin:/bin", **(env or {})}
        done = subprocess.run(argv, env=surroundings, capture_output=True, text=True, timeout=60, check=False)
        return Ran(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def under_clock(parts: Parts) -> Callable[..., Ran]:
    """Run a program with the clock preloaded."""

    def run(setting: str, *program: str) -> Ran:
        env = {"PATH": "/usr/bin:/bin", "LD_PRELOAD": str(parts.clock), "WALL_CLOCK": setting, "TZ": "UTC"}
        done = subprocess.run(list(program), env=env, capture_output=True, text=True, timeout=60, check=False)
        return Ran(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def cache_without_parts(tmp_path: Path) -> Path:
    """A toolchain cache with the tools of this machine's own and no C part."""
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o755)
    for path in CACHE.iterdir():
        if path.name == "exec" or path.name.startswith(("agent-", "grader-")):
            (cache / path.name).symlink_to(path)
    return cache


__all__ = ["place"]
