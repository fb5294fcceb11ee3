"""Which parts an attempt has, and what each holds (DESIGN "The attempt bundle").

Boundary: pure but for ``save``, which writes one file through runner/bundle. Not here: the file format (runner/bundle), what the facts mean (assess.py).
Rules: everything that ``assess`` needs is a part. Timings and facts of the host stand in ``observations.json`` and nowhere else. No part holds the real key; a part that would
is never written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.assess import EVIDENCE_PART, Assessment, evidence_part
from runner.bundle.writer import AttemptContent, write_attempt
from runner.canonical import canonical_json
from runner.errors import BundleError
from runner.gate.exchange import Exchange
from runner.plan import RunPlan
from runner.run_facts import GateFacts, RunFacts
from runner.simulate.trace import CONTRACT_PART
from runner.simulate.trace import PART as TRACE_PART
from runner.skills import SkillTree, manifest

if TYPE_CHECKING:
    from runner.simulate.server import SimulationRecord
    from sandbox.collect import Workspace
    from sandbox.spec import SandboxSpec


@dataclass(frozen=True)
class Evidence:
    """Everything of one run that is kept."""

    plan: RunPlan
    fixture_source: bytes
    tree: SkillTree
    skill_files: Mapping[str, bytes]
    """Path in the tree to content."""
    spec: SandboxSpec
    rootfs: Mapping[str, Any]
    toolchain: Mapping[str, Any]
    transcript: bytes
    stderr: bytes
    exchanges: tuple[Exchange, ...]
    workspace: Workspace | None
    run: RunFacts
    gate: GateFacts
    assessment: Assessment
    simulation: SimulationRecord | None = None
    observations: Mapping[str, Any] = field(default_factory=dict)
    """Integers, texts and booleans only; times in microseconds."""


@dataclass(frozen=True)
class Kept:
    """A saved attempt."""

    id: str
    path: Path


def save(evidence: Evidence, directory: Path, *, real_key: str | None) -> Kept:
    """Write the attempt's file.

    Raises: BundleUnwritable, BundleExists; BundleError (``key-in-evidence``) where a part would hold the real key: nothing is written then.
    """
    from runner.bundle.reader import read_manifest

    content = attempt_content(evidence)
    if real_key is not None:
        _refuse_key(content, real_key.encode())
    path = write_attempt(directory, content)
    return Kept(read_manifest(path).id, path)


def attempt_content(evidence: Evidence) -> AttemptContent:
    """Return the attempt's parts and the summary in its manifest."""
    answer = evidence.assessment.answer
    parts: dict[str, bytes | Path] = {
        "fixture.json": evidence.fixture_source,
        "skill-tree.json": canonical_json(
            {"schema_version": 1, "digest": evidence.tree.digest, "files": manifest(evidence.tree.files)}
        ),
        "plan.json": evidence.plan.canonical(),
        "sandbox.json": canonical_json(
            {
                "schema_version": 1,
                "spec": evidence.spec.as_record(),
                "description": evidence.spec.describe(),
                "rootfs": dict(evidence.rootfs),
            }
        ),
        "toolchain.json": canonical_json(dict(evidence.toolchain)),
        "transcript.jsonl": evidence.transcript,
        "stderr": evidence.stderr,
        EVIDENCE_PART: evidence_part(evidence.assessment, evidence.run, evidence.gate),
        "observations.json": canonical_json({"schema_version": 1, **evidence.observations}),
    }
    parts |= {f"skill-tree/{path}": content for path, content in evidence.skill_files.items()}
    if answer is not None:
        parts["output.txt"] = answer.encode("utf-8", "surrogatepass")
    if evidence.simulation is not None:
        parts[CONTRACT_PART] = evidence.simulation.contract.canonical()
        parts[TRACE_PART] = evidence.simulation.part()
    if evidence.workspace is not None:
        parts |= workspace_parts(evidence.workspace)
    return AttemptContent(evidence.plan.fixture.id, summary(evidence), parts, evidence.exchanges)


def summary(evidence: Evidence) -> dict[str, Any]:
    """Return what lists show without unpacking anything."""
    row, plan = evidence.assessment.row, evidence.plan
    cost = row["cost_usd"]
    return {
        "outcome": {"kind": row["outcome"]["kind"], "code": row["outcome"]["code"]},
        **plan.told(),
        "skill_state": row["skill_state"],
        "witnesses": row["witnesses"],
        "cost_usd": None if cost is None else f"{cost:.6f}",
        "model": plan.model,
        "provider": plan.provider.kind,
        "gate_mode": plan.gate.mode,
        "launch": plan.launch.setting,
        "determinism": plan.determinism,
        "rootfs": evidence.rootfs["kind"],
        "skill_tree_digest": evidence.tree.digest,
        "toolchain": dict(evidence.toolchain),
    }


def workspace_parts(workspace: Workspace) -> dict[str, bytes]:
    """Return ``workspace.json`` and one part a regular file. Names that are no UTF-8 are kept as hex; what a cap left out is named."""
    entries, parts = [], {}
    for number, entry in enumerate(workspace.entries):
        record: dict[str, Any] = {
            "kind": entry.kind,
            **_path("path", entry.path),
            "mode": entry.mode,
            "bytes": entry.size,
        }
        if entry.sparse:
            record["sparse"] = True
        if entry.hard_links > 1 and entry.kind != "directory":
            record["hard_links"] = entry.hard_links
        if entry.target is not None:
            record |= _path("target", entry.target)
        if entry.content is not None:
            record["part"] = f"workspace/{number}"
            parts[f"workspace/{number}"] = entry.content
        entries.append(record)
    listing = {"schema_version": 1, "entries": entries, "omitted": omitted_rows(workspace)}
    return {"workspace.json": canonical_json(listing), **parts}


def omitted_rows(workspace: Workspace) -> list[dict[str, str]]:
    """Return what of a workspace was left out, as its listing has it."""
    return [{"why": omission.why, **_path("path", omission.path)} for omission in workspace.omitted]


def _path(name: str, path: bytes) -> dict[str, str]:
    try:
        return {name: path.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_hex": path.hex()}


def _refuse_key(content: AttemptContent, key: bytes) -> None:
    found = [name for name, part in content.parts.items() if isinstance(part, bytes) and key in part]
    for exchange in content.exchanges:
        bodies = (exchange.request.body, exchange.response.body if exchange.response else b"")
        heads = (*exchange.request.headers, *(exchange.response.headers if exchange.response else ()))
        if any(key in body for body in bodies) or any(key.decode("latin-1") in value for _, value in heads):
            found.append(f"exchange {exchange.seq}")
    if found:
        raise BundleError(
            "the provider key stands in the evidence, so the attempt is not saved",
            where=", ".join(found[:5]),
            hint="revoke the key, and report this as a defect of the gate",
            code="key-in-evidence",
        )
