"""What nobody foresaw at its place, as an error: the machine lacked something, or we have a defect.

Boundary: pure. Not here: who asks (the boundaries: runner/cli, one run of a batch, one vote of a judge).
Rules: a full disk, too many open files, no memory and a broken device can come at any system call, so they have one code for wherever nobody had a better one; they are the
machine's and never called a defect of ours.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from runner.errors import GateError, MachineFault, RunnerError
from sandbox.errors import SandboxError

_HINTS = {
    errno.ENOSPC: "make room on that disk",
    errno.EDQUOT: "make room within the quota",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f)",
    errno.EROFS: "make it writable",
    errno.EIO: "look at the disk and at the kernel's log",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the system's limit of open files (fs.file-max)",
    errno.ENOMEM: "give it more memory",
    errno.ENOBUFS: "give it more memory",
    errno.EAGAIN: "raise the limit of processes (ulimit -u)",
    errno.ESTALE: "look at the network file system",
    errno.ENODEV: "look at the disk and at the kernel's log",
    errno.ENXIO: "look at the disk and at the kernel's log",
}
"""What a machine can lack, and what to do."""


def unforeseen(error: BaseException) -> RunnerError:
    """Return what to tell of an exception that no rule was written for: MachineFault, or the base error with the code ``internal``."""
    for one in _chain(error):
        if isinstance(one, MemoryError) or str(one) == "can't start new thread":
            return MachineFault(
                f"the machine gave no more: {str(one) or 'out of memory'}", hint="give it more memory and processes"
            )
        if isinstance(one, OSError) and one.errno in _HINTS:
            where = _shown(one.filename) or _place(one)
            return MachineFault(f"a system call failed: {one.strerror}", where=where, hint=_HINTS[one.errno])
    hint = "this is a defect of hermeval; report it"
    return RunnerError(f"{type(error).__name__}: {error}", where=_place(error), hint=hint)


def step_fault(step: str, error: Exception) -> dict[str, str]:
    """Return ``step``, ``code``, ``message`` and ``hint`` of what went wrong at a step of a run, for ``SetupFacts``.

    Raises: the error itself, where it is neither the sandbox's nor the gate's nor the machine's fault.
    """
    if isinstance(error, SandboxError):
        return {"step": step, "code": error.code, "message": str(error), "hint": error.hint}
    if isinstance(error, GateError):
        return {"step": "gate", "code": error.code, "message": error.message, "hint": error.hint}
    fault = unforeseen(error)
    if not isinstance(fault, MachineFault):
        raise error
    message = f"{fault.message} ({fault.where})" if fault.where else fault.message
    return {"step": step, "code": fault.code, "message": message, "hint": fault.hint}


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what led to it, the latest first."""
    seen: set[int] = set()
    now: BaseException | None = error
    while now is not None and id(now) not in seen:
        seen.add(id(now))
        yield now
        now = now.__cause__ or now.__context__


def _shown(name: object) -> str:
    return name if isinstance(name, str) else ""


def _place(error: BaseException) -> str:
    import traceback  # late: rare

    return " ".join("".join(traceback.format_exception(error)[-3:]).split())[:600]
