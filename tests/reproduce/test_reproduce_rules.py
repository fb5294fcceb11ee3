"""The canonical rules: what they let differ, what they count, and that they let nothing else differ (issue 3; facts/replay.md R3, cases N01, N03)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.claude.canonical_transcript import canonical_events, compare_events
from runner.difference import first_difference
from runner.gate.exchange import Exchange, Refusal, Request
from runner.gate.refusals import compare_refusals
from runner.gate.rules import REASONS, TEXT_RULES, Renaming, canonical_request, differing, id_pairs

CASES = Path(__file__).resolve().parents[1] / "cases" / "inputs"
AGENT, OTHER = "a0123456789abcdef", "afedcba9876543210"


def form(text: Any) -> Any:
    made = canonical_request(json.dumps({"messages": [{"role": "user", "content": text}]}).encode())
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("rule", "recorded", "now"),
    [
        ("date", "Today's date is 2026-11-30.", "Today's date is 2027-01-01."),
        ("kernel", " - OS Version: Linux 6.18.44\n", " - OS Version: Linux 6.1.0-recorded\n"),
        ("agent-id", f"agentId: {AGENT} done", f"agentId: {OTHER} done"),
        ("duration", "<duration_ms>12</duration_ms>", "<duration_ms>3456</duration_ms>"),
        ("duration", "duration_ms: 12", "duration_ms: 99"),
        ("budget", "USD budget: $0/$2; $2 remaining", "USD budget: $0.0004/$2; $1.9996 remaining"),
        ("cch", "cc_version=2.1.332; cch=0a1b2;", "cc_version=2.1.332; cch=ffff0;"),
        (
            "prompt-id",
            "cc_prompt_id=7ef64d5c-6fc5-4857-b473-abdcc98431b7;",
            "cc_prompt_id=c3a45dd3-6ea2-4390-82e3-850c7ae37c10;",
        ),
    ],
)
def test_each_rule_explains_its_value_and_is_counted(rule: str, recorded: str, now: str) -> None:
    """A value under a rule may differ and is counted once; the same value is not counted; every rule has a reason."""
    assert differing(form(recorded), form(now)) == {rule: 1}
    assert differing(form(recorded), form(recorded)) == {}
    assert REASONS[rule]


@pytest.mark.parametrize(
    ("recorded", "now"),
    [
        ("Today's date is 2026-11-30.", "Today's date is tomorrow."),
        ("OS Version: Linux 6.18", "OS Version: Darwin 25"),
        ("cc_version=2.1.332;", "cc_version=2.1.333;"),
        ("the plan", "the Plan"),
        (f"x{AGENT}", f"x{OTHER}"),
    ],
)
def test_nothing_else_may_differ(recorded: str, now: str) -> None:
    """Text outside the rules, or near one, stays a difference."""
    assert differing(form(recorded), form(now)) is None


def test_parallel_results_may_come_in_any_order() -> None:
    """Tool results of one message are compared by their ids, and what moved is counted; another content is a difference."""
    one, two = ({"type": "tool_result", "tool_use_id": name, "content": name} for name in ("toolu_1", "toolu_2"))
    assert differing(form([one, two]), form([two, one])) == {"tool-result-order": 2}
    assert differing(form([one, two]), form([two, {**one, "content": "other"}])) is None


def test_ids_are_renamed_one_to_one() -> None:
    """An id that stands for two, or two that become one, does not agree with what is known."""
    renaming = Renaming()
    pairs = id_pairs(form(f"{AGENT} {OTHER}"), form(f"{OTHER} {AGENT}"))
    assert renaming.agrees(pairs)
    renaming.learn(pairs)
    assert not renaming.agrees([(AGENT, AGENT)])
    assert not Renaming().agrees([(AGENT, AGENT), (OTHER, AGENT)])


def test_the_volatile_billing_line_of_a_real_report_is_explained() -> None:
    """Case N01: two bodies that differ only in the billing header's suffix and hash, the date and the session."""
    first, second = ((CASES / name).read_bytes() for name in ("N01a.json", "N01b.json"))
    one, two = canonical_request(first), canonical_request(second)
    assert one is not None
    assert two is not None
    found = first_difference(json.loads(one.text), json.loads(two.text))
    assert found is None or "cc_version" in found.recorded or "session" in found.recorded


@given(st.binary(max_size=200))
def test_a_body_that_cannot_be_read_equals_nothing(body: bytes) -> None:
    """Case N03: a canonical form exists only for one readable JSON object, and never for two different unreadable bodies."""
    made = canonical_request(body)
    if made is not None:
        assert isinstance(json.loads(body), dict)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
        max_leaves=20,
    )
)
def test_a_document_is_equal_to_itself_however_it_is_written(value: Any) -> None:
    """Key order and spacing do not matter; the canonical form is a function of the value."""
    document = {"messages": [], "value": value}
    try:
        plain = json.dumps(document).encode()
    except ValueError:
        return
    one, two = canonical_request(plain), canonical_request(json.dumps(document, indent=2, sort_keys=True).encode())
    assert one is not None
    assert two is not None
    assert differing(one, two) == {}


def test_what_is_left_out_by_its_key_counts_in_the_input_of_a_tool() -> None:
    """A stamp of the CLI's is no difference; one that a model gives a tool is."""

    def call(stamp: str, asked: str) -> bytes:
        block = {"type": "tool_use", "id": "toolu_1", "name": "mcp__desk__update", "input": {"timestamp": asked}}
        return _event(type="assistant", timestamp=stamp, took_ms=len(stamp), message={"content": [block]})

    recorded = canonical_events(call("now", "noon"))
    assert compare_events(recorded, canonical_events(call("later", "noon")))[1] is None
    difference = compare_events(recorded, canonical_events(call("now", "one")))[1]
    assert difference is not None
    assert difference.pointer.startswith("/event/1/message/content/0/input/timestamp")


def test_an_event_that_is_nested_without_end_is_compared_as_it_stands() -> None:
    """A line that no reader keeps whole is equal to itself and to nothing else."""
    deep = b'{"type":"assistant","x":' + b"[" * 50_000 + b"1" + b"]" * 50_000 + b"}\n"
    recorded = canonical_events(deep)
    assert compare_events(recorded, canonical_events(deep))[1] is None
    assert compare_events(recorded, canonical_events(deep.replace(b"1", b"2")))[1] is not None


@pytest.mark.parametrize(
    ("recorded", "now", "sides"),
    [
        ([1], [1, {"path": "new"}], ("nothing (1 item)", '{"path": "new"} (2 items)')),
        ([1, 2, 3], [1], ("2 (3 items)", "nothing (1 item)")),
        ([], ["x"], ("nothing (0 items)", '"x" (1 item)')),
    ],
)
def test_a_list_that_is_longer_shows_its_first_entry_too_many(
    recorded: list[Any], now: list[Any], sides: tuple[str, str]
) -> None:
    """Not the lengths alone: which entry is new, or gone, and where."""
    found = first_difference({"entries": recorded}, {"entries": now})
    assert found is not None
    assert (found.recorded, found.now) == sides
    assert found.pointer == f"/entries/{min(len(recorded), len(now))}"
    assert first_difference({"entries": now}, {"entries": now}) is None


@pytest.mark.parametrize(
    ("recorded", "now", "told"),
    [
        ({"a": 1}, {"a": True}, ("/a", "1", "true")),
        ({"a": True}, {"a": 1}, ("/a", "true", "1")),
        ({"a": 0}, {"a": False}, ("/a", "0", "false")),
        ({"a": 1}, {"a": 1.0}, ("/a", "1", "1.0")),
        ({"a": None}, {"a": False}, ("/a", "null", "false")),
        ({}, {"a": 1}, ("/a", "nothing", "1")),
        ({}, {"a": None}, ("/a", "nothing", "null")),
        ({"a": 1}, {}, ("/a", "1", "nothing")),
        ({"b": 1}, {"b": 1, "x/y~z": 2}, ("/x~1y~0z", "nothing", "2")),
        ([[{}]], [[{"a": []}]], ("/0/0/a", "nothing", "[]")),
        ([], {}, ("", "[]", "{}")),
        ("1", 1, ("", '"1"', "1")),
        ("same", "some", ("@1", '"same"', '"some"')),
    ],
)
def test_values_that_look_alike_are_not_the_same(recorded: Any, now: Any, told: tuple[str, str, str]) -> None:
    """Types count, and a key that only one side has is a difference whichever side that is; each value is the same as itself (the control)."""
    found = first_difference(recorded, now)
    assert found is not None
    assert (found.pointer, found.recorded, found.now) == told
    for value in (recorded, now):
        assert first_difference(value, json.loads(json.dumps(value))) is None


@pytest.mark.parametrize("name", [rule.name for rule in TEXT_RULES])
def test_a_text_that_holds_a_rules_word_equals_no_value(name: str) -> None:
    """Who writes the word that stands for a value has not written a value, however often it is quoted; it is equal to itself."""
    values = {"date": "Today's date is 2026-11-30.", "kernel": "OS Version: Linux 6", "agent-id": AGENT}
    texts = [f"Today's date is <{name}>.", f"OS Version: <{name}>", f"<{name}>", f"<literal {name}>", f"<<{name}>>"]
    for text in texts:
        assert differing(form(text), form(text)) == {}
        for other in {*texts, *values.values(), f"<{AGENT}>"} - {text}:
            assert differing(form(text), form(other)) is None, (text, other)


def test_a_body_nested_without_end_has_no_form() -> None:
    """It equals nothing under the rules, and nothing is raised; a little less of it has a form."""

    def nested(depth: int) -> bytes:
        return b'{"x":' + b"[" * depth + b"1" + b"]" * depth + b"}"

    assert canonical_request(nested(100)) is not None
    for depth in (400, 600, 900, 100_000):
        made = canonical_request(nested(depth))
        assert made is None or json.loads(made.text)


def _event(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def _said(words: str, thread: str | None = None) -> bytes:
    return _event(type="assistant", parent_tool_use_id=thread, message={"content": [{"type": "text", "text": words}]})


BEGIN, END, RESULT = _event(type="system"), _event(type="result"), _event(type="user", n=1)
MAIN, AGAIN, SUB = _said("one"), _said("two"), _said("sub", "toolu_1")


@pytest.mark.parametrize(
    ("now", "moved"),
    [
        ([BEGIN, MAIN, SUB, RESULT, AGAIN, END], 0),
        ([BEGIN, SUB, MAIN, RESULT, AGAIN, END], 2),
        ([BEGIN, MAIN, SUB, AGAIN, RESULT, END], 2),
        ([BEGIN, AGAIN, SUB, RESULT, MAIN, END], None),
        ([BEGIN, MAIN, SUB, RESULT, END, AGAIN], None),
        ([MAIN, BEGIN, SUB, RESULT, AGAIN, END], None),
    ],
)
def test_only_events_that_run_side_by_side_may_change_places(now: list[bytes], moved: int | None) -> None:
    """Sub-agents and tool results come as they come; what one thread's model said keeps its order, and so do beginning and end."""
    recorded = canonical_events(b"\n".join([BEGIN, MAIN, SUB, RESULT, AGAIN, END]))
    rules, difference = compare_events(recorded, canonical_events(b"\n".join(now)))
    assert (difference is not None) == (moved is None)
    assert dict(rules) == ({"event-order": moved} if moved else {})


def _refused(body: bytes, code: str = "provider-tool") -> Exchange:
    request = Request(method="POST", target="/v1/messages", body=body)
    return Exchange(seq=1, kind="refused", request=request, refusal=Refusal(code=code, message="no"))


def test_bodies_of_refused_requests_are_compared() -> None:
    """The same bytes need no rule; a value under a rule is counted; anything else, and what cannot be read, is a difference."""
    body = json.dumps({"messages": [{"role": "user", "content": "Today's date is 2026-11-30."}]}).encode()
    recorded = [_refused(body)]
    assert compare_refusals(recorded, recorded) == ({}, None)
    assert compare_refusals(recorded, [_refused(body.replace(b"2026", b"2027"))]) == ({"date": 1}, None)
    for other in ([_refused(body.replace(b"date", b"dato"))], [_refused(b"x")], [_refused(body, "malformed")], []):
        rules, difference = compare_refusals(recorded, other)
        assert (rules, difference is None) == ({}, False)
    assert compare_refusals([_refused(b"x")], [_refused(b"y")])[1] is not None


def _named(call: str | None, *ids: str) -> bytes:
    return _event(type="system", tool_use_id=call, task_id=" ".join(ids))


FRESH, SECOND = "a1111111111111111", "a2222222222222222"


@pytest.mark.parametrize(
    ("now", "same"),
    [
        ([_named("1", FRESH), _named("2", SECOND), _named("3", FRESH)], True),
        ([_named("2", SECOND), _named("1", FRESH), _named("3", FRESH)], True),
        ([_named("1", FRESH), _named("2", SECOND), _named("3", SECOND)], False),
        ([_named("1", FRESH), _named("2", FRESH), _named("3", FRESH)], False),
    ],
)
def test_an_id_in_the_transcript_stands_for_one(now: list[bytes], same: bool) -> None:
    """Ids are renamed one to one over the whole transcript, wherever their events stand, and as in the requests."""
    recorded = canonical_events(b"\n".join([BEGIN, _named("1", AGENT), _named("2", OTHER), _named("3", AGENT), END]))
    became = canonical_events(b"\n".join([BEGIN, *now, END]))
    rules, difference = compare_events(recorded, became)
    assert (difference is None, rules["agent-id"]) == ((True, 3) if same else (False, 0))
    known = Renaming()
    known.learn([(AGENT, FRESH)])
    assert (compare_events(recorded, became, known)[1] is None) is same
    known.learn([(OTHER, AGENT)])
    assert compare_events(recorded, became, known)[1] is not None
    assert known.there == {AGENT: FRESH, OTHER: AGENT}


def test_events_that_are_alike_but_for_their_ids_may_change_places() -> None:
    """Two sub-agents that end in another order leave the same two events; the ids in them tell nothing of the order."""
    both = [_named(None, AGENT), _named(None, OTHER)]
    recorded = canonical_events(b"\n".join([BEGIN, *both, END]))
    known = Renaming()
    known.learn([(AGENT, AGENT), (OTHER, OTHER)])
    assert compare_events(recorded, canonical_events(b"\n".join([BEGIN, *reversed(both), END])), known)[1] is None
