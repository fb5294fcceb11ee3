"""The sandbox's own error tree; ``runner/`` wraps it and adds nothing to its meaning.

Boundary: pure. Not here: what bwrap's messages mean (diagnose.py), the runner's errors (runner/errors.py).
Rules: every leaf has a stable ``code``; an error of this tree means that nothing was measured. How a started program ended is a value
(``running.Ended``), never an exception.

    SandboxError
    ├─ SpecInvalid          the plan cannot be carried out as written; found before anything starts
    ├─ SandboxUnavailable   this host cannot isolate (no bwrap, no user namespaces, masked /proc, outer uid 0, …)
    ├─ SandboxSetupFailed   this host can, but this sandbox did not come up
    ├─ CollectFailed        the workspace could not be read or written out
    └─ StagingFailed        the private directory of a run could not be had
"""

from __future__ import annotations

HOST_CANNOT_ISOLATE = "host-cannot-isolate"
"""The stable code for a machine on which no run can start (facts/sandbox.md §4, last row)."""


class SandboxError(Exception):
    """Base of everything the sandbox raises on purpose."""

    code = "sandbox-error"

    def __init__(self, message: str, *, where: str = "", hint: str = "", code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint
        if code is not None:
            self.code = code


class SpecInvalid(SandboxError):
    """A sandbox description breaks a rule; ``where`` names the mount, variable or field."""

    code = "sandbox-spec"


class SandboxUnavailable(SandboxError):
    """This host cannot give the isolation asked for; there is no weaker fall-back."""

    code = HOST_CANNOT_ISOLATE


class SandboxSetupFailed(SandboxError):
    """Namespaces, mounts or the listener did not come up; the program was never started."""

    code = "sandbox-setup"


class CollectFailed(SandboxError):
    """The files that a run left could not be read or exported."""

    code = "sandbox-collect"


class StagingFailed(SandboxError):
    """The private directory of a run could not be made."""

    code = "sandbox-staging"
