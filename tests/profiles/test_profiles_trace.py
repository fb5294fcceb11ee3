"""The shared helpers over a call trace: what counts as what, by rows written by hand (B13)."""

from __future__ import annotations

from typing import Any

import pytest

from profiles import _trace as trace_module
from profiles._trace import (
    argument,
    call_recovery,
    calls,
    common_checks,
    injected,
    names,
    payload,
    read_after,
    refused,
    rejected,
    tool_calls,
    uncertain,
    writes,
)

WRITING = ("ticket_comment", "ticket_update", "file_write")


def row(tool: str | None, exit_status: int = 0, **fields: Any) -> dict[str, Any]:
    """A row as the simulator writes it, but for its index."""
    args = fields.pop("args", {"ticket": "DESK-7"})
    status = {0: 200, 1: 404, 4: None, 5: 0}[exit_status]
    error = {"error": {"code": "x", "message": "x"}}
    return {
        "door": "mcp",
        "mode": "call",
        "tool": tool,
        "writes": tool in WRITING,
        "args": args,
        "args_text": None,
        "result": {"ok": True} if exit_status == 0 else error,
        "exit_status": exit_status,
        "status": status,
        "applied": tool in WRITING and exit_status in (0, 5),
        "fault": None,
        "tool_use_id": None,
        **fields,
    }


def numbered(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows with their indices."""
    return [{"index": index, **each} for index, each in enumerate(rows)]


def trace_of(*rows: dict[str, Any]) -> tuple[trace_module.Row, ...]:
    """The rows as helpers see them."""
    return calls({"tool_trace": numbered(*rows)})


READ, COMMENT, LIST, SCHEMA = (
    row("ticket_read"),
    row("ticket_comment"),
    row(None, mode="list", args=None),
    row("ticket_read", mode="schema", args=None),
)


def test_calls_and_writes_are_told_apart() -> None:
    """Schema and list rows are no calls; writes are calls of writing tools, whatever became of them; indices are the trace's."""
    trace = trace_of(LIST, SCHEMA, READ, COMMENT, row("ticket_comment", 4), row("gone", 4))
    assert [each.index for each in tool_calls(trace)] == [2, 3, 4, 5]
    assert [each.index for each in tool_calls(trace, "ticket_read")] == [2]
    assert [each.index for each in writes(trace)] == [3, 4]


def test_one_row_tells_argument_payload_and_ending() -> None:
    """Each predicate by the row's own fields: refused is exit 1, rejected exit 4, uncertain exit 5 with status 0; only a good answer has a payload."""
    good, no, never, lost, garbled = trace_of(
        READ,
        row("ticket_read", 1),
        row("ticket_read", 4, args=None, args_text="{"),
        row("ticket_comment", 5),
        row("ticket_comment", 5, status=200),
    )
    assert (argument(good, "ticket"), argument(good, "body"), argument(never, "ticket")) == ("DESK-7", None, None)
    assert [names(each, "DESK-7") for each in (good, never)] == [True, False]
    assert not names(good, "DESK-70")
    assert [payload(each) is not None for each in (good, no, never, lost, garbled)] == [
        True,
        False,
        False,
        False,
        False,
    ]
    assert [refused(each) for each in (good, no, never, lost)] == [False, True, False, False]
    assert [rejected(each) for each in (good, no, never, lost)] == [False, False, True, False]
    assert [uncertain(each) for each in (good, no, never, lost, garbled)] == [False, False, False, True, False]


def at(trace: tuple[trace_module.Row, ...], write: int = 0) -> int | None:
    found = read_after(trace, trace[write])
    return None if found is None else found.index


def test_a_read_back_names_the_same_thing_and_comes_before_another_write() -> None:
    """The first good read of the same ticket or path after the write; none after another sent write of it, by a refused read, or of another ticket."""
    other, file = {"ticket": "DESK-8"}, {"path": "a.md"}
    lost = row("ticket_comment", 5)
    assert at(trace_of(lost, READ)) == 1
    assert at(trace_of(READ, lost), 1) is None
    assert at(trace_of(lost, row("ticket_read", args=other))) is None
    assert at(trace_of(lost, row("ticket_read", 1), READ)) == 2
    assert at(trace_of(lost, COMMENT, READ)) is None
    assert at(trace_of(lost, row("ticket_comment", 4), READ)) == 2
    assert at(trace_of(lost, row("ticket_comment", args=other), READ)) == 2
    assert at(trace_of(lost, row("ticket_read", 5), READ)) == 2
    assert at(trace_of(row("file_write", 5, args=file), row("file_read", args=file))) == 1
    assert at(trace_of(row("file_write", 5, args={}), READ)) is None


def test_a_recovery_is_a_rejected_call_and_a_success_right_after() -> None:
    """Certified when the next call succeeds, a look at schema or list between them allowed; each has a diagnostic with both indices."""
    found = call_recovery(trace_of(row("ticket_read", 4), SCHEMA, LIST, READ))
    assert found.recovered == {0}
    (told,) = found.diagnostics
    assert (told.category, told.severity, told.calls) == ("call-recovery", "warning", (0, 3))


@pytest.mark.parametrize(
    ("rows", "calls_told"),
    [
        ((row("ticket_read", 4),), (0,)),
        ((row("ticket_read", 4), row("ticket_read", 1), READ), (0, 1)),
        ((row("ticket_read", 4), row("ticket_comment", 5), READ), (0, 1)),
        ((row("ticket_read", 4), SCHEMA), (0,)),
    ],
    ids=["last", "refused-next", "lost-next", "only-a-schema-next"],
)
def test_nothing_else_is_a_recovery(rows: tuple[dict[str, Any], ...], calls_told: tuple[int, ...]) -> None:
    """A rejected call without a success right after is not certified, and its diagnostic is a failure."""
    found = call_recovery(trace_of(*rows))
    assert found.recovered == frozenset()
    assert [(told.severity, told.calls) for told in found.diagnostics] == [("failure", calls_told)]


def test_two_rejections_in_a_row_recover_only_the_second() -> None:
    """The first rejected call's next call failed too."""
    found = call_recovery(trace_of(row("ticket_read", 4), row("ticket_read", 4), READ))
    assert found.recovered == {1}
    assert [told.severity for told in found.diagnostics] == ["failure", "warning"]


def test_only_the_fixtures_own_faults_are_admitted() -> None:
    """A row's fault must be one of the fixture's, and a call that was never sent is not admitted by it."""
    allowed = injected({"simulation": {"faults": [{"id": "f", "kind": "refused", "tool": "x"}]}})
    mine, other, none, unsent = trace_of(
        row("x", 1, fault="f"), row("x", 1, fault="g"), row("x", 1), row("x", 4, fault="f")
    )
    assert [allowed(each) for each in (mine, other, none, unsent)] == [True, False, False, False]
    assert not injected({})(mine)
    assert not injected({"simulation": {"faults": 3}})(mine)


def verdicts(*rows: dict[str, Any], recovered: tuple[int, ...] = ()) -> dict[str, bool]:
    trace = trace_of(*rows)
    allowed = injected({"simulation": {"faults": [{"id": "f"}]}})
    surface = ("ticket_read", "ticket_comment")
    checks = common_checks(trace, surface=surface, allowed_error=allowed, recovered=recovered)
    assert all(check.reason for check in checks)
    return {check.id: check.met for check in checks}


@pytest.mark.parametrize(
    ("rows", "recovered", "unmet"),
    [
        ((READ, COMMENT), (), set()),
        ((LIST, SCHEMA, READ), (), set()),
        ((READ, row("ticket_comment", 1, fault="f")), (), set()),
        ((row("ticket_read", 4), READ), (0,), set()),
        ((), (), {"calls-observed", "results-observed"}),
        ((LIST,), (), {"calls-observed", "results-observed"}),
        ((READ, row("ticket_comment", result=None)), (), {"results-observed"}),
        ((READ, row("ticket_update")), (), {"call-surface"}),
        ((READ, row("ticket_update", mode="schema")), (), {"call-surface"}),
        ((READ, row("ticket_comment", 1)), (), {"errors-allowed"}),
        ((READ, row("ticket_comment", 5, fault="g")), (), {"errors-allowed"}),
        ((row("ticket_read", 4), READ), (), {"errors-allowed"}),
        ((row("gone", 4), READ), (0,), {"call-surface"}),
    ],
)
def test_the_common_checks(rows: tuple[dict[str, Any], ...], recovered: tuple[int, ...], unmet: set[str]) -> None:
    """Calls and results are observed, the surface is kept, and no error stands but an injected one and a certified recovery."""
    found = verdicts(*rows, recovered=recovered)
    assert set(found) == {"calls-observed", "results-observed", "call-surface", "errors-allowed"}
    assert {name for name, met in found.items() if not met} == unmet


@pytest.mark.parametrize(
    "change",
    [
        {"index": 1},
        {"index": "0"},
        {"mode": "steal"},
        {"tool": 7},
        {"writes": 1},
        {"args": []},
        {"exit_status": 2},
        {"exit_status": "0"},
        {"exit_status": True},
        {"status": "200"},
        {"applied": None},
        {"fault": 1},
    ],
)
def test_what_is_no_row_is_an_error(change: dict[str, Any]) -> None:
    """A row that the simulator would not write raises, and so does an attempt without a trace; the unchanged row is taken."""
    (good,) = numbered(READ)
    assert calls({"tool_trace": [good]})[0].tool == "ticket_read"
    with pytest.raises(ValueError, match="/tool_trace/0"):
        calls({"tool_trace": [good | change]})
    for lacking in ("index", "result", "args", "applied"):
        with pytest.raises(ValueError, match="/tool_trace/0"):
            calls({"tool_trace": [{key: value for key, value in good.items() if key != lacking}]})


@pytest.mark.parametrize("context", [{}, {"tool_trace": None}, {"tool_trace": {}}, {"tool_trace": ""}])
def test_without_a_trace_there_is_nothing_to_judge(context: dict[str, Any]) -> None:
    """No trace is an error, never an unmet check."""
    with pytest.raises(ValueError, match="no tool trace"):
        calls(context)
