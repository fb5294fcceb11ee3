"""What the end of a run's sandbox says about the run, in the terms of the rules.

Boundary: pure. Not here: watching it (conduct.py), the rules (claude/outcome.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.pinned_parts import attendant_fault
from runner.run_facts import RunFacts, SetupFacts

if TYPE_CHECKING:
    from runner.plan import RunLimits
    from sandbox.limits import Limits
    from sandbox.running import Ended

_MACHINE = {
    "host-memory": (
        "this machine had hardly any memory left, so the run was ended before the machine was",
        "hermeval doctor says what holds memory here; a control group holds what this watchdog cannot see",
    ),
    "bwrap-killed": ("somebody killed bwrap while the program ran", "the kernel's log says whether memory ran out"),
    "supervisor-gone": ("somebody killed the sandbox's supervisor", "the kernel's log says whether memory ran out"),
    "supervisor-silent": (
        "the sandbox's supervisor did nothing any more, so the sandbox was ended without it",
        "a stopped process or a frozen control group does that; run it again",
    ),
}
"""What happened to this machine's own part in it, and what to do."""


def ending_facts(ended: Ended, limits: RunLimits, inside: Limits, *, pinned: bool) -> RunFacts:
    """Return the facts of a run that ended so, under the limits of its plan and those ``inside``. ``pinned`` runs have an attendant, which can fail by itself (A8, rules 1 and 3)."""
    facts: dict[str, Any] = {"exit_status": ended.exit_status}
    if ended.exit_status is not None and ended.observations["bwrap_status"] >= 0:
        facts["bwrap_status"] = ended.observations["bwrap_status"]
    match ended.reason:
        case None if pinned and (fault := attendant_fault(ended.exit_status, ended.stderr)):
            facts["setup"] = SetupFacts(**fault)
        case None if ended.setup_error is not None:
            facts["setup"] = SetupFacts(
                step="sandbox-start",
                code=ended.setup_code,
                message=ended.setup_error,
                hint=ended.setup_cure or "hermeval doctor tries each part by itself",
            )
        case None:
            pass
        case "timeout":
            facts |= {"ended_by": "timeout", "limit": f"{limits.wall_clock_s} s wall clock"}
        case "output-limit":
            facts |= {"ended_by": "output-limit", "limit": f"{limits.stdout_bytes} bytes of stdout"}
        case "grace":
            facts["ended_by"] = "grace"
        case "cli-start":
            facts["setup"] = SetupFacts(
                step="cli-start",
                code="timeout",
                message=f"the CLI wrote no event within {limits.first_event_s} s",
                hint="see the CLI's stderr in the attempt",
            )
        case reason:
            facts["setup"] = _ended_by_us(reason, inside)
    return RunFacts(**facts)


def _ended_by_us(reason: str, inside: Limits) -> SetupFacts:
    """Return what a run lacked that was ended because something beside the CLI failed."""
    if reason == "gate-failed":
        return SetupFacts(step="gate", code="gate-unavailable", message="the gate died during the run")
    if reason == "simulator-failed":
        message = "the simulated service died during the run"
        return SetupFacts(step="simulator", code="simulator-unavailable", message=message)
    if reason == "memory-limit":
        message = f"the programs inside took more than {inside.memory_bytes} bytes of memory"
        return SetupFacts(step="sandbox", code="memory-limit", message=message)
    message, hint = _MACHINE.get(reason, (f"the sandbox was ended: {reason}", ""))
    return SetupFacts(step="sandbox", code=reason, message=message, hint=hint)
