"""Where root's runs are staged on machines whose /run is mounted noexec (stock Debian and Ubuntu) or read-only: a skill's script is executed all the same, or no run starts (simulated.py makes them)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from runner.bundle import open_attempt
from tests.copies import copy_folder
from tests.hold.test_hold_doctor import ROOT, command

FIXTURE = "slash-cf"
SCRIPT = "/home/eval/.claude/skills/cf/x.sh"
REPLIES: tuple[dict[str, Any], ...] = (
    {
        "when": {"lane": "main", "last_user_contains": "Base directory for this skill"},
        "reply": {
            "message": {
                "content": [
                    {
                        "type": "tool_use",
                        "id": "toolu_x",
                        "name": "Bash",
                        "input": {"command": f"{SCRIPT} || echo refused with $?", "description": "go"},
                    }
                ],
                "stop_reason": "tool_use",
            }
        },
    },
    {
        "when": {"lane": "main", "has_tool_result": "toolu_x"},
        "reply": {"message": {"content": [{"type": "text", "text": "Done."}], "stop_reason": "end_turn"}},
    },
)


def scripted(folder: Path) -> Path:
    """Copy the fixtures; this one's skill has a script that the scripted model has executed by its path."""
    fixtures = copy_folder(ROOT / "fixtures", folder)
    (fixtures / "scripts" / f"{FIXTURE}.json").write_text(json.dumps({"schema_version": 1, "replies": REPLIES}))
    script = fixtures / "skills" / "cf" / "x.sh"
    script.write_text("#!/bin/sh\necho RAN $((40 + 2))\n")
    script.chmod(0o755)
    return fixtures


def staging_check(place: str, tmp_path: Path) -> tuple[int, dict[str, Any]]:
    """Return doctor's exit status and its row about staging."""
    status, answer, told = command(place, tmp_path / "doctor", "doctor", "--out", str(tmp_path / "attempts"))
    rows = [row for row in answer["results"] if row["id"] == "staging"]
    assert rows or status == 2, told
    return status, rows[0] if rows else next(row for row in answer["results"] if row["status"] == "failed")


@pytest.mark.parametrize("place", ["run-plain", "run-noexec", "run-read-only"])
def test_a_skills_script_is_executed_wherever_run_is_mounted_how(place: str, tmp_path: Path) -> None:
    """The attempt's transcript has what the script printed. Where /run would not do, doctor says which place was passed over and why; the plain one is the control."""
    tmp_path.chmod(0o755)
    out = tmp_path / "attempts"
    words = ("--no-grade", "--fixtures", str(scripted(tmp_path / "fixtures")), "--out", str(out), FIXTURE)
    status, answer, told = command(place, tmp_path / "run", "run", *words)
    assert (status, answer["attempts"][0]["outcome"]["kind"]) == (0, "measured"), told + json.dumps(answer)
    (attempt,) = out.glob("*.attempt")
    kept = parts_of(attempt)
    assert "RAN 42" in kept
    assert "refused with 1" not in kept
    status, row = staging_check(place, tmp_path)
    assert (status, row["status"]) == (0, "ok"), row
    reason = {"run-plain": "", "run-noexec": "noexec", "run-read-only": "ead-only"}[place]
    if os.getuid() == 0:
        assert reason in row["cause"]
        assert ("/run/hermeval is not used" in row["cause"]) == bool(reason)


def parts_of(attempt: Path) -> str:
    """Return all parts of an attempt as text."""
    opened = open_attempt(attempt)
    return "".join(opened.part(name).decode("utf-8", "replace") for name in opened.part_names)


@pytest.mark.parametrize(("place", "word"), [("both-noexec", "noexec"), ("both-read-only", "ead-only")])
def test_no_run_starts_where_no_place_will_do(place: str, word: str, tmp_path: Path) -> None:
    """Root only: both places are named with the reason, by doctor and by the run, with what to do; an ordinary user's runs lie elsewhere, and work."""
    tmp_path.chmod(0o755)
    status, row = staging_check(place, tmp_path)
    assert status == (2 if os.getuid() == 0 else 0), row
    status, answer, told = command(
        place, tmp_path / "run", "run", "--no-grade", "--out", str(tmp_path / "attempts"), "missing-account"
    )
    if os.getuid() != 0:
        assert (row["status"], answer["attempts"][0]["outcome"]["kind"]) == ("ok", "measured"), told
        return
    assert row["status"] == "failed"
    assert [named for named in ("/run/hermeval", "/var/lib/hermeval", word) if named not in row["cause"]] == [], row
    assert "mount -t tmpfs" in row["cure"]
    assert status == 2
    said = told + json.dumps(answer)
    assert "sandbox-staging" in said
    assert word in said
    assert "mount -t tmpfs" in said
