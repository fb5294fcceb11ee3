"""Whole transcripts and requests as bytes, judged as ``show`` judges them: one row a case, by the sentence of A3–A9 that decides it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.claude.conversation import (
    ABSENT,
    AMBIGUOUS,
    BAD,
    CALL,
    CF_TAGS,
    FAILED,
    GOOD,
    INIT,
    MEASURED,
    NOTE,
    PROSE,
    RAN,
    RESULT,
    UNPROVEN,
    Row,
    answer,
    assistant,
    call,
    data,
    error,
    replay,
    result,
    text,
)

SKILL: dict[str, tuple[list[Any], Row]] = {
    # A3: the states
    "good call": ([CALL, GOOD], RAN),
    "bad call": ([CALL, BAD], FAILED),
    "bad call after a raw replay": ([PROSE, CALL, BAD], FAILED),
    "no call, something replayed": ([PROSE], ABSENT),
    "no call, nothing replayed": ([], UNPROVEN),
    "a rival's call, nothing replayed": ([call({"skill": "other"}), GOOD], UNPROVEN),
    "a rival's call, something replayed": ([PROSE, call({"skill": "other"}), GOOD], ABSENT),
    "a rival that quotes the prompt": ([PROSE, call({"skill": "other", "args": "/cf write a PRD with cf"}), GOOD], ABSENT),
    "an unrelated tool's error": ([CALL, GOOD, call({}, "t2", name="Bash"), answer("Execute skill: cf", "t2", is_error=True)], RAN),
    "listed in init only": ([PROSE, text("I used the skill cf: <command-name>/cf</command-name>")], ABSENT),
    # A4, tool: bound to the very call
    "no result": ([CALL], FAILED),
    "a result of another call": ([CALL, call({}, "t2", name="Bash"), answer(call_id="t2")], FAILED),
    "a result of nobody": ([CALL, answer(call_id="t9"), answer(call_id=None)], FAILED),
    "a rival's success beside a failed call": ([CALL, BAD, call({"skill": "other"}, "t2"), answer(call_id="t2")], FAILED),
    "a rival's failure beside a good call": ([call({"skill": "other"}, "t2"), answer("no", "t2", is_error=True), CALL, GOOD], RAN),
    "one good load, later failures": ([CALL, GOOD, call({"skill": "cf"}, "t2"), answer("no", "t2", is_error=True)], RAN),
    "a failure, then a good load": ([call({"skill": "cf"}, "t2"), answer("no", "t2", is_error=True), CALL, GOOD], RAN),
    "is_error null": ([CALL, answer(is_error=None)], RAN),
    "is_error as text": ([CALL, answer(is_error="true")], FAILED),
    "success false without is_error": ([CALL, answer(tool_use_result={"success": False, "commandName": "cf"})], FAILED),
    "success true beside is_error": ([CALL, answer(is_error=True, tool_use_result={"success": True})], FAILED),
    "tool_use_result as text": ([CALL, answer(tool_use_result="Launched")], RAN),
    "tool_use_result without success": ([CALL, answer(tool_use_result={})], RAN),
    "content as a list": ([CALL, answer([{"type": "text", "text": "Launching skill: cf"}])], RAN),
    "content null": ([CALL, answer(None)], RAN),
    "a sub-agent's load": ([PROSE, call({"skill": "cf"}, parent="a0"), answer(parent="a0")], ABSENT),
    "a sub-agent's load, nothing replayed": ([call({"skill": "cf"}, parent="a0"), answer(parent="a0")], UNPROVEN),
    "a sub-agent's result for a main-thread call": ([CALL, answer(parent="a0")], FAILED),
    "parent as an empty text": ([PROSE, call({"skill": "cf"}, parent=""), answer(parent="")], ABSENT),
    # A8: of duplicate call ids the last wins
    "duplicate id, good then bad": ([CALL, GOOD, CALL, BAD], FAILED),
    "duplicate id, bad then good": ([CALL, BAD, CALL, GOOD], RAN),
    "duplicate id, the last is a rival": ([CALL, call({"skill": "other"}), GOOD], UNPROVEN),
    "duplicate id, the last is the skill": ([call({"skill": "other"}), CALL, GOOD], RAN),
    "duplicate id, the last is another tool": ([CALL, GOOD, call({}, name="Bash"), GOOD], UNPROVEN),
    # A4, slash
    "tags": ([replay(CF_TAGS)], RAN),
    "tags with arguments": ([replay(f"{CF_TAGS}\n<command-args>write\na plan</command-args>\n")], RAN),
    "tags as a list": ([replay([{"type": "text", "text": CF_TAGS}])], RAN),
    "tags, name first": ([replay("<command-name>/cf</command-name>\n<command-message>cf</command-message>")], RAN),
    "tags, then a failed call": ([replay(CF_TAGS), CALL, BAD], RAN),
    "tags of a plugin's skill": ([replay(CF_TAGS.replace("/cf", "/plug:cf"))], RAN),
    "the raw prompt": ([replay("/cf write a plan")], ABSENT),
    "text before the tags": ([replay(f"please {CF_TAGS}")], ABSENT),
    "text after the tags": ([replay(f"{CF_TAGS}\nand more")], ABSENT),
    "tags in a list with more": ([replay([{"type": "text", "text": CF_TAGS}, {"type": "text", "text": "more"}])], ABSENT),
    "tags beside an image": ([replay([{"type": "text", "text": CF_TAGS}, {"type": "image"}])], ABSENT),
    "a name without its message": ([replay("<command-name>/cf</command-name>")], ABSENT),
    "a longer name's tags": ([replay(CF_TAGS.replace("cf", "cf-generate"))], ABSENT),
    "tags that are no replay": ([PROSE, replay(CF_TAGS, isReplay=False)], ABSENT),
    "tags on a sub-agent's thread": ([PROSE, replay(CF_TAGS, parent_tool_use_id="a0")], ABSENT),
    "isReplay as text": ([replay(CF_TAGS, isReplay="true")], UNPROVEN),
    "tags said by the model": ([PROSE, text(CF_TAGS)], ABSENT),
    "the body without tags": ([PROSE, replay("Base directory for this skill: /x/cf\n\n# cf", isReplay=None, isSynthetic=True)], ABSENT),
    # A5: names
    "a leading slash": ([call({"skill": "/cf"}), GOOD], RAN),
    "a namespace": ([call({"skill": "plug:cf"}), GOOD], RAN),
    "a path": ([call({"skill": "team/tools/cf"}), GOOD], RAN),
    "another case": ([PROSE, call({"skill": "CF"}), GOOD], ABSENT),
    "a longer name": ([PROSE, call({"skill": "cf-generate"}), GOOD], ABSENT),
    "a name that ends so": ([PROSE, call({"skill": "my-cf"}), GOOD], ABSENT),
    "a namespace of that name": ([PROSE, call({"skill": "cf:other"}), GOOD], ABSENT),
    "the name in another field": ([PROSE, call({"skill": "other", "mode": "cf"}), GOOD], ABSENT),
    "another key": ([PROSE, call({"command": "cf"}), GOOD], ABSENT),
    "the name in args": ([PROSE, call({"args": "cf"}), GOOD], ABSENT),
    "a list of names": ([PROSE, call({"skill": ["cf"]}), GOOD], ABSENT),
    "no input": ([PROSE, call(None), GOOD], ABSENT),
    "another tool with that key": ([PROSE, call({"skill": "cf"}, name="Bash"), GOOD], ABSENT),
    "the failure of a call that names nothing": ([PROSE, call({"command": "cf"}), answer("Execute skill: cf", is_error=True)], ABSENT),
    # A6: the failure texts
    "<error>Execute skill>": ([CALL, answer("<error>Execute skill: cf</error>")], FAILED),
    "<error> in a list": ([CALL, answer([{"type": "text", "text": "<error>Execute skill: cf</error>"}])], FAILED),
    "<error> in a block without a type": ([CALL, answer([{"text": "<error>Execute skill: cf</error>"}])], FAILED),
    "Execute skill, a sentence": ([CALL, answer("Execute skill: cf. The user can add the allow rule Skill(cf) …")], FAILED),
    "blocked by rules": ([CALL, answer("Skill execution blocked by permission rules")], FAILED),
    "another skill's failure text": ([CALL, answer("<error>Execute skill: superpowers</error>")], RAN),
    "a longer name's failure text": ([CALL, answer("<error>Execute skill: cf-generate</error>")], RAN),
    "a longer name's sentence": ([CALL, answer("Execute skill: cf-generate. The user can …")], RAN),
    "the failure text in another call's result": ([CALL, GOOD, call({"skill": "other"}, "t2"), answer("<error>Execute skill: cf</error>", "t2")], RAN),
}  # fmt: skip


@pytest.mark.parametrize("name", SKILL)
def test_the_skills_state_by_the_bare_transcript(judge: Callable[..., Row], name: str) -> None:
    """A3 to A6, between init and a good result."""
    events, expected = SKILL[name]
    assert judge(data(INIT, *events, text(), RESULT), "cf", status=0) == expected


@pytest.mark.parametrize(
    ("wanted", "called", "listed", "expected"),
    [
        ("plug:cf", "plug:cf", ["plug:cf"], RAN),
        ("/plug:cf", "/plug:cf", ["plug:cf"], RAN),
        ("plug:cf", "cf", ["plug:cf"], ABSENT),
        ("plug:cf", "other:cf", ["plug:cf", "other:cf"], ABSENT),
        ("cf", "plug:cf", ["plug:cf"], RAN),
        ("/cf", "cf", ["cf"], RAN),
        ("cf", "plug:cf", ["plug:cf", "other:cf"], AMBIGUOUS),
        ("cf", "cf", ["cf", "plug:cf"], AMBIGUOUS),
        ("plug:cf", "plug:cf", ["cf", "plug:cf", "other:cf"], RAN),
        ("cf", "cf", ["cf", "cf", "cf-generate", "my-cf"], RAN),
        ("cf", "cf", [], RAN),
        ("cf", "cf", None, RAN),
    ],
)
def test_a_wanted_name_and_what_init_lists(
    judge: Callable[..., Row], wanted: str, called: str, listed: Any, expected: Row
) -> None:
    """A5: a qualified name matches whole, a bare one behind any namespace unless two different listed skills end in it."""
    init = {**INIT, "skills": listed}
    assert judge(data(init, PROSE, call({"skill": called}), GOOD, text(), RESULT), wanted) == expected


WHOLE = [INIT, text(), RESULT]
OUTCOME: dict[str, tuple[list[Any], int | None, Row]] = {
    "a whole run": (WHOLE, 0, MEASURED),
    # 3 and 5: the exit status, whatever the result says
    "124": (WHOLE, 124, error("timeout")),
    "124 without a result": ([INIT], 124, error("timeout")),
    **{f"{status}": (WHOLE, status, error("no-result")) for status in (129, 130, 137, 143, -1, -2, -9, -15)},
    **{f"{status}": (WHOLE, status, error("exit-status")) for status in (1, 2, 127, 128, 134, 139, 255, -6, -11)},
    "137 before the provider's error": ([INIT, text(), result(is_error=True)], 137, error("no-result")),
    # 5
    "empty": ([], 0, error("no-result")),
    "blank lines only": ([b"\n \n\r\n"], 0, error("no-result")),
    "a byte-order mark only": ([b"\xef\xbb\xbf"], 0, error("no-result")),
    "nothing but prose": ([b"Execution error\n"], 1, error("no-result")),
    "no result": ([INIT, text()], 0, error("no-result")),
    "empty objects": ([b"{}\n{}\n"], 0, error("no-result")),
    "a cut line": ([INIT, text(), data(RESULT)[:-9]], 0, error("no-result")),
    "a cut line after the result": ([*WHOLE, b'{"type": "sys'], 0, error("no-result")),
    "a last line without its end": ([INIT, text(), data(RESULT)[:-1]], 0, MEASURED),
    "an unended last line that is no object": ([*WHOLE, b"7"], 0, error("no-result")),
    # 6
    "a provider's status with success and exit 0": ([INIT, text(), result(api_error_status=529)], 0, error("provider-error")),
    "is_error with subtype success": ([INIT, text(), result(is_error=True)], 0, error("provider-error")),
    "is_error, nothing else": ([INIT, text(), result(is_error=True, subtype=..., terminal_reason=...)], 1, error("provider-error")),
    "is_error with subtype completed": ([INIT, text(), result(is_error=True, subtype="completed", terminal_reason="success")], 0, error("provider-error")),
    "prompt too long": ([INIT, text(), result(terminal_reason="prompt_too_long")], 0, error("provider-error")),
    "image error": ([INIT, text(), result(terminal_reason="image_error")], 0, error("provider-error")),
    "api error before max turns": ([INIT, result(subtype="error_max_turns", terminal_reason="api_error")], 0, error("provider-error")),
    "a status before max tokens": ([INIT, text(), result(stop_reason="max_tokens", api_error_status=400)], 0, error("provider-error")),
    # 7
    "max turns": ([INIT, text(), result(subtype="error_max_turns", is_error=True, terminal_reason="max_turns", result=...)], 1, error("stopped-short")),
    "completed with an error's subtype": ([INIT, text(), result(subtype="error_during_execution")], 0, error("stopped-short")),
    "success with an unknown terminal reason": ([INIT, text(), result(terminal_reason="tea_break")], 0, error("stopped-short")),
    "is_error with an unknown terminal reason": ([INIT, text(), result(is_error=True, terminal_reason="tea_break")], 0, error("stopped-short")),
    **{f"stop_reason {reason}": ([INIT, text(), result(stop_reason=reason)], 0, error("stopped-short")) for reason in ("pause_turn", "max_tokens", "model_context_window_exceeded", "refusal")},
    **{f"stop_reason {reason}": ([INIT, text(), result(stop_reason=reason)], 0, MEASURED) for reason in ("end_turn", "tool_use", "stop_sequence", "banana", None, ...)},
    "an absent subtype": ([INIT, text(), result(subtype=...)], 0, MEASURED),
    "a null subtype": ([INIT, text(), result(subtype=None)], 0, MEASURED),
    "an absent terminal reason": ([INIT, text(), result(terminal_reason=...)], 0, MEASURED),
    "stopped short without init": ([result(subtype="error_during_execution", is_error=True, terminal_reason=None)], 1, error("stopped-short")),
    # 8, 9
    "plugin errors": ([{**INIT, "plugin_errors": [{"plugin": "p", "type": "generic-error"}]}, text(), RESULT], 0, error("plugin-error")),
    "plugin errors in a later init": ([INIT, text(), {**INIT, "plugin_errors": ["p"]}, RESULT], 0, error("plugin-error")),
    "no plugin errors": ([{**INIT, "plugin_errors": []}, text(), RESULT], 0, MEASURED),
    "a local command": ([INIT, text(model="<synthetic>"), result(terminal_reason=..., local_command="compact")], 0, error("local-command")),
    # 10, 11
    "an unparsable line after init": ([INIT, b"{broken\n", text(), RESULT], 0, error("damaged-transcript")),
    "an unparsable line after the result": ([*WHOLE, b"Goodbye\n"], 0, error("damaged-transcript")),
    "an unparsable line before init": ([b"Welcome\n", *WHOLE], 0, MEASURED),
    "a value that is no object": ([INIT, b"null\n", text(), RESULT], 0, error("damaged-transcript")),
    "NaN is no JSON": ([INIT, b'{"type": "x", "a": NaN}\n', text(), RESULT], 0, error("damaged-transcript")),
    "joined values": ([data(INIT)[:-1] + data(text()), RESULT], 0, MEASURED),
    "joined values and a rest": ([INIT, data(text())[:-1] + b" x\n", RESULT], 0, error("damaged-transcript")),
    "a result joined with a rest": ([INIT, text(), data(RESULT)[:-1] + b"]\n"], 0, error("no-result")),
    "a byte-order mark in the middle": ([INIT, b"\xef\xbb\xbf", text(), RESULT], 0, error("damaged-transcript")),
    "a byte-order mark, CR LF and blank lines": ([b"\xef\xbb\xbf" + data(INIT)[:-1] + b"\r\n\r\n", text(), b"\n", RESULT], 0, MEASURED),
    "bad UTF-8 and lone surrogates": ([INIT, data(text("A"))[:-1].replace(b"A", b"\xff\xfe\\ud83d") + b"\n", RESULT], 0, MEASURED),
    "any depth": ([INIT, b'{"type": "x", "a": ' + b"[" * 20_000 + b"]" * 20_000 + b"}\n", text(), RESULT], 0, MEASURED),
    "duplicate keys": ([INIT, text(), data(RESULT).replace(b'"is_error": false', b'"is_error": true, "is_error": false')], 0, MEASURED),
    "unknown events and blocks": ([INIT, {"type": "x"}, {"type": 7}, {"type": None}, assistant({"type": "y"}, {}, 7, None), text(), RESULT], 0, MEASURED),
    "no init": ([text(), RESULT], 0, error("no-init")),
    "init after other system events": ([{"type": "system", "subtype": "hook_started"}, *WHOLE], 0, MEASURED),
    "damage before no-text": ([INIT, b"{\n", result(result={"a": 1})], 0, error("damaged-transcript")),
    # 12, 13
    **{f"result {value!r}": ([INIT, text(), result(result=value)], 0, error("result-not-text")) for value in ({"a": 1}, ["a"], [], {}, 7, 0, True, False)},
    "a number too large is no text": ([INIT, text(), data(RESULT).replace(b'"42 units"', b"9" * 5000)], 0, error("result-not-text")),
    "an infinite structured output is no text": ([INIT, data(result(result=None, structured_output="S")).replace(b'"S"', b"1e999")], 0, error("result-not-text")),
    "a null result with structured output": ([INIT, result(result=None, structured_output={"a": 1})], 0, MEASURED),
    "a blank result after a text": ([INIT, text(), result(result=" \n")], 0, MEASURED),
    "a null result after a text": ([INIT, text(), result(result=None)], 0, MEASURED),
    "an absent result after a text": ([INIT, text(), result(result=...)], 0, MEASURED),
    "a blank result, nothing else": ([INIT, result(result="")], 0, error("empty-answer")),
    "a blank result, the pseudo-model's text": ([INIT, text("Sorry", model="<synthetic>"), result(result="")], 0, error("empty-answer")),
    "a blank result, a sub-agent's text": ([INIT, text(parent="a0"), result(result="")], 0, error("empty-answer")),
    "a blank result, blank texts": ([INIT, text(" "), text("\n"), result(result="")], 0, error("empty-answer")),
    "an empty answer before the exit status": ([INIT, result(result="")], 3, error("empty-answer")),
    # the answering result
    "an error, then a notification's success": ([INIT, text(), result(is_error=True), result(**NOTE)], 0, error("provider-error")),
    "a success, then a notification's error": ([*WHOLE, result(is_error=True, **NOTE)], 0, MEASURED),
    "a success, then an error": ([*WHOLE, result(is_error=True)], 0, error("provider-error")),
    "an error, then a success": ([INIT, text(), result(is_error=True), RESULT], 0, MEASURED),
    "notifications only, the last one bad": ([INIT, text(), result(**NOTE), result(is_error=True, **NOTE)], 0, error("provider-error")),
    "an event after the result": ([*WHOLE, {"type": "system", "subtype": "session_writes_lost"}], 0, MEASURED),
}  # fmt: skip


@pytest.mark.parametrize("name", OUTCOME)
def test_the_outcome_by_the_first_rule_that_speaks(judge: Callable[..., Row], name: str) -> None:
    """A8 and A9, without a required skill."""
    events, status, expected = OUTCOME[name]
    assert judge(data(*events), status=status) == expected


def test_an_earlier_error_goes_before_the_skills(judge: Callable[..., Row]) -> None:
    """The state is told all the same; the code is the first rule's."""
    assert judge(data(INIT, PROSE, text(), RESULT), "cf", status=1) == ("error", "exit-status", "absent", False, None)
    assert judge(data(INIT, CALL, GOOD), "cf") == ("error", "no-result", "ran", True, None)
    assert judge(b"", "cf") == ("error", "no-result", "unproven", None, None)
