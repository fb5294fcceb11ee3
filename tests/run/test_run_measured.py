"""A run of the shipped fixtures, end to end, with the real CLI (issue 1, acceptance 1; A1–A7, B16, C1, C2)."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from runner.bundle.reader import open_attempt
from runner.gate.rules import canonical_request, differing
from runner.toolchain import current_system, default_cache_root, load_lock
from tests.run.conftest import ROOT, Place, replies, text, tool


def test_the_shipped_fixture_runs_and_its_attempt_holds(place: Place) -> None:
    """missing-account is measured, its skill ran by both witnesses, and every checkable claim of its attempt holds."""
    answer = place.hermeval("run", "missing-account", "--no-grade", "--json", "--out", str(place.out))
    assert answer.code == 0, answer.stderr
    row = answer.row
    assert row["outcome"]["kind"] == "measured"
    assert (row["skill_state"], row["witnesses"]) == ("ran", {"transcript": True, "wire": True})
    assert row["verdict"] is None
    assert answer.object["summary"] == {"passed": 0, "measured": 1, "started": 1}
    verified = place.hermeval("verify", "--json", row["path"])
    assert verified.code == 0, verified.stderr
    (result,) = verified.object["results"]
    assert result["id"] == row["id"]
    claims = ("intact", "format", "plan", "toolchain", "evidence")
    assert {name: result["claims"][name] for name in claims} == dict.fromkeys(claims, "held")


@pytest.mark.nix
def test_the_recorded_hashes_are_those_of_the_trees_on_disk(place: Place) -> None:
    """The NAR hashes in the row are what the real nix-hash says of the installed packages (C2)."""
    toolchain = place.hermeval("run", "missing-account", "--no-grade", "--json", "--out", str(place.out)).row[
        "toolchain"
    ]
    lock = load_lock()
    system = current_system()
    tree = lock.tree_directory("agent", system, default_cache_root(os.geteuid(), os.environ)) / "node_modules"
    for name, tool_lock in lock.system(system).agent.tools().items():
        told = subprocess.run(
            ["nix-hash", "--type", "sha256", str(tree / tool_lock.package)], capture_output=True, text=True, check=True
        ).stdout.strip()
        assert toolchain[name]["nar_sha256"] == "sha256-" + base64.b64encode(bytes.fromhex(told)).decode()
        assert toolchain[name]["version"] == tool_lock.version


@pytest.mark.parametrize(
    ("gate_mode", "launch"), [("first-party", "lean"), ("base-url", "stock"), ("base-url", "lean")]
)
def test_every_fixture_runs_in_every_mode(place: Place, gate_mode: str, launch: str) -> None:
    """Without a fixture's name the whole folder runs, in both gate modes and launch settings, and the attempt says which."""
    answer = place.hermeval(
        "run",
        "--no-grade",
        "--json",
        "--out",
        str(place.out),
        "--jobs",
        "2",
        "--gate-mode",
        gate_mode,
        "--launch",
        launch,
    )
    assert answer.code == 0, answer.stderr
    rows = answer.object["attempts"]
    assert [row["fixture"] for row in rows] == sorted(path.stem for path in (ROOT / "fixtures").glob("*.json"))
    for row in rows:
        assert (row["skill_state"], row["gate_mode"], row["launch"]) == ("ran", gate_mode, launch)
        assert row["witnesses"] == {"transcript": True, "wire": True}


def test_the_attempt_holds_what_went_over_the_wire(place: Place) -> None:
    """Exchanges, transcript, output, workspace and a description of the sandbox are parts of the attempt; the workspace's file is in it."""
    place.case(
        "made-file",
        replies(
            tool("Skill", "toolu_1", skill="workflow"),
            tool("Write", "toolu_2", file_path="/workspace/note.txt", content="kept\n"),
            text(),
        ),
    )
    row = place.run("made-file").row
    assert row["outcome"]["kind"] == "measured", row["outcome"]
    attempt = open_attempt(Path(row["path"]))
    sent = [exchange for exchange in attempt.exchanges() if exchange.kind == "inference"]
    assert len(sent) == 3
    assert all(exchange.response is not None and exchange.response.ending == "complete" for exchange in sent)
    assert {exchange.kind for exchange in attempt.exchanges()} == {"inference", "start-up"}
    assert b'"isReplay":true' in attempt.part("transcript.jsonl")
    assert attempt.part("output.txt").decode() == row["output"]
    (entry,) = json.loads(attempt.part("workspace.json"))["entries"]
    assert attempt.part(entry["part"]) == b"kept\n"
    sandbox = json.loads(attempt.part("sandbox.json"))
    assert sandbox["rootfs"]["kind"] == "host"
    assert sandbox["rootfs"]["pinned"] is False
    assert attempt.manifest.summary["gate_mode"] == "first-party"


def test_two_runs_send_the_same_bytes(place: Place) -> None:
    """Plans and first request bodies of two runs are byte-identical; later ones too, but for what the budget note says at that moment (ADR 0008)."""
    first, second = (
        open_attempt(
            Path(place.hermeval("run", "missing-account", "--no-grade", "--json", "--out", str(place.out)).row["path"])
        )
        for _ in range(2)
    )
    assert first.id != second.id
    assert first.part("plan.json") == second.part("plan.json")
    bodies = [
        [exchange.request.body for exchange in attempt.exchanges() if exchange.kind == "inference"]
        for attempt in (first, second)
    ]
    assert [len(sent) for sent in bodies] == [2, 2]
    assert bodies[0][0] == bodies[1][0]
    one, two = (canonical_request(sent[1]) for sent in bodies)
    assert one is not None
    assert two is not None
    rules = differing(one, two)
    assert rules is not None
    assert set(rules) <= {"budget", "cch"}


def test_prepare_only_prints_the_plan_and_calls_nobody(place: Place) -> None:
    """--prepare-only gives the plan with its sha256, the same as a run's, and leaves no attempt (B16)."""
    prepared = place.hermeval("run", "missing-account", "--json", "--prepare-only", "--out", str(place.out))
    assert prepared.code == 0, prepared.stderr
    (plan,) = prepared.object["plans"]
    assert list(place.out.iterdir()) == []
    assert (
        place.hermeval("run", "missing-account", "--no-grade", "--json", "--out", str(place.out)).row["plan_sha256"]
        == plan["plan_sha256"]
    )


def test_show_gives_the_row_that_run_gave(place: Place) -> None:
    """``show ATTEMPT`` recomputes the run's row from the file alone."""
    row = place.hermeval("run", "missing-account", "--no-grade", "--json", "--out", str(place.out)).row
    shown = place.hermeval("show", "--json", row["path"])
    assert shown.code == 0, shown.stderr
    assert shown.row == row


def test_keep_copies_workspace_and_home_out(place: Place, tmp_path: Path) -> None:
    """--keep DIR leaves the workspace and the home for diagnosis, and refuses a directory that holds something (A13)."""
    place.case(
        "kept",
        replies(
            tool("Skill", "toolu_1", skill="workflow"),
            tool("Write", "toolu_2", file_path="/workspace/note.txt", content="kept\n"),
            text(),
        ),
    )
    assert place.run("kept", "--keep", str(tmp_path / "kept")).code == 0
    assert (tmp_path / "kept" / "workspace" / "note.txt").read_text() == "kept\n"
    assert (tmp_path / "kept" / "home" / ".claude.json").is_file()
    before = set(place.out.glob("*.attempt"))
    (tmp_path / "held").mkdir()
    (tmp_path / "held" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("kept", "held", "file"):
        again = place.run("kept", "--keep", str(tmp_path / name))
        assert (again.code, again.object["error"]["code"]) == (2, "setting-invalid")
    assert set(place.out.glob("*.attempt")) == before, "nothing was run"
    assert sorted(path.name for path in (tmp_path / "held").iterdir()) == ["mine.txt"]


def test_a_recipe_is_an_installed_skill_whose_reading_is_seen(place: Place) -> None:
    """A fixture's recipe can be called like any skill, and its slots are in a request; without being named it is not there, whatever lies in the folder (B5)."""
    shutil.copytree(ROOT / "fixtures" / "recipes" / "recipe-probe", place.folder / "recipes" / "recipe-probe")
    rules = replies(
        tool("Skill", "toolu_1", skill="workflow"), tool("Skill", "toolu_2", skill="recipe-probe"), text("probe-method")
    )
    place.case("with", rules, recipes=["recipe-probe"])
    place.case("without", rules)
    done = place.run("with", "without")
    assert done.code == 0, done.stderr
    states = {
        row["fixture"]: {call["name"]: call["state"] for call in row["skill_calls"]} for row in done.object["attempts"]
    }
    assert states["with"] == {"workflow": "loaded", "recipe-probe": "loaded"}
    assert states["without"] == {"workflow": "loaded", "recipe-probe": "failed"}
    for row in done.object["attempts"]:
        attempt = open_attempt(Path(row["path"]))
        seen = any(b"Probe-handover: <name>" in exchange.request.body for exchange in attempt.exchanges())
        assert seen == (row["fixture"] == "with")
        assert attempt.has("skill-tree/recipe-probe/SKILL.md") == (row["fixture"] == "with")
