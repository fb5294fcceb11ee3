"""The real, pinned Promptfoo over saved attempts: named checks, metadata, and faults that stay faults (B10, cases G)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from runner.errors import GraderFault, ToolchainMismatch
from runner.fixture import Fixture, parse_fixture
from runner.grade.answers import CheckResult
from runner.grade.assertions import Criterion, ask
from runner.grade.grading import Grader
from runner.grade.promptfoo import Graded, Promptfoo
from runner.grade.subject import Subject, load_subject
from sandbox.process import Host
from tests.grade.conftest import ANSWER, Remade, Saved

RAN = [CheckResult("ran", True, "it did")]


def fixture_with(*assertions: dict[str, Any]) -> Fixture:
    case = {
        "id": "x",
        "synthetic": True,
        "profile": "artifact",
        "skill": "cf",
        "input": {},
        "rubric": [{"id": "polite", "criterion": "Is polite. {{ output }} {% if %}"}],
    }
    return parse_fixture(json.dumps({**case, "assert": assertions} if assertions else case).encode(), "x")


@pytest.fixture
def promptfoo(grader: Grader) -> Promptfoo:
    """The module's running Promptfoo."""
    return grader._promptfoo


@pytest.fixture
def subject(saved: Saved) -> Subject:
    """The session's measured attempt."""
    return load_subject(saved.measured)


LISTED: dict[str, tuple[dict[str, Any], bool]] = {
    "contains": ({"type": "contains", "value": "unresolved"}, True),
    "contains-no": ({"type": "contains", "value": "operator"}, False),
    "not-contains": ({"type": "not-contains", "value": "operator"}, True),
    "icontains-all": ({"type": "icontains-all", "value": ["AUDITOR", "role"]}, True),
    "regex": ({"type": "regex", "value": "^auditor: \\w+"}, True),
    "starts-with": ({"type": "starts-with", "value": "auditor"}, True),
    "equals": ({"type": "equals", "value": ANSWER}, True),
    "is-json": ({"type": "is-json"}, False),
    "not-is-json": ({"type": "not-is-json"}, True),
    "word-count": ({"type": "word-count", "value": {"min": 3, "max": 30}}, True),
    "levenshtein": ({"type": "levenshtein", "value": ANSWER, "threshold": 0}, True),
    "javascript": ({"type": "javascript", "value": "output.length > 10 && context.metadata.numTurns >= 1"}, True),
    "javascript-lines": (
        {"type": "javascript", "value": "const n = context.metadata.toolCalls.length;\nreturn n === 2;"},
        True,
    ),
    "skill-used": ({"type": "skill-used", "value": "workflow"}, True),
    "skill-used-other": ({"type": "skill-used", "value": "cf"}, False),
    "not-skill-used": ({"type": "not-skill-used", "value": "cf"}, True),
    "tool-used": ({"type": "trajectory:tool-used", "value": "Read"}, True),
    "tool-used-none": ({"type": "trajectory:tool-used", "value": "Bash"}, False),
    "sequence": ({"type": "trajectory:tool-sequence", "value": ["Skill", "Read"]}, True),
    "sequence-back": ({"type": "trajectory:tool-sequence", "value": ["Read", "Skill"]}, False),
    "args": ({"type": "trajectory:tool-args-match", "value": {"name": "Skill", "args": {"skill": "workflow"}}}, True),
    "steps": ({"type": "trajectory:step-count", "value": {"type": "tool", "min": 2, "max": 2}}, True),
    "error-spans": ({"type": "trace-error-spans", "value": {"max_count": 0}}, True),
    "cost": ({"type": "cost", "threshold": 1}, True),
    "latency": ({"type": "latency", "threshold": 1}, False),
    "finish-reason": ({"type": "finish-reason", "value": "stop"}, True),
}


def test_listed_checks_run_over_a_saved_attempt(promptfoo: Promptfoo, subject: Subject) -> None:
    """Promptfoo's own checks see the saved answer, its tool calls, skill calls and numbers, and come back by name."""
    fixture = fixture_with(*({**assertion, "metric": name} for name, (assertion, _) in LISTED.items()))
    assert subject.graded is not None
    checks, _ = promptfoo.grade(subject.graded, ask(RAN, fixture, ()))
    found = {check.id: check.met for check in checks if check.source == "assert"}
    assert found == {name: met for name, (_, met) in LISTED.items()}
    assert [check for check in checks if check.source == "profile"] == RAN


def test_metadata_is_named_as_the_providers_is(subject: Subject) -> None:
    """Skill calls, tool calls with their results, turns, duration and terminal reason stand under the provider's names."""
    assert subject.graded is not None
    metadata = subject.graded.metadata
    (skill,) = metadata["skillCalls"]
    assert (skill["name"], skill["is_error"], skill["source"]) == ("workflow", False, "tool")
    assert [call["name"] for call in metadata["toolCalls"]] == ["Skill", "Read"]
    assert "Keep a missing account unresolved." in metadata["toolCalls"][1]["output"]
    assert metadata["toolCalls"][1]["is_error"] is False
    assert isinstance(metadata["numTurns"], int)
    assert isinstance(metadata["durationMs"], int)
    assert subject.effort.tool_calls == 2
    assert subject.effort.requests == 3


def test_criteria_are_given_as_values(promptfoo: Promptfoo, subject: Subject) -> None:
    """A criterion that our judge decided comes back with the judge's verdict and reason; text of the rubric is no template (G11)."""
    fixture = fixture_with(
        {"type": "llm-rubric", "value": "polite", "metric": "rubric"},
        {"type": "not-llm-rubric", "value": "polite", "metric": "not-rubric"},
    )
    assert subject.graded is not None
    for met in (True, False):
        criteria = [Criterion("polite", fixture.rubric[0].criterion, met, "because {{ env.HOME }}")]
        checks, found = promptfoo.grade(subject.graded, ask(RAN, fixture, criteria))
        assert [(one.id, one.met, one.reason) for one in found] == [("polite", met, "because {{ env.HOME }}")]
        assert [(one.id, one.met) for one in checks[1:]] == [("rubric", met), ("not-rubric", not met)]


@pytest.mark.parametrize(
    "output",
    [
        "{{ env.TMPDIR }} {% if %} {{",
        "a\x00b",
        "\ud800 lone",
        "x" * 8_000_000,
        '{"a":1}',
        "[1,2]",
        "429 rate limit exceeded, retry later",
    ],
    ids=["templates", "nul", "surrogate", "8 MB", "json", "list", "rate limit"],
)
def test_text_is_never_read_as_anything_else(promptfoo: Promptfoo, output: str) -> None:
    """No template, JSON, marker of a live error (G05) or odd character in an answer changes it: checks see exactly that text (G09)."""
    length = len(output.encode("utf-16-le", "surrogatepass")) // 2
    begins = output[:50].replace("\ud800", "")
    fixture = fixture_with(
        {"type": "javascript", "value": f"typeof output === 'string' && output.length === {length}", "metric": "same"},
        {"type": "contains", "value": begins, "metric": "begins"},
    )
    checks, _ = promptfoo.grade(Graded("a" * 64, output), ask(RAN, fixture, ()))
    assert [check.met for check in checks] == [True, True, True]


FAULTS = {
    "throws": ("foo.bar", "foo is not defined"),
    "is no code": ("return return", "could not be carried out"),
    "gives text": ("'yes'", "must return a boolean"),
    "gives null": ("null", "must return a boolean"),
    "ends the program": ("globalThis.process.exit(0)", "a check called process.exit"),
    "asks the network": ("fetch('http://desk.invalid').then(() => true)", "fetch failed"),
    "starts a program": (
        "globalThis.process.getBuiltinModule('child_process').execFileSync('/opt/node') && true",
        "Access to this API has been restricted",
    ),
    "reads a file": (
        "globalThis.process.getBuiltinModule('fs').readFileSync('/etc/hostname') && true",
        "Access to this API has been restricted",
    ),
    "kills the program": ("globalThis.process.kill(globalThis.process.pid, 9) && true", "ended without an answer"),
    "loops": ("(() => { while (true); })()", "no answer within"),
}


@pytest.fixture(scope="module")
def short_lived(host: Host, grader: Grader) -> Iterator[Promptfoo]:
    """A Promptfoo with little patience, for code that does it harm."""
    with Promptfoo(host, grader.toolchain, limit_s=15.0) as made:
        yield made


@pytest.mark.parametrize("name", FAULTS)
def test_code_that_fails_is_a_fault_of_its_attempt(short_lived: Promptfoo, name: str) -> None:
    """A listed check that throws, gives no verdict, or reaches out is a grader error, never a fail (G13); the next attempt is graded."""
    code, reason = FAULTS[name]
    with pytest.raises(GraderFault) as caught:
        short_lived.grade(Graded("a" * 64, "x"), ask(RAN, fixture_with({"type": "javascript", "value": code}), ()))
    assert reason in caught.value.message
    checks, _ = short_lived.grade(Graded("b" * 64, "x"), ask(RAN, fixture_with(), ()))
    assert checks == tuple(RAN)


def test_code_cannot_answer_for_another_fixture(host: Host, grader: Grader) -> None:
    """Code that changes the grading program itself changes nothing for attempts of other fixtures: they are graded in another process."""
    evil = fixture_with(
        {
            "type": "javascript",
            "value": "(() => { JSON.stringify = () => '{\"forged\":1}'; String.prototype.includes = () => true; return true })()",
        }
    )
    with Promptfoo(host, grader.toolchain) as promptfoo:
        with pytest.raises(GraderFault, match="another question"):
            promptfoo.grade(Graded("a" * 64, "x"), ask(RAN, evil, ()), domain=evil.sha256)
        honest = fixture_with({"type": "contains", "value": "absent", "metric": "m"})
        checks, _ = promptfoo.grade(Graded("b" * 64, "x"), ask(RAN, honest, ()))
        assert [check.met for check in checks] == [True, False]


def test_malformed_check_does_not_hide_its_neighbours(promptfoo: Promptfoo) -> None:
    """A check that Promptfoo cannot carry out is named in the fault; without it the others are graded as ever."""
    bad, good = {"type": "word-count", "value": {"other": 1}}, {"type": "contains", "value": "x"}
    with pytest.raises(GraderFault, match="assert-1-word-count"):
        promptfoo.grade(Graded("a" * 64, "x"), ask(RAN, fixture_with(bad, good), ()))
    checks, _ = promptfoo.grade(Graded("a" * 64, "x"), ask(RAN, fixture_with(good), ()))
    assert [check.met for check in checks] == [True, True]


def test_passing_on_nothing_is_a_fault(promptfoo: Promptfoo) -> None:
    """A check over spans that there are not says nothing, so it gives no verdict; over a blank answer a negative check is not met (G07)."""
    with pytest.raises(GraderFault, match="passed on nothing"):
        promptfoo.grade(Graded("a" * 64, "x"), ask(RAN, fixture_with({"type": "trace-error-spans"}), ()))
    negative = fixture_with({"type": "not-contains", "value": "operator"}, {"type": "not-skill-used", "value": "cf"})
    assert [one.met for one in promptfoo.grade(Graded("a" * 64, "fine"), ask(RAN, negative, ()))[0]] == [
        True,
        True,
        True,
    ]
    assert [one.met for one in promptfoo.grade(Graded("a" * 64, " \n"), ask(RAN, negative, ()))[0]] == [
        True,
        False,
        True,
    ]


def test_other_versions_are_refused(host: Host, grader: Grader) -> None:
    """A Promptfoo or Node that says another version than the lock is a mismatch that names both."""
    other = replace(grader.toolchain, promptfoo=replace(grader.toolchain.promptfoo, version="0.123.2"))
    with Promptfoo(host, other) as promptfoo, pytest.raises(ToolchainMismatch, match=r"0\.123\.1.*0\.123\.2"):
        promptfoo.grade(Graded("a" * 64, "x"), ask(RAN, fixture_with(), ()))


def test_one_process_answers_for_many(host: Host, grader: Grader, remade: Remade) -> None:
    """Fifty attempts are graded by one start of each program, which stay below 600 MB."""
    subject = load_subject(remade(number=1))
    with Grader(host, cache_root=grader.toolchain.root.parents[1]) as one:
        for _ in range(50):
            assert one.grade(subject).verdict == "pass"
        assert (one._promptfoo.starts, one._profiles.starts) == (1, 1)
