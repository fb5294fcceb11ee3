"""How fast transcripts are parsed, and how much memory a gigabyte of ordinary lines costs (acceptance 5 and 9).

Prints figures beside their aims (150 MB/s; 64 MB of growth); asserts none. Run as a program, or call ``main()``.
"""

from __future__ import annotations

import json
import resource
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from runner.claude.transcript import TranscriptParser

_CASES = Path(__file__).resolve().parents[1] / "cases" / "transcripts"
_CHUNK = 1 << 18


def ordinary(size: int) -> Iterator[bytes]:
    """Yield about ``size`` bytes of tool rounds whose ids are all different, in chunks."""
    number, chunk, total = 0, bytearray(b'{"type":"system","subtype":"init"}\n'), 0
    while total < size:
        number += 1
        use = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {"command": "echo hi; " * 20}}
        message = {"id": f"msg_{number}", "role": "assistant", "model": "m", "content": [use]}
        block = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "a line of output\n" * 60}
        for event in ({"type": "assistant", "message": message}, {"type": "user", "message": {"content": [block]}}):
            chunk += json.dumps(event).encode() + b"\n"
        if len(chunk) >= _CHUNK:
            total += len(chunk)
            yield bytes(chunk)
            chunk.clear()


def rate(chunks: list[bytes], *, keep_ledger: bool, repeats: int = 5) -> float:
    """Return the median of MB/s over ``repeats`` passes."""
    rates = []
    for _ in range(repeats):
        parser = TranscriptParser(keep_ledger=keep_ledger)
        start = time.perf_counter()
        for chunk in chunks:
            parser.feed(chunk)
        parser.close()
        rates.append(sum(map(len, chunks)) / (time.perf_counter() - start) / 1e6)
    return statistics.median(rates)


def main(gigabytes: float = 1.0) -> None:
    """Print the figures."""
    cases = b"".join(path.read_bytes() for path in sorted(_CASES.glob("*.jsonl"))) * 100
    files = [cases[start : start + _CHUNK] for start in range(0, len(cases), _CHUNK)]
    rounds = list(ordinary(50_000_000))
    decode = msgspec.json.Decoder().decode
    lines = [line for chunk in rounds for line in chunk.splitlines()]
    start = time.perf_counter()
    for line in lines:
        decode(line)
    print(
        f"{'msgspec alone, lines into dicts':48} {sum(map(len, lines)) / (time.perf_counter() - start) / 1e6:8.0f} MB/s"
    )
    for name, chunks in (("the cases' transcripts, repeated", files), ("ordinary tool rounds", rounds)):
        for keep_ledger in (False, True):
            what = f"{name}{', with the tamper ledger' if keep_ledger else ''}"
            print(f"{what:48} {rate(chunks, keep_ledger=keep_ledger):8.0f} MB/s  (aim: at least 150)")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    parser = TranscriptParser()
    for chunk in ordinary(int(gigabytes * 1e9)):
        parser.feed(chunk)
    parser.close()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"{f'growth of peak memory over {gigabytes:g} GB':48} {grown:8.1f} MB    (aim: under 64)")


if __name__ == "__main__":
    main()
