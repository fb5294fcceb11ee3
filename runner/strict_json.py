"""JSON read strictly: one value, no duplicate keys, no NaN, bounded depth and size, and a JSON pointer to what is wrong.

Boundary: pure. Not here: writing JSON (canonical.py), what the values mean (fixture.py and others).
Rules: any bytes give a value or a StrictJsonError, never another exception; what is returned can be encoded as UTF-8 and read by a JavaScript
program without loss (integers within ±(2^53-1), finite floats, no lone surrogate).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import NoReturn

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None
"""A JSON value as Python holds it."""

MAX_SAFE_INT = 2**53 - 1

_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[\]{}]', re.DOTALL)


class StrictJsonError(ValueError):
    """The bytes are not JSON of the strict kind. ``pointer`` is a JSON pointer (RFC 6901), empty for the whole document."""

    def __init__(self, message: str, pointer: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.pointer = pointer


class _Bad:
    """Stands in the parsed value for something that is refused, until its pointer is known."""

    def __init__(self, message: str) -> None:
        self.message = message


class _Pairs(dict[str, object]):
    """An object that had the same key twice."""

    duplicate: str = ""


def parse_strict(data: bytes, *, max_bytes: int, max_depth: int) -> Json:
    """Parse one JSON document.

    ``max_bytes`` bounds the document, ``max_depth`` the nesting of arrays and objects (a flat object has depth 1).
    Raises: StrictJsonError.
    """
    if len(data) > max_bytes:
        raise StrictJsonError(f"the document has {len(data)} bytes; at most {max_bytes} are read")
    if data.startswith(b"\xef\xbb\xbf"):
        raise StrictJsonError("the document begins with a byte-order mark; save it as UTF-8 without one")
    if _depth(data) > max_depth:
        raise StrictJsonError(f"arrays and objects are nested more than {max_depth} deep")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise StrictJsonError(f"byte {error.start} is not UTF-8") from error
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer, parse_float=_float
        )
    except json.JSONDecodeError as error:
        raise StrictJsonError(f"not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from error
    for pointer, held in walk(value):
        _refuse(held, pointer)
    return value  # type: ignore[no-any-return]  # json.loads returns Any; the walk above has looked at every value


def walk(value: object, pointer: str = "") -> Iterator[tuple[str, object]]:
    """Yield every value with its JSON pointer, containers before what they hold, in document order; keys are not yielded."""
    stack = [(pointer, value)]
    while stack:
        at, held = stack.pop()
        yield at, held
        if isinstance(held, dict):
            stack.extend((f"{at}/{escape(key)}", part) for key, part in reversed(held.items()))
        elif isinstance(held, list):
            stack.extend((f"{at}/{index}", held[index]) for index in range(len(held) - 1, -1, -1))


def escape(key: str) -> str:
    """Return an object key as a reference token of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def _depth(data: bytes) -> int:
    deepest = depth = 0
    for match in _STRING_OR_BRACKET.finditer(data):
        first = match.group()[:1]
        if first in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif first in b"]}":
            depth -= 1
    return deepest


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    seen: set[str] = set()
    marked = _Pairs(value)
    for key, _ in pairs:
        if key in seen:
            marked.duplicate = key
            break
        seen.add(key)
    return marked


def _constant(name: str) -> _Bad:
    return _Bad(f"{name} is no JSON number")


def _integer(digits: str) -> int | _Bad:
    if len(digits) > 17 or abs(int(digits)) > MAX_SAFE_INT:
        return _Bad("the integer is outside ±(2^53-1); write it as a string")
    return int(digits)


def _float(digits: str) -> float | _Bad:
    number = float(digits)
    return number if math.isfinite(number) else _Bad("the number is too large")


def _refuse(held: object, pointer: str) -> None:
    if isinstance(held, _Bad):
        _fail(held.message, pointer)
    if isinstance(held, _Pairs):
        at = f"{pointer}/{escape(held.duplicate)}"
        _fail("the key stands twice in its object", at if _encodable(at) else pointer)
    if isinstance(held, str) and not _encodable(held):
        _fail("the text holds a lone surrogate", pointer)
    if isinstance(held, dict) and not all(map(_encodable, held)):
        _fail("a key holds a lone surrogate", pointer)


def _encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text) if not text.isascii() else True


def _fail(message: str, pointer: str) -> NoReturn:
    raise StrictJsonError(message, pointer)
