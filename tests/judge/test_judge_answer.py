"""A judge's answer is read in one form, and everything else is a fault with a cause (B12, G01; acceptance 6)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.grade.judge_answer import MAX_ANSWER_BYTES, AnswerRefused, CriterionVote, parse_answer

IDS = ("kept", "plain")
KEPT: dict[str, Any] = {"id": "kept", "met": True, "reason": "It says unresolved."}
PLAIN: dict[str, Any] = {"id": "plain", "met": False, "reason": "Nobody says so."}
VOTES = (CriterionVote("kept", True, "It says unresolved."), CriterionVote("plain", False, "Nobody says so."))
GOOD = json.dumps({"criteria": [KEPT, PLAIN]})


def criteria(*rows: Any, **more: Any) -> str:
    return json.dumps({"criteria": list(rows), **more})


@pytest.mark.parametrize(
    "answer",
    [
        GOOD,
        f"\n  {GOOD}\r\n",
        json.dumps({"criteria": [PLAIN, KEPT]}, indent=2),
        f"```json\n{GOOD}\n```",
        f"```\n{json.dumps({'criteria': [KEPT, PLAIN]}, indent=1)}\n```\n",
        GOOD.replace("It says unresolved.", "It says \\u0075nresolved."),
    ],
    ids=["plain", "blanks", "order", "fenced", "fenced-indented", "escapes"],
)
def test_the_one_form_is_read(answer: str) -> None:
    """An object with every criterion once is read in the rubric's order, whatever its blanks, its order, or one code fence around the whole."""
    assert parse_answer(answer, IDS) == VOTES


MALFORMED: dict[str, tuple[str, str]] = {
    "null": ("null", "not-an-object"),
    "null-criteria": ('{"criteria": null}', "wrong-keys"),
    "null-fields": ('{"pass": null, "score": null}', "wrong-keys"),
    "null-met": (criteria({**KEPT, "met": None}, PLAIN), "not-boolean"),
    "true-alone": ("true", "not-an-object"),
    "true-text-alone": ('"true"', "not-an-object"),
    "true-text": (criteria({**KEPT, "met": "true"}, PLAIN), "not-boolean"),
    "one-for-true": (criteria({**KEPT, "met": 1}, PLAIN), "not-boolean"),
    "score-7-alone": ('{"score": 7}', "wrong-keys"),
    "score-7-beside": (criteria(KEPT, PLAIN, score=7), "wrong-keys"),
    "score-7-for-met": (criteria({**KEPT, "met": 7}, PLAIN), "not-boolean"),
    "pass-beside": (criteria(KEPT, PLAIN, **{"pass": True}), "wrong-keys"),
    "over-kind": (criteria(KEPT, PLAIN, {"id": "manners", "met": True, "reason": "Very polite."}), "criterion-unknown"),
    "over-kind-key": (criteria({**KEPT, "score": 1.0}, PLAIN), "wrong-keys"),
    "partial": (criteria(KEPT), "criterion-missing"),
    "no-criteria": (criteria(), "criterion-missing"),
    "twice": (criteria(KEPT, PLAIN, {**KEPT, "met": False}), "criterion-twice"),
    "other-case": (criteria({**KEPT, "id": "Kept"}, PLAIN), "criterion-unknown"),
    "number-id": (criteria({**KEPT, "id": 1}, PLAIN), "wrong-keys"),
    "no-reason": (criteria({**KEPT, "reason": ""}, PLAIN), "no-reason"),
    "blank-reason": (criteria({**KEPT, "reason": " \u200b—"}, PLAIN), "no-reason"),
    "reason-number": (criteria({**KEPT, "reason": 1}, PLAIN), "no-reason"),
    "reason-left-out": (criteria({"id": "kept", "met": True}, PLAIN), "wrong-keys"),
    "row-text": (criteria("kept", PLAIN), "wrong-keys"),
    "object-for-list": ('{"criteria": {"kept": true}}', "wrong-keys"),
    "list-alone": (json.dumps([KEPT, PLAIN]), "not-an-object"),
    "duplicate-key": (GOOD.replace('"met": true', '"met": false, "met": true'), "duplicate-key"),
    "duplicate-criteria": (f'{{"criteria": [], {GOOD[1:]}', "duplicate-key"),
    "fenced-twice": (f"```json\n{GOOD}\n```\n```json\n{GOOD}\n```", "fenced-twice"),
    "fence-in-fence": (f"```\n```json\n{GOOD}\n```\n```", "fenced-twice"),
    "fence-unclosed": (f"```json\n{GOOD}", "prose-around"),
    "fence-then-prose": (f"```json\n{GOOD}\n```\nI hope this helps.", "prose-around"),
    "prose-then-fence": (f"Here it is:\n```json\n{GOOD}\n```", "prose-around"),
    "prose-before": (f"Sure. {GOOD}", "prose-around"),
    "prose-after": (f"{GOOD} That is all.", "prose-around"),
    "two-objects": (f"{GOOD}\n{GOOD}", "prose-around"),
    "comma-after": (f"{GOOD},", "prose-around"),
    "prose-alone": ("All criteria are met.", "not-json"),
    "blank": (" \n", "answer-blank"),
    "fenced-blank": ("```json\n\n```", "answer-blank"),
    "truncated": (GOOD[:-20], "truncated"),
    "truncated-word": ('{"criteria": [{"id": "kept", "met": tr', "truncated"),
    "truncated-early": ("{", "truncated"),
    "single-quotes": (GOOD.replace('"', "'"), "not-json"),
    "python-true": (GOOD.replace("true", "True"), "not-json"),
    "trailing-comma": (f"{GOOD[:-1]},}}", "not-json"),
    "nan": (GOOD.replace("true", "NaN"), "not-json"),
    "lone-surrogate": (GOOD.replace("unresolved", "\\ud800"), "not-json"),
    "raw-surrogate": (GOOD.replace("unresolved", "\ud800"), "not-json"),
    "byte-order-mark": (f"\ufeff{GOOD}", "not-json"),
    "invisible-before": (f"\u200b{GOOD}", "prose-around"),
    "deep": ("[" * 100_000, "not-json"),
    "long": (GOOD.replace("Nobody", "x" * MAX_ANSWER_BYTES), "answer-too-long"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_anything_else_is_a_fault_with_its_cause(name: str) -> None:
    """No form of kindness is taken: null, partial, text for true, scores, words or a second fence around, double keys, extra criteria, what broke off."""
    answer, cause = MALFORMED[name]
    with pytest.raises(AnswerRefused) as caught:
        parse_answer(answer, IDS)
    assert caught.value.cause == cause
    assert caught.value.message


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["kept", "plain"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["criteria", "id", "met", "reason", "score"]) | st.text(max_size=4), inner)
    ),
    max_leaves=12,
)
_ANY = (
    st.text(alphabet=st.characters(codec=None))
    | _JSON.map(json.dumps)
    | st.builds(lambda start, cut: GOOD[:start] + GOOD[start + cut :], st.integers(0, len(GOOD)), st.integers(0, 5))
    | st.builds(lambda at, more: GOOD[:at] + more + GOOD[at:], st.integers(0, len(GOOD)), st.text(max_size=3))
)


@given(_ANY)
@settings(max_examples=400)
def test_any_text_gives_votes_or_a_fault(answer: str) -> None:
    """Whatever the text, there is a boolean and a reason for each criterion in its order, or a fault, and no other exception."""
    try:
        votes = parse_answer(answer, IDS)
    except AnswerRefused:
        return
    assert [vote.id for vote in votes] == list(IDS)
    assert {type(vote.met) for vote in votes} == {bool}
    assert all(vote.reason.strip() for vote in votes)


_REASON = st.text(alphabet=st.characters(codec="utf-8"), min_size=1).filter(lambda text: any(map(str.isalnum, text)))


@given(
    st.lists(st.tuples(st.booleans(), _REASON), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_every_well_formed_answer_is_read_as_it_was_meant(
    said: list[tuple[bool, str]], order: Any, fenced: bool
) -> None:
    """Any booleans and reasons come back word for word, in the rubric's order."""
    votes = tuple(CriterionVote(f"c{number}", met, reason) for number, (met, reason) in enumerate(said))
    rows = [vote.as_json() for vote in votes]
    order.shuffle(rows)
    answer = json.dumps({"criteria": rows}, ensure_ascii=False)
    assert parse_answer(f"```json\n{answer}\n```" if fenced else answer, [vote.id for vote in votes]) == votes
