"""Each check of a part stands by itself: what one of them alone can find is found where all the others are content."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import zstandard

from runner.bundle import open_attempt
from runner.bundle.format import FRAME_BYTES, FrameRecord, encode_index
from runner.errors import BundleCorrupt

PART = "output.txt"
TEXT = b"The reserve is 42 units."


def pack(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def frame_of(pieces: Any) -> int:
    """The place of the part's one frame; the manifest's is the first, and every part of this attempt has one."""
    return 1 + [part["name"] for part in pieces.manifest()["parts"]].index(PART)


def refusal(path: Path, data: bytes) -> BundleCorrupt:
    path.write_bytes(data)
    with pytest.raises(BundleCorrupt) as caught:
        open_attempt(path)
    return caught.value


def test_a_part_of_another_content_is_not_the_manifests(pieces: Any, scratch: Path) -> None:
    """Frame, length and index are right, and only the manifest's sha256 says that it is another text; the text itself, put in the same way, is read (control)."""
    at = frame_of(pieces)
    pieces.frames[at] = pack(TEXT)
    scratch.write_bytes(pieces.data())
    assert open_attempt(scratch).part(PART) == TEXT
    pieces.frames[at] = pack(TEXT.replace(b"42", b"43"))
    found = refusal(scratch, pieces.data())
    assert found.where == f"part {PART}"
    assert "not the manifest's" in found.message


def test_a_frame_that_was_packed_otherwise_is_not_the_one_that_was_written(pieces: Any, scratch: Path) -> None:
    """The content is right to the byte, and only the index's sha256 says that these are other bytes of the file; with an index of its own it is read (control)."""
    at = frame_of(pieces)
    records = [FrameRecord(len(frame), hashlib.sha256(frame).hexdigest()) for frame in pieces.frames]
    again = zstandard.ZstdCompressor(level=3, write_checksum=True).compress(TEXT)
    assert again != pieces.frames[at]
    pieces.frames[at] = again
    scratch.write_bytes(pieces.data())
    assert open_attempt(scratch).part(PART) == TEXT
    records[at] = FrameRecord(len(again), records[at].sha256)
    found = refusal(scratch, b"".join(pieces.frames) + encode_index(records))
    assert found.where == f"part {PART}"
    assert "not those that were written" in found.message


def test_a_part_that_is_shorter_than_the_manifest_says_is_refused(pieces: Any, scratch: Path) -> None:
    """Digest and index are those of the shorter text, and only its length is another; with the length told it is read (control)."""
    at = frame_of(pieces)
    shorter, manifest = TEXT[:-1], pieces.manifest()
    pieces.frames[at] = pack(shorter)
    record = manifest["parts"][at - 1]
    record.update(bytes=len(shorter), sha256=hashlib.sha256(shorter).hexdigest())
    pieces.set_manifest(manifest)
    scratch.write_bytes(pieces.data())
    assert open_attempt(scratch).part(PART) == shorter
    record["bytes"] = len(TEXT)
    pieces.set_manifest(manifest)
    found = refusal(scratch, pieces.data())
    assert found.where == f"part {PART}"
    assert f"holds {len(shorter)} bytes instead of {len(TEXT)}" in found.message


def written_by_hand(data: bytes, window: int) -> bytes:
    """One zstd frame by RFC 8878, with one raw block: its content's size is told, and so is a window of 2 to the power ``window`` bytes."""
    head = b"\x28\xb5\x2f\xfd" + bytes([0x80, (window - 10) << 3]) + len(data).to_bytes(4, "little")
    return head + (len(data) << 3 | 1).to_bytes(3, "little") + data


def test_a_frame_that_asks_for_more_memory_than_a_frame_may_have_is_refused(pieces: Any, scratch: Path) -> None:
    """A few bytes may ask for a window of gigabytes; the largest window that a frame of ours can need is read (control)."""
    at = frame_of(pieces)
    pieces.frames[at] = written_by_hand(TEXT, 23)
    scratch.write_bytes(pieces.data())
    assert FRAME_BYTES == 1 << 23
    assert open_attempt(scratch).part(PART) == TEXT
    for window in (24, 27, 31):
        pieces.frames[at] = written_by_hand(TEXT, window)
        found = refusal(scratch, pieces.data())
        assert found.where == f"part {PART}"
        assert "larger than allowed" in found.message
