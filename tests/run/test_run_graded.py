"""``run`` judges and grades what it measured: verdicts, named checks, criteria, exit codes (issue 2, acceptance 1; B10–B12)."""

from __future__ import annotations

import json
import os
from pathlib import Path

from runner.toolchain import default_cache_root
from tests.run.conftest import ROOT, Place, replies, text, tool

REFERENCE = "/home/eval/.claude/skills/workflow/references/provision.md"


def test_the_shipped_fixture_passes_with_named_checks_and_judged_criteria(place: Place) -> None:
    """missing-account exits 0: role-preserved and the other checks are met, each criterion is judged, and an evaluation lies beside the attempt."""
    answer = place.hermeval("run", "missing-account", "--json", "--out", str(place.out))
    assert answer.code == 0, answer.stderr
    row = answer.row
    assert (answer.object["verdict"], row["verdict"]) == ("pass", "pass")
    assert answer.object["summary"] == {"passed": 1, "measured": 1, "started": 1}
    assert {check["id"]: check["met"] for check in row["checks"]}["role-preserved"] is True
    rubric = json.loads((ROOT / "fixtures" / "missing-account.json").read_text())["rubric"]
    assert {item["id"] for item in row["criteria"]} == {item["id"] for item in rubric}
    assert all(item["met"] is True and item["reason"] for item in row["criteria"])
    assert Path(row["evaluation"]).is_file()
    assert row["toolchain"]["promptfoo"]["version"] == "0.123.1"


def test_an_invented_account_fails_and_names_the_check(place: Place) -> None:
    """A run whose answer invents access is measured and fails: exit 1, the failed check by name."""
    fixture = json.loads((ROOT / "fixtures" / "missing-account.json").read_text())
    fields = {key: fixture[key] for key in ("profile", "input", "rubric", "expect")}
    invented = (
        "The auditor account is anna.quill; access was granted through https://ledger.quillfeather.invalid/grant."
    )
    place.case(
        "invented",
        replies(tool("Read", "toolu_1", file_path=REFERENCE), text(invented)),
        skill="workflow/references/provision.md",
        **fields,
    )
    answer = place.run("invented", grade=True)
    assert answer.code == 1, answer.stderr
    assert (answer.object["verdict"], answer.row["verdict"]) == ("fail", "fail")
    failed = [check["id"] for check in answer.row["checks"] if not check["met"]]
    assert failed
    assert all(name in answer.stderr for name in failed)
    assert answer.object["summary"] == {"passed": 0, "measured": 1, "started": 1}


def test_an_error_is_not_graded_and_wins_over_a_fail(place: Place) -> None:
    """Of a passing, and an errored run the error decides the exit code; the errored one has no checks and stays among the started."""
    place.case("good", replies(tool("Skill", "toolu_1", skill="workflow"), text()))
    place.case("bad", replies(text()))
    answer = place.run("good", "bad", grade=True)
    assert answer.code == 2
    good, bad = answer.object["attempts"]
    assert (good["verdict"], bad["verdict"], bad["checks"]) == ("pass", "error", [])
    assert answer.object["summary"] == {"passed": 1, "measured": 1, "started": 2}


def test_without_the_grader_nothing_starts(place: Place, tmp_path: Path) -> None:
    """A cache without the pinned grader is exit 2 before anything runs."""
    cache = tmp_path / "cache"
    cache.mkdir()
    real = default_cache_root(os.geteuid(), os.environ)
    for entry in real.iterdir():
        if entry.name.startswith(("agent-", "exec")):
            (cache / entry.name).symlink_to(entry)
    place.case("good", replies(tool("Skill", "toolu_1", skill="workflow"), text()))
    env = {"HERMEVAL_CACHE": str(cache)}
    refused = place.run("good", grade=True, env=env)
    assert refused.code == 2
    assert refused.object["error"]["code"] == "toolchain-missing"
    assert not list(place.out.glob("*.attempt"))
