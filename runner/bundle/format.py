"""The attempt's file format, version 2: names, limits, the manifest and the index of frames.

Boundary: pure. Not here: files (reader.py, writer.py), exchanges (exchanges.py).
Rules: the file is one zstd frame with the manifest, then for each part in manifest order ``frame_count(bytes)`` zstd frames of ``FRAME_BYTES`` each (the last
shorter; an empty part has one empty frame), then one skippable frame, the index: length and sha256 of every frame before it. The index is a pure function of
those bytes and says its own digest, so that a flipped bit is found wherever it lies and the frame it hit is known (ADR 0003). The zstd bytes are transport: the
attempt's id is the sha256 of the manifest, part digests are over uncompressed bytes. Names and sizes are an allow-list for the writer and the reader alike.
Version 1 is an older, hand-written form; a reader of it would branch in reader.py on ``format_version``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from runner.canonical import canonical_json, digest_of, parse_canonical, sha256_hex
from runner.errors import BundleCorrupt, BundleUnsupported

FORMAT = "hermeval-attempt"
FORMAT_VERSION = 2
SUFFIX = ".attempt"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
INDEX_MAGIC = b"\x58\x2a\x4d\x18"

FRAME_BYTES = 8 << 20
"""Uncompressed bytes in a frame at most: what a reader has to hold at once."""
MAX_FRAME_FILE_BYTES = FRAME_BYTES + (FRAME_BYTES >> 8) + 1024
"""Compressed bytes of a frame at most (zstd's bound for incompressible data)."""
MAX_MANIFEST_BYTES = 4 << 20
MAX_INDEX_BYTES = 4 << 20
MAX_PARTS = 20_000
MAX_PART_BYTES = 512 << 20
MAX_TOTAL_BYTES = 8 << 30

EXCHANGES_PART = "exchanges.json"
OBSERVATIONS_PART = "observations.json"
PLAN_PART = "plan.json"
CONTROL_PART = "control.json"
"""Only in a negative control: how its output was mutated, and from what (B9)."""
_ORDER = (
    "fixture.json",
    "skill-tree.json",
    "skill-tree/",
    PLAN_PART,
    "sandbox.json",
    "toolchain.json",
    EXCHANGES_PART,
    "exchanges/",
    "transcript.jsonl",
    "stderr",
    "output.txt",
    CONTROL_PART,
    "workspace.json",
    "workspace/",
    "contract.json",
    "trace.json",
    "evidence.json",
    OBSERVATIONS_PART,
)
_RANK = {name: rank for rank, name in enumerate(_ORDER)}
_NUMBERED = {"exchanges/": re.compile(r"[0-9]{4,6}\.(?:request|response)\Z"), "workspace/": re.compile(r"[0-9]{1,6}\Z")}
_MAX_NAME = 1024
_HEX64 = re.compile(r"[0-9a-f]{64}\Z")
_FIXTURE = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\Z")
_MAX_FIXTURE = 128


class PartRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One part: its name, and length and sha256 of its uncompressed bytes."""

    name: str
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The first frame of an attempt: what it is, a summary for lists, and every part."""

    format: str
    format_version: int
    fixture: str
    plan_sha256: str
    created_by: dict[str, str]
    """Program name to version."""
    summary: dict[str, Any]
    """Small facts for lists: outcome, skill_state, witnesses, cost_usd as a string, toolchain hashes, modes, …"""
    parts: tuple[PartRecord, ...]
    observations_part: str
    """The part with timings and host facts, which ``reproduce`` does not compare."""

    def to_bytes(self) -> bytes:
        """Return the manifest's canonical bytes."""
        return _ENCODER.encode(self)

    @property
    def id(self) -> str:
        """The attempt's identity: the sha256 of the manifest's bytes."""
        return sha256_hex(self.to_bytes())


class FrameRecord(msgspec.Struct, frozen=True, array_like=True):
    """One frame of the file: its length and sha256 as it lies there, compressed."""

    length: int
    sha256: str


_ENCODER = msgspec.json.Encoder(order="sorted")
_DECODER = msgspec.json.Decoder(Manifest)


def part_rank(name: str) -> int | None:
    """Return the place of a part's kind in the order of parts, or None where no part may have this name."""
    if name in _RANK and not name.endswith("/"):
        return _RANK[name]
    kind, slash, rest = name.partition("/")
    prefix = kind + slash
    if prefix not in _RANK or len(name) > _MAX_NAME:
        return None
    if prefix in _NUMBERED:
        return _RANK[prefix] if _NUMBERED[prefix].match(rest) else None
    plain = all(step not in ("", ".", "..") for step in rest.split("/")) and not any(
        ch < " " or "\ud800" <= ch <= "\udfff" for ch in rest
    )
    return _RANK[prefix] if plain else None


def frame_count(size: int) -> int:
    """Return how many frames a part of ``size`` bytes has."""
    return max(1, -(-size // FRAME_BYTES))


def frame_sizes(size: int) -> Iterator[int]:
    """Return the uncompressed size of each frame of a part of ``size`` bytes."""
    for index in range(frame_count(size)):
        yield min(FRAME_BYTES, size - index * FRAME_BYTES)


def file_name(fixture: str, attempt_id: str) -> str:
    """Return an attempt's file name: a convenience, the id inside decides."""
    return f"{fixture}-{attempt_id[:12]}{SUFFIX}"


def check_names(fixture: str, parts: Sequence[PartRecord]) -> str | None:
    """Return what is wrong with the fixture's id or the parts (name, size, number), or None. One rule for writer and reader."""
    if not _FIXTURE.match(fixture) or len(fixture) > _MAX_FIXTURE:
        return f"{fixture[:80]!a} is no fixture id"
    if len(parts) > MAX_PARTS:
        return f"{len(parts)} parts, more than {MAX_PARTS}"
    total = 0
    for part in parts:
        if part_rank(part.name) is None:
            return f"{part.name[:80]!a} is no part of an attempt"
        if not 0 <= part.bytes <= MAX_PART_BYTES:
            return f"part {part.name!a} has {part.bytes} bytes, more than {MAX_PART_BYTES}"
        if not _HEX64.match(part.sha256):
            return f"part {part.name!a} has no sha256"
        total += part.bytes
    if total > MAX_TOTAL_BYTES:
        return f"{total} bytes in all, more than {MAX_TOTAL_BYTES}"
    if len({part.name for part in parts}) != len(parts):
        return "two parts of one name"
    return None


def parse_manifest(data: bytes) -> Manifest:
    """Return the manifest whose bytes are ``data``. Cheap, for lists: names and sizes are not looked at yet.

    Raises:
        BundleUnsupported: an attempt of a format version that this release does not know.
        BundleCorrupt: anything else that is not a manifest in its canonical form.
    """
    try:
        found = _DECODER.decode(data)
        canonical = found.to_bytes() == data
    except (ValueError, RecursionError) as error:
        raise _refuse_manifest(data, str(error)) from None
    if found.format != FORMAT or found.format_version != FORMAT_VERSION:
        raise _refuse_manifest(data, "not of this format")
    if not canonical:
        raise corrupt_manifest("it is not in canonical form")
    return found


def check_manifest(manifest: Manifest) -> None:
    """Check all that ``parse_manifest`` leaves: the canonical subset, names, sizes and numbers of the parts.

    Raises:
        BundleCorrupt: with the reason.
    """
    try:
        parse_canonical(manifest.to_bytes())
    except ValueError as error:
        raise corrupt_manifest(str(error)) from None
    problem = check_names(manifest.fixture, manifest.parts)
    if problem is None and not _HEX64.match(manifest.plan_sha256):
        problem = "plan_sha256 is no sha256"
    if problem is None and manifest.observations_part != OBSERVATIONS_PART:
        problem = f"observations_part is {manifest.observations_part[:80]!a}"
    if problem is not None:
        raise corrupt_manifest(problem)


def build_manifest(
    fixture: str, plan_sha256: str, version: str, summary: Mapping[str, Any], parts: Sequence[PartRecord]
) -> tuple[Manifest, bytes]:
    """Return a manifest and its bytes.

    Raises:
        ValueError: the summary lies outside the canonical subset, or a name or size is not allowed.
    """
    problem = check_names(fixture, parts)
    if problem is not None:
        raise ValueError(problem)
    manifest = Manifest(
        format=FORMAT,
        format_version=FORMAT_VERSION,
        fixture=fixture,
        plan_sha256=plan_sha256,
        created_by={"hermeval": version},
        summary=dict(summary),
        parts=tuple(parts),
        observations_part=OBSERVATIONS_PART,
    )
    data = canonical_json(msgspec.to_builtins(manifest))
    if len(data) > MAX_MANIFEST_BYTES:
        raise ValueError(f"a manifest of {len(data)} bytes, more than {MAX_MANIFEST_BYTES}")
    return manifest, data


def encode_index(frames: Sequence[FrameRecord]) -> bytes:
    """Return the last frame of a file: a skippable zstd frame that holds length and sha256 of every frame before it."""
    rows = [[frame.length, frame.sha256] for frame in frames]
    body = canonical_json({"format": "hermeval-index", "frames": rows, "sha256": digest_of(rows)})
    return INDEX_MAGIC + len(body).to_bytes(4, "little") + body


class _Index(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str
    frames: tuple[FrameRecord, ...]
    sha256: str


def decode_index(tail: bytes, file_size: int) -> tuple[FrameRecord, ...]:
    """Return the frame records of a file of ``file_size`` bytes that ends in ``tail``.

    Raises:
        BundleCorrupt: the index is missing, cut, altered, followed by anything, or does not add up to the file.
    """
    # The index's text is ASCII without control characters, so that the last magic number in the file is its own.
    start = tail.rfind(INDEX_MAGIC)
    if start < 0:
        raise corrupt_manifest("the index at the end of the file is missing: the file is cut, or its end was altered")
    try:
        index = msgspec.json.decode(tail[start + 8 :], type=_Index)
        whole = encode_index(index.frames) == tail[start:]
    except (ValueError, RecursionError):
        whole, index = False, _Index("", (), "")
    if not whole:
        raise corrupt_manifest("the index at the end of the file is damaged")
    if any(not 0 < frame.length <= MAX_FRAME_FILE_BYTES for frame in index.frames) or not index.frames:
        raise corrupt_manifest("the index at the end of the file holds impossible lengths")
    if sum(frame.length for frame in index.frames) != file_size - (len(tail) - start):
        raise corrupt_manifest("the index at the end of the file does not add up to the file")
    return index.frames


def corrupt_manifest(reason: str) -> BundleCorrupt:
    """Return the error for damage to the manifest or to the index, which stands for it at the end of the file."""
    return BundleCorrupt(f"the attempt's manifest cannot be trusted: {reason}", where="manifest", hint=_HINT)


def corrupt_part(name: str, reason: str) -> BundleCorrupt:
    """Return the error for damage to one part."""
    return BundleCorrupt(f"part {name!a} of the attempt is damaged: {reason}", where=f"part {name}", hint=_HINT)


_HINT = "get the file again from where it came from; a damaged attempt is not repaired"


def _refuse_manifest(data: bytes, reason: str) -> BundleCorrupt | BundleUnsupported:
    try:
        found = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return corrupt_manifest("it is not JSON")
    version = found.get("format_version") if isinstance(found, dict) and found.get("format") == FORMAT else None
    if isinstance(version, int) and not isinstance(version, bool) and version != FORMAT_VERSION:
        return BundleUnsupported(
            f"the attempt has format version {version}; this release reads {FORMAT_VERSION}",
            where="manifest",
            hint="use a release of hermeval that knows this version",
        )
    return corrupt_manifest(reason)
