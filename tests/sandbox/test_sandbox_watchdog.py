"""The look at a sandbox's memory: what counts, and that nothing waits for it (A8; facts/sandbox.md §2, 47)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox import watchdog
from sandbox.probes.layers import Edit
from sandbox.process import Host
from sandbox.running import run_once
from tests.sandbox.altered import altered
from tests.sandbox.conftest import MakeSpec

MIB = 1 << 20


@pytest.fixture
def view(tmp_path: Path) -> Iterator[int]:
    """A stand-in of a sandbox's /proc: two processes, of which one can be looked into."""
    for pid, anonymous_kib, tables_kib in ((1, 100, 8), (7, 1000, 16)):
        place = tmp_path / str(pid)
        place.mkdir()
        (place / "status").write_text(
            f"Name:\tx\nVmPTE:\t{tables_kib} kB\nRssAnon:\t{anonymous_kib} kB\nRssFile:\t9999 kB\nVmSwap:\t1 kB\n"
        )
    (tmp_path / "7" / "smaps_rollup").write_text("Pss_Anon: 300 kB\nPss_Shmem: 10 kB\nSwapPss: 1 kB\n")
    (tmp_path / "self").mkdir()
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def test_page_tables_count(view: int) -> None:
    """A process that only reads far apart takes memory in page tables, and by nothing else; files that it maps are not its own."""
    assert list(watchdog.weigh(view, [], MIB * 100))[-1] == (100 + 8 + 1 + 1000 + 16 + 1) * 1024


def test_a_look_that_is_too_much_is_made_again_exactly(view: int) -> None:
    """Then a process counts by its share; one that cannot be looked into counts whole."""
    assert list(watchdog.weigh(view, [], 1000 * 1024))[-1] == (100 + 8 + 1 + 300 + 10 + 1 + 16) * 1024


def test_a_look_comes_in_pieces(view: int) -> None:
    """There is a piece for every process, and -1 is no size."""
    pieces = list(watchdog.weigh(view, [], MIB * 100))
    assert pieces[:-1] == [-1, -1]
    assert pieces[-1] > 0


def test_memory_files_alone_end_a_look() -> None:
    """Once open memory files are more than the limit nothing else needs to be read; below it all is."""
    held = os.memfd_create("probe")
    try:
        os.write(held, bytes(2 * MIB))
        own = f"{os.getpid()}"
        folder = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
        try:
            found = dict(watchdog.memory_files(folder, own))
        finally:
            os.close(folder)
        assert found[os.fstat(held).st_ino] == 2 * MIB
    finally:
        os.close(held)


def test_a_look_stops_for_its_runner_and_goes_on(view: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No turn takes longer than its slice, however much there is; the next goes on where this one stopped, and the sum is judged at the end."""
    monkeypatch.setattr(watchdog, "SLICE_S", 0.0)
    looks = watchdog.Watchdog(view, [], 5)
    looks.pieces = iter([-1, -1, 6])
    assert [looks.look()[0] for _ in range(3)] == [b"", b"", b"memory-limit"]
    assert looks.peak == 6
    looks.pieces = iter([-1, 5])
    assert [looks.look()[0] for _ in range(2)] == [b"", b""]


@pytest.mark.parametrize(
    ("total_kib", "free_kib", "floor"),
    [(64 << 20, 32 << 20, 256 * MIB), (2 << 20, 1 << 20, (2 << 30) // 20), (64 << 20, 100 << 10, 50 * MIB), (0, 0, 0)],
)
def test_the_floor_is_of_this_machines_memory(total_kib: int, free_kib: int, floor: int) -> None:
    """A twentieth, at most 256 MiB, and never more than half of what is free before the program starts: a full machine is not the program's fault."""
    text = f"MemTotal: {total_kib} kB\nMemFree: 1 kB\nMemAvailable: {free_kib} kB\n".encode()
    assert watchdog.floor_bytes(text) == floor


ENDLESS: Edit = ("watchdog.py", "if name.isdigit()]", "if name.isdigit()] * 3_000_000")
FULL: Edit = (
    "watchdog.py",
    'return min(field_of(meminfo, b"MemTotal") // 20',
    'return max(1 << 60, field_of(meminfo, b"MemTotal") // 20',
)


@pytest.mark.parametrize(
    ("edits", "script", "reason"),
    [
        ((ENDLESS,), "sleep 600", "timeout"),
        ((), "sleep 600", "timeout"),
        ((FULL,), "sleep 600", "host-memory"),
        ((), "sleep 0.6", None),
    ],
    ids=["endless look", "look", "no memory left", "memory left"],
)
def test_nothing_waits_for_a_look_and_the_machine_comes_first(
    host: Host, make_spec: MakeSpec, readable_tmp: Path, edits: tuple[Edit, ...], script: str, reason: str | None
) -> None:
    """The wall clock comes through while a look does not end; a machine without memory ends the run by its own name."""
    if edits:
        host = replace(host, program=altered(readable_tmp, edits) / "supervisor.py")
    ended, _ = run_once(host, make_spec(script), wall_clock_s=1.0)
    assert (ended.reason, ended.dead) == (reason, True)
    assert ended.duration_s < 60, "such a look takes minutes"
