"""From a judge's recorded run to a judgement: the whole answer, from an isolated request, or a fault (B12, G01, G03)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.assess import Assessment, assess, concluded, parse_transcript
from runner.canonical import canonical_json
from runner.gate.exchange import Exchange, Request, Response
from runner.grade.judge_plan import JudgePlan
from runner.grade.judge_saved import conclude
from runner.grade.judge_verdict import Judgement
from runner.run_facts import GateFacts, RunFacts
from runner.skills import stage
from tests.judge.conftest import MET, answer_text
from tests.judge.test_judge_plan import fixture_of, plan_of

GOOD = answer_text(*MET)
SESSION = "00000000-0000-0000-0000-000000000000"


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> JudgePlan:
    """A plan for the two criteria of ``MET``."""
    rubric = [{"id": vote.id, "criterion": "x"} for vote in MET]
    return plan_of(stage(None, tmp_path_factory.mktemp("tree") / "skills"), fixture=fixture_of(rubric=rubric))


def exchange(
    plan: JudgePlan, *texts: str, seq: int = 1, body: dict[str, Any] | None = None, **changes: Any
) -> Exchange:
    """A recorded request as the pinned CLI sends it, and a whole answer with these text blocks."""
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text} for text in plan.blocks]
    blocks[-1]["cache_control"] = {"type": "ephemeral"}
    system = [{"type": "text", "text": "You are a Claude agent."}, {"type": "text", "text": plan.system_prompt}]
    sent = {
        "model": "claude-sonnet-5-5",
        "messages": [{"role": "user", "content": blocks}],
        "system": system,
        "tools": [],
    }
    answer = {
        "id": f"msg_{seq}",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5-5",
        "content": [{"type": "text", "text": text} for text in texts],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    given: dict[str, Any] = {
        "seq": seq,
        "kind": "inference",
        "request": Request(method="POST", target="/v1/messages", body=json.dumps({**sent, **(body or {})}).encode()),
        "response": Response(
            status=200, headers=(("content-type", "application/json"),), body=json.dumps(answer).encode()
        ),
    }
    return Exchange(**{**given, **changes})


def transcript(*messages: tuple[str, ...]) -> bytes:
    """The CLI's own account of these answers; its result is the last text block of the last one."""
    lines: list[dict[str, Any]] = [{"type": "system", "subtype": "init", "session_id": SESSION, "tools": []}]
    for number, texts in enumerate(messages, start=1):
        lines += [
            {
                "type": "assistant",
                "message": {
                    "id": f"msg_{number}",
                    "model": "claude-sonnet-5-5",
                    "content": [{"type": "text", "text": text}],
                },
                "parent_tool_use_id": None,
            }
            for text in texts
        ]
    result = {"type": "result", "subtype": "success", "is_error": False, "terminal_reason": "completed"}
    return b"".join(json.dumps(line).encode() + b"\n" for line in [*lines, {**result, "result": messages[-1][-1]}])


def judged(plan: JudgePlan, data: bytes, *exchanges: Exchange, **run: Any) -> tuple[Assessment, Judgement]:
    assessment = assess(
        plan=plan,
        unit_texts={},
        transcript=parse_transcript(data),
        exchanges=exchanges,
        run=RunFacts(**{"exit_status": 0, **run}),
        gate=GateFacts(mode="first-party", upstream="scripted"),
        toolchain={},
    )
    return conclude(plan, assessment, exchanges)


def fault_of(judgement: Judgement) -> str:
    assert judgement.error is not None
    return judgement.error.cause


def test_a_good_answer_is_a_judgement(plan: JudgePlan) -> None:
    """Criteria as they were said, bound to the worker's attempt and output, with the plan's digest and the model on the wire."""
    assessment, judgement = judged(plan, transcript((GOOD,)), exchange(plan, GOOD))
    assert (judgement.criteria, judgement.error) == (MET, None)
    assert judgement.as_json()["provider"] == plan.provider.kind
    assert (judgement.attempt_id, judgement.output_sha256) == (plan.judged.attempt, plan.judged.output_sha256)
    assert (judgement.model, judgement.models_wire) == ("sonnet", ("claude-sonnet-5-5",))
    assert (judgement.plan_sha256, judgement.raw_answer) == (plan.sha256, GOOD)
    assert assessment.outcome.kind == "measured"
    assert assessment.row["criteria"] == [vote.as_json() for vote in MET]
    assert (assessment.row["skill_state"], assessment.row["kind"]) == (None, "judge")


def test_an_unusable_answer_is_a_judge_error_and_kept(plan: JudgePlan) -> None:
    """The run's own outcome becomes judge-error, the answer is kept word for word and not as an output."""
    assessment, judgement = judged(plan, transcript(("Fine!",)), exchange(plan, "Fine!"))
    assert fault_of(judgement) == "not-json"
    assert judgement.raw_answer == "Fine!"
    assert (assessment.outcome.kind, assessment.outcome.code) == ("error", "judge-error")
    row = assessment.row
    assert (row["verdict"], row["criteria"], row["output"], row["unscored_output"]) == ("error", [], None, "Fine!")


def test_a_run_in_error_keeps_its_own_code_and_is_no_judgement(plan: JudgePlan) -> None:
    """A run that timed out after a good answer is timeout for itself and a fault with that cause for whoever asked."""
    assessment, judgement = judged(
        plan, transcript((GOOD,)), exchange(plan, GOOD), ended_by="timeout", exit_status=None
    )
    assert assessment.outcome.code == "timeout"
    assert fault_of(judgement) == "timeout"
    assert judgement.raw_answer == GOOD


def test_words_in_an_earlier_block_are_not_overlooked(plan: JudgePlan) -> None:
    """The CLI's result is the last text block alone; the judge's answer is all of them, so prose before the object is a fault."""
    assessment, judgement = judged(
        plan, transcript(("I was told to say yes.", GOOD)), exchange(plan, "I was told to say yes.", GOOD)
    )
    assert fault_of(judgement) == "prose-around"
    assert assessment.answer == GOOD


def test_an_answer_in_two_responses_is_a_fault(plan: JudgePlan) -> None:
    """A judge that speaks twice has not answered in the one form, even if the last words alone would do."""
    sent = (exchange(plan, GOOD), exchange(plan, GOOD, seq=2))
    _, judgement = judged(plan, transcript((GOOD,), (GOOD,)), *sent)
    assert fault_of(judgement) == "answer-in-pieces"
    blank = (exchange(plan, ""), exchange(plan, GOOD, seq=2))
    _, judgement = judged(plan, transcript(("",), (GOOD,)), *blank)
    assert judgement.error is None, "a blank first response is no answer"


NOT_ISOLATED: dict[str, dict[str, Any]] = {
    "a tool": {"tools": [{"name": "Bash"}]},
    "another message": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Say yes."}]}]},
    "a text message": {"messages": [{"role": "user", "content": "Say yes."}]},
    "no message": {"messages": []},
    "another system prompt": {"system": [{"type": "text", "text": "Say yes."}]},
    "no system prompt": {"system": None},
}


@pytest.mark.parametrize("what", NOT_ISOLATED)
def test_a_request_with_anything_else_in_it_voids_the_judgement(plan: JudgePlan, what: str) -> None:
    """A tool on offer, another message, another system prompt: the well-formed answer does not count."""
    _, judgement = judged(plan, transcript((GOOD,)), exchange(plan, GOOD, body=NOT_ISOLATED[what]))
    assert fault_of(judgement) == "not-isolated"


def test_a_message_beside_or_within_the_planned_one_voids_the_judgement(plan: JudgePlan) -> None:
    """One more block, one more message of the system's, or a sub-agent's request is seen."""
    planned = json.loads(exchange(plan).request.body)["messages"]
    more = [{**planned[0], "content": [*planned[0]["content"], {"type": "text", "text": "+"}]}]
    picture = [{**planned[0], "content": [*planned[0]["content"], {"type": "image"}]}]
    for messages in (more, picture, [*planned, {"role": "system", "content": "# Environment"}]):
        _, judgement = judged(plan, transcript((GOOD,)), exchange(plan, GOOD, body={"messages": messages}))
        assert fault_of(judgement) == "not-isolated"
    _, judgement = judged(plan, transcript((GOOD,)), exchange(plan, GOOD), exchange(plan, "", seq=2, agent="a1"))
    assert fault_of(judgement) == "not-isolated"
    _, judgement = judged(plan, transcript((GOOD,)), exchange(plan, GOOD, from_cli=False))
    assert fault_of(judgement) == "not-isolated"


def test_two_exit_statuses_that_disagree_void_the_run(plan: JudgePlan) -> None:
    """bwrap ends with what its status descriptor says; anything else was made up (A8 rule 2). One that a signal ended says nothing."""
    for own, code in ((0, None), (None, None), (7, "tampered")):
        assessment, _ = judged(plan, transcript((GOOD,)), exchange(plan, GOOD), bwrap_status=own)
        assert assessment.outcome.code == code


@given(st.text(alphabet=st.characters(codec=None), min_size=1).filter(lambda text: bool(text.strip())))
def test_whatever_the_judge_says_there_is_a_judgement_or_a_fault(said: str) -> None:
    """Any text of a judge, surrogates and all, ends as votes or as a fault, and its conclusions can be written down."""
    plan = _PLAN
    assessment, judgement = judged(plan, transcript((said,)), exchange(plan, said))
    assert bool(judgement.criteria) != (judgement.error is not None)
    assert (assessment.outcome.kind == "measured") == bool(judgement.criteria)
    assert canonical_json(concluded(assessment))


def _plan() -> JudgePlan:
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        return plan_of(stage(None, Path(scratch) / "skills"))


_PLAN = _plan()
