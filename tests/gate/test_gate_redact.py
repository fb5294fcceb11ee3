"""Redaction of the key, as a pure function of the pieces."""

from __future__ import annotations

import gzip
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from runner.gate import redact
from runner.gate.redact import Scrubber, decode

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
