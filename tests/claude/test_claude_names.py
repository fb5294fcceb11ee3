"""Names, refusals and slash tags (A4–A6)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.claude.names import (
    ambiguous,
    called_name,
    canonical_tool,
    command_tags,
    good_result,
    loaded_above,
    names_skill,
    refusal_text,
    result_text,
    whole_text,
)


@pytest.mark.parametrize(
    ("wanted", "called", "same"),
    [
        ("cf", "cf", True),
        ("cf", "/cf", True),
        ("/cf", "cf", True),
        ("cf", "myplug:cf", True),
        ("cf", "team/tools/cf", True),
        ("cf", "cf-generate", False),
        ("cf", "xcf", False),
        ("cf", "CF", False),
        ("cf", " cf", False),
        ("cf", "cf:other", False),
        ("myplug:cf", "myplug:cf", True),
        ("/myplug:cf", "/myplug:cf", True),
        ("myplug:cf", "cf", False),
        ("myplug:cf", "other:cf", False),
        ("myplug:cf", "x/myplug:cf", False),
        ("", "cf", False),
        ("", "x:", False),
    ],
)
def test_names_are_compared_whole_after_dropping_a_namespace(wanted: str, called: str, same: bool) -> None:
    """A bare wanted name matches behind any namespace; a qualified one matches whole only (A5)."""
    assert names_skill([wanted], called) is same


def test_directory_and_front_matter_name_are_both_the_name() -> None:
    """Any of the wanted names will do."""
    assert names_skill(["cf", "other-name"], "other-name")
    assert not names_skill(["cf", "other-name"], "third")


@pytest.mark.parametrize(
    ("listed", "several"),
    [
        ({"finance:cf", "legal:cf"}, ("finance:cf", "legal:cf")),
        ({"cf", "legal:cf"}, ("cf", "legal:cf")),
        ({"legal:cf"}, ()),
        ({"cf", "cf-generate", "xcf"}, ()),
    ],
)
def test_a_bare_name_in_which_two_listed_skills_end_is_ambiguous(listed: set[str], several: tuple[str, ...]) -> None:
    """Two listed skills that end in the bare name are both named; one, or a longer name, is no ambiguity."""
    assert ambiguous(["cf"], listed) == several
    assert ambiguous(["finance:cf"], listed) == ()


@pytest.mark.parametrize(
    ("given_input", "name"),
    [
        ({"skill": "cf"}, "cf"),
        ({"skill": "/cf"}, "cf"),
        ({"skill": "myplug:cf", "args": "cf"}, "myplug:cf"),
        ({"command": "cf"}, None),
        ({"args": "cf", "target": "cf"}, None),
        ({"skill": ["cf"]}, None),
        ({"skill": ""}, None),
        ({"skill": "/"}, None),
        ("cf", None),
        (None, None),
    ],
)
def test_only_the_real_key_names_a_skill(given_input: Any, name: str | None) -> None:
    """The name is the text under ``skill``; a bare ``cf`` in another field never is one (A5)."""
    assert called_name(given_input) == name


@pytest.mark.parametrize(
    ("text", "skill", "refused"),
    [
        ("<error>Execute skill: cf</error>", "cf", True),
        ("Execute skill: cf", "cf", True),
        ("Execute skill: cf. The user can add the allow rule Skill(cf) …", "cf", True),
        ("Execute skill: cf.\nMore", "cf", True),
        ("Note:\nExecute skill: cf. More", "cf", True),
        ("Execute skill: myplug:cf. More", "cf", True),
        ("Execute skill: cf. More", "myplug:cf", True),
        ("Execute skill: /cf", "cf", True),
        ("Error: Execute skill: cf. The user can add …", "cf", True),
        ("Error: Execute skill: cf-generate. The user can add …", "cf", False),
        ("<error> Execute skill: cf</error>", "cf", True),
        ("Skill execution blocked by permission rules", "cf", True),
        ("<error>Skill execution blocked by permission rules</error>", "cf", True),
        ("<error>Execute skill: cf-generate</error>", "cf", False),
        ("Execute skill: cf-generate. The user …", "cf", False),
        ("Execute skill: cf_2", "cf", False),
        ("Execute skill: cf.v2", "cf", False),
        ("<error>Execute skill: superpowers</error>", "cf", False),
        ("Execute skill: other:cf", "myplug:cf", False),
        ("Execute skill: cf:other", "cf", False),
        ('The label reads "Execute skill: cf. …" in print', "cf", False),
        ("Launching skill: cf", "cf", False),
        ("", "cf", False),
    ],
)
def test_a_refusal_condemns_its_own_skill_only(text: str, skill: str, refused: bool) -> None:
    """A6's forms count for the call's skill, with a right boundary; another skill's name or quoted prose does not."""
    assert refusal_text(text, skill) is refused


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "<command-message>cf</command-message>\n<command-name>/cf</command-name>\n<command-args>a\nb</command-args>",
            "cf",
        ),
        ("<command-message>cf</command-message>\n<command-name>/cf</command-name>", "cf"),
        (
            "<command-message>cf</command-message>\n<command-name>/cf</command-name>\n<command-args></command-args>\n",
            "cf",
        ),
        ("<command-message>cf</command-message>\n<command-name>/p:cf</command-name>", "p:cf"),
        ("<command-message>cf</command-message>\n<command-name>cf</command-name>", "cf"),
        ("please <command-message>cf</command-message>\n<command-name>/cf</command-name>", None),
        ("<command-message>cf</command-message>\n<command-name>/cf</command-name> and more", None),
        (
            "<command-name>/cf</command-name>\n<command-message>cf</command-message>\n<command-args>x</command-args>",
            "cf",
        ),
        (
            "<command-message>a</command-message><command-name>/cf</command-name><command-message>b</command-message>",
            None,
        ),
        ("<command-name>/cf</command-name><command-name>/cf</command-name><command-message>b</command-message>", None),
        ("<command-name>/cf</command-name>", None),
        ("<command-message>cf</command-message>\n<command-name></command-name>", None),
        ("/cf write a plan", None),
        ("", None),
    ],
)
def test_command_tags_must_be_the_whole_text(text: str, name: str | None) -> None:
    """A load is told by tags that are the whole content; tags inside prose are prose (A4)."""
    assert command_tags(text) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Skill /cf is already loaded above; instructions unchanged. Arguments: x", "cf"),
        ("Skill cf is already loaded above", "cf"),
        ("Skill /p:cf is already loaded above; instructions unchanged.", "p:cf"),
        ("The text says: Skill /cf is already loaded above", None),
        ("Skill /cf is already loaded aboveboard", None),
        ("Skill /cf was loaded", None),
        ("", None),
    ],
)
def test_the_clis_word_for_an_earlier_load(text: str, name: str | None) -> None:
    """It stands at the text's start and names the skill; anything else is no such word."""
    assert loaded_above(text) == name


def test_a_results_text_is_found_in_any_form_of_content() -> None:
    """Text blocks, blocks without a type, a single block and bare strings are text; images, numbers and null are none."""
    assert (
        result_text([{"type": "text", "text": "a"}, {"text": "b"}, "c", {"type": "image", "source": {}}, 7])
        == "a\nb\nc"
    )
    assert result_text({"type": "text", "text": "a"}) == "a"
    nothing: tuple[Any, ...] = (None, 7, [], {}, [None])
    assert [result_text(content) for content in nothing] == [""] * 5


def test_content_is_whole_only_as_text() -> None:
    """A string and a list of text blocks are one text; any other block, or none, makes it no text."""
    assert whole_text("a") == "a"
    assert whole_text([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]) == "ab"
    assert whole_text([{"type": "text", "text": "a"}, {"type": "image"}]) is None
    assert whole_text([]) is None
    assert whole_text(None) is None


@pytest.mark.parametrize(
    ("block", "tool_use_result", "good"),
    [
        ({"content": "Launching skill: cf"}, {"success": True}, True),
        ({"content": [{"type": "text", "text": "Launching skill: cf"}]}, None, True),
        ({"content": "Launching skill: cf", "is_error": False}, "a string", True),
        ({"content": "Launching skill: cf", "is_error": None}, None, True),
        ({"content": "Launching skill: cf", "is_error": True}, {"success": True}, False),
        ({"content": "Launching skill: cf"}, {"success": False}, False),
        ({"content": "Launching skill: cf"}, "Error: Execute skill: cf. The user can add …", False),
        ({"content": "<error>Execute skill: cf</error>"}, {"success": True}, False),
        ({"content": [{"type": "text", "text": "Execute skill: cf. …"}]}, None, False),
        ({"content": "<tool_use_error>Unknown skill: cf</tool_use_error>"}, None, False),
    ],
)
def test_a_result_is_good_without_any_sign_of_failure(block: dict[str, Any], tool_use_result: Any, good: bool) -> None:
    """No error flag, no text of A6, no ``success: false`` (A4)."""
    assert good_result(block, tool_use_result, "cf") is good


def test_the_sub_agent_tool_has_one_name() -> None:
    """Task and Agent are one tool (P15)."""
    assert canonical_tool("Task") == canonical_tool("Agent") == "Agent"
    assert canonical_tool("Bash") == "Bash"


@given(st.text(alphabet="<>/abcf-:. \n", max_size=80), st.text(alphabet="cf-:/.", max_size=8))
def test_any_text_can_be_asked(text: str, skill: str) -> None:
    """None of the text rules raises, whatever the text."""
    refusal_text(text, skill)
    command_tags(text)
    names_skill([skill], text)
    ambiguous([skill], [text])
    assert result_text(text) == text
