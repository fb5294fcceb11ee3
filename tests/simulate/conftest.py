"""A contract served on a loopback port of this machine, and the two doors to it: the official MCP client, and the real command under bash."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import mcp  # (before any simulator's thread does: the SDK imports itself in circles)
import pytest

from runner.simulate.command_door import command_program
from runner.simulate.contract import Contract
from runner.simulate.load import contract_of, load_contract, parse_simulation, resolve
from runner.simulate.server import SimulationRecord, Simulator

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
ROOTS = {"mcp": "/srv/desk-one", "command": "/srv/desk-two"}
"""The doors are compared below different contract roots, so that what is taken out has something to do."""


class Made(NamedTuple):
    """One call to be made."""

    tool: str
    args: Mapping[str, Any]


@dataclass(frozen=True)
class Got:
    """What a door gave for one call."""

    raw: str
    """What was printed, or the text content; empty where nothing came back over MCP."""
    exit_status: int | None = None
    """Of the command."""
    is_error: bool | None = None
    """Over MCP; None where the client itself raised."""
    structured: Any = None
    stderr: str = ""


def contract(root: str = "/srv/desk", author: str | None = None, **simulation: Any) -> Contract:
    """The shipped contract with a fixture's additions."""
    file = load_contract(FIXTURES / "contracts", "ticketing")
    changes = {"root": root} | ({} if author is None else {"author": author})
    parsed = parse_simulation({"contract": "ticketing", **simulation}, "case")
    return resolve(file.model_copy(update=changes), parsed, "case")


@dataclass
class Served:
    """A simulator that listens."""

    simulator: Simulator
    port: int
    folder: Path
    record: SimulationRecord | None = field(default=None)

    def close(self) -> SimulationRecord:
        """Stop it and return its record."""
        self.record = self.simulator.close()
        return self.record

    def connect(self) -> socket.socket:
        """A raw connection."""
        connection = socket.create_connection(("127.0.0.1", self.port), 10)
        connection.settimeout(20)
        return connection

    def exchange(self, data: bytes) -> bytes:
        """Send bytes and read to the end of the connection."""
        with self.connect() as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(data)
            received = b""
            with contextlib.suppress(ConnectionResetError):
                while piece := connection.recv(65536):
                    received += piece
            return received

    def post(self, path: str, body: bytes, *headers: str, method: str = "POST") -> bytes:
        """Send a whole request and read the answer."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Connection: close", *headers]
        if not any(line.lower().startswith(("content-length", "transfer-encoding")) for line in headers):
            lines.append(f"Content-Length: {len(body)}")
        return self.exchange("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    def command(self, *words: str | bytes, stdin: bytes | None = None, env: Mapping[str, str] | None = None) -> Got:
        """Run the real command, under a bash that finds no other program."""
        program = self.folder / "tool"
        if not program.exists():
            program.write_bytes(command_program(self.port))
            program.chmod(0o755)
        ran = subprocess.run(
            [program, *words],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            env={"PATH": "/nonexistent", **(env or {})},
            timeout=60,
            check=False,
        )
        return Got(
            ran.stdout.decode("utf-8", "surrogateescape"), ran.returncode, stderr=ran.stderr.decode("utf-8", "replace")
        )

    def by_command(self, calls: Sequence[Made]) -> list[Got]:
        """Make calls by the command, one after the other."""
        return [self.command("call", call.tool, json.dumps(call.args)) for call in calls]

    def by_mcp(self, calls: Sequence[Made], *, mode: str = "auto") -> list[Got]:
        """Make calls by the official client, one after the other. ``mode``: ``auto`` takes the protocol's newest form, ``legacy`` the handshake."""
        return asyncio.run(self._by_mcp(calls, mode))

    async def _by_mcp(self, calls: Sequence[Made], mode: str) -> list[Got]:
        got: list[Got] = []
        while len(got) < len(calls):  # a lost or garbled answer may end the client's session: then it connects again
            try:
                async with mcp.Client(
                    f"http://127.0.0.1:{self.port}/mcp", mode=mode, read_timeout_seconds=20
                ) as client:
                    for call in calls[len(got) :]:
                        result = await client.call_tool(call.tool, dict(call.args))
                        (block,) = result.content
                        assert block.type == "text"
                        got.append(Got(block.text, None, bool(result.is_error), result.structured_content))
            except (mcp.MCPError, ConnectionError, ExceptionGroup) as error:
                got.append(Got(f"{type(error).__name__}: {error}"))
        return got


Serve = Callable[[Contract], Served]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Serve a contract; everything is closed in the end."""
    made: list[Served] = []

    def start(given: Contract) -> Served:
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        folder = tmp_path / f"door-{len(made)}"
        folder.mkdir()
        simulator = Simulator(given, port=port)
        simulator.serve(listener)
        made.append(Served(simulator, port, folder))
        return made[-1]

    yield start
    for served in made:
        with contextlib.suppress(Exception):
            served.simulator.close()


@pytest.fixture(scope="session")
def shipped() -> Contract:
    """The shipped contract as it stands, both doors open."""
    found = contract_of({"contract": "ticketing"}, FIXTURES, "case")
    assert found is not None
    return found


@pytest.fixture
def bash() -> str:
    """The shell that the command is written for."""
    path = "/bin/bash"
    assert os.access(path, os.X_OK)
    return path
