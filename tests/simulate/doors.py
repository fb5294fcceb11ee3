"""Comparing what came through two doors of the simulated service: output by output, trace by trace (B14).

Exactly two things are taken out before two outputs are compared: JSON is compared by value, and the contract root's path becomes ``<contract-root>``. Text, ids, order, exit statuses and failure
classes stay exact.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from runner.canonical import canonical_json
from runner.simulate.trace import Row
from runner.strict_json import parse_strict

ROOT_MARK = "<contract-root>"
MAX_OUTPUT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Output:
    """What a call printed, and under which contract root."""

    raw: str
    root: str

    @property
    def compared(self) -> bytes:
        """The output with the two things taken out: canonical JSON where it is JSON, else its text."""
        text = self.raw.encode("utf-8", "surrogatepass")
        with contextlib.suppress(ValueError):
            text = canonical_json(parse_strict(text, max_bytes=MAX_OUTPUT_BYTES, max_depth=32))
        return without_root(text, self.root)


def same_output(one: Output, other: Output) -> bool:
    """Whether two outputs are equal but for JSON's layout and the contract root."""
    return one.compared == other.compared


def same_trace(one: Sequence[Row], one_root: str, other: Sequence[Row], other_root: str) -> bool:
    """Whether two traces tell of the same calls, by whichever door and below whichever contract root."""
    return [_bare(row, one_root) for row in one] == [_bare(row, other_root) for row in other]


def without_root(text: bytes, root: str) -> bytes:
    """Return the text with each whole path of the contract root replaced by its mark; a longer name that begins alike stays."""
    return re.sub(re.escape(root.encode()) + rb"(?![A-Za-z0-9._-])", ROOT_MARK.encode(), text)


def _bare(row: Row, root: str) -> bytes:
    return without_root(canonical_json(row.model_dump(mode="json", exclude={"door", "tool_use_id"})), root)
