"""Keeping the real key out of what the CLI sees and out of the record.

Boundary: pure. Not here: where the key comes from; the key's way to the provider (upstreams/anthropic.py).
Rules: CLI and record get the same bytes. The key is found across piece borders: a piece's end that may be the beginning of the key is held back
until more arrives. Only the key as it is written is found, not an encoding of it made by a provider that wants to smuggle it.
An encoded body cannot be searched as it passes: it is held whole, decoded, searched, and then passed on untouched or not at all.
"""

from __future__ import annotations

import zlib

PART_COUNTS_FROM = 12
"""A body that ends in at least so many first characters of the key is taken to hold the key."""

MAX_DECODED_BYTES = 256 * 1024 * 1024
"""Most that an encoded body may decode to; one that passes it is a bomb and is not passed on."""

_ZSTD_STEP = 1024
"""Bytes decoded at a time: a zstd block of a few bytes may stand for 128 kB, so that one step makes at most some 32 MB."""


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
        if len(held) >= PART_COUNTS_FROM:
            self.count += 1
            return self._placeholder
        return held

    def whole(self, data: bytes) -> bytes:
        """Return ``data``, complete as it is, without the key."""
        if not self._key or self._key not in data:
            return data
        self.count += data.count(self._key)
        return data.replace(self._key, self._placeholder)

    def text(self, value: str) -> str:
        """Return a header value without the key."""
        return self.whole(value.encode("latin-1")).decode("latin-1") if self._key else value


def _partial(data: bytes, key: bytes) -> int:
    """Return the length of the longest end of ``data`` that is a beginning of ``key``, but not all of it."""
    start = max(0, len(data) - len(key) + 1)
    while (start := data.find(key[:1], start)) >= 0:
        if key.startswith(data[start:]):
            return len(data) - start
        start += 1
    return 0


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
