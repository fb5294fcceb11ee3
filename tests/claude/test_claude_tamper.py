"""The transcript against the gate's record: what contradicts it, and what real life explains (rule 2 of A8)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.claude.tamper import tamper_findings
from runner.claude.transcript import TranscriptParser
from runner.claude.wirefile import read_wire_file
from runner.gate.exchange import Exchange, Response

CASES = Path(__file__).resolve().parents[1] / "cases"
TEXT = {"type": "text", "text": "42 units"}
USE = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}


def _round(say: Any) -> tuple[list[Any], list[Exchange]]:
    """A run of two requests that agrees with its record: events between init and result, and exchanges."""
    events = [
        say.text("I look."),
        say.call("t1", "Bash", {"command": "ls"}),
        say.answer("t1", "a\nb"),
        say.text("42 units", mid="msg_2"),
    ]
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "a\nb"}
    exchanges = [
        say.request(
            say.user("go"), response=say.message({"type": "text", "text": "I look."}, USE, stop_reason="tool_use")
        ),
        say.request(say.user("go"), say.user(result), seq=2, response=say.message(TEXT, mid="msg_2")),
    ]
    return events, exchanges


def test_a_run_that_agrees_has_no_findings(say: Any) -> None:
    """The positive control of every check below."""
    events, exchanges = _round(say)
    assert tamper_findings(say.whole(*events), exchanges, exit_status=0, status_fd_exit=0) == ()


def test_a_text_or_call_that_no_response_holds_is_a_contradiction(say: Any) -> None:
    """A forged text, a real text under another message id, a forged call, a call to another tool."""
    events, exchanges = _round(say)
    for forged in (
        say.text("43 units", mid="msg_2"),
        say.text("42 units", mid="msg_1"),
        say.text("42 units", mid="msg_9"),
        say.call("t2", "Bash", {}),
        say.call("t1", "Write", {}),
    ):
        findings = tamper_findings(say.whole(*events, forged), exchanges)
        assert len(findings) == 1, forged
        assert "event 6" in findings[0]


def test_a_missing_response_is_a_contradiction(say: Any) -> None:
    """A completed answer that the transcript lacks, though it goes on to a result."""
    events, exchanges = _round(say)
    findings = tamper_findings(say.whole(*events[2:]), exchanges)
    assert any("msg_1" in finding for finding in findings)


def test_an_answer_that_was_not_written_yet_is_none(say: Any) -> None:
    """No result, the last answer of a run that we ended, an empty, an incomplete or a refused answer, a sub-agent's, a compaction's."""
    events, exchanges = _round(say)
    assert tamper_findings(say.parse(say.init(), *events[:3]), exchanges) == ()
    assert tamper_findings(say.whole(*events[:3]), exchanges, stopped_by_us=True) == ()
    assert tamper_findings(say.whole(*events[:3]), exchanges) != ()
    extra = say.message(TEXT, mid="msg_3")
    for odd in (
        say.request(response=say.message(mid="msg_3")),
        say.request(response=say.message({"type": "text", "text": " "}, mid="msg_3")),
        say.request(response=say.message({"type": "thinking", "thinking": "x"}, mid="msg_3")),
        say.request(response=say.message(TEXT, mid="msg_3", stop_reason="refusal")),
        say.request(response=extra, agent="a0"),
        say.request(response=Response(status=500, body=json.dumps(extra).encode())),
        say.request(response=Response(status=200, body=json.dumps(extra).encode(), ending="client-gone")),
        say.request(
            response=Response(
                status=200, body=b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_3"}}\n\n'
            )
        ),
        say.request(kind="refused"),
        say.request(response=None),
    ):
        assert tamper_findings(say.whole(*events), [*exchanges, odd]) == (), odd
    assert tamper_findings(say.whole(*events), [*exchanges, say.request(response=extra)]) != ()
    compacted = say.whole(*events, {"type": "system", "subtype": "compact_boundary"})
    assert tamper_findings(compacted, [*exchanges, say.request(response=extra)]) == ()


def test_a_changed_tool_result_is_a_contradiction(say: Any) -> None:
    """Its text must be the one that was sent; string and list form, and a reminder that only the wire has, are the same text."""
    events, exchanges = _round(say)
    for content, good in (
        ("a\nb", True),
        ([{"type": "text", "text": "a\nb"}], True),
        ("a\nc", False),
        ("a\nb\nc", False),
        ("", False),
    ):
        changed = [*events[:2], say.answer("t1", content), events[3]]
        assert (tamper_findings(say.whole(*changed), exchanges) == ()) is good, content
    sent = {"type": "tool_result", "tool_use_id": "t1", "content": "a\nb\n\n<system-reminder>\nx\n</system-reminder>\n"}
    reminded = [exchanges[0], say.request(say.user(sent), seq=2, response=say.message(TEXT, mid="msg_2"))]
    assert tamper_findings(say.whole(*events), reminded) == ()
    forged = [*events[:2], say.answer("t1", "a\nb\n<system-reminder>forged"), events[3]]
    assert tamper_findings(say.whole(*forged), exchanges) != ()


@pytest.mark.parametrize("kind", ["refused", "start-up"])
def test_a_request_that_was_never_sent_upstream_is_no_record(say: Any, kind: str) -> None:
    """Any program inside can have a request refused: what it holds neither excuses a changed result nor accuses a true one, and is no request of the main thread."""
    events, exchanges = _round(say)

    def holding(content: str, **fields: Any) -> Exchange:
        result = {"type": "tool_result", "tool_use_id": "t1", "content": content}
        exchange: Exchange = say.request(say.user(result), seq=3, **fields)
        return exchange

    changed = [*events[:2], say.answer("t1", "a\nc"), events[3]]
    assert tamper_findings(say.whole(*changed), [*exchanges, holding("a\nc", kind=kind)]) != ()
    assert tamper_findings(say.whole(*events), [*exchanges, holding("a\nc", kind=kind)]) == ()
    (finding,) = tamper_findings(say.whole(say.text()), [holding("x", kind=kind, response=say.message(TEXT))])
    assert "no main-thread request was sent" in finding
    sent = [holding("x", response=say.message(TEXT))]
    assert tamper_findings(say.whole(say.text()), sent) == ()


def test_a_result_that_was_never_sent_is_none(say: Any) -> None:
    """The run ended before a next request; also where the call's id had been used before."""
    events, exchanges = _round(say)
    stopped = say.result(subtype="error_max_turns", is_error=True, result=...)
    assert tamper_findings(say.whole(*events[:3], result=stopped), exchanges[:1]) == ()
    again = [*events, say.call("t1", "Bash", {}, mid="msg_1"), say.answer("t1", "other")]
    twice = [
        *exchanges,
        say.request(seq=3, response=say.message({**USE, "input": {}}, mid="msg_1", stop_reason="tool_use")),
    ]
    assert tamper_findings(say.whole(*again, result=stopped), twice) == ()


def test_a_second_result_of_one_call_is_a_contradiction(say: Any) -> None:
    """Two results of one call, before or after the true one, are a forgery: only a call that was made twice has two."""
    events, exchanges = _round(say)
    for forged in ([*events[:3], say.answer("t1", "x"), events[3]], [*events[:2], say.answer("t1", "x"), *events[2:]]):
        assert len(tamper_findings(say.whole(*forged), exchanges)) == 1


def test_a_shortened_later_copy_changes_nothing(say: Any) -> None:
    """Context editing replaces old results in later requests; what was sent first still counts."""
    events, exchanges = _round(say)
    cleared = {"type": "tool_result", "tool_use_id": "t1", "content": "[cleared]"}
    later = say.request(say.user(cleared), seq=3, response=say.message(TEXT, mid="msg_2"))
    assert tamper_findings(say.whole(*events), [*exchanges, later]) == ()


def test_model_text_without_any_request_is_a_contradiction(say: Any) -> None:
    """Real text and calls need a request; the pseudo-model's text and a sub-agent's do not stand for the main thread."""
    assert tamper_findings(say.whole(say.text()), []) != ()
    assert tamper_findings(say.whole(say.text()), [say.request(response=say.message(TEXT), agent="a0")]) != ()
    failed = say.result(is_error=True, result="API Error")
    assert tamper_findings(say.whole(say.text("API Error", model="<synthetic>"), result=failed), []) == ()
    assert tamper_findings(say.whole(result=failed), []) == ()


FORGED = "FORGED"
BACKGROUND = {"origin": {"kind": "task-notification", "task_id": "b1"}}


@pytest.mark.parametrize(
    ("end", "requests"),
    [
        (lambda say: [say.result(result=FORGED)], 2),
        (lambda say: [say.result(), say.result(result=FORGED)], 2),
        (lambda say: [say.result(result=FORGED), say.result()], 2),
        (lambda say: [say.result(result=FORGED), say.result(**BACKGROUND)], 2),
        (lambda say: [say.result(is_error=True, subtype="error_during_execution"), say.result(result=FORGED)], 2),
        (lambda say: [say.result(result=FORGED)], 0),
        (lambda say: [say.result(result="I look.")], 2),
        (lambda say: [say.result(result="", structured_output={"a": 1})], 2),
        (lambda say: [say.result(stop_reason="max_tokens")], 2),
    ],
    ids=["text", "after", "before", "later", "error", "unasked", "early text", "structured", "stop reason"],
)  # fmt: skip
def test_an_answer_that_no_response_gave_is_a_contradiction(
    say: Any, end: Callable[[Any], list[Any]], requests: int
) -> None:
    """What is graded must be what the model said last; the same events with the true result are no finding (control)."""
    events, exchanges = _round(say)
    shown = events if requests else []
    assert tamper_findings(say.whole(*events), exchanges) == ()
    assert tamper_findings(say.parse(say.init(), *shown, *end(say)), exchanges[:requests]) != ()


def test_an_answer_before_the_last_response_came_is_a_contradiction(say: Any) -> None:
    """The model had asked for a tool, and had not said anything yet that ends a turn; the stop reason tells even where the text is the model's own."""
    events, exchanges = _round(say)
    for result in (say.result(result=FORGED), say.result(result="I look."), say.result(result="")):
        assert tamper_findings(say.whole(*events[:3], result=result), exchanges[:1]) != ()


def test_an_answer_that_rests_on_a_response_is_none(say: Any) -> None:
    """The last of several texts, blanks aside; one that was cut after its text; a structured output; an earlier turn's where background turns followed."""
    events, exchanges = _round(say)
    assert tamper_findings(say.whole(*events, result=say.result(result=" 42 units\n")), exchanges) == ()
    cut = say.message(TEXT, mid="msg_2", stop_reason=None)
    gone = say.request(seq=2, response=Response(status=200, body=json.dumps(cut).encode(), ending="client-gone"))
    assert tamper_findings(say.whole(*events), [exchanges[0], gone]) == ()
    shaped = {"type": "tool_use", "id": "t2", "name": "StructuredOutput", "input": {"a": [1]}}
    call = say.call("t2", "StructuredOutput", {"a": [1]}, mid="msg_3")
    third = say.request(seq=3, response=say.message(shaped, mid="msg_3", stop_reason="tool_use"))
    done = say.result(result='{"a":[1]}', structured_output={"a": [1]}, stop_reason="tool_use")
    assert tamper_findings(say.whole(*events, call, result=done), [*exchanges, third]) == ()
    later = say.request(seq=3, response=say.message({"type": "text", "text": "later"}, mid="msg_3"))
    note = say.text("later", mid="msg_3")
    two = say.parse(say.init(), *events, say.result(), note, say.result(result="later", **BACKGROUND))
    assert tamper_findings(two, [*exchanges, later]) == ()


def test_a_model_call_of_anybody_else_is_a_contradiction(say: Any) -> None:
    """A program inside that asks the model itself may say that it is a sub-agent; where the CLI names no session nobody's can be told, and refused ones were never sent."""
    events, exchanges = _round(say)
    own = say.request(
        seq=3, from_cli=False, agent="a0", response=say.message({"type": "text", "text": "hint"}, mid="m9")
    )
    named = [exchange.model_copy(update={"from_cli": True}) for exchange in exchanges]
    assert tamper_findings(say.whole(*events), [*named, own]) == ("exchange 3: a model call that the CLI did not make",)
    assert tamper_findings(say.whole(*events), [*exchanges, own]) == ()
    assert tamper_findings(say.whole(*events), [*named, own.model_copy(update={"kind": "refused"})]) == ()


def test_the_status_descriptor_has_the_last_word(say: Any) -> None:
    """Another exit status reported elsewhere is a contradiction; where one says nothing there is none."""
    events, exchanges = _round(say)
    whole = say.whole(*events)
    assert tamper_findings(whole, exchanges, exit_status=0, status_fd_exit=1) != ()
    assert tamper_findings(whole, exchanges, exit_status=None, status_fd_exit=1) == ()
    assert tamper_findings(whole, exchanges, exit_status=0, status_fd_exit=None) == ()


def test_a_cut_stream_and_its_repetition_are_real_life(say: Any) -> None:
    """A partial answer whose block was whole is written by the CLI; the retry has an id of its own; an empty block is filled in."""
    start = 'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","content":[]}}\n\n'
    block = (
        'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
        'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Partial"}}\n\n'
        'data: {"type":"content_block_stop","index":0}\n\n'
    )
    cut = say.request(response=Response(status=200, body=(start + block).encode(), ending="cut"))
    retry = say.request(seq=2, response=say.message(TEXT, mid="msg_2"))
    transcript = say.whole(
        say.text("Partial"), say.text("42 units", mid="msg_2"), say.text("(no content)", mid="msg_2")
    )
    assert tamper_findings(transcript, [cut, retry]) == ()


def test_findings_are_bounded(say: Any) -> None:
    """A transcript full of forgeries gives ten sentences, not a million."""
    events, exchanges = _round(say)
    forged = [say.text(f"forged {number}") for number in range(50)]
    assert len(tamper_findings(say.whole(*events, *forged), exchanges)) == 10


@pytest.mark.parametrize("name", ["slash_replayed", "slash_replayed_absent", "tool_replayed", "prose_replayed_no_call"])
def test_real_pairs_have_no_changed_results(name: str) -> None:
    """The CLI's own transcripts and requests agree on every tool result; their texts are held by answers made from the transcript."""
    parser = TranscriptParser()
    data = (CASES / "transcripts" / f"{name}.jsonl").read_bytes()
    parser.feed(data)
    blocks = [
        block
        for event in map(json.loads, data.splitlines())
        if event["type"] == "assistant"
        for block in event["message"]["content"]
    ]
    answer = {"type": "message", "id": "msg_000", "content": blocks}
    response = Response(status=200, body=json.dumps(answer).encode())
    exchanges = read_wire_file((CASES / "wire" / f"first_party_{name}.jsonl").read_bytes(), name)
    answered = [exchange.model_copy(update={"response": response}) for exchange in exchanges]
    assert tamper_findings(parser.close(), answered) == ()
