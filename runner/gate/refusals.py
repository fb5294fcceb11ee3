"""Whether the gate refused the same requests in two runs of one plan.

Boundary: pure. Not here: the rules (rules.py), the comparison of whole attempts (runner/reproduce.py).
Rules: method, target, code and body count, in order of arrival; a body that can be read is compared under the rules of requests, any other byte for byte. A miss of a reproduction is told by itself.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from runner.canonical import sha256_hex
from runner.difference import Difference, first_difference
from runner.gate.exchange import Exchange
from runner.gate.rules import Canonical, canonical_request, differing


def compare_refusals(recorded: Sequence[Exchange], now: Sequence[Exchange]) -> tuple[Counter[str], Difference | None]:
    """Return the rules that bodies of refused requests needed and how often, and the first difference that no rule explains."""
    old, new = _forms(recorded), _forms(now)
    difference = first_difference([row for row, _ in old], [row for row, _ in new])
    rules: Counter[str] = Counter()
    if difference is None:
        for (_, was), (_, became) in zip(old, new, strict=True):
            if was is not None and became is not None:
                rules += differing(was, became) or Counter()
    return rules, difference


def _forms(exchanges: Sequence[Exchange]) -> list[tuple[dict[str, Any], Canonical | None]]:
    """Return what must be the same of each refused request, and its body under the rules, where it can be read."""
    forms = []
    for exchange in exchanges:
        code = exchange.refusal.code if exchange.refusal is not None else None
        if exchange.kind == "refused" and code not in (None, "replay-miss"):
            request, form = exchange.request, canonical_request(exchange.request.body)
            body = sha256_hex(request.body) if form is None else json.loads(form.text)
            forms.append(({"method": request.method, "target": request.target, "code": code, "body": body}, form))
    return forms
