"""Bytes to lines to objects (A9)."""

from __future__ import annotations

import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.claude.lines import LineSplitter, decode_line, loads


def _split(pieces: list[bytes], limit: int = 1 << 20) -> tuple[list[bytes | None], bool]:
    splitter = LineSplitter(limit)
    lines = [line for piece in pieces for line in splitter.feed(piece)]
    return [*lines, *splitter.close()], splitter.overflow


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=12), st.integers(1, 40))
def test_cuts_do_not_matter(data: bytes, cuts: list[int], limit: int) -> None:
    """However the bytes are cut, the lines and the overflow flag are those of the whole."""
    data = data.replace(b"x", b"\n")
    edges = sorted({0, len(data), *(cut for cut in cuts if cut <= len(data))})
    pieces = [data[start:end] for start, end in itertools.pairwise(edges)]
    expected = [None if len(line) > limit else line for line in data.split(b"\n")]
    if data.endswith(b"\n") or not data:
        expected.pop()
    assert _split(pieces, limit) == (expected, None in expected)


def test_only_0x0a_ends_a_line() -> None:
    """Carriage returns, vertical tabs, form feeds and Unicode's separators are inside a line."""
    data = "a\r\x0b\x0c\x85\u2028b".encode()
    assert _split([data + b"\n"]) == ([data], False)


@pytest.mark.parametrize("limit", [8, 9])
def test_a_line_over_the_bound_is_dropped_and_flagged(limit: int) -> None:
    """Nine bytes pass a bound of nine and not one of eight; the lines around are kept."""
    lines, overflow = _split([b"a\n12345", b"6789\nb\n"], limit)
    assert lines == [b"a", b"123456789" if limit == 9 else None, b"b"]
    assert overflow is (limit == 8)


@pytest.mark.parametrize(
    "line",
    [
        b"hello",
        b"42",
        b'"text"',
        b"[1]",
        b"null",
        b"true",
        b"{",
        b'{"a": 1',
        b'{"a": 1} x',
        b'{"a": 1}}',
        b'{"a": 1} [2]',
        b'{"a": 1}, {"a": 2}',
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": NaN}{"b": 1}',
        b"{'a': 1}",
        b'{"a": 1,}',
        b'{"a": 01}',
        b'{"a": "\x01"}',
        b'{"type": "\\ud83d", "a": "\x01"}',
        b"\x00",
        b"\xff\xfe",
        b'{"a": ' + b"[" * 200_000 + b"]" * 199_999 + b"}",
        b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"} x",
        b'{"a": ' + b"[" * 200_000,
        b'{"a":' * 200_000,
    ],
    ids=lambda line: repr(line[:24]),
)
def test_what_is_no_object_or_leaves_a_rest_is_unparsable(line: bytes) -> None:
    """No JSON, a rest left over, a value that is no object, whatever its depth: the whole line is refused."""
    assert decode_line(line) is None


@pytest.mark.parametrize(
    ("line", "types"),
    [
        (b'{"type": "a"}', ["a"]),
        (b' {"type": "a"} ', ["a"]),
        (b'{"type": "a"}{"type": "b"}', ["a", "b"]),
        (b'{"type": "a"} \t{"type": "b"}{}', ["a", "b", None]),
        (b'{"type": "a", "type": "b"}', ["b"]),
        (b'{"type": "a", "n": ' + b"9" * 5000 + b"}", ["a"]),
        (b'{"type": ' + b"9" * 5000 + b"}", [math.inf]),
        (b'{"type": -' + b"9" * 5000 + b"}", [-math.inf]),
        (b'{"type": "a", "x": ' + b"[" * 200_000 + b"]" * 200_000 + b'} {"type": "b"}', ["a", "b"]),
        (b'{"type": "a", "n": 1e999}', ["a"]),
        (b'{"type": "a", "b": "\\ud83d"}', ["a"]),
        (b'{"type": "a\\ud83d"}', ["a\ud83d"]),
        (b'{"type": "\xff"}', ["\ufffd"]),
        (b'{"type": "a", "b": "\xff"}', ["a"]),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_can_be_read_is_read(line: bytes, types: list[str]) -> None:
    """Joined values, duplicate keys (the last wins), huge numbers, any depth, lone surrogates and bad UTF-8 lose nothing."""
    decoded = decode_line(line)
    assert decoded is not None
    assert [event.type for event in decoded.events] == types


def test_oddities_are_counted() -> None:
    """Undecodable characters are counted, one that was U+FFFD before is not; lone surrogates are told, pairs are no oddity."""
    replaced = decode_line('{"a": "\ufffd'.encode() + b'\xff\xfe"}')
    assert replaced is not None
    assert replaced.replaced == 2
    lone, pair = decode_line(b'{"a": "\\ud83d"}'), decode_line(b'{"a": "\\ud83d\\ude00"}')
    assert lone is not None
    assert pair is not None
    assert (lone.lone_surrogates, pair.lone_surrogates) == (True, False)


@given(st.binary(max_size=60))
def test_any_line_is_a_value_or_none(line: bytes) -> None:
    """Whatever the bytes, nothing is raised."""
    decode_line(line)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(_JSON, st.booleans())
def test_both_paths_accept_the_same_lines(value: object, ascii_only: bool) -> None:
    """What the standard library writes is read by either path: an object as one event, any other value not at all."""
    line = json.dumps(value, ensure_ascii=ascii_only).encode(errors="surrogatepass")
    assert (decode_line(line) is not None) is isinstance(value, dict)


@pytest.mark.parametrize("data", [b"", b"x", b"1 2", b"[" * 100_000])
def test_a_document_that_is_none_is_one_declared_error(data: bytes) -> None:
    """``loads`` raises ValueError and nothing else."""
    with pytest.raises(ValueError, match="no JSON"):
        loads(data)
    assert loads(b'{"a": "\\ud83d"}') == {"a": "\ud83d"}
