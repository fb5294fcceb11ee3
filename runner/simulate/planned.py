"""What a plan says of its simulation: which contract, by its digest, by which doors, at which port.

Boundary: pure. Not here: the contract itself (contract.py), which the attempt keeps as a part of its own.
Rules: port and paths stand in requests and in the inside view; they do not change once attempts are committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from runner.gate.exchange import Value

if TYPE_CHECKING:  # every plan imports this module, and few have a contract
    from runner.simulate.contract import Contract

PORT = 8790
"""The simulator's port inside. The gate's are 443 and, in base-URL mode, 8080."""

PROGRAMS = "/opt/bin"
"""Where the command lies inside, under the name ``tool``."""


class PlannedSimulation(Value):
    """The simulation of one run."""

    contract: str
    contract_sha256: str
    """Of the contract with the fixture's additions, canonical."""
    server: str
    """Its name in the CLI's MCP configuration: tools are ``mcp__<server>__<tool>``."""
    doors: tuple[Literal["mcp", "command"], ...]
    """The contract's."""
    port: int

    @property
    def mcp_servers(self) -> dict[str, str]:
        """MCP server names and their addresses, as the CLI is told them."""
        return {self.server: f"http://127.0.0.1:{self.port}/mcp"} if "mcp" in self.doors else {}

    @property
    def programs(self) -> str | None:
        """The directory of the command, for the worker's PATH."""
        return PROGRAMS if "command" in self.doors else None


def planned_simulation(contract: Contract | None) -> PlannedSimulation | None:
    """Return what the plan says of a contract; None without one."""
    if contract is None:
        return None
    return PlannedSimulation(
        contract=contract.name,
        contract_sha256=contract.sha256,
        server=contract.server,
        doors=contract.doors,
        port=PORT,
    )
