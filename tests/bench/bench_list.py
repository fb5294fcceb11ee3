"""How long ``hermeval list`` takes over many attempts: a whole process, start included.

Prints a table of medians; asserts no absolute time. Run as a program, or call ``main()``.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from runner.bundle.format import PartRecord, build_manifest, file_name
from runner.bundle.writer import encode_file
from runner.canonical import sha256_hex
from tests.bench.rig import child_environment, load

_EXCHANGES = 12


def fill(directory: Path, count: int) -> None:
    """Put ``count`` small attempts of ordinary shape (about 35 parts) into ``directory``, without syncing each to the disk."""
    names = [
        "fixture.json",
        "skill-tree.json",
        "skill-tree/workflow/SKILL.md",
        "plan.json",
        "sandbox.json",
        "toolchain.json",
        "exchanges.json",
    ]
    names += [
        f"exchanges/{number:04d}.{side}" for number in range(1, _EXCHANGES + 1) for side in ("request", "response")
    ]
    names += ["transcript.jsonl", "stderr", "output.txt", "workspace.json", "evidence.json", "observations.json"]
    parts = [(PartRecord(name, len(name), sha256_hex(name.encode())), name.encode()) for name in names]
    for number in range(count):
        summary = {
            "outcome": {"kind": "measured", "code": None, "message": ""},
            "skill_state": "ran",
            "witnesses": {"transcript": True, "wire": True},
            "cost_usd": f"0.{number:06d}",
        }
        manifest, data = build_manifest("missing-account", "0" * 64, "0.1.0", summary, [record for record, _ in parts])
        (directory / file_name("missing-account", manifest.id)).write_bytes(b"".join(encode_file(data, parts)))


def measure(directory: Path, arguments: Sequence[str], repeats: int) -> tuple[float, float]:
    """Return the medians of wall time and of processor time in seconds of ``hermeval list`` as a process of its own."""
    times, worked = [], []
    for _ in range(repeats):
        before, start = _children(), time.perf_counter()
        subprocess.run(
            [sys.executable, "-P", "-m", "runner.cli", "list", str(directory), *arguments],
            cwd="/",
            env=child_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        times.append(time.perf_counter() - start)
        worked.append(_children() - before)
    return statistics.median(times), statistics.median(worked)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(counts: Sequence[int] = (0, 1_000, 10_000), repeats: int = 3) -> None:
    """Print a row for each number of attempts: median seconds for people's text and for JSON, the former's processor time, and microseconds of it for each attempt beyond an empty list."""
    print(f"\nhermeval list (whole process, nothing kept from an earlier one); {load()}")
    sys.stdout.write(f"{'attempts':>8}  {'text s':>7}  {'json s':>7}  {'cpu s':>7}  {'us/attempt':>10}\n")
    base = text = worked = 0.0
    for count in counts:
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            fill(directory, count)
            (text, worked), (as_json, _) = measure(directory, [], repeats), measure(directory, ["--json"], repeats)
        base = base or worked
        each = f"{(worked - base) / count * 1e6:>10.0f}" if count else f"{'-':>10}"
        sys.stdout.write(f"{count:>8}  {text:>7.3f}  {as_json:>7.3f}  {worked:>7.3f}  {each}\n")
    aims = [f"{what} {'met' if seconds <= 1.0 else 'MISSED'}" for what, seconds in (("wall", text), ("cpu", worked))]
    print(f"  -> {counts[-1]} attempts in less than 1 s: {', '.join(aims)}; linear: the last column stays")


if __name__ == "__main__":
    main()
