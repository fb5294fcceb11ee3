"""Reading a call trace: what the worker did, as the simulator kept it (B13).

Boundary: pure, standard library only. Not here: making the trace (runner/simulate), what one kind of case allows (the profile).
Rules: a row is evidence, prose is not. A row that is not what the simulator writes is a ValueError, never an unmet check. Indices are those of the whole trace, zero-based, so that a
diagnostic's ``calls`` can be looked up in the attempt. A recovery absorbs a call that was rejected before it was sent and nothing else: no refusal, no uncertain write, no call outside
the surface.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from profiles._types import Check, Context, Diagnostic, FixtureJson

EXITS = (0, 1, 4, 5)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the trace."""

    index: int
    mode: str
    """``call``, ``schema`` or ``list``."""
    tool: str | None
    """The wire name."""
    writes: bool
    args: Mapping[str, object]
    """Empty where the arguments were unusable."""
    result: object
    exit_status: int
    status: int | None
    applied: bool
    """Whether the service's state changed, whatever the worker was told."""
    fault: str | None
    """The injected fault that happened to it."""


Trace = Sequence[Row]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What ``call_recovery`` certifies."""

    recovered: frozenset[int]
    """Indices of rejected calls that the next call made good."""
    diagnostics: tuple[Diagnostic, ...]


def calls(context: Context) -> tuple[Row, ...]:
    """Return the rows of ``context["tool_trace"]``.

    Raises: ValueError if there is no trace or a row is not one.
    """
    match context.get("tool_trace"):
        case list() | tuple() as given:
            return tuple(_row(row, index) for index, row in enumerate(given))
        case _:
            raise ValueError("the attempt has no tool trace")


def tool_calls(trace: Trace, tool: str | None = None) -> tuple[Row, ...]:
    """Return the calls (not schema, not list), all or those of one tool."""
    return tuple(row for row in trace if row.mode == "call" and tool in (None, row.tool))


def writes(trace: Trace) -> tuple[Row, ...]:
    """Return the calls of tools that write, whatever became of them."""
    return tuple(row for row in tool_calls(trace) if row.writes)


def argument(row: Row, name: str) -> object:
    """Return one argument, or None."""
    return row.args.get(name)


def names(row: Row, ticket: str) -> bool:
    """Whether a call names a ticket."""
    return argument(row, "ticket") == ticket


def payload(row: Row) -> Mapping[str, object] | None:
    """Return the structured result of a call that was answered well, else None."""
    return row.result if row.exit_status == 0 and isinstance(row.result, Mapping) else None


def refused(row: Row) -> bool:
    """Whether the tool said no (exit 1)."""
    return row.exit_status == 1


def rejected(row: Row) -> bool:
    """Whether the call was rejected before it was sent (exit 4)."""
    return row.exit_status == 4


def uncertain(row: Row) -> bool:
    """Whether the response was lost (exit 5, status 0): the call may have been carried out."""
    return row.exit_status == 5 and row.status == 0


def read_after(trace: Trace, write: Row) -> Row | None:
    """Return the read-back of a write: the first good reading call after it that names the same ticket (or path), with no other write of it before. None if there is none."""
    key = next((name for name in ("ticket", "path") if argument(write, name) is not None), None)
    if key is None:
        return None
    for row in tool_calls(trace):
        if row.index <= write.index or argument(row, key) != argument(write, key):
            continue
        if row.writes and not rejected(row):
            return None
        if not row.writes and payload(row) is not None:
            return row
    return None


def call_recovery(trace: Trace) -> Recovery:
    """Certify each call that was rejected before it was sent when the very next call succeeds. Looking up a schema or the list between the two is part of a recovery."""
    made = tool_calls(trace)
    recovered, diagnostics = set(), []
    for place, row in enumerate(made):
        following = made[place + 1] if place + 1 < len(made) else None
        if not rejected(row):
            continue
        if following is not None and following.exit_status == 0:
            recovered.add(row.index)
            diagnostics.append(
                Diagnostic(
                    f"call-recovery-{row.index}",
                    "call-recovery",
                    "warning",
                    f"The call of {row.tool!r} was rejected before it was sent; the next call succeeded",
                    (row.index, following.index),
                )
            )
        else:
            diagnostics.append(
                Diagnostic(
                    f"call-recovery-{row.index}",
                    "call-recovery",
                    "failure",
                    f"The call of {row.tool!r} was rejected before it was sent, and the next call did not succeed",
                    (row.index,) if following is None else (row.index, following.index),
                )
            )
    return Recovery(frozenset(recovered), tuple(diagnostics))


def injected(fixture: FixtureJson) -> Callable[[Row], bool]:
    """Return the rule that admits exactly the errors that the fixture's ``simulation`` injects; a call that was never sent is not one of them: it has to be made good."""
    simulation = fixture.get("simulation")
    faults = simulation.get("faults", ()) if isinstance(simulation, Mapping) else ()
    known = (
        {fault.get("id") for fault in faults if isinstance(fault, Mapping)}
        if isinstance(faults, list | tuple)
        else set()
    )
    return lambda row: row.fault is not None and row.fault in known and not rejected(row)


def common_checks(
    trace: Trace,
    *,
    surface: Collection[str],
    allowed_error: Callable[[Row], bool],
    recovered: Collection[int],
) -> list[Check]:
    """Return the checks that every tool-call profile shares.

    ``surface`` names the tools that may be called; ``allowed_error`` admits the fixture's injected error and nothing else; ``recovered`` are certified recoveries.
    """
    made = tool_calls(trace)
    unseen = [row.index for row in made if row.result is None]
    strange = [row for row in trace if row.tool is not None and row.tool not in surface]
    errors = [row for row in trace if row.exit_status != 0 and not allowed_error(row) and row.index not in recovered]
    return [
        Check("calls-observed", bool(made), f"{len(made)} tool calls were observed; at least one is needed"),
        Check(
            "results-observed",
            bool(made) and not unseen,
            "Every call has a result" if not unseen else f"Calls without a result: {unseen}",
        ),
        Check(
            "call-surface",
            not strange,
            f"Only these tools may be called: {', '.join(sorted(surface))}"
            + (f"; call {strange[0].index} is of {strange[0].tool!r}" if strange else ""),
        ),
        Check(
            "errors-allowed",
            not errors,
            "No error but the injected one and certified recoveries"
            if not errors
            else f"Call {errors[0].index} of {errors[0].tool!r} ended with exit status {errors[0].exit_status}, which nothing allows",
        ),
    ]


def _row(row: object, index: int) -> Row:
    match row:
        case {
            "index": int(number),
            "mode": "call" | "schema" | "list" as mode,
            "tool": str() | None as tool,
            "writes": bool(writing),
            "args": Mapping() | None as args,
            "result": result,
            "exit_status": int(exit_status),
            "status": int() | None as status,
            "applied": bool(applied),
            "fault": str() | None as fault,
        } if number == index and exit_status in EXITS and not isinstance(exit_status, bool):
            return Row(
                index,
                mode,
                tool,
                writing,
                args if args is not None else {},
                result,
                exit_status,
                status,
                applied,
                fault,
            )
        case _:
            raise ValueError(f"/tool_trace/{index}: not a row of a trace")
