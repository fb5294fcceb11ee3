"""Profile ``run-outtake-coding``: the outtake of a coding run, which is a code review as well (B7).

Boundary: pure. Not here: what every outtake has (run_outtake.py), whether a finding is right (the rubric).
Rules: the review contract. A finding is one item ``[severity] path:line: text``, within the lines that the run changed; the decision is one line and follows from the gravest
finding; the commands that were run are told with the result that they had. Paths, lines, commands and results come from the fixture's ``input``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from profiles._presentation import DEFAULT_SECTIONS, EXPECTATIONS, Report, bullets, holds, plain, read_report
from profiles._reading import known_keys, list_at, mapping_at, number_at, text_at
from profiles._types import Check, Context, FixtureJson
from profiles.run_outtake import Case, outtake_checks, read_case

SECTIONS = (*DEFAULT_SECTIONS, "Findings", "Verification", "Decision")
SEVERITIES = ("blocker", "major", "minor", "nit")
BLOCKING = ("blocker", "major")
DECISIONS = ("approve", "request changes")
NONE = "none"
_FINDING = re.compile(
    r"\[(?P<severity>[a-z]+)\]\s+(?P<path>[^\s:]+):(?P<line>[0-9]+)\s*(?::|-|–|—)\s*(?P<text>\S.*)\Z", re.IGNORECASE
)


class Change(NamedTuple):
    """The lines of one file that the run changed."""

    path: str
    first: int
    last: int


class Finding(NamedTuple):
    """One item of the section ``Findings``."""

    severity: str
    path: str
    line: int


@dataclass(frozen=True, slots=True)
class Review:
    """What the review must hold to."""

    changes: tuple[Change, ...]
    commands: Mapping[str, str]
    """Command to result: passed or failed."""
    findings: tuple[tuple[str, int, int], ...]
    """Path, first and last line of each place where a finding is expected."""


def validate(fixture: FixtureJson) -> None:
    """Refuse a case without changes or commands, or whose expected findings lie outside the changes.

    ``input.changes`` lists ``{"path", "first", "last"}``; ``input.commands`` lists ``{"command", "result"}`` with result passed or failed; ``expect.findings`` lists
    ``{"path", "first", "last"}``, one place each. Raises: ValueError with the JSON pointer.
    """
    known_keys(mapping_at(fixture.get("expect", {}), "/expect"), (*EXPECTATIONS, "findings"), "/expect")
    read_case(fixture, SECTIONS)
    _review(fixture)


def check_output(fixture: FixtureJson, output: str, context: Context) -> list[Check]:
    """Check an outtake and its review.

    Raises: ValueError for a fixture that ``validate`` refuses; TypeError if the output is no text.
    """
    case: Case = read_case(fixture, SECTIONS)
    review, report = _review(fixture), read_report(output)
    items = bullets(report.section("Findings") or ())
    findings = tuple(found for item in items if (found := _finding(item)) is not None)
    return [
        *outtake_checks(case, report),
        _form(items, findings),
        _within(review, findings),
        _expected(review, findings),
        _decision(report, findings),
        _verification(review, report),
    ]


def _review(fixture: FixtureJson) -> Review:
    given = mapping_at(fixture.get("input"), "/input")
    changes = tuple(
        _place(item, f"/input/changes/{index}")
        for index, item in enumerate(list_at(given.get("changes"), "/input/changes", filled=True))
    )
    commands: dict[str, str] = {}
    for index, item in enumerate(list_at(given.get("commands"), "/input/commands", filled=True)):
        where = f"/input/commands/{index}"
        row = mapping_at(item, where)
        result = text_at(row.get("result"), f"{where}/result")
        if result not in ("passed", "failed"):
            raise ValueError(f"{where}/result: expected passed or failed")
        commands[text_at(row.get("command"), f"{where}/command")] = result
    expect = mapping_at(fixture.get("expect", {}), "/expect")
    findings = tuple(
        _place(item, f"/expect/findings/{index}")
        for index, item in enumerate(list_at(expect.get("findings", []), "/expect/findings"))
    )
    for index, place in enumerate(findings):
        if not any(
            place.path == change.path and change.first <= place.first and place.last <= change.last
            for change in changes
        ):
            raise ValueError(f"/expect/findings/{index}: it lies outside of what the run changed")
    return Review(changes, commands, findings)


def _place(value: object, where: str) -> Change:
    row = mapping_at(value, where)
    first = number_at(row.get("first"), f"{where}/first", least=1)
    return Change(
        text_at(row.get("path"), f"{where}/path"), first, number_at(row.get("last"), f"{where}/last", least=first)
    )


def _finding(item: str) -> Finding | None:
    match = _FINDING.match(plain(item))
    if match is None or match.group("severity").casefold() not in SEVERITIES:
        return None
    return Finding(match.group("severity").casefold(), match.group("path"), int(match.group("line")[:9]))


def _form(items: tuple[str, ...], findings: tuple[Finding, ...]) -> Check:
    if [plain(item).casefold().rstrip(".") for item in items] == [NONE]:
        return Check("findings-form", True, "The review says that there is no finding")
    odd = next((item for item in items if _finding(item) is None), None)
    if odd is not None:
        return Check(
            "findings-form",
            False,
            f"A finding is written '[{'|'.join(SEVERITIES)}] path:line: text', not {odd[:120]!r}",
        )
    met = bool(findings)
    return Check(
        "findings-form",
        met,
        f"All {len(findings)} findings have severity, path and line"
        if met
        else f"The section lists no finding, nor {NONE!r}",
    )


def _within(review: Review, findings: tuple[Finding, ...]) -> Check:
    for found in findings:
        if not any(
            found.path == change.path and change.first <= found.line <= change.last for change in review.changes
        ):
            return Check("findings-within-changes", False, f"{found.path}:{found.line} was not changed by this run")
    return Check("findings-within-changes", True, "Every finding lies in what the run changed")


def _expected(review: Review, findings: tuple[Finding, ...]) -> Check:
    for path, first, last in review.findings:
        if not any(found.path == path and first <= found.line <= last for found in findings):
            return Check("findings-expected", False, f"No finding lies at {path}:{first}-{last}")
    return Check("findings-expected", True, f"A finding lies at each of the {len(review.findings)} expected places")


def _decision(report: Report, findings: tuple[Finding, ...]) -> Check:
    said = [plain(line).casefold().rstrip(".") for line in report.section("Decision") or () if line.strip()]
    if len(said) != 1 or said[0] not in DECISIONS:
        return Check("decision-follows", False, f"The section 'Decision' must hold one line: {' or '.join(DECISIONS)}")
    grave = [found for found in findings if found.severity in BLOCKING]
    met = (said[0] == DECISIONS[1]) == bool(grave)
    return Check(
        "decision-follows",
        met,
        f"With {len(grave)} findings of severity {' or '.join(BLOCKING)} the decision is {DECISIONS[bool(grave)]!r}",
    )


def _verification(review: Review, report: Report) -> Check:
    items = bullets(report.section("Verification") or ())
    for command, result in review.commands.items():
        lines = [item for item in items if command.casefold() in plain(item).casefold()]
        other = "failed" if result == "passed" else "passed"
        if not any(holds(line, result) for line in lines) or any(holds(line, other) for line in lines):
            return Check(
                "verification-told",
                False,
                f"The command {command!r} {result}; the report must say so, and nothing else",
            )
    return Check("verification-told", True, f"All {len(review.commands)} commands are told with their results")
