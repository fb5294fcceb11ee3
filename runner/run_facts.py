"""What was seen of a run from outside, as values: how it ended, which set-up step failed, the gate's totals.

Boundary: pure. Not here: what follows from them (assess.py), who saw it (conduct.py).
Rules: nothing in here could have been written by the agent. It stands by itself so that a run starts without the rules that judge it: they are imported while the CLI boots.
"""

from __future__ import annotations

from typing import Literal

from runner.gate.exchange import Value
from runner.gate.totals import GateTotals


class SetupFacts(Value):
    """A set-up step that failed or passed its own deadline (A8, rule 1)."""

    step: str
    code: str
    message: str
    hint: str = ""


class RunFacts(Value):
    """What was seen of a run from outside the sandbox, and nothing that the agent could have written."""

    exit_status: int | None = None
    """From bwrap's status descriptor; None where the program never ran or was ended by us."""
    bwrap_status: int | None = None
    """What bwrap itself exited with; None where the program never ran, where a signal ended bwrap, or in an attempt that did not keep it."""
    ended_by: Literal["timeout", "output-limit", "grace"] | None = None
    limit: str = ""
    """The limit that was passed, in words."""
    setup: SetupFacts | None = None
    skill_tree_changed: tuple[str, ...] = ()
    """Paths of the staged tree whose digest after the run is another than before it."""
    workspace_unread: bool = False
    """The workspace could not be collected: the sandbox's death was not certain, its top could not be read, or it changed while it was read."""
    workspace_unread_why: str = ""
    """Which of these, in words that no agent chose; empty in an attempt that did not keep them."""


class GateFacts(GateTotals):
    """The gate's totals as they are kept, beside the exchanges."""

    mode: str
    upstream: str
