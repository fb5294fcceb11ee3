"""Foreign text on a terminal: nothing acts, nothing hides, nothing raises."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.text import visible, visible_bytes

_any_text = st.text(st.characters(), max_size=40)  # surrogates included


@settings(max_examples=500)
@given(_any_text, st.booleans())
def test_nothing_that_a_terminal_acts_on_comes_out(text: str, newlines: bool) -> None:
    """The result encodes as UTF-8, holds no control, format, surrogate or unassigned character, and is its own escape."""
    shown = visible(text, newlines=newlines)
    shown.encode("utf-8")
    left = {unicodedata.category(ch) for ch in shown if not (newlines and ch == "\n")}
    assert not left & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert visible(shown, newlines=newlines) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, naïve, 東京 \u3000 😀", "plain, naïve, 東京 \u3000 😀"),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x9b31m\x7f", "\\x9b31m\\x7f"),
        ("user\u202egnp.exe\u2066\u200f", "user\\u202egnp.exe\\u2066\\u200f"),
        ("half \ud83d cut", "half \\ud83d cut"),
        ("line\u2028sep\U000e0041", "line\\u2028sep\\U000e0041"),
    ],
)
def test_known_tricks_are_written_out(text: str, shown: str) -> None:
    """ANSI, C1, bidirectional overrides, half surrogate pairs (P13) and invisible tags are shown as escapes; ordinary text is left alone."""
    assert visible(text) == shown


def test_a_line_feed_is_kept_on_request() -> None:
    """Several lines stay several lines where the caller wants them, and only line feeds do."""
    assert visible("a\nb\x1b", newlines=True) == "a\nb\\x1b"


@given(st.binary(max_size=40))
def test_bytes_that_are_not_utf8_are_shown(data: bytes) -> None:
    """Any file name can be shown."""
    assert visible_bytes(data).isprintable() or "\u3000" in visible_bytes(data) or " " in visible_bytes(data)
    assert visible_bytes(b"a\xff\nb") == "a\\xff\\nb"
