"""Doctor tries each thing that a run needs, and names cause and cure of what fails (issue 1; cases D10, S03)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.doctor import Check, Site, any_failed, examine
from runner.doctor.cases import check_fixtures, check_run, check_skill_rules
from runner.doctor.gate import ask_gate, check_gate, judge_gate
from runner.doctor.machine import check_attempts, check_clock, check_interpreter, check_packages, judge_room
from runner.doctor.tools import check_copy, check_grading, check_version
from runner.fixture import load_fixture
from runner.nar import nar_sha256
from runner.toolchain import current_system, default_cache_root, load_lock, open_agent, open_grader
from runner.toolchain_install import install
from sandbox.process import Host, find_host, supervise

ROOT = Path(__file__).resolve().parents[2]
STUB = "Could not start dynamically linked executable: claude\\nNixOS cannot run dynamically linked executables intended for generic linux environments out of the box."
CACHE = default_cache_root(os.geteuid(), os.environ)


@pytest.fixture(scope="module")
def host() -> Host:
    """This host."""
    return find_host()


@pytest.fixture
def reachable(host: Host) -> Iterator[Path]:
    """A directory that the run uid can enter and nobody else can change."""
    with supervise(host) as keeper:
        yield keeper.staging


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """This machine and the shipped fixtures."""
    return Site(
        CACHE, tmp_path / "state" / "attempts", ROOT / "fixtures", ROOT / "ci" / "requirements.txt", None, time.time
    )


def script(directory: Path, text: str, name: str = "claude") -> Path:
    """Write an executable shell script."""
    path = directory / name
    path.write_text(text)
    path.chmod(0o755)
    return path


def status_of(checks: list[Check]) -> dict[str, str]:
    """Check's id to its status."""
    found: dict[str, str] = {check.id: check.status for check in checks}
    assert len(found) == len(checks), "ids are unique"
    return found


def explained(check: Check) -> bool:
    """Whether a check that is not ok says why, and what to do."""
    return check.status == "ok" or bool(check.cause and check.cure)


def doctor(*arguments: str, **env: str) -> tuple[int, dict[str, Any], str]:
    """Run the command; returns exit code, object and stderr."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "runner.cli", "doctor", "--json", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, json.loads(done.stdout), done.stderr


def test_a_machine_that_can_run_has_nothing_failed(tmp_path: Path) -> None:
    """Exit 0, every check there, each explained where it is not ok, a whole run done, and nothing left behind."""
    code, answer, told = doctor("--full", "--out", str(tmp_path / "state" / "attempts"))
    assert code == 0, told
    assert (answer["schema_version"], answer["command"], answer["exit_code"]) == (1, "doctor", 0)
    checks = [Check(**result) for result in answer["results"]]
    found = status_of(checks)
    assert "failed" not in found.values()
    assert all(explained(check) for check in checks)
    needed = {
        "interpreter",
        "packages",
        "clock",
        "attempts",
        "bwrap",
        "namespaces",
        "network",
        "toolchain",
        "cli-copy",
        "fixtures",
        "skill-rules",
    }
    assert needed <= found.keys()
    tried = ("cli-version", "node-version", "gate-first-party", "gate-base-url", "run", "grader", "grading")
    assert {id_: found[id_] for id_ in tried} == dict.fromkeys(tried, "ok")
    assert list(tmp_path.iterdir()) == []
    assert "this machine can run" in told


def test_without_the_tools_the_command_fails_and_says_what_to_do(tmp_path: Path) -> None:
    """Exit 2 where the cache is empty; what needs the tools is not tried, what does not is."""
    code, answer, told = doctor("--cache", str(tmp_path / "none"), "--out", str(tmp_path), "--full")
    assert (code, answer["exit_code"]) == (2, 2)
    checks = [Check(**result) for result in answer["results"]]
    assert {check.id for check in checks if check.status == "failed"} == {
        "toolchain",
        "cli-version",
        "node-version",
        "run",
        "grader",
        "grading",
    }
    assert all(explained(check) for check in checks)
    assert status_of(checks)["gate-first-party"] == "ok"
    (missing,) = [check for check in checks if check.id == "toolchain"]
    assert str(tmp_path / "none") in missing.cause
    assert "ci/hermeval" in missing.cure
    assert "runs cannot be had here" in told


def test_without_bubblewrap_nothing_that_needs_it_is_tried(site: Site, tmp_path: Path) -> None:
    """A missing bwrap is named with its package; tools and gate are then failed for that reason, the fixtures are looked at still."""
    checks = list(examine(replace(site, bwrap=tmp_path / "bwrap", full=True)))
    found = {check.id: check for check in checks}
    assert any_failed(checks)
    assert str(tmp_path / "bwrap") in found["bwrap"].cause
    assert "bubblewrap" in found["bwrap"].cure
    for id_ in ("cli-version", "node-version", "gate-first-party", "gate-base-url", "run"):
        assert (found[id_].status, found[id_].cause) == ("failed", "not tried: bwrap failed")
    assert (found["toolchain"].status, found["fixtures"].status) == ("ok", "ok")
    assert all(explained(check) for check in checks)


def test_a_cli_that_passes_every_hash_and_does_not_work_is_found(site: Site, reachable: Path) -> None:
    """A toolchain that is as its lock says, with a program in the CLI's place that ends with 1: only trying it tells."""
    lock, cache = odd_toolchain(reachable)
    checks = {check.id: check for check in examine(replace(site, cache_root=cache, lock=lock))}
    assert (checks["toolchain"].status, checks["cli-copy"].status, checks["node-version"].status) == ("ok", "ok", "ok")
    odd = checks["cli-version"]
    assert (odd.status, explained(odd), "ended with 1" in odd.cause) == ("failed", True, True)


def odd_toolchain(folder: Path) -> tuple[Path, Path]:
    """Install a made-up toolchain; returns its lock and its cache."""
    system, cache, directory = current_system(), folder / "cache", folder / "lock"
    for kind in ("agent", "grader"):
        (directory / kind / system).mkdir(parents=True)
        (directory / kind / system / "package-lock.json").write_text("{}\n")
    tree = cache / f"agent-{system}-ca3d163bab055381" / "node_modules"  # sha256 of "{}\n"
    (tree / "stub").mkdir(parents=True)
    (tree / "node").mkdir()
    shutil.copy("/usr/bin/false", tree / "stub" / "claude")  # a copy without read permission has to be no script
    script(tree / "node", "#!/bin/sh\necho v24.22.3\n", "node")
    tools = {
        "claude": {"version": "2.1.332", "path": "stub/claude", "nar_sha256": nar_sha256(tree / "stub")},
        "node": {"version": "24.22.3", "path": "node/node", "nar_sha256": nar_sha256(tree / "node")},
    }
    shipped = json.loads((ROOT / "sandbox" / "toolchain" / "toolchain.json").read_text())
    agent = {"nar_sha256": nar_sha256(tree), **tools}
    lock = {"schema_version": 1, "systems": {system: {**shipped["systems"]["x86_64-linux"], "agent": agent}}}
    path = directory / "toolchain.json"
    path.write_text(json.dumps(lock))
    install("agent", load_lock(path), cache)
    return path, cache


@pytest.mark.parametrize(
    ("text", "words", "cure"),
    [
        (f'#!/bin/sh\nprintf "{STUB}\\n" >&2\nexit 127\n', ("ended with 127", "dynamically linked"), "loader"),
        ("#!/nonexistent/ld.so\n", ("loader",), "loader"),
        ("#!/bin/sh\necho '2.1.999 (Claude Code)'\n", ("2.1.999", "the lock says 2.1.332"), "ci/hermeval"),
        ("#!/bin/sh\nkill -SEGV $$\n", ("139",), "ci/hermeval"),
        ("#!/bin/sh\necho '2.1.332 (Claude Code)'; exit 3\n", ("ended with 3",), "ci/hermeval"),
    ],
    ids=["stub loader", "no loader", "other version", "crash", "bad exit"],
)
def test_a_cli_that_does_not_start_well_is_named_with_cause_and_cure(
    host: Host, reachable: Path, text: str, words: tuple[str, ...], cure: str
) -> None:
    """A stub loader that prints its text and exits 127 (case D10), no loader at all, another version, a crash, a bad exit status; a good one is fine."""
    check = check_version(host, "cli-version", "Claude CLI", script(reachable, text), "2.1.332")
    assert check.status == "failed"
    assert [word for word in words if word not in check.cause] == []
    assert cure in check.cure
    good = script(reachable, "#!/bin/sh\necho '2.1.332 (Claude Code)'\n", "good")
    assert check_version(host, "cli-version", "Claude CLI", good, "2.1.332").status == "ok", "the control"


def test_a_copy_that_can_be_read_fails(tmp_path: Path) -> None:
    """Mode 0755 would let an agent write into the CLI's output; a missing copy is named; the installed one is fine."""
    path = script(tmp_path, "#!/bin/sh\n")
    assert check_copy(path).status == "failed"
    assert "0755" in check_copy(path).cause
    assert "No such file" in check_copy(tmp_path / "none").cause
    assert check_copy(open_agent(load_lock(), CACHE).claude_executable).status == "ok"


def test_the_gate_check_sees_what_is_not_as_it_must_be(host: Host) -> None:
    """Another status, no answer, and a record that lacks something are each said; a sandbox that does not start is the cause."""
    seen, record, _ = ask_gate(host, "base-url", None)
    assert judge_gate(seen, record) == [], "the control"
    assert judge_gate({**seen, "refused": "200"}, record) == ["the refused request got 200, not 404"]
    assert judge_gate({}, record)[0] == "the allowed request got no answer, not 200"
    assert "0 refusals" in judge_gate(seen, record.model_copy(update={"refused": 0}))[0]
    broken = check_gate(replace(host, bwrap=Path("/usr/bin/false")), "first-party", None)
    assert (broken.status, explained(broken)) == ("failed", True)


def test_packages_that_are_missing_or_others_are_named(tmp_path: Path) -> None:
    """A package that cannot be imported fails; another version than the locked one degrades; the shipped list is fine."""
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("click==0.0.1 \\\n    --hash=sha256:00\n")
    missing = check_packages(requirements, {"no-such-thing": "no_such_thing", "click": "click"})
    assert (missing.status, "no-such-thing" in missing.cause, "ci/hermeval" in missing.cure) == ("failed", True, True)
    other = check_packages(requirements, {"click": "click"})
    assert (other.status, "locked 0.0.1" in other.cause) == ("degraded", True)
    assert check_packages(tmp_path / "none").status == "ok"


def test_without_packages_the_rest_is_not_tried(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an import fails, doctor says so in place of failing itself."""
    import runner.doctor

    broken = Check("packages", "Packages", "failed", "pydantic: ImportError", "start through ci/hermeval")
    monkeypatch.setattr(runner.doctor, "check_packages", lambda _: broken)
    checks = list(examine(site))
    assert [check.id for check in checks if check.status == "failed"] == ["packages", "sandbox", "toolchain", "gate"]
    assert all(explained(check) for check in checks)


def test_an_old_interpreter_and_a_wrong_clock_fail() -> None:
    """Python 3.10 fails, 3.11 does not; 1970 and 2050 fail, 2000 and 2049 do not."""
    assert check_interpreter((3, 10, 12)).status == "failed"
    assert check_interpreter((3, 11, 0)).status == "ok"
    years = {
        year: check_clock((year - 1970) * 365.2425 * 86_400 + 86_400 * 40).status for year in (1970, 2000, 2049, 2050)
    }
    assert years == {1970: "failed", 2000: "ok", 2049: "ok", 2050: "failed"}


def test_a_directory_that_cannot_hold_attempts_fails_and_nothing_is_left(tmp_path: Path) -> None:
    """A file in the way, a file system that takes no files, and no room; a directory that was made for the trial is gone again."""
    (tmp_path / "file").write_text("")
    for bad in (tmp_path / "file" / "attempts", Path("/proc/attempts")):
        check = check_attempts(bad)
        assert (check.status, explained(check)) == ("failed", True)
    assert check_attempts(tmp_path / "a" / "b").status == "ok"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]
    rooms = [judge_room(tmp_path, size, "room").status for size in (1 << 20, 100 << 20, 2 << 30)]
    assert rooms == ["failed", "degraded", "ok"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the shipped fixtures that can be changed: the checkout may be read-only."""
    made = Path(shutil.copytree(ROOT / "fixtures", tmp_path / "fixtures"))
    for path in [made, *made.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return made


def edit(path: Path, **fields: Any) -> None:
    """Change fields of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_fixtures_that_cannot_be_loaded_are_named(folder: Path, tmp_path: Path) -> None:
    """An unknown key, a profile that refuses, and a broken script are each named with their place; an empty folder degrades."""
    assert check_fixtures(folder)[0].status == "ok"
    edit(folder / "missing-account.json", surprise=1)
    edit(folder / "slash-cf.json", profile="nobody")
    (folder / "scripts" / "workflow-routing.json").write_text("{")
    check, fixtures = check_fixtures(folder)
    assert (check.status, explained(check)) == ("failed", True)
    assert all(word in check.cause for word in ("missing-account.json#/surprise", "nobody", "workflow-routing.json"))
    assert "workflow-routing" not in [fixture.id for fixture in fixtures]
    (tmp_path / "empty").mkdir()
    assert check_fixtures(tmp_path / "empty")[0].status == "degraded"


def test_a_policy_that_lacks_the_skills_rule_is_told(folder: Path) -> None:
    """A list of permissions without ``Skill(NAME)`` degrades; one that names or denies the skill on purpose does not (case S03)."""
    path = folder / "workflow-routing.json"
    policy = json.loads((ROOT / "tests" / "cases" / "inputs" / "S03.settings.json").read_text())["permissions"]["allow"]

    def with_rules(**rules: list[str]) -> Check:
        edit(path, worker={"settings": {"permissions": rules}})
        return check_skill_rules([load_fixture(path)])

    lacking = with_rules(allow=policy)
    assert (lacking.status, explained(lacking), "Skill(workflow)" in lacking.cause) == ("degraded", True, True)
    assert with_rules(allow=[*policy, "Skill(workflow)"]).status == "ok"
    denied = with_rules(deny=["Skill(workflow)"])
    assert (denied.status, denied.cause) == ("ok", "workflow-routing denies Skill(workflow)")


def test_a_whole_run_that_measures_nothing_fails(folder: Path, host: Host) -> None:
    """A run whose script never calls the skill is a failed check with the outcome's code; without any script it says that."""
    from runner.conduct import Machine

    machine = Machine(host, open_agent(load_lock(), CACHE))
    fixtures = [load_fixture(folder / "workflow-routing.json")]
    silent = {
        "schema_version": 1,
        "replies": [{"reply": {"message": {"content": [{"type": "text", "text": "Done."}]}}}],
    }
    (folder / "scripts" / "workflow-routing.json").write_text(json.dumps(silent))
    check = check_run(folder, fixtures, machine)
    assert (check.status, "skill-absent" in check.cause, explained(check)) == ("failed", True, True)
    (folder / "scripts" / "workflow-routing.json").unlink()
    assert "no fixture has a script" in check_run(folder, fixtures, machine).cause


def test_a_grader_that_is_another_than_the_pinned_one_fails(host: Host) -> None:
    """Promptfoo is started and says who it is; another version than the lock's is a failed check."""
    grader = open_grader(load_lock(), CACHE)
    other = replace(grader, promptfoo=replace(grader.promptfoo, version="0.0.1"))
    check = check_grading(host, other)
    assert (check.status, explained(check), "0.0.1" in check.cause) == ("failed", True, True)
