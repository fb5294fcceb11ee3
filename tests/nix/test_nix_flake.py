"""The flake's outputs, evaluated and run by Debian's Nix on the stand-in (issue 3, acceptance 1)."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from runner.cli.verbs import VERBS
from tests.nix.conftest import ROOT, Checkout
from tests.reproduce.places import expected, reproduce_in_nix

pytestmark = [pytest.mark.nix, pytest.mark.timeout(1200)]
APPS = {"default", "eval", "hermeval", "replay", "reproduce", "doctor"}


def test_every_app_is_described_and_becomes_a_verb(plain: Checkout) -> None:
    """Both systems have every app, each with a description and a program; their verbs exist."""
    apps = plain.eval("apps", 'builtins.mapAttrs (_: builtins.mapAttrs (_: app: app.meta.description or ""))')
    assert {system: set(named) for system, named in apps.items()} == {"aarch64-linux": APPS, "x86_64-linux": APPS}
    assert all(len(text) > 20 for named in apps.values() for text in named.values())
    assert {"run", "replay", "reproduce", "doctor"} <= set(VERBS)


def test_every_committed_attempt_has_two_checks(plain: Checkout) -> None:
    """replay-NAME and reproduce-NAME for each that expected.json names, on both systems, evaluated without building anything."""
    names = {
        name.removesuffix(".attempt")
        for name in json.loads((ROOT / "fixtures/attempts/expected.json").read_text())["attempts"]
    }
    assert len(names) >= 12
    for system, checks in plain.eval("checks", "builtins.mapAttrs (_: builtins.attrNames)").items():
        own = {name for name in checks if not name.startswith(("replay-", "reproduce-"))}
        assert own >= {"run", "containment", "toolchain", "attempts", "lint", "types", "unit"}, system
        assert set(checks) - own == {f"{verb}-{name}" for verb in ("replay", "reproduce") for name in names}


def test_nix_run_runs_a_fixture_and_leaves_the_lock(plain: Checkout, tmp_path: Path) -> None:
    """``ci/nix-run missing-account``: the real CLI from the store, measured, with the lock's hashes; what is not pinned says so; flake.lock is untouched."""
    before = (plain.root / "flake.lock").read_bytes()
    done = subprocess.run(
        [plain.root / "ci" / "nix-run", "missing-account", "--json", "--no-grade", "--out", tmp_path],
        capture_output=True,
        text=True,
        timeout=1100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (row,) = json.loads(done.stdout)["attempts"]
    lock = json.loads((ROOT / "sandbox/toolchain/toolchain.json").read_text())["systems"]["x86_64-linux"]["agent"]
    assert (row["outcome"]["kind"], row["skill_state"], row["rootfs"]) == ("measured", "ran", "host")
    assert row["toolchain"]["claude"]["nar_sha256"] == lock["claude"]["nar_sha256"]
    assert (plain.root / "flake.lock").read_bytes() == before


def test_a_path_that_nix_cannot_address_is_refused(plain: Checkout, tmp_path: Path) -> None:
    """A checkout below a folder with a space gets a clear error before anything is built; the one without is the control."""
    odd = tmp_path / "an odd place"
    odd.symlink_to(plain.root)  # the script looks at where it really lies
    assert Checkout(odd).shell("true").code == 0
    (odd := tmp_path / "odd #1").mkdir()
    for name in ("ci", "sandbox"):
        shutil.copytree(plain.root / name, odd / name)
    done = subprocess.run(
        ["bash", str(odd / "ci" / "nix-run"), "missing-account"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "error[nix-checkout-path]" in done.stderr


def test_nix_run_keeps_the_exit_status(plain: Checkout) -> None:
    """An unknown fixture is exit 2 through ``nix run`` as well, and bad usage too."""
    for arguments in (["no-such-fixture"], ["--no-such-option"]):
        done = subprocess.run(
            [plain.root / "ci" / "nix-run", *arguments], capture_output=True, timeout=1100, check=False
        )
        assert done.returncode == 2, done.stderr[-2000:]


def test_every_committed_attempt_comes_back_inside_a_build(plain: Checkout) -> None:
    """The fifth of the places of tests/reproduce: each attempt with exchanges is run again by the real CLI inside Nix's build sandbox, to a word that expected.json names."""
    wanted = expected()
    found = reproduce_in_nix(list(wanted), plain.root)
    assert {row.attempt: (row.word, row.code) for row in found if row.word not in wanted[row.attempt] or row.code} == {}
