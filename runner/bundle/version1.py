"""Format version 1 of an attempt: the older, hand-written form, read and never written (B8).

Boundary: reads one file. Not here: version 2, the format of today (format.py, reader.py).
Rules: one JSON object. It has no exchanges, no transcript and no duration, and its fixture may lack a profile, so it says less: what it does not hold is unknown and never made up.
Its digests are checked like any other's; the generation record names the output as it was generated, also in a negative control.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import msgspec

from runner.bundle.format import FORMAT
from runner.bundle.reader import opened
from runner.canonical import sha256_hex
from runner.errors import BundleCorrupt, InputMissing
from runner.strict_json import StrictJsonError, parse_strict

MAX_BYTES = 64 << 20
_USD = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?\Z")
_HINT = "get the file again from where it came from"


class Generation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the output came to be."""

    model: str
    revision: str
    output_sha256: str
    cost_usd: str | None = None


class NegativeControl(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why the output is another than the generated one."""

    reason: str
    parent_output_sha256: str


class Version1(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An attempt of version 1."""

    format: str
    format_version: int
    fixture: dict[str, Any]
    output: str
    output_sha256: str
    skill_sha256: dict[str, str]
    """Path in the skill tree to hex sha256."""
    generation: Generation
    negative_control: NegativeControl | None = None


def is_version1(path: Path | str) -> bool:
    """Whether a file begins as an attempt of version 1 does: with a JSON object and not with a zstd frame. False for what is no file (a pipe is not waited for) or cannot be read."""
    try:
        with opened(path) as (fd, _):
            return os.pread(fd, 64, 0).lstrip().startswith(b"{")
    except InputMissing:
        return False


def read_version1(path: Path | str) -> tuple[str, Version1]:
    """Return an attempt of version 1 and its id, the sha256 of the file.

    Raises: InputMissing; BundleCorrupt where it does not follow its schema or a digest does not hold.
    """
    with opened(path) as (fd, size), os.fdopen(fd, "rb", closefd=False) as file:
        data = file.read(min(size, MAX_BYTES) + 1)
    try:
        found = msgspec.convert(parse_strict(data, max_bytes=MAX_BYTES, max_depth=64), Version1)
    except StrictJsonError as error:
        raise _corrupt(path, error.message, error.pointer) from error
    except msgspec.ValidationError as error:
        raise _corrupt(path, str(error)) from error
    if found.format != FORMAT or found.format_version != 1:
        raise _corrupt(path, "it is no attempt of version 1")
    if sha256_hex(found.output.encode("utf-8", "surrogatepass")) != found.output_sha256:
        raise _corrupt(path, "its output has another digest than it says", "/output_sha256")
    generated, control = found.generation.output_sha256, found.negative_control
    if control is None and generated != found.output_sha256:
        raise _corrupt(
            path, "its output is not the generated one, and it is no negative control", "/generation/output_sha256"
        )
    if control is not None and (generated != control.parent_output_sha256 or generated == found.output_sha256):
        raise _corrupt(
            path, "its negative control names another parent than the generation record", "/negative_control"
        )
    if found.generation.cost_usd is not None and not _USD.match(found.generation.cost_usd):
        raise _corrupt(path, "its cost is no amount", "/generation/cost_usd")
    if not found.skill_sha256 or (control is not None and not control.reason.strip()):
        raise _corrupt(path, "its provenance is incomplete")
    return sha256_hex(data), found


def _corrupt(path: Path | str, why: str, pointer: str = "") -> BundleCorrupt:
    return BundleCorrupt(f"the attempt of version 1 cannot be trusted: {why}", where=f"{path}#{pointer}", hint=_HINT)
