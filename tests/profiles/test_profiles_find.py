"""Profiles are found by name alone, and what they raise is an error of their fixture (B6, B15)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runner.errors import FixtureInvalid, ProfileUnknown
from runner.fixture import Fixture, list_fixtures, load_fixture, parse_fixture
from runner.profile import find_profile, list_profiles, load_profile, validate_fixture

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def fixture_of(profile: str, **changes: object) -> Fixture:
    raw: dict[str, Any] = {
        "id": "a",
        "synthetic": True,
        "profile": profile,
        "skill": "one",
        "input": {},
        "rubric": [{"id": "r", "criterion": "x"}],
    }
    return parse_fixture(json.dumps({**raw, **changes}).encode(), "a")


def test_shipped_profiles_are_listed() -> None:
    """The shipped profiles have ids with hyphens; the result types are none of them."""
    assert {"artifact", "missing-account"} <= set(list_profiles())
    assert not any("types" in name for name in list_profiles())


def test_shipped_fixtures_are_valid() -> None:
    """Each shipped fixture loads, and its profile takes it."""
    shipped = [load_fixture(path) for path in list_fixtures(FIXTURES)]
    assert {fixture.id for fixture in shipped} >= {"missing-account", "slash-cf", "workflow-routing"}
    for fixture in shipped:
        assert validate_fixture(fixture).id == fixture.profile
        assert (FIXTURES / "scripts" / f"{fixture.script_name}.json").is_file()


def test_third_profile_needs_no_edit(tmp_path: Path) -> None:
    """A new file in the folder is a new profile, dataclasses and all."""
    (tmp_path / "third_one.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    x: int = 1\n"
        "def validate(fixture):\n    assert fixture['profile'] == 'third-one'\ndef check_output(fixture, output, context):\n    return []\n"
    )
    assert list_profiles(tmp_path) == ("third-one",)
    assert validate_fixture(fixture_of("third-one"), tmp_path).path == tmp_path / "third_one.py"
    assert not (tmp_path / "__pycache__").exists()


@pytest.mark.parametrize("name", ["absent", "-types", "os", "missing-account.evil"])
def test_unknown_profile_is_refused(name: str) -> None:
    """What is no module of the folder is refused, and the known ones are named."""
    with pytest.raises(ProfileUnknown) as caught:
        find_profile(name)
    assert "missing-account" in caught.value.hint


def test_link_is_no_profile(tmp_path: Path) -> None:
    """A profile cannot be a link to code elsewhere."""
    (tmp_path / "real.py").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "linked.py").symlink_to(tmp_path / "real.py")
    assert list_profiles(tmp_path / "folder") == ()
    assert list_profiles(tmp_path) == ("real",)


@pytest.mark.parametrize(
    "source",
    [
        "raise RuntimeError('x')",
        "def validate(fixture): pass",
        "def check_output(a, b, c): pass",
        "validate = check_output = 1",
        "not python",
    ],
)
def test_broken_module_is_refused(source: str, tmp_path: Path) -> None:
    """A module that cannot be imported or lacks a function is a ProfileUnknown, not a crash."""
    (tmp_path / "broken.py").write_text(source)
    with pytest.raises(ProfileUnknown):
        load_profile(find_profile("broken", tmp_path))


def test_refusal_carries_the_profiles_words(tmp_path: Path) -> None:
    """What validate raises is the fixture's error, at the pointer that the profile names."""
    with pytest.raises(FixtureInvalid, match="required_role") as caught:
        validate_fixture(fixture_of("missing-account"))
    assert caught.value.where == "a.json#/input/required_role"
    (tmp_path / "odd.py").write_text("def validate(fixture): raise KeyError\ndef check_output(a, b, c): pass\n")
    with pytest.raises(FixtureInvalid, match="KeyError") as caught:
        validate_fixture(fixture_of("odd"), tmp_path)
    assert caught.value.where == "a.json#"
