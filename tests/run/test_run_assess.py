"""From evidence to an outcome, rule by rule: each beside the same evidence without the one thing that the rule is about."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from runner.assess import Assessment, assess, concluded, ending_refusal, follows
from runner.claude.facts import Transcript
from runner.fixture import parse_fixture
from runner.gate.exchange import Exchange, Refusal
from runner.plan import Plan, PlanOptions, Provider, build_plan
from runner.run_facts import GateFacts, RunFacts
from runner.skills import read_tree
from tests.claude.conftest import Say

SKILLS = Path(__file__).resolve().parents[2] / "fixtures" / "skills"
FIXTURE = b'{"id":"a","synthetic":true,"profile":"artifact","skill":"workflow","input":{},"rubric":[{"id":"r","criterion":"x"}]}'
BODY = "# Workflow\n\nDo it.\n"
GATE = GateFacts(mode="first-party", upstream="scripted")
ENDED = RunFacts(exit_status=0, bwrap_status=0)
SAY = Say()
ANSWER = {"type": "text", "text": "42 units"}
NO = Refusal(code="path", message="no")
OVER = Refusal(code="over-usd", message="too dear", over_budget=True)


def plan_of(model: str | None = None) -> Plan:
    tools: dict[str, Any] = {"schema_version": 1, "agent": {"claude": {"version": "2.1.332", "nar_sha256": "sha256-x"}}}
    return build_plan(
        fixture=parse_fixture(FIXTURE, "a"),
        tree=read_tree(SKILLS),
        provider=Provider(kind="scripted", script="a", script_sha256="0" * 64),
        toolchain=tools,
        options=PlanOptions(model=model),
    )


def asked(seq: int = 1, **fields: Any) -> Exchange:
    """The main thread's request with the loaded skill, and its answer."""
    load = f"Base directory for this skill: {plan_of().unit.base_dir}\n\n{BODY}"
    return SAY.request(SAY.user(SAY.tags("workflow"), load), seq=seq, **{"response": SAY.message(ANSWER), **fields})


def refused(seq: int = 2, refusal: Refusal = NO, **fields: Any) -> Exchange:
    """The main thread's request, refused by the gate."""
    return SAY.request(seq=seq, kind="refused", refusal=refusal, **fields)


def said(model: str = "m-1", **result: Any) -> Transcript:
    """A transcript that loads the skill and answers."""
    return SAY.whole(SAY.replay(SAY.tags("workflow")), SAY.text(model=model), result=SAY.result(**result))


def judged(
    *,
    exchanges: tuple[Exchange, ...] = (asked(),),
    transcript: Transcript | None = None,
    model: str | None = None,
    gate: GateFacts = GATE,
    **run: Any,
) -> Assessment:
    return assess(
        plan=plan_of(model),
        unit_texts={"body": BODY},
        transcript=transcript or said(),
        exchanges=exchanges,
        run=ENDED.model_copy(update=run),
        gate=gate,
        toolchain={},
    )


def test_a_run_without_fault_is_measured() -> None:
    """The control of everything below: no finding, no refusal, no pinned model."""
    found = judged()
    assert (found.outcome.code, found.case.skill.state, found.case.tampered) == (None, "ran", ())
    assert (found.case.ending.refusal, found.case.ending.other_refusals, found.case.pinned_model) == (None, 0, None)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ({"skill_tree_changed": ("workflow/SKILL.md",)}, "workflow/SKILL.md: changed in the staged skill tree"),
        ({"bwrap_status": 1}, "exit status 1 is reported"),
    ],
)
def test_what_was_seen_from_outside_can_contradict_the_run(run: dict[str, Any], words: str) -> None:
    """A staged tree that another hand changed, and an end that is told in two ways, are tampering."""
    found = judged(**run)
    assert found.outcome.code == "tampered"
    assert words in found.outcome.message
    assert len(found.case.tampered) == 1


@pytest.mark.parametrize(
    ("run", "is_finding"),
    [
        ({}, True),
        ({"exit_status": 1, "bwrap_status": 1}, True),
        ({"exit_status": None, "bwrap_status": None}, False),
        ({"ended_by": "grace"}, False),
        ({"ended_by": "timeout", "exit_status": None}, False),
    ],
)
def test_a_run_that_we_ended_may_leave_its_last_answer_unwritten(run: dict[str, Any], is_finding: bool) -> None:
    """An end of which nothing is known counts as ours; a CLI that ended by itself has written what it was answered."""
    unwritten = asked(2, response=SAY.message(ANSWER, mid="msg_2"))
    found = judged(exchanges=(asked(), unwritten), **run)
    assert bool(found.case.tampered) is is_finding, found.case.tampered
    assert judged(**run).case.tampered == ()


@pytest.mark.parametrize(
    ("exchanges", "wanted"),
    [
        ((), (None, 0)),
        ((asked(),), (None, 0)),
        ((asked(), refused()), (NO, 0)),
        ((asked(), refused(from_cli=True)), (NO, 0)),
        ((asked(), refused(from_cli=False)), (None, 1)),
        ((asked(), refused(agent="a0")), (None, 1)),
        ((asked(), refused(method="GET")), (None, 1)),
        ((refused(1), asked(2)), (None, 1)),
        ((refused(1), refused(2, OVER)), (OVER, 1)),
        ((refused(1, OVER), refused(2), refused(3, OVER, agent="a0")), (NO, 2)),
        ((asked(), refused(), asked(3, kind="start-up", response=None)), (NO, 0)),
        ((asked(), refused(), asked(3, from_cli=False)), (NO, 0)),
        ((asked(), refused(), asked(3, agent="a0")), (NO, 0)),
    ],
)
def test_the_last_request_of_the_main_thread_tells_whether_a_refusal_ended_the_run(
    exchanges: tuple[Exchange, ...], wanted: tuple[Refusal | None, int]
) -> None:
    """Neither a sub-agent's request, nor another program's, nor the CLI's start is the reason or takes it away; a good result does, and then all refusals are others."""
    all_ = sum(exchange.kind == "refused" for exchange in exchanges)
    assert ending_refusal(exchanges, SAY.parse(SAY.init())) == wanted
    assert ending_refusal(exchanges, said(is_error=True)) == wanted
    assert ending_refusal(exchanges, said()) == (None, all_)


@pytest.mark.parametrize(("refusal", "code"), [(NO, "gate-refused"), (OVER, "over-budget")])
def test_a_refusal_that_ended_the_run_is_its_outcome(refusal: Refusal, code: str) -> None:
    """With the error that the CLI then tells, the gate's code is the outcome's; after a good result it is counted beside it."""
    exchanges = (asked(), refused(1), refused(2, refusal))
    ended = judged(exchanges=exchanges, transcript=said(is_error=True, result="API Error: 403"))
    assert (ended.outcome.code, ended.case.ending.other_refusals) == (code, 1)
    well = judged(exchanges=exchanges)
    assert (well.outcome.code, well.case.ending.other_refusals) == (None, 2)


@pytest.mark.parametrize(
    ("asked_for", "answered", "code"),
    [
        ("claude-sonnet-5-5", "claude-sonnet-5-5", None),
        ("claude-sonnet-5-5", "claude-sonnet-5-5-20260101", None),
        ("claude-sonnet-5-5", "claude-opus-5-5", "model-mismatch"),
        ("sonnet", "claude-sonnet-5-5", None),
        ("sonnet", "claude-opus-5-5", None),
    ],
)
def test_only_a_full_model_name_pins_the_run(asked_for: str, answered: str, code: str | None) -> None:
    """An alias may stand for any model."""
    found = judged(model=asked_for, transcript=said(model=answered))
    assert found.outcome.code == code
    assert found.case.pinned_model == (asked_for if asked_for.startswith("claude-") else None)


@pytest.mark.parametrize(
    ("told", "requests", "wanted"), [(0.25, 1, 0.25), (0.25, 0, 0.25), (None, 1, 0.5), (None, 0, None)]
)
def test_the_gate_knows_the_cost_where_no_result_tells_it(
    told: float | None, requests: int, wanted: float | None
) -> None:
    """The result's own sum comes first; a gate that sent nothing knows none."""
    gate = GATE.model_copy(update={"requests": requests, "cost_estimate_usd": "0.5"})
    cost: dict[str, Any] = {} if told is None else {"total_cost_usd": told}
    assert judged(gate=gate, transcript=said(**cost)).row["cost_usd"] == wanted


def test_conclusions_follow_but_for_the_words_beside_a_code() -> None:
    """Message and hint of an outcome may be put otherwise; a code, a witness, or a message that stands beside no code may not."""
    found = judged()
    found = Assessment(found.case, found.outcome, found.row, {"judgement": {"message": "met", "votes": [1]}})
    stored = concluded(found)
    assert follows(found, stored)

    def other(*path: str, value: Any) -> dict[str, Any]:
        changed = copy.deepcopy(stored)
        at = changed
        for step in path[:-1]:
            at = at[step]
        assert at[path[-1]] != value
        at[path[-1]] = value
        return changed

    for word in ("message", "hint"):
        assert follows(found, other("outcome", word, value="put otherwise"))
    for changed in (
        other("outcome", "code", value="timeout"),
        other("witnesses", "wire", value=False),
        other("answer_sha256", value=None),
        other("events_seen", value=1),
        other("judgement", "message", value="not met"),
    ):
        assert not follows(found, changed)
