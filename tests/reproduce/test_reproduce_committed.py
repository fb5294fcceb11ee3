"""The committed attempts give the verdicts and words that fixtures/attempts/expected.json names, wherever they are checked out (issue 3, acceptance 3; B8, B9, C3)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.run.conftest import ROOT, Place

ATTEMPTS = ROOT / "fixtures" / "attempts"
EXPECTED = json.loads((ATTEMPTS / "expected.json").read_text())["attempts"]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The committed attempts in another, writable place."""
    folder = tmp_path_factory.mktemp("committed")
    for path in ATTEMPTS.glob("*.attempt"):
        shutil.copyfile(path, folder / path.name)
    return folder


def test_every_committed_attempt_is_expected_and_whole(place: Place) -> None:
    """expected.json names exactly the files that lie there, at least ten kinds with exchanges, and each of format 2 holds every claim."""
    assert {path.name for path in ATTEMPTS.glob("*.attempt")} == set(EXPECTED)
    whole = [str(ATTEMPTS / name) for name in EXPECTED if name != "version-1.attempt"]
    assert len(whole) - 1 >= 10
    verified = place.hermeval("verify", "--json", *whole)
    assert verified.code == 0, verified.stderr
    for result in verified.object["results"]:
        assert {result["claims"][name] for name in ("intact", "format", "plan", "toolchain")} == {"held"}


def test_replay_gives_the_expected_verdicts(place: Place, copies: Path) -> None:
    """Each worker's attempt is regraded to the verdict that is written down; the negative control names the failed check."""
    workers = [name for name, words in EXPECTED.items() if words["replay"] is not None]
    answer = place.hermeval("replay", "--json", *(str(copies / name) for name in workers))
    rows = {Path(row["path"]).name: row for row in answer.object["attempts"]}
    assert {name: rows[name]["verdict"] for name in workers} == {name: EXPECTED[name]["replay"] for name in workers}
    control = {check["id"]: check["met"] for check in rows["negative-control.attempt"]["checks"]}
    assert control["role-preserved"] is False
    assert answer.code == 1


def test_reproduce_gives_the_expected_words(place: Place, copies: Path) -> None:
    """Each attempt is run again by the real CLI from another path, time zone and locale, and comes out as it is written down."""
    env = {"TZ": "Pacific/Auckland", "LC_ALL": "C", "LANG": "C"}
    answer = place.hermeval("reproduce", "--json", *(str(copies / name) for name in EXPECTED), env=env)
    rows = {Path(row["path"]).name: row for row in answer.object["results"]}
    wrong = {name: rows[name] for name, words in EXPECTED.items() if rows[name]["verdict"] not in words["reproduce"]}
    assert not wrong
    assert rows["version-1.attempt"]["error"]["code"] == "no-exchanges"
    assert rows["negative-control.attempt"]["first_difference"]["place"] == "output"
    assert answer.code == 2
