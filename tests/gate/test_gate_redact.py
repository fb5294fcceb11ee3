"""Redaction of the key, as a pure function of the pieces."""

from __future__ import annotations

import gzip
import zlib
from itertools import pairwise

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from runner.gate import redact
from runner.gate.redact import Scrubber, decode, holds

KEY = b"abcabcabd"


def scrub(pieces: list[bytes], key: bytes | None = KEY) -> tuple[list[bytes], int]:
    scrubber = Scrubber(key, b"#")
    out = [scrubber.feed(piece) for piece in pieces]
    return [*out, scrubber.close()], scrubber.count


@given(st.lists(st.sampled_from([b"a", b"b", b"c", b"d", b"abc", b"abcabcabd", b"x", b"\n"]), max_size=30))
def test_any_cutting_gives_the_same_as_replacing_in_the_whole(pieces: list[bytes]) -> None:
    """A key with a repeating beginning, cut anywhere."""
    out, count = scrub(pieces)
    whole = b"".join(pieces)
    assert b"".join(out) == whole.replace(KEY, b"#")
    assert count == whole.count(KEY)
    for end in range(len(out)):
        assert KEY not in b"".join(out[: end + 1])


@given(st.lists(st.binary(max_size=20), max_size=10))
def test_without_a_key_every_piece_passes_as_it_is(pieces: list[bytes]) -> None:
    """The scripted upstream's hot path holds nothing back."""
    assert scrub(pieces, None) == ([*pieces, b""], 0)


def test_an_ordinary_event_is_not_held_back() -> None:
    """Only an end that may begin the key waits for more."""
    assert Scrubber(KEY, b"#").feed(b'data: {"a":1}\n\n') == b'data: {"a":1}\n\n'
    assert Scrubber(KEY, b"#").feed(b"xx abcab") == b"xx "


ESCAPED_KEY = b"ab/ab-abc+x"


def escaped(key: bytes, how: int) -> bytes:
    """The key with some of its characters as JSON escapes: bit n of ``how`` for character n, in digits of either case."""
    digits = b"\\u00%02X" if how % 3 else b"\\u00%02x"
    return b"".join(digits % byte if how >> place & 1 else b"%c" % byte for place, byte in enumerate(key))


@given(st.integers(1, 2 ** len(ESCAPED_KEY) - 1), st.lists(st.integers(0, 80), max_size=8), st.sampled_from([b"", b"ab", b"\\u0061b", b"\\n"]))  # fmt: skip
def test_a_key_in_escapes_is_found_wherever_it_is_cut(how: int, cuts: list[int], before: bytes) -> None:
    """Any characters of it, in any pieces, behind what looks like its beginning: replaced, counted once, and what stands around it is kept."""
    text = before + escaped(ESCAPED_KEY, how) + b"-end"
    ends = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[start:end] for start, end in pairwise(ends)]
    out, count = scrub(pieces, ESCAPED_KEY)
    assert (b"".join(out), count) == (before + b"#-end", 1)
    assert holds(text, ESCAPED_KEY)


@given(
    st.lists(
        st.sampled_from([b"a", b"b", b"/", b"\\/", b"\\u0061", b"\\u002F", b"\\u00", b"\\", b"ab/ab", b"u0062"]),
        max_size=40,
    )
)
def test_nothing_is_left_of_a_key_that_may_be_escaped(pieces: list[bytes]) -> None:
    """Any mixture, in any pieces: what went out holds no key in any form, and what never held one is as it was."""
    key = b"ab/ab"
    out, count = scrub(pieces, key)
    whole = b"".join(pieces)
    assert not holds(b"".join(out), key)
    assert bool(count) == holds(whole, key)
    if not count:
        assert b"".join(out) == whole


@pytest.mark.parametrize("text", [b"sk\\u002dant", b"sk-ant\\/1", b"sk-ant\\/", b"sk-\\u0061nt\\u002", b"\\\\u0073k"])
def test_other_escapes_pass_as_they_are(text: bytes) -> None:
    """Part of a key in escapes, an escape that is cut at the end of all, and one that says something else."""
    out, count = scrub([b'{"a":"\\n\\u00e4', text, b'"}'], b"sk-ant/12-and-more")
    assert (b"".join(out), count) == (b'{"a":"\\n\\u00e4' + text + b'"}', 0)
    assert scrub([b"sk-ant\\/12\\u002dand-more"], b"sk-ant/12-and-more")[1] == 1


@given(st.binary(max_size=5000))
def test_whole_bodies_are_decoded(data: bytes) -> None:
    """gzip (also in several members), zlib, zstd (also in several frames), and none."""
    half = len(data) // 2
    assert decode(gzip.compress(data[:half]) + gzip.compress(data[half:]), "GZIP") == data
    assert decode(zlib.compress(data), "deflate") == data
    assert decode(zstandard.compress(data[:half]) + zstandard.compress(data[half:]), "zstd") == data
    assert decode(data, "identity") == data


@given(st.binary(max_size=200), st.sampled_from(["gzip", "deflate", "zstd", "br", "gzip,gzip", "x"]))
def test_what_cannot_be_decoded_is_none(data: bytes, encoding: str) -> None:
    """Any bytes: a value or None, never an exception."""
    assert decode(data, encoding) is None or isinstance(decode(data, encoding), bytes)


def test_cut_bodies_and_bombs_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a body could hide the key in the other half; a bomb could fill the memory."""
    monkeypatch.setattr(redact, "MAX_DECODED_BYTES", 1_000_000)
    data = bytes(3_000_000)
    for encoding, body in (
        ("gzip", gzip.compress(data)),
        ("zstd", zstandard.compress(data)),
        ("deflate", zlib.compress(data)),
    ):
        assert decode(body, encoding) is None
    small = bytes(1000)
    for encoding, body in (
        ("gzip", gzip.compress(small)),
        ("zstd", zstandard.compress(small)),
        ("deflate", zlib.compress(small)),
    ):
        assert decode(body, encoding) == small
        assert decode(body[:-1], encoding) is None
