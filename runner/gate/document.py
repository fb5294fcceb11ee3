"""A request body as one JSON object that has only one reading.

Boundary: pure. Not here: what the object may hold (policy.py).
Rules: what the gate reads must be what the provider reads. A body with a doubled key, a byte-order mark, NaN, bad UTF-8 or anything after the
value has two readings and is refused. The hot path is one decode and one encode: equal bytes prove that no key was dropped; only a body
that is written in another style takes the slow, strict parser.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class BadDocument(ValueError):
    """The body has no single reading; ``code`` is ``body-not-json`` or ``duplicate-key``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def parse_document(body: bytes) -> dict[str, Any]:
    """Return the JSON object that ``body`` is.

    Raises: BadDocument.
    """
    try:
        value = _decode(body)
        if _encode(value) != body:
            value = _strict(body)
    except (msgspec.MsgspecError, UnicodeError):
        value = _strict(body)  # a lone surrogate, for instance, is fine JSON that msgspec does not read
    except RecursionError as error:
        raise BadDocument("body-not-json", "the body is nested too deeply") from error
    if not isinstance(value, dict):
        raise BadDocument("body-not-json", "the body is no JSON object")
    return value


def _strict(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8", "strict"), object_pairs_hook=_no_doubles, parse_constant=_no_constant)
    except BadDocument:
        raise
    except RecursionError as error:
        raise BadDocument("body-not-json", "the body is nested too deeply") from error
    except ValueError as error:
        raise BadDocument("body-not-json", "the body is no JSON") from error


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise BadDocument("duplicate-key", "an object in the body has the same key twice")
    return made


def _no_constant(name: str) -> Any:
    raise BadDocument("body-not-json", f"{name} is no JSON")
