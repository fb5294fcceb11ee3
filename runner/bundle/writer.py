"""Save an attempt: whole under its final name, or not at all.

Boundary: writes one file into the given directory. Not here: the format (format.py), what goes in (runner/attempt.py).
Rules: nothing is ever replaced, and nothing of a killed writer stays (runner/whole_file.py).
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zstandard

from runner import __version__
from runner.bundle.format import (
    EXCHANGES_PART,
    FRAME_BYTES,
    PLAN_PART,
    FrameRecord,
    Manifest,
    PartRecord,
    build_manifest,
    encode_index,
    file_name,
    part_rank,
)
from runner.canonical import sha256_hex
from runner.errors import BundleUnwritable
from runner.whole_file import leftovers_of, publish, whole_file

__all__ = ["AttemptContent", "encode_file", "publish", "write_attempt"]

if TYPE_CHECKING:
    from runner.gate.exchange import Exchange

_LEVEL = 3
_LEFTOVERS = leftovers_of(r"[a-z0-9-]+-[0-9a-f]{12}\.attempt")
_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file may not become so large",
}


@dataclass(frozen=True)
class AttemptContent:
    """What an attempt keeps."""

    fixture_id: str
    summary: Mapping[str, Any]
    """Small facts for lists, in the canonical subset (no floats; money as strings)."""
    parts: Mapping[str, bytes | Path]
    """Part name to bytes, or to a file that holds them. ``plan.json`` is required; exchanges are not given here. Any order: the format has its own."""
    exchanges: Sequence[Exchange] = ()
    recorded: Mapping[str, bytes] | None = None
    """The exchanges' parts as another attempt has them, in place of ``exchanges``: what an earlier release wrote is not written anew, since its bytes are in that attempt's id."""


def write_attempt(
    directory: Path,
    content: AttemptContent,
    *,
    name: str | None = None,
    check: Callable[[Manifest], None] | None = None,
) -> Path:
    """Save an attempt in ``directory`` (made where missing) and return the path of its file, ``name`` or ``<fixture>-<first 12 of id>.attempt``.

    ``check`` gets the manifest before anything is written, and may refuse it by raising.

    Raises:
        BundleExists: that attempt is there already.
        BundleUnwritable: disk full, no permission, a part over its limit or changing while it was saved; nothing is left under the final name.
        ValueError: the content breaks the format's rules (a part's name, a float in the summary, …): the caller's bug.
    """
    parts = _ordered(content)
    try:
        records = [_record(name, source) for name, source in parts]
        manifest, data = build_manifest(
            content.fixture_id, _plan_digest(records), __version__, content.summary, records
        )
        if check is not None:
            check(manifest)
        directory.mkdir(parents=True, exist_ok=True)
        final = directory / (name or file_name(content.fixture_id, manifest.id))
        _write(final, data, list(zip(records, (source for _, source in parts), strict=True)))
    except OSError as error:
        reason = _FULL.get(error.errno or 0) or error.strerror or str(error)
        raise BundleUnwritable(
            f"the attempt could not be saved: {reason}",
            where=str(error.filename or directory),
            hint="make room, or choose another directory with --out",
        ) from error
    return final


def _ordered(content: AttemptContent) -> list[tuple[str, bytes | Path]]:
    parts: dict[str, bytes | Path] = dict(content.parts)
    if any(name == EXCHANGES_PART or name.startswith("exchanges/") for name in parts):
        raise ValueError("exchanges are given as exchanges, not as parts")
    if PLAN_PART not in parts:
        raise ValueError(f"an attempt without {PLAN_PART}")
    if content.recorded is not None:
        if content.exchanges or EXCHANGES_PART not in content.recorded:
            raise ValueError("exchanges are given once, and with their index")
        parts.update(content.recorded)
    elif content.exchanges:
        from runner.bundle.exchanges import exchange_parts  # late: pydantic

        parts.update(exchange_parts(content.exchanges))
    else:
        parts[EXCHANGES_PART] = b'{"exchanges":[],"schema_version":1}'
    ranked = []
    for name, source in parts.items():
        rank = part_rank(name)
        if rank is None:
            raise ValueError(f"{name!a} is no part of an attempt")
        ranked.append((rank, name, source))
    ranked.sort(key=lambda item: item[0])
    return [(name, source) for _, name, source in ranked]


def _plan_digest(records: Sequence[PartRecord]) -> str:
    return next(record.sha256 for record in records if record.name == PLAN_PART)


def _record(name: str, source: bytes | Path) -> PartRecord:
    if isinstance(source, bytes):
        return PartRecord(name, len(source), sha256_hex(source))
    digest, size = hashlib.sha256(), 0
    for piece in _pieces(source):
        digest.update(piece)
        size += len(piece)
    return PartRecord(name, size, digest.hexdigest())


def _pieces(source: bytes | Path) -> Iterator[bytes]:
    """Yield the content in frames' sizes, at least one piece."""
    if isinstance(source, bytes):
        for start in range(0, max(1, len(source)), FRAME_BYTES):
            yield source[start : start + FRAME_BYTES]
        return
    with source.open("rb") as file:
        piece = file.read(FRAME_BYTES)
        yield piece
        while len(piece) == FRAME_BYTES:
            piece = file.read(FRAME_BYTES)
            if piece:
                yield piece


def _write(final: Path, manifest: bytes, parts: Sequence[tuple[PartRecord, bytes | Path]]) -> None:
    with whole_file(final.parent, final.name, kind=_LEFTOVERS) as whole:
        for piece in encode_file(manifest, parts):
            whole.file.write(piece)
        whole.publish(final)


def encode_file(manifest: bytes, parts: Sequence[tuple[PartRecord, bytes | Path]]) -> Iterator[bytes]:
    """Yield the bytes of an attempt file: the manifest's frame, the parts' frames, the index.

    Raises:
        BundleUnwritable: a part is not what its record says (its file changed meanwhile).
        OSError: a part's file cannot be read.
    """
    compressor = zstandard.ZstdCompressor(level=_LEVEL)
    frames: list[FrameRecord] = []

    def frame(data: bytes) -> bytes:
        packed = compressor.compress(data)
        frames.append(FrameRecord(len(packed), sha256_hex(packed)))
        return packed

    yield frame(manifest)
    for record, source in parts:
        digest, size = hashlib.sha256(), 0
        for piece in _pieces(source):
            digest.update(piece)
            size += len(piece)
            yield frame(piece)
        if size != record.bytes or digest.hexdigest() != record.sha256:
            raise BundleUnwritable(f"part {record.name!a} changed while the attempt was saved", where=str(source))
    yield encode_index(frames)
