"""``nix flake check`` fails when what it stands for is altered (issue 3, acceptance 1)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.nar import sri_from_digest
from tests.nix.conftest import Checkout

pytestmark = [pytest.mark.nix, pytest.mark.timeout(1200)]


def test_the_control_passes(plain: Checkout) -> None:
    """Unaltered, the checks that the tests below break are green."""
    done = plain.build("checks.@.replay-plain", "checks.@.reproduce-plain", "checks.@.attempts", "checks.@.toolchain")
    assert done.code == 0, done.err[-3000:]


@pytest.mark.parametrize("where", [0.2, 0.5, 0.9])
def test_one_altered_byte_of_an_attempt_fails_both_its_checks(checkout: Checkout, where: float) -> None:
    """A flipped bit anywhere in a committed attempt: neither replay nor reproduce of it passes, and both say that it is damaged."""
    path = checkout.root / "fixtures/attempts/plain.attempt"
    data = bytearray(path.read_bytes())
    data[int(len(data) * where)] ^= 1
    path.write_bytes(data)
    for check in ("replay-plain", "reproduce-plain"):
        done = checkout.build(f"checks.@.{check}")
        assert done.code != 0
        assert f"hermeval-check-{check}" in done.err
        assert "bundle-corrupt" in done.err or "integrity" in done.err


def test_a_broken_profile_fails_replay(checkout: Checkout) -> None:
    """A profile that raises makes the replay of an attempt of its fixtures an error, not a pass."""
    for profile in (checkout.root / "profiles").glob("artifact*.py"):
        profile.write_text(profile.read_text().replace("def ", "def broken_", 1) + "\n\nraise RuntimeError('broken')\n")
    done = checkout.build("checks.@.replay-plain")
    assert done.code != 0
    assert "hermeval-check-replay-plain" in done.err


@pytest.mark.parametrize("place", [("agent", "nar_sha256"), ("agent", "claude", "nar_sha256")])
def test_a_changed_toolchain_hash_fails(checkout: Checkout, place: tuple[str, ...]) -> None:
    """The hash of a whole tree is refused by Nix itself, with both hashes; that of a tool by the check that hashes again."""
    path = checkout.root / "sandbox/toolchain/toolchain.json"
    lock = json.loads(path.read_text())
    entry = lock["systems"]["x86_64-linux"]
    for key in place[:-1]:
        entry = entry[key]
    real, entry[place[-1]] = entry[place[-1]], sri_from_digest(bytes(32))
    path.write_text(json.dumps(lock))
    done = checkout.build("checks.@.toolchain")
    assert done.code != 0
    assert real in done.err


def test_an_attempt_that_nobody_expects_fails(checkout: Checkout) -> None:
    """A file beside the expected ones, or one that is named and missing, is told."""
    attempts = checkout.root / "fixtures/attempts"
    (attempts / "more.attempt").write_bytes((attempts / "plain.attempt").read_bytes())
    assert checkout.build("checks.@.attempts").code != 0
    (attempts / "more.attempt").unlink()
    assert checkout.build("checks.@.attempts").code == 0
    (attempts / "plain.attempt").unlink()
    assert checkout.build("checks.@.attempts").code != 0


def test_a_check_outside_the_build_sandbox_fails(plain: Checkout) -> None:
    """With Nix's sandbox off, a check does not pass by luck: it says that nothing was proved. The same script passes inside."""
    script = f"TMPDIR=$(mktemp -d) bash {plain.root / 'nix/surroundings.sh'}"
    done = plain.shell(script)
    assert done.code == 1
    assert "not-in-nix-sandbox" in done.err


def test_no_host_path_is_left_in_the_program(plain: Checkout, tmp_path: Path) -> None:
    """The program in the store names no place of the checkout that it was built from."""
    done = plain.shell(
        'nix build --no-link "${standin[@]}" "$flake#hermeval"; nix path-info "${standin[@]}" "$flake#hermeval"'
    )
    assert done.code == 0, done.err[-2000:]
    program = Path(done.out.strip())
    for path in (*program.glob("bin/*"), program / "share/hermeval/sandbox/toolchain/pins.json"):
        assert str(plain.root) not in path.read_text()
