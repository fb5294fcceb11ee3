"""Debian's Nix with the stand-in for nixpkgs, as ci/nix-check uses it: a copy of the checkout that a test may alter, and one store for all."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runner.toolchain import current_system

ROOT = Path(__file__).resolve().parents[2]
_LEFT_OUT = shutil.ignore_patterns(
    ".git", "__pycache__", ".*_cache", ".hypothesis", "*.egg-info", "node_modules", "attempts.out"
)


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def value(self) -> Any:
        """The JSON on stdout."""
        return json.loads(self.out)


@dataclass(frozen=True)
class Checkout:
    """A copy of the checkout, without history: Nix sees all of it."""

    root: Path

    def shell(self, script: str, *arguments: str, timeout_s: float = 1100, **environment: str) -> Done:
        """Run a script in the settings of ci/nix-standin.sh; ``$flake`` and ``"${standin[@]}"`` are there."""
        import os

        text = f"set -euo pipefail; . '{self.root}/ci/nix-standin.sh'; {script}"
        done = subprocess.run(
            ["bash", "-c", text, "test", *arguments],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def build(self, *names: str, log: bool = True) -> Done:
        """Build outputs of the flake, such as ``checks.<system>.lint``; ``@`` stands for this system."""
        outputs = " ".join(f'"$flake#{name.replace("@", current_system())}"' for name in names)
        return self.shell(
            f'nix build {"--print-build-logs" if log else ""} --no-link --keep-going "${{standin[@]}}" {outputs}'
        )

    def eval(self, name: str, apply: str = "x: x") -> Any:
        """Evaluate an output to JSON, without import from derivation."""
        words = f"nix eval --json --option allow-import-from-derivation false --apply {apply!r}"
        done = self.shell(f'{words} "${{standin[@]}}" "$flake#{name}"')
        assert done.code == 0, done.err
        return done.value


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A fresh copy, for a test to alter."""
    return _copy(tmp_path / "checkout")


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A copy that nobody alters."""
    return _copy(tmp_path_factory.mktemp("nix") / "checkout")


def _copy(place: Path) -> Checkout:
    shutil.copytree(ROOT, place, symlinks=True, ignore=_LEFT_OUT)
    return Checkout(place)
