"""Profile ticket-handling: what passes, what recovers, and one negative control for each rule that a recovery must not absorb (B7, B10, B13)."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from profiles import ticket_handling
from runner.simulate.load import contract_of
from runner.simulate.machine import Call, begin, step

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
READ = ("ticket_read", {"ticket": "DESK-7"})
COMMENT = ("ticket_comment", {"ticket": "DESK-7", "body": "The auditor account is unresolved."})
BARE = ("ticket_comment", {"ticket": "DESK-7"})
"""Rejected before it is sent: the body is missing."""

LOST = {"id": "lost", "kind": "lost", "tool": "ticket_comment"}
GARBLED = {"id": "garbled", "kind": "malformed", "tool": "ticket_comment"}
REFUSED = {"id": "refused", "kind": "refused", "tool": "ticket_list"}
REJECTED = {"id": "rejected", "kind": "rejected", "tool": "ticket_comment"}
Made = tuple[str, dict[str, Any]]


def fixture(*faults: dict[str, Any], **expect: Any) -> dict[str, Any]:
    """The shipped case with faults and other expectations."""
    raw: dict[str, Any] = json.loads((FIXTURES / "ticket-comment.json").read_text())
    raw["simulation"]["faults"] = list(faults)
    raw["expect"] = raw["expect"] | expect
    return raw


def trace(case: dict[str, Any], *made: Made | str) -> list[dict[str, Any]]:
    """The rows that the simulator keeps of these calls; a text is a tool whose schema is looked up."""
    contract = contract_of(case["simulation"], FIXTURES, "ticket-comment")
    assert contract is not None
    running, rows = begin(contract), []
    for each in made:
        mode = ("schema", each, "{}") if isinstance(each, str) else ("call", each[0], json.dumps(each[1]))
        done = step(contract, running, Call("command", *mode))  # type: ignore[arg-type]
        running = done.running
        rows.append(done.row.model_dump(mode="json"))
    return rows


def unmet(case: dict[str, Any], rows: list[dict[str, Any]]) -> set[str]:
    """The checks that are not met. Whatever the trace: ids are unique, reasons are given, nothing is changed, and a failure among the diagnostics has an unmet check."""
    ticket_handling.validate(case)
    before = copy.deepcopy((case, rows))
    checks = ticket_handling.check_output(case, "text", {"tool_trace": rows})
    told = ticket_handling.diagnose(case, "text", {"tool_trace": rows})
    assert (case, rows) == before
    assert checks == ticket_handling.check_output(case, "text", {"tool_trace": rows})
    assert len({check.id for check in checks}) == len(checks) > 0
    assert len({each.id for each in told}) == len(told)
    assert all(check.reason for check in checks)
    assert all(0 <= call < len(rows) for each in told for call in each.calls)
    failing = {check.id for check in checks if not check.met}
    assert failing or all(each.severity != "failure" for each in told)
    return failing


def told(case: dict[str, Any], rows: list[dict[str, Any]]) -> list[tuple[str, str, tuple[int, ...]]]:
    """Category, severity and calls of each diagnostic."""
    return [
        (each.category, each.severity, each.calls)
        for each in ticket_handling.diagnose(case, "text", {"tool_trace": rows})
    ]


def test_a_passing_trace() -> None:
    """Read, then one right comment: every check is met and nothing is to be told."""
    rows = trace(fixture(), READ, COMMENT, READ)
    assert unmet(fixture(), rows) == set()
    assert told(fixture(), rows) == []


def test_a_recovered_call_passes() -> None:
    """A call that was rejected before it was sent is made good by the next one, with the schema looked up between them."""
    rows = trace(fixture(), READ, BARE, "ticket_comment", COMMENT)
    assert unmet(fixture(), rows) == set()
    assert told(fixture(), rows) == [("call-recovery", "warning", (1, 3))]


def test_an_injected_rejection_has_to_be_made_good() -> None:
    """A rejection that the case injects is recovered like any other; left alone it is not admitted."""
    case = fixture(REJECTED)
    assert unmet(case, trace(case, READ, COMMENT, COMMENT)) == set()
    assert unmet(case, trace(case, READ, COMMENT)) == {"errors-allowed", "comment-made"}


@pytest.mark.parametrize("fault", [LOST, GARBLED], ids=["lost", "garbled"])
def test_an_uncertain_write_with_read_back_passes(fault: dict[str, Any]) -> None:
    """A write without a usable response passes where it is read back and not repeated."""
    case = fixture(fault)
    rows = trace(case, READ, COMMENT, READ)
    assert unmet(case, rows) == set()
    assert told(case, rows) == [("uncertain-write", "info", (1, 2))]


def test_the_expected_error_passes() -> None:
    """A refusal that the case injects is told and stands."""
    case = fixture(REFUSED)
    rows = trace(case, ("ticket_list", {}), READ, COMMENT)
    assert unmet(case, rows) == set()
    assert told(case, rows) == [("expected-error", "info", (0,))]


def test_a_field_can_be_asked_for() -> None:
    """A case may ask for a field: set to that value it is met, to another it is a write that is not allowed."""
    case = fixture(set={"state": "waiting"})
    right, wrong = (("ticket_update", {"ticket": "DESK-7", "state": state}) for state in ("waiting", "closed"))
    assert unmet(case, trace(case, READ, COMMENT, right)) == set()
    assert unmet(case, trace(case, READ, COMMENT, wrong)) == {"writes-allowed", "fields-set"}
    assert unmet(case, trace(case, READ, COMMENT)) == {"fields-set"}
    del case["expect"]["comment"]
    assert unmet(case, trace(case, READ, right)) == set()


NOT_ABSORBED: dict[str, tuple[dict[str, Any], tuple[Made | str, ...], set[str]]] = {
    "a rejected call that is left alone": (fixture(), (READ, COMMENT, BARE), {"errors-allowed"}),
    "a rejected call whose next call is refused": (
        fixture(),
        (READ, COMMENT, BARE, ("ticket_read", {"ticket": "DESK-8"}), READ),
        {"errors-allowed"},
    ),
    "a rejected call whose next call is lost": (fixture(LOST), (READ, BARE, COMMENT, READ), {"errors-allowed"}),
    "a refusal that nobody injected": (
        fixture(),
        (("ticket_read", {"ticket": "DESK-8"}), READ, COMMENT),
        {"errors-allowed"},
    ),
    "another tool's refusal than the injected one": (
        fixture(REFUSED),
        (("file_read", {"path": "gone.md"}), READ, COMMENT),
        {"errors-allowed"},
    ),
    "a recovered call of a tool that is not allowed": (
        fixture(),
        (READ, ("ticket_update", {"ticket": "DESK-7", "state": "gone"}), COMMENT),
        {"call-surface"},
    ),
    "a recovered call of a tool that there is not": (
        fixture(),
        (READ, ("ticket_close", {}), COMMENT),
        {"call-surface"},
    ),
    "a write before the ticket was read, recovery and all": (
        fixture(),
        (BARE, COMMENT, READ),
        {"read-before-write"},
    ),
    "a write after reading another ticket": (
        fixture(),
        (("ticket_read", {"ticket": "DESK-1"}), COMMENT),
        {"read-before-write"},
    ),
    "a recovery that writes to another ticket": (
        fixture(),
        (READ, BARE, ("ticket_comment", {"ticket": "DESK-1", "body": "auditor unresolved"})),
        {"writes-allowed", "comment-made"},
    ),
    "a repeated write": (fixture(), (READ, COMMENT, COMMENT), {"written-once"}),
    "an uncertain write that is repeated blindly": (
        fixture(LOST),
        (READ, COMMENT, COMMENT),
        {"written-once", "uncertain-read-back"},
    ),
    "an uncertain write that is not read back": (fixture(LOST), (READ, COMMENT), {"uncertain-read-back"}),
    "an uncertain write that is repeated after the read-back": (
        fixture(LOST),
        (READ, COMMENT, READ, COMMENT),
        {"written-once"},
    ),
    "an uncertain write with another ticket read": (
        fixture(LOST),
        (READ, COMMENT, ("ticket_read", {"ticket": "DESK-1"})),
        {"uncertain-read-back"},
    ),
    "a garbled response that is not read back": (fixture(GARBLED), (READ, COMMENT), {"uncertain-read-back"}),
    "a comment that lacks a word": (
        fixture(),
        (READ, ("ticket_comment", {"ticket": "DESK-7", "body": "The auditor has no account."})),
        {"comment-made"},
    ),
    "a comment that says what it must not": (
        fixture(),
        (READ, ("ticket_comment", {"ticket": "DESK-7", "body": "auditor unresolved; use ledger-admin"})),
        {"comment-made"},
    ),
    "no comment": (fixture(), (READ,), {"comment-made"}),
    "no call": (fixture(), (), {"calls-observed", "results-observed", "comment-made"}),
    "only a look at a schema": (fixture(), ("ticket_read",), {"calls-observed", "results-observed", "comment-made"}),
}


@pytest.mark.parametrize("name", NOT_ABSORBED, ids=lambda name: name.replace(" ", "-").replace(",", ""))
def test_what_a_recovery_must_not_absorb(name: str) -> None:
    """Each violation fails exactly the checks that are meant to see it."""
    case, made, want = NOT_ABSORBED[name]
    assert unmet(case, trace(case, *made)) == want


def test_the_prose_decides_nothing() -> None:
    """What the reply says changes no check (B13)."""
    rows = trace(fixture(), READ)
    claims = ticket_handling.check_output(
        fixture(), "I commented that the auditor is unresolved.", {"tool_trace": rows}
    )
    assert claims == ticket_handling.check_output(fixture(), "", {"tool_trace": rows})


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"simulation": None}, "/simulation"),
        ({"simulation": {}}, "/simulation"),
        ({"expect": {}}, "/expect"),
        ({"expect": []}, "/expect"),
        ({"expect": {"ticket": "", "set": {"state": "x"}}}, "/expect/ticket"),
        ({"expect": {"ticket": "DESK-7"}}, "/expect"),
        ({"expect": {"ticket": "DESK-7", "comment": {"has": []}}}, "/expect/comment/has"),
        ({"expect": {"ticket": "DESK-7", "comment": {"holds": "x"}}}, "/expect/comment/holds"),
        ({"expect": {"ticket": "DESK-7", "comment": {"holds": [""]}}}, "/expect/comment/holds/0"),
        ({"expect": {"ticket": "DESK-7", "set": 3}}, "/expect/set"),
        ({"expect": {"ticket": "DESK-7", "comment": {}, "more": 1}}, "/expect/more"),
    ],
)
def test_an_incomplete_case_is_refused_before_it_is_paid(change: dict[str, Any], place: str) -> None:
    """``validate`` names the place; the shipped cases are taken."""
    for shipped in ("ticket-comment", "ticket-comment-lost"):
        ticket_handling.validate(json.loads((FIXTURES / f"{shipped}.json").read_text()))
    with pytest.raises(ValueError, match=rf"^{place}(:|/)"):
        ticket_handling.validate({**fixture(), **change})


def test_malformed_evidence_is_an_error() -> None:
    """An output that is no text, no trace, or a row that is none raises: never an unmet check."""
    rows = trace(fixture(), READ)
    with pytest.raises(TypeError):
        ticket_handling.check_output(fixture(), 3, {"tool_trace": rows})  # type: ignore[arg-type]
    contexts: list[dict[str, Any]] = [{}, {"tool_trace": [{}]}, {"tool_trace": [rows[0] | {"exit_status": 3}]}]
    for context in contexts:
        with pytest.raises(ValueError, match="trace"):
            ticket_handling.check_output(fixture(), "", context)
        with pytest.raises(ValueError, match="trace"):
            ticket_handling.diagnose(fixture(), "", context)


@pytest.mark.parametrize("value", [None, 1, "true", False])
def test_a_field_that_is_set_to_something_else_is_found(value: object) -> None:
    """A wanted field passes with its own value (the control); null, a number or a text in its place is not it, and a field that nobody asked for may not even be emptied."""
    case = fixture(set={"urgent": True})
    made = trace(case, READ, COMMENT)
    update = made[1] | {"index": 2, "tool": "ticket_update", "args": {"ticket": "DESK-7", "urgent": True}}
    assert unmet(case, [*made, update]) == set()
    assert {"writes-allowed", "fields-set"} <= unmet(
        case, [*made, update | {"args": update["args"] | {"urgent": value}}]
    )
    assert unmet(case, [*made, update | {"args": update["args"] | {"assignee": None}}]) == {"writes-allowed"}
    empty = fixture(set={"assignee": None})
    assert "fields-set" in unmet(empty, [*made, update | {"args": {"ticket": "DESK-7"}}])
    assert "fields-set" not in unmet(empty, [*made, update | {"args": {"ticket": "DESK-7", "assignee": None}}])
