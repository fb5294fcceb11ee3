"""The trace that recorded calls give when they are carried out again (B14).

Boundary: pure. Not here: how a call is carried out (machine.py), the part of the attempt (trace.py), comparing two doors (tests/simulate).
Rules: the machine is pure, so a kept trace can be checked by anyone who has its contract.
"""

from __future__ import annotations

from collections.abc import Sequence

from runner.canonical import canonical_json
from runner.simulate.contract import Contract
from runner.simulate.machine import Call, begin, step
from runner.simulate.state import State
from runner.simulate.trace import Row, Turned, trace_part
from runner.strict_json import parse_strict


def recomputed(contract: Contract, rows: Sequence[Row]) -> tuple[tuple[Row, ...], State]:
    """Return the rows that the same calls in the same order give, and the service's state after them."""
    running, made = begin(contract), []
    for row in rows:
        args = "{}" if row.args_text is None else row.args_text
        if row.args is not None:
            args = canonical_json(row.args).decode()
        done = step(contract, running, Call(row.door, row.mode, row.tool, args, row.tool_use_id))
        running = done.running
        made.append(done.row)
    return tuple(made), running.service


def recomputed_part(contract: Contract, stored: bytes) -> bytes:
    """Return the part ``trace.json`` that the stored one's calls give: tools, rows and the state in the end. Requests that were no call are taken as they are told.

    Raises: ValueError where it is no such part.
    """
    document = parse_strict(stored, max_bytes=len(stored), max_depth=64)
    held = document.get("rows") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(held, list):
        raise ValueError("it holds no rows")  # noqa: TRY004 - one kind of error for a part
    rows = tuple(Row.model_validate_json(canonical_json(row)) for row in held)
    turned = Turned.model_validate_json(canonical_json(document.get("other_requests")))
    made, state = recomputed(contract, rows)
    return trace_part(contract, made, state, turned)
