"""A realistic attempt, and tools to take its file apart and put it together again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from runner.bundle import AttemptContent, write_attempt
from runner.bundle.format import FrameRecord, decode_index, encode_index
from runner.canonical import canonical_json
from runner.gate.exchange import Exchange, Refusal, Request, Response


def noise(size: int, seed: str = "") -> bytes:
    """Return ``size`` bytes that do not compress and are the same every time."""
    return hashlib.shake_256(seed.encode()).digest(size)


@dataclass
class Pieces:
    """An attempt file as its frames: change one and put the file together with a right index."""

    frames: list[bytes]

    @classmethod
    def of(cls, data: bytes) -> Pieces:
        """Take a whole file apart."""
        frames, offset = [], 0
        for record in decode_index(data, len(data)):
            frames.append(data[offset : offset + record.length])
            offset += record.length
        return cls(frames)

    def manifest(self) -> dict[str, Any]:
        """Return the manifest as plain JSON."""
        found: dict[str, Any] = msgspec.json.decode(zstandard.ZstdDecompressor().decompress(self.frames[0]))
        return found

    def set_manifest(self, manifest: object) -> None:
        """Replace the manifest's frame."""
        self.frames[0] = zstandard.ZstdCompressor().compress(canonical_json(manifest))

    def data(self) -> bytes:
        """Return the file, with an index that is right for these frames."""
        records = [FrameRecord(len(frame), hashlib.sha256(frame).hexdigest()) for frame in self.frames]
        return b"".join(self.frames) + encode_index(records)


def content(**changed: Any) -> AttemptContent:
    """Return what an ordinary small attempt keeps."""
    request = Request(
        method="POST",
        target="/v1/messages?beta=true",
        headers=(("Host", "api"), ("X-a", "1"), ("x-A", "2")),
        body=noise(900, "q"),
    )
    answered = Exchange(
        seq=1,
        kind="inference",
        request=request,
        response=Response(status=200, headers=(("A", "é"),), body=b"event: x\n\n" * 40, chunks=(5, 395)),
    )
    start_up = Exchange(
        seq=2, kind="start-up", request=Request(method="GET", target="/api/hello"), response=Response(status=404)
    )
    refused = Exchange(
        seq=3, kind="refused", request=request, response=None, refusal=Refusal(code="path", message="no"), before_end=3
    )
    parts: Mapping[str, bytes | Path] = {
        "observations.json": b'{"duration_us":1}',
        "fixture.json": b'{"id":"missing-account"}',
        "skill-tree.json": b"{}",
        "skill-tree/workflow/SKILL.md": b"---\nname: workflow\n---\n" * 20,
        "plan.json": b'{"plan":1}',
        "sandbox.json": b"{}",
        "toolchain.json": b'{"system":"x86_64-linux"}',
        "transcript.jsonl": b'{"type":"result"}\n' * 300 + noise(3000, "t"),
        "stderr": b"",
        "output.txt": b"The reserve is 42 units.",
        "workspace.json": b"[]",
        "workspace/0": noise(500, "w"),
        "evidence.json": b"{}",
    }
    summary = {"outcome": {"kind": "measured", "code": None}, "skill_state": "ran", "cost_usd": "0.01"}
    fields: dict[str, Any] = {
        "fixture_id": "missing-account",
        "summary": summary,
        "parts": parts,
        "exchanges": (answered, start_up, refused),
    }
    return AttemptContent(**(fields | changed))


@pytest.fixture(name="content")
def _content() -> Callable[..., AttemptContent]:
    return content


@pytest.fixture(name="noise")
def _noise() -> Callable[..., bytes]:
    return noise


@pytest.fixture(name="pieces")
def _pieces(attempt_bytes: bytes) -> Pieces:
    return Pieces.of(attempt_bytes)


@pytest.fixture(scope="session")
def attempt_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the bytes of a realistic attempt file."""
    return write_attempt(tmp_path_factory.mktemp("realistic"), content()).read_bytes()


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a path for a file that property tests overwrite again and again."""
    return tmp_path_factory.mktemp("scratch") / "x.attempt"
