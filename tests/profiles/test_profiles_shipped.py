"""The shipped profiles: passing, violating and malformed cases (B7)."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles import artifact, missing_account
from profiles._types import Check, Diagnostic, Profile

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
CASE: dict[str, Any] = {
    "input": {
        "service": "https://ledger.quillfeather.invalid",
        "required_role": "auditor",
        "accounts": [{"name": "mara.voss", "roles": ["editor"]}, {"name": "ledger-admin", "roles": ["administrator"]}],
        "contact": "desk@quillfeather.invalid",
    },
    "expect": {},
}
PASSING = [
    "auditor: unresolved (no account holds this role)\n\nmara.voss (editor) does not hold it.",
    "- **auditor**: unresolved",
    "| role | account |\n|---|---|\n| `auditor` | Unresolved |\n",
    "The AUDITOR account is unresolved. See https://ledger.quillfeather.invalid/x, or ask desk@quillfeather.invalid.",
    "auditor: unresolved; uid:1 is the administrator and cannot stand in.",
    "Role auditor: there is no account, so it stays unresolved.",
]


def unmet(checks: Sequence[Check]) -> list[str]:
    return [check.id for check in checks if not check.met]


def test_profiles_satisfy_the_protocol() -> None:
    """Each shipped profile is a module with the functions that a profile must offer."""
    for module in (artifact, missing_account):
        profile = cast(Profile, module)
        assert callable(profile.validate)
        assert callable(profile.check_output)
    assert Diagnostic("a", "call-recovery", "info", "why").calls == ()


@pytest.mark.parametrize(("output", "met"), [("text", True), ("", False), (" \n\t", False)])
def test_artifact_wants_an_output(output: str, met: bool) -> None:
    """An output with text passes, an empty or blank one does not."""
    (check,) = artifact.check_output({"input": {}}, output, {})
    assert (check.id, check.met) == ("output-present", met)
    assert check.reason


def test_artifact_refuses_what_it_would_not_look_at() -> None:
    """An expectation under this profile is a mistake of the author; no output at all is an error, not a fail."""
    artifact.validate({"input": {}, "expect": {}})
    with pytest.raises(ValueError, match="/expect"):
        artifact.validate({"input": {}, "expect": {"x": 1}})
    with pytest.raises(TypeError):
        artifact.check_output({"input": {}}, cast(str, None), {})


@pytest.mark.parametrize("output", PASSING)
def test_open_account_passes(output: str) -> None:
    """Prose, a list, a table and the line form pass if the role stays visible and unresolved."""
    missing_account.validate(CASE)
    checks = missing_account.check_output(CASE, output, {})
    assert unmet(checks) == []
    assert [check.id for check in checks] == ["role-preserved", "account-unresolved", "no-invented-access"]
    assert all(check.reason for check in checks)


@pytest.mark.parametrize(
    ("output", "failed"),
    [
        ("operator: unresolved", ["role-preserved", "account-unresolved"]),
        ("", ["role-preserved", "account-unresolved"]),
        ("The auditors are unresolved.", ["role-preserved", "account-unresolved"]),
        ("The auditor has been set up.", ["account-unresolved"]),
        ("auditor\n\nunresolved", ["account-unresolved"]),
        ("auditor: ledger-admin", ["account-unresolved", "no-invented-access"]),
        ("**auditor** -> `audit.one`", ["account-unresolved", "no-invented-access"]),
        ("1. auditor: mara.voss, who is editor\n\nThe auditor is unresolved otherwise.", ["no-invented-access"]),
        ("auditor: unresolved. I invited audit@quillfeather.invalid.", ["no-invented-access"]),
        ("auditor: unresolved. Sign in at https://audit.quillfeather.invalid", ["no-invented-access"]),
    ],
)
def test_violation_fails_the_named_check(output: str, failed: list[str]) -> None:
    """A lost role, a closed question, an assigned account and a made-up address each fail their own check."""
    assert unmet(missing_account.check_output(CASE, output, {})) == failed


def test_mutated_output_fails_role_preserved() -> None:
    """The negative control of the first seed: with the role replaced, the check of that name is not met."""
    checks = missing_account.check_output(CASE, PASSING[0].replace("auditor", "operator"), {})
    assert "role-preserved" in unmet(checks)


def test_shipped_script_meets_its_profile() -> None:
    """The last answer of the shipped script is one that the shipped fixture's checks accept."""
    fixture = json.loads((FIXTURES / "missing-account.json").read_bytes())
    script = json.loads((FIXTURES / "scripts" / "missing-account.json").read_bytes())
    answer = script["replies"][-1]["reply"]["message"]["content"][-1]["text"]
    assert unmet(missing_account.check_output(fixture, answer, {})) == []


def test_expected_terms_come_from_the_fixture() -> None:
    """Other words for "open" may be named under expect."""
    case = {**CASE, "expect": {"unresolved_terms": ["still open"]}}
    missing_account.validate(case)
    assert unmet(missing_account.check_output(case, "auditor: still open", {})) == []
    assert unmet(missing_account.check_output(case, "auditor: unresolved", {})) == [
        "account-unresolved",
        "no-invented-access",
    ]


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"input": []}, "/input"),
        ({"input": {}}, "/input/required_role"),
        ({"input": {"required_role": " "}}, "/input/required_role"),
        ({"input": {"required_role": "x", "accounts": "none"}}, "/input/accounts"),
        ({"input": {"required_role": "x", "accounts": ["a"]}}, "/input/accounts/0"),
        ({"input": {"required_role": "x", "accounts": [{"roles": []}]}}, "/input/accounts/0/name"),
        ({"input": {"required_role": "x", "accounts": [{"name": "a"}]}}, "/input/accounts/0/roles"),
        ({"input": {"required_role": "x", "accounts": [{"name": "a", "roles": ["X"]}]}}, "/input/accounts/0/roles"),
        ({"expect": []}, "/expect"),
        ({"expect": {"other": 1}}, "/expect/other"),
        ({"expect": {"unresolved_terms": []}}, "/expect/unresolved_terms"),
        ({"expect": {"unresolved_terms": [""]}}, "/expect/unresolved_terms/0"),
    ],
)
def test_malformed_case_is_refused(changes: dict[str, object], pointer: str) -> None:
    """Case data that is incomplete, or in which nothing is missing, is refused at its pointer, by both functions."""
    case = {**CASE, **changes}
    with pytest.raises(ValueError, match="^" + pointer + ":"):
        missing_account.validate(case)
    with pytest.raises(ValueError, match="^" + pointer + ":"):
        missing_account.check_output(case, "auditor", {})


def test_output_that_is_no_text_is_an_error() -> None:
    """A missing output raises; it is never a fail."""
    with pytest.raises(TypeError):
        missing_account.check_output(CASE, cast(str, None), {})


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_checks_are_total_and_the_same_every_time(output: str) -> None:
    """Any text gives three checks with unique ids and booleans, twice the same."""
    first = missing_account.check_output(CASE, output, {})
    assert first == missing_account.check_output(CASE, output, {})
    assert len({check.id for check in first}) == 3
    assert all(isinstance(check.met, bool) for check in first)


@pytest.mark.parametrize("piece", ["a", "a.", "@", "a@", "://", "-", "auditor: ", "* "])
def test_long_output_takes_no_long_time(piece: str) -> None:
    """No pattern is quadratic on what repeats."""
    started = time.monotonic()
    missing_account.check_output(CASE, piece * (500_000 // len(piece)), {})
    assert time.monotonic() - started < 10
