"""``run`` judges and grades what it measured: verdicts, named checks, criteria, exit codes (issue 2, acceptance 1; B10–B12)."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

from runner.bundle.reader import open_attempt
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
    answer = place.run("invented", "--no-judge", grade=True)
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
    answer = place.run("good", "bad", "--no-judge", grade=True)
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
    place.judge("good")
    env = {"HERMEVAL_CACHE": str(cache)}
    refused = place.run("good", grade=True, env=env)
    assert refused.code == 2
    assert refused.object["error"]["code"] == "toolchain-missing"
    assert not list(place.out.glob("*.attempt"))


def test_a_rubric_without_a_judge_is_never_a_pass(place: Place) -> None:
    """Where the scripted judge has no script nothing starts, and cause and cure are told; --no-judge, said aloud, leaves the verdict to the checks."""
    place.case("good", replies(tool("Skill", "toolu_1", skill="workflow"), text()))
    refused = place.run("good", grade=True)
    assert refused.code == 2
    error = refused.object["error"]
    assert error["code"] == "input-missing"
    assert error["where"].endswith("good.judge.json")
    assert "--no-judge" in error["hint"]
    assert not list(place.out.glob("*"))
    alone = place.run("good", "--no-judge", grade=True)
    assert (alone.code, alone.row["verdict"], alone.row["not_judged"]) == (0, "pass", ["kept"])
    place.judge("good")
    judged = place.run("good", grade=True)
    assert (judged.code, judged.row["verdict"], judged.row["not_judged"]) == (0, "pass", [])


def test_a_judge_that_fails_or_says_no_decides(place: Place) -> None:
    """Every check is met, and yet: a judge that was given no answer is an error, one that says no is a fail."""
    place.case("good", replies(tool("Skill", "toolu_1", skill="workflow"), text()))
    place.judge(
        "good", {"when": {"lane": "main"}, "reply": {"error": {"status": 400, "type": "invalid_request_error"}}}
    )
    failed = place.run("good", grade=True)
    assert (failed.code, failed.row["outcome"]["code"]) == (2, "judge-error")
    for path in place.out.iterdir():
        path.unlink()
    place.judge("good", met=False)
    denied = place.run("good", grade=True)
    assert (denied.code, denied.row["verdict"]) == (1, "fail")
    assert denied.row["criteria"] == [{"id": "kept", "met": False, "reason": "So it says."}]


def test_a_fixture_does_not_raise_the_ceilings_of_the_command(place: Place) -> None:
    """``--max-usd`` and ``--timeout`` hold for the votes of the judge, whatever the fixture asks for; what it asks below them is had."""
    place.case(
        "greedy",
        replies(tool("Skill", "toolu_1", skill="workflow"), text()),
        judge={"max_usd": "500", "timeout_s": 86_400},
        worker={"max_usd": "500", "timeout_s": 86_400},
    )
    place.judge("greedy")
    answer = place.run("greedy", "--max-usd", "1.5", "--timeout", "500", grade=True)
    assert answer.code == 0, answer.stderr
    plans = [json.loads(open_attempt(path).part("plan.json")) for path in place.out.glob("*.attempt")]
    assert sorted(plan.get("kind", "worker") for plan in plans) == ["judge", "worker"]
    for plan in plans:
        assert (plan["gate"]["ceilings"]["usd"], plan["limits"]["wall_clock_s"]) == ("1.5", 500)


def test_a_vote_of_which_nothing_could_be_kept_is_missed(place: Place) -> None:
    """A judge whose run could not be kept leaves no file beside the attempt; the attempt is an error all the same, and no pass of its checks."""
    import threading

    from runner.cli.batch import Request, load_jobs, open_machine
    from runner.cli.grading import GradingChoice, GradingDesk
    from runner.cli.story import Story

    place.case("good", replies(tool("Skill", "toolu_1", skill="workflow"), text()))
    place.judge("good")
    row = place.run("good").row
    environ = {**os.environ, "XDG_RUNTIME_DIR": ""}
    request = Request(
        names=("good",),
        folder=place.folder,
        skills=None,
        provider="scripted",
        script=None,
        base_url=None,
        key_file=None,
        ca_file=None,
        gate_mode="first-party",
        launch="stock",
        model=None,
        max_usd=None,
        timeout_s=None,
        repeat=1,
        jobs=1,
        out=place.out,
        keep=None,
        environ=environ,
    )
    machine = open_machine(environ)
    fixtures = [job.fixture for job in load_jobs(request)]
    story, never = Story(as_json=False), threading.Event()
    lost = replace(machine, host=replace(machine.host, python=place.out / "no-python"))  # no run can be had there
    for where, verdict in ((lost, "error"), (machine, "pass")):
        with GradingDesk(request, machine, GradingChoice(), fixtures) as desk:
            desk.warm()
            desk._thread.join()  # the grader is had from the machine as it is
            desk._machine = where
            (graded,) = desk.finish([row], story, never)
        assert graded["verdict"] == verdict, graded
    assert len(list(place.out.glob("*.attempt"))) == 2
