"""What a gate counts, as a value that its record and an attempt's evidence share.

Boundary: pure. Not here: counting (ledger.py, record.py), what follows from the counts (runner/assess.py).
Rules: a field here stands in every attempt's ``evidence.json``; none is ever taken out.
"""

from __future__ import annotations

from runner.gate.exchange import Value


class GateTotals(Value):
    """What a gate counted in one attempt."""

    requests: int = 0
    """Requests sent to the upstream."""
    refused: int = 0
    """Refused requests among those that are kept."""
    unscripted: int = 0
    """Requests that the upstream had no answer for."""
    not_kept: int = 0
    """Refused and start-up requests beyond the number that is kept; all requests, of a gate that keeps none."""
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_estimate_usd: str = "0"
    """List price of the booked tokens, exact decimal."""
    unpriced_requests: int = 0
    """Requests that the estimate lacks, for want of a price (possible only without a USD ceiling)."""
    prices_date: str = ""
    key_redactions: int = 0
    connections_failed: int = 0
    """Connections that came to no request: a failed TLS handshake, silence, too many at once."""
    notes: tuple[str, ...] = ()
    """What went wrong inside the gate itself, if anything."""
