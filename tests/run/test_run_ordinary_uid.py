"""Commands as an ordinary user who has nothing but /usr/bin and /bin, from a checkout that nobody can write to (issue 1, acceptance 2)."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runner.bundle.reader import open_attempt
from tests.run.conftest import ROOT, Place
from tests.run.installed import CACHE, find_python
from tests.run.leftovers import descendants_of
from tests.run.test_run_workspace import HIDE, assert_all_seen, does

UID = 61234
CHECKOUT = ("runner", "sandbox", "profiles", "fixtures", "ci")


@dataclass(frozen=True)
class Ordinary:
    """An ordinary user with an empty home and a read-only checkout."""

    checkout: Path
    home: Path

    @property
    def identity(self) -> dict[str, Any]:
        """How to become that user; where the tests are an ordinary user's already, it is that one."""
        return {"user": UID, "group": UID, "extra_groups": ()} if os.geteuid() == 0 else {}

    def start(self, *arguments: str, **env: str) -> subprocess.Popen[str]:
        """Start ``hermeval ARGUMENTS`` as that user."""
        surroundings: Mapping[str, str] = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.home),
            "HERMEVAL_CACHE": str(CACHE),
            "PYTHONPATH": str(self.checkout),
            "PYTHONDONTWRITEBYTECODE": "1",
            **env,
        }
        argv = [str(find_python()), "-P", "-m", "runner.cli", *arguments]
        return subprocess.Popen(
            argv, env=surroundings, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **self.identity
        )

    def hermeval(self, *arguments: str, **env: str) -> dict[str, Any]:
        """Run ``hermeval ARGUMENTS``, which must end with 0; returns the object."""
        process = self.start(*arguments, **env)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, out + err
        answer: dict[str, Any] = json.loads(out)
        return answer


@pytest.fixture
def ordinary() -> Iterator[Ordinary]:
    """A fresh user: a home of its own below /tmp, and a copy of the checkout in which nothing can be written, root's own where root tests."""
    base = Path(f"/tmp/ordinary-{os.urandom(6).hex()}")
    base.mkdir(mode=0o755)
    try:
        home, checkout = base / "home", base / "checkout"
        home.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(home, UID, UID)
        for name in CHECKOUT:
            shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
        for path in [checkout, *checkout.rglob("*")]:
            path.chmod((stat.S_IMODE(path.stat().st_mode) | 0o444) & ~0o222)
        for path in [checkout, *checkout.rglob("*")]:
            if path.is_dir():
                path.chmod(0o555)
        yield Ordinary(checkout, home)
    finally:
        for path in base.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        shutil.rmtree(base)


def test_run_verify_and_show_as_an_ordinary_user(ordinary: Ordinary) -> None:
    """A run of the shipped fixture with nothing said but its name: measured, kept below that user's home, verified, shown, listed; the checkout is untouched."""
    before = sorted(map(str, ordinary.checkout.rglob("*")))
    answer = ordinary.hermeval("run", "missing-account", "--no-grade", "--json", XDG_RUNTIME_DIR="/etc")
    (row,) = answer["attempts"]
    assert (row["outcome"]["kind"], row["skill_state"]) == ("measured", "ran")
    assert row["witnesses"] == {"transcript": True, "wire": True}
    path = Path(row["path"])
    assert path.parent == ordinary.home / ".local" / "state" / "hermeval" / "attempts"
    assert path.stat().st_uid == (UID if os.geteuid() == 0 else os.geteuid())
    (verified,) = ordinary.hermeval("verify", "--json", str(path))["results"]
    claims = ("intact", "format", "plan", "toolchain", "evidence")
    assert {name: verified["claims"][name] for name in claims} == dict.fromkeys(claims, "held")
    assert ordinary.hermeval("show", "--json", str(path))["attempts"] == [row]
    assert [entry["id"] for entry in ordinary.hermeval("list", "--json")["attempts"]] == [row["id"]]
    assert sorted(map(str, ordinary.checkout.rglob("*"))) == before
    observed = json.loads(open_attempt(path).part("observations.json"))
    assert observed["run_uid"] == path.stat().st_uid, "no uid was changed, since there was none to drop"
    assert observed["staging"] == "XDG_RUNTIME_DIR is not used: it belongs to uid 0", (
        "the run lay elsewhere, and says so"
    )


def test_doctor_as_an_ordinary_user(ordinary: Ordinary) -> None:
    """Everything that a run needs is found, a whole run included, and nothing is left in the home."""
    results = ordinary.hermeval("doctor", "--json", "--full")["results"]
    assert [result for result in results if result["status"] == "failed"] == []
    assert {result["id"]: result["status"] for result in results}["run"] == "ok"
    assert list(ordinary.home.iterdir()) == []


def test_both_users_send_the_same_bytes(ordinary: Ordinary, place: Place) -> None:
    """Who runs it does not show inside: plan and request bodies of this user's run equal those of the tests' own user."""
    theirs = open_attempt(
        Path(ordinary.hermeval("run", "missing-account", "--no-grade", "--json")["attempts"][0]["path"])
    )
    ours = open_attempt(
        Path(place.hermeval("run", "missing-account", "--no-grade", "--json", "--out", str(place.out)).row["path"])
    )
    assert theirs.part("plan.json") == ours.part("plan.json")
    bodies = [
        [exchange.request.body for exchange in attempt.exchanges() if exchange.kind == "inference"]
        for attempt in (theirs, ours)
    ]
    assert bodies[0] == bodies[1]
    assert len(bodies[0]) == 2


def test_a_private_runtime_directory_is_used_and_left_empty(ordinary: Ordinary) -> None:
    """With XDG_RUNTIME_DIR the run's private directory lies there while it runs, owned by the user, and is gone afterwards."""
    runtime = ordinary.home / "runtime"
    runtime.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(runtime, UID, UID)
    seen: set[str] = set()
    with ordinary.start("run", "missing-account", "--json", XDG_RUNTIME_DIR=str(runtime)) as process:
        while process.poll() is None:
            seen |= {path.name for path in runtime.iterdir()}
            seen |= {"supervisor" for found in descendants_of(process.pid) if str(runtime).encode() in found.command}
        assert process.returncode == 0, process.communicate()
        process.communicate()
    assert {name.split("-")[0] for name in seen} == {"hermeval", "supervisor"}
    assert list(runtime.iterdir()) == []


def test_what_an_agent_closed_is_kept_for_an_ordinary_user_too(ordinary: Ordinary, place: Place) -> None:
    """The collector has no privilege over the agent's files but to own them: all is read, equal to what the tests' own user gets, who reproduces the attempt exactly."""
    folder = ordinary.home.parent / "fixtures"
    shutil.copytree(place.folder, folder)
    name = does(Place(folder, place.out), "hide", HIDE)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (row,) = ordinary.hermeval("run", name, "--no-grade", "--json", "--fixtures", str(folder))["attempts"]
    assert row["outcome"]["kind"] == "measured"
    assert not [note for note in row["notes"] if "workspace" in note]
    assert_all_seen(Path(row["path"]))
    again = place.hermeval("reproduce", "--json", row["path"])
    assert again.code == 0, again.stdout + again.stderr
