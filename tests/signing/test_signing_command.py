"""``hermeval sign`` and ``verify --allowed-signers``: exit codes, one JSON object, nothing overwritten, nobody waited for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.signing.conftest import Person, made, make_person

ROOT = Path(__file__).resolve().parents[2]


def hermeval(*arguments: str, **env: str) -> tuple[int, dict[str, Any], str]:
    """Run a command with ``--json`` in a process without a terminal; exit status, object, stderr."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "runner.cli", *arguments, "--json"],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": os.environ.get("HOME", "/"), **env},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        timeout=120,
        check=False,
    )
    return done.returncode, json.loads(done.stdout), done.stderr


def test_sign_then_verify(attempt: Path, people: dict[str, Person], allowed: Callable[..., Path]) -> None:
    """Both commands give a row a file, and the right name; a second signature is refused and the first stays."""
    code, answer, _ = hermeval("sign", str(attempt), "--key", str(people["alice"].key))
    assert (code, answer["command"], answer["verdict"]) == (0, "sign", "pass")
    (row,) = answer["results"]
    assert row["signature"] == f"{attempt}.sig"
    first = Path(row["signature"]).read_bytes()
    code, answer, _ = hermeval(
        "verify", str(attempt), "--allowed-signers", str(allowed()), "--require", "signature", "--require", "intact"
    )
    assert (code, answer["results"][0]["claims"]["signature"]) == (0, "held")
    assert "alice@example.com" in answer["results"][0]["reasons"]["signature"]
    code, answer, _ = hermeval("sign", str(attempt), "--key", str(people["mallory"].key))
    assert (code, answer["results"][0]["error"]["code"]) == (2, "signature-exists")
    assert Path(row["signature"]).read_bytes() == first


def test_a_signature_that_was_taken_away_is_no_match_where_one_is_required(
    attempt: Path, allowed: Callable[..., Path]
) -> None:
    """Without a signature the claim is unknown and the exit status 0; ``--require signature`` makes it 2."""
    signers = str(allowed())
    code, answer, _ = hermeval("verify", str(attempt), "--allowed-signers", signers)
    assert (code, answer["results"][0]["claims"]["signature"]) == (0, "unknown")
    code, answer, told = hermeval("verify", str(attempt), "--allowed-signers", signers, "--require", "signature")
    assert (code, answer["verdict"], answer["summary"]["passed"]) == (2, "error", 0)
    assert "required and not held: signature" in told


def test_a_damaged_attempt_is_not_signed(attempt: Path, people: dict[str, Person]) -> None:
    """What verify would not call intact gets no signature; beside it, a whole one does."""
    other = made(attempt.parent, b"Another answer.")
    data = bytearray(attempt.read_bytes())
    data[-1] ^= 1
    attempt.write_bytes(data)
    code, answer, _ = hermeval("sign", str(attempt), str(other), "--key", str(people["alice"].key))
    assert code == 2
    damaged, whole = answer["results"]
    assert (damaged["error"]["code"], whole["signature"]) == ("integrity", f"{other}.sig")
    assert not Path(f"{attempt}.sig").exists()


@pytest.mark.parametrize("wrong", ["missing", "public-only", "no-key", "passphrase"])
def test_a_key_that_cannot_sign_fails_at_once(wrong: str, attempt: Path, tmp_path: Path) -> None:
    """A missing key, a public key without an agent, a file that is none, a passphrase and nobody to ask: exit 2, a reason, nothing written, no prompt and no wait."""
    person = make_person(tmp_path, "dora", passphrase="not known here" if wrong == "passphrase" else "")
    key = {"missing": tmp_path / "none", "public-only": Path(f"{person.key}.pub"), "no-key": tmp_path / "text"}.get(
        wrong, person.key
    )
    (tmp_path / "text").write_text("no key\n")
    if wrong == "public-only":
        person.key.unlink()
    code, answer, _ = hermeval("sign", str(attempt), "--key", str(key), DISPLAY=":9", SSH_ASKPASS="/bin/false")
    assert (code, answer["results"][0]["error"]["code"]) == (2, "signing-failed"), answer
    assert answer["results"][0]["error"]["message"]
    assert [path.name for path in attempt.parent.iterdir()] == [attempt.name]


def test_an_agent_signs_for_a_key_with_a_passphrase(
    attempt: Path, tmp_path: Path, people: dict[str, Person], allowed: Callable[..., Path]
) -> None:
    """With the public key's file as --key, the agent that holds the private one signs, and no key is in reach."""
    person = people["alice"]
    public = tmp_path / "alice.pub"
    public.write_text(person.public + "\n")
    socket = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert agent.stdout is not None
        assert agent.stdout.readline()
        env = {"SSH_AUTH_SOCK": str(socket)}
        add = ["ssh-add", "-q", str(person.key)]
        subprocess.run(add, env={**os.environ, **env}, check=True, capture_output=True, timeout=30)
        code, answer, _ = hermeval("sign", str(attempt), "--key", str(public), **env)
        assert code == 0, answer
        code, answer, _ = hermeval("verify", str(attempt), "--allowed-signers", str(allowed()))
        assert (code, answer["results"][0]["claims"]["signature"]) == (0, "held")
    finally:
        agent.kill()
        agent.communicate()


def test_a_list_that_cannot_be_read_is_an_error(attempt: Path, tmp_path: Path) -> None:
    """A missing file of allowed signers is exit 2 with one object, before anything is looked at."""
    code, answer, _ = hermeval("verify", str(attempt), "--allowed-signers", str(tmp_path / "none"))
    assert (code, answer["error"]["code"]) == (2, "input-missing")
