"""Profile ``run-outtake``: the report at the end of a run says what was taken, what was left out and what is open (B7).

Boundary: pure. Not here: the form of the report (_presentation.py), whether the reasons are good ones (the rubric).
Rules: takes, states and ids come from the fixture's ``input``. A take is named by its id, in the section of its state and in no other; nothing is named that is no take.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from profiles._presentation import (
    DEFAULT_SECTIONS,
    EXPECTATIONS,
    Presentation,
    Report,
    bullets,
    holds,
    presentation_checks,
    read_presentation,
    read_report,
)
from profiles._reading import known_keys, list_at, mapping_at, text_at
from profiles._types import Check, Context, FixtureJson

SECTION_OF = {"taken": "Taken", "left-out": "Left out", "open": "Open"}
"""Where a take of each state belongs."""
_ID = re.compile(r"[A-Za-z]{1,12}-[0-9]{1,6}\Z")
_IDS = re.compile(r"(?<![\w-])[A-Za-z]{1,12}-[0-9]{1,6}(?![\w-])")


@dataclass(frozen=True, slots=True)
class Case:
    """What a run left to be reported."""

    run: str
    takes: Mapping[str, str]
    """Id to state."""
    reasons: frozenset[str]
    """Ids of takes that were left out, each of which needs a reason."""
    form: Presentation

    @property
    def prefixes(self) -> frozenset[str]:
        """The letters before the number of every take's id: what looks like one of them is meant as one."""
        return frozenset(take.split("-")[0].casefold() for take in self.takes)


def validate(fixture: FixtureJson) -> None:
    """Refuse a case without a run, takes or known states.

    ``input.run`` is the run's id; ``input.takes`` lists ``{"id", "state", …}`` with state taken, left-out or open; ``expect`` may hold what _presentation.py reads.
    Raises: ValueError with the JSON pointer.
    """
    known_keys(mapping_at(fixture.get("expect", {}), "/expect"), EXPECTATIONS, "/expect")
    read_case(fixture)


def check_output(fixture: FixtureJson, output: str, context: Context) -> list[Check]:
    """Check form and completeness of a report.

    Raises: ValueError for a fixture that ``validate`` refuses; TypeError if the output is no text.
    """
    return outtake_checks(read_case(fixture), read_report(output))


def read_case(fixture: FixtureJson, sections: tuple[str, ...] = DEFAULT_SECTIONS) -> Case:
    """Return the case. Raises: ValueError with the JSON pointer."""
    given = mapping_at(fixture.get("input"), "/input")
    takes: dict[str, str] = {}
    for index, item in enumerate(list_at(given.get("takes"), "/input/takes", filled=True)):
        where = f"/input/takes/{index}"
        take = mapping_at(item, where)
        name, state = text_at(take.get("id"), f"{where}/id"), text_at(take.get("state"), f"{where}/state")
        if not _ID.match(name) or name.casefold() in {known.casefold() for known in takes}:
            raise ValueError(f"{where}/id: {name!r} is no id such as 'take-7', or stands there twice")
        if state not in SECTION_OF:
            raise ValueError(f"{where}/state: expected one of {', '.join(SECTION_OF)}")
        takes[name] = state
    form = read_presentation(fixture, sections)
    missing = [
        title for title in SECTION_OF.values() if title.casefold() not in {one.casefold() for one in form.sections}
    ]
    if missing:
        raise ValueError(f"/expect/sections: the section {missing[0]!r} is needed for the takes")
    left_out = frozenset(name for name, state in takes.items() if state == "left-out")
    return Case(text_at(given.get("run"), "/input/run"), takes, left_out, form)


def outtake_checks(case: Case, report: Report) -> list[Check]:
    """Return the checks that every outtake has: its form, and its takes."""
    return [
        *presentation_checks(case.form, report),
        _run_named(case, report),
        _takes_listed(case, report),
        _states_kept(case, report),
        _reasons_given(case, report),
        _none_invented(case, report),
    ]


def _run_named(case: Case, report: Report) -> Check:
    title = next((text for level, text, _ in report.headings if level == 1), "")
    return Check("run-named", holds(title, case.run), f"The title must name the run {case.run!r}")


def _takes_listed(case: Case, report: Report) -> Check:
    for take, state in case.takes.items():
        if not any(holds(item, take) for item in bullets(report.section(SECTION_OF[state]) or ())):
            return Check(
                "takes-listed", False, f"{take} is {state} and is no item of the section {SECTION_OF[state]!r}"
            )
    return Check("takes-listed", True, f"All {len(case.takes)} takes are items of the section of their state")


def _states_kept(case: Case, report: Report) -> Check:
    for take, state in case.takes.items():
        for other, title in SECTION_OF.items():
            if other != state and any(holds(item, take) for item in bullets(report.section(title) or ())):
                return Check("states-kept", False, f"{take} is {state}, and the report lists it under {title!r}")
    return Check("states-kept", True, "No take is listed under another state than its own")


def _reasons_given(case: Case, report: Report) -> Check:
    for take in sorted(case.reasons):
        items = [item for item in bullets(report.section(SECTION_OF["left-out"]) or ()) if holds(item, take)]
        if not any(len(_IDS.sub(" ", item).split()) >= 3 for item in items):
            return Check(
                "reasons-given", False, f"{take} was left out, and no reason of at least three words stands beside it"
            )
    return Check("reasons-given", True, "A reason stands beside every take that was left out")


def _none_invented(case: Case, report: Report) -> Check:
    known = {take.casefold() for take in case.takes} | {case.run.casefold()}
    for line in report.lines:
        for found in _IDS.findall(line):
            if found.casefold() not in known and found.split("-")[0].casefold() in case.prefixes:
                return Check("no-take-invented", False, f"The report speaks of {found}, which is no take of this run")
    return Check("no-take-invented", True, "The report speaks of no take that there is not")
