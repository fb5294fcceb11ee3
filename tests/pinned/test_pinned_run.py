"""Pinned runs of the real CLI: the same raw bytes twice, the pinned world inside, never a score; and free runs as they were (issue 3, "pinned")."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runner.bundle.reader import open_attempt
from runner.pinned import NEVER_SCORED
from tests.run.conftest import ROOT, Answer, Place, replies, text, tool

LOOK = "date +%FT%T; uname -r; mktemp -u; mktemp -u"
DATE = "2031-05-06T07:08:09Z"
COMMITTED = ROOT / "fixtures" / "attempts"


def bodies(path: str | Path) -> list[bytes]:
    """The requests of an attempt, raw, in the order in which they came."""
    return [exchange.request.body for exchange in open_attempt(Path(path)).exchanges() if exchange.kind == "inference"]


def rules() -> list[dict[str, Any]]:
    """A case with a Bash call, a sub-agent that makes one too, and an answer."""
    agent = tool("Agent", "toolu_2", description="look", prompt="Look around.", subagent_type="general-purpose")
    sub = [tool("Bash", "toolu_3", command=LOOK, description="x"), text("Seen.")]
    return [
        *replies(tool("Bash", "toolu_1", command=LOOK, description="x"), agent, text()),
        *({"when": {"lane": "sub", "nth": nth}, "reply": reply} for nth, reply in enumerate(sub, 1)),
    ]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A fixtures folder with that case."""
    base = tmp_path_factory.mktemp("pinned")
    made = Place(base / "fixtures", base / "attempts")
    for name in ("scripts", "skills", "recipes"):
        (made.folder / name).mkdir(parents=True)
    made.skill("workflow", provision="# Provision\n\nKeep a missing account unresolved.\n")
    made.case("look", rules(), invocation="slash")
    return made


@pytest.fixture(scope="module")
def pinned(site: Place) -> Answer:
    """The case, run pinned, with nothing said about grading, until two recordings have the same raw requests: sub-agent's ids, dates and random names included."""
    runs: list[Answer] = []
    while len(runs) < 6:
        runs.append(site.run("look", "--determinism", "pinned", "--pinned-date", DATE, grade=True))
        assert runs[-1].code == 0, runs[-1].stderr
        seen = [bodies(run.row["path"]) for run in runs]
        if (
            seen[-1] in seen[:-1]
        ):  # not always the first two: a busy machine may turn to another program at a bad moment
            return runs[-1]
    raise AssertionError("six pinned runs, none like another")


def test_it_is_measured_and_never_scored(site: Place, pinned: Answer) -> None:
    """A pinned run ends with 0 and no verdict, says why, and leaves no evaluation; grading, judging and mutating its attempt are refused."""
    assert pinned.code == 0, pinned.stderr
    row = pinned.row
    assert (pinned.object["verdict"], row["verdict"], row["outcome"]["kind"]) == (None, None, "measured")
    assert (row["determinism"], row["pinned"]["date"]) == ("pinned", DATE)
    assert NEVER_SCORED in row["notes"]
    assert NEVER_SCORED in pinned.stderr
    assert not list(site.out.glob("*.evaluation.json"))
    assert open_attempt(Path(row["path"])).manifest.summary["determinism"] == "pinned"
    for command in (("replay", "--json"), ("judge", "--json")):
        answer = site.hermeval(*command, row["path"])
        assert (answer.code, answer.row["outcome"]["code"]) == (2, "never-scored")
    out = str(site.out / "control.attempt")
    answer = site.hermeval("mutate", row["path"], "--replace", "a=b", "--reason", "x", "-o", out)
    assert answer.code == 2
    assert "never-scored" in answer.stderr


def test_the_world_inside_is_the_pinned_one(pinned: Answer) -> None:
    """Prompts of both agents and what their programs printed tell the pinned date and kernel, and nothing of this host's."""
    path = pinned.row["path"]
    last, plan = bodies(path)[-1].decode(), json.loads(open_attempt(Path(path)).part("plan.json"))
    release = plan["pinned"]["release"]
    assert len(bodies(path)) == 5
    for body in map(bytes.decode, bodies(path)):
        assert f"OS Version: Linux {release}" in body
    assert "Today's date is 2031-05-06" in last
    assert f"2031-05-06T07:08:09\\n{release}\\n/tmp/tmp." in last


def test_another_seed_makes_other_bytes(site: Place, pinned: Answer) -> None:
    """Two recordings have the same raw requests; that is no accident, since another seed changes them, and nothing else of the world."""
    other = site.run("look", "--determinism", "pinned", "--pinned-date", DATE, "--pinned-seed", "5a" * 32).row
    assert other["pinned"] == {**pinned.row["pinned"], "seed": "5a" * 32}
    assert bodies(other["path"]) != bodies(pinned.row["path"])


def test_it_reproduces_exactly(site: Place, pinned: Answer) -> None:
    """A pinned attempt runs pinned again, with its own date, seed and kernel, and every byte is the recorded one; a date shifted on top of it changes nothing."""
    answer = site.hermeval("reproduce", "--json", "--shift-date=-86400000", pinned.row["path"])
    (row,) = answer.object["results"]
    assert (answer.code, row["verdict"], row["requests"]) == (0, "exact", {"served": 5, "exact": 5}), answer.stdout
    assert 1 <= row["tries"] <= 5


def test_an_altered_world_is_no_match(site: Place, pinned: Answer, tmp_path: Path) -> None:
    """An attempt whose plan names another date than the one that it ran with diverges or is refused; it never matches."""
    from tests.reproduce.conftest import edit_json, rewrite

    attempt = open_attempt(Path(pinned.row["path"]))
    for alter in (_other_date, _other_seed_everywhere):
        path = rewrite(attempt, tmp_path, parts=edit_json(attempt, "plan.json", alter))
        answer = site.hermeval("reproduce", "--json", str(path))
        (row,) = answer.object["results"]
        assert (answer.code, row["verdict"]) in ((2, "error"), (1, "diverged")), answer.stdout
        path.unlink()


def _other_date(plan: dict[str, Any]) -> None:
    plan["pinned"]["date"] = "2030-01-01T00:00:00Z"


def _other_seed_everywhere(plan: dict[str, Any]) -> None:
    old = plan["pinned"]["seed"]
    plan["pinned"]["seed"] = "5a" * 32
    plan["sandbox"]["argv"] = ["5a" * 32 if word == old else word for word in plan["sandbox"]["argv"]]


def test_free_plans_are_as_they_were(site: Place) -> None:
    """A free plan has no member about a pinned world; a committed one is made again byte for byte, and its run needs no compiler."""
    plan = site.run("look", "--prepare-only", grade=True).object["plans"][0]["plan"]
    assert plan["determinism"] == "free"
    assert "pinned" not in plan
    assert not any("LD_PRELOAD" in str(part) or "attend" in str(part) for part in (plan["sandbox"], plan["launch"]))


def test_without_a_compiler_pinned_is_refused_before_anything_starts(site: Place, cache_without_parts: Path) -> None:
    """Where there is no compiler, a pinned run and a pinned attempt's reproduction are exit 2 with one stable code and the cure; a free reproduction does not ask."""
    env = {"HERMEVAL_CACHE": str(cache_without_parts), "PATH": "/nonexistent"}
    before = set(site.out.iterdir())
    run = site.run("look", "--determinism", "pinned", env=env, grade=True)
    assert (run.code, run.object["error"]["code"]) == (2, "compiler-missing")
    assert "gcc libc6-dev" in run.object["error"]["hint"]
    assert set(site.out.iterdir()) == before
    names = ("pinned-subagent.attempt", "judge.attempt")
    again = site.hermeval("reproduce", "--json", *(str(COMMITTED / name) for name in names), env=env)
    rows = again.object["results"]
    assert [(row["verdict"], row.get("error", {}).get("code")) for row in rows] == [
        ("error", "compiler-missing"),
        ("exact", None),
    ]
    doctor = site.hermeval("doctor", "--pinned", "--json", env=env)
    found = {row["id"]: row for row in doctor.object["results"]}
    assert (doctor.code, found["pinned-machine"]["status"], found["pinned-parts"]["status"]) == (2, "ok", "failed")
    assert "gcc libc6-dev" in found["pinned-parts"]["cure"]


def test_doctor_says_that_this_machine_can_pin(site: Place) -> None:
    """doctor --pinned does it twice: nothing fails, and its control saw a difference."""
    answer = site.hermeval("doctor", "--pinned", "--json")
    assert answer.code == 0, answer.stdout
    rows = {row["id"]: row["status"] for row in answer.object["results"]}
    assert set(rows) == {"pinned-machine", "pinned-parts", "pinned-run", "pinned-world", "pinned-twice", "pinned-seed"}
    assert {status for name, status in rows.items() if name != "pinned-twice"} == {"ok"}
    assert rows["pinned-twice"] in ("ok", "degraded")


def test_a_shifted_date_is_explained_by_the_date_rule(site: Place) -> None:
    """A free attempt, run with the date inside a thousand days on, is normalised, by the rule for dates among others."""
    answer = site.hermeval("reproduce", "--json", "--shift-date", "86400000", str(COMMITTED / "plain.attempt"))
    (row,) = answer.object["results"]
    assert (row["verdict"], set(row["rules"])) == ("normalised", {"date"})


REFUSED: dict[str, tuple[str, ...]] = {
    "a date without pinned": ("--pinned-date", "2030-01-01"),
    "a seed without pinned": ("--pinned-seed", "00" * 32),
    "a date that is none": ("--determinism", "pinned", "--pinned-date", "2030-02-30"),
    "a date before certificates": ("--determinism", "pinned", "--pinned-date", "1999-12-31"),
    "a seed that is none": ("--determinism", "pinned", "--pinned-seed", "5A" * 32),
    "grading": ("--determinism", "pinned", "--no-judge"),
    "votes": ("--determinism", "pinned", "--votes", "3"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_options_that_make_no_sense_are_refused(site: Place, name: str) -> None:
    """Each is exit 2 before anything starts; the same plan with a good date and seed is made."""
    assert site.run("look", "--prepare-only", *REFUSED[name], grade=True).code == 2
    good = ("--determinism", "pinned", "--pinned-date", "2030-01-31", "--pinned-seed", "5a" * 32)
    plan = site.run("look", "--prepare-only", *good, grade=True).object["plans"][0]["plan"]
    assert plan["pinned"]["date"] == "2030-01-31T12:00:00Z"
