"""How fast transcripts are parsed, and how much memory a gigabyte of ordinary lines costs (acceptance 5 and 9)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from runner.claude.transcript import TranscriptParser
from tests.bench.figures import interleave
from tests.bench.rig import ROOT, load
from tests.bench.transcript_memory import CHUNK, LIMIT, grown, ordinary

_CASES = ROOT / "tests" / "cases" / "transcripts"
_AIM = 150.0


def repeated(files: list[Path], size: int) -> list[bytes]:
    """Return the files one after another, again and again up to ``size`` bytes, in chunks; each file parses as it does alone."""
    contents = [path.read_bytes() for path in files]
    whole, total = [], 0
    for content in itertools.cycle(contents):
        whole.append(content if content.endswith(b"\n") else content + b"\n")
        total += len(content)
        if total >= size:
            break
    data = b"".join(whole)
    return [data[start : start + CHUNK] for start in range(0, len(data), CHUNK)]


def parse(chunks: list[bytes], *, keep_ledger: bool) -> float:
    """Parse a stream; return the seconds of processor time, since nothing else is waited for and other work on the machine is none of it."""
    started = time.process_time()
    parser = TranscriptParser(keep_ledger=keep_ledger)
    for chunk in chunks:
        parser.feed(chunk)
    parser.close()
    return time.process_time() - started


def decode_only(lines: list[bytes]) -> float:
    """Do what any parser must do: turn every line into an object. Returns as ``parse``."""
    started = time.process_time()
    decode = msgspec.json.Decoder().decode
    for line in lines:
        decode(line)
    return time.process_time() - started


def main(runs: int = 5, megabytes: int = 200, memory_megabytes: int = 1000) -> None:
    """Print the figures."""
    real = sorted(_CASES.glob("*.jsonl"))
    streams = {
        "the cases' transcripts": repeated(real, megabytes * 1_000_000),
        "ordinary tool rounds": list(ordinary(megabytes * 1_000_000)),
    }
    print(f"\ntranscript parsing, {megabytes} MB, processor time; {load()}")
    for name, chunks in streams.items():
        lines = b"".join(chunks).split(b"\n")[:-1]
        lines = [line for line in lines if line.startswith(b"{") and line.endswith(b"}") and _is_json(line)]
        size = sum(map(len, chunks))
        variants: dict[str, Callable[[], float]] = {
            "as a run parses": lambda: parse(chunks, keep_ledger=True),  # noqa: B023  called in this turn
            "without the tamper ledger": lambda: parse(chunks, keep_ledger=False),  # noqa: B023
            "msgspec alone, lines into dicts": lambda: decode_only(lines),  # noqa: B023
        }
        for figure in interleave(dict(variants), runs=runs).values():
            rate = size / figure.median / 1e6
            judged = (
                ""
                if figure.name.startswith("msgspec")
                else f"   aim at least {_AIM:.0f}: {'met' if rate >= _AIM else 'MISSED'}"
            )
            print(f"  {name + ', ' + figure.name:60} {rate:7.0f} MB/s{judged}")
    growth, _ = grown(memory_megabytes * 1_000_000, ROOT)
    bound = LIMIT * memory_megabytes // 1000
    print(
        f"  {f'growth of peak memory over {memory_megabytes} MB':60} {growth / 2**20:7.1f} MiB   aim under {bound / 2**20:.0f}: {'met' if growth < bound else 'MISSED'}"
    )


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except msgspec.DecodeError:
        return False
    return True


if __name__ == "__main__":
    main()
