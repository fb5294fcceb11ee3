"""The call trace: one row for everything that was asked of the simulator, kept by the simulator and never by the worker (B13).

Boundary: pure. Not here: how a row comes to be (machine.py), what profiles make of it (profiles/_trace.py, which reads rows as plain JSON).
Rules: a row is a value of the canonical subset. ``door`` and ``tool_use_id`` say how a call came and are the only fields in which the two doors may differ (tests/simulate/doors.py compares them).
A new field of a row is additive.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from runner.canonical import canonical_json
from runner.gate.exchange import Value
from runner.simulate.contract import Contract, Door
from runner.simulate.state import State

PART = "trace.json"
CONTRACT_PART = "contract.json"
Mode = Literal["call", "schema", "list"]


class Row(Value):
    """One thing that the worker asked for, and what it got."""

    index: Annotated[int, Field(ge=0)]
    """Zero-based order of arrival."""
    door: Door
    mode: Mode
    tool: str | None
    """The wire name, as it was given; None in mode ``list`` (which comes by the command only, like ``schema``)."""
    writes: bool
    """Whether the tool may change something; false for a tool that there is not."""
    args: dict[str, JsonValue] | None
    """The arguments of a call, where they are a JSON object of the canonical subset."""
    args_text: str | None
    """The arguments as text, where they are not that."""
    result: JsonValue
    """The structured result. Of a lost or a garbled answer it says so; what the service did then is in ``applied``."""
    exit_status: Literal[0, 1, 4, 5]
    """0: done. 1: the tool refused. 4: rejected before it was sent. 5: sent, and no usable answer came."""
    status: int | None
    """200, or the refusal's; 0: no response came; None: never sent."""
    applied: bool
    """Whether the state changed."""
    fault: str | None
    """Id of the fault that happened to this call."""
    tool_use_id: str | None
    """Over MCP: the id of the tool call in the conversation, as the CLI gives it."""


class Turned(Value):
    """Requests that were no call of the worker's."""

    lists: int = 0
    """Listings of the tools over MCP: a client makes them by itself."""
    refused: int = 0
    """Well-formed requests for something that is not served."""
    malformed: int = 0
    """Requests that break HTTP, JSON-RPC or a bound."""
    notes: tuple[str, ...] = ()
    """What they were, the first ones."""


def plain(text: str) -> str:
    """Return the text with lone surrogates spelt out, so that it can stand in canonical JSON."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def trace_part(contract: Contract, rows: tuple[Row, ...], state: State, turned: Turned) -> bytes:
    """Return the part ``trace.json``: canonical JSON of all rows, of the state in the end, and of what else came."""
    document: dict[str, Any] = {
        "schema_version": 1,
        "contract": contract.name,
        "contract_sha256": contract.sha256,
        "server": contract.server,
        "tools": [{"name": tool.name, "writes": tool.writes} for tool in contract.tools],
        "rows": [row.model_dump(mode="json") for row in rows],
        "final_state": state.document(),
        "other_requests": turned.model_dump(mode="json"),
    }
    return canonical_json(document)
