"""Whether a saved worker attempt may be graded at all: every record is there, and they agree (B8, B9).

Boundary: reads an opened attempt. Not here: the bytes' integrity (runner/bundle/reader.py checked every digest before), the outcome (runner/assess.py).
Rules: an attempt whose records are missing or contradict each other gives no verdict, whoever rewrote it and however well its digests add up. The output is the one that the
generation record gives, or a negative control says how it differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from runner.assess import EVIDENCE_PART, Assessment, assess_attempt, follows, stored_plan
from runner.bundle.format import EXCHANGES_PART, OBSERVATIONS_PART, PLAN_PART
from runner.bundle.reader import Attempt
from runner.canonical import digest_of, sha256_hex
from runner.errors import BundleCorrupt
from runner.grade.control import OUTPUT_PART, Control, check_control, stored_control
from runner.plan import Plan

REQUIRED = (
    "fixture.json",
    "skill-tree.json",
    PLAN_PART,
    "sandbox.json",
    "toolchain.json",
    EXCHANGES_PART,
    "transcript.jsonl",
    EVIDENCE_PART,
    OBSERVATIONS_PART,
)


def require_records(attempt: Attempt) -> None:
    """Check that no record is missing. Raises: BundleCorrupt, naming it."""
    for name in REQUIRED:
        if not attempt.has(name):
            raise BundleCorrupt("the attempt lacks a record, so it cannot be graded", where=f"part {name}", hint=_HINT)


def require_agreement(attempt: Attempt, plan: Plan, assessment: Assessment, stored: Any) -> Control | None:
    """Check that the records agree with each other; return the control record of a negative control.

    Raises: BundleCorrupt, naming the record that does not agree.
    """
    if sha256_hex(attempt.part(PLAN_PART)) != attempt.manifest.plan_sha256:
        raise _disagrees(PLAN_PART, "the manifest names another plan")
    if sha256_hex(attempt.part("fixture.json")) != plan.fixture.sha256 or attempt.manifest.fixture != plan.fixture.id:
        raise _disagrees("fixture.json", "the plan names another fixture")
    if attempt.json("toolchain.json") != plan.toolchain:
        raise _disagrees("toolchain.json", "the plan names other tools")
    _require_tree(attempt, plan)
    if not follows(assessment, stored):
        raise _disagrees(EVIDENCE_PART, "its conclusions do not follow from the evidence")
    return _require_output(attempt, assessment.answer)


def check_records(attempt: Attempt) -> tuple[Literal["held", "broken", "unknown"], str]:
    """Return what ``verify`` says of the records of an attempt. Raises: BundleCorrupt."""
    if attempt.manifest.summary.get("kind") not in (None, "worker"):
        return "unknown", "this is no worker's attempt"
    if not attempt.has(EVIDENCE_PART):
        return "unknown", "the attempt keeps no evidence of its own"
    require_records(attempt)
    assessment, stored = assess_attempt(attempt)
    control = require_agreement(attempt, stored_plan(attempt), assessment, stored)
    if control is not None:
        told = f"{control.parent.attempt[:12]}, whose output was {control.parent.output_sha256[:12]}"
        return "held", f"a negative control of {told}: {control.reason}"
    return "held", "plan, fixture, skill tree, tools, evidence and output agree"


def check_trace(attempt: Attempt) -> tuple[Literal["held", "broken", "unknown"], str]:
    """Return what ``verify`` says of the tool trace: whether the calls that it tells of, made again on the contract, give it, byte for byte.

    It shows a trace that cannot be; a last call that changed nothing and is left out is seen by ``reproduce`` only. Raises: BundleCorrupt.
    """
    from pydantic import ValidationError

    from runner.simulate.contract import Contract
    from runner.simulate.retrace import recomputed_part
    from runner.simulate.trace import CONTRACT_PART
    from runner.simulate.trace import PART as TRACE_PART

    if attempt.manifest.summary.get("kind") not in (None, "worker"):
        return "unknown", "this is no worker's attempt"
    kept = [name for name in (CONTRACT_PART, TRACE_PART) if attempt.has(name)]
    if not kept:
        return "unknown", "the attempt keeps no trace of a simulated service"
    planned = stored_plan(attempt).simulation
    if planned is None or len(kept) == 1:
        raise _disagrees(kept[0], "plan, contract and trace of a simulated service go together")
    try:
        contract = Contract.model_validate_json(attempt.part(CONTRACT_PART))
    except ValidationError as error:
        raise BundleCorrupt("the contract is not one of this release", where=f"part {CONTRACT_PART}") from error
    if contract.sha256 != planned.contract_sha256:
        raise _disagrees(CONTRACT_PART, "the plan names another contract")
    stored = attempt.part(TRACE_PART)
    try:
        again = recomputed_part(contract, stored)
    except ValueError as error:
        raise BundleCorrupt("the tool trace is not readable", where=f"part {TRACE_PART}", hint=_HINT) from error
    if again != stored:
        return "broken", "the calls that the trace tells of give another trace on the attempt's contract"
    return "held", "the calls that the trace tells of give it again on the attempt's contract"


def _require_tree(attempt: Attempt, plan: Plan) -> None:
    tree = attempt.json("skill-tree.json")
    files = tree.get("files") if isinstance(tree, Mapping) else None
    if not isinstance(files, list) or not isinstance(tree, Mapping):
        raise _disagrees("skill-tree.json", "it lists no files")
    if digest_of(files) != plan.skills.digest or tree.get("digest") != plan.skills.digest:
        raise _disagrees("skill-tree.json", "the plan names another skill tree")
    kept = {part.name: part.sha256 for part in attempt.manifest.parts if part.name.startswith("skill-tree/")}
    listed = {f"skill-tree/{file.get('path')}": file.get("sha256") for file in files if isinstance(file, Mapping)}
    if kept != listed:
        raise _disagrees("skill-tree.json", "its files are not those that are kept")


def _require_output(attempt: Attempt, answer: str | None) -> Control | None:
    control = stored_control(attempt)
    if answer is None:
        if attempt.has(OUTPUT_PART) or control is not None:
            raise _disagrees(OUTPUT_PART, "the generation record has no output")
        return None
    if not attempt.has(OUTPUT_PART):
        raise _disagrees(OUTPUT_PART, "the output is missing")
    data = attempt.part(OUTPUT_PART)
    if control is not None:
        check_control(control, attempt.manifest, answer, output_text(data))
    elif data != answer.encode("utf-8", "surrogatepass"):
        raise _disagrees(OUTPUT_PART, "it is not the output of the generation record, and no negative control either")
    return control


def output_text(data: bytes) -> str:
    """Return the part ``output.txt`` as text. Raises: BundleCorrupt."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise BundleCorrupt("the output is no text", where=f"part {OUTPUT_PART}", hint=_HINT) from error


_HINT = "get the attempt again from where it came from; a rewritten attempt is not graded"


def _disagrees(name: str, why: str) -> BundleCorrupt:
    return BundleCorrupt(f"the attempt's records do not agree: {why}", where=f"part {name}", hint=_HINT)
