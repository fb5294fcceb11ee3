"""The older form is read as far as it says anything (B8), and a pipe is never waited for."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.bundle import AttemptContent, write_attempt
from runner.bundle.version1 import is_version1
from runner.canonical import sha256_hex
from runner.cli import run_command

OLD = Path(__file__).resolve().parents[2] / "fixtures" / "attempts" / "version-1.attempt"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A copy of the committed attempt of version 1."""
    return Path(shutil.copyfile(OLD, tmp_path / OLD.name))


def ask(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, dict[str, Any]]:
    """Run a command with ``--json``; exit status and object."""
    code = run_command([*map(str, arguments), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert isinstance(answer, dict)
    return code, answer


def test_list_show_and_verify_read_it(
    old: Path, capsys: pytest.CaptureFixture[str], content: Callable[..., AttemptContent]
) -> None:
    """It stands in a list beside newer ones, is shown with its output and without what it does not hold, and verified by what it can be held to."""
    write_attempt(old.parent, content())
    code, answer = ask(capsys, "list", old.parent)
    assert code == 0
    (row,) = [row for row in answer["attempts"] if row["path"] == str(old)]
    assert (row["id"], row["fixture"], row["kind"]) == (sha256_hex(old.read_bytes()), "missing-auditor", "worker")
    assert (row["skill_state"], row["witnesses"]) == (None, None)
    code, answer = ask(capsys, "show", old)
    (shown,) = answer["attempts"]
    assert (code, shown["id"], shown["outcome"]["kind"]) == (0, row["id"], "measured")
    assert (shown["output"], shown["skills_invoked"]) == (json.loads(old.read_bytes())["output"], None)
    code, answer = ask(capsys, "verify", old)
    (verified,) = answer["results"]
    held = {name for name, status in verified["claims"].items() if status == "held"}
    assert (code, verified["id"], held) == (0, row["id"], {"intact", "format", "records"})
    assert set(verified["claims"].values()) == {"held", "unknown"}
    for verb in ("list", "show", "verify"):
        assert run_command([verb, str(old.parent if verb == "list" else old)]) == 0
    assert "missing-auditor" in capsys.readouterr().out


def test_a_damaged_one_is_an_error_everywhere(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An output that is not the recorded one: listed as an error, not shown, and not intact."""
    old.write_bytes(old.read_bytes().replace(b"unresolved", b"resolved!!"))
    for verb, name in (("list", old.parent), ("show", old), ("verify", old)):
        code, answer = ask(capsys, verb, name)
        assert code == 2
        rows = answer.get("results") or answer.get("attempts") or [answer]
        assert rows[0]["error"]["code"] == "integrity"
    assert run_command(["verify", str(old), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["results"][0]["claims"]["intact"] == "broken"


@pytest.mark.parametrize("verb", ["list", "show", "verify", "mutate"])
def test_a_pipe_is_not_waited_for(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A fifo under an attempt's name is no attempt, at once."""
    pipe = tmp_path / "x.attempt"
    os.mkfifo(pipe)
    assert not is_version1(pipe)
    more = ("--replace", "a=b", "--reason", "x", "-o", tmp_path / "y") if verb == "mutate" else ()
    code, _ = ask(capsys, verb, tmp_path if verb == "list" else pipe, *more)
    assert code == 2
    assert is_version1(OLD)
