"""What of a run's workspace is not in its attempt, and what that does to whoever looks at the workspace.

Boundary: pure. Not here: collecting it (sandbox/collect.py), the part that lists it (kept.py).
Rules: the agent chose every name, so a note quotes few of them, escaped and bounded. What a check would look for may be among what is missing: then nothing was measured, and
"it is not there" is no answer (README: an exception can only mean error).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runner.run_facts import RunFacts

_QUOTED = 3
_MAX_PATH = 120
_WHY = {
    "entries": "too many entries: this and all that follow",
    "names": "paths too long together: this and all that follow",
    "total-bytes": "too many bytes together",
    "file-bytes": "too large a file",
    "depth": "too deep",
    "unreadable": "it could not be read",
}
_HARMLESS = ("file-bytes",)
"""The entry is listed, and its content is larger than any that a check is shown."""

Omitted = Sequence[Mapping[str, Any]]
"""The member ``omitted`` of ``workspace.json``: ``why``, and ``path`` or ``path_hex``."""


def omitted_of(listing: object) -> Omitted:
    """Return what a listing (``workspace.json``, by whomever it was written) says was left out; rows of another form are counted too."""
    rows = listing.get("omitted") if isinstance(listing, dict) else None
    return [row if isinstance(row, dict) else {} for row in rows] if isinstance(rows, list) else []


def workspace_notes(run: RunFacts, omitted: Omitted) -> tuple[str, ...]:
    """Return one sentence where the workspace was not read or not wholly read; none where it was, or where nothing ran."""
    if run.workspace_unread:
        return (
            f"the workspace could not be read, so nothing of it is kept: {run.workspace_unread_why or 'no cause is kept'}",
        )
    if not omitted:
        return ()
    quoted = "; ".join(f"{_shown_path(row)}: {_shown_why(row)}" for row in omitted[:_QUOTED])
    more = f"; and {len(omitted) - _QUOTED} more" if len(omitted) > _QUOTED else ""
    return (f"the workspace is not kept whole: {quoted}{more}",)


def unmeasured(run: RunFacts, omitted: Omitted) -> str:
    """Return why a check of the workspace would measure nothing, or an empty text where it would."""
    return "".join(workspace_notes(run, [row for row in omitted if row.get("why") not in _HARMLESS]))


def _shown_why(row: Mapping[str, Any]) -> str:
    why = row.get("why")
    return _WHY.get(why, "left out") if isinstance(why, str) else "left out"


def _shown_path(row: Mapping[str, Any]) -> str:
    path, hexed = row.get("path"), row.get("path_hex")
    if isinstance(hexed, str):
        try:
            path = bytes.fromhex(hexed).decode("utf-8", "backslashreplace")
        except ValueError:
            path = None
    if not isinstance(path, str):
        return "(unnamed)"
    plain = ascii(path if len(path) <= _MAX_PATH else f"{path[: _MAX_PATH // 2]}...{path[-_MAX_PATH // 2 :]}")
    return plain if path else "the workspace itself"
