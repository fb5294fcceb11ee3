"""With ``--json`` stdout is exactly one JSON object with the contract's keys, whatever is asked for (DESIGN "Commands")."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.cli import run_command

ROOT = Path(__file__).resolve().parents[2]
ATTEMPT = str(ROOT / "fixtures" / "attempts" / "reference.attempt")
ATTEMPT_KEYS = {
    *("id", "path", "fixture", "verdict", "outcome", "skill_state", "witnesses", "checks", "criteria", "cost_usd"),
    "toolchain",
}
ENVELOPE = {"schema_version", "command", "verdict", "exit_code", "summary"}


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """Run a command with ``--json`` and return its object, held to what every object has."""
    code = run_command([*arguments, "--json"])
    out = capsys.readouterr().out
    assert out.endswith("\n")
    assert out.count("\n") == 1
    assert out.isascii()
    value = json.loads(out)
    assert isinstance(value, dict)
    assert (value["schema_version"], value["exit_code"]) == (1, code)
    return value


@pytest.fixture
def garbage(tmp_path: Path) -> str:
    """A file that is no attempt, by its name."""
    path = tmp_path / "garbage.attempt"
    path.write_bytes(b"garbage")
    return str(path)


def assert_rows(value: dict[str, Any]) -> None:
    """Every key of the contract's rows is there, and outcome and tools have theirs."""
    assert value.keys() >= {*ENVELOPE, "attempts"}
    assert value["summary"].keys() == {"passed", "measured", "started"}
    assert value["summary"]["started"] == len(value["attempts"]) > 0
    for row in value["attempts"]:
        assert row.keys() >= ATTEMPT_KEYS
        assert row["outcome"].keys() >= {"kind", "code", "message", "hint"}
        assert row["toolchain"].keys() >= {"claude", "node", "promptfoo"}
        assert row["witnesses"].keys() == {"transcript", "wire"}


def test_rows_of_attempts_have_every_key(capsys: pytest.CaptureFixture[str], garbage: str) -> None:
    """show, replay and judge give rows of one form, for attempts and for files that are none."""
    assert_rows(ask(capsys, "show", ATTEMPT))
    for verb, options in (("replay", ["--no-save"]), ("judge", [])):
        value = ask(capsys, verb, garbage, "/nonexistent", *options)
        assert_rows(value)
        assert (value["verdict"], value["exit_code"]) == ("error", 2)
        assert [row["outcome"]["code"] for row in value["attempts"]] == ["integrity", "input-missing"]
        assert all(row["outcome"]["message"] for row in value["attempts"])


def test_results_have_every_key(capsys: pytest.CaptureFixture[str], garbage: str) -> None:
    """verify and reproduce give results of one form, the verdict that the exit code means, and a summary."""
    value = ask(capsys, "verify", ATTEMPT, garbage)
    assert value.keys() >= {*ENVELOPE, "results"}
    assert (value["verdict"], value["summary"]) == ("error", {"passed": 1, "measured": 1, "started": 2})
    for row in value["results"]:
        assert row.keys() >= {"id", "path", "claims"}
        assert set(row["claims"].values()) <= {"held", "broken", "unknown"}
    assert ask(capsys, "verify", ATTEMPT)["verdict"] == "pass"
    value = ask(capsys, "reproduce", garbage)
    assert value.keys() >= {*ENVELOPE, "results"}
    (row,) = value["results"]
    assert row.keys() >= {"id", "path", "verdict", "rules", "first_difference"}
    assert (value["verdict"], row["verdict"], row["error"]["code"]) == ("error", "error", "integrity")


@pytest.mark.parametrize(
    "arguments",
    [
        *(["run", "nope"], ["run", "--fixtures", "/nonexistent"], ["run", "missing-account", "--max-usd", "NaN"]),
        *(["run", "missing-account", "--model", ""], ["run", "--repeat", "9" * 40], ["run", "--nope"]),
        *(["show"], ["show", "/nonexistent"]),
        ["run", "missing-account", "--provider", "anthropic", "--key-file", __file__, "--script", "x"],
        ["run", "missing-account", str(ROOT / "fixtures" / "missing-account.json")],
        *(["verify"], ["list", "/nonexistent"], ["replay", "/dev"], ["replay"], ["judge"]),
        ["judge", "/dev"],
        *(["reproduce"], ["report", "/nonexistent", "-o", "/nonexistent/page.html"]),
        ["mutate", "/nonexistent", "--replace", "a=b", "--reason", "r", "-o", "/nonexistent/new"],
        *(
            ["toolchain", "verify", "--cache", "/nonexistent"],
            ["toolchain", "nope"],
            ["doctor", "--nope"],
            ["nope"],
            [],
        ),
    ],
    ids=lambda arguments: " ".join(arguments) or "(nothing)",
)
def test_wrong_input_is_one_object_that_names_cause(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    """Exit status 2, and an error with a stable code and a message."""
    value = ask(capsys, *arguments)
    assert value["exit_code"] == 2
    assert value["error"]["code"] not in ("", "error", "internal")
    assert value["error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["toolchain", "verify", "--cache", "/nonexistent"], "toolchain verify"),
        (["toolchain", "verify", "--nope"], "toolchain verify"),
        (["toolchain", "nope"], "toolchain"),
        (["run", "--nope"], "run"),
    ],
)
def test_an_error_has_the_commands_own_name_and_every_key(
    capsys: pytest.CaptureFixture[str], arguments: list[str], name: str
) -> None:
    """Whatever goes wrong, the object names the command as its good answers do, and holds verdict, summary, attempts and results."""
    value = ask(capsys, *arguments)
    assert value["command"] == name
    assert (value["verdict"], value["attempts"], value["results"]) == ("error", [], [])
    assert value["summary"] == {"passed": 0, "measured": 0, "started": 0}
    assert value["error"]["hint"]


@pytest.mark.parametrize(
    "arguments", [["show", ATTEMPT], ["list", str(Path(ATTEMPT).parent)], ["show", "/nonexistent"]]
)
@pytest.mark.parametrize("how", ["full", "closed", "taken"])
def test_an_object_that_nobody_takes_is_told_on_stderr(arguments: list[str], how: str) -> None:
    """Where stdout is full or closed the exit status is 2 and stderr has the code, once; where it is taken nothing is said of it."""
    shell = {"full": 'exec "$@" >/dev/full', "closed": 'exec "$@" >&-', "taken": 'exec "$@"'}[how]
    done = subprocess.run(
        ["/bin/sh", "-c", shell, "sh", sys.executable, "-P", "-m", "runner.cli", *arguments, "--json"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lost = how != "taken"
    assert done.stderr.count("error[answer-lost]") == lost, done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == (2 if lost or arguments[-1] == "/nonexistent" else 0)
    assert lost != bool(done.stdout and json.loads(done.stdout))


@pytest.mark.parametrize(
    "loose", [["--probes", "--full"], ["--probes", "--cache", "x"], ["--pinned", "--full"], ["--pinned", "--out", "x"]]
)
def test_doctor_ignores_no_option(capsys: pytest.CaptureFixture[str], loose: list[str]) -> None:
    """An option that the asked examination does not look at is refused before anything is tried, and named; one that it looks at is taken."""
    error = ask(capsys, "doctor", *loose)["error"]
    assert error["code"] == "usage"
    assert loose[0] in error["message"]
    assert loose[1] in error["message"]
    taken = ask(capsys, "doctor", "--pinned", "--cache", "/nonexistent")
    assert "error" not in taken or taken["error"]["code"] != "usage"
