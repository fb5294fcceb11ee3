"""One attempt, from a loaded fixture to a file on disk: steps 2 to 7 of the walk, in their order (DESIGN "The walk of the data").

Boundary: the one orchestrator; everything it touches, it touches through sandbox/, runner/gate, runner/skills and runner/bundle. Not here: loading (runner/fixture.py), judging
(assess.py), which parts a bundle has (kept.py), what people see (runner/cli).
Rules: before the plan stands, a fault raises and nothing is kept; after that every fault of a named step becomes an attempt in error, and is kept (A2, A8, A10). All that a run
leaves on the machine is gone when ``run_attempt`` returns or raises: the supervisor sees to it, also when this process is killed (A1). Nothing is paid before ``release``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from runner.assess import Assessment, GateFacts, RunFacts, SetupFacts, assess, kept_row
from runner.claude.transcript import TranscriptParser
from runner.envelope import Fixture
from runner.errors import GateError, RunnerError, SandboxFailure
from runner.gate.server import Gate, GateRecord
from runner.gate.upstreams import Upstream
from runner.kept import Evidence, Kept, save
from runner.lint import check_unit, lint
from runner.plan import Plan, PlanOptions, Provider, build_plan, sandbox_spec
from runner.skills import SkillTree, stage, unchanged
from runner.toolchain import AgentToolchain
from sandbox.errors import SandboxError
from sandbox.process import Host, Supervisor, supervise
from sandbox.rootfs import HOST, read_host_identity, read_host_rootfs
from sandbox.running import Ended, Running, start

if TYPE_CHECKING:
    from runner.gate.authority import Authority
    from sandbox.collect import Workspace
    from sandbox.spec import SandboxSpec

POLL_S = 0.1
"""How often deadlines are looked at; the end of the run itself is never waited for by polling."""
Tell = Callable[[str, Mapping[str, Any]], None]
"""Receives progress: a step's name (``planned``, ``started``, ``first-event``, ``ended``) and facts for people."""


class Cancelled(Exception):
    """The run was cancelled from outside; nothing is kept."""


@dataclass(frozen=True)
class Machine:
    """What this machine offers: who runs sandboxes, the installed tools, and where private directories may lie."""

    host: Host
    toolchain: AgentToolchain
    runtime_dir: Path | None = None


@dataclass(frozen=True)
class Job:
    """One worker run to be done."""

    fixture: Fixture
    options: PlanOptions
    skills: Path | None
    """The skills folder; None stages none (the baseline of a comparison)."""
    recipes: Path | None
    provider: Provider
    upstream: Callable[[], Upstream]
    """Makes the upstream of this run; called once."""
    out: Path
    real_key: str | None = field(default=None, repr=False)
    """Kept out of every response and every recorded byte."""
    keep_dir: Path | None = None
    """Where workspace and home are copied after the run, for diagnosis (A13)."""


@dataclass(frozen=True)
class Attempted:
    """A kept attempt."""

    kept: Kept
    plan: Plan
    assessment: Assessment
    row: dict[str, Any]


@dataclass
class Seen:
    """What a run has shown so far; filled in as steps are done."""

    run: RunFacts = field(default_factory=RunFacts)
    transcript: bytearray = field(default_factory=bytearray)
    record: GateRecord | None = None
    ended: Ended | None = None
    workspace: Workspace | None = None
    first_event_s: float | None = None
    authority_s: float = 0.0
    started_ns: int = field(default_factory=time.monotonic_ns)
    sandbox_start_s: float = 0.0


def run_attempt(job: Job, machine: Machine, *, tell: Tell, cancelled: threading.Event) -> Attempted:
    """Run a job's worker once and keep the attempt.

    Raises: RunnerError before the plan stands or where the attempt cannot be saved; Cancelled.
    """
    try:
        supervisor = supervise(machine.host, runtime_dir=machine.runtime_dir)
    except SandboxError as error:
        raise as_runner_error(error) from error
    with supervisor:
        tree = stage(job.skills, supervisor.staging / "skills", recipes_root=job.recipes, recipes=job.fixture.recipes)
        files = {file.path: (supervisor.staging / "skills" / file.path).read_bytes() for file in tree.files}
        plan = plan_job(job, tree, machine.toolchain)
        tell("planned", {"plan": plan, "findings": [*lint(tree), *check_unit(tree, job.fixture)]})
        seen = Seen()
        parser = TranscriptParser()
        spec = sandbox_spec(plan, rootfs=HOST, system=read_host_rootfs())
        _work(job, plan, spec, machine, supervisor, tree, parser, seen, tell, cancelled)
        if cancelled.is_set():
            raise Cancelled
        transcript = parser.close()
    gate = gate_facts(plan, seen.record)
    toolchain = machine.toolchain.as_record()
    exchanges = seen.record.exchanges if seen.record is not None else ()
    assessment = assess(
        plan=plan,
        unit_texts=unit_texts(tree, plan),
        transcript=transcript,
        exchanges=exchanges,
        run=seen.run,
        gate=gate,
        toolchain=toolchain,
    )
    rootfs = rootfs_record()
    evidence = Evidence(
        plan=plan,
        fixture_source=job.fixture.source,
        tree=tree,
        skill_files=files,
        spec=spec,
        rootfs=rootfs,
        toolchain=toolchain,
        transcript=bytes(seen.transcript),
        stderr=seen.ended.stderr if seen.ended is not None else b"",
        exchanges=exchanges,
        workspace=seen.workspace,
        run=seen.run,
        gate=gate,
        assessment=assessment,
        observations=observations(seen, machine),
    )
    kept = save(evidence, job.out, real_key=job.real_key)
    duration_us = _us(seen.ended.duration_s) if seen.ended is not None else 0
    row = kept_row(kept.id, str(kept.path), assessment, duration_us, rootfs["kind"])
    return Attempted(kept, plan, assessment, row)


def observations(seen: Seen, machine: Machine) -> dict[str, Any]:
    """Return timings (microseconds) and facts of this host; none of them is compared by ``reproduce``."""
    import os

    facts: dict[str, Any] = {
        "kernel": os.uname().release,
        "machine": os.uname().machine,
        "run_uid": machine.host.identity.run_uid,
        "authority_us": _us(seen.authority_s),
        "sandbox_start_us": _us(seen.sandbox_start_s),
        "first_event_us": None if seen.first_event_s is None else _us(seen.first_event_s),
    }
    if seen.ended is not None:
        facts |= {
            "duration_us": _us(seen.ended.duration_s),
            "stdout_bytes": seen.ended.stdout_bytes,
            "stderr_bytes": seen.ended.stderr_bytes,
            "limits": seen.ended.limits.model_dump(mode="json"),
            **seen.ended.observations,
        }
    return facts


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


def plan_job(job: Job, tree: SkillTree, toolchain: AgentToolchain) -> Plan:
    """Freeze the plan of a job over a staged tree (step 2)."""
    record: dict[str, JsonValue] = toolchain.as_record()  # type: ignore[assignment]  # a JSON value, told as objects
    return build_plan(fixture=job.fixture, tree=tree, provider=job.provider, toolchain=record, options=job.options)


def rootfs_record() -> dict[str, Any]:
    """Return what the attempt says of its root file system, so that nobody takes the host's for a pinned one."""
    return {"kind": HOST, "pinned": False, "identity": read_host_identity()}


def unit_texts(tree: SkillTree, plan: Plan) -> dict[str, str]:
    """Return the staged texts that the wire witness compares with (A7)."""
    unit = tree.unit(plan.unit.skill.split("/", 1)[0])
    if unit is None:
        return {}
    texts = {"body": unit.body}
    if plan.unit.reference is not None and plan.unit.reference in unit.references:
        texts["reference"] = unit.references[plan.unit.reference]
    return texts


def gate_facts(plan: Plan, record: GateRecord | None) -> GateFacts:
    """Return the gate's totals as they are kept; all zero where it never served."""
    if record is None:
        return GateFacts(mode=plan.gate.mode, upstream=plan.provider.kind)
    wanted = set(GateFacts.model_fields) - {"upstream", "mode"}
    totals = {name: value for name, value in dict(record).items() if name in wanted}
    return GateFacts(mode=record.mode, upstream=record.upstream_kind, **totals)


def as_runner_error(error: SandboxError) -> SandboxFailure:
    """Wrap what the sandbox raised; code, place and hint are kept."""
    return SandboxFailure(str(error), where=error.where, hint=error.hint, code=error.code)


def _work(
    job: Job,
    plan: Plan,
    spec: SandboxSpec,
    machine: Machine,
    supervisor: Supervisor,
    tree: SkillTree,
    parser: TranscriptParser,
    seen: Seen,
    tell: Tell,
    cancelled: threading.Event,
) -> None:
    """Steps 3 to 5. Whatever fails is noted in ``seen.run``; everything is torn down on the way out."""
    staged = supervisor.staging / "skills"
    sources = {"claude": machine.toolchain.claude_executable, "skills": staged}
    step = "gate"
    try:
        gate = _make_gate(job, plan, supervisor, sources, seen)
        step = "sandbox-start"
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
        ) as running:
            seen.sandbox_start_s = (time.monotonic_ns() - before_ns) / 1e9
            listener = running.listener
            assert listener is not None, "every worker's sandbox has a listener"
            running.listener = None  # the gate owns it now
            try:
                gate.serve(listener)
                running.release()
                tell("started", {"setup_s": seen.sandbox_start_s})
                ended = _watch(running, gate, parser, plan, seen, tell, cancelled)
                seen.ended = ended
                _conclude(ended, plan, seen)
                _collect(job, running, ended, seen)
            finally:
                seen.record = gate.close()
            changed = unchanged(tree, staged)
            if changed:
                seen.run = seen.run.model_copy(update={"skill_tree_changed": changed})
    except SandboxError as error:
        seen.run = RunFacts(setup=SetupFacts(step=step, code=error.code, message=str(error), hint=error.hint))
    except GateError as error:
        seen.run = RunFacts(setup=SetupFacts(step="gate", code=error.code, message=error.message, hint=error.hint))


def _make_gate(job: Job, plan: Plan, supervisor: Supervisor, sources: dict[str, Path], seen: Seen) -> Gate:
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
    return Gate(plan.gate, job.upstream(), authority=authority, real_key=job.real_key, session_id=plan.session_id)


def _watch(
    running: Running,
    gate: Gate,
    parser: TranscriptParser,
    plan: Plan,
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


def _conclude(ended: Ended, plan: Plan, seen: Seen) -> None:
    """Turn how the program ended into facts for the rules."""
    limits = plan.limits
    facts: dict[str, Any] = {"exit_status": ended.exit_status}
    match ended.reason:
        case None:
            if ended.setup_error is not None:
                facts["setup"] = SetupFacts(
                    step="sandbox-start",
                    code="sandbox-setup-failed",
                    message=ended.setup_error,
                    hint="hermeval doctor tries each part by itself",
                )
        case "timeout":
            facts |= {"ended_by": "timeout", "limit": f"{limits.wall_clock_s} s wall clock"}
        case "output-limit":
            facts |= {"ended_by": "output-limit", "limit": f"{limits.stdout_bytes} bytes of stdout"}
        case "grace":
            facts["ended_by"] = "grace"
        case "cli-start":
            message = f"the CLI wrote no event within {limits.first_event_s} s"
            facts["setup"] = SetupFacts(
                step="cli-start", code="timeout", message=message, hint="see the CLI's stderr in the attempt"
            )
        case "gate-failed":
            facts["setup"] = SetupFacts(step="gate", code="gate-unavailable", message="the gate died during the run")
        case reason:
            facts["setup"] = SetupFacts(step="sandbox", code=reason, message=f"the sandbox was ended: {reason}")
    seen.run = RunFacts(**facts)


def _collect(job: Job, running: Running, ended: Ended, seen: Seen) -> None:
    """Read the workspace, only now that pid 1 of the sandbox is dead, and copy it out where that was asked for."""
    from sandbox.collect import collect, export
    from sandbox.view import HOME, WORKSPACE
    from sandbox.walk import Caps

    if not ended.dead:
        seen.run = seen.run.model_copy(update={"workspace_unread": True})
        return
    seen.workspace = collect(running.handle(WORKSPACE), Caps(entries=10_000))  # a bundle holds 20,000 parts
    if job.keep_dir is not None:
        try:
            for name, path in (("workspace", WORKSPACE), ("home", HOME)):
                export(running.handle(path), job.keep_dir / name)
        except OSError as error:
            raise RunnerError(
                f"--keep: {error}", where=str(job.keep_dir), hint="name a new or empty directory", code="keep-failed"
            ) from error
