"""What checks are told of a run, read from its transcript."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from runner.claude.facts import SkillCall
from runner.grade.metadata import metadata_of, read_seen, spans_of


def lines(*events: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def assistant(*blocks: dict[str, Any], parent: str | None = None, model: str = "claude-x") -> dict[str, Any]:
    message = {"id": "msg_1", "model": model, "content": list(blocks)}
    return {"type": "assistant", "parent_tool_use_id": parent, "message": message}


def used(name: str, call_id: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def result_of(call_id: str, content: Any, *, parent: str | None = None, error: bool | None = None) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    return {
        "type": "user",
        "parent_tool_use_id": parent,
        "message": {"content": [block if error is None else {**block, "is_error": error}]},
    }


RESULT = {
    "type": "result",
    "subtype": "success",
    "num_turns": 3,
    "duration_ms": 1200,
    "duration_api_ms": 900,
    "modelUsage": {"claude-x": {"inputTokens": 5}},
    "permission_denials": [{"tool_name": "Bash"}],
    "terminal_reason": "completed",
    "structured_output": {"a": 1},
    "session_id": "s",
    "stop_reason": "end_turn",
}


def test_calls_are_bound_to_their_results() -> None:
    """A result belongs to the call of its id on its own thread; text blocks become text, other content stays; an open call says so."""
    seen = read_seen(
        lines(
            assistant(used("Skill", "1", skill="cf"), {"type": "text", "text": "one"}),
            result_of("1", [{"type": "text", "text": "load"}, {"type": "text", "text": "ed"}]),
            assistant(used("Bash", "1", command="ls"), {"type": "text", "text": "sub"}, parent="task"),
            result_of("1", "no such file", parent="task", error=True),
            assistant(used("Read", "2"), {"type": "text", "text": " "}, {"type": "text", "text": "two"}),
            result_of("2", [{"type": "image", "source": {}}]),
            assistant(used("Open", "3"), {"type": "text", "text": "made up"}, model="<synthetic>"),
            RESULT,
        )
    )
    assert [(call.name, call.output, call.is_error, call.parent) for call in seen.tool_calls] == [
        ("Skill", "loaded", False, None),
        ("Bash", "no such file", True, "task"),
        ("Read", [{"type": "image", "source": {}}], False, None),
        ("Open", None, False, None),
    ]
    assert seen.main_texts == ("one", "two")
    assert seen.finish_reason == "stop"
    assert [span.get("statusCode") for span in spans_of(seen.tool_calls)] == [None, 2, None, 2]


def test_metadata_has_the_providers_names() -> None:
    """The result's numbers stand under the names of Promptfoo's Claude provider; what it does not say is absent; slash loads are skill calls."""
    calls = (
        SkillCall("cf", {"skill": "cf"}, "tool", None, "failed", "1"),
        SkillCall("cf", None, "slash", None, "loaded"),
        SkillCall(None, {}, "tool", None, "no-result", "2"),
    )
    metadata = metadata_of(read_seen(lines(RESULT)), calls)
    assert metadata == {
        "skillCalls": [
            {"name": "cf", "input": {"skill": "cf"}, "is_error": True, "source": "tool", "parentToolUseId": None},
            {"name": "cf", "input": None, "is_error": False, "source": "slash", "parentToolUseId": None},
        ],
        "toolCalls": [],
        "numTurns": 3,
        "durationMs": 1200,
        "durationApiMs": 900,
        "modelUsage": {"claude-x": {"inputTokens": 5}},
        "permissionDenials": [{"tool_name": "Bash"}],
        "terminalReason": "completed",
        "structuredOutput": {"a": 1},
        "sessionId": "s",
    }
    assert set(metadata_of(read_seen(b""), ())) == {"skillCalls", "toolCalls"}


def test_the_answering_result_counts() -> None:
    """A result that a background task's notification brought about gives no numbers where there is another one (A8)."""
    later = {**RESULT, "num_turns": 9, "origin": {"kind": "task-notification"}}
    assert read_seen(lines(RESULT, later)).result["num_turns"] == 3
    assert read_seen(lines(later)).result["num_turns"] == 9


def test_of_duplicate_ids_the_last_wins() -> None:
    """Two calls of one id on one thread are one call, the later (A8)."""
    seen = read_seen(lines(assistant(used("A", "1")), result_of("1", "x"), assistant(used("B", "1"))))
    assert [(call.name, call.answered) for call in seen.tool_calls] == [("B", False)]


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=30),
            st.sampled_from([b"{}", b"[]", b"\xef\xbb\xbf", lines(RESULT), lines(assistant(used("A", "1")))]),
        )
    )
)
@settings(max_examples=200)
def test_any_bytes_are_read(pieces: list[bytes]) -> None:
    """Whatever the bytes, something is read and nothing is raised; joined lines give their events."""
    seen = read_seen(b"\n".join(pieces))
    json.dumps([call.as_json() for call in seen.tool_calls])
    joined = lines(assistant(used("A", "1"))).strip() + lines(RESULT)
    assert [call.name for call in read_seen(joined).tool_calls] == ["A"]
    assert read_seen(joined).result["num_turns"] == 3


def test_what_no_other_program_could_read_is_told_in_words() -> None:
    """A value that is nested without end, or a number without end, is a sentence or its name; everything else stays as it is and all of it is JSON that anybody reads."""
    for depth in (100, 1_000, 100_000):
        lines = (
            '{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t","name":"Bash","input":DEEP}]}}',
            '{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":[DEEP]}]}}',
            '{"type":"result","result":"x","num_turns":3,"duration_ms":1e999,"modelUsage":DEEP}',
        )
        text = "\n".join(lines).replace("DEEP", '{"a":' * depth + "1" + "}" * depth)
        seen = read_seen(text.encode())
        metadata = metadata_of(seen, ())
        told = json.dumps({"metadata": metadata, "spans": spans_of(seen.tool_calls)}, allow_nan=False)
        assert json.loads(told)["metadata"]["numTurns"] == 3
        assert metadata["durationMs"] == "inf"
        (made,) = metadata["toolCalls"]
        assert (made["name"], made["is_error"]) == ("Bash", False)
        assert "nested" in made["input"]
        assert "nested" in made["output"]
