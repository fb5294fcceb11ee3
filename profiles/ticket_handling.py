"""Profile ``ticket-handling``: one ticket is worked on a simulated desk, and the trace shows how (B6, B7, B13).

Boundary: pure. Not here: what the reply says of it (the rubric), reading rows (_trace.py).
Rules: the trace decides, never the prose. The profile owns the barrier (read before you write), the writes that are allowed, and which injected errors may stand; everything else comes from
the fixture's ``expect``. A diagnostic of severity failure always goes with a check that is not met (B10).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from profiles._reading import same
from profiles._trace import (
    Row,
    Trace,
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
    writes,
)
from profiles._types import Check, Context, Diagnostic, FixtureJson

READING = ("ticket_list", "ticket_read", "file_list", "file_read")
READ, COMMENT, UPDATE = "ticket_read", "ticket_comment", "ticket_update"


@dataclass(frozen=True, slots=True)
class _Case:
    ticket: str
    holds: tuple[str, ...]
    leaves_out: tuple[str, ...]
    comments: bool
    sets: Mapping[str, object]

    @property
    def surface(self) -> frozenset[str]:
        """The tools that may be called."""
        return frozenset((*READING, *((COMMENT,) if self.comments else ()), *((UPDATE,) if self.sets else ())))


def validate(fixture: FixtureJson) -> None:
    """Refuse a case without a simulation, or that does not say which ticket and what is to be written.

    ``expect.ticket`` is the ticket; ``expect.comment`` (``holds``, ``leaves_out``: words of the comment that is to be made) and ``expect.set`` (fields and values)
    say what is to be written, at least one of them.
    Raises: ValueError with the JSON pointer.
    """
    simulation = fixture.get("simulation")
    if not isinstance(simulation, Mapping) or not simulation.get("contract"):
        raise ValueError(
            "/simulation: the profile 'ticket-handling' reads a tool trace, so the case needs a simulation"
        )
    _case(fixture)


def check_output(fixture: FixtureJson, output: str, context: Context) -> list[Check]:
    """Check what the worker did, by the trace.

    Raises: ValueError for a fixture that ``validate`` refuses, and without a trace; TypeError if the output is no text.
    """
    if not isinstance(output, str):
        raise TypeError(f"the output is {type(output).__name__}, not text")
    return _analyze(fixture, context)[0]


def diagnose(fixture: FixtureJson, output: str, context: Context) -> list[Diagnostic]:
    """Tell recoveries, uncertain writes and expected errors.

    Raises: as ``check_output``.
    """
    return _analyze(fixture, context)[1]


def _analyze(fixture: FixtureJson, context: Context) -> tuple[list[Check], list[Diagnostic]]:
    case = _case(fixture)
    trace = calls(context)
    recovery = call_recovery(trace)
    allowed = injected(fixture)
    unsure = tuple(row for row in writes(trace) if row.exit_status == 5)
    checks = [
        *common_checks(trace, surface=case.surface, allowed_error=allowed, recovered=recovery.recovered),
        _read_first(case, trace),
        _writes_allowed(case, trace),
        *([_comment_made(case, trace)] if case.comments else []),
        *([_fields_set(case, trace)] if case.sets else []),
        _written_once(trace),
        _read_back(trace, unsure),
    ]
    diagnostics = [
        *recovery.diagnostics,
        *(_uncertain(trace, row) for row in unsure),
        *(_expected(row) for row in tool_calls(trace) if refused(row) and allowed(row)),
    ]
    return checks, diagnostics


def _read_first(case: _Case, trace: Trace) -> Check:
    sent = [row for row in writes(trace) if not rejected(row)]
    read = [row for row in tool_calls(trace, READ) if names(row, case.ticket) and payload(row) is not None]
    met = not sent or (bool(read) and read[0].index < sent[0].index)
    return Check("read-before-write", met, f"The ticket {case.ticket} must be read before anything is written")


def _writes_allowed(case: _Case, trace: Trace) -> Check:
    for row in writes(trace):
        if rejected(row):
            continue
        fields = {name: value for name, value in row.args.items() if name != "ticket"}
        fits = names(row, case.ticket) and (
            (row.tool == COMMENT and case.comments)
            or (
                row.tool == UPDATE
                and all(name in case.sets and same(case.sets[name], value) for name, value in fields.items())
            )
        )
        if not fits:
            return Check(
                "writes-allowed", False, f"Call {row.index} of {row.tool!r} writes what this case does not allow"
            )
    return Check("writes-allowed", True, f"Nothing but the allowed writes to {case.ticket}")


def _comment_made(case: _Case, trace: Trace) -> Check:
    made = [row for row in tool_calls(trace, COMMENT) if names(row, case.ticket) and row.applied]
    right = [row for row in made if _fits(case, str(argument(row, "body")))]
    wanted = f"hold {', '.join(map(repr, case.holds)) or 'something'}"
    if case.leaves_out:
        wanted += f" and leave out {', '.join(map(repr, case.leaves_out))}"
    return Check("comment-made", bool(made) and len(right) == len(made), f"The comment on {case.ticket} must {wanted}")


def _fits(case: _Case, body: str) -> bool:
    text = body.casefold()
    return all(word.casefold() in text for word in case.holds) and not any(
        word.casefold() in text for word in case.leaves_out
    )


def _fields_set(case: _Case, trace: Trace) -> Check:
    held: dict[str, object] = {}
    for row in tool_calls(trace, UPDATE):
        if names(row, case.ticket) and (row.applied or payload(row) is not None):
            held |= row.args
    met = all(name in held and same(held[name], value) for name, value in case.sets.items())
    wanted = ", ".join(f"{name} to {value!r}" for name, value in case.sets.items())
    return Check("fields-set", met, f"The ticket's fields must be set: {wanted}")


def _written_once(trace: Trace) -> Check:
    applied = [row for row in tool_calls(trace, COMMENT) if row.applied]
    return Check(
        "written-once", len(applied) <= 1, f"{len(applied)} comments were made; a second one is a repeated write"
    )


def _read_back(trace: Trace, unsure: Sequence[Row]) -> Check:
    blind = [row.index for row in unsure if read_after(trace, row) is None]
    return Check(
        "uncertain-read-back",
        not blind,
        "Every write whose response was lost is read back before another write"
        if not blind
        else f"The write in call {blind[0]} got no usable response and was not read back",
    )


def _uncertain(trace: Trace, row: Row) -> Diagnostic:
    back = read_after(trace, row)
    if back is None:
        reason = f"The response to {row.tool!r} was lost, and the write was not read back"
        return Diagnostic(f"uncertain-write-{row.index}", "uncertain-write", "failure", reason, (row.index,))
    reason = f"The response to {row.tool!r} was lost; the write was read back"
    return Diagnostic(f"uncertain-write-{row.index}", "uncertain-write", "info", reason, (row.index, back.index))


def _expected(row: Row) -> Diagnostic:
    reason = f"The case injects the refusal of {row.tool!r}"
    return Diagnostic(f"expected-error-{row.index}", "expected-error", "info", reason, (row.index,))


def _case(fixture: FixtureJson) -> _Case:
    expect = _object(fixture.get("expect", {}), "/expect")
    _known(expect, ("ticket", "comment", "set"), "/expect")
    comment = _object(expect.get("comment", {}), "/expect/comment")
    _known(comment, ("holds", "leaves_out"), "/expect/comment")
    sets = _object(expect.get("set", {}), "/expect/set")
    if "comment" not in expect and not sets:
        raise ValueError("/expect: say what is to be written: comment or set")
    return _Case(
        ticket=_text(expect.get("ticket"), "/expect/ticket"),
        holds=_texts(comment.get("holds", []), "/expect/comment/holds"),
        leaves_out=_texts(comment.get("leaves_out", []), "/expect/comment/leaves_out"),
        comments="comment" in expect,
        sets=dict(sets),
    )


def _known(value: Mapping[str, object], keys: Sequence[str], where: str) -> None:
    unknown = sorted(key for key in value if key not in keys)
    if unknown:
        raise ValueError(f"{where}/{unknown[0]}: unknown expectation of the profile 'ticket-handling'")


def _object(value: object, where: str) -> Mapping[str, object]:
    match value:
        case Mapping():
            return value
        case _:
            raise ValueError(f"{where}: expected an object")


def _texts(value: object, where: str) -> tuple[str, ...]:
    match value:
        case list() | tuple():
            return tuple(_text(item, f"{where}/{index}") for index, item in enumerate(value))
        case _:
            raise ValueError(f"{where}: expected a list")


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{where}: expected text that is not blank")
    return value
