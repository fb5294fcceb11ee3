"""Feeds a parser ordinary lines, made as they are fed, and prints how much the process's peak memory grew: ``python -m tests.bench.transcript_memory BYTES``.

A process of its own, and VmHWM rather than ``ru_maxrss``: the latter counts what the parent had in memory when it started this one, which would hide any growth.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from runner.claude.transcript import TranscriptParser

CHUNK = 1 << 16
"""Bytes at a time, about what a pipe gives."""
LIMIT = 64 << 20
"""The bound of acceptance 5."""


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
        if len(chunk) >= CHUNK:
            total += len(chunk)
            yield bytes(chunk)
            chunk.clear()


def peak() -> int:
    """Return the most memory this process ever had resident, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def grown(size: int, root: Path) -> tuple[int, int]:
    """Parse ``size`` bytes in a process of its own; return the growth of its peak memory in bytes, and the number of events it saw."""
    argv = [sys.executable, "-P", "-m", "tests.bench.transcript_memory", str(size)]
    done = subprocess.run(argv, env={"PYTHONPATH": str(root)}, cwd="/", stdout=subprocess.PIPE, check=True, text=True)
    growth, events = done.stdout.split()
    return int(growth), int(events)


def main() -> None:
    """Do it."""
    warm = TranscriptParser()
    for chunk in ordinary(4 * CHUNK):
        warm.feed(chunk)
    warm.close()
    before = peak()
    parser = TranscriptParser()
    for chunk in ordinary(int(sys.argv[1])):
        parser.feed(chunk)
    events = parser.close().events_seen
    print(peak() - before, events)


if __name__ == "__main__":
    main()
