"""The second witness: where a body counts, and where it does not (A7)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.claude.evidence import Requirement, WireEvidence
from runner.claude.wire import wire_evidence
from runner.claude.wirefile import WireFileInvalid, read_wire_file
from runner.gate.exchange import Exchange, Request

DIRECTORY = "/home/eval/.claude/skills/cf"
BODY = "# cf\nDo the thing: $ARGUMENTS\n"
LOAD = f"Base directory for this skill: {DIRECTORY}\n\n# cf\nDo the thing: write\n"
CF = Requirement.parse("cf")
STAGED = Requirement(names=("cf", "other-name"), directory=DIRECTORY, body=BODY)


def _found(exchanges: list[Exchange], requirement: Requirement = STAGED) -> tuple[bool, bool]:
    evidence = wire_evidence(exchanges, requirement)
    return evidence.tool, evidence.slash


def _call(call_id: str, skill: Any, name: str = "Skill") -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": call_id, "name": name, "input": {"skill": skill}}],
    }


def _result(call_id: str, content: Any = "Launching skill: cf", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


def test_a_slash_load_stands_straight_after_its_tags(say: Any) -> None:
    """The body's block follows the block of tags for the skill, by either of its names, and is the staged one."""
    for name in ("cf", "other-name", "plug:cf"):
        assert _found([say.request(say.user("x", say.tags(name, "write") + "\n", LOAD))]) == (False, True), name
    assert _found([say.request(say.user(say.tags("cf"), LOAD))], CF) == (False, True)


def test_a_body_elsewhere_is_no_slash_load(say: Any) -> None:
    """Not after another skill's tags, not after another block, not before the tags, not in one block with them, not alone."""
    image = {"type": "image", "source": {}}
    tags = say.tags("cf")
    for blocks in (
        [say.tags("cf-generate"), LOAD],
        [tags, "x", LOAD],
        [tags, image, LOAD],
        [LOAD, tags],
        [tags + "\n" + LOAD],
        [LOAD],
        [f"see {tags}", LOAD],
    ):
        assert _found([say.request(say.user(*blocks))]) == (False, False), blocks
    assert _found([say.request(say.user(tags), say.user(LOAD))]) == (False, False)


def test_a_tool_load_stands_with_the_good_result_of_its_call(say: Any) -> None:
    """In the message of the result, in whatever order the results came (trap 8)."""
    load = {"type": "text", "text": LOAD}
    assert _found([say.request(say.user("x"), _call("t1", "cf"), say.user(_result("t1"), load))]) == (True, False)
    others = say.user(_result("t0", "hi"), _result("t1"), load)
    assert _found([say.request(_call("t0", "x", "Bash"), _call("t1", "/other-name"), others)]) == (True, False)


def test_a_body_without_its_good_result_is_no_tool_load(say: Any) -> None:
    """Not with a bad result, another skill's, another tool's, a result whose call is later or on no record, or in another message."""
    rows = [
        [_call("t1", "cf"), say.user(_result("t1", is_error=True), LOAD)],
        [_call("t1", "cf"), say.user(_result("t1", "<error>Execute skill: cf</error>"), LOAD)],
        [_call("t1", "cf-generate"), say.user(_result("t1"), LOAD)],
        [_call("t1", "cf", "Bash"), say.user(_result("t1"), LOAD)],
        [_call("t1", "cf"), _call("t1", "x"), say.user(_result("t1"), LOAD)],
        [say.user(_result("t1"), LOAD), _call("t1", "cf")],
        [_call("t1", "cf"), say.user(_result("t2"), LOAD)],
        [_call("t1", "cf"), say.user(_result("t1")), say.user(LOAD)],
        [_call("t1", "cf"), say.user(_result("t1"), "Skill /cf is already loaded above; instructions unchanged.")],
        [_call("t1", "cf"), {"role": "assistant", "content": [_result("t1"), {"type": "text", "text": LOAD}]}],
        [_call("t1", "cf"), {"role": "system", "content": [_result("t1"), {"type": "text", "text": LOAD}]}],
        [_call("t1", "cf"), say.user(_result("t1", LOAD))],
    ]
    for index, messages in enumerate(rows):
        assert _found([say.request(*messages)]) == (False, False), index


@pytest.mark.parametrize(
    ("load", "bare", "staged"),
    [
        (LOAD, True, True),
        (LOAD + "\n\nARGUMENTS: more", True, True),
        (LOAD.replace("thing", "thong"), True, False),
        (LOAD.replace(DIRECTORY, "/workspace/.claude/skills/cf"), True, False),
        (LOAD.replace(DIRECTORY, "/home/eval/.claude/skills/cf-generate"), False, False),
        (LOAD.replace(f"{DIRECTORY}\n", f"{DIRECTORY}"), False, False),
        (LOAD.replace("Base", "base"), False, False),
        (" " + LOAD, False, False),
        ("Base directory for this skill: x\n/cf\n\n# cf\nDo the thing: a", False, False),
    ],
)
def test_directory_and_body_are_compared(say: Any, load: str, bare: bool, staged: bool) -> None:
    """With a plan both must be the plan's; without one the directory's name only (A7)."""
    exchanges = [say.request(say.user(say.tags("cf"), load))]
    assert _found(exchanges, CF) == (False, bare)
    assert _found(exchanges) == (False, staged)


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({}, True),
        ({"target": "/v1/messages"}, True),
        ({"agent": "a0aa"}, False),
        ({"method": "GET"}, False),
        ({"target": "/v1/messages/count_tokens?beta=true"}, False),
        ({"target": "/v1/complete"}, False),
        ({"kind": "refused"}, False),
        ({"kind": "start-up"}, False),
    ],
)
def test_only_main_thread_inference_requests_count(say: Any, fields: dict[str, Any], counts: bool) -> None:
    """POST, the inference path, no sub-agent's header, and sent upstream: what never left the gate reached no model."""
    assert _found([say.request(say.user(say.tags("cf"), LOAD), **fields)]) == (False, counts)


def test_what_another_program_sent_proves_nothing(say: Any) -> None:
    """Beside the CLI's own requests, which name its session, one without it may hold any text; the CLI's own with the same text counts (control)."""
    first, load = say.request(say.user("go"), from_cli=True), say.user(say.tags("cf"), LOAD)
    for own in (True, False):
        assert _found([first, say.request(load, seq=2, from_cli=own)]) == (False, own)


def test_an_unreadable_body_proves_nothing(say: Any) -> None:
    """Neither alone nor beside a good one does it change anything (case N03)."""
    good = say.request(say.user(say.tags("cf"), LOAD))
    for body in (b"", b"\x1f\x8b\x00", b"[]", b'{"messages": 7}', b'{"messages": [7, {"role": "user", "content": 7}]}'):
        bad = say.request(body=body)
        assert _found([bad]) == (False, False)
        assert _found([bad, good, bad]) == (False, True)


def test_a_reference_is_read_or_stands_in_the_prompt(say: Any) -> None:
    """Its own text by Read results that add up, or in a user text; a failed read, another file's text or a part is none."""
    unit = Requirement(("cf",), reference="references/a.md", directory=DIRECTORY, reference_body="REF one\nREF two\n")
    path = f"{DIRECTORY}/references/a.md"

    def read(call_id: str) -> dict[str, Any]:
        return {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": call_id, "name": "Read", "input": {"file_path": path}}],
        }

    def reference(*messages: Any, requirement: Requirement = unit) -> bool:
        return wire_evidence([say.request(*messages)], requirement).reference

    assert reference(read("r"), say.user(_result("r", "1\tREF one\n2\tREF two\n3\t")))
    assert reference(read("r"), say.user(_result("r", [{"type": "text", "text": "1\tREF one\n2\tREF two"}])))
    assert reference(read("r"), say.user(_result("r", "1\tREF one")), read("q"), say.user(_result("q", "2\tREF two")))
    assert reference(say.user("Apply this:\nREF one\nREF two\nto it"))
    assert not reference(read("r"), say.user(_result("r", "1\tREF one")))
    assert not reference(read("r"), say.user(_result("r", "1\tREF one\n2\tREF too")))
    assert not reference(read("r"), say.user(_result("r", "1\tREF one\n2\tREF two", is_error=True)))
    assert not reference(say.user(_result("r", "1\tREF one\n2\tREF two")))
    assert not reference(say.user("see references/a.md"))
    bare = Requirement.parse("cf/references/a.md")
    assert reference(read("r"), say.user(_result("r", "1\tanything")), requirement=bare)
    assert not reference(say.user("x"), requirement=bare)
    assert reference(say.user("x"), requirement=CF)


def test_a_wire_file_holds_either_shape_of_body() -> None:
    """A body as an object and as its JSON text; headers as an object or as pairs; blank lines and a BOM are nothing."""
    data = b"""\xef\xbb\xbf{"method": "POST", "path": "/v1/messages?beta=true", "headers": {"X-Claude-Code-Agent-Id": "a1"}, "body": {"messages": []}}

{"method": "POST", "path": "/v1/messages", "headers": [["X", "y"]], "body": "{}"}
{"method": "GET", "path": "/api/claude_code/settings", "headers": {}, "body": ""}\r
{"method": "POST", "path": "/v1/messages"}
"""
    first, second, third, fourth = read_wire_file(data, "w")
    assert (first.agent, first.is_main_inference, first.request.body) == ("a1", False, b'{"messages": []}')
    assert (second.is_main_inference, second.request.body, second.request.headers) == (True, b"{}", (("X", "y"),))
    assert (third.kind, fourth.request.body, fourth.seq) == ("start-up", b"", 4)
    assert read_wire_file(b"\n", "w") == ()


@pytest.mark.parametrize(
    "line",
    [
        b"x",
        b"[]",
        b"{}",
        b'{"method": "POST"}',
        b'{"method": 1, "path": "/"}',
        b'{"method": "P", "path": "/", "headers": 7}',
        b'{"method": "P", "path": "/", "headers": ["ab", "c"]}',
    ],
)
def test_a_line_that_is_no_request_is_refused_with_its_place(line: bytes) -> None:
    """The file's name and the line's number are in the error."""
    with pytest.raises(WireFileInvalid) as caught:
        read_wire_file(b'{"method": "POST", "path": "/"}\n' + line, "w.jsonl")
    assert caught.value.where == "w.jsonl:2"


@given(st.binary(max_size=80))
def test_any_file_is_exchanges_or_the_declared_error(data: bytes) -> None:
    """Nothing else is raised, and any body can be asked."""
    try:
        exchanges = read_wire_file(data, "w")
    except WireFileInvalid:
        exchanges = (
            Exchange(seq=1, kind="inference", request=Request(method="POST", target="/v1/messages", body=data)),
        )
    assert wire_evidence(exchanges, CF) == WireEvidence(tool=False, slash=False, reference=True)
