"""Scripts: their form, which reply a request gets, and a reply's bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.errors import ScriptInvalid
from runner.gate.script import Asked, Choice, Progress, Script, When, choose, explain, mismatch, parse_script
from runner.gate.script_wire import Rendered, render

SKILL_CALL = {"type": "tool_use", "id": "toolu_01", "name": "Skill", "input": {"skill": "workflow"}}
READ_CALL = {
    "type": "tool_use",
    "id": "toolu_02",
    "name": "Read",
    "input": {"file_path": "/home/eval/.claude/skills/workflow/references/provision.md"},
}

EXAMPLE: list[dict[str, Any]] = [
    {
        "when": {"lane": "main", "nth": 1, "tool_offered": "Skill"},
        "reply": {"message": {"content": [{"type": "text", "text": "I use the skill."}, SKILL_CALL]}},
    },
    {
        "when": {"has_tool_result": "toolu_01", "not_contains": "provisioning rules"},
        "reply": {"message": {"content": [READ_CALL]}},
    },
    {
        "when": {"has_tool_result": "toolu_02"},
        "reply": {"message": {"content": [{"type": "text", "text": "Left unresolved."}]}},
    },
]
"""A Skill call, then Read of a reference, then the final text."""


def script(replies: list[dict[str, Any]]) -> Script:
    return parse_script(json.dumps({"schema_version": 1, "replies": replies}).encode())


def asked(*contents: Any, agent: str = "", endpoint: Any = "messages", **more: Any) -> Asked:
    messages = [
        {"role": "user" if index % 2 == 0 else "assistant", "content": content}
        for index, content in enumerate(contents)
    ]
    return Asked(endpoint, agent, {"model": "m", "messages": messages, "tools": [{"name": "Skill"}], **more})


def play(replies: list[dict[str, Any]], *requests: Asked) -> list[int | None]:
    """Return which reply (0-based) each request gets."""
    progress, chosen = Progress(), []
    for request in requests:
        choice, progress = choose(script(replies), request, progress)
        chosen.append(choice.index if choice else None)
    return chosen


def result(call: str, text: str) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": call, "content": [{"type": "text", "text": text}]}]


def test_the_example_plays_skill_read_and_answer() -> None:
    """The walk of a real run, and nothing for a fourth request."""
    first = ("do it",)
    second = (*first, [SKILL_CALL], result("toolu_01", "Base directory for this skill"))
    third = (*second, [READ_CALL], result("toolu_02", "the provisioning rules"))
    assert play(EXAMPLE, asked(*first), asked(*second), asked(*third), asked(*third)) == [0, 1, 2, None]


@pytest.mark.parametrize(
    ("when", "request_", "holds"),
    [
        ({}, asked("x"), True),
        ({"lane": "main"}, asked("x"), True),
        ({"lane": "sub"}, asked("x"), False),
        ({"lane": "sub"}, asked("x", agent="a1"), True),
        ({"nth": 1}, asked("x"), True),
        ({"nth": 2}, asked("x"), False),
        ({"last_user_contains": "b"}, asked("a", "z", "b"), True),
        ({"last_user_contains": "a"}, asked("a", "z", "b"), False),
        ({"last_user_contains": "deep"}, asked("a", "z", result("t", "deep")), True),
        ({"any_contains": "a"}, asked("a", "z", "b"), True),
        ({"any_contains": "sys"}, asked("a", system=[{"type": "text", "text": "sys"}]), True),
        ({"any_contains": "workflow"}, asked("a", [SKILL_CALL]), True),
        ({"any_contains": "tool_use"}, asked("a", [SKILL_CALL]), False),
        ({"not_contains": "a"}, asked("a"), False),
        ({"not_contains": "b"}, asked("a"), True),
        ({"has_tool_result": "t"}, asked("a", "b", result("t", "")), True),
        ({"has_tool_result": "u"}, asked("a", "b", result("t", "")), False),
        ({"tool_offered": "Skill"}, asked("a"), True),
        ({"tool_offered": "Bash"}, asked("a"), False),
        ({"model": "m"}, asked("a"), True),
        ({"model": "n"}, asked("a"), False),
        ({"stream": True}, asked("a", stream=True), True),
        ({"stream": False}, asked("a"), True),
        ({"stream": True}, asked("a"), False),
        ({"endpoint": "count_tokens"}, asked("a"), False),
        ({"endpoint": "count_tokens"}, asked("a", endpoint="count_tokens"), True),
        ({"lane": "main", "any_contains": "a", "nth": 1}, asked("a"), True),
        ({"lane": "main", "any_contains": "a", "nth": 2}, asked("a"), False),
    ],
)
def test_each_condition_holds_or_not(when: dict[str, Any], request_: Asked, holds: bool) -> None:
    """One condition alone, and several together."""
    assert (mismatch(When(**when), request_, 1) is None) is holds


def test_a_reply_is_used_once_unless_it_says_otherwise() -> None:
    """The first that matches is taken; ``times`` gives it more uses, null any number."""
    reply: dict[str, Any] = {"reply": {"message": {}}}
    assert play([reply, reply], *[asked("x")] * 3) == [0, 1, None]
    assert play([{**reply, "times": 2}, reply], *[asked("x")] * 4) == [0, 0, 1, None]
    assert play([{**reply, "times": None}], *[asked("x")] * 4) == [0] * 4


def test_nth_counts_each_lane_for_itself_and_unmatched_requests_too() -> None:
    """Sub-agents arrive in any order, so they do not share a count; count_tokens does not count."""
    replies = [{"when": {"nth": 2}, "reply": {"message": {}}, "times": None}]
    order = [
        asked("x"),
        asked("x", agent="a"),
        asked("x", endpoint="count_tokens"),
        asked("x", agent="b"),
        asked("x", agent="a"),
        asked("x"),
    ]
    assert play(replies, *order) == [None, None, None, None, 0, 0]


def test_an_unscripted_request_is_explained() -> None:
    """The message names for each reply what did not hold."""
    replies: list[dict[str, Any]] = [{"reply": {"message": {}}}, {"when": {"model": "n"}, "reply": {"message": {}}}]
    _, progress = choose(script(replies), asked("x"), Progress())
    choice, progress = choose(script(replies), asked("the end"), progress)
    assert choice is None
    text = explain(script(replies), asked("the end"), progress)
    assert "request 2 of lane main" in text
    assert "'the end'" in text
    assert text.endswith("reply 1: used up; reply 2: model does not hold")


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b"", "s"),
        (b"[]", "s#"),
        (b'{"schema_version":1,"schema_version":1,"replies":[]}', "s"),
        (b'{"schema_version":2,"replies":[{"reply":{"message":{}}}]}', "s#/schema_version"),
        (b'{"schema_version":1,"replies":[]}', "s#/replies"),
        (b'{"schema_version":1,"replies":[{"reply":{}}]}', "s#/replies/0/reply"),
        (b'{"schema_version":1,"replies":[{"reply":{"message":{},"raw":{}}}]}', "s#/replies/0/reply"),
        (
            b'{"schema_version":1,"replies":[{"reply":{"message":{},"cut_after_bytes":1,"cut_after_event":1}}]}',
            "s#/replies/0/reply",
        ),
        (b'{"schema_version":1,"replies":[{"when":{"lan":"main"},"reply":{"message":{}}}]}', "s#/replies/0/when/lan"),
        (b'{"schema_version":1,"replies":[{"when":{"nth":"1"},"reply":{"message":{}}}]}', "s#/replies/0/when/nth"),
        (
            b'{"schema_version":1,"replies":[{"reply":{"raw":{"headers":{"a":"b\\r\\nc: d"}}}}]}',
            "s#/replies/0/reply/raw/headers/a",
        ),
        (b'{"schema_version":1,"replies":[{"reply":{"error":{"status":200}}}]}', "s#/replies/0/reply/error/status"),
    ],
)
def test_a_bad_script_is_refused_with_its_place(data: bytes, where: str) -> None:
    """Unknown keys, wrong types, doubled keys, two answers in one: named by JSON pointer."""
    with pytest.raises(ScriptInvalid) as caught:
        parse_script(data, "s")
    assert caught.value.where == where


@given(st.binary(max_size=100))
def test_any_bytes_are_a_script_or_the_declared_error(data: bytes) -> None:
    """Scripts are data from a file."""
    with pytest.raises(ScriptInvalid):
        parse_script(data)


def rendered(reply: dict[str, Any], *, stream: bool = True, used_before: int = 0) -> Rendered:
    return render(Choice(0, script([{"reply": reply}]).replies[0], used_before), model="m", stream=stream)


MESSAGE = {
    "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a\u2028\u00e4"}, SKILL_CALL],
    "usage": {"output_tokens": 7},
}


def test_a_message_is_the_same_as_stream_and_as_one_object() -> None:
    """Put together again, the stream's events give the object, but for the usage that the stream tells in two parts."""
    whole = json.loads(b"".join(rendered({"message": MESSAGE}, stream=False).pieces))
    assert (whole["id"], whole["stop_reason"], whole["model"]) == ("msg_0001", "tool_use", "m")
    events = [json.loads(piece.split(b"data: ", 1)[1]) for piece in rendered({"message": MESSAGE}).pieces]
    built = events[0]["message"]
    assert built["usage"]["output_tokens"] == 1
    for event in events:
        if event["type"] == "content_block_start":
            built["content"].append(event["content_block"])
        elif event["type"] == "content_block_delta":
            block, delta = built["content"][event["index"]], event["delta"]
            if delta["type"] == "input_json_delta":
                block["input"] = json.loads(delta["partial_json"])
            else:
                key = delta["type"].removesuffix("_delta")
                block[key] += delta[key]
        elif event["type"] == "message_delta":
            built |= event["delta"]
            built["usage"] |= event["usage"]
    assert built == whole
    assert events[-1] == {"type": "message_stop"}


def test_ids_do_not_depend_on_what_came_before() -> None:
    """A reply's id comes from its place in the script and its uses."""
    assert b'"id":"msg_0001_3"' in rendered({"message": {}}, used_before=2).pieces[0]
    assert b'"id":"msg_x"' in rendered({"message": {"id": "msg_x"}}, used_before=2).pieces[0]


@given(st.integers(1, 2000), st.integers(0, 3000))
def test_pieces_and_cuts_keep_the_bytes(chunk: int, cut: int) -> None:
    """Any piece size gives the same body, a cut its beginning."""
    whole = b"".join(rendered({"message": MESSAGE}).pieces)
    cut_off = rendered({"message": MESSAGE, "chunk_bytes": chunk, "cut_after_bytes": cut})
    assert b"".join(rendered({"message": MESSAGE, "chunk_bytes": chunk}).pieces) == whole
    assert b"".join(cut_off.pieces) == whole[:cut]
    assert cut_off.cut
    assert all(0 < len(piece) <= chunk for piece in cut_off.pieces)


def test_cuts_by_event_and_error_events() -> None:
    """After the n-th, after the first of a name; an error event takes the rest's place and the stream ends in good order."""
    names = [
        piece.split(b"\n", 1)[0].split(b" ")[1].decode()
        for piece in rendered({"message": MESSAGE, "cut_after_event": "content_block_stop"}).pieces
    ]
    assert names == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
    ]
    assert len(rendered({"message": MESSAGE, "cut_after_event": 2}).pieces) == 2
    failed = rendered({"message": MESSAGE, "error_event": {"type": "overloaded_error", "message": "x"}})
    assert (len(failed.pieces), failed.cut) == (2, False)
    assert (
        failed.pieces[1]
        == b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"x"}}\n\n'
    )


@pytest.mark.parametrize("stream", [True, False])
def test_a_malformed_reply_is_no_json(stream: bool) -> None:
    """Exactly one event of the stream, or the object as a whole, cannot be read."""
    made = rendered({"message": MESSAGE, "malformed": True}, stream=stream)
    bad = 0
    for piece in made.pieces:
        try:
            json.loads(piece.split(b"data: ", 1)[-1])
        except ValueError:
            bad += 1
    assert bad == 1
