"""``reproduce``: run the real CLI again on an attempt's recorded exchanges, and compare what it did, bit for bit (DESIGN "Bit for bit", "Outcomes").

Boundary: reads one attempt and carries out one run. Not here: the rules (runner/gate/rules.py), serving (runner/gate/upstreams/recorded.py), the run (conduct.py), text for people.
Rules: a match needs positive evidence: every recorded exchange served once, at least one, none missed, none left (facts/replay.md §1). Tools, plan and skill tree are compared before anything
runs. No rule is ever widened here. Exit 0 same, 1 compared and different, 2 could not compare.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from runner.assess import Assessment, assess_parts, concluded, stored_plan, stored_run, stored_texts
from runner.attempt import Work, assess_run, staged_files
from runner.canonical import canonical_json, sha256_hex
from runner.claude.canonical_transcript import canonical_events, compare_events
from runner.conduct import Machine, Seen, Tell, carry_out, open_supervisor
from runner.difference import Difference, first_difference
from runner.errors import BundleCorrupt, ReproduceImpossible
from runner.gate.refusals import compare_refusals
from runner.gate.rules import RULES_VERSION
from runner.gate.upstreams.recorded import RecordedUpstream
from runner.kept import workspace_parts
from runner.plan import Plan, RunPlan
from runner.replan import replan
from runner.run_facts import RunFacts
from runner.skills import SkillTree, read_tree
from runner.staging import writing

if TYPE_CHECKING:
    from runner.bundle.reader import Attempt
    from runner.simulate.contract import Contract

Verdict = Literal["exact", "normalised", "diverged"]
_BEST_FIRST: tuple[Verdict, ...] = ("exact", "normalised", "diverged")
_KILLED = 128 + 9
PINNED_TRIES = 5
"""Runs of a pinned attempt at most. What nothing pins is the moment at which a processor turns to another program: rarely, on a busy machine, the CLI then draws two ids in the other
order (ADR 0012). A run whose every byte is the recorded one is a match whichever run it is; how many were made is told."""


@dataclass(frozen=True)
class Reproduction:
    """What came of running an attempt again."""

    attempt_id: str
    verdict: Verdict
    rules: Counter[str] = field(default_factory=Counter)
    """Rules that requests needed, and how often."""
    transcript_rules: Counter[str] = field(default_factory=Counter)
    """The same for the transcript."""
    first_difference: dict[str, str] | None = None
    """``place``, ``pointer``, ``recorded``, ``now``."""
    differences: tuple[str, ...] = ()
    """Every place that differs, one line each."""
    served: int = 0
    exact_requests: int = 0
    drift: tuple[str, ...] = ()
    """What is another here and does not decide: the root file system, the kernel."""
    rules_version: int = RULES_VERSION
    tries: int = 1
    """Runs that were made; more than one only of a pinned attempt."""

    @property
    def exit_code(self) -> int:
        """0 for the same, 1 for different."""
        return 1 if self.verdict == "diverged" else 0


@dataclass(frozen=True)
class _Terms:
    upstream: Callable[[], RecordedUpstream]
    out: Path = Path("/nonexistent")
    real_key: str | None = None
    keep_dir: Path | None = None
    shared: None = None


def reproduce(attempt: Attempt, machine: Machine, *, tell: Tell, cancelled: threading.Event) -> Reproduction:
    """Carry out the attempt's plan on its exchanges and compare. What is pinned is in the plan; a pinned attempt is run up to five times, until a run is exact.

    Raises: ReproduceImpossible (no exchanges, another toolchain, a plan that is not this attempt's, a second run that was cut short); BundleCorrupt; SandboxFailure; Cancelled.
    """
    exchanges = attempt.exchanges()
    if not any(exchange.kind == "inference" for exchange in exchanges):
        raise ReproduceImpossible(
            "the attempt holds no exchanges",
            code="no-exchanges",
            where=attempt.id[:12],
            hint="replay regrades its output",
        )
    plan = plan_of(attempt)
    if plan.shared_workspace:
        raise ReproduceImpossible(
            "the attempt's workspace was a directory of the host, shared for debugging",
            code="shared-workspace",
            where=attempt.id[:12],
            hint="run the fixture without --shared-workspace, and reproduce that attempt",
        )
    compare_toolchain(attempt, machine)
    done: list[Reproduction] = []
    for _ in range(PINNED_TRIES if plan.pinned is not None else 1):
        done.append(_run_again(attempt, plan, machine, tell, cancelled))
        if done[-1].verdict == "exact":
            break
    best = min(done, key=lambda one: _BEST_FIRST.index(one.verdict))
    return replace(best, tries=len(done))


def _run_again(
    attempt: Attempt, plan: RunPlan, machine: Machine, tell: Tell, cancelled: threading.Event
) -> Reproduction:
    """Run once, and compare. Raises: as ``reproduce``."""
    upstream = RecordedUpstream(attempt.exchanges())
    with open_supervisor(machine) as supervisor:
        staged = supervisor.staging / "skills"
        write_tree(attempt, staged)
        tree = _checked_tree(attempt, plan, staged)
        work = Work(
            plan=plan,
            fixture_source=attempt.part("fixture.json"),
            tree=tree,
            skill_files=staged_files(supervisor, tree),
            unit_texts=_texts(attempt, plan),
        )
        contract = _contract(attempt)
        seen = carry_out(
            plan, tree, _Terms(lambda: upstream), machine, supervisor, tell=tell, cancelled=cancelled, contract=contract
        )
    if seen.run.setup is not None:
        raise ReproduceImpossible(
            f"{seen.run.setup.step}: {seen.run.setup.message}", code=seen.run.setup.code, hint=seen.run.setup.hint
        )
    refuse_broken(stored_run(attempt), seen.run)
    assessment = assess_run(work, seen, machine)
    return _compare(attempt, plan, upstream, seen, assessment)


def refuse_broken(recorded: RunFacts, now: RunFacts) -> None:
    """Refuse to compare a second run that this machine cut short or hid: what it lacks says nothing of the bits. Raises: ReproduceImpossible."""
    hint = "something on this machine did that: its load, its memory, or a person; reproduce it again"
    if now.exit_status == _KILLED and now.ended_by is None and recorded.exit_status != _KILLED:
        raise ReproduceImpossible("the CLI was killed (SIGKILL) while it ran again", code="cli-killed", hint=hint)
    if now.ended_by == "timeout" != recorded.ended_by:
        raise ReproduceImpossible(f"the second run was ended by its limit: {now.limit}", code="timeout", hint=hint)
    if now.workspace_unread and not recorded.workspace_unread:
        raise ReproduceImpossible("the second run's workspace could not be read", code="workspace-unread", hint=hint)


def plan_of(attempt: Attempt) -> RunPlan:
    """Return the stored plan, a worker's or a judge's, after checking that it is this attempt's and one that this release would make again."""
    from runner.grade.judge_saved import is_judge, stored_judge_plan

    plan: RunPlan = stored_judge_plan(attempt) if is_judge(attempt.manifest.summary) else stored_plan(attempt)
    if sha256_hex(attempt.part("plan.json")) != attempt.manifest.plan_sha256:
        raise ReproduceImpossible(
            "the stored plan is not the one that the manifest names", code="plan-mismatch", where="part plan.json"
        )
    return plan


def compare_toolchain(attempt: Attempt, machine: Machine) -> None:
    """Name every tool that is another than the recorded one (C2). Raises: ReproduceImpossible (``toolchain-mismatch``)."""
    recorded: Any = attempt.json("toolchain.json")
    here: Any = machine.toolchain.as_record()
    agent = recorded.get("agent") if isinstance(recorded, dict) else None
    old, new = agent if isinstance(agent, dict) else {}, here["agent"]
    wrong = [
        f"{name}: recorded {_tool(old.get(name))}, here {_tool(new.get(name))}"
        for name in ("claude", "node")
        if old.get(name) != new.get(name)
    ]
    if wrong:
        raise ReproduceImpossible(
            "; ".join(wrong), code="toolchain-mismatch", hint="install the recorded versions, or record anew"
        )


def write_tree(attempt: Attempt, folder: Path) -> None:
    """Write the attempt's skill tree into the run's private folder, with the recorded execute bits. Raises: SandboxFailure where there is no room; BundleCorrupt."""
    with writing(folder):
        _write_tree(attempt, folder)


def _write_tree(attempt: Attempt, folder: Path) -> None:
    folder.mkdir(mode=0o755)
    listed: Any = attempt.json("skill-tree.json")
    with _as_written("skill-tree.json"):
        executable = {row["path"] for row in listed["files"] if row["executable"]}
    for name in attempt.part_names:
        if name.startswith("skill-tree/"):
            path = name.removeprefix("skill-tree/")
            target = folder / path
            target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            target.write_bytes(attempt.part(name))
            target.chmod(0o755 if path in executable else 0o644)


def _checked_tree(attempt: Attempt, plan: RunPlan, staged: Path) -> SkillTree:
    """Return the staged tree if it is the planned one, and the plan the one that this fixture and tree make."""
    skills = getattr(plan, "skills", None)
    tree = read_tree(staged, recipes=skills.recipes if skills is not None else ())
    if skills is not None and tree.digest != skills.digest:
        raise ReproduceImpossible(
            f"the skill tree is not the planned one: planned {skills.digest}, stored {tree.digest}",
            code="plan-mismatch",
            where="skill-tree",
        )
    again = replan(attempt, plan, tree, _contract(attempt))
    if again is not None:
        found = first_difference(plan.as_json(), again.as_json())
        if found is not None:
            raise ReproduceImpossible(
                f"fixture and skill tree give another plan: {found}", code="plan-mismatch", where="part plan.json"
            )
    return tree


def _contract(attempt: Attempt) -> Contract | None:
    """Return the contract of the attempt's simulated service. Raises: BundleCorrupt."""
    from pydantic import ValidationError

    from runner.simulate.contract import Contract
    from runner.simulate.trace import CONTRACT_PART

    if not attempt.has(CONTRACT_PART):
        return None
    try:
        return Contract.model_validate_json(attempt.part(CONTRACT_PART))
    except ValidationError as error:
        raise BundleCorrupt("the contract is not one of this release", where=f"part {CONTRACT_PART}") from error


def _texts(attempt: Attempt, plan: RunPlan) -> dict[str, str]:
    return stored_texts(attempt, plan) if isinstance(plan, Plan) else {}


def _compare(
    attempt: Attempt, plan: RunPlan, upstream: RecordedUpstream, seen: Seen, assessment: Assessment
) -> Reproduction:
    """Compare requests, refusals, transcript, output, tool trace, workspace and skill evidence, in this order."""
    served = upstream.served
    found: list[tuple[str, Difference]] = []
    found += [("request", Difference("", "one of the recorded exchanges", missed)) for missed in served.missed]
    found += [("order", Difference("", "the recorded order", late)) for late in served.late]
    if served.left:
        found.append(
            (
                "requests",
                Difference(
                    "",
                    f"{served.exact + served.normalised + served.left} exchanges",
                    f"{served.left} of them not asked for",
                ),
            )
        )
    if not served.exact + served.normalised:
        found.append(("requests", Difference("", "at least one exchange", "none served")))
    refusal_rules, difference = compare_refusals(attempt.exchanges(), seen.exchanges)
    if difference is not None:
        found.append(("refusals", difference))
    transcript_rules, difference = compare_events(
        canonical_events(attempt.part("transcript.jsonl")),
        canonical_events(bytes(seen.transcript)),
        upstream.renaming,
    )
    if difference is not None:
        found.append(("transcript", difference))
    found += _different("output", _stored_output(attempt), assessment.answer)
    found += _different(
        "trace",
        _json_part(attempt, "trace.json"),
        None if seen.simulation is None else json.loads(seen.simulation.part()),
    )
    found += _different("workspace", _stored_workspace(attempt), _workspace(seen))
    found += _different("evidence", _evidence(attempt, plan), _concluded(assessment, seen.run))
    verdict: Verdict = "diverged" if found else ("normalised" if served.normalised or refusal_rules else "exact")
    place, first = found[0] if found else ("", None)
    return Reproduction(
        attempt_id=attempt.id,
        verdict=verdict,
        rules=served.rules + refusal_rules,
        transcript_rules=transcript_rules,
        first_difference=None if first is None else {"place": place, **first.as_json()},
        differences=tuple(f"{place}: {difference}" for place, difference in found),
        served=served.exact + served.normalised,
        exact_requests=served.exact,
        drift=_drift(attempt),
    )


def _different(place: str, recorded: Any, now: Any) -> list[tuple[str, Difference]]:
    found = first_difference(recorded, now)
    return [] if found is None else [(place, found)]


def _json_part(attempt: Attempt, name: str) -> Any:
    return attempt.json(name) if attempt.has(name) else None


def _stored_output(attempt: Attempt) -> str | None:
    with _as_written("output.txt"):
        return attempt.part("output.txt").decode("utf-8", "surrogatepass") if attempt.has("output.txt") else None


@contextmanager
def _as_written(part: str) -> Iterator[None]:
    """Take what follows as the reading of a part. Raises: BundleCorrupt where it is of another form than any that was written."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BundleCorrupt("it is of another form than any that was written", where=f"part {part}") from error


def _stored_workspace(attempt: Attempt) -> Any:
    if not attempt.has("workspace.json"):
        return None
    index: Any = attempt.json("workspace.json")
    with _as_written("workspace.json"):
        return _with_contents(index, attempt.part)


def _workspace(seen: Seen) -> Any:
    if seen.workspace is None:
        return None
    parts = workspace_parts(seen.workspace)
    return _with_contents(json.loads(parts["workspace.json"]), parts.__getitem__)


def _with_contents(index: Any, part: Callable[[str], bytes]) -> Any:
    """Return a workspace index with each file's digest in the place of its part."""
    entries = [
        {key: sha256_hex(part(value)) if key == "part" else value for key, value in entry.items()}
        for entry in index["entries"]
    ]
    return {**index, "entries": entries}


def _evidence(attempt: Attempt, plan: RunPlan) -> Any:
    assessment, _ = assess_parts(attempt, plan, _texts(attempt, plan))
    return _concluded(assessment, stored_run(attempt))


def _concluded(assessment: Assessment, run: RunFacts) -> Any:
    """Return what a reproduction must conclude again: outcome code, skill evidence, exit status. Messages may quote what the rules explain."""
    facts = json.loads(canonical_json(concluded(assessment)))
    outcome = {"kind": facts["outcome"]["kind"], "code": facts["outcome"]["code"]}
    return {
        "outcome": outcome,
        "skill_state": facts["skill_state"],
        "witnesses": facts["witnesses"],
        "exit_status": run.exit_status,
        "ended_by": run.ended_by,
    }


def _drift(attempt: Attempt) -> tuple[str, ...]:
    """Return what is another here than where the attempt was recorded, and is no claim (V6 of facts/replay.md §2)."""
    from runner.attempt import rootfs_record

    sandbox: Any = attempt.json("sandbox.json")
    old = sandbox.get("rootfs") if isinstance(sandbox, dict) else None
    found = first_difference(old, rootfs_record())
    drift: tuple[str, ...] = () if found is None else (f"root file system: {found}",)
    observed, here = attempt.json("observations.json"), os.uname()
    if isinstance(observed, dict):
        pairs = (("kernel", observed.get("kernel"), here.release), ("machine", observed.get("machine"), here.machine))
        drift += tuple(f"{name}: recorded {was}, here {now}" for name, was, now in pairs if was not in (None, now))
    return drift


def _tool(record: Any) -> str:
    return f"{record.get('version')} {record.get('nar_sha256')}" if isinstance(record, dict) else "none"
