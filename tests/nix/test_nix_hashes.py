"""The recorded hashes are the same with Nix and without, for both trees (issue 3, acceptance 2; C2, C5)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from runner.nar import nar_sha256
from runner.toolchain import current_system, default_cache_root, load_lock
from tests.nix.conftest import ROOT, Checkout

pytestmark = [pytest.mark.nix, pytest.mark.timeout(2400)]


@pytest.mark.parametrize("kind", ["agent", "grader"])
def test_a_tree_built_by_nix_and_one_built_without_have_the_locks_hash(
    plain: Checkout, tmp_path: Path, kind: str
) -> None:
    """Nix fetches and builds the tree in its sandbox, into a store of its own where nothing of it was before; npm without Nix has made the other: one hash."""
    state = tmp_path / "state"
    build = f'nix build --no-link "${{standin[@]}}" "$flake#toolchain-{kind}" && nix path-info "${{standin[@]}}" "$flake#toolchain-{kind}"'
    done = plain.shell(build, HERMEVAL_NIX_STATE=str(state), HERMEVAL_NIX_NO_SEED="1", timeout_s=2300)
    assert done.code == 0, done.err[-3000:]
    with_nix = Path(done.out.strip())
    lock = load_lock()
    without = (
        lock.tree_directory(
            "agent" if kind == "agent" else "grader", current_system(), default_cache_root(os.geteuid(), os.environ)
        )
        / "node_modules"
    )
    wanted = json.loads((ROOT / "sandbox/toolchain/toolchain.json").read_text())["systems"][current_system()][kind][
        "nar_sha256"
    ]
    assert (nar_sha256(with_nix), nar_sha256(without)) == (wanted, wanted)
    told = subprocess.run(
        ["nix-hash", "--type", "sha256", "--base32", str(with_nix)], capture_output=True, text=True, check=True
    ).stdout.strip()
    again = subprocess.run(
        ["nix-hash", "--type", "sha256", "--base32", str(without)], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert told == again
    subprocess.run(
        ["chmod", "-R", "u+w", str(state)], check=True
    )  # a store is read-only; the test's directory is to be removed
