"""The simulated service: tickets, comments and files, and what each operation does to them.

Boundary: pure. Not here: whether a call gets this far, and what becomes of its answer (machine.py).
Rules: an operation returns a new state and never changes the one it was given; ids are counted, so that the same calls in the same order give the same state. An
operation that says no changes nothing. ``PERFORM`` is the table: a new operation needs its row there, in ``contract.NEEDS`` and, if it writes, in ``contract.WRITES``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from runner.simulate.contract import Contract

Json = Any
"""A JSON value of the canonical subset."""

_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}(?:/[A-Za-z0-9_][A-Za-z0-9._-]{0,63}){0,7}")


@dataclass(frozen=True, slots=True)
class State:
    """What the service holds."""

    tickets: Mapping[str, Mapping[str, Json]]
    comments: Mapping[str, tuple[Mapping[str, Json], ...]]
    files: Mapping[str, str]
    next_comment: int

    def document(self) -> dict[str, Json]:
        """Return the state as one JSON value: tickets and comments by ticket, files by path."""
        return {
            "tickets": {key: dict(fields) for key, fields in self.tickets.items()},
            "comments": {key: [dict(comment) for comment in held] for key, held in self.comments.items()},
            "files": dict(self.files),
        }


@dataclass(frozen=True, slots=True)
class No:
    """The service's refusal."""

    status: int
    code: str
    message: str


Done = tuple[State, Json]
Performed = Done | No


def first_state(contract: Contract) -> State:
    """Return the seeded state. Comments are numbered in the order of their tickets' keys."""
    number = 0
    comments: dict[str, tuple[Mapping[str, Json], ...]] = {}
    for ticket in sorted(contract.state.comments):
        held = []
        for comment in contract.state.comments[ticket]:
            number += 1
            held.append({"id": comment_id(number), "author": comment.author, "body": comment.body})
        comments[ticket] = tuple(held)
    return State(
        tickets=dict(contract.state.tickets),
        comments=comments,
        files=dict(contract.state.files),
        next_comment=number + 1,
    )


def comment_id(number: int) -> str:
    """Return the id of the n-th comment of a run, counted from 1."""
    return f"comment-{number}"


def perform(contract: Contract, state: State, operation: str, args: Mapping[str, Json]) -> Performed:
    """Carry out one operation with arguments that fit its tool's schema."""
    return PERFORM[operation](contract, state, args)


def _ticket_list(_contract: Contract, state: State, args: Mapping[str, Json]) -> Performed:
    """Every ticket whose fields equal the given arguments."""
    found = [
        {"id": key, **fields}
        for key, fields in sorted(state.tickets.items())
        if all(fields.get(name) == value for name, value in args.items())
    ]
    return state, {"tickets": found}


def _ticket_read(_contract: Contract, state: State, args: Mapping[str, Json]) -> Performed:
    ticket = args["ticket"]
    if ticket not in state.tickets:
        return _no_ticket(ticket)
    comments = [dict(comment) for comment in state.comments.get(ticket, ())]
    return state, {"ticket": {"id": ticket, **state.tickets[ticket]}, "comments": comments}


def _ticket_comment(contract: Contract, state: State, args: Mapping[str, Json]) -> Performed:
    ticket = args["ticket"]
    if ticket not in state.tickets:
        return _no_ticket(ticket)
    comment = {"id": comment_id(state.next_comment), "author": contract.author, "body": args["body"]}
    comments = {**state.comments, ticket: (*state.comments.get(ticket, ()), comment)}
    return replace(state, comments=comments, next_comment=state.next_comment + 1), {
        "ticket": ticket,
        "comment": comment,
    }


def _ticket_update(_contract: Contract, state: State, args: Mapping[str, Json]) -> Performed:
    """Set the given fields."""
    ticket = args["ticket"]
    if ticket not in state.tickets:
        return _no_ticket(ticket)
    fields = {**state.tickets[ticket], **{name: value for name, value in args.items() if name != "ticket"}}
    return replace(state, tickets={**state.tickets, ticket: fields}), {"ticket": {"id": ticket, **fields}}


def _file_list(contract: Contract, state: State, _args: Mapping[str, Json]) -> Performed:
    return state, {"files": [f"{contract.root}/{path}" for path in sorted(state.files)]}


def _file_read(contract: Contract, state: State, args: Mapping[str, Json]) -> Performed:
    path = _below(contract, args["path"])
    if path is None or path not in state.files:
        return No(404, "not-found", f"there is no file {args['path'][:200]}")
    return state, {"path": f"{contract.root}/{path}", "text": state.files[path]}


def _file_write(contract: Contract, state: State, args: Mapping[str, Json]) -> Performed:
    path = _below(contract, args["path"])
    if path is None:
        return No(403, "outside", f"{args['path'][:200]} is not below {contract.root}")
    files = {**state.files, path: args["text"]}
    return replace(state, files=files), {"path": f"{contract.root}/{path}", "bytes": len(args["text"].encode())}


def _below(contract: Contract, path: str) -> str | None:
    """Return a path relative to the contract root; None for one that is not plainly below it."""
    relative = path.removeprefix(f"{contract.root}/")
    return relative if _PATH.fullmatch(relative) else None


def _no_ticket(ticket: str) -> No:
    return No(404, "not-found", f"there is no ticket {ticket[:200]}")


PERFORM: dict[str, Callable[[Contract, State, Mapping[str, Json]], Performed]] = {
    "ticket-list": _ticket_list,
    "ticket-read": _ticket_read,
    "ticket-comment": _ticket_comment,
    "ticket-update": _ticket_update,
    "file-list": _file_list,
    "file-read": _file_read,
    "file-write": _file_write,
}
