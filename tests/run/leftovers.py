"""What a run leaves on the machine, seen from outside: processes, mounts, private directories. Used by the tests that kill."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.staging import ROOT_BASES

ROOT_RUNS = next(
    (
        base / "runs"
        for base in ROOT_BASES
        if base.parent.is_dir() and not os.statvfs(base.parent).f_flag & os.ST_NOEXEC
    ),
    ROOT_BASES[0] / "runs",
)
"""Where root's runs are staged on this machine, told from the outside: the first place whose file system may execute programs."""
CLI = b"/opt/claude\0"
LEFT_AFTER_S = 2.0


@dataclass(frozen=True)
class Process:
    """One process, told from a later one with the same number by its start time."""

    pid: int
    started: str
    command: bytes

    @property
    def is_cli(self) -> bool:
        """Whether this is the Claude CLI itself (not bwrap, whose command line names it too)."""
        return self.command.startswith(CLI)

    @property
    def alive(self) -> bool:
        """Whether it runs; a dead process that nobody has waited for yet does not."""
        now = read_stat(self.pid)
        return now is not None and now[1] == self.started and now[0] not in "ZX"


def read_stat(pid: int) -> tuple[str, str] | None:
    """Return state and start time."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[0].decode(), fields[19].decode()


def command_of(pid: int | str) -> bytes:
    """Return the command line; empty for a process that is gone or dead."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def children_of(pid: int) -> Iterator[int]:
    """Yield the children of all threads."""
    try:
        paths = list(Path(f"/proc/{pid}/task").glob("*/children"))
    except OSError:  # it is gone
        paths = []
    for path in paths:
        try:
            words = path.read_text().split()
        except OSError:
            continue
        yield from map(int, words)


def descendants_of(pid: int) -> list[Process]:
    """Return every process below ``pid``."""
    found, pending = [], [pid]
    while pending:
        for child in children_of(pending.pop()):
            pending.append(child)
            stat = read_stat(child)
            if stat is not None:
                found.append(Process(child, stat[1], command_of(child)))
    return found


def commands() -> dict[int, bytes]:
    """Return the command line of every process but this one."""
    lines = {int(name): command_of(name) for name in os.listdir("/proc") if name.isdigit()}
    lines.pop(os.getpid(), None)
    return lines


def directories_of(command: bytes) -> list[bytes]:
    """Return what a supervisor's command line says that it removes: its run's private directory and its control group; each is ``-`` where there is none."""
    words = command.split(b"\0")
    at = next((number for number, word in enumerate(words) if word.endswith(b"/supervisor.py")), None)
    return [] if at is None else [word for word in words[at + 4 : at + 6] if word.startswith(b"/")]


@dataclass
class Traces:
    """Everything that one runner and its descendants have shown of themselves."""

    runtime_dir: Path
    """Private: the runner's XDG_RUNTIME_DIR, where an ordinary user's runs are staged."""
    temporary: Path
    """Private: its TMPDIR."""
    markers: tuple[str, ...]
    """Words in the command lines of its CLIs and of no others."""
    seen: dict[tuple[int, str], Process] = field(default_factory=dict)
    staging: set[Path] = field(default_factory=set)

    def look(self, pid: int) -> bool:
        """Take in what lives below ``pid`` now; say whether the CLI does."""
        now = descendants_of(pid)
        for process in now:
            self.seen[process.pid, process.started] = process
            self.staging |= {Path(os.fsdecode(word)) for word in directories_of(process.command)}
        return any(process.is_cli for process in now)

    def left(self) -> list[str]:
        """Return what is left: empty when nothing is."""
        lines = commands()
        left = [f"process {process.pid}: {process.command!r}" for process in self.seen.values() if process.alive]
        left += [
            f"process {pid}: {line!r}"
            for pid, line in lines.items()
            if any(marker.encode() in line for marker in self.markers)
        ]
        left += [f"directory {path}" for path in sorted(self.staging) if path.exists()]
        left += [f"directory {path}" for folder in (self.runtime_dir, self.temporary) for path in folder.iterdir()]
        mounts = Path("/proc/self/mountinfo").read_text()
        return left + [f"mount {path}" for path in self.staging if path.name in mounts]


def abandoned() -> set[Path]:
    """Return root's run directories that no living supervisor owns, whoever made them: a run whose supervisor was never seen would show here.

    Other runs may be under way on this machine, and a test that kills supervisors leaves one for a moment, until its runner removes it.
    """
    try:
        names = os.listdir(ROOT_RUNS)
    except OSError:
        return set()
    alive = b"\n".join(commands().values())
    return {ROOT_RUNS / name for name in names if name.encode() not in alive and (ROOT_RUNS / name).exists()}


def wait_until(condition: Callable[[], bool], timeout_s: float = LEFT_AFTER_S) -> bool:
    """Wait for a condition, by looking."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()
