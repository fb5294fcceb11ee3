"""Exchanges as parts: one index with everything but the bodies, and one part a body.

Boundary: pure. Not here: the model (runner/gate/exchange.py), files (writer.py, reader.py).
Rules: the bytes of a body are a part of their own and come back as they were; no response (None) is not an empty body; header order, case and repeats are kept.
The fields are those of the model, by its own dump, so that a field added there is stored without a change here. This is the one module of the bundle that needs
pydantic: import it where exchanges are asked for, never at the top of a reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from runner.bundle.format import EXCHANGES_PART, corrupt_part
from runner.canonical import canonical_json
from runner.gate.exchange import Exchange

_BODIES = ("request", "response")


def exchange_parts(exchanges: Sequence[Exchange]) -> dict[str, bytes]:
    """Return the parts that hold ``exchanges``, the index first, then the bodies in order.

    Raises:
        ValueError: a string that cannot be written as UTF-8; the message holds its pointer.
    """
    bodies: dict[str, bytes] = {}
    rows: list[dict[str, Any]] = []
    for number, exchange in enumerate(exchanges, 1):
        row = exchange.model_dump()
        for side in _BODIES:
            if row[side] is not None:
                name = f"exchanges/{number:04d}.{side}"
                bodies[name] = row[side]["body"]
                row[side]["body"] = name
        rows.append(row)
    return {EXCHANGES_PART: canonical_json({"schema_version": 1, "exchanges": rows}), **bodies}


def exchanges_from(index: object, body: Callable[[str], bytes]) -> tuple[Exchange, ...]:
    """Return the exchanges that ``exchange_parts`` stored; ``index`` is the parsed index, ``body`` gives a part's bytes by name.

    Raises:
        BundleCorrupt: the index does not follow its schema, or names another part than the one it must.
    """
    if (
        not isinstance(index, Mapping)
        or index.get("schema_version") != 1
        or not isinstance(index.get("exchanges"), list)
    ):
        raise corrupt_part(EXCHANGES_PART, "it does not follow its schema")
    return tuple(_exchange(row, number, body) for number, row in enumerate(index["exchanges"], 1))


def _exchange(row: object, number: int, body: Callable[[str], bytes]) -> Exchange:
    if not isinstance(row, dict):
        raise corrupt_part(EXCHANGES_PART, f"exchange {number} is no object")
    fields = {name: _tuples(value) for name, value in row.items()}
    for side in _BODIES:
        half = fields.get(side)
        if isinstance(half, dict):
            if half.get("body") != f"exchanges/{number:04d}.{side}":
                raise corrupt_part(EXCHANGES_PART, f"exchange {number} names another part for its {side}")
            half["body"] = body(half["body"])
    try:
        return Exchange.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = "/".join(str(step) for step in first["loc"])
        raise corrupt_part(EXCHANGES_PART, f"exchange {number}, {place}: {first['msg']}") from None


def _tuples(value: object) -> Any:
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    if isinstance(value, dict):
        return {name: _tuples(item) for name, item in value.items()}
    return value
