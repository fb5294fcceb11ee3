"""The state machine by itself: pure, total, and the same for both doors (B14)."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.canonical import canonical_json, parse_canonical
from runner.simulate.command_door import command_answer, garbled, parse_command
from runner.simulate.contract import Contract
from runner.simulate.machine import LOST, Answer, Call, Running, begin, same_json, step
from runner.simulate.retrace import recomputed
from runner.simulate.trace import Row, Turned, trace_part
from tests.simulate.conftest import contract
from tests.simulate.contract_cases import SEED
from tests.simulate.doors import same_trace

FAULTS: list[dict[str, Any]] = [
    {"id": "a", "kind": "lost", "tool": "ticket_comment", "after": 1, "times": 2},
    {"id": "b", "kind": "malformed", "tool": "ticket_update", "expect": {"args": {"state": "closed"}}},
    {"id": "c", "kind": "refused", "tool": "ticket_read", "expect": {"state": {"/comments/DESK-7/1/body": "x"}}},
    {"id": "d", "kind": "rejected", "tool": "file_write", "times": None},
    {"id": "e", "kind": "slow", "tool": "file_read", "delay_ms": 5},
]
FAULTY = contract(**SEED, faults=FAULTS)
TOOLS = tuple(tool.name for tool in FAULTY.tools)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["DESK-7", "DESK-1", "open", "closed", "x", "notes/provision.md", "/srv/desk/notes/a.md"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(
    st.sampled_from(["ticket", "body", "state", "assignee", "path", "text", "é", "more"]), json_values, max_size=4
)
good = st.sampled_from(
    [
        ("ticket_comment", {"ticket": "DESK-7", "body": "x"}),
        ("ticket_update", {"ticket": "DESK-7", "state": "closed"}),
        ("ticket_read", {"ticket": "DESK-7"}),
        ("file_write", {"path": "notes/a.md", "text": "y"}),
        ("file_read", {"path": "/srv/desk/notes/provision.md"}),
    ]
).map(lambda pair: Call("mcp", "call", pair[0], json.dumps(pair[1])))
calls = (
    good
    | st.builds(
        Call,
        st.sampled_from(["mcp", "command"]),
        st.sampled_from(["call", "schema"]),
        st.sampled_from(TOOLS) | st.text(max_size=300),
        arguments.map(json.dumps)
        | st.text(max_size=40)
        | st.sampled_from(["", "[]", "null", "{", '{"a":1,"a":2}', "\udcff"]),
    )
    | st.just(Call("command", "list"))
)


def run(given_contract: Contract, made: list[Call]) -> tuple[Running, list[Answer], tuple[Row, ...]]:
    """Make calls one after the other."""
    running, answers, rows = begin(given_contract), [], []
    for call in made:
        done = step(given_contract, running, call)
        running = done.running
        answers.append(done.answer)
        rows.append(done.row)
    return running, answers, tuple(rows)


@settings(max_examples=150)
@given(st.lists(calls, max_size=12))
def test_any_calls_give_a_canonical_trace_that_can_be_recomputed(made: list[Call]) -> None:
    """Whatever is sent, no step raises; the trace is canonical JSON; the same calls, and the kept rows alone, give the same trace; the door changes nothing."""
    running, _, rows = run(FAULTY, made)
    again, _, same = run(FAULTY, made)
    assert rows == same
    assert running.service == again.service
    part = trace_part(FAULTY, rows, running.service, Turned())
    document: Any = parse_canonical(part)
    assert [row["index"] for row in document["rows"]] == list(range(len(made)))
    assert recomputed(FAULTY, rows)[0] == rows
    turned = [Call("command" if call.door == "mcp" else "mcp", call.mode, call.tool, call.args_text) for call in made]
    _, _, other = run(FAULTY, turned)
    assert same_trace(rows, FAULTY.root, other, FAULTY.root)


@settings(max_examples=150)
@given(st.lists(calls, max_size=8), calls)
def test_a_step_changes_nothing_it_was_given(before: list[Call], call: Call) -> None:
    """A step leaves the state that it was given as it was; what was refused, rejected or only read changes no state; ``applied`` says whether it did."""
    running, _, _ = run(FAULTY, before)
    kept = copy.deepcopy(running)
    done = step(FAULTY, running, call)
    assert running == kept
    changed = canonical_json(listed(done.running)) != canonical_json(listed(running))
    assert done.row.applied == changed
    if changed:
        assert done.row.writes
        assert done.answer.exit_status in (0, 5)
    assert done.answer.exit_status == done.row.exit_status
    assert (done.answer.way == "lost") == (done.row.status == 0)


def listed(running: Running) -> Any:
    """The state with its keys as values, since a key may be any text."""
    document = running.service.document()
    return {name: sorted([[key, value] for key, value in held.items()], key=str) for name, held in document.items()}


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_command_or_none(body: bytes) -> None:
    """The command's door reads any bytes, and what it reads the machine answers."""
    call = parse_command(body)
    if call is not None:
        done = step(FAULTY, begin(FAULTY), call)
        headers, text = command_answer(done.answer)
        assert dict(headers)["x-exit-status"] == str(done.row.exit_status)
        assert text.endswith(b"\n") or done.answer.way == "malformed"


@given(st.dictionaries(st.text(max_size=4), st.text(max_size=8), max_size=4))
def test_a_garbled_answer_is_no_json(value: dict[str, str]) -> None:
    """Half of an object's text never parses."""
    with pytest.raises(ValueError, match=r".*"):
        json.loads(garbled(json.dumps(value).encode() + b"\n"))


def test_a_fault_counts_the_calls_that_fit() -> None:
    """``after`` lets calls through, ``times`` ends it, and calls that do not fit are not counted; of two faults the first happens and both count."""
    made = contract(
        **SEED,
        faults=[
            {
                "id": "one",
                "kind": "refused",
                "tool": "ticket_read",
                "expect": {"args": {"ticket": "DESK-7"}},
                "after": 1,
            },
            {"id": "two", "kind": "refused", "tool": "ticket_read", "times": 2},
        ],
    )
    seven = Call("mcp", "call", "ticket_read", '{"ticket": "DESK-7"}')
    one = Call("mcp", "call", "ticket_read", '{"ticket": "DESK-1"}')
    _, _, rows = run(made, [one, seven, seven, seven, one])
    assert [row.fault for row in rows] == ["two", "two", "one", None, None]


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [(1, 1, True), (1, True, False), ([1], [1], True), ({"a": None}, {}, False), ("", None, False), ("é", "é", True)],
)
def test_json_is_equal_by_value(one: Any, other: Any, equal: bool) -> None:
    """True is not 1, and a missing member is not null."""
    assert same_json(one, other) is equal


def test_a_guard_on_state_reads_by_pointer() -> None:
    """A guard holds by value at a JSON pointer, lists by index, and does not hold where nothing stands; ``~1`` is a slash in a key."""
    at = {
        "/tickets/DESK-7/state": ("open", True),
        "/tickets/DESK-7/gone": (None, False),
        "/comments/DESK-7/0/author": ("mara.voss", True),
        "/comments/DESK-7/9/author": ("mara.voss", False),
        "/comments/DESK-7/x": ("mara.voss", False),
        "/files/notes~1provision.md": (
            "Accounts are made by the owner of a service. The desk asks; it never makes one.\n",
            True,
        ),
        "/tickets/DESK-7/state/more": ("open", False),
    }
    for pointer, (value, holds) in at.items():
        made = contract(
            **SEED,
            faults=[{"id": "f", "kind": "refused", "tool": "file_list", "expect": {"state": {pointer: value}}}],
        )
        _, _, (row,) = run(made, [Call("mcp", "call", "file_list")])
        assert (row.fault == "f") is holds, pointer


def test_the_lost_answer_is_what_the_command_says_by_itself() -> None:
    """The row of a lost answer holds the very text that the command prints where nothing comes."""
    from runner.simulate.command_door import command_program

    assert canonical_json(LOST) in command_program(8790)
    assert b"@" not in command_program(8790).replace(b'"$@"', b"")
