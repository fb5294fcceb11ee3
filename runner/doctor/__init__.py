"""Doctor: what a run needs, each thing tried for real on this machine, with cause and cure.

Boundary: none of its own; the rooms below touch what they try. Not here: printing (runner/cli/doctor.py), the sandbox's own checks (sandbox/doctor.py), the probe suite.
Rules: checks come in the order in which a run needs them, and each is told as soon as it is known. What depends on something that failed is failed too, and names it.
Nothing is left behind, no model call is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runner.doctor.check import Check, any_failed, not_tried
from runner.doctor.machine import check_attempts, check_clock, check_interpreter, check_packages

if TYPE_CHECKING:
    from runner.conduct import Machine
    from runner.toolchain import AgentToolchain
    from sandbox.process import Host

__all__ = ["Check", "Site", "any_failed", "cannot_isolate", "examine"]

ISOLATION = frozenset(
    {
        "bwrap",
        "bwrap-version",
        "run-uid",
        "python",
        "namespaces",
        "proc",
        "view",
        "inside",
        "network",
        "staging",
        "limits",
    }
)
"""The sandbox's checks without which no run starts (sandbox/doctor.py)."""


def cannot_isolate(checks: Iterable[Check]) -> bool:
    """Whether it is this host that cannot isolate, rather than that something is not installed: the stable code ``host-cannot-isolate``."""
    return any(check.status == "failed" and check.id in ISOLATION for check in checks)


@dataclass(frozen=True)
class Site:
    """The machine and the places that are examined."""

    cache_root: Path
    out: Path
    folder: Path
    """The fixtures' folder."""
    requirements: Path
    """The hash-locked list of packages."""
    runtime_dir: Path | None
    clock: Callable[[], float]
    """Seconds since 1970."""
    full: bool = False
    """Whether to do a whole run too."""
    bwrap: Path | None = None
    """None for the one that runs use."""
    python: Path | None = None
    """None for the one that runs use."""
    lock: Path | None = None
    """The toolchain lock; None for the one that is shipped."""


def examine(site: Site) -> Iterator[Check]:
    """Try everything and yield what came of it."""
    yield check_interpreter()
    packages = check_packages(site.requirements)
    yield packages
    yield check_clock(site.clock())
    yield check_attempts(site.out)
    if packages.status == "failed":
        for id_, title in (("sandbox", "The sandbox"), ("toolchain", "The pinned tools"), ("gate", "The gate")):
            yield not_tried(id_, title, packages.id)
        return
    yield from _examine_runs(site)


def _examine_runs(site: Site) -> Iterator[Check]:
    """Try what needs the packages: sandbox, tools, gate, fixtures."""
    from runner.doctor.cases import check_fixtures, check_skill_rules
    from runner.doctor.tools import check_copy, check_grader, check_toolchain
    from sandbox import doctor as sandbox_doctor

    blocked: str | None = None
    for found in sandbox_doctor.examine(runtime_dir=site.runtime_dir, bwrap=site.bwrap, python=site.python):
        check = Check(found.id, found.title, found.status, found.cause, found.cure)
        blocked = check.id if blocked is None and check.status == "failed" else blocked
        yield check
    tools, toolchain = check_toolchain(site.cache_root, site.lock)
    yield tools
    if toolchain is not None:
        yield check_copy(toolchain.claude_executable)
    host = None if blocked else _host(site)
    yield from _examine_tools(host, toolchain, blocked)
    yield from _examine_gate(site, host, blocked)
    fixtures_check, fixtures = check_fixtures(site.folder)
    yield fixtures_check
    yield check_skill_rules(fixtures)
    grader_check, grader = check_grader(site.cache_root, site.lock)
    yield grader_check
    if site.full:
        from runner.doctor.cases import check_run
        from runner.doctor.tools import check_grading

        if host is None or toolchain is None:
            yield not_tried("run", "A whole run", blocked or tools.id)
        else:
            yield check_run(site.folder, fixtures, _machine(site, host, toolchain))
        if host is None or grader is None:
            yield not_tried("grading", "Grading by the pinned Promptfoo", blocked or grader_check.id)
        else:
            yield check_grading(host, grader)


def _examine_tools(host: Host | None, toolchain: AgentToolchain | None, blocked: str | None) -> Iterator[Check]:
    from runner.doctor.tools import check_version

    for id_, name in (("cli-version", "Claude CLI"), ("node-version", "Node")):
        if host is None or toolchain is None:
            yield not_tried(id_, f"The pinned {name} starts inside the sandbox", blocked or "toolchain")
            continue
        tool = toolchain.claude if id_ == "cli-version" else toolchain.node
        program = toolchain.claude_executable if id_ == "cli-version" else tool.path
        yield check_version(host, id_, name, program, tool.version)


def _examine_gate(site: Site, host: Host | None, blocked: str | None) -> Iterator[Check]:
    from runner.doctor.gate import Mode, check_gate

    modes: tuple[Mode, ...] = ("first-party", "base-url")
    for mode in modes:
        if host is None:
            yield not_tried(f"gate-{mode}", f"The gate in {mode} mode", blocked or "the sandbox")
        else:
            yield check_gate(host, mode, site.runtime_dir)


def _host(site: Site) -> Host:
    from sandbox.process import find_host

    return find_host(bwrap=site.bwrap, python=site.python)


def _machine(site: Site, host: Host, toolchain: AgentToolchain) -> Machine:
    from runner.conduct import Machine

    return Machine(host, toolchain, site.runtime_dir)
