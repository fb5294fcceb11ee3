"""Negative controls: a copy of an attempt with a mutated output, which a check must catch (B9).

Boundary: pure; ``write_control`` writes one attempt file. Not here: what an ordinary attempt must hold (provenance.py).
Rules: only the output changes, by literal replacements that are recorded with their counts; everything else is the parent's, byte for byte, so that the parent's id can be computed
from the control. The generation record still tells of the original output, and the control says so. A control of a control is not made: the chain would hide the original.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from pydantic import Field, StringConstraints, ValidationError

from runner.bundle.format import CONTROL_PART, Manifest, PartRecord
from runner.bundle.reader import Attempt
from runner.bundle.writer import AttemptContent, write_attempt
from runner.canonical import canonical_json, sha256_hex
from runner.errors import BundleCorrupt, SettingInvalid
from runner.gate.exchange import Value

OUTPUT_PART = "output.txt"
SUMMARY_KEY = "negative_control"
_Hex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_Text = Annotated[str, StringConstraints(pattern=r"\S", max_length=4000)]


class Replacement(Value):
    """Every occurrence of one text replaced by another."""

    old: Annotated[str, StringConstraints(min_length=1)]
    new: str
    count: Annotated[int, Field(ge=1)]
    """How often it stood there."""


class Parent(Value):
    """The attempt that the control was made of."""

    attempt: _Hex
    output_sha256: _Hex
    created_by: dict[str, str]
    """As its manifest has it, so that its id can be computed."""


class Control(Value):
    """The part ``control.json``."""

    schema_version: Literal[1] = 1
    reason: _Text
    parent: Parent
    replacements: Annotated[tuple[Replacement, ...], Field(min_length=1)]
    """Carried out in this order."""
    output_sha256: _Hex


def mutate(output: str, pairs: Sequence[tuple[str, str]]) -> tuple[str, tuple[Replacement, ...]]:
    """Return the mutated output and what was replaced.

    Raises: SettingInvalid where a text does not stand in the output, or nothing changes.
    """
    changed, done = output, []
    for old, new in pairs:
        count = changed.count(old) if old else 0
        if not count:
            raise SettingInvalid(f"{old!r} does not stand in the output", where="--replace", hint="case matters")
        done.append(Replacement(old=old, new=new, count=count))
        changed = changed.replace(old, new)
    if changed == output:
        raise SettingInvalid("the output would not change", where="--replace", hint="replace it by something else")
    return changed, tuple(done)


def write_control(attempt: Attempt, output: str, pairs: Sequence[tuple[str, str]], reason: str, target: Path) -> Path:
    """Write a negative control of ``attempt``, whose output is ``output``, to the file ``target``, or into it where it is a directory.

    The caller has checked the attempt's provenance. Raises: SettingInvalid; BundleCorrupt where it would not be its parent but for the output; BundleExists,
    BundleUnwritable. Nothing is written then.
    """
    if attempt.has(CONTROL_PART):
        raise SettingInvalid(
            "this attempt is a negative control itself", where=str(attempt.path), hint="mutate its parent"
        )
    mutated, done = mutate(output, pairs)
    data = mutated.encode("utf-8", "surrogatepass")
    manifest = attempt.manifest
    parent = Parent(
        attempt=attempt.id,
        output_sha256=sha256_hex(output.encode("utf-8", "surrogatepass")),
        created_by=dict(manifest.created_by),
    )
    try:
        control = Control(reason=reason, parent=parent, replacements=done, output_sha256=sha256_hex(data))
        part = canonical_json(control.model_dump(mode="json"))
    except ValidationError as error:
        hint = "say in one sentence of UTF-8 what the control shows"
        raise SettingInvalid(
            "a control needs a reason of at most 4000 characters", where="--reason", hint=hint
        ) from error
    except ValueError as error:
        raise SettingInvalid(
            f"the replacement cannot be recorded: {error}", where="--replace", hint="write it as UTF-8"
        ) from error
    recorded = {name: attempt.part(name) for name in attempt.part_names if name.startswith("exchanges")}
    parts: dict[str, bytes | Path] = {name: attempt.part(name) for name in attempt.part_names if name not in recorded}
    parts |= {OUTPUT_PART: data, CONTROL_PART: part}
    summary = {**manifest.summary, SUMMARY_KEY: {"parent": attempt.id, "parent_output_sha256": parent.output_sha256}}
    content = AttemptContent(manifest.fixture, summary, parts, recorded=recorded)

    def check(made: Manifest) -> None:
        """Refuse a control that no reader would take for one, before it has a name."""
        check_control(control, made, output, mutated)

    if os.path.isdir(target):  # False, too, for what cannot be looked at: writing says why
        return write_attempt(target, content, check=check)
    return write_attempt(target.parent, content, name=target.name, check=check)


def stored_control(attempt: Attempt) -> Control | None:
    """Return an attempt's control record, or None where it is no control. Raises: BundleCorrupt."""
    marked = SUMMARY_KEY in attempt.manifest.summary
    if not attempt.has(CONTROL_PART):
        if marked:
            raise _corrupt("the manifest speaks of a negative control, and its record is missing")
        return None
    if not marked:
        raise _corrupt("there is a record of a negative control of which the manifest does not speak")
    try:
        control = Control.model_validate_json(attempt.part(CONTROL_PART))
    except ValidationError as error:
        raise _corrupt("the record of the negative control does not follow its schema") from error
    named = {"parent": control.parent.attempt, "parent_output_sha256": control.parent.output_sha256}
    if attempt.manifest.summary[SUMMARY_KEY] != named:
        raise _corrupt("the manifest names another parent than the record of the negative control")
    return control


def check_control(control: Control, manifest: Manifest, original: str, output: str) -> None:
    """Check that a control is its parent but for the recorded replacements. ``original`` is the answer in the generation record.

    Raises: BundleCorrupt.
    """
    before, after = (text.encode("utf-8", "surrogatepass") for text in (original, output))
    if sha256_hex(before) != control.parent.output_sha256:
        raise _corrupt("the generation record has another output than the parent's")
    if sha256_hex(after) != control.output_sha256:
        raise _corrupt("the output is not the one that the record names")
    try:
        mutated, done = mutate(original, [(one.old, one.new) for one in control.replacements])
    except SettingInvalid as error:
        raise _corrupt(f"the recorded replacements do not apply: {error.message}") from error
    if mutated != output or done != control.replacements:
        raise _corrupt("the recorded replacements do not give this output")
    if parent_id(control, manifest, before) != control.parent.attempt:
        raise _corrupt("more than the output differs from the parent")


def parent_id(control: Control, manifest: Manifest, original: bytes) -> str:
    """Return the id that the parent must have, from the control's manifest and the original output."""
    parts = tuple(
        PartRecord(OUTPUT_PART, len(original), sha256_hex(original)) if part.name == OUTPUT_PART else part
        for part in manifest.parts
        if part.name != CONTROL_PART
    )
    summary = {key: value for key, value in manifest.summary.items() if key != SUMMARY_KEY}
    return msgspec.structs.replace(manifest, created_by=control.parent.created_by, summary=summary, parts=parts).id


def _corrupt(message: str) -> BundleCorrupt:
    return BundleCorrupt(message, where=f"part {CONTROL_PART}", hint="make the control again with hermeval mutate")
