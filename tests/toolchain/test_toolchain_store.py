"""The pinned tools in a Nix store: taken where the path is the one of the lock's hash, and nowhere else."""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.errors import ToolchainError, ToolchainMismatch, ToolchainMissing
from runner.nar import nar_sha256, sri_from_digest
from runner.store_path import fixed_output_path, nix32
from runner.toolchain import current_system, load_lock, open_agent, open_grader, verify
from sandbox.pinned import FILE

_SYSTEM = current_system()
_DIGESTS = st.binary(min_size=32, max_size=32)


@dataclass(frozen=True)
class Package:
    """A lock, its pins beside it, and a made-up store."""

    lock_path: Path
    store: Path
    cache: Path

    def pin(self, **trees: Path) -> None:
        """Write the pins; a tree that is not named lies nowhere."""
        nowhere = self.store / "nowhere"
        pins = {
            "schema_version": 1,
            "system": _SYSTEM,
            "store": str(self.store),
            "trees": {kind: str(trees.get(kind, nowhere)) for kind in ("agent", "grader")},
            "programs": {"bwrap": "/usr/bin/bwrap", "python": "/usr/bin/python3", "ssh_keygen": "/usr/bin/ssh-keygen"},
            "loader": "/lib64/loader",
            "libraries": ["/lib"],
            "rootfs": str(nowhere),
            "determinism": str(nowhere),
        }
        (self.lock_path.parent / FILE.name).write_text(json.dumps(pins))


@pytest.fixture
def package(tmp_path: Path) -> Package:
    """A package whose two trees lie where Nix would put them."""
    directory, store = tmp_path / "lock", tmp_path / "store"
    store.mkdir()
    made = tmp_path / "made"
    for name in ("@anthropic-ai/claude-code-test/claude", "node-linux-test/bin/node", "promptfoo/main.js"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text("#!/bin/sh\necho tool\n")
        (made / name).chmod(0o555)
    tools = {
        name: {"version": "1.0.0", "path": path, "nar_sha256": nar_sha256(made / package)}
        for name, path, package in (
            ("claude", "@anthropic-ai/claude-code-test/claude", "@anthropic-ai/claude-code-test"),
            ("node", "node-linux-test/bin/node", "node-linux-test"),
            ("promptfoo", "promptfoo", "promptfoo"),
        )
    }
    tree = nar_sha256(made)
    lock = {
        "status": "test",
        "agent": {"nar_sha256": tree, "claude": tools["claude"], "node": tools["node"]},
        "grader": {"nar_sha256": tree, "node": tools["node"], "promptfoo": tools["promptfoo"]},
    }
    for kind in ("agent", "grader"):
        (directory / kind / _SYSTEM).mkdir(parents=True)
        (directory / kind / _SYSTEM / "package-lock.json").write_text("{}\n")
    (directory / "toolchain.json").write_text(json.dumps({"schema_version": 1, "systems": {_SYSTEM: lock}}))
    right = Path(fixed_output_path(tree, "hermeval-agent-0123", str(store)))
    made.rename(right)
    found = Package(directory / "toolchain.json", store, tmp_path / "cache")
    found.pin(agent=right, grader=right)
    return found


def test_a_tree_at_the_path_of_its_hash_is_opened_without_a_stamp(package: Package) -> None:
    """Both trees come from the store; the execute-only copy is made in the cache, once, though nothing else is there."""
    lock = load_lock(package.lock_path)
    agent = open_agent(lock, package.cache)
    assert agent.root.parent == package.store
    assert agent.claude_executable.is_relative_to(package.cache)
    assert agent.claude_executable.stat().st_mode & 0o777 == 0o111
    before = agent.claude_executable.stat().st_ino
    assert open_agent(lock, package.cache).claude_executable.stat().st_ino == before
    assert open_grader(lock, package.cache).promptfoo.path == agent.root / "promptfoo"
    assert {check.status for check in verify(lock, package.cache)} == {"held"}


def test_a_tree_at_another_path_is_refused_with_both(package: Package) -> None:
    """A tree with the lock's very bytes, but at another path of the store, is refused before anything of it is used."""
    lock = load_lock(package.lock_path)
    right = open_agent(lock, package.cache).root
    other = package.store / f"{'0' * 32}-hermeval-agent-0123"
    right.rename(other)
    package.pin(agent=other)
    with pytest.raises(ToolchainMismatch) as caught:
        open_agent(load_lock(package.lock_path), package.cache)
    assert str(other) in caught.value.message
    assert str(right) in caught.value.message


def test_a_lock_with_another_hash_does_not_take_the_store_of_the_old_one(package: Package) -> None:
    """After the lock's hash was changed, the tree built for the old one is refused."""
    changed = json.loads(package.lock_path.read_text())
    changed["systems"][_SYSTEM]["agent"]["nar_sha256"] = sri_from_digest(bytes(32))
    package.lock_path.write_text(json.dumps(changed))
    with pytest.raises(ToolchainMismatch):
        open_agent(load_lock(package.lock_path), package.cache)


def test_a_tree_that_is_not_in_the_store_is_missing(package: Package) -> None:
    """A right path with nothing at it says what to build."""
    lock = load_lock(package.lock_path)
    root = open_agent(lock, package.cache).root
    root.rename(package.store / "away")
    with pytest.raises(ToolchainMissing, match="not in the store"):
        open_agent(lock, package.cache)


def test_bytes_changed_in_the_store_are_found_by_verify(package: Package) -> None:
    """A run believes the path, as Nix does; ``verify`` hashes and names the tree and the tool."""
    lock = load_lock(package.lock_path)
    program = open_agent(lock, package.cache).node.path
    program.chmod(0o755)
    program.write_text("#!/bin/sh\necho other\n")
    broken = {check.name for check in verify(lock, package.cache) if check.status == "broken"}
    assert broken == {"agent", "agent/node", "grader", "grader/node"}


def test_pins_of_another_system_are_not_used(package: Package) -> None:
    """Pins for one system say nothing of another: its trees are looked for in the cache."""
    pins = json.loads((package.lock_path.parent / FILE.name).read_text())
    (package.lock_path.parent / FILE.name).write_text(json.dumps({**pins, "system": "riscv64-linux"}))
    with pytest.raises(ToolchainMissing, match="not installed"):
        open_agent(load_lock(package.lock_path), package.cache)


def test_pins_that_cannot_be_read_are_an_error(package: Package) -> None:
    """A damaged file of pins is never taken for none: nothing falls back to the cache."""
    (package.lock_path.parent / FILE.name).write_text("{}")
    with pytest.raises(ToolchainError) as caught:
        load_lock(package.lock_path)
    assert caught.value.code == "pins-invalid"


@given(data=st.binary(max_size=64))
def test_base_32_is_the_number_in_little_endian(data: bytes) -> None:
    """Nix's base 32 read back, digit by digit, is the number that the bytes are; its length follows from theirs."""
    text = nix32(data)
    assert len(text) == (len(data) * 8 + 4) // 5
    number = 0
    for digit in text:
        number = number * 32 + "0123456789abcdfghijklmnpqrsvwxyz".index(digit)
    assert number == int.from_bytes(data, "little")


@given(digest=_DIGESTS, other=_DIGESTS)
def test_paths_of_different_hashes_differ(digest: bytes, other: bytes) -> None:
    """Two trees lie at one path only where they are one."""
    paths = {fixed_output_path(sri_from_digest(one), "tree") for one in (digest, other)}
    assert len(paths) == len({digest, other})


@pytest.mark.nix
def test_paths_are_those_of_nix(tmp_path: Path) -> None:
    """The computed path is what ``nix-store --print-fixed-path`` says, for several hashes and names."""
    for number, name in enumerate(("source", "hermeval-agent-0b28d1692529919c", "a.b+c_d-1")):
        digest = hashlib.sha256(bytes([number])).digest()
        told = subprocess.run(
            ["nix-store", "--print-fixed-path", "--recursive", "sha256", digest.hex(), name],
            env={"PATH": "/usr/bin:/bin", "NIX_STORE_DIR": "/nix/store", "NIX_STATE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        assert fixed_output_path(sri_from_digest(digest), name) == told
