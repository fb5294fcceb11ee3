"""What a schema's first complaint means, for whoever wrote the document: where, what, and what to do.

Boundary: pure. Not here: reading JSON (strict_json.py), the schemas themselves (envelope.py, gate/script.py, simulate/contract.py).
Rules: the place is a JSON pointer (RFC 6901). Nothing is told in the words of the library that checks where there are plainer ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pydantic import ValidationError

from runner.strict_json import escape

_NO_KEY = "[key]"
"""What the library puts behind a key that it complains of itself."""

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


def first_complaint(error: ValidationError, patterns: Mapping[str, str] | None = None) -> Complaint:
    """Return the first thing that is wrong; ``patterns`` has words for the schema's regular expressions."""
    found = error.errors(include_url=False)[0]
    place = [str(part) for part in found["loc"] if part != _NO_KEY]
    pointer = "".join(f"/{escape(part)}" for part in place)
    match found["type"]:
        case "missing":
            return Complaint(pointer, "the key is missing", "add it; the files in fixtures/ here have one of each kind")
        case "extra_forbidden":
            return Complaint(pointer, "unknown key", "take it out, or look for a misspelling")
        case "string_pattern_mismatch" if (pattern := found["ctx"]["pattern"]) in (patterns or {}):
            return Complaint(pointer, f"expected {(patterns or {})[pattern]}", "")
        case "too_short":
            return Complaint(pointer, f"at least {found['ctx']['min_length']} must stand there", "")
        case kind if kind in _KINDS:
            return Complaint(pointer, f"expected {_KINDS[kind]}", "")
        case _:
            return Complaint(pointer, found["msg"], "")
