"""What decides the gate's conduct of one run: mode, ceilings, what is let through. Stands in the plan.

Boundary: pure. Not here: the decisions themselves (policy.py, ledger.py), where the answers come from (upstreams/).
Rules: every value that changes what the gate lets through is a field here, so that it is in the plan and in the attempt. No secret is:
the real key is given to the gate and to the live upstream when they are made.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

from pydantic import Field

from runner.gate.exchange import Value

PROVIDER_HOST = "api.anthropic.com"
"""The one host of first-party mode."""

LOOPBACK = "127.0.0.1"
"""Where the listener stands inside the sandbox."""


class Ceilings(Value):
    """Hard bounds of one attempt, checked before a request is sent (DESIGN "Decided")."""

    usd: str | None = Field(default="2", pattern=r"^\d{1,9}(\.\d{1,6})?$")
    """List-price estimate in USD, at most six decimals; None for no USD ceiling (then a model without a price is let through)."""
    requests: int = Field(default=60, ge=0)
    """Requests sent to the upstream, count_tokens included."""
    parallel: int = Field(default=4, ge=1)
    """Requests at the upstream at one time; a further one is held until a place is free."""
    tokens: int = Field(default=2_000_000, ge=0)
    """Tokens of all kinds together: input, output, cache writes and reads."""
    output_reserve_tokens: int = Field(default=16_000, ge=1)
    """Output tokens held back for a request under way, at most its ``max_tokens``: the CLI asks for 128,000 by default (ledger.py says what follows)."""
    body_bytes: int = Field(default=32 * 1024 * 1024, ge=1)
    """Largest request body (32 MB is the provider's own limit)."""
    response_bytes: int = Field(default=64 * 1024 * 1024, ge=1)
    """Largest response body; a longer one is cut."""
    record_bytes: int = Field(default=512 * 1024 * 1024, ge=1)
    """All recorded bodies of the attempt together, since they are held in memory until the end."""

    @property
    def usd_amount(self) -> Decimal | None:
        """The USD ceiling as a number, or None."""
        return None if self.usd is None else Decimal(self.usd)


class GateSettings(Value):
    """Mode, permissions and ceilings of the gate."""

    mode: Literal["first-party", "base-url"] = "first-party"
    """``first-party``: TLS on port 443 as api.anthropic.com; ``base-url``: plain HTTP on loopback, given to the CLI as ANTHROPIC_BASE_URL."""
    allow_provider_tools: tuple[str, ...] = ()
    """Provider-executed features that the fixture names: a tool's type without its date (``web_search``), or ``mcp``, ``container``, ``files``,
    ``url`` (media by URL). Everything of the kind that is not named is refused."""
    ceilings: Ceilings = Ceilings()
    models: tuple[str, ...] = ()
    """Models that may be asked for, as they stand in the request; empty for any."""
    placeholder_key: str = Field(
        default="sk-ant-api03-placeholder-placeholder-placeholder", min_length=8, pattern=r"^[!-~]+$"
    )
    """The key that the CLI is given, and what a real key in a response is replaced by."""
    base_url_port: int = Field(default=8080, ge=1, le=65535)
    """The listener's port in base-URL mode."""

    @property
    def tls(self) -> bool:
        """Whether the listener speaks TLS."""
        return self.mode == "first-party"

    @property
    def port(self) -> int:
        """The listener's port inside the sandbox."""
        return 443 if self.tls else self.base_url_port

    @property
    def expected_host(self) -> str:
        """The only accepted value of the Host header."""
        return PROVIDER_HOST if self.tls else f"{LOOPBACK}:{self.base_url_port}"

    @property
    def base_url(self) -> str:
        """The address that the CLI talks to; for base-URL mode the value of ANTHROPIC_BASE_URL."""
        return f"https://{PROVIDER_HOST}" if self.tls else f"http://{self.expected_host}"
