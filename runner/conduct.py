"""The conduct of one planned run, a worker's or a judge's: steps 3 to 5 of the walk (DESIGN "The walk of the data").

Boundary: touches what the run touches, through sandbox/ and runner/gate. Not here: planning it, judging and keeping what it has shown (attempt.py, runner/grade/judge.py).
Rules: whatever fails in a named step is noted in ``Seen.run``, never raised (A8); everything is torn down on the way out. Nothing is paid before ``release``. It knows of a
run only what every plan has (``RunPlan``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from runner.claude.transcript import TranscriptParser
from runner.errors import SandboxFailure, SimulatorUnavailable
from runner.gate.server import Gate, GateRecord
from runner.gate.upstreams import Upstream
from runner.pinned_parts import no_parts, pinned_sources
from runner.plan import RunPlan, sandbox_spec
from runner.run_ending import ending_facts
from runner.run_facts import RunFacts, SetupFacts
from runner.skills import SkillTree, changed_since
from runner.toolchain import AgentToolchain
from runner.unforeseen import step_fault
from sandbox.cgroup import CURE
from sandbox.errors import CollectFailed, SandboxError, SandboxUnavailable
from sandbox.limits import not_held
from sandbox.process import Host, Supervisor, supervise
from sandbox.rootfs import Rootfs, find_rootfs
from sandbox.running import Ended, Running, start
from sandbox.seccomp import own_filter

if TYPE_CHECKING:
    from runner.claude.facts import Transcript
    from runner.gate.authority import Authority
    from runner.gate.exchange import Exchange
    from runner.shared_workspace import SharedWorkspace
    from runner.simulate.contract import Contract
    from runner.simulate.server import SimulationRecord, Simulator
    from sandbox.collect import Workspace
    from sandbox.determinism.parts import Parts
    from sandbox.spec import SandboxSpec

POLL_S = 0.1
"""How often deadlines are looked at; the end of the run itself is never waited for by polling."""
Tell = Callable[[str, Mapping[str, Any]], None]
"""Receives progress: a step's name (``planned``, ``started``, ``first-event``, ``ended``, ``classified``) and facts for people."""


class Cancelled(Exception):
    """The run was cancelled from outside; nothing is kept."""


@dataclass(frozen=True)
class Machine:
    """What this machine offers: who runs sandboxes, the installed tools, and where private directories may lie."""

    host: Host
    toolchain: AgentToolchain
    runtime_dir: Path | None = None
    rootfs: Rootfs = field(default_factory=find_rootfs)
    """The read-only system of its sandboxes."""
    seccomp: bytes = field(default_factory=own_filter)
    """The system call filter of its sandboxes."""
    require_limits: tuple[str, ...] = ()
    """Limits without which no program is released (sandbox/limits.py)."""
    parts: Callable[[], Parts] = no_parts
    """Finds or makes the C parts of pinned runs. Raises: SandboxUnavailable."""
    shift_s: int | None = None
    """Moves the wall clock inside free runs by so many seconds: for tests of ``reproduce`` and nothing else."""


class Terms(Protocol):
    """What a run needs beside its plan, be it a worker's (``Job``) or a judge's."""

    @property
    def upstream(self) -> Callable[[], Upstream]:
        """Makes the upstream of this run; called once."""

    @property
    def out(self) -> Path:
        """Where the attempt is written."""

    @property
    def real_key(self) -> str | None:
        """Kept out of every response and every recorded byte."""

    @property
    def keep_dir(self) -> Path | None:
        """Where workspace and home are copied after the run, for diagnosis (A13)."""

    @property
    def shared(self) -> SharedWorkspace | None:
        """The directory of the host that is the workspace, where the plan says so (A13)."""


@dataclass
class Seen:
    """What a run has shown so far; filled in as steps are done."""

    spec: SandboxSpec
    run: RunFacts = field(default_factory=RunFacts)
    transcript: bytearray = field(default_factory=bytearray)
    parsed: Transcript | None = None
    record: GateRecord | None = None
    simulation: SimulationRecord | None = None
    ended: Ended | None = None
    workspace: Workspace | None = None
    first_event_s: float | None = None
    authority_s: float = 0.0
    sandbox_start_s: float = 0.0

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """What the gate recorded."""
        return self.record.exchanges if self.record is not None else ()


def open_supervisor(machine: Machine) -> Supervisor:
    """Start the supervisor of one run; used as a context, it ends with everything that it owns. Raises: SandboxFailure."""
    try:
        return supervise(machine.host, runtime_dir=machine.runtime_dir)
    except SandboxError as error:
        raise as_runner_error(error) from error


def carry_out(
    plan: RunPlan,
    tree: SkillTree,
    terms: Terms,
    machine: Machine,
    supervisor: Supervisor,
    *,
    tell: Tell,
    cancelled: threading.Event,
    contract: Contract | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> Seen:
    """Do a planned run. ``tree`` lies in ``<staging>/skills``; ``contract`` is that of the plan's simulation. Every fault of a named step is in what it returns.

    ``meanwhile`` is called once the CLI has been released, which boots for half a second; no deadline is looked at until it is back, so it takes a tenth of that.

    Raises: Cancelled.
    """
    rootfs = machine.rootfs
    spec = sandbox_spec(
        plan, rootfs=rootfs.kind, system=rootfs.mounts, seccomp=machine.seccomp, shift_s=machine.shift_s
    )
    seen = Seen(spec=spec)
    parser = TranscriptParser()
    _work(terms, plan, seen.spec, machine, supervisor, tree, parser, seen, tell, cancelled, contract, meanwhile)
    if cancelled.is_set():
        raise Cancelled
    seen.parsed = parser.close()
    return seen


def as_runner_error(error: SandboxError) -> SandboxFailure:
    """Wrap what the sandbox raised; code, place and hint are kept."""
    return SandboxFailure(str(error), where=error.where, hint=error.hint, code=error.code)


def _work(
    terms: Terms,
    plan: RunPlan,
    spec: SandboxSpec,
    machine: Machine,
    supervisor: Supervisor,
    tree: SkillTree,
    parser: TranscriptParser,
    seen: Seen,
    tell: Tell,
    cancelled: threading.Event,
    contract: Contract | None,
    meanwhile: Callable[[], None],
) -> None:
    """Steps 3 to 5. Whatever fails is noted in ``seen.run``; everything is torn down on the way out."""
    staged = supervisor.staging / "skills"
    sources = {"claude": machine.toolchain.claude_executable, "skills": staged}
    step = "pinned"
    try:
        if plan.pinned is not None or machine.shift_s is not None:
            sources |= pinned_sources(machine.parts(), None if plan.pinned is None else machine.toolchain.claude.path)
        step = "gate"
        gate = _make_gate(terms, plan, supervisor, sources, seen)
        simulator = _make_simulator(plan, contract)
        step = "sandbox-start"
        shared = terms.shared
        if shared is not None:
            shared.hand_over(machine.host.identity)
        directories = None if shared is None else {"workspace": shared.descriptor}
        limits = plan.limits
        before_ns = time.monotonic_ns()

        def take(piece: bytes) -> None:
            seen.transcript += piece
            parser.feed(piece)

        with start(
            supervisor,
            spec,
            on_stdout=take,
            stdin=plan.launch.stdin.encode("ascii"),
            stdout_cap=limits.stdout_bytes,
            stderr_cap=limits.stderr_bytes,
            wall_clock_s=limits.wall_clock_s,
            sources=sources,
            directories=directories,
        ) as running:
            seen.sandbox_start_s = (time.monotonic_ns() - before_ns) / 1e9
            _require_limits(machine, running)
            listener = running.listener
            assert listener is not None, "every worker's sandbox has a listener"
            try:
                running.release()  # before the servers: their imports would hold it up, and the kernel keeps early connections for them
                step = "sandbox"
                tell("started", {"setup_s": seen.sandbox_start_s})
                running.listener = None  # the gate owns it from here
                gate.at_rest = running.at_rest
                gate.serve(listener)
                if simulator is not None:
                    simulator.serve(running.further.pop())
                meanwhile()
                ended = _watch(running, gate, simulator, parser, plan, seen, tell, cancelled)
                seen.ended = ended
                tell("ended", {"duration_s": ended.duration_s})
                seen.run = ending_facts(ended, plan.limits, spec.limits, pinned=plan.pinned is not None)
                step = "collect"
                _collect(terms, running, ended, seen, tell)
            finally:
                try:
                    if simulator is not None:
                        _end_simulator(simulator, seen)
                finally:
                    seen.record = gate.close()
            changed = changed_since(tree, staged)
            if changed:
                seen.run = seen.run.model_copy(update={"skill_tree_changed": changed})
    except Exception as error:  # noqa: BLE001  what is no fault of a step or of the machine is raised again
        fault = SetupFacts(**step_fault(step, error))
        seen.run = seen.run.model_copy(update={"setup": fault})  # how the program ended is known all the same


def _require_limits(machine: Machine, running: Running) -> None:
    """Refuse a sandbox in which the kernel does not hold what the caller insists on. Raises: SandboxUnavailable; nothing has been released then."""
    missing = not_held(machine.require_limits, running.limits)
    if missing:
        raise SandboxUnavailable(
            f"this host does not hold the required limits: {', '.join(missing)}{machine.host.without_group}",
            hint=f"{CURE}, or run without --require-limits",
            code="limits-unavailable",
        )


def _make_gate(terms: Terms, plan: RunPlan, supervisor: Supervisor, sources: dict[str, Path], seen: Seen) -> Gate:
    """Make the gate; in first-party mode with an authority of this run's own, whose certificate is staged for the CLI."""
    authority: Authority | None = None
    if plan.gate.tls:
        from runner.gate.authority import make_authority

        before_ns = time.monotonic_ns()
        authority = make_authority()
        seen.authority_s = (time.monotonic_ns() - before_ns) / 1e9
        sources["ca"] = supervisor.staging / "ca.pem"
        sources["ca"].write_bytes(authority.ca_pem)
        sources["ca"].chmod(0o644)
    return Gate(plan.gate, terms.upstream(), authority=authority, real_key=terms.real_key, session_id=plan.session_id)


def _make_simulator(plan: RunPlan, contract: Contract | None) -> Simulator | None:
    """Make the simulated service of the plan, if it has one."""
    if plan.simulation is None or contract is None:
        return None
    from runner.simulate.server import Simulator

    return Simulator(contract, port=plan.simulation.port)


def _end_simulator(simulator: Simulator, seen: Seen) -> None:
    """Take the simulator's record. A simulator that died, or was sent what is no request, leaves a run that cannot be measured (B14)."""
    try:
        seen.simulation = simulator.close()
    except SimulatorUnavailable as error:
        setup = SetupFacts(step="simulator", code=error.code, message=error.message, hint=error.hint)
    else:
        fault = seen.simulation.fault
        if fault is None:
            return
        setup = SetupFacts(step="simulator", code=fault[0], message=fault[1], hint="see trace.json in the attempt")
    if seen.run.setup is None or seen.run.setup.step == "simulator":
        seen.run = seen.run.model_copy(update={"setup": setup})


def _watch(
    running: Running,
    gate: Gate,
    simulator: Simulator | None,
    parser: TranscriptParser,
    plan: RunPlan,
    seen: Seen,
    tell: Tell,
    cancelled: threading.Event,
) -> Ended:
    """Wait for the end, and bring it about where a deadline passes (A8; DESIGN "Decided" has the numbers)."""
    limits = plan.limits
    released = time.monotonic()
    result_at: float | None = None
    while True:
        ended = running.wait(POLL_S)
        if ended is not None:
            return ended
        now = time.monotonic()
        if cancelled.is_set():
            running.kill("cancelled")
        elif gate.failure is not None:
            running.kill("gate-failed")
        elif simulator is not None and simulator.failure is not None:
            running.kill("simulator-failed")
        elif parser.overflow:
            running.kill("output-limit")
        if parser.first_event_seen:
            if seen.first_event_s is None:
                seen.first_event_s = now - released
                tell("first-event", {"after_s": seen.first_event_s})
        elif now - released > limits.first_event_s:
            running.kill("cli-start")
        # A result with a background task running is not the end: then the wall clock decides (facts/claude-cli.md §0, 4 and 5).
        result_at = (result_at or now) if parser.result_seen and not parser.background_running else None
        if result_at is not None and now - result_at > limits.after_result_s:
            running.kill("grace")


def _collect(terms: Terms, running: Running, ended: Ended, seen: Seen, tell: Tell) -> None:
    """Read the workspace, only now that pid 1 of the sandbox is dead, and copy it out where that was asked for."""
    from sandbox.collect import collect, export
    from sandbox.view import HOME, WORKSPACE
    from sandbox.walk import Caps

    def unread(why: str) -> None:
        seen.run = seen.run.model_copy(update={"workspace_unread": True, "workspace_unread_why": why})

    if not ended.dead:
        unread("the sandbox was not known to be dead")
        return
    try:
        seen.workspace = collect(running.handle(WORKSPACE), Caps(entries=10_000))  # a bundle holds 20,000 parts
    except CollectFailed as error:
        unread(error.message)
    if terms.keep_dir is not None:
        try:
            for name, path in (("workspace", WORKSPACE), ("home", HOME)):
                export(running.handle(path), terms.keep_dir / name)
        except (OSError, CollectFailed) as error:
            tell(
                "keep-failed", {"where": str(terms.keep_dir), "why": str(error)}
            )  # the attempt itself was paid for, and is kept
