"""Attempts to sign, and people with keys, made by the real ``ssh-keygen``."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from runner.bundle.writer import AttemptContent, write_attempt
from runner.signing.keygen import Keygen, open_keygen
from sandbox.pinned import find_programs

ENVIRON = {"PATH": "/usr/bin:/bin"}


def keygen() -> Keygen:
    """The program, knowing nothing of the tester's own agent."""
    return open_keygen(ENVIRON)


def ssh_keygen(*arguments: str) -> bytes:
    """Run ``ssh-keygen`` by itself, as people do; as somebody with a name where the tester's uid has none."""
    programs = find_programs()
    command = [str(programs.ssh_keygen), *arguments]
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        command = [str(programs.bwrap), "--unshare-user", "--uid", "0", "--gid", "0", "--dev-bind", "/", "/", *command]
    return subprocess.run(command, check=True, capture_output=True, timeout=60, stdin=subprocess.DEVNULL).stdout


@dataclass(frozen=True)
class Person:
    """Somebody with a key."""

    name: str
    key: Path

    @property
    def public(self) -> str:
        """The public key, as a line of an allowed signers' file has it."""
        kind, blob, *_ = self.key.with_name(self.key.name + ".pub").read_text().split()
        return f"{kind} {blob}"

    def listed(self, options: str = "", name: str | None = None) -> str:
        """The person's line in an allowed signers' file."""
        return " ".join(filter(None, (name or self.name, options, self.public))) + "\n"


def make_person(folder: Path, name: str, *, kind: str = "ed25519", passphrase: str = "") -> Person:
    """Make a key."""
    key = folder / f"{name}-{kind}"
    ssh_keygen("-q", "-t", kind, "-N", passphrase, "-C", name, "-f", str(key))
    return Person(f"{name}@example.com", key)


@pytest.fixture(scope="session")
def people(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Person]:
    """alice, whom the tests allow, and mallory, whom they do not."""
    folder = tmp_path_factory.mktemp("keys")
    return {name: make_person(folder, name) for name in ("alice", "mallory")}


def made(folder: Path, text: bytes = b"The reserve is 42 units.") -> Path:
    """A small whole attempt; another text is another attempt."""
    parts = {
        "fixture.json": b'{"id":"missing-account"}',
        "plan.json": b'{"plan":1}',
        "output.txt": text,
        "observations.json": b"{}",
    }
    return write_attempt(folder, AttemptContent("missing-account", {"skill_state": "ran"}, parts, ()))


@pytest.fixture
def attempt(tmp_path: Path) -> Path:
    """An attempt."""
    return made(tmp_path / "attempts")


@pytest.fixture
def allowed(tmp_path: Path, people: dict[str, Person]) -> Callable[..., Path]:
    """Write an allowed signers' file; alice's plain line unless told otherwise."""

    def write(*lines: str) -> Path:
        path = tmp_path / "allowed-signers"
        path.write_text("".join(lines) if lines else people["alice"].listed())
        return path

    return write
