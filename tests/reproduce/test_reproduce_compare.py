"""What is compared of a second run, one thing at a time: each alone makes it another run, and is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from runner.assess import Assessment, assess_parts, stored_plan, stored_run, stored_texts
from runner.bundle.reader import Attempt, open_attempt
from runner.conduct import Seen
from runner.errors import ReproduceImpossible
from runner.gate.exchange import Exchange, Refusal, Request
from runner.gate.server import GateRecord
from runner.gate.upstreams.recorded import RecordedUpstream
from runner.kept import workspace_parts
from runner.plan import Plan, sandbox_spec
from runner.reproduce import Reproduction, _checked_tree, _compare, _contract, write_tree
from runner.simulate.server import SimulationRecord
from runner.simulate.state import State
from runner.simulate.trace import Row, Turned
from sandbox.collect import Entry, Workspace
from sandbox.spec import RoBind
from tests.reproduce.conftest import rewrite

COMMITTED = Path(__file__).resolve().parents[2] / "fixtures" / "attempts" / "mcp.attempt"
KEPT = Workspace((Entry(b"note.txt", "file", 0o644, 4, content=b"kept"),))


@dataclass
class Again:
    """An attempt and a second run of it that did the same to the byte, until something here is changed."""

    attempt: Attempt
    plan: Plan
    upstream: RecordedUpstream
    seen: Seen
    assessment: Assessment
    folder: Path

    def compare(self) -> Reproduction:
        """Compare the two."""
        return _compare(self.attempt, self.plan, self.upstream, self.seen, self.assessment)

    def record(self, **changed: Any) -> None:
        """Change what was recorded, whole and intact by itself."""
        self.attempt = open_attempt(rewrite(self.attempt, self.folder / "changed", **changed))

    def arrive(self, exchange: Exchange) -> None:
        """Let one more request have come in the second run."""
        assert self.seen.record is not None
        self.seen.record = self.seen.record.model_copy(update={"exchanges": (*self.seen.exchanges, exchange)})


def _simulation(attempt: Attempt) -> SimulationRecord:
    contract = _contract(attempt)
    assert contract is not None
    trace = json.loads(attempt.part("trace.json"))
    held = trace["final_state"]
    state = State(held["tickets"], {key: tuple(rows) for key, rows in held["comments"].items()}, held["files"], 1)
    rows = tuple(Row.model_validate_json(json.dumps(row)) for row in trace["rows"])
    return SimulationRecord(
        contract, rows, state, Turned.model_validate_json(json.dumps(trace["other_requests"])), False
    )


@pytest.fixture
def again(tmp_path: Path) -> Again:
    """The committed attempt over MCP, with a file in its workspace, and the same run once more."""
    attempt = open_attempt(rewrite(open_attempt(COMMITTED), tmp_path / "base", parts=workspace_parts(KEPT)))
    plan = stored_plan(attempt)
    upstream = RecordedUpstream(attempt.exchanges())
    upstream.served.exact, upstream.served.left = upstream.served.left, 0
    seen = Seen(
        spec=sandbox_spec(plan, rootfs="host", system=(RoBind(source="/usr", target="/usr"),)),
        run=stored_run(attempt),
        transcript=bytearray(attempt.part("transcript.jsonl")),
        record=GateRecord(exchanges=attempt.exchanges()),
        simulation=_simulation(attempt),
        workspace=KEPT,
    )
    assessment, _ = assess_parts(attempt, plan, stored_texts(attempt, plan))
    return Again(attempt, plan, upstream, seen, assessment, tmp_path)


def refused(text: str, code: str = "path") -> Exchange:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    request = Request(method="POST", target="/v1/other", body=body)
    return Exchange(seq=99, kind="refused", request=request, refusal=Refusal(code=code, message="no"))


def _transcript(again: Again) -> None:
    assert b'"result"' in again.seen.transcript
    again.seen.transcript = again.seen.transcript.replace(b'"is_error":false', b'"is_error":true')


def _output(again: Again) -> None:
    again.record(parts={"output.txt": again.attempt.part("output.txt") + b"."})


def _trace(again: Again) -> None:
    assert again.seen.simulation is not None
    first, *others = again.seen.simulation.rows
    again.seen.simulation = replace(
        again.seen.simulation, rows=(first.model_copy(update={"applied": not first.applied}), *others)
    )


def _no_trace(again: Again) -> None:
    again.seen.simulation = None


def _workspace(*entries: Entry) -> Callable[[Again], None]:
    def change(again: Again) -> None:
        again.seen.workspace = Workspace(entries)

    return change


def _no_workspace(again: Again) -> None:
    again.seen.workspace = None


def _run(**changed: Any) -> Callable[[Again], None]:
    def change(again: Again) -> None:
        again.seen.run = again.seen.run.model_copy(update=changed)

    return change


def _outcome(again: Again) -> None:
    again.assessment = replace(
        again.assessment, outcome=replace(again.assessment.outcome, kind="error", code="timeout")
    )


def _skill(**changed: Any) -> Callable[[Again], None]:
    def change(again: Again) -> None:
        case = again.assessment.case
        again.assessment = replace(again.assessment, case=replace(case, skill=replace(case.skill, **changed)))

    return change


def _none_served(again: Again) -> None:
    again.upstream.served.exact = 0


def _one_left(again: Again) -> None:
    again.upstream.served.left = 1


NOTE = KEPT.entries[0]
CHANGES: dict[str, tuple[str, Callable[[Again], object]]] = {
    "missed": ("request", lambda again: again.upstream.served.missed.append("no recorded exchange has this body")),
    "late": ("order", lambda again: again.upstream.served.late.append("exchange 3: late")),
    "left": ("requests", _one_left),
    "none-served": ("requests", _none_served),
    "refused-more": ("refusals", lambda again: again.arrive(refused("x"))),
    "refused-less": ("refusals", lambda again: again.record(exchanges=lambda given: (*given, refused("x")))),
    "transcript": ("transcript", _transcript),
    "output": ("output", _output),
    "trace": ("trace", _trace),
    "no-trace": ("trace", _no_trace),
    "file-content": ("workspace", _workspace(replace(NOTE, content=b"kepT"))),
    "file-mode": ("workspace", _workspace(replace(NOTE, mode=0o755))),
    "file-more": ("workspace", _workspace(NOTE, Entry(b"other", "directory", 0o755))),
    "file-gone": ("workspace", _workspace()),
    "no-workspace": ("workspace", _no_workspace),
    "exit-status": ("evidence", _run(exit_status=1)),
    "ended-by": ("evidence", _run(ended_by="grace")),
    "outcome": ("evidence", _outcome),
    "skill-state": ("evidence", _skill(state="unproven")),
    "first-witness": ("evidence", _skill(transcript=None)),
    "second-witness": ("evidence", _skill(wire=None)),
}


def test_the_same_once_more_is_a_match(again: Again) -> None:
    """The control: to the byte it is exact; under a rule it is normalised; neither has a difference."""
    done = again.compare()
    assert (done.verdict, done.exit_code, done.differences, done.first_difference) == ("exact", 0, (), None)
    assert done.served == done.exact_requests > 0
    again.upstream.served.exact -= 1
    again.upstream.served.normalised += 1
    again.upstream.served.rules["date"] += 1
    done = again.compare()
    assert (done.verdict, done.exit_code, done.differences, dict(done.rules)) == ("normalised", 0, (), {"date": 1})
    assert done.exact_requests == done.served - 1


@pytest.mark.parametrize("name", CHANGES)
def test_one_thing_that_differs_is_found_and_named(name: str, again: Again) -> None:
    """It alone makes the second run another one, at its own place and at no other."""
    place, change = CHANGES[name]
    change(again)
    done = again.compare()
    assert (done.verdict, done.exit_code) == ("diverged", 1)
    assert [difference.partition(":")[0] for difference in done.differences] == [place], done.differences
    assert done.first_difference is not None
    assert done.first_difference["place"] == place


def test_a_refused_request_that_differs_under_a_rule_only_is_normalised(again: Again) -> None:
    """The rule that it needed is counted with those of the requests; the same refused request is exact."""
    again.record(exchanges=lambda given: (*given, refused("Today's date is 2026-11-30.")))
    first, again.seen.record = again.seen.record, GateRecord(exchanges=again.attempt.exchanges())
    assert again.compare().verdict == "exact"
    again.seen.record = first
    again.arrive(refused("Today's date is 2027-01-01."))
    done = again.compare()
    assert (done.verdict, done.differences, dict(done.rules)) == ("normalised", (), {"date": 1})


def test_a_skill_tree_that_is_not_the_planned_one_is_refused_as_such(again: Again) -> None:
    """Before any other plan is made of it; the recorded tree is the planned one (control)."""
    write_tree(again.attempt, again.folder / "staged")
    assert _checked_tree(again.attempt, again.plan, again.folder / "staged").digest == again.plan.skills.digest
    name = next(name for name in again.attempt.part_names if name.endswith("/SKILL.md"))
    again.record(parts={name: again.attempt.part(name) + b"\nMore.\n"})
    write_tree(again.attempt, again.folder / "other")
    with pytest.raises(ReproduceImpossible, match="the skill tree is not the planned one") as caught:
        _checked_tree(again.attempt, again.plan, again.folder / "other")
    assert caught.value.code == "plan-mismatch"
