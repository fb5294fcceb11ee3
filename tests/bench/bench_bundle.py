"""Writing and verifying an attempt, in MB/s, beside ``zstd`` and ``sha256sum`` on the same bytes (issue 3, acceptance 6).

The bytes are those of a long run: each request is the whole conversation so far, so that most of it repeats, beside a transcript and a workspace that does not compress. One attempt holds them; one
plain file holds the same bytes for the programs of other people. ``zstd`` compresses at our level with one thread; writing an attempt is that, three digests (the part's before and while it
is written, the frame's) and an fsync; verifying is unpacking and two digests.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
from pathlib import Path

from runner.bundle.reader import open_attempt
from runner.bundle.writer import AttemptContent, write_attempt
from tests.bench.figures import Figure, interleave, rates, versus
from tests.bench.rig import load

_MB = 1_000_000


def parts_of(megabytes: int) -> dict[str, bytes]:
    """Return the parts of an attempt of about that size."""
    size = megabytes * _MB
    turn = json.dumps({"role": "assistant", "content": [{"type": "text", "text": "The account is unresolved. " * 40}]})
    conversation = b"".join(
        hashlib.sha256(b"%d" % number).hexdigest().encode() + turn.encode() for number in range(size // 10 // 1200)
    )
    parts: dict[str, bytes] = {"plan.json": b"{}", "observations.json": b"{}", "workspace.json": b"{}"}
    parts |= {
        f"skill-tree/turn-{number:02d}": conversation[: len(conversation) * (number + 1) // 12] for number in range(12)
    }
    parts["transcript.jsonl"] = b"".join(
        b'{"type":"assistant","uuid":"%s","text":"kept"}\n' % hashlib.sha256(b"t%d" % number).hexdigest().encode()
        for number in range(size // 5 // 105)
    )
    parts["workspace/0"] = hashlib.shake_256(b"noise").digest(size // 8)
    return parts


def main(runs: int = 7, megabytes: int = 60) -> None:
    """Print the figures."""
    parts = parts_of(megabytes)
    content = AttemptContent("bundle-bench", {}, parts)
    total = sum(map(len, parts.values()))
    with tempfile.TemporaryDirectory(prefix="hermeval-bundle-") as name:
        folder = Path(name)
        plain, packed = folder / "plain", folder / "packed.zst"
        plain.write_bytes(b"".join(parts.values()))
        kept = write_attempt(folder, content, name="kept.attempt")
        packed_bytes = kept.stat().st_size

        def write() -> None:
            write_attempt(folder, content, name="written.attempt").unlink()

        def verify() -> None:
            open_attempt(kept)

        figures = interleave(
            {
                "write_attempt": write,
                "open_attempt (every byte verified)": verify,
                "zstd -3 -T1": lambda: _run(
                    "zstd", "-q", "-f", "-3", "-T1", "--single-thread", str(plain), "-o", str(packed)
                ),
                "zstd -d": lambda: _run("zstd", "-q", "-d", "-c", str(packed)),
                "sha256sum": lambda: _run("sha256sum", str(plain)),
            },
            runs=runs,
            warmup=min(1, runs - 1),
        )
    rates(
        f"an attempt of {total / _MB:.0f} MB, {packed_bytes / _MB:.1f} MB packed; {load()}",
        list(figures.values()),
        total,
    )
    written, verified, zstd, unzstd, digest = figures.values()
    for figure, others in (
        (written, (zstd, digest, _sum(zstd, digest))),
        (verified, (unzstd, digest, _sum(unzstd, digest))),
    ):
        for other in others:
            versus(figure, other)


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def _sum(one: Figure, other: Figure) -> Figure:
    return Figure(f"{one.name} + {other.name}", tuple(a + b for a, b in zip(one.seconds, other.seconds, strict=True)))


if __name__ == "__main__":
    main()
