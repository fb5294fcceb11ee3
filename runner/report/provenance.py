"""Where an attempt comes from: identities and hashes that a reader can compare, and the sandbox in its own words.

Boundary: reads parts of an opened attempt. Not here: whether the hashes are those that are pinned here (``hermeval verify``).
Rules: hashes are shown whole. What a part does not say is left out, and nothing of the machine that makes the page is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runner.bundle.reader import Attempt
from runner.plan import Plan, RunPlan
from runner.report.evaluation import text_of
from runner.report.view import Facts
from runner.report.workspace import mapping

Pairs = tuple[tuple[str, str], ...]
_MAX_LINES = 200


def provenance(attempt: Attempt, plan: RunPlan | None, tree: tuple[str, int], answer_sha256: str) -> tuple[Facts, ...]:
    """Return the groups of identities of an attempt. ``tree`` is the staged tree's digest and its number of files. Raises: BundleCorrupt."""
    digest, files = tree
    manifest = attempt.manifest
    own = [
        ("attempt id", attempt.id),
        ("format", f"{manifest.format} version {manifest.format_version}"),
        ("made by", ", ".join(f"{name} {version}" for name, version in sorted(manifest.created_by.items()))),
        ("answer sha256", answer_sha256),
    ]
    inputs = [
        ("plan sha256", manifest.plan_sha256),
        *(() if plan is None else _planned(plan)),
        ("skill tree digest", f"{digest} ({files} files)" if digest else ""),
    ]
    groups = (
        Facts("Attempt", _known(own)),
        Facts("Inputs", _known(inputs)),
        Facts("Tools", _tools(attempt)),
        Facts("Machine", _machine(attempt)),
    )
    return tuple(group for group in groups if group.rows)


def sandbox_lines(attempt: Attempt) -> tuple[str, ...]:
    """Return the sandbox's description, line by line. Raises: BundleCorrupt."""
    document = _part(attempt, "sandbox.json")
    lines = text_of(document.get("description")).split("\n")
    return tuple(line for line in lines[:_MAX_LINES] if line)


def limit_facts(attempt: Attempt) -> Pairs:
    """Return which tier held each limit of the run. Raises: BundleCorrupt."""
    limits = mapping(_part(attempt, "observations.json").get("limits"))
    return _known([(str(name).replace("_", " "), text_of(value)) for name, value in sorted(limits.items())])


def _planned(plan: RunPlan) -> list[tuple[str, str]]:
    provider = plan.provider
    facts = [
        ("fixture sha256", plan.fixture.sha256),
        ("provider", provider.kind),
        ("script", provider.script or ""),
        ("script sha256", provider.script_sha256 or ""),
        ("recording", provider.recording or ""),
        ("address", provider.base_url or ""),
        ("session id", plan.session_id),
        ("launch", f"{plan.launch.setting}, gate {plan.gate.mode}, determinism {plan.determinism}"),
        ("pinned", "" if plan.pinned is None else f"{plan.pinned.date}, seed {plan.pinned.seed}: never scored"),
        ("model asked for", plan.model),
    ]
    if isinstance(plan, Plan):
        facts.append(("unit under test", f"{plan.unit.skill} by {plan.invocation}, repeat {plan.repeat}"))
        facts.append(("skill text sha256", plan.unit.body_sha256 or ""))
        facts.append(("reference sha256", plan.unit.reference_sha256 or ""))
    return facts


def _tools(attempt: Attempt) -> Pairs:
    record = _part(attempt, "toolchain.json")
    agent = mapping(record.get("agent"))
    facts = [("system", text_of(record.get("system"))), ("agent tree (NAR)", text_of(agent.get("nar_sha256")))]
    for name, title in (("claude", "Claude CLI"), ("node", "Node")):
        tool = mapping(agent.get(name))
        facts.append((f"{title} {text_of(tool.get('version'))} (NAR)", text_of(tool.get("nar_sha256"))))
    return _known(facts)


def _machine(attempt: Attempt) -> Pairs:
    rootfs = mapping(_part(attempt, "sandbox.json").get("rootfs"))
    seen = _part(attempt, "observations.json")
    identity = mapping(rootfs.get("identity"))
    closure = mapping(identity.get("closure"))
    if closure:
        named = f"{len(closure)} store paths, each with its hash in sandbox.json"
    else:
        named = text_of(identity.get("pretty_name")) or ", ".join(f"{key} {text_of(identity[key])}" for key in identity)
    pinned = "pinned" if rootfs.get("pinned") is True else "not pinned"
    return _known(
        [
            ("root file system", f"{text_of(rootfs.get('kind'))}, {pinned}: {named}" if rootfs else ""),
            ("kernel", " ".join(part for part in (text_of(seen.get("kernel")), text_of(seen.get("machine"))) if part)),
        ]
    )


def _part(attempt: Attempt, name: str) -> Mapping[str, Any]:
    return mapping(attempt.json(name)) if attempt.has(name) else {}


def _known(facts: list[tuple[str, str]]) -> Pairs:
    return tuple((name, value) for name, value in facts if value)
