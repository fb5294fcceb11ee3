"""Read an attempt: the manifest alone and fast, or everything and verified.

Boundary: reads one file. Not here: the format's rules (format.py), claims about what was read (claims.py).
Rules: bytes are hostile. Whatever they are, the answer is a value or BundleCorrupt / BundleUnsupported, in bounded memory: one frame, one index and one manifest
are held at a time, each under its cap, and a frame is decompressed only when its header states a size within ``FRAME_BYTES``. Only the parts that the manifest
names are read. An opened attempt holds no descriptor: ``part`` reads again and checks again, so that a file changed meanwhile is found.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import zstandard

from runner.bundle.format import (
    EXCHANGES_PART,
    FRAME_BYTES,
    MAX_INDEX_BYTES,
    MAX_MANIFEST_BYTES,
    ZSTD_MAGIC,
    FrameRecord,
    Manifest,
    PartRecord,
    check_manifest,
    corrupt_manifest,
    corrupt_part,
    decode_index,
    frame_count,
    frame_sizes,
    parse_manifest,
)
from runner.canonical import parse_strict, sha256_hex
from runner.errors import BundleCorrupt, BundleUnsupported, InputMissing

if TYPE_CHECKING:
    from runner.gate.exchange import Exchange

_FIRST_READ = 16 << 10
_MAX_FIRST_FRAME = MAX_MANIFEST_BYTES + (MAX_MANIFEST_BYTES >> 8) + 1024


def read_manifest(path: Path | str) -> Manifest:
    """Return the manifest of an attempt from its first frame; the parts are neither read nor verified.

    Raises:
        InputMissing: no such file, or it cannot be read.
        BundleCorrupt: the first frame is no manifest.
        BundleUnsupported: a format version that this release does not know.
    """
    with opened(path) as (fd, size):
        return parse_manifest(_first_frame(fd, size))


def open_attempt(path: Path) -> Attempt:
    """Return an attempt after checking every byte of its file: index, manifest, every frame and every part's sha256.

    Raises:
        InputMissing: no such file, or it cannot be read.
        BundleCorrupt: ``where`` is ``manifest`` or ``part NAME``.
        BundleUnsupported: a format version that this release does not know.
    """
    with opened(path) as (fd, size):
        try:
            frames = _read_index(fd, size)
        except BundleCorrupt:
            _raise_if_unsupported(fd, size)
            raise
        manifest = _verified_manifest(fd, frames)
        places = _places(manifest, frames)
        for place in places.values():
            for _ in _part_pieces(fd, place):
                pass
    return Attempt(path, manifest, places)


@dataclass(frozen=True)
class _Place:
    """A part's record and where it lies in the file: the offset of its first frame, and its frames."""

    part: PartRecord
    offset: int
    frames: tuple[FrameRecord, ...]


@dataclass(frozen=True)
class Attempt:
    """A verified attempt. Parts are read from the file when asked for, and checked each time."""

    path: Path
    manifest: Manifest
    _places: dict[str, _Place]

    @property
    def id(self) -> str:
        """The attempt's identity: the sha256 of its manifest."""
        return self.manifest.id

    @property
    def part_names(self) -> tuple[str, ...]:
        """The names of all parts, in order."""
        return tuple(part.name for part in self.manifest.parts)

    def has(self, name: str) -> bool:
        """True where the attempt has a part of this name."""
        return name in self._places

    def part(self, name: str) -> bytes:
        """Return a part's bytes.

        Raises:
            BundleCorrupt: there is no such part, or the file changed since it was opened.
            InputMissing: the file is gone.
        """
        if name not in self._places:
            raise corrupt_part(name, "the manifest does not name it")
        with opened(self.path) as (fd, _):
            return b"".join(_part_pieces(fd, self._places[name]))

    def json(self, name: str) -> object:
        """Return the value of a JSON part, read strictly (no duplicate keys, no floats, bounded depth).

        Raises:
            BundleCorrupt: as for ``part``, or it is not such JSON.
        """
        try:
            return parse_strict(self.part(name))
        except ValueError as error:
            raise corrupt_part(name, str(error)) from None

    def exchanges(self) -> tuple[Exchange, ...]:
        """Return the recorded exchanges, bodies as they went over the wire. Imports pydantic.

        Raises:
            BundleCorrupt: as for ``part``, or the index of exchanges does not follow its schema.
        """
        from runner.bundle.exchanges import exchanges_from  # late: pydantic

        return exchanges_from(self.json(EXCHANGES_PART), self.part)


class _PerThread(threading.local):
    """A decompressor for each thread: making one costs more than a manifest takes, and none may be shared."""

    def __init__(self) -> None:
        self.decompressor = zstandard.ZstdDecompressor(max_window_size=FRAME_BYTES)


_THREAD = _PerThread()


@contextmanager
def opened(path: Path | str) -> Iterator[tuple[int, int]]:
    """Open a regular file to read, never waiting for a pipe; gives its descriptor and its size. Raises: InputMissing, also for what goes wrong while it is open."""
    try:
        # O_NONBLOCK: opening a fifo must not wait for a writer.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a file name"
        raise InputMissing(f"the attempt cannot be opened: {reason}", where=str(path), hint="check the path") from None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise InputMissing(
                "not a file, so not an attempt", where=str(path), hint="name a file that ends in .attempt"
            )
        yield fd, found.st_size
    except OSError as error:
        raise InputMissing(f"the attempt cannot be read: {error.strerror}", where=str(path)) from error
    finally:
        os.close(fd)


def _first_frame(fd: int, size: int) -> bytes:
    head = os.pread(fd, _FIRST_READ, 0)
    try:
        return _decompress(head, MAX_MANIFEST_BYTES, more_follows=True)
    except ValueError as error:
        if size <= len(head):
            raise corrupt_manifest(str(error)) from None
    try:
        return _decompress(_read(fd, min(size, _MAX_FIRST_FRAME), 0), MAX_MANIFEST_BYTES, more_follows=True)
    except ValueError as error:
        raise corrupt_manifest(str(error)) from None


def _decompress(frame: bytes, limit: int, *, more_follows: bool = False) -> bytes:
    """Return the content of the one zstd frame in ``frame`` (with ``more_follows``: that it begins with); ValueError for anything else."""
    if not frame.startswith(ZSTD_MAGIC):
        raise ValueError("it is no zstd frame")
    try:
        header = zstandard.get_frame_parameters(frame)
        if header.dict_id or header.content_size > limit or header.window_size > FRAME_BYTES:
            raise ValueError("its frame is larger than allowed, or of an unknown size")
        return _THREAD.decompressor.decompress(frame, max_output_size=limit, allow_extra_data=more_follows)
    except (zstandard.ZstdError, MemoryError) as error:
        raise ValueError(f"it cannot be decompressed ({error})") from None


def _read(fd: int, count: int, offset: int) -> bytes:
    """Return ``count`` bytes at ``offset``, fewer only where the file ends."""
    pieces: list[bytes] = []
    while count > 0:
        piece = os.pread(fd, count, offset)
        if not piece:
            break
        pieces.append(piece)
        count -= len(piece)
        offset += len(piece)
    return b"".join(pieces)


def _read_index(fd: int, size: int) -> tuple[FrameRecord, ...]:
    length = min(size, MAX_INDEX_BYTES)
    return decode_index(_read(fd, length, size - length), size)


def _raise_if_unsupported(fd: int, size: int) -> None:
    """A later format may end otherwise: its first frame, if it is clean, still says which version it is."""
    try:
        parse_manifest(_first_frame(fd, size))
    except BundleUnsupported:
        raise
    except BundleCorrupt:
        return


def _verified_manifest(fd: int, frames: tuple[FrameRecord, ...]) -> Manifest:
    frame = _read(fd, frames[0].length, 0)
    if sha256_hex(frame) != frames[0].sha256:
        raise corrupt_manifest("its bytes are not those that were written")
    try:
        data = _decompress(frame, MAX_MANIFEST_BYTES)
    except ValueError as error:
        raise corrupt_manifest(str(error)) from None
    manifest = parse_manifest(data)
    check_manifest(manifest)
    return manifest


def _places(manifest: Manifest, frames: tuple[FrameRecord, ...]) -> dict[str, _Place]:
    if 1 + sum(frame_count(part.bytes) for part in manifest.parts) != len(frames):
        raise corrupt_manifest("the file has more or fewer frames than the manifest's parts")
    places: dict[str, _Place] = {}
    offset, at = frames[0].length, 1
    for part in manifest.parts:
        own = frames[at : at + frame_count(part.bytes)]
        places[part.name] = _Place(part, offset, own)
        offset += sum(frame.length for frame in own)
        at += len(own)
    return places


def _part_pieces(fd: int, place: _Place) -> Iterator[bytes]:
    """Yield a part's bytes frame by frame; only what was checked up to there, and an error at the end where the whole does not hold."""
    part, digest, offset = place.part, hashlib.sha256(), place.offset
    for record, size in zip(place.frames, frame_sizes(part.bytes), strict=True):
        frame = _read(fd, record.length, offset)
        if sha256_hex(frame) != record.sha256:
            raise corrupt_part(part.name, "its bytes are not those that were written")
        try:
            data = _decompress(frame, size)
        except ValueError as error:
            raise corrupt_part(part.name, str(error)) from None
        if len(data) != size:
            raise corrupt_part(part.name, f"a frame holds {len(data)} bytes instead of {size}")
        digest.update(data)
        offset += record.length
        yield data
    if digest.hexdigest() != part.sha256:
        raise corrupt_part(part.name, "its sha256 is not the manifest's")
