"""What a schema's first complaint means, for whoever wrote the document: where, what, and what to do.

Boundary: pure. Not here: reading JSON (strict_json.py), the schemas themselves (envelope.py, gate/script.py, simulate/contract.py).
Rules: the place is a JSON pointer (RFC 6901). Nothing is told in the words of the library that checks where there are plainer ones. The first complaint has the
place; a few more are told beside it, so that a document takes one reading to mend and not five.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from runner.strict_json import escape

_NO_KEY = "[key]"
"""What the library puts behind a key that it complains of itself."""

_SHOWN = 4
_NEAR = 0.75
"""How alike a misspelt key must be: one letter in three may be wrong, not one in two."""

_KINDS = {
    "bool_type": "true or false",
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}


class Complaint(NamedTuple):
    """One thing that is wrong with a document."""

    pointer: str
    words: str
    hint: str


def first_complaint(
    error: ValidationError, model: type[BaseModel], patterns: Mapping[str, str] | None = None
) -> Complaint:
    """Return the first thing that is wrong, with the next few in its words; ``patterns`` has words for the schema's regular expressions, ``model`` is what was read."""
    found = [_complaint(each, model, patterns or {}) for each in error.errors(include_url=False)[: _SHOWN + 1]]
    first, *others = found
    told = "; ".join(f"{other.pointer or '/'}: {other.words}" for other in others[: _SHOWN - 1])
    more = " and more" if len(found) > _SHOWN else ""
    return first._replace(words=f"{first.words} (also {told}{more})") if told else first


def _complaint(found: Any, model: type[BaseModel], patterns: Mapping[str, str]) -> Complaint:
    place = [str(part) for part in found["loc"] if part != _NO_KEY]
    pointer = "".join(f"/{escape(part)}" for part in place)
    match found["type"]:
        case "missing":
            return Complaint(pointer, "the key is missing", "add it; the files in fixtures/ here have one of each kind")
        case "extra_forbidden":
            near = _near(place[-1], model)
            words = "unknown key" if near is None else f"unknown key: did you mean {near!r}?"
            return Complaint(pointer, words, "take it out, or look for a misspelling")
        case "string_pattern_mismatch" if (pattern := found["ctx"]["pattern"]) in patterns:
            return Complaint(pointer, f"expected {patterns[pattern]}", "")
        case "too_short":
            return Complaint(pointer, f"at least {found['ctx']['min_length']} must stand there", "")
        case kind if kind in _KINDS:
            return Complaint(pointer, f"expected {_KINDS[kind]}", "")
        case _:
            return Complaint(pointer, found["msg"], "")


def _near(name: str, model: type[BaseModel]) -> str | None:
    """Return the key of the schema, at whatever depth, that a name is most like; None if there is none."""
    from difflib import get_close_matches

    keys = sorted(set(_keys(model.model_json_schema())))
    return next(iter(get_close_matches(name[:100], keys, n=1, cutoff=_NEAR)), None)


def _keys(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        properties = schema.get("properties")
        yield from properties if isinstance(properties, dict) else ()
        for part in schema.values():
            yield from _keys(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _keys(part)
