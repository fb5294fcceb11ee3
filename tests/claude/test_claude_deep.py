"""The reader for any depth agrees with the standard library wherever that can read (A9)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.claude.deep import TooDeep, read_values
from runner.claude.lines import decode_line, loads

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


def _standard(text: str) -> list[Any] | None:
    values, position = [], 0
    decoder = json.JSONDecoder()
    while rest := text[position:].lstrip(" \t\r\n"):
        try:
            value, used = decoder.raw_decode(rest)
        except ValueError:
            return None
        values.append(value)
        position = len(text) - len(rest) + used
    return values


@given(st.lists(_JSON, max_size=3), st.booleans(), st.sampled_from([None, 1]))
def test_any_values_are_read_as_the_standard_library_reads_them(
    values: list[Any], ascii_only: bool, indent: int | None
) -> None:
    """Several values, escapes, blanks between tokens: the same values come out."""
    text = " ".join(json.dumps(value, ensure_ascii=ascii_only, indent=indent) for value in values)
    assert read_values(text, json.loads, 100) == values


@given(st.text(alphabet='[]{}:,"\\ \n0123-+.eEtrufalsn', max_size=14))
def test_any_text_is_accepted_or_refused_as_by_the_standard_library(text: str) -> None:
    """Whatever the text, the answers are equal, whether everything is kept or nothing below the first level."""
    expected = _standard(text)
    assert read_values(text, json.loads, 100) == expected
    assert (read_values(text, json.loads, 1) is None) is (expected is None)


def test_what_lies_too_deep_is_checked_and_not_kept() -> None:
    """Above the depth all is kept; below it one stand-in, which is no JSON value."""
    (value,) = read_values('{"a": [1, [2, {"b": 3}], 4], "c": 5}', json.loads, 2) or []
    assert value["c"] == 5
    assert (value["a"][0], type(value["a"][1]), value["a"][2]) == (1, TooDeep, 4)
    with pytest.raises(TypeError):
        json.dumps(value)


@pytest.mark.parametrize("depth", [900, 1_100, 50_000])
def test_no_depth_makes_a_line_or_a_document_unreadable(depth: int) -> None:
    """A deep value beside the facts costs nothing but itself: the other fields are read as ever."""
    for opener, closer in (("[", "]"), ('{"k":', "}")):
        deep = opener * depth + "0" + closer * depth
        line = decode_line(f'{{"type": "result", "x": {deep}, "result": "42"}}'.encode())
        assert line is not None
        assert [(event.type, event.result) for event in line.events] == [("result", "42")]
        assert loads(f'{{"messages": [], "x": {deep}}}'.encode())["messages"] == []
