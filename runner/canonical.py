"""Canonical JSON and digests: one value, one byte string.

Boundary: pure. Not here: files (the callers), attempt formats (runner/bundle).
Rules: the subset is RFC 8785 without what implementations disagree on: keys are ASCII, numbers are integers within ±(2^53-1) (write larger ones and
nanoseconds as strings), no floats, no lone surrogates, at most ``MAX_DEPTH`` levels. On it the standard library, msgspec and RFC 8785 give equal bytes
(facts/replay.md §2). ``parse_canonical`` accepts exactly the bytes that ``canonical_json`` makes; both raise ``ValueError`` and nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import NoReturn

MAX_INT = 2**53 - 1
MAX_DEPTH = 64
_MAX_INT_DIGITS = 17  # sign and 16 digits; int() of a longer literal is refused before it costs anything


def canonical_json(value: object) -> bytes:
    """Return the canonical bytes of a JSON value: UTF-8, sorted keys, no blanks.

    ``value`` is made of mappings with str keys, lists, tuples, str, int, bool and None.

    Raises:
        ValueError: something lies outside the subset; the message starts with its JSON pointer (``/`` is written for the root).
    """
    plain = _plain(value, "", 0)
    return json.dumps(plain, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")


def parse_canonical(data: bytes) -> object:
    """Return the value whose canonical form is exactly ``data``.

    Raises:
        ValueError: not UTF-8, not JSON, a duplicate key, a float, a huge number, too deep, or any byte that the canonical form would not have.
    """
    value = parse_strict(data)
    if canonical_json(value) != data:
        raise ValueError("not in canonical form (blanks, key order or escapes)")
    return value


def parse_strict(data: bytes) -> object:
    """Return the value of JSON bytes of any layout, within the same subset; duplicate keys are refused, never merged.

    Raises:
        ValueError: as for ``parse_canonical``, but for the layout.
    """
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_float=_refuse_number,
            parse_int=_small_int,
            parse_constant=_refuse_number,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    _plain(value, "", 0)
    return value


def sha256_hex(data: bytes) -> str:
    """Return the sha256 of ``data`` as 64 lower-case hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def digest_of(value: object) -> str:
    """Return the sha256 of the canonical bytes of ``value``, in hexadecimal."""
    return sha256_hex(canonical_json(value))


def _plain(value: object, pointer: str, depth: int) -> object:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if abs(value) > MAX_INT:
            raise ValueError(f"{pointer or '/'}: integer beyond ±(2^53-1); write it as a string")
        return int(value)
    if isinstance(value, str):
        _encodable(value, pointer)
        return str(value)
    if depth >= MAX_DEPTH:
        raise ValueError(f"{pointer or '/'}: nested more than {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        return {_key(key, pointer): _plain(item, f"{pointer}/{_token(key)}", depth + 1) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [_plain(item, f"{pointer}/{index}", depth + 1) for index, item in enumerate(value)]
    raise ValueError(f"{pointer or '/'}: {type(value).__name__} has no canonical form")


def _key(key: object, pointer: str) -> str:
    if not isinstance(key, str):
        raise ValueError(f"{pointer or '/'}: key of type {type(key).__name__}")  # noqa: TRY004 -- one declared error
    if not key.isascii():
        raise ValueError(f"{pointer or '/'}: key {key!a} is not ASCII")
    return str(key)


def _token(key: object) -> str:
    return str(key).replace("~", "~0").replace("/", "~1")


def _encodable(text: str, pointer: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{pointer or '/'}: lone surrogate in a string") from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
    return found


def _small_int(literal: str) -> int:
    if len(literal) > _MAX_INT_DIGITS:
        raise ValueError("integer beyond ±(2^53-1)")
    return int(literal)


def _refuse_number(literal: str) -> NoReturn:
    raise ValueError(f"number {literal[:20]} is not an integer")
