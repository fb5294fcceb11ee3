"""Canonical JSON: equal to RFC 8785 on the subset, and only one byte string a value."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.canonical import MAX_DEPTH, canonical_json, digest_of, parse_canonical, parse_strict, sha256_hex

_keys = st.text(st.characters(max_codepoint=127), max_size=8)
_leaves = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=20)
_values = st.recursive(
    _leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_keys, inner, max_size=4), max_leaves=20
)


@settings(max_examples=300)
@given(_values)
def test_canonical_bytes_are_those_of_rfc_8785(value: Any) -> None:
    """On the subset our bytes are the reference implementation's, msgspec's too, and they read back as the value."""
    data = canonical_json(value)
    assert data == rfc8785.dumps(value)
    assert data == msgspec.json.encode(value, order="sorted")
    assert parse_canonical(data) == value


@settings(max_examples=300)
@given(_values, st.data())
def test_another_spelling_of_a_value_is_read_strictly_but_is_not_canonical(value: Any, data: st.DataObject) -> None:
    """A blank anywhere between tokens makes bytes non-canonical; parse_strict reads the same value from them."""
    spaced = json.dumps(
        value, ensure_ascii=data.draw(st.booleans()), indent=data.draw(st.sampled_from([1, 2]))
    ).encode()
    assert parse_strict(spaced) == value
    if spaced != canonical_json(value):
        with pytest.raises(ValueError, match="canonical form"):
            parse_canonical(spaced)


@settings(max_examples=300)
@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:0123456789.eE+-\\u truefalsnul', max_size=40).map(str.encode))
def test_any_bytes_give_a_value_or_value_error(data: bytes) -> None:
    """Whatever the bytes, the parser returns a value whose canonical form they are, or raises ValueError."""
    try:
        value = parse_canonical(data)
    except ValueError:
        return
    assert canonical_json(value) == data


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ({"a": [1, 2.0]}, "/a/1"),
        ({"a": float("nan")}, "/a"),
        ({"a": 2**53}, "/a"),
        ([-(2**53)], "/0"),
        ({"a": {"é": 1}}, "/a"),
        ({"a/b": {1: 2}}, "/a~1b"),
        ({"a": "\ud800"}, "/a"),
        ({"a": b"bytes"}, "/a"),
        (1.5, "/"),
    ],
)
def test_what_lies_outside_the_subset_is_refused_with_its_pointer(value: Any, pointer: str) -> None:
    """The message starts with the JSON pointer of the offending value."""
    with pytest.raises(ValueError, match=f"^{pointer}: "):
        canonical_json(value)


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":1}',
        b'{"b":1,"a":2}',
        b"1.0",
        b"1e3",
        b"NaN",
        b"-0",
        b"9" * 5000,
        b"9007199254740992",
        b"[" * 200_000,
        b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
        b'"\\ud800"',
        b'"\\u0041"',
        b"\xef\xbb\xbf1",
        b'"\xff"',
        b"1 ",
        b"",
    ],
    ids=lambda data: repr(data[:16]),
)
def test_hostile_or_loose_json_is_one_declared_error(data: bytes) -> None:
    """Probe 69: deep nesting, huge integers, NaN, duplicate keys, lone surrogates and loose spellings are ValueError, never another exception."""
    with pytest.raises(ValueError, match=r"."):
        parse_canonical(data)


def test_values_at_the_edge_of_the_subset_are_taken() -> None:
    """Positive control: the largest integers, the deepest nesting, tuples and mappings pass."""
    deepest: Any = 1
    for _ in range(MAX_DEPTH):
        deepest = [deepest]
    values: list[Any] = [2**53 - 1, -(2**53) + 1, deepest, "\U0001f600\x7f\x00", {"": {}}]
    for value in values:
        assert parse_canonical(canonical_json(value)) == value
    assert canonical_json({"b": (1, None), "a": True}) == b'{"a":true,"b":[1,null]}'


def test_digests_are_sha256_in_hexadecimal() -> None:
    """The digest of a value is the sha256 of its canonical bytes."""
    assert sha256_hex(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert digest_of({"b": 1, "a": []}) == sha256_hex(b'{"a":[],"b":1}')
