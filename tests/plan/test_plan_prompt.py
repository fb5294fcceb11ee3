"""The prompt's three forms, byte for byte, and what keeps it command-shaped and unambiguous."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.fixture import Fixture, load_fixture, parse_fixture
from runner.prompt import DEFAULT_TASK, build_prompt, fenced_json

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
GOLDEN = Path(__file__).resolve().parent / "golden"


def fixture_of(**changes: object) -> Fixture:
    raw: dict[str, Any] = {
        "id": "a",
        "synthetic": True,
        "profile": "artifact",
        "skill": "workflow",
        "input": {"b": 1, "a": "x"},
        "rubric": [{"id": "r", "criterion": "x"}],
    }
    return parse_fixture(json.dumps({**raw, **changes}).encode(), "a")


@pytest.mark.parametrize(
    ("fixture", "golden"),
    [("slash-cf", "slash.txt"), ("missing-account", "direct.txt"), ("workflow-routing", "routing.txt")],
)
def test_shipped_prompts_are_the_golden_bytes(fixture: str, golden: str) -> None:
    """Each form's prompt equals its golden file, exactly; a change here changes every attempt."""
    prompt = build_prompt(load_fixture(FIXTURES / f"{fixture}.json"))
    assert prompt.encode("utf-8") == (GOLDEN / golden).read_bytes()


def test_forms_without_a_task_use_the_default() -> None:
    """Routing and slash ask with the default sentence, which names no skill; the direct form needs none."""
    block = '```json\n{\n  "a": "x",\n  "b": 1\n}\n```'
    assert build_prompt(fixture_of()) == f"{DEFAULT_TASK}\n\n{block}"
    assert build_prompt(fixture_of(invocation="slash")) == f"/workflow {DEFAULT_TASK}\n\n{block}"
    direct = build_prompt(fixture_of(skill="workflow/references/provision.md"))
    assert (
        direct
        == f"/workflow Read references/provision.md in this skill's directory and apply it to the input below.\n\n{block}"
    )


def test_direct_form_takes_task_and_references() -> None:
    """The direct form names the other references and ends with the task."""
    fixture = fixture_of(
        skill="workflow/references/provision.md", references=["workflow/references/a.md", "cf/b.md"], task="Do it now."
    )
    asked = build_prompt(fixture).split("\n", 1)[0]
    assert asked.endswith("it may also use workflow/references/a.md, cf/b.md. Do it now.")


def test_order_of_keys_does_not_matter() -> None:
    """Two layouts of one input give one prompt."""
    assert build_prompt(fixture_of(input={"a": "x", "b": 1})) == build_prompt(fixture_of())


def test_text_stays_readable() -> None:
    """Letters of any script stand in the prompt as they are, and control characters as JSON escapes."""
    assert '"\u00e4\u4e16": "\\u0007"' in fenced_json({"\u00e4\u4e16": "\x07"})


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.text(st.sampled_from("a`\n~"), max_size=6),
        JSON_VALUES | st.text(st.sampled_from("`json\n"), max_size=12),
        max_size=3,
    )
)
def test_fence_is_longer_than_any_run_inside(value: dict[str, Any]) -> None:
    """The block's text comes back whole: no run of backticks inside can close it."""
    block = fenced_json(value)
    first, rest = block.split("json\n", 1)
    text, last = rest.rsplit("\n", 1)
    assert first == last == "`" * len(first)
    assert first not in text
    assert json.loads(text) == value
