"""The state machine: one call and a state in, the next state, an answer and a trace row out (B14).

Boundary: pure. Not here: HTTP, MCP and the command (the doors), the operations themselves (state.py).
Rules: both doors hand over the same ``Call`` and tell the same ``Answer``; nothing but ``door`` and ``tool_use_id`` may depend on the door. The order of the steps in ``_call`` is
that of a real client: what would never be sent is found first, then the service, then the way back. A fault counts the calls that fit it, whatever became of them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from runner.canonical import canonical_json
from runner.simulate.contract import Contract, Door, Fault, Guard, Tool
from runner.simulate.state import Json, No, State, first_state, perform
from runner.simulate.trace import Mode, Row, plain
from runner.strict_json import StrictJsonError, parse_strict

MAX_ARGS_BYTES = 64 * 1024
MAX_ARGS_DEPTH = 16
MAX_NAME = 200
MAX_MESSAGE = 500

LOST: Json = {
    "error": {
        "code": "lost-response",
        "message": "no response came; the call may have been carried out",
        "status": 0,
    }
}
"""What a caller knows of an answer that never came. The command (tool.bash) prints the same text by itself."""

MALFORMED: Json = {
    "error": {
        "code": "malformed-response",
        "message": "the response is not JSON; the call may have been carried out",
        "status": 200,
    }
}


@dataclass(frozen=True, slots=True)
class Call:
    """What came through a door."""

    door: Door
    mode: Mode
    tool: str | None = None
    args_text: str = "{}"
    """The arguments as JSON text, of whatever quality."""
    tool_use_id: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back through the door."""

    exit_status: Literal[0, 1, 4, 5]
    result: Json
    status: int | None
    way: Literal["whole", "lost", "malformed"] = "whole"
    """``lost``: not one byte goes back. ``malformed``: what goes back breaks off in its middle."""
    spoilt: Json = None
    """What would have gone back whole, of a malformed answer."""
    delay_ms: int = 0

    @property
    def sent(self) -> Json:
        """The value that is put on its way."""
        return self.spoilt if self.way == "malformed" else self.result

    @property
    def text(self) -> str:
        """That value as canonical JSON text, which is what is printed."""
        return canonical_json(self.sent).decode("utf-8")


@dataclass(frozen=True, slots=True)
class Running:
    """The state of a whole run: the service's, and how often each fault was met."""

    service: State
    met: Mapping[str, int] = field(default_factory=dict)
    """Fault id to the number of calls that fitted it."""
    calls: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One step's outcome."""

    running: Running
    answer: Answer
    row: Row


def begin(contract: Contract) -> Running:
    """Return the run's first state."""
    return Running(first_state(contract))


def step(contract: Contract, running: Running, call: Call) -> Step:
    """Take one call. Never raises for anything that a caller can send."""
    call = replace(
        call, tool=None if call.tool is None else plain(call.tool)[:MAX_NAME], args_text=plain(call.args_text)
    )
    match call.mode:
        case "list":
            listed = [{"name": tool.name, "description": tool.description} for tool in contract.tools]
            return _row(contract, running, running.service, call, None, Answer(0, {"tools": listed}, 200), None)
        case "schema":
            tool = contract.tool(call.tool or "")
            answer = _unknown(call) if tool is None else Answer(0, tool.input_schema, 200)
            return _row(contract, running, running.service, call, None, answer, None)
        case "call":
            return _call(contract, running, call)


def same_json(one: Json, other: Json) -> bool:
    """Whether two JSON values are equal by value; true is not 1."""
    return canonical_json(one) == canonical_json(other)


def _call(contract: Contract, running: Running, call: Call) -> Step:
    tool = contract.tool(call.tool or "")
    args, problem = _arguments(call.args_text)
    # 1: what a client finds by itself.
    if tool is None:
        return _row(contract, running, running.service, call, args, _unknown(call), None)
    if args is None:
        return _row(contract, running, running.service, call, None, _rejected(problem), None)
    misfit = _misfit(contract, tool, args)
    if misfit is not None:
        return _row(contract, running, running.service, call, args, _rejected(misfit), None)
    # 2: a fault, if this call is one that it waits for.
    fault, met = _meet(contract, running, tool, args)
    running = replace(running, met=met)
    if fault is not None and fault.kind == "rejected":
        answer = _rejected(fault.message or "the call was not sent")
        return _row(contract, running, running.service, call, args, answer, fault)
    if fault is not None and fault.kind == "refused":
        answer = _refused(No(fault.status, "refused", fault.message or "the service refuses this call"))
        return _row(contract, running, running.service, call, args, answer, fault)
    # 3: the service.
    done = perform(contract, running.service, tool.operation, args)
    if isinstance(done, No):
        service, answer = running.service, _refused(done)
    else:
        service, answer = done[0], Answer(0, done[1], 200)
    # 4: the way back.
    match None if fault is None else fault.kind:
        case "lost":
            answer = Answer(5, LOST, 0, way="lost")
        case "malformed":
            answer = Answer(5, MALFORMED, 200, way="malformed", spoilt=answer.result)
        case "slow":
            answer = replace(answer, delay_ms=fault.delay_ms if fault else 0)
        case _:
            pass
    return _row(contract, running, service, call, args, answer, fault)


def _row(
    contract: Contract,
    running: Running,
    service: State,
    call: Call,
    args: dict[str, Json] | None,
    answer: Answer,
    fault: Fault | None,
) -> Step:
    tool = contract.tool(call.tool or "") if call.mode == "call" else None
    row = Row(
        index=running.calls,
        door=call.door,
        mode=call.mode,
        tool=call.tool,
        writes=tool is not None and tool.writes,
        args=args,
        args_text=call.args_text if call.mode == "call" and args is None else None,
        result=answer.result,
        exit_status=answer.exit_status,
        status=answer.status,
        applied=service is not running.service and service != running.service,
        fault=None if fault is None else fault.id,
        tool_use_id=call.tool_use_id,
    )
    return Step(replace(running, service=service, calls=running.calls + 1), answer, row)


def _arguments(text: str) -> tuple[dict[str, Json] | None, str]:
    """Return the arguments, or None and what is wrong with them."""
    try:
        value: Any = parse_strict(text.encode("utf-8"), max_bytes=MAX_ARGS_BYTES, max_depth=MAX_ARGS_DEPTH)
        canonical_json(value)
    except StrictJsonError as error:
        return None, f"the arguments are not usable: {error.message.partition(': ')[0]}"
    except ValueError:
        return None, "the arguments are not usable: numbers are integers here, and keys ASCII"
    if not isinstance(value, dict):
        return None, "the arguments are no JSON object"
    return value, ""


def _misfit(contract: Contract, tool: Tool, args: Mapping[str, Json]) -> str | None:
    """Return why the arguments do not fit the tool's schema: the first misfit by its text, or None."""
    misfits = sorted(_words(error) for error in validator_of(canonical_json(tool.input_schema)).iter_errors(args))
    return misfits[0] if misfits else None


def _words(error: Any) -> str:
    """Tell a misfit in words of our own, so that they do not change with the validator's release."""
    place = "/".join(str(part) for part in error.absolute_path)
    inside = f"{place}/" if place else ""
    match error.validator:
        case "required":
            return f"{inside}{min(name for name in error.validator_value if name not in error.instance)}: missing"
        case "additionalProperties":
            return f"{inside}{min(set(error.instance) - set(error.schema.get('properties', {})))}: unknown argument"
        case keyword:
            return f"{place}: does not fit {keyword} {canonical_json(error.validator_value).decode()}"


@functools.lru_cache(maxsize=256)
def validator_of(schema: bytes) -> Any:
    """Return the validator of a schema, given as canonical JSON."""
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads(schema))


def _meet(
    contract: Contract, running: Running, tool: Tool, args: Mapping[str, Json]
) -> tuple[Fault | None, Mapping[str, int]]:
    """Return the fault that happens now, if any (the first in the contract's order), and the counts with this call in them."""
    met, happens = dict(running.met), None
    for fault in contract.faults:
        if fault.tool != tool.name or not _holds(fault.expect, args, running.service):
            continue
        number = met.get(fault.id, 0)
        met[fault.id] = number + 1
        due = number >= fault.after and (fault.times is None or number < fault.after + fault.times)
        if due and happens is None:
            happens = fault
    return happens, met


def _holds(guard: Guard, args: Mapping[str, Json], service: State) -> bool:
    if not all(name in args and same_json(args[name], value) for name, value in guard.args.items()):
        return False
    document = service.document()
    return all(_stands(document, pointer, value) for pointer, value in guard.state.items())


def _stands(document: Json, pointer: str, value: Json) -> bool:
    held = document
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(held, dict) and key in held:
            held = held[key]
        elif isinstance(held, list) and key.isdecimal() and int(key) < len(held):
            held = held[int(key)]
        else:
            return False
    return same_json(held, value)


def _unknown(call: Call) -> Answer:
    return _rejected(f"there is no tool {call.tool or ''}")


def _rejected(message: str) -> Answer:
    return Answer(4, {"error": {"code": "rejected", "message": plain(message[:MAX_MESSAGE])}}, None)


def _refused(no: No) -> Answer:
    error = {"code": no.code, "message": plain(no.message[:MAX_MESSAGE]), "status": no.status}
    return Answer(1, {"error": error}, no.status)
