"""Keeping the real key out of what the CLI sees and out of the record.

Boundary: pure. Not here: where the key comes from; the key's way to the provider (upstreams/anthropic.py).
Rules: CLI and record get the same bytes. The key is found across piece borders: a piece's end that may be the beginning of the key is held back
until more arrives. The key is found as it is written and with any of its characters as JSON escapes, since whoever reads the JSON has it plain; not in another encoding
(base64) made by a provider that wants to smuggle it. Escapes are looked for only where the bytes that every escape of a key's character begins with are there.
An encoded body cannot be searched as it passes: it is held whole, decoded, searched, and then passed on untouched or not at all.
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache

PART_COUNTS_FROM = 12
"""A body that ends in at least so many first characters of the key is taken to hold the key."""

MAX_DECODED_BYTES = 256 * 1024 * 1024
"""Most that an encoded body may decode to; one that passes it is a bomb and is not passed on."""

_ZSTD_STEP = 1024
"""Bytes decoded at a time: a zstd block of a few bytes may stand for 128 kB, so that one step makes at most some 32 MB."""

_ESCAPE = re.compile(rb'\\(?:u00[0-9a-fA-F]{2}|["/])')
_ESCAPE_BYTES = 6
_PRINTABLE = re.compile(rb"\\u00[2-7]")
_SHORT = b'"/'
"""Characters of a key that JSON also writes with a backslash before them, as some encoders do of their own accord."""


class Scrubber:
    """Replaces the key in one response. ``count`` says how often."""

    def __init__(self, key: bytes | None, placeholder: bytes) -> None:
        self.count = 0
        self._key = key or b""
        self._placeholder = placeholder
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """Return what of ``piece`` (and of what was held back) may be passed on now."""
        if not self._key:
            return piece
        data = self.whole(self._held + piece)
        keep = _partial(data, self._key)
        self._held = data[len(data) - keep :]
        return data[: len(data) - keep]

    def close(self) -> bytes:
        """Return the last bytes; a long beginning of the key at the very end counts as the key."""
        held, self._held = self._held, b""
        if len(_ESCAPE.sub(b".", held)) >= PART_COUNTS_FROM:
            self.count += 1
            return self._placeholder
        return held

    def whole(self, data: bytes) -> bytes:
        """Return ``data``, complete as it is, without the key; the same object where there is none."""
        if not self._key:
            return data
        if self._key in data:
            self.count += data.count(self._key)
            data = data.replace(self._key, self._placeholder)
        if _may_hold_escaped(data, self._key):
            without, found = _written(self._key).subn(lambda _: self._placeholder, data)
            if found:
                self.count += found
                return without
        return data

    def text(self, value: str) -> str:
        """Return a header value without the key."""
        return self.whole(value.encode("latin-1")).decode("latin-1") if self._key else value


def holds(data: bytes, key: bytes) -> bool:
    """Return whether the key is in ``data``, plain or with escapes."""
    return key in data or (_may_hold_escaped(data, key) and _written(key).search(data) is not None)


def _may_hold_escaped(data: bytes, key: bytes) -> bool:
    """Return whether ``data`` has what every escape of a key's character begins with: the one search that ordinary traffic pays."""
    # The second search is for output of terminals, which is full of escapes (\u001b) that are none of a key's.
    return (b"\\u00" in data and _PRINTABLE.search(data) is not None) or any(
        byte in key and b"\\%c" % byte in data for byte in _SHORT
    )


@lru_cache(maxsize=4)
def _written(key: bytes) -> re.Pattern[bytes]:
    """Return what finds the key with each character plain or as a JSON escape."""
    return re.compile(b"".join(b"(?:%b)" % b"|".join(_forms(byte)) for byte in key))


def _forms(byte: int) -> list[bytes]:
    digits = b"".join(b"[%c%c]" % (low, low - 32) if low > 57 else b"%c" % low for low in b"%02x" % byte)
    return [re.escape(b"%c" % byte), b"\\\\u00" + digits, *([b"\\\\%c" % byte] if byte in _SHORT else [])]


def _partial(data: bytes, key: bytes) -> int:
    """Return the length of the longest end of ``data`` that is a beginning of ``key``, but not all of it."""
    start = max(0, len(data) - _ESCAPE_BYTES * len(key) + 1)
    if data.find(b"\\", start) >= 0:
        for first in re.compile(b"[\\\\%b]" % re.escape(key[:1])).finditer(data, start):
            if _begins(data, first.start(), key):
                return len(data) - first.start()
        return 0
    start = max(0, len(data) - len(key) + 1)
    while (start := data.find(key[:1], start)) >= 0:
        if key.startswith(data[start:]):
            return len(data) - start
        start += 1
    return 0


def _begins(data: bytes, at: int, key: bytes) -> bool:
    """Return whether everything from ``at`` on is a beginning of ``key``; an escape may be cut as well."""
    for byte in key:
        rest = data[at : at + _ESCAPE_BYTES]
        if not rest:
            return True
        escape = b"\\u00%02x" % byte
        if rest[:2] + rest[2:].lower() == escape:
            at += _ESCAPE_BYTES
        elif rest[0] == byte:
            at += 1
        elif byte in _SHORT and rest[:2] == b"\\%c" % byte:
            at += 2
        else:
            return len(rest) < _ESCAPE_BYTES and escape.startswith(rest[:2] + rest[2:].lower())  # to its end
    return False


def decode(body: bytes, encoding: str) -> bytes | None:
    """Return the decoded form of a whole body, or None if this release cannot decode it (``br``, two encodings, damage, a bomb)."""
    name = encoding.strip().lower()
    if name in {"", "identity"}:
        return body
    if name in {"gzip", "x-gzip", "deflate"}:
        return _inflated(body, 31 if name != "deflate" else 15)
    if name == "zstd":
        return _unzstd(body)
    return None


def _inflated(body: bytes, window_bits: int) -> bytes | None:
    out = bytearray()
    try:
        while body:
            unpacker = zlib.decompressobj(window_bits)
            out += unpacker.decompress(body, MAX_DECODED_BYTES + 1 - len(out))
            if not unpacker.eof or len(out) > MAX_DECODED_BYTES:
                return None
            body = unpacker.unused_data
    except zlib.error:
        return None
    return bytes(out)


def _unzstd(body: bytes) -> bytes | None:
    import zstandard

    out = bytearray()
    try:
        while body:
            unpacker = zstandard.ZstdDecompressor(max_window_size=2**27).decompressobj()
            start = 0
            while start < len(body) and not unpacker.eof:
                out += unpacker.decompress(body[start : start + _ZSTD_STEP])
                start += _ZSTD_STEP
                if len(out) > MAX_DECODED_BYTES:
                    return None
            if not unpacker.eof:
                return None
            body = unpacker.unused_data + body[start:]
    except zstandard.ZstdError:
        return None
    return bytes(out)
