"""Run a command and make its system calls fail, or things happen at them: the n-th of those that a rule names.

Usage: ``python -m tests.faults.inject PLAN REPORT COMMAND…``. PLAN is a file with ``{"rules": [RULE…], "clock": [[after_s, offset_s]…]}``:

    RULE  {"calls": [NAME…], "path": REGEX?, "first": INTEGER?, "who": WHO?, "nth": 1, "count": 1 | null, "do": {"errno": NAME} | {"hold_s": S} | {"signal": NAME, "to": ROLE, "which": "all"} | {}}

``first`` is the call's first argument. ``path`` is searched in the path that a call names, or in that of the descriptor it is made on (``socket:[…]``, ``/memfd:…``). ``who`` is a role (below) or, after ``~``, a
regex for the command line. From the ``nth`` match on the rule acts, ``count`` times (null: for ever). A signal comes before the call is made. ``clock`` is how far the wall clock
of everything that runs is off, from so long after the start on. REPORT gets one JSON object: ``{"status", "rules": [{"matched", "acted", "first"}]}``. Exits as the command does.

Boundary: as tracing.py. Not here: what must hold afterwards (scene.py).
Rules: a plan says all that happens, so that a run can be had again.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import struct
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.tracing import MADE, Call, Tracer, Verdict, put_memory, text_at

ROLES = {
    "supervisor": rb"supervisor\.py\0",
    "bwrap": rb"^(?:[^\0]*/)?bwrap\0",
    "cli": rb"^/opt/claude\0",
    "node": rb"^(?:[^\0]*/)?node\0",
}
"""Who is who, by the command line; ``runner`` is the command itself."""
_PATH_AT = {"open": 0, "access": 0, "mkdir": 0, "rmdir": 0, "unlink": 0, "chmod": 0, "openat": 1, "mkdirat": 1, "unlinkat": 1, "link": 1, "rename": 1, "linkat": 3,
            "renameat": 3, "renameat2": 3}  # fmt: skip
"""Which argument is the path; of two it is the second, the new name."""
_DIRECTORY_AT = {"openat": 0, "mkdirat": 0, "unlinkat": 0, "linkat": 2, "renameat": 2, "renameat2": 2}
_NEITHER = {
    "socket",
    "socketpair",
    "eventfd2",
    "epoll_create1",
    "pipe2",
    "memfd_create",
    "pidfd_open",
    "clone3",
    "time",
    "gettimeofday",
    "clock_gettime",
}
_CLOCKS = ("clock_gettime", "gettimeofday", "time")


@dataclass
class Rule:
    """What happens at which calls, and how often it has."""

    calls: frozenset[str]
    path: re.Pattern[str] | None
    who: str | None
    nth: int
    count: int | None
    do: dict[str, Any]
    argument: int | None = None
    matched: int = 0
    acted: int = 0
    first: dict[str, Any] | None = None

    @classmethod
    def of(cls, value: dict[str, Any]) -> Rule:
        """Read a rule of a plan."""
        path = value.get("path")
        return cls(
            frozenset(value["calls"]),
            re.compile(path) if path is not None else None,
            value.get("who"),
            value.get("nth", 1),
            value.get("count", 1),
            value.get("do", {}),
            value.get("first"),
        )

    @property
    def due(self) -> bool:
        """Whether this match is one to act at."""
        return self.matched >= self.nth and (self.count is None or self.matched < self.nth + self.count)


@dataclass
class Injector:
    """One command with its plan."""

    rules: list[Rule]
    clock: list[tuple[float, float]] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    tracer: Tracer | None = None

    def run(self, command: list[str]) -> int:
        """Run the command; return its status."""
        calls = {call for rule in self.rules for call in rule.calls} | set(_CLOCKS if self.clock else ())
        self.tracer = Tracer(sorted(calls), self.on_call, own_clock=bool(self.clock))
        return self.tracer.run(command)

    def on_call(self, call: Call) -> Verdict:
        """Say what becomes of a call."""
        if self.clock and call.name in _CLOCKS:
            return self.tell_time(call)
        verdict = MADE
        for rule in self.rules:
            if call.name not in rule.calls or not self.is_meant(rule, call):
                continue
            rule.matched += 1
            if rule.due:
                rule.acted += 1
                if rule.first is None:
                    rule.first = {
                        "call": call.name,
                        "path": path_of(call),
                        "who": command_line(call.tid)[:200].decode("utf-8", "replace"),
                    }
                verdict = self.act(rule.do) or verdict
        return verdict

    def is_meant(self, rule: Rule, call: Call) -> bool:
        """Whether a rule is about this call."""
        assert self.tracer is not None
        if rule.argument is not None and rule.argument != call.arguments[0]:
            return False
        if rule.who == "runner":
            if thread_group(call.tid) != self.tracer.child:
                return False
        elif rule.who is not None:
            pattern = os.fsencode(rule.who[1:]) if rule.who.startswith("~") else ROLES[rule.who]
            if not re.search(pattern, command_line(call.tid)):
                return False
        return rule.path is None or bool(rule.path.search(path_of(call)))

    def act(self, do: dict[str, Any]) -> Verdict | None:
        """Do what a rule says."""
        assert self.tracer is not None
        if "errno" in do:
            return Verdict(-int(getattr(errno, do["errno"])))
        if "hold_s" in do:
            return Verdict(hold_s=do["hold_s"])
        if "signal" in do:
            targets = [self.tracer.child] if do["to"] == "runner" else traced(ROLES[do["to"]])
            chosen = {"all": targets, "first": targets[:1], "last": targets[-1:]}[do.get("which", "all")]
            for target in chosen:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(target, getattr(signal, do["signal"]))
        return None

    def tell_time(self, call: Call) -> Verdict:
        """Answer for the clock that people set."""
        passed = time.monotonic() - self.started
        now = time.time() + next((offset for after, offset in reversed(self.clock) if passed >= after), 0.0)
        seconds, rest = int(now // 1), now % 1
        if call.name == "time":
            if call.arguments[0]:
                put_memory(call.tid, call.arguments[0], struct.pack("@q", seconds))
            return Verdict(seconds)
        scale = 10**9 if call.name == "clock_gettime" else 10**6
        place = call.arguments[1] if call.name == "clock_gettime" else call.arguments[0]
        done = put_memory(call.tid, place, struct.pack("@qq", seconds, int(rest * scale)))
        return Verdict(0) if done else MADE


def path_of(call: Call) -> str:
    """Return the path that a call names, or that of its descriptor; empty where it has neither."""
    if call.name in _NEITHER:
        return ""
    if call.name not in _PATH_AT:
        return link_of(call.tid, call.arguments[0])
    path = os.fsdecode(text_at(call.tid, call.arguments[_PATH_AT[call.name]]))
    if path.startswith("/"):
        return path
    directory = call.arguments[_DIRECTORY_AT[call.name]] & 0xFFFFFFFF if call.name in _DIRECTORY_AT else 0xFFFFFF9C
    base = link_of(call.tid, directory) if directory < 1 << 31 else _read_link(f"/proc/{call.tid}/cwd")
    return f"{base}/{path}" if path else base


def link_of(tid: int, descriptor: int) -> str:
    """Return what a descriptor is."""
    return _read_link(f"/proc/{tid}/fd/{descriptor & 0xFFFFFFFF}")


def _read_link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def command_line(pid: int) -> bytes:
    """Return a command line; empty for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def traced(pattern: bytes) -> list[int]:
    """Return the processes that this one traces and whose command line matches, in the order of their numbers."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and re.search(pattern, command_line(int(name))):
            with contextlib.suppress(OSError):
                if f"\nTracerPid:\t{os.getpid()}\n" in Path(f"/proc/{name}/status").read_text(errors="replace"):
                    found.append(int(name))
    return sorted(found)


def thread_group(tid: int) -> int:
    """Return the process of a thread; 0 for one that is gone."""
    try:
        for line in Path(f"/proc/{tid}/status").read_text(errors="replace").splitlines():
            if line.startswith("Tgid:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def main() -> int:
    """Run the command of the arguments under the plan of the arguments."""
    plan, report, command = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]), sys.argv[3:]
    injector = Injector(
        [Rule.of(rule) for rule in plan.get("rules", ())], [tuple(step) for step in plan.get("clock", ())]
    )
    status = injector.run(command)
    rules = [{"matched": rule.matched, "acted": rule.acted, "first": rule.first} for rule in injector.rules]
    report.write_text(json.dumps({"status": status, "rules": rules}))
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    sys.exit(main())
