"""The outtake profiles: passing, violating and malformed cases, one for each rule (B7)."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles import run_outtake, run_outtake_coding
from profiles._types import Profile

CASE: dict[str, Any] = {
    "input": {
        "run": "run-41",
        "desk": "https://desk.quillfeather.invalid/run-41",
        "takes": [
            {"id": "take-1", "state": "taken", "title": "Intro"},
            {"id": "take-2", "state": "left-out", "title": "Blooper"},
            {"id": "take-3", "state": "open", "title": "Credits"},
        ],
    },
    "expect": {"max_words": 120},
}
PASSING = """\
# Outtake of run-41

## Summary

Two of three takes are decided. See https://desk.quillfeather.invalid/run-41.

## Taken

- **take-1**: intro

## Left out

- take-2: the boom is in the picture

## Open

1. take-3, until the names are confirmed

```
quoted: TODO /home/x
```
"""
CODING: dict[str, Any] = {
    "input": {
        **CASE["input"],
        "changes": [{"path": "src/cut_list.py", "first": 10, "last": 20}, {"path": "README.md", "first": 1, "last": 3}],
        "commands": [{"command": "pytest -q", "result": "passed"}, {"command": "mypy src", "result": "failed"}],
    },
    "expect": {"findings": [{"path": "src/cut_list.py", "first": 12, "last": 14}]},
}
REVIEW = (
    PASSING
    + """
## Findings

- [major] `src/cut_list.py:13`: the index may be negative
- [nit] README.md:2 — a word is missing

## Verification

- `pytest -q`: passed
- `mypy src` failed with one error

## Decision

**Request changes.**
"""
)


def unmet(profile: Any, case: dict[str, Any], output: str) -> list[str]:
    return [check.id for check in profile.check_output(case, output, {}) if not check.met]


def changed(case: dict[str, Any], change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    made = copy.deepcopy(case)
    change(made)
    return made


def test_good_reports_pass() -> None:
    """A report in the asked form, with every take in its section, passes; so does a review that keeps the contract."""
    for profile, case, output in ((run_outtake, CASE, PASSING), (run_outtake_coding, CODING, REVIEW)):
        cast(Profile, profile).validate(case)
        checks = profile.check_output(case, output, {})
        assert [check.id for check in checks if not check.met] == []
        assert len({check.id for check in checks}) == len(checks)
        assert all(check.reason for check in checks)


VIOLATIONS: dict[str, tuple[str, str, str]] = {
    "no title": ("# Outtake of run-41", "Outtake of run-41", "one-title"),
    "words before the title": ("# Outtake of run-41", "Here it is:\n# Outtake of run-41", "one-title"),
    "a section is missing": ("## Summary", "Summary", "sections-present"),
    "sections in another order": ("## Summary", "## Open\n## Summary", "sections-present"),
    "a placeholder": ("intro", "TBD", "no-placeholder"),
    "a template": ("intro", "{{ take }}", "no-placeholder"),
    "an open fence": ("/home/x\n```\n", "/home/x\n", "fences-closed"),
    "a local path": ("intro", "see /home/eval/notes.txt", "no-local-path"),
    "another address": ("intro", "see https://elsewhere.invalid", "addresses-known"),
    "an e-mail address": ("intro", "ask cutter@quillfeather.invalid", "addresses-known"),
    "too long": ("intro", "intro " + "very " * 200, "within-length"),
    "another run": ("# Outtake of run-41", "# Outtake of run-4", "run-named"),
    "a take is not listed": ("- **take-1**: intro", "The intro is fine.", "takes-listed"),
    "a take in prose only": (
        "- take-2: the boom is in the picture",
        "take-2: the boom is in the picture",
        "takes-listed",
    ),
    "a take under two states": ("- **take-1**: intro", "- take-1: intro\n- take-2: also", "states-kept"),
    "no reason": ("- take-2: the boom is in the picture", "- take-2: Blooper", "reasons-given"),
    "a take that there is not": ("intro", "intro, better than take-9", "no-take-invented"),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_violation_fails_its_own_check(name: str) -> None:
    """Each rule of an outtake is caught by the check of its name."""
    old, new, check = VIOLATIONS[name]
    assert old in PASSING
    assert check in unmet(run_outtake, CASE, PASSING.replace(old, new, 1))


REVIEW_VIOLATIONS: dict[str, tuple[str, str, str]] = {
    "a finding without a line": ("`src/cut_list.py:13`", "src/cut_list.py", "findings-form"),
    "an unknown severity": ("[nit]", "[cosmetic]", "findings-form"),
    "no finding at all": (
        "- [major] `src/cut_list.py:13`: the index may be negative\n- [nit] README.md:2 — a word is missing",
        "Nothing.",
        "findings-form",
    ),
    "a line that was not changed": ("README.md:2", "README.md:4", "findings-within-changes"),
    "a file that was not changed": ("README.md:2", "setup.py:2", "findings-within-changes"),
    "the expected place is missed": ("src/cut_list.py:13", "src/cut_list.py:15", "findings-expected"),
    "approved with a major finding": ("Request changes.", "Approve", "decision-follows"),
    "two decisions": ("**Request changes.**", "Request changes\n\nApprove", "decision-follows"),
    "no decision": ("**Request changes.**", "It depends.", "decision-follows"),
    "a command left out": ("- `pytest -q`: passed\n", "", "verification-told"),
    "another result": ("`mypy src` failed", "`mypy src` passed", "verification-told"),
    "both results": ("`mypy src` failed", "`mypy src` failed, then passed", "verification-told"),
    "a rule of every outtake": ("- **take-1**: intro", "-", "takes-listed"),
}


@pytest.mark.parametrize("name", REVIEW_VIOLATIONS)
def test_review_violation_fails_its_own_check(name: str) -> None:
    """Each rule of the review contract is caught by the check of its name."""
    old, new, check = REVIEW_VIOLATIONS[name]
    assert old in REVIEW
    assert check in unmet(run_outtake_coding, CODING, REVIEW.replace(old, new, 1))


def test_review_without_findings_approves() -> None:
    """Where nothing is expected a review may say that there is no finding, and then approves."""
    case = changed(CODING, lambda made: made["expect"].pop("findings"))
    start, end = REVIEW.index("- [major]"), REVIEW.index("\n\n## Verification")
    output = (REVIEW[:start] + "- None." + REVIEW[end:]).replace("**Request changes.**", "approve")
    assert unmet(run_outtake_coding, case, output) == []
    assert unmet(run_outtake_coding, case, output.replace("approve", "request changes")) == ["decision-follows"]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        (lambda made: made["input"].pop("run"), "/input/run"),
        (lambda made: made["input"].update(takes=[]), "/input/takes"),
        (lambda made: made["input"]["takes"][0].update(state="lost"), "/input/takes/0/state"),
        (lambda made: made["input"]["takes"][0].update(id="first"), "/input/takes/0/id"),
        (lambda made: made["input"]["takes"][1].update(id="TAKE-1"), "/input/takes/1/id"),
        (lambda made: made["expect"].update(sections=["Summary"]), "/expect/sections"),
        (lambda made: made["expect"].update(sections=["Taken", "taken", "Left out", "Open"]), "/expect/sections"),
        (lambda made: made["expect"].update(max_words=0), "/expect/max_words"),
        (lambda made: made["expect"].update(other=1), "/expect/other"),
        (lambda made: made.update(input=[]), "/input"),
    ],
)
def test_malformed_case_is_refused(change: Callable[[dict[str, Any]], object], pointer: str) -> None:
    """A case without run, takes or sensible expectations is refused before anything is paid, with the pointer."""
    run_outtake.validate(CASE)
    with pytest.raises(ValueError, match=f"^{pointer}"):
        run_outtake.validate(changed(CASE, change))


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        (lambda made: made["input"].pop("changes"), "/input/changes"),
        (lambda made: made["input"]["changes"][0].update(last=9), "/input/changes/0/last"),
        (lambda made: made["input"]["changes"][0].update(first=True), "/input/changes/0/first"),
        (lambda made: made["input"]["commands"][0].update(result="fine"), "/input/commands/0/result"),
        (lambda made: made["expect"]["findings"][0].update(last=30), "/expect/findings/0"),
        (lambda made: made["expect"]["findings"][0].update(path="other.py"), "/expect/findings/0"),
        (lambda made: made["input"]["takes"][0].update(state="lost"), "/input/takes/0/state"),
    ],
)
def test_malformed_review_case_is_refused(change: Callable[[dict[str, Any]], object], pointer: str) -> None:
    """A review case without changes or commands, or that expects a finding elsewhere, is refused with the pointer."""
    run_outtake_coding.validate(CODING)
    with pytest.raises(ValueError, match=f"^{pointer}"):
        run_outtake_coding.validate(changed(CODING, change))


def test_output_that_is_no_text_is_an_error() -> None:
    """No output at all is an error and not a fail."""
    for profile, case in ((run_outtake, CASE), (run_outtake_coding, CODING)):
        with pytest.raises(TypeError):
            cast(Any, profile).check_output(case, None, {})


@given(st.text(alphabet=st.sampled_from("#-*`~[]:._ \n\tatke1-0/{}<>@\\|é\u2028"), max_size=400))
@settings(max_examples=150)
def test_any_text_gives_the_same_checks_twice(output: str) -> None:
    """Whatever the output, the checks have the same ids, a verdict and a reason each, and are the same again."""
    first = run_outtake_coding.check_output(CODING, output, {})
    assert [check.id for check in first] == [check.id for check in run_outtake_coding.check_output(CODING, REVIEW, {})]
    assert all(check.reason for check in first)
    assert first == run_outtake_coding.check_output(CODING, output, {})


@pytest.mark.parametrize(
    "piece", ["a", " ", "#", "- ", "<your", "{{", "a.", "@a", "x:/", "take-1", "`", "\n# ", "[nit] a:1:"]
)
def test_hostile_text_is_read_in_linear_time(piece: str) -> None:
    """Half a megabyte of the same piece is judged in a moment, so that no answer can make the profile too slow."""
    output = f"# {piece * (500_000 // len(piece))}\n- {piece * 1000}"
    before = time.monotonic()
    run_outtake_coding.check_output(CODING, output, {})
    assert time.monotonic() - before < 4
