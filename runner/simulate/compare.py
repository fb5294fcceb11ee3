"""Comparing what came through two doors: output by output, trace by trace (B14).

Boundary: pure. Not here: how a trace is made (machine.py).
Rules: exactly two things are taken out before two outputs are compared: JSON is compared by value, and the contract root's path becomes ``<contract-root>``. Text, ids, order, exit statuses and failure
classes stay exact. The raw output is kept beside what is compared, so that a difference can be looked at.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from runner.canonical import canonical_json
from runner.simulate.contract import Contract
from runner.simulate.machine import Call, begin, step
from runner.simulate.state import State
from runner.simulate.trace import Row, Turned, trace_part
from runner.strict_json import parse_strict

ROOT_MARK = "<contract-root>"
MAX_OUTPUT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Output:
    """What a call printed, and under which contract root."""

    raw: str
    root: str

    @property
    def compared(self) -> bytes:
        """The output with the two things taken out: canonical JSON where it is JSON, else its text."""
        text = self.raw.encode("utf-8", "surrogatepass")
        with contextlib.suppress(ValueError):
            text = canonical_json(parse_strict(text, max_bytes=MAX_OUTPUT_BYTES, max_depth=32))
        return without_root(text, self.root)


def same_output(one: Output, other: Output) -> bool:
    """Whether two outputs are equal but for JSON's layout and the contract root."""
    return one.compared == other.compared


def same_trace(one: Sequence[Row], one_root: str, other: Sequence[Row], other_root: str) -> bool:
    """Whether two traces tell of the same calls, by whichever door and below whichever contract root."""
    return [_bare(row, one_root) for row in one] == [_bare(row, other_root) for row in other]


def recomputed(contract: Contract, rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the trace that the same calls in the same order give: the machine is pure, so a kept trace can be checked by anyone who has its contract."""
    return _rerun(contract, rows)[0]


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
    made, state = _rerun(contract, rows)
    return trace_part(contract, made, state, turned)


def _rerun(contract: Contract, rows: Sequence[Row]) -> tuple[tuple[Row, ...], State]:
    running, made = begin(contract), []
    for row in rows:
        args = "{}" if row.args_text is None else row.args_text
        if row.args is not None:
            args = canonical_json(row.args).decode()
        done = step(contract, running, Call(row.door, row.mode, row.tool, args, row.tool_use_id))
        running = done.running
        made.append(done.row)
    return tuple(made), running.service


def without_root(text: bytes, root: str) -> bytes:
    """Return the text with each whole path of the contract root replaced by its mark; a longer name that begins alike stays."""
    return re.sub(re.escape(root.encode()) + rb"(?![A-Za-z0-9._-])", ROOT_MARK.encode(), text)


def _bare(row: Row, root: str) -> bytes:
    return without_root(canonical_json(row.model_dump(mode="json", exclude={"door", "tool_use_id"})), root)
