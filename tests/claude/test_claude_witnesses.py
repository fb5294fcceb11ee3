"""Whole transcripts with whole requests, judged as ``show`` judges them: what two witnesses come to (A5 to A7)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.bundle import AttemptContent, write_attempt
from runner.claude.wirefile import read_wire_file
from runner.cli.show import judge_transcript
from runner.errors import RunnerError
from tests.claude.conversation import (
    ABSENT,
    BAD,
    CALL,
    CASES,
    CF_TAGS,
    GOOD,
    INIT,
    PROSE,
    RAN,
    RESULT,
    UNPROVEN,
    Row,
    answer,
    call,
    data,
    replay,
    text,
)

DIRECTORY = "/home/eval/.claude/skills/cf"
LOAD = f"Base directory for this skill: {DIRECTORY}\n\n# cf\nDo it."
TOOL = [CALL, GOOD]
SLASH = [replay(CF_TAGS)]
ALREADY = {
    **replay([{"type": "text", "text": "Skill /cf is already loaded above; instructions unchanged."}], isReplay=None),
    "isSynthetic": True,
}


def request(*messages: Any, **fields: Any) -> dict[str, Any]:
    """One line of a wire file."""
    body = {"model": "m-1", "messages": list(messages)}
    return {"method": "POST", "path": "/v1/messages?beta=true", "headers": {"Accept": "x"}, "body": body, **fields}


def user(*blocks: Any) -> dict[str, Any]:
    """A user message; texts become text blocks."""
    return {
        "role": "user",
        "content": [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks],
    }


def asked(skill: Any = "cf", name: str = "Skill") -> dict[str, Any]:
    """The assistant message of a call."""
    return {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": name, "input": {"skill": skill}}]}


def got(content: Any = "Launching skill: cf", **fields: Any) -> dict[str, Any]:
    """The block of its result."""
    return {"type": "tool_result", "tool_use_id": "t1", "content": content, **fields}


SLASH_WIRE = request(user("<system-reminder>x</system-reminder>", CF_TAGS + "\n", LOAD))
TOOL_WIRE = request(user("go"), asked(), user(got(), LOAD))
NO_WIRE = request(user("go"))
BOTH: Row = ("measured", None, "ran", True, True)
BY_WIRE: Row = ("measured", None, "ran", None, True)
ABSENT_BOTH: Row = ("error", "skill-absent", "absent", False, False)
ABSENT_BY_WIRE: Row = ("error", "skill-absent", "absent", None, False)
FAILED_BOTH: Row = ("error", "skill-failed", "failed", False, False)


def disagree(transcript: bool, wire: bool) -> Row:
    """The witnesses contradict each other."""
    return ("error", "witnesses-disagree", "unproven", transcript, wire)


WIRE: dict[str, tuple[list[Any], list[Any], Row]] = {
    # A7: one way has both witnesses
    "tool, both": (TOOL, [NO_WIRE, TOOL_WIRE], BOTH),
    "slash, both": (SLASH, [SLASH_WIRE], BOTH),
    "tool in the transcript, slash on the wire": ([PROSE, *TOOL], [SLASH_WIRE], disagree(True, True)),
    "the same, nothing replayed": (TOOL, [SLASH_WIRE], disagree(True, True)),
    "already loaded above, nothing replayed": ([*TOOL, ALREADY], [SLASH_WIRE], BOTH),
    "slash in the transcript, tool on the wire": (SLASH, [TOOL_WIRE], disagree(True, True)),
    "slash, then a failed call": ([*SLASH, CALL, BAD], [SLASH_WIRE], BOTH),
    "tool, no body": (TOOL, [NO_WIRE], disagree(True, False)),
    "slash, no body": (SLASH, [NO_WIRE], disagree(True, False)),
    "prose, but a body": ([PROSE], [SLASH_WIRE], disagree(False, True)),
    "a failed call, but a body": ([CALL, BAD], [TOOL_WIRE], disagree(False, True)),
    "a failed call, but a slash load": ([CALL, BAD], [SLASH_WIRE], disagree(False, True)),
    "a transcript that cannot tell, a body": ([], [SLASH_WIRE], BY_WIRE),
    "a rival's call, a body": ([call({"skill": "other"}), GOOD], [SLASH_WIRE], BY_WIRE),
    "a transcript that cannot tell, no body": ([], [NO_WIRE], ABSENT_BY_WIRE),
    "a transcript that cannot tell, no request": ([], [], ABSENT_BY_WIRE),
    "prose, no body": ([PROSE], [NO_WIRE], ABSENT_BOTH),
    "a failed call, no body": ([CALL, BAD], [NO_WIRE], FAILED_BOTH),
    # which requests count
    "a sub-agent's request": ([], [{**SLASH_WIRE, "headers": {"X-Claude-Code-Agent-Id": "a0"}}], ABSENT_BY_WIRE),
    "a sub-agent's request, headers as pairs": ([], [{**SLASH_WIRE, "headers": [["x-claude-code-agent-id", "a0"]]}], ABSENT_BY_WIRE),
    "an empty agent header": ([], [{**SLASH_WIRE, "headers": {"x-claude-code-agent-id": ""}}], ABSENT_BY_WIRE),
    "a GET": ([], [{**SLASH_WIRE, "method": "GET"}], ABSENT_BY_WIRE),
    "count_tokens": ([], [{**SLASH_WIRE, "path": "/v1/messages/count_tokens?beta=true"}], ABSENT_BY_WIRE),
    "another path": ([], [{**SLASH_WIRE, "path": "/v1/messages/"}], ABSENT_BY_WIRE),
    "another query": ([], [{**SLASH_WIRE, "path": "/v1/messages?x=/v1/other"}], BY_WIRE),
    "no query": ([], [{**SLASH_WIRE, "path": "/v1/messages"}], BY_WIRE),
    "no headers": ([], [{**SLASH_WIRE, "headers": None}], BY_WIRE),
    "a body as JSON text": ([], [{**SLASH_WIRE, "body": json.dumps(SLASH_WIRE["body"])}], BY_WIRE),
    "a body that is no JSON": ([], [{**SLASH_WIRE, "body": "\x1f\ufffd"}], ABSENT_BY_WIRE),
    "a body with a number that is too large": ([], [data(SLASH_WIRE).replace(b'"m-1"', b"1e999")], BY_WIRE),
    "one of many": ([], [NO_WIRE, SLASH_WIRE, NO_WIRE], BY_WIRE),
    # where a body counts
    "a system message": ([], [request({**user(CF_TAGS, LOAD), "role": "system"})], ABSENT_BY_WIRE),
    "an assistant message": ([], [request({**user(CF_TAGS, LOAD), "role": "assistant"})], ABSENT_BY_WIRE),
    "the system prompt": ([], [{**NO_WIRE, "body": {"system": [{"type": "text", "text": CF_TAGS}, {"type": "text", "text": LOAD}], "messages": []}}], ABSENT_BY_WIRE),
    "a block between": ([], [request(user(CF_TAGS, "x", LOAD))], ABSENT_BY_WIRE),
    "no tags": ([], [request(user(LOAD))], ABSENT_BY_WIRE),
    "no tags, as a string": ([], [request({"role": "user", "content": LOAD})], ABSENT_BY_WIRE),
    "one string with tags and body": ([], [request({"role": "user", "content": f"{CF_TAGS}\n{LOAD}"})], ABSENT_BY_WIRE),
    "another skill's tags": ([], [request(user(CF_TAGS.replace("cf", "other"), LOAD))], ABSENT_BY_WIRE),
    "another skill's directory": ([], [request(user(CF_TAGS, LOAD.replace("/cf", "/cf-generate")))], ABSENT_BY_WIRE),
    "another place, the same name": ([], [request(user(CF_TAGS, LOAD.replace(DIRECTORY, "/workspace/.claude/skills/cf")))], BY_WIRE),
    "no blank line": ([], [request(user(CF_TAGS, LOAD.replace("\n\n", "\n")))], ABSENT_BY_WIRE),
    "no body": ([], [request(user(CF_TAGS, f"Base directory for this skill: {DIRECTORY}\n\n"))], ABSENT_BY_WIRE),
    "the sentence in prose": ([], [request(user(CF_TAGS, f"see: {LOAD}"))], ABSENT_BY_WIRE),
    "the raw prompt": ([], [request(user("/cf write", LOAD))], ABSENT_BY_WIRE),
    "the body in the result": (TOOL, [request(asked(), user(got(LOAD)))], disagree(True, False)),
    "the body in the next message": (TOOL, [request(asked(), user(got()), user(LOAD))], disagree(True, False)),
    "the body before the result": (TOOL, [request(asked(), user(LOAD, got()))], BOTH),
    "a bad result beside the body": (TOOL, [request(asked(), user(got(is_error=True), LOAD))], disagree(True, False)),
    "a refused result beside the body": (TOOL, [request(asked(), user(got("<error>Execute skill: cf</error>"), LOAD))], disagree(True, False)),
    "another skill's result beside the body": (TOOL, [request(asked("other"), user(got(), LOAD))], disagree(True, False)),
    "another tool's result beside the body": (TOOL, [request(asked(name="Bash"), user(got(), LOAD))], disagree(True, False)),
    "a result whose call is not there": (TOOL, [request(user(got(), LOAD))], disagree(True, False)),
    "a namespaced call": (TOOL, [request(asked("plug:cf"), user(got(), LOAD))], BOTH),
    "already loaded above alone": (TOOL, [request(asked(), user(got(), "Skill /cf is already loaded above; instructions unchanged."))], disagree(True, False)),
}  # fmt: skip


@pytest.mark.parametrize("name", WIRE)
def test_the_skills_state_by_both_witnesses(judge: Callable[..., Row], name: str) -> None:
    """A7, with what the transcript says and what the requests hold; without a plan the directory is compared by its name."""
    events, requests, expected = WIRE[name]
    assert judge(data(INIT, *events, text(), RESULT), "cf", wire=data(*requests), status=0) == expected


READ = call({"file_path": f"{DIRECTORY}/references/a.md"}, "r", name="Read")
READ_WIRE = {
    "role": "assistant",
    "content": [
        {"type": "tool_use", "id": "r", "name": "Read", "input": {"file_path": f"{DIRECTORY}/references/a.md"}}
    ],
}


def _slash_and_read(*blocks: Any, asked_by: Any = READ_WIRE) -> list[Any]:
    return [request(user(CF_TAGS, LOAD), asked_by, user(*blocks))]


@pytest.mark.parametrize(
    ("events", "requests", "expected"),
    [
        ([*SLASH, READ, answer("1\tREF", "r")], None, RAN),
        (SLASH, None, ABSENT),
        ([*SLASH, READ, answer("no", "r", is_error=True)], None, ABSENT),
        ([READ, answer("1\tREF", "r")], None, UNPROVEN),
        ([PROSE, READ, answer("1\tREF", "r")], None, ABSENT),
        ([*SLASH, READ, answer("1\tREF", "r")], _slash_and_read({**got("1\tREF"), "tool_use_id": "r"}), BOTH),
        (SLASH, [SLASH_WIRE], ABSENT_BOTH),
        ([*SLASH, READ, answer("1\tREF", "r")], _slash_and_read({**got("1\tREF", is_error=True), "tool_use_id": "r"}), disagree(True, False)),
        ([], _slash_and_read({**got("1\tREF"), "tool_use_id": "r"}), BY_WIRE),
        ([], [SLASH_WIRE], ABSENT_BY_WIRE),
    ],
)  # fmt: skip
def test_a_reference_unit(judge: Callable[..., Row], events: list[Any], requests: Any, expected: Row) -> None:
    """A7: SKILL.md and the reference; SKILL.md alone is absent."""
    wire = None if requests is None else data(*requests)
    assert judge(data(INIT, *events, text(), RESULT), "cf/references/a.md", wire=wire) == expected


def test_the_requests_of_an_attempt_are_a_wire_file_too(tmp_path: Path) -> None:
    """The same requests as JSON lines and in an attempt give one verdict; a refused request and a sub-agent's count in neither; a damaged attempt is no evidence."""
    transcript = CASES / "transcripts" / "slash_replayed.jsonl"
    lines = CASES / "wire" / "first_party_slash_replayed.jsonl"
    exchanges = read_wire_file(lines.read_bytes(), "w")

    def judged(wire: Path) -> dict[str, Any]:
        return judge_transcript(transcript, "cf", wire, 0, lambda _: None)

    def kept(name: str, **changed: Any) -> Path:
        found = [exchange.model_copy(update=changed) for exchange in exchanges]
        (tmp_path / name).mkdir()
        return write_attempt(tmp_path / name, AttemptContent("a", {}, {"plan.json": b"{}"}, found))

    whole = kept("whole")
    assert judged(whole) == judged(lines)
    assert judged(whole)["witnesses"] == {"transcript": True, "wire": True}
    for path in (kept("refused", kind="refused"), kept("agent", agent="a0")):
        assert judged(path)["outcome"]["code"] == "witnesses-disagree"
    bent = tmp_path / "bent.attempt"
    bent.write_bytes(whole.read_bytes()[:-40])
    with pytest.raises(RunnerError):
        judged(bent)
