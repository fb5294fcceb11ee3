"""What a profile said, held to the rules of B6: named checks, diagnostics, and nothing vague.

Boundary: pure. Not here: asking a profile (profile_host.py), what follows from the checks (verdict.py).
Rules: a check list is not empty, ids are unique, ``met`` is a boolean, every check has a reason; the same call gives the same checks. A diagnostic is complete and points into
the trace. Anything else is a GraderFault of that attempt, never a fail. Values come from another process and are looked at type by type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from profiles._types import Category, Severity
from runner.errors import GraderFault

MAX_CHECKS = 1000
MAX_REASON = 4000
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}\Z")
_CATEGORIES = get_args(Category)
_SEVERITIES = get_args(Severity)
Source = Literal["profile", "assert"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One named yes or no, and who asked for it."""

    id: str
    met: bool
    reason: str
    source: Source = "profile"
    kind: str = ""
    """The Promptfoo type, for one that the fixture lists."""

    def as_json(self) -> dict[str, Any]:
        """Return the check as it stands in rows and evaluations."""
        extra = {"type": self.kind} if self.kind else {}
        return {"id": self.id, "met": self.met, "reason": self.reason, "source": self.source, **extra}


@dataclass(frozen=True, slots=True)
class DiagnosticResult:
    """One observation about how the worker called its tools."""

    id: str
    category: Category
    severity: Severity
    reason: str
    calls: tuple[int, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the diagnostic as it stands in evaluations."""
        return {
            "id": self.id,
            "category": self.category,
            "severity": self.severity,
            "reason": self.reason,
            "calls": list(self.calls),
        }


@dataclass(frozen=True, slots=True)
class ProfileAnswer:
    """Everything that a profile said of one attempt."""

    checks: tuple[CheckResult, ...]
    diagnostics: tuple[DiagnosticResult, ...] = ()


_Result = TypeVar("_Result", CheckResult, DiagnosticResult)
UNMEASURED = "workspace-unmeasured"
"""The code of an attempt whose profile looked at a workspace that was not, or not wholly, read."""
_FAULTS = {
    "time": "the profile was too slow",
    "died": "the profile's process is gone",
    "world": "the profile touched the world",
    "raised": "the profile raised",
    "size": "the profile said too much",
    "unmeasured": "the profile looks at the workspace",
}


def parse_answer(answer: object, *, trace_length: int) -> ProfileAnswer:
    """Return what the profile said. ``answer`` is the host's ``answer`` object, ``trace_length`` the number of rows of the tool trace.

    Raises: GraderFault with the reason.
    """
    fields = _fields(answer, "the answer of the profile host")
    if "fault" in fields:
        if fields["fault"] == "unmeasured":
            raise GraderFault(
                f"{_FAULTS['unmeasured']}, and {fields.get('message', '')}"[:MAX_REASON],
                hint="what it asks for may be what is missing; have the run leave less in its workspace, and run it again",
                code=UNMEASURED,
            )
        said = _FAULTS.get(str(fields["fault"]), "the profile failed")
        raise GraderFault(f"{said}: {fields.get('message', '')}"[:MAX_REASON])
    if set(fields) != {"checks", "diagnostics", "repeatable"}:
        raise GraderFault(f"the answer of the profile host has the members {sorted(fields)}"[:MAX_REASON])
    checks = parse_checks(fields["checks"])
    if fields["repeatable"] is not True:
        raise GraderFault("the profile gives other checks when it is asked again; checks must be deterministic")
    diagnostics = () if fields["diagnostics"] is None else parse_diagnostics(fields["diagnostics"], trace_length)
    return ProfileAnswer(checks, diagnostics)


def parse_checks(value: object) -> tuple[CheckResult, ...]:
    """Return a profile's checks. Raises: GraderFault."""
    items = _items(value, "check_output", "Check")
    if not items:
        raise GraderFault("check_output returned no checks; a verdict needs at least one")
    return tuple(_unique(_check(item, f"check {number}") for number, item in enumerate(items)))


def parse_diagnostics(value: object, trace_length: int) -> tuple[DiagnosticResult, ...]:
    """Return a profile's diagnostics. Raises: GraderFault."""
    items = _items(value, "diagnose", "Diagnostic")
    return tuple(_unique(_diagnostic(item, f"diagnostic {number}", trace_length) for number, item in enumerate(items)))


def _check(item: dict[str, Any], where: str) -> CheckResult:
    if set(item) != {"id", "met", "reason"}:
        raise GraderFault(f"{where} has the members {sorted(item)}")
    identity = _id(item["id"], where)
    if not isinstance(item["met"], bool):
        raise GraderFault(f"check {identity!r}: met is {_type(item['met'])}, not a boolean")
    return CheckResult(identity, item["met"], _reason(item["reason"], f"check {identity!r}"))


def _diagnostic(item: dict[str, Any], where: str, trace_length: int) -> DiagnosticResult:
    if set(item) != {"id", "category", "severity", "reason", "calls"}:
        raise GraderFault(f"{where} has the members {sorted(item)}")
    identity = _id(item["id"], where)
    where = f"diagnostic {identity!r}"
    category, severity, calls = item["category"], item["severity"], item["calls"]
    if not isinstance(category, str) or category not in _CATEGORIES:
        raise GraderFault(f"{where}: category is {_shown(category)}, not one of {', '.join(_CATEGORIES)}")
    if not isinstance(severity, str) or severity not in _SEVERITIES:
        raise GraderFault(f"{where}: severity is {_shown(severity)}, not one of {', '.join(_SEVERITIES)}")
    if not isinstance(calls, list):
        raise GraderFault(f"{where}: calls is {_type(calls)}, not a list of indices")
    for call in calls:
        if not isinstance(call, int) or isinstance(call, bool) or not 0 <= call < trace_length:
            raise GraderFault(f"{where}: {_shown(call)} is no index into a trace of {trace_length} rows")
    return DiagnosticResult(identity, category, severity, _reason(item["reason"], where), tuple(calls))  # type: ignore[arg-type]  # looked at above


def _items(value: object, function: str, kind: str) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise GraderFault(f"{function} returned {_type(value)}, not a list of {kind}s")
    if len(value) > MAX_CHECKS:
        raise GraderFault(f"{function} returned {len(value)} items, more than {MAX_CHECKS}")
    for number, item in enumerate(value):
        if not isinstance(item, dict) or "id" not in item:
            raise GraderFault(f"{function} returned {_type(item)} as item {number}, not a {kind}")
    return value


def _unique(found: Iterable[_Result]) -> Iterator[_Result]:
    seen = set()
    for item in found:
        if item.id in seen:
            raise GraderFault(f"two results have the id {item.id!r}")
        seen.add(item.id)
        yield item


def _fields(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise GraderFault(f"{what} is {_type(value)}, not an object")
    return value


def _id(value: object, where: str) -> str:
    if not isinstance(value, str) or not _ID.match(value):
        raise GraderFault(f"{where}: {_shown(value)} is no id (letters, digits, '.', '_', ':', '/', '-')")
    return value


def _reason(value: object, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise GraderFault(f"{where}: the reason is {_type(value) if not isinstance(value, str) else 'blank'}")
    return value[:MAX_REASON]


def _type(value: object) -> str:
    """Name a value's type as the profile's author knows it."""
    if isinstance(value, dict) and set(value) == {"type"}:
        return str(value["type"])[:100]
    names = {type(None): "None", bool: "a boolean", int: "a number", str: "text", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def _shown(value: object) -> str:
    return repr(value)[:100] if isinstance(value, str | int) else _type(value)
