"""Resource limits of one run, and the tier that really held each of them.

Boundary: pure. Not here: setting them (supervisor.py does, and reads them back from the kernel), tmpfs sizes (they belong to the mounts in spec.py).
Rules: what is reported comes from a read-back, never from what was asked for. RLIMIT_AS and RLIMIT_DATA are never set: WebAssembly fails under
the one, the CLI prints nothing under the other (facts/sandbox.md §5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Tier = Literal["cgroup", "rlimit", "tmpfs", "watchdog", "none"]
"""The mechanism that held a limit; ``none`` says that nothing did."""

MIB = 1024 * 1024
MEMORY_BYTES = 4096 * MIB


class Limits(BaseModel):
    """The rlimits asked for. A host whose hard limit is lower gives less, and the report says so."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    processes: Annotated[int, Field(ge=8, le=1 << 20)] = 1024
    """RLIMIT_NPROC of the sandbox's own user namespace: processes and threads together."""
    open_files: Annotated[int, Field(ge=64, le=1 << 20)] = 4096
    """RLIMIT_NOFILE of each process inside."""
    file_bytes: Annotated[int, Field(ge=MIB, le=1 << 40)] = 1024 * MIB
    """RLIMIT_FSIZE: the largest file that a process inside can write. A sparse file of this size costs no memory; collection reports it."""
    memory_bytes: Annotated[int, Field(ge=64 * MIB, le=1 << 50, exclude_if=lambda value: value == MEMORY_BYTES)] = (
        MEMORY_BYTES
    )
    """Memory of all processes together, beside what the sized mounts hold. Left out of the JSON form where it is the default: plans of older attempts do not have it."""
    cpu_percent: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        default=None, exclude_if=lambda value: value is None
    )
    """Processor time, 100 for one whole processor; only a control group holds it. None for no limit."""


class HeldLimits(BaseModel):
    """What held, by kind, and the values that the kernel reported for the sandbox's pid 1."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    memory: Tier = "none"
    processes: Tier = "none"
    open_files: Tier = "none"
    file_bytes: Tier = "none"
    disk: Tier = "tmpfs"
    """Every writable place is a tmpfs with a size, so this one is structural; ``none`` where a directory of the host is shared (A13)."""
    cpu: Tier = Field(default="none", exclude_if=lambda value: value == "none")
    """Left out of the JSON form where nothing holds it: older attempts do not have it."""
    values: Mapping[str, int] = {}
    """Read-back: ``processes``, ``open_files``, ``file_bytes``, ``core_bytes``, ``memory_bytes`` as the kernel has them; an absent key is unlimited or unread. Of a control group
    ``memory_max_bytes`` (of processes and sized mounts together; ``mounts_bytes`` is what the latter may hold), ``memory_oom_group``, ``pids_max``, ``cpu_percent``."""


REQUIRABLE: Mapping[str, tuple[Tier, ...]] = {"memory": ("cgroup",), "pids": ("cgroup", "rlimit")}
"""What a caller may insist on, and the tiers in which the kernel itself holds it."""


def not_held(required: Sequence[str], held: HeldLimits) -> tuple[str, ...]:
    """Return those required limits that the kernel does not hold; a watchdog only looks now and then."""
    tiers = {"memory": held.memory, "pids": held.processes}
    return tuple(name for name in required if tiers[name] not in REQUIRABLE[name])


def held_limits(asked: Limits, read_back: Mapping[str, int]) -> HeldLimits:
    """Decide which limits hold from what the kernel reported (an absent key is unlimited)."""

    def tier(name: str, limit: int) -> Tier:
        return "rlimit" if 0 <= read_back.get(name, -1) <= limit else "none"

    most = asked.memory_bytes + read_back.get("mounts_bytes", 0)
    watched: Tier = "watchdog" if 0 < read_back.get("memory_bytes", 0) <= asked.memory_bytes else "none"
    counted = 0 < read_back.get("pids_max", 0) <= asked.processes
    return HeldLimits(
        memory="cgroup" if 0 < read_back.get("memory_max_bytes", 0) <= most else watched,
        processes="cgroup" if counted else tier("processes", asked.processes),
        cpu="cgroup" if 0 < read_back.get("cpu_percent", 0) <= (asked.cpu_percent or 0) else "none",
        open_files=tier("open_files", asked.open_files),
        file_bytes=tier("file_bytes", asked.file_bytes),
        values=dict(read_back),
    )
