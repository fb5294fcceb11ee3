"""What doctor says of one thing that it tried.

Boundary: pure, standard library only: doctor must be able to say that a package is missing. Not here: the checks.
Rules: a failed or degraded check names a cause and a cure. The JSON form is the contract of DESIGN "Commands".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from runner.errors import RunnerError

Status = Literal["ok", "degraded", "failed"]
"""``failed``: a run cannot start, or would come out wrong. ``degraded``: runs work, and something about them should be known."""


@dataclass(frozen=True)
class Check:
    """One thing that was tried."""

    id: str
    title: str
    status: Status
    cause: str = ""
    """What was found; for ``ok`` a fact worth knowing, or empty."""
    cure: str = ""

    def as_json(self) -> dict[str, str]:
        """Return the stable JSON form."""
        return {"id": self.id, "title": self.title, "status": self.status, "cause": self.cause, "cure": self.cure}


def failed_by(id_: str, title: str, error: RunnerError, cure: str) -> Check:
    """Return the failed check that an error makes; ``cure`` where the error has no hint of its own."""
    where = f" ({error.where})" if error.where else ""
    return Check(id_, title, "failed", f"{error.message}{where}", error.hint or cure)


def not_tried(id_: str, title: str, because: str) -> Check:
    """Return the check of something that could not be tried, since what it needs has failed."""
    return Check(id_, title, "failed", f"not tried: {because} failed", f"first cure {because}")


def any_failed(checks: Iterable[Check]) -> bool:
    """Whether a run cannot be had on this machine."""
    return any(check.status == "failed" for check in checks)
