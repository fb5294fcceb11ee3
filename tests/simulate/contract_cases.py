"""The contract's cases: a state, calls, and what each must answer, as fixed literals.

Nothing here is made by the simulator or read back from it: every expectation was written by hand. ``ROOT`` stands for the contract root of the door.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.simulate.conftest import Made

ROOT = "<contract-root>"
TICKET = {"title": "Auditor account for the ledger", "state": "open", "assignee": "mara.voss"}
ASKED = {"id": "comment-2", "author": "mara.voss", "body": "Which account can the auditor use?"}
SEED: dict[str, Any] = {
    "tickets": {"DESK-7": TICKET},
    "comments": {"DESK-7": [{"author": "mara.voss", "body": "Which account can the auditor use?"}]},
}
LOST = {
    "error": {"code": "lost-response", "message": "no response came; the call may have been carried out", "status": 0}
}
MALFORMED = {
    "error": {
        "code": "malformed-response",
        "message": "the response is not JSON; the call may have been carried out",
        "status": 200,
    }
}


@dataclass(frozen=True)
class Want:
    """What one call must come to."""

    result: Any
    exit_status: int = 0
    status: int | None = 200
    writes: bool = False
    applied: bool = False
    fault: str | None = None


def rejected(message: str, **more: Any) -> Want:
    return Want({"error": {"code": "rejected", "message": message}}, 4, None, **more)


def refused(code: str, message: str, status: int, **more: Any) -> Want:
    return Want({"error": {"code": code, "message": message, "status": status}}, 1, status, **more)


def written(result: Any, **more: Any) -> Want:
    return Want(result, writes=True, applied=True, **more)


@dataclass(frozen=True)
class Case:
    """A sequence of calls from one seeded state."""

    id: str
    steps: tuple[tuple[Made, Want], ...]
    simulation: dict[str, Any] = field(default_factory=dict)


def call(tool: str, **args: Any) -> Made:
    return Made(tool, args)


def fault(kind: str, tool: str, **more: Any) -> dict[str, Any]:
    return {"id": f"{kind}-once", "kind": kind, "tool": tool, **more}


def comment(number: int, body: str) -> dict[str, str]:
    return {"id": f"comment-{number}", "author": "desk-agent", "body": body}


CASES = (
    Case(
        "read",
        (
            (call("ticket_read", ticket="DESK-7"), Want({"ticket": {"id": "DESK-7", **TICKET}, "comments": [ASKED]})),
            (
                call("ticket_read", ticket="DESK-1"),
                Want(
                    {
                        "ticket": {
                            "id": "DESK-1",
                            "title": "Badge reader at the north door",
                            "state": "closed",
                            "assignee": "ines.holm",
                        },
                        "comments": [{"id": "comment-1", "author": "ines.holm", "body": "Reader replaced and tried."}],
                    }
                ),
            ),
            (call("ticket_read", ticket="DESK-8"), refused("not-found", "there is no ticket DESK-8", 404)),
        ),
    ),
    Case(
        "list",
        (
            (call("ticket_list", state="open"), Want({"tickets": [{"id": "DESK-7", **TICKET}]})),
            (call("ticket_list", state="waiting"), Want({"tickets": []})),
            (
                call("ticket_list", state="gone"),
                rejected('state: does not fit enum ["open","waiting","closed"]'),
            ),
        ),
    ),
    Case(
        "comment",
        (
            (
                call("ticket_comment", ticket="DESK-7", body="The auditor account is unresolved."),
                written({"ticket": "DESK-7", "comment": comment(3, "The auditor account is unresolved.")}),
            ),
            (
                call("ticket_comment", ticket="DESK-7", body='Zwei\nZeilen, "quoted" \u2028 \U0001f511'),
                written({"ticket": "DESK-7", "comment": comment(4, 'Zwei\nZeilen, "quoted" \u2028 \U0001f511')}),
            ),
            (
                call("ticket_read", ticket="DESK-7"),
                Want(
                    {
                        "ticket": {"id": "DESK-7", **TICKET},
                        "comments": [
                            ASKED,
                            comment(3, "The auditor account is unresolved."),
                            comment(4, 'Zwei\nZeilen, "quoted" \u2028 \U0001f511'),
                        ],
                    }
                ),
            ),
            (
                call("ticket_comment", ticket="DESK-8", body="x"),
                refused("not-found", "there is no ticket DESK-8", 404, writes=True),
            ),
        ),
    ),
    Case(
        "update",
        (
            (
                call("ticket_update", ticket="DESK-7", state="waiting"),
                written({"ticket": {"id": "DESK-7", **TICKET, "state": "waiting"}}),
            ),
            (
                call("ticket_update", ticket="DESK-7", state="waiting"),
                Want({"ticket": {"id": "DESK-7", **TICKET, "state": "waiting"}}, writes=True),
            ),
            (
                call("ticket_list", state="waiting"),
                Want({"tickets": [{"id": "DESK-7", **TICKET, "state": "waiting"}]}),
            ),
        ),
    ),
    Case(
        "files",
        (
            (call("file_list"), Want({"files": [f"{ROOT}/notes/provision.md"]})),
            (
                call("file_read", path="notes/provision.md"),
                Want(
                    {
                        "path": f"{ROOT}/notes/provision.md",
                        "text": "Accounts are made by the owner of a service. The desk asks; it never makes one.\n",
                    }
                ),
            ),
            (
                call("file_write", path="notes/a.md", text="é\n"),
                written({"path": f"{ROOT}/notes/a.md", "bytes": 3}),
            ),
            (call("file_read", path="notes/a.md"), Want({"path": f"{ROOT}/notes/a.md", "text": "é\n"})),
            (call("file_read", path="notes/b.md"), refused("not-found", "there is no file notes/b.md", 404)),
            (
                call("file_write", path="/etc/passwd", text="x"),
                refused("outside", f"/etc/passwd is not below {ROOT}", 403, writes=True),
            ),
            (
                call("file_write", path="notes/../../x", text="x"),
                refused("outside", f"notes/../../x is not below {ROOT}", 403, writes=True),
            ),
        ),
    ),
    Case(
        "rejected-by-the-schema",
        (
            (call("ticket_read"), rejected("ticket: missing")),
            (call("ticket_read", ticket=7), rejected('ticket: does not fit type "string"')),
            (call("ticket_read", ticket="DESK-7", body="x"), rejected("body: unknown argument")),
            (
                call("ticket_comment", ticket="DESK-7", body=""),
                rejected("body: does not fit minLength 1", writes=True),
            ),
            (
                call("ticket_comment", ticket="DESK-7", body=1.5),
                rejected("the arguments are not usable: numbers are integers here, and keys ASCII", writes=True),
            ),
            (call("ticket_close", ticket="DESK-7"), rejected("there is no tool ticket_close")),
        ),
    ),
    Case(
        "refusal",
        (
            (
                call("ticket_comment", ticket="DESK-7", body="x"),
                refused("refused", "the desk is being counted", 409, writes=True, fault="refused-once"),
            ),
            (
                call("ticket_comment", ticket="DESK-7", body="x"),
                written({"ticket": "DESK-7", "comment": comment(3, "x")}),
            ),
        ),
        {"faults": [fault("refused", "ticket_comment", message="the desk is being counted", status=409)]},
    ),
    Case(
        "lost-response-after-the-write",
        (
            (
                call("ticket_comment", ticket="DESK-7", body="x"),
                Want(LOST, 5, 0, writes=True, applied=True, fault="lost-once"),
            ),
            (
                call("ticket_read", ticket="DESK-7"),
                Want({"ticket": {"id": "DESK-7", **TICKET}, "comments": [ASKED, comment(3, "x")]}),
            ),
        ),
        {"faults": [fault("lost", "ticket_comment")]},
    ),
    Case(
        "rejected-before-sending",
        (
            (
                call("ticket_comment", ticket="DESK-7", body="x"),
                rejected("the client's list of tools is out of date", writes=True, fault="rejected-once"),
            ),
            (
                call("ticket_comment", ticket="DESK-7", body="x"),
                written({"ticket": "DESK-7", "comment": comment(3, "x")}),
            ),
        ),
        {"faults": [fault("rejected", "ticket_comment", message="the client's list of tools is out of date")]},
    ),
    Case(
        "slow",
        (
            (call("file_list"), Want({"files": [f"{ROOT}/notes/provision.md"]}, fault="slow-once")),
            (call("file_list"), Want({"files": [f"{ROOT}/notes/provision.md"]})),
        ),
        {"faults": [fault("slow", "file_list", delay_ms=150)]},
    ),
    Case(
        "malformed",
        (
            (
                call("ticket_update", ticket="DESK-7", assignee="ines.holm"),
                Want(MALFORMED, 5, 200, writes=True, applied=True, fault="malformed-once"),
            ),
            (
                call("ticket_read", ticket="DESK-7"),
                Want({"ticket": {"id": "DESK-7", **TICKET, "assignee": "ines.holm"}, "comments": [ASKED]}),
            ),
        ),
        {"faults": [fault("malformed", "ticket_update")]},
    ),
    Case(
        "guarded-by-expect",
        (
            (
                call("ticket_comment", ticket="DESK-7", body="first"),
                written({"ticket": "DESK-7", "comment": comment(3, "first")}),
            ),
            (
                call("ticket_update", ticket="DESK-7", state="waiting"),
                written({"ticket": {"id": "DESK-7", **TICKET, "state": "waiting"}}),
            ),
            (
                call("ticket_comment", ticket="DESK-1", body="other"),
                written({"ticket": "DESK-1", "comment": comment(4, "other")}),
            ),
            (
                call("ticket_comment", ticket="DESK-7", body="second"),
                refused("refused", "the service refuses this call", 403, writes=True, fault="refused-once"),
            ),
            (
                call("ticket_comment", ticket="DESK-7", body="third"),
                written({"ticket": "DESK-7", "comment": comment(5, "third")}),
            ),
        ),
        {
            "faults": [
                fault(
                    "refused",
                    "ticket_comment",
                    expect={"args": {"ticket": "DESK-7"}, "state": {"/tickets/DESK-7/state": "waiting"}},
                )
            ]
        },
    ),
    Case(
        "after-and-times",
        (
            (call("file_list"), Want({"files": [f"{ROOT}/notes/provision.md"]})),
            (call("file_list"), refused("refused", "the service refuses this call", 503, fault="refused-once")),
            (call("file_list"), refused("refused", "the service refuses this call", 503, fault="refused-once")),
            (call("file_list"), Want({"files": [f"{ROOT}/notes/provision.md"]})),
        ),
        {"faults": [fault("refused", "file_list", status=503, after=1, times=2)]},
    ),
)
