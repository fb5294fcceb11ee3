"""The two plain result types of a profile, and what a profile module must offer (B6).

Boundary: pure. Not here: running profiles (the profile host), finding one by name (runner/profile.py).
Rules: plain dataclasses, so that the profile host needs no third-party package. A profile imports this module and the standard library
only; it gets plain JSON values, never the runner's models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Category = Literal["call-recovery", "uncertain-write", "expected-error"]
"""What kind of thing a diagnostic is about."""

Severity = Literal["warning", "info", "failure"]
"""How grave a diagnostic is; ``failure`` must go with a check that is not met (B10)."""

FixtureJson = Mapping[str, object]
"""A fixture as it stands on disk: the parsed JSON object."""

Context = Mapping[str, object]
"""What else was seen of the attempt, as plain JSON values; a key is absent where nothing is known of it (an attempt of format version 1 has none).

- ``main_texts``: every non-blank text of the main thread, in order; the answer is one of them, or the structured output.
- ``tool_calls``: every call in the transcript, as ``{"id", "name", "input", "output", "is_error", "parentToolUseId"}``; the last is null on the main thread.
- ``tool_trace``: the rows that the tool simulator kept (``profiles/_trace.py`` reads them), and ``final_state``, what its service holds in the end.
- ``workspace``: ``{"path", "kind", "bytes", "mode", "text", …}`` for everything the worker left; ``text`` only for files of at most 1 MiB in UTF-8.
  Where the workspace was not, or not wholly, read, or its small files are more than 8 MiB together, a profile that asks for it (or walks over the whole context) makes the attempt an error: what it looks for may be what is missing.
- ``structured_output``, ``skill_state``, ``skills_invoked``, ``witnesses``: as in the attempt's row.
"""


@dataclass(frozen=True, slots=True)
class Check:
    """One named, deterministic yes or no."""

    id: str
    met: bool
    reason: str
    """Why it is met or not, in one sentence that a person can act on."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One observation about how the worker called its tools."""

    id: str
    category: Category
    severity: Severity
    reason: str
    calls: tuple[int, ...] = ()
    """Zero-based indices into the tool trace."""


class Profile(Protocol):
    """A module of the profiles folder. ``diagnose`` may be missing and is looked up separately."""

    def validate(self, fixture: FixtureJson) -> None:
        """Refuse a case whose data is incomplete, before anything is paid.

        Raises: ValueError with the place and the reason.
        """

    def check_output(self, fixture: FixtureJson, output: str, context: Context) -> Sequence[Check]:
        """Judge one output: not empty, unique ids, no I/O, the same answer every time.

        Raises: TypeError where the output is no text.
        """
