"""Give every reader of foreign bytes so many inputs: ``python -m tests.fuzz --inputs 100000 [--reader NAME]``; prints a table, exits 1 if anything was found.

Boundary: a process a reader, forked, so that each has a memory of its own. Not here: the readers (targets.py), the inputs (mutate.py).
Rules: the seed is fixed, so that a figure can be had again. Time is processor time, so that the machine's load does not count: an input that takes more than ``HANG_S`` of it is
a hang, and eight times as much input must not take more than ``GROWTH`` times as long. A reader whose memory grows by more than ``KEPT_BYTES`` over its inputs keeps what it
should not.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.mutate import grown
from tests.fuzz.target import Reader, Target
from tests.fuzz.targets import TARGETS

HANG_S = 10.0
GROWTH = 24.0
"""For eight times as much input: three times what a linear reader takes; a quadratic one takes 64 times as long."""
SMALL, LARGE = 64 << 10, 512 << 10
NOTICED_S = 0.1
"""What takes less is not compared: it may as well be chance."""
KEPT_BYTES = 48 << 20
PEAK_BYTES = 512 << 20
WARM = 0.1
SHOWN = 5


class Hang(BaseException):
    """An input took more processor time than any may."""


@dataclass
class Found:
    """What came of one reader's inputs."""

    name: str
    inputs: int = 0
    values: int = 0
    declared: int = 0
    faults: list[str] = field(default_factory=list)
    slowest_us: int = 0
    mean_us: int = 0
    kept_bytes: int = 0
    peak_bytes: int = 0
    worst_growth: float = 0.0


def resident_bytes() -> int:
    """Return how much memory this process has now, without what it only keeps to give out again: that would hide what a reader keeps."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def try_target(target: Target, inputs: int, seed: int, *, seconds: float | None = None, growth: bool = True) -> Found:
    """Give a reader its inputs, in this process; at most for so many seconds of processor time."""
    found = Found(target.name)
    reader, chance = Reader(target), Random(f"{seed} {target.name}")
    signal.signal(signal.SIGPROF, _hang)
    for sample in target.samples():
        _give(reader, sample, found)
    base, spent = resident_bytes(), 0.0
    before = time.process_time()
    for number in range(inputs):
        if number == int(inputs * WARM):
            base = resident_bytes()
        value, took = _give(reader, target.input(chance), found)
        found.inputs += 1
        found.values += value is True
        found.declared += value is False
        spent += took
        if seconds is not None and time.process_time() - before > seconds:
            break
    found.mean_us = round(spent / max(1, found.inputs) * 1e6)
    found.kept_bytes = max(0, resident_bytes() - base)
    if found.kept_bytes > KEPT_BYTES:
        found.faults.append(f"{found.kept_bytes >> 20} MiB more than after the first tenth of its inputs")
    if growth and target.grows:
        _grow(reader, target.samples(), found)
    found.peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    if found.peak_bytes > PEAK_BYTES:
        found.faults.append(f"{found.peak_bytes >> 20} MiB at its most")
    return found


def _give(reader: Reader, data: bytes, found: Found) -> tuple[bool | None, float]:
    """Give one input; returns whether it gave a value (None: neither that nor the declared error) and its processor time."""
    value: bool | None = None
    before = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, HANG_S)
    try:
        value = reader(data)
    except Hang:
        _note(found, "hangs", data)
    except Exception:  # everything that is not declared is a fault
        _note(found, traceback.format_exc(limit=-3).strip(), data)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    took = time.process_time() - before
    found.slowest_us = max(found.slowest_us, round(took * 1e6))
    return value, took


def _note(found: Found, fault: str, data: bytes) -> None:
    """Keep a fault, the first few of their kind."""
    if len(found.faults) < SHOWN and not any(other.startswith(fault) for other in found.faults):
        found.faults.append(f"{fault} on {data[:300]!r} ({len(data)} bytes)")


def _grow(reader: Reader, samples: Sequence[bytes], found: Found) -> None:
    """Compare what a reader takes for much input with what it takes for little."""
    few = list(dict.fromkeys(samples))[:6]
    for small, large in zip(grown(few, SMALL), grown(few, LARGE), strict=True):
        first, second = _give(reader, small, found)[1], _give(reader, large, found)[1]
        if second < NOTICED_S:
            continue
        if second / max(first, NOTICED_S / 8) > GROWTH:  # once more, since the first of a kind pays for imports
            first, second = _give(reader, small, found)[1], _give(reader, large, found)[1]
        rate = second / max(first, NOTICED_S / 8)
        found.worst_growth = max(found.worst_growth, rate)
        if rate > GROWTH:
            found.faults.append(f"eight times {small[:60]!r} take {rate:.0f} times as long")


def _hang(_number: int, _frame: object) -> None:
    raise Hang


def try_apart(target: Target, inputs: int, seed: int, *, seconds: float | None = None) -> Found:
    """The same in a process of its own."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        try:
            found: dict[str, Any] = vars(try_target(target, inputs, seed, seconds=seconds, growth=seconds is None))
        except BaseException:  # it is told, and this process ends
            found = {"name": target.name, "faults": [traceback.format_exc()]}
        with os.fdopen(write_end, "w") as out:
            json.dump(found, out)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as file:
        told = file.read()
    status = os.waitpid(pid, 0)[1]
    if status != 0 or not told:
        return Found(target.name, faults=[f"the process ended: {os.waitstatus_to_exitcode(status)}"])
    return Found(**json.loads(told))


def try_all(targets: Sequence[Target], inputs: int, seed: int, *, seconds: float | None = None) -> Iterator[Found]:
    """Try readers one after the other."""
    for target in targets:
        yield try_apart(target, inputs, seed, seconds=seconds)


def row(found: Found) -> str:
    """Return a line of the table."""
    cells = (
        found.name, f"{found.inputs:,}", f"{found.values:,}", f"{found.declared:,}", str(len(found.faults)), f"{found.mean_us:,}", f"{found.slowest_us / 1000:,.1f}",
        f"{found.kept_bytes / (1 << 20):.1f}", f"{found.worst_growth:.1f}" if found.worst_growth else "–",
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


HEAD = (
    "| reader | inputs | gave a value | gave the declared error | faults | mean µs | slowest ms | memory kept MiB | time for 8 × input |\n"
    + "|---" * 9
    + "|"
)


def main() -> int:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Give every reader of foreign bytes many inputs."
    )
    parser.add_argument("--inputs", type=int, default=100_000, help="for each reader (default: 100000)")
    parser.add_argument(
        "--reader",
        "--parser",
        action="append",
        choices=[target.name for target in TARGETS],
        help="this one only; may be given again",
    )
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    targets = [target for target in TARGETS if given.reader is None or target.name in given.reader]
    print(HEAD, flush=True)
    faults = []
    for found in try_all(targets, given.inputs, given.seed):
        print(row(found), flush=True)
        faults += [f"{found.name}: {fault}" for fault in found.faults]
    print(*faults, sep="\n\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
