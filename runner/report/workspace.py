"""The workspace, the tool trace and the skill tree of an attempt as rows of a page.

Boundary: reads parts of an opened attempt. Not here: collecting a workspace (sandbox/collect.py), making a trace (runner/simulate).
Rules: names and contents were chosen by the agent. A part that is missing gives nothing, one of another form gives what can be read of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runner.bundle.reader import Attempt
from runner.report.bounds import Bounds, Excerpt, excerpt_bytes, excerpt_json, size_text
from runner.report.evaluation import text_of

_PREVIEW_BYTES = 256 << 10
"""A larger file is not opened for a preview."""
_BINARY_LOOK = 4096


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the workspace."""

    path: str
    kind: str
    size: str
    mode: str
    remarks: str
    sha256: str
    preview: Excerpt | None


@dataclass(frozen=True, slots=True)
class WorkspaceView:
    """What the agent left in the workspace."""

    entries: tuple[Entry, ...]
    left_out: int
    total: int
    not_collected: tuple[str, ...]
    """What a cap of the collection left out."""


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One call of the simulated tools."""

    index: int
    mode: str
    tool: str
    door: str
    status: str
    remarks: str
    asked: Excerpt
    got: Excerpt


@dataclass(frozen=True, slots=True)
class TraceView:
    """What was asked of the simulated tools, in order."""

    rows: tuple[TraceRow, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class SkillFile:
    """One file of the staged skill tree."""

    path: str
    size: str
    sha256: str


def read_workspace(attempt: Attempt, bounds: Bounds) -> WorkspaceView | None:
    """Return the workspace of an attempt; None where it was not collected. Raises: BundleCorrupt."""
    if not attempt.has("workspace.json"):
        return None
    document = mapping(attempt.json("workspace.json"))
    rows = [row for row in _list(document.get("entries")) if isinstance(row, Mapping)]
    digests = {part.name: part.sha256 for part in attempt.manifest.parts if part.name.startswith("workspace/")}
    previews = bounds.previews
    entries = []
    for row in rows[: bounds.files]:
        part = text_of(row.get("part"))
        preview = None
        if previews and part in digests and 0 < int_of(row.get("bytes")) <= _PREVIEW_BYTES:
            previews -= 1
            preview = _preview(attempt.part(part), bounds)
        entries.append(_entry(row, digests.get(part, ""), preview))
    omitted = [
        f"{_path(row, 'path') or 'the workspace itself'}: {text_of(row.get('why'))}"
        for row in _list(document.get("omitted"))
        if isinstance(row, Mapping)
    ]
    return WorkspaceView(tuple(entries), len(rows) - len(entries), len(rows), tuple(omitted[: max(5, bounds.files)]))


def read_trace(attempt: Attempt, bounds: Bounds) -> TraceView | None:
    """Return the tool trace of an attempt; None where no tools were simulated. Raises: BundleCorrupt."""
    if not attempt.has("trace.json"):
        return None
    document = mapping(attempt.json("trace.json"))
    rows = [row for row in _list(document.get("rows")) if isinstance(row, Mapping)]
    shown = rows[: bounds.exchanges]
    return TraceView(tuple(_trace_row(row, at, bounds) for at, row in enumerate(shown)), len(rows) - len(shown))


def read_skill_files(attempt: Attempt, bounds: Bounds) -> tuple[str, int, tuple[SkillFile, ...]]:
    """Return the staged tree's digest, its number of files, and the files that are shown. Raises: BundleCorrupt."""
    document = mapping(attempt.json("skill-tree.json")) if attempt.has("skill-tree.json") else {}
    rows = [row for row in _list(document.get("files")) if isinstance(row, Mapping)]
    files = tuple(
        SkillFile(text_of(row.get("path")), size_text(int_of(row.get("bytes"))), text_of(row.get("sha256")))
        for row in rows[: bounds.files]
    )
    return text_of(document.get("digest")), len(rows), files


def mapping(value: object) -> Mapping[str, Any]:
    """Return a JSON object, or an empty one for any other value."""
    return value if isinstance(value, Mapping) else {}


def int_of(value: object) -> int:
    """Return a whole number, or 0 for any other value."""
    return value if type(value) is int else 0


def _entry(row: Mapping[str, Any], sha256: str, preview: Excerpt | None) -> Entry:
    target = _path(row, "target")
    remarks = [f"to {target}"] if target else []
    if row.get("set_id") is True:
        remarks.append("set-id bit")
    if row.get("sparse") is True:
        remarks.append("sparse")
    if int_of(row.get("hard_links")) > 1:
        remarks.append(f"{int_of(row.get('hard_links'))} hard links")
    return Entry(
        path=_path(row, "path"),
        kind=text_of(row.get("kind")),
        size=size_text(int_of(row.get("bytes"))) if row.get("kind") == "file" else "",
        mode=f"{int_of(row.get('mode')) & 0o7777:04o}",
        remarks=", ".join(remarks),
        sha256=sha256,
        preview=preview,
    )


def _path(row: Mapping[str, Any], name: str) -> str:
    """Return a path as text; one that is no UTF-8 is kept as hex and shown with its bytes escaped."""
    if isinstance(row.get(f"{name}_hex"), str):
        try:
            return bytes.fromhex(row[f"{name}_hex"]).decode("utf-8", "backslashreplace")
        except ValueError:
            return ""
    return text_of(row.get(name))


def _preview(data: bytes, bounds: Bounds) -> Excerpt | None:
    return None if b"\0" in data[:_BINARY_LOOK] else excerpt_bytes(data, bounds.text_chars)


def _trace_row(row: Mapping[str, Any], at: int, bounds: Bounds) -> TraceRow:
    remarks = ["changed the state"] if row.get("applied") is True else []
    if row.get("fault") is not None:
        remarks.append(f"fault {text_of(row.get('fault'))}")
    asked = row.get("args") if row.get("args") is not None else row.get("args_text")
    return TraceRow(
        index=int_of(row.get("index", at)),
        mode=text_of(row.get("mode")),
        tool=text_of(row.get("tool")),
        door=text_of(row.get("door")),
        status=text_of(row.get("exit_status")),
        remarks=", ".join(remarks),
        asked=excerpt_json("" if asked is None else asked, bounds.text_chars),
        got=excerpt_json(row.get("result"), bounds.text_chars),
    )


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
