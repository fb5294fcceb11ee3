"""One attempt, from a loaded fixture to a file on disk: steps 2 to 7 of the walk, in their order (DESIGN "The walk of the data").

Boundary: the orchestrator; everything it touches, it touches through conduct.py, runner/skills and runner/bundle. Not here: loading (runner/fixture.py), the run itself (conduct.py),
judging (assess.py), which parts a bundle has (kept.py), what people see (runner/cli).
Rules: before the plan stands, a fault raises and nothing is kept; after that every fault of a named step becomes an attempt in error, and is kept (A2, A8, A10). All that a run
leaves on the machine is gone when ``run_attempt`` returns or raises: the supervisor sees to it, also when this process is killed (A1).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from runner.conduct import Cancelled, Machine, Seen, Tell, Terms, as_runner_error, carry_out, open_supervisor
from runner.envelope import Fixture
from runner.gate.server import GateRecord
from runner.gate.upstreams import Upstream
from runner.lint import check_unit, lint
from runner.plan import Plan, PlanOptions, Provider, RunPlan, build_plan
from runner.run_facts import GateFacts
from runner.skills import SkillTree, stage
from runner.toolchain import AgentToolchain
from sandbox.cgroup import NoPlace
from sandbox.process import Supervisor
from sandbox.rootfs import find_rootfs
from sandbox.staging import passed_over

if TYPE_CHECKING:
    from runner.assess import Assessment
    from runner.kept import Kept
    from runner.shared_workspace import SharedWorkspace
    from runner.simulate.contract import Contract

__all__ = ["Attempted", "Cancelled", "Job", "Machine", "as_runner_error", "plan_job", "run_attempt"]


@dataclass(frozen=True)
class Work:
    """A planned run and what is staged for it."""

    plan: RunPlan
    fixture_source: bytes
    tree: SkillTree
    """Lies in ``<staging>/skills``."""
    skill_files: Mapping[str, bytes]
    unit_texts: Mapping[str, str] = field(default_factory=dict)
    """See ``assess``; empty for a judge."""


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
    contract: Contract | None = None
    """Of the fixture's ``simulation``."""
    shared: SharedWorkspace | None = None
    """The directory of the host that is the workspace, for debugging (A13)."""


@dataclass(frozen=True)
class Attempted:
    """A kept attempt."""

    kept: Kept
    plan: Plan
    assessment: Assessment
    row: dict[str, Any]


def run_attempt(job: Job, machine: Machine, *, tell: Tell, cancelled: threading.Event) -> Attempted:
    """Run a job's worker once and keep the attempt.

    Raises: RunnerError before the plan stands or where the attempt cannot be saved; Cancelled.
    """

    def meanwhile() -> None:
        """Get ready, while the CLI boots, what judges and keeps the run: a run starts without it."""
        import_module("runner.assess")
        import_module("runner.kept")

    with open_supervisor(machine) as supervisor:
        tree = stage(job.skills, supervisor.staging / "skills", recipes_root=job.recipes, recipes=job.fixture.recipes)
        plan = plan_job(job, tree, machine.toolchain)
        work = Work(
            plan=plan,
            fixture_source=job.fixture.source,
            tree=tree,
            skill_files=staged_files(supervisor, tree),
            unit_texts=unit_texts(tree, plan),
        )
        tell("planned", {"plan": plan, "findings": [*lint(tree), *check_unit(tree, job.fixture)]})
        seen = carry_out(
            plan,
            tree,
            job,
            machine,
            supervisor,
            tell=tell,
            cancelled=cancelled,
            contract=job.contract,
            meanwhile=meanwhile,
        )
    assessment = assess_run(work, seen, machine)
    tell("classified", {"outcome": assessment.row["outcome"]})
    kept, row = keep(work, seen, assessment, job, machine)
    return Attempted(kept, plan, assessment, row)


def staged_files(supervisor: Supervisor, tree: SkillTree) -> dict[str, bytes]:
    """Return the content of every staged file of the tree, for the attempt."""
    return {file.path: (supervisor.staging / "skills" / file.path).read_bytes() for file in tree.files}


def assess_run(work: Work, seen: Seen, machine: Machine) -> Assessment:
    """Judge a run that was carried out: step 6."""
    from runner.assess import assess
    from runner.kept import omitted_rows

    assert seen.parsed is not None, "the run was carried out"
    return assess(
        plan=work.plan,
        unit_texts=work.unit_texts,
        transcript=seen.parsed,
        exchanges=seen.exchanges,
        run=seen.run,
        gate=gate_facts(work.plan, seen.record),
        toolchain=machine.toolchain.as_record(),
        omitted=() if seen.workspace is None else omitted_rows(seen.workspace),
    )


def keep(work: Work, seen: Seen, assessment: Assessment, terms: Terms, machine: Machine) -> tuple[Kept, dict[str, Any]]:
    """Save the attempt: step 7. Returns where it lies and its row.

    Raises: BundleError.
    """
    from runner.assess import kept_row
    from runner.kept import Evidence, save

    rootfs = machine.rootfs.as_record()
    evidence = Evidence(
        plan=work.plan,
        fixture_source=work.fixture_source,
        tree=work.tree,
        skill_files=work.skill_files,
        spec=seen.spec,
        rootfs=rootfs,
        toolchain=machine.toolchain.as_record(),
        transcript=bytes(seen.transcript),
        stderr=seen.ended.stderr if seen.ended is not None else b"",
        exchanges=seen.exchanges,
        workspace=seen.workspace,
        run=seen.run,
        gate=gate_facts(work.plan, seen.record),
        assessment=assessment,
        simulation=seen.simulation,
        observations=observations(seen, machine),
    )
    kept = save(evidence, terms.out, real_key=terms.real_key)
    duration_us = _us(seen.ended.duration_s) if seen.ended is not None else 0
    return kept, kept_row(kept.id, str(kept.path), assessment, duration_us, machine.rootfs.kind)


def observations(seen: Seen, machine: Machine) -> dict[str, Any]:
    """Return timings (microseconds) and facts of this host; none of them is compared by ``reproduce``."""
    facts: dict[str, Any] = {
        "kernel": os.uname().release,
        "machine": os.uname().machine,
        "run_uid": machine.host.identity.run_uid,
        "authority_us": _us(seen.authority_s),
        "sandbox_start_us": _us(seen.sandbox_start_s),
        "first_event_us": None if seen.first_event_s is None else _us(seen.first_event_s),
    }
    if told := passed_over(machine.host.identity, machine.runtime_dir):
        facts["staging"] = told
    if isinstance(machine.host.groups, NoPlace):
        facts["control_group"] = machine.host.groups.reason
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
    return build_plan(
        fixture=job.fixture,
        tree=tree,
        provider=job.provider,
        toolchain=record,
        options=job.options,
        contract=job.contract,
    )


def rootfs_record() -> dict[str, Any]:
    """Return what the attempt says of its root file system, so that nobody takes the host's for a pinned one."""
    return find_rootfs().as_record()


def unit_texts(tree: SkillTree, plan: Plan) -> dict[str, str]:
    """Return the staged texts that the wire witness compares with (A7)."""
    unit = tree.unit(plan.unit.skill.split("/", 1)[0])
    if unit is None:
        return {}
    texts = {"body": unit.body}
    if plan.unit.reference is not None and plan.unit.reference in unit.references:
        texts["reference"] = unit.references[plan.unit.reference]
    return texts


def gate_facts(plan: RunPlan, record: GateRecord | None) -> GateFacts:
    """Return the gate's totals as they are kept; all zero where it never served."""
    if record is None:
        return GateFacts(mode=plan.gate.mode, upstream=plan.provider.kind)
    wanted = set(GateFacts.model_fields) - {"upstream", "mode"}
    totals = {name: value for name, value in dict(record).items() if name in wanted}
    return GateFacts(mode=record.mode, upstream=record.upstream_kind, **totals)
