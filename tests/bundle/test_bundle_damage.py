"""Damage of any kind is found and named, and no bytes can do more than be refused."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.bundle import AttemptContent, open_attempt, read_manifest, write_attempt
from runner.bundle.format import FRAME_BYTES, INDEX_MAGIC, FrameRecord, decode_index, encode_index, frame_count
from runner.errors import BundleCorrupt, BundleUnsupported

_shared = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@settings(_shared, max_examples=400)
@given(st.data())
def test_any_flipped_bit_is_found_and_named(attempt_bytes: bytes, scratch: Path, data: st.DataObject) -> None:
    """Acceptance 8: one flipped bit anywhere, also where zstd would not notice, is BundleCorrupt and names exactly the part that it hit, or the manifest."""
    position = data.draw(st.integers(0, len(attempt_bytes) - 1))
    damaged = bytearray(attempt_bytes)
    damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    scratch.write_bytes(attempt_bytes)
    owner = _owners(scratch, attempt_bytes)(position)
    scratch.write_bytes(damaged)
    with pytest.raises(BundleCorrupt) as caught:
        open_attempt(scratch)
    assert caught.value.where == owner
    assert owner.removeprefix("part ") in caught.value.message


def _owners(path: Path, data: bytes) -> Callable[[int], str]:
    names = ["manifest"]
    for part in open_attempt(path).manifest.parts:
        names += [f"part {part.name}"] * frame_count(part.bytes)
    ends, offset = [], 0
    for frame in decode_index(data, len(data)):
        offset += frame.length
        ends.append(offset)
    return lambda position: next((name for name, end in zip(names, ends, strict=True) if position < end), "manifest")


@settings(_shared, max_examples=150)
@given(st.data())
def test_a_file_cut_anywhere_is_found(attempt_bytes: bytes, scratch: Path, data: st.DataObject) -> None:
    """A truncated file, the empty one included, is BundleCorrupt and names the manifest, whose index stands at the end."""
    scratch.write_bytes(attempt_bytes[: data.draw(st.integers(0, len(attempt_bytes) - 1))])
    with pytest.raises(BundleCorrupt) as caught:
        open_attempt(scratch)
    assert caught.value.where == "manifest"


@settings(_shared, max_examples=60)
@given(st.data())
def test_appended_bytes_are_found(attempt_bytes: bytes, scratch: Path, data: st.DataObject) -> None:
    """Nothing may follow the index: not a byte, not another index, not another attempt."""
    index = attempt_bytes[attempt_bytes.rindex(INDEX_MAGIC) :]
    extra = data.draw(
        st.binary(min_size=1, max_size=40)
        | st.sampled_from([index, attempt_bytes, INDEX_MAGIC, INDEX_MAGIC + bytes(4)])
    )
    scratch.write_bytes(attempt_bytes + extra)
    with pytest.raises(BundleCorrupt) as caught:
        open_attempt(scratch)
    assert caught.value.where == "manifest"


@settings(_shared, max_examples=150)
@given(st.data())
def test_any_bytes_give_a_value_or_a_declared_error(attempt_bytes: bytes, scratch: Path, data: st.DataObject) -> None:
    """Random bytes, or an attempt with random bytes spliced in, raise BundleCorrupt or BundleUnsupported and nothing else."""
    start = data.draw(st.integers(0, len(attempt_bytes)))
    end = data.draw(st.integers(start, len(attempt_bytes)))
    spliced = attempt_bytes[:start] + data.draw(st.binary(max_size=60)) + attempt_bytes[end:]
    scratch.write_bytes(data.draw(st.sampled_from([spliced, data.draw(st.binary(max_size=80))])))
    for read in (read_manifest, open_attempt):
        _where(read, scratch)


def _where(read: Callable[[Path], object], path: Path) -> str:
    """Read a file; return where it is damaged, or ``opened``. Any error but the declared two comes through and fails the test."""
    try:
        read(path)
    except (BundleCorrupt, BundleUnsupported) as error:
        return error.where
    return "opened"


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.text(max_size=12)
    | st.sampled_from(["a" * 64, "plan.json", "../x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(_shared, max_examples=200)
@given(st.data())
def test_a_forged_manifest_gives_a_value_or_a_declared_error(pieces: Any, scratch: Path, data: st.DataObject) -> None:
    """A manifest of any shape in an otherwise right file raises nothing but BundleCorrupt or BundleUnsupported."""
    manifest = pieces.manifest()
    where = data.draw(st.sampled_from([*manifest, "new", "part"]))
    if where == "part":
        part = data.draw(st.sampled_from(manifest["parts"]))
        part[data.draw(st.sampled_from(["name", "bytes", "sha256", "new"]))] = data.draw(_json)
    else:
        manifest[where] = data.draw(_json)
    forged = type(pieces)(list(pieces.frames))
    forged.set_manifest(manifest)
    scratch.write_bytes(forged.data())
    for read in (read_manifest, open_attempt):
        assert re.match(r"(opened|manifest|part .+)\Z", _where(read, scratch), re.DOTALL)


@pytest.mark.parametrize(
    "name",
    [
        "../plan.json",
        "/etc/passwd",
        "skill-tree/../x",
        "skill-tree//x",
        "workspace/x",
        "exchanges/1.request",
        "notes.txt",
        "skill-tree/a\n",
    ],
)
def test_a_part_outside_the_allow_list_is_refused(pieces: Any, scratch: Path, name: str) -> None:
    """Probe 68: absolute names, parents, unknown parts and control characters are refused by the reader although every digest is right."""
    manifest = pieces.manifest()
    manifest["parts"][2]["name"] = name
    pieces.set_manifest(manifest)
    scratch.write_bytes(pieces.data())
    with pytest.raises(BundleCorrupt, match="no part of an attempt"):
        open_attempt(scratch)


def test_two_parts_of_one_name_a_hidden_frame_and_trailing_bytes_in_a_frame_are_refused(
    pieces: Any, scratch: Path
) -> None:
    """No byte of a file is outside what the manifest names; the untouched file, put together the same way, opens (positive control)."""
    scratch.write_bytes(pieces.data())
    assert open_attempt(scratch).part("output.txt") == b"The reserve is 42 units."

    manifest = pieces.manifest()
    manifest["parts"][3] = dict(manifest["parts"][2])
    twice = type(pieces)(list(pieces.frames))
    twice.set_manifest(manifest)
    hidden = type(pieces)([*pieces.frames, zstandard.ZstdCompressor().compress(b"hidden")])
    trailing = type(pieces)([*pieces.frames[:3], pieces.frames[3] + b"hidden", *pieces.frames[4:]])
    for forged, words in ((twice, "two parts"), (hidden, "more or fewer frames"), (trailing, "cannot be decompressed")):
        scratch.write_bytes(forged.data())
        with pytest.raises(BundleCorrupt, match=words):
            open_attempt(scratch)


def _bombs() -> dict[str, bytes]:
    huge = b"\0" * (64 << 20)
    streaming = zstandard.ZstdCompressor().compressobj()  # no content size in the header
    return {
        "larger than its record": zstandard.ZstdCompressor().compress(huge),
        "of unknown size": streaming.compress(huge) + streaming.flush(),
        "a skippable frame": INDEX_MAGIC + (4).to_bytes(4, "little") + b"abcd",
        "states a terabyte": b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little") + b"\x01\0\0",
        "needs a dictionary": b"\x28\xb5\x2f\xfd\x21\x07\x01\x01\0\0",
    }


@pytest.mark.parametrize("kind", list(_bombs()))
@pytest.mark.parametrize("place", ["manifest", "part"])
def test_a_bomb_is_refused_before_it_is_unpacked(pieces: Any, scratch: Path, kind: str, place: str) -> None:
    """Probe 68: a frame that unpacks to more than its record, or does not say to how much, is refused, in the manifest's place and in a part's."""
    at = 0 if place == "manifest" else 3
    pieces.frames[at] = _bombs()[kind]
    scratch.write_bytes(pieces.data())
    with pytest.raises(BundleCorrupt) as caught:
        open_attempt(scratch)
    assert caught.value.where.startswith(place)
    if place == "manifest":
        with pytest.raises(BundleCorrupt):
            read_manifest(scratch)


_MEASURE = """
import resource, sys
from pathlib import Path
from runner.bundle import open_attempt
from runner.errors import BundleCorrupt
open_attempt(Path(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    open_attempt(Path(sys.argv[2]))
except BundleCorrupt:
    pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_stays_bounded_for_large_parts_and_bombs(
    tmp_path: Path, attempt_bytes: bytes, content: Callable[..., AttemptContent], pieces: Any
) -> None:
    """Verifying 200 MB in one part, or a frame that would unpack to 64 MB, adds little more than one frame to the process."""
    small = tmp_path / "small.attempt"
    small.write_bytes(attempt_bytes)
    zeros = tmp_path / "zeros"
    with zeros.open("wb") as file:
        file.truncate(200 << 20)
    large = write_attempt(tmp_path, content(parts={"plan.json": b"{}", "transcript.jsonl": zeros}))
    pieces.frames[3] = _bombs()["larger than its record"]
    bomb = tmp_path / "bomb.attempt"
    bomb.write_bytes(pieces.data())
    for path in (large, bomb):
        done = subprocess.run(
            [sys.executable, "-c", _MEASURE, small, path], cwd=_ROOT, capture_output=True, text=True, check=True
        )
        assert int(done.stdout) < (4 * FRAME_BYTES) >> 10


def test_an_index_with_impossible_lengths_is_refused(pieces: Any, scratch: Path) -> None:
    """Zero, negative or huge frame lengths, no frames, or lengths that do not add up are BundleCorrupt."""
    body = b"".join(pieces.frames)
    digest = hashlib.sha256(b"").hexdigest()
    for rows in (
        [],
        [FrameRecord(0, digest)],
        [FrameRecord(-5, digest), FrameRecord(len(body) + 5, digest)],
        [FrameRecord(1 << 50, digest)],
        [FrameRecord(9, digest)],
    ):
        scratch.write_bytes(body + encode_index(rows))
        with pytest.raises(BundleCorrupt) as caught:
            open_attempt(scratch)
        assert caught.value.where == "manifest"


def test_a_later_format_is_said_to_be_unsupported(pieces: Any, scratch: Path) -> None:
    """Another format version, with this release's index or with another ending, is BundleUnsupported, not damage; another format altogether is damage."""
    manifest = pieces.manifest() | {"format_version": 3, "something": "new"}
    pieces.set_manifest(manifest)
    scratch.write_bytes(pieces.data())
    for data in (pieces.data(), pieces.frames[0] + b"another ending"):
        scratch.write_bytes(data)
        for read in (read_manifest, open_attempt):
            with pytest.raises(BundleUnsupported, match="version 3"):
                read(scratch)
    pieces.set_manifest(manifest | {"format": "another"})
    scratch.write_bytes(pieces.data())
    with pytest.raises(BundleCorrupt):
        open_attempt(scratch)


def test_a_file_that_changes_after_it_was_opened_is_found(attempt_bytes: bytes, scratch: Path) -> None:
    """A part is checked each time that it is read, not only when the attempt was opened."""
    scratch.write_bytes(attempt_bytes)
    attempt = open_attempt(scratch)
    assert attempt.part("workspace/0")
    offset = attempt_bytes.index(attempt_bytes[attempt._places["workspace/0"].offset :][:8])
    damaged = bytearray(attempt_bytes)
    damaged[offset + 20] ^= 1
    scratch.write_bytes(damaged)
    with pytest.raises(BundleCorrupt, match="workspace/0"):
        attempt.part("workspace/0")
    with pytest.raises(BundleCorrupt, match="does not name it"):
        attempt.part("trace.json")


_ROOT = Path(__file__).resolve().parents[2]
