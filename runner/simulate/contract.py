"""The contract: tool definitions, seeded state and injected faults, in one file; and what a fixture adds to it (B14).

Boundary: pure. Not here: reading and laying together (load.py), what a call does (machine.py, state.py).
Rules: a tool is defined in one contract file and nowhere else; a fixture's ``simulation`` names the file and adds tickets, comments, files and faults, never a tool. What is
resolved is a value of the canonical subset, so that plan and attempt hold its digest. Nothing in it reaches the worker but the tool definitions and what calls answer.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue, StringConstraints

from runner.canonical import canonical_json, sha256_hex
from runner.gate.exchange import Value

MAX_DELAY_MS = 60_000

Operation = Literal[
    "ticket-list", "ticket-read", "ticket-comment", "ticket-update", "file-list", "file-read", "file-write"
]
NEEDS: dict[str, tuple[str, ...]] = {
    "ticket-list": (),
    "ticket-read": ("ticket",),
    "ticket-comment": ("ticket", "body"),
    "ticket-update": ("ticket",),
    "file-list": (),
    "file-read": ("path",),
    "file-write": ("path", "text"),
}
"""The arguments that each operation reads; a tool must require them, as texts."""

WRITES = frozenset({"ticket-comment", "ticket-update", "file-write"})
Door = Literal["mcp", "command"]
FaultKind = Literal["refused", "lost", "rejected", "slow", "malformed"]

ToolName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
ServerName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]{0,31}$")]
ContractName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)]
Key = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
FilePath = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}(/[A-Za-z0-9_][A-Za-z0-9._-]{0,63}){0,7}$"),
]
Root = Annotated[str, StringConstraints(pattern=r"^(/[A-Za-z0-9_][A-Za-z0-9._-]{0,127}){1,16}$")]
Words = Annotated[str, StringConstraints(min_length=1, max_length=4000)]
JsonObject = dict[str, JsonValue]


class Tool(Value):
    """One tool, as both doors offer it."""

    name: ToolName
    """The wire name; over MCP the worker knows it as ``mcp__<server>__<name>``."""
    operation: Operation
    description: Words
    input_schema: JsonObject

    @property
    def writes(self) -> bool:
        """Whether a call may change the state."""
        return self.operation in WRITES


class Comment(Value):
    """A comment that stands there from the beginning."""

    author: Words
    body: Words


class Seed(Value):
    """The state that a run begins with."""

    tickets: dict[Key, JsonObject] = Field(default_factory=dict)
    comments: dict[Key, tuple[Comment, ...]] = Field(default_factory=dict)
    """By ticket."""
    files: dict[FilePath, str] = Field(default_factory=dict)
    """Path below the contract root to text."""


class Guard(Value):
    """What must hold for a fault; nothing given holds always."""

    args: JsonObject = Field(default_factory=dict)
    """Arguments of the call, each equal by value."""
    state: dict[Annotated[str, StringConstraints(pattern=r"^(/[^/]*)+$")], JsonValue] = Field(default_factory=dict)
    """JSON pointer into the state (``tickets``, ``comments``, ``files``) before the call, to the value that stands there."""


class Fault(Value):
    """Something that goes wrong, on purpose."""

    id: ContractName
    kind: FaultKind
    """``refused``: the tool says no (exit 1). ``lost``: the call is carried out and its answer is lost (exit 5). ``rejected``: it is never sent (exit 4). ``slow``: the
    answer waits. ``malformed``: the call is carried out and its answer is garbled (exit 5)."""
    tool: ToolName
    expect: Guard = Guard()
    after: Annotated[int, Field(ge=0, le=1000)] = 0
    """So many calls that fit are let through first."""
    times: Annotated[int, Field(ge=1, le=1000)] | None = 1
    """How often it happens; null: without end."""
    message: Words | None = None
    status: Annotated[int, Field(ge=400, le=599)] = 403
    """Of a refusal."""
    delay_ms: Annotated[int, Field(ge=0, le=MAX_DELAY_MS)] = 0
    """Of ``slow``."""


class ContractFile(Value):
    """A contract as it stands on disk."""

    schema_version: Literal[1]
    server: ServerName
    root: Root = "/srv/simulated"
    """Where the service says that its files lie; results name files below it."""
    author: Words = "worker"
    """Who the comments are by that calls make."""
    instructions: Words | None = None
    """What the MCP server says about itself."""
    tools: Annotated[tuple[Tool, ...], Field(min_length=1)]
    state: Seed = Seed()
    faults: tuple[Fault, ...] = ()


class Simulation(Value):
    """A fixture's ``simulation``: the contract, by which doors, and what this case adds."""

    contract: ContractName
    doors: Annotated[tuple[Door, ...], Field(min_length=1)] = ("mcp", "command")
    tickets: dict[Key, JsonObject] = Field(default_factory=dict)
    comments: dict[Key, tuple[Comment, ...]] = Field(default_factory=dict)
    files: dict[FilePath, str] = Field(default_factory=dict)
    faults: tuple[Fault, ...] = ()


class Contract(Value):
    """A contract with a fixture's additions in it: everything that decides what a call answers."""

    schema_version: Literal[1] = 1
    name: ContractName
    server: ServerName
    root: Root
    author: Words
    instructions: Words | None
    doors: tuple[Door, ...]
    tools: tuple[Tool, ...]
    state: Seed
    faults: tuple[Fault, ...]

    def tool(self, name: str) -> Tool | None:
        """Return the tool of that wire name."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def canonical(self) -> bytes:
        """Return the canonical JSON: the part ``contract.json`` of an attempt."""
        return canonical_json(self.model_dump(mode="json"))

    @property
    def sha256(self) -> str:
        """Hex sha256 of the canonical JSON."""
        return sha256_hex(self.canonical())
