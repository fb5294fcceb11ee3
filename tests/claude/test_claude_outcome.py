"""A8's rules, one test a number, each with its positive control; then their order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from runner.claude.case import Case, Ending, SetupFailure, answer_of
from runner.claude.evidence import SkillVerdict
from runner.claude.notes import notes_of
from runner.claude.outcome import RULES, classify
from runner.gate.exchange import Refusal


def _code(transcript: Any, **fields: Any) -> str | None:
    return classify(Case(transcript=transcript, **fields)).code


def test_a_whole_run_is_measured(say: Any) -> None:
    """The positive control of every rule below."""
    outcome = classify(Case(transcript=say.whole(say.text()), ending=Ending(exit_status=0)))
    assert (outcome.kind, outcome.code) == ("measured", None)


def test_the_rules_stand_in_their_order() -> None:
    """The table holds the numbers 1 to 16 in order."""
    assert [number for number, _ in RULES] == list(range(1, 17))


def test_rule_1_a_failed_set_up_step_gives_its_own_code(say: Any) -> None:
    """The step is named; a CLI that did not start in time is a timeout of that step, not of the run."""
    ending = Ending(setup=SetupFailure("cli-start", "timeout", "no event within 60 s"))
    outcome = classify(Case(transcript=say.parse(), ending=ending))
    assert outcome.code == "timeout"
    assert outcome.message.startswith("cli-start: ")


def test_rule_2_a_contradiction_is_tampering(say: Any) -> None:
    """Findings of the tamper checks are an error with their words."""
    outcome = classify(Case(transcript=say.whole(say.text()), tampered=("event 2: a text that …",)))
    assert outcome.code == "tampered"
    assert "event 2" in outcome.message


def test_rule_3_what_we_ended_is_timeout_or_output_limit(say: Any) -> None:
    """Also though there is a success result; being ended after the result and its grace is no error."""
    whole = say.whole(say.text())
    assert _code(whole, ending=Ending(ended_by="timeout", exit_status=137)) == "timeout"
    assert _code(whole, ending=Ending(ended_by="output-limit", exit_status=137)) == "output-limit"
    assert (
        _code(say.whole(b"x" * 5000 + b"\n", say.text(), init=say.init(skills=[])), ending=Ending())
        == "damaged-transcript"
    )
    long = say.parse(say.init(), b"x" * 5000 + b"\n", say.result(), max_line_bytes=4000)
    assert _code(long) == "output-limit"
    grace = Case(
        transcript=say.parse(say.init(), say.text(), say.result(), b'{"type": "sys'),
        ending=Ending(ended_by="grace", exit_status=137),
    )
    assert classify(grace).kind == "measured"
    grace = Case(transcript=whole, ending=Ending(ended_by="grace", exit_status=137))
    assert classify(grace).kind == "measured"
    assert any("did not exit" in note for note in notes_of(grace))


def test_rule_4_a_refusal_that_ended_the_run_is_told_by_its_kind(say: Any) -> None:
    """A policy refusal and a passed ceiling have two codes; a refusal that did not end the run is a note with a count."""
    failed = say.whole(result=say.result(is_error=True, terminal_reason="api_error"))
    assert _code(failed, ending=Ending(refusal=Refusal(code="web-search", message="no"))) == "gate-refused"
    assert _code(failed, ending=Ending(refusal=Refusal(code="usd", message="no", over_budget=True))) == "over-budget"
    other = Case(transcript=say.whole(say.text()), ending=Ending(other_refusals=2))
    assert classify(other).kind == "measured"
    assert "refused requests that did not end the run: 2" in notes_of(other)


def test_rule_5_no_result_names_both_causes_and_the_end_of_stdout(say: Any) -> None:
    """Nothing parsed, a stop in mid-turn, a cut line: the message separates them and shows budget and tail (A10)."""
    nothing = classify(Case(transcript=say.parse(b"Execution error\n"), budget_usd="2"))
    assert (nothing.code, "nothing" in nothing.message, "Execution error" in nothing.message) == (
        "no-result",
        True,
        True,
    )
    assert "format" in nothing.message
    assert "USD 2" in nothing.message
    stopped = classify(Case(transcript=say.parse(say.init(), say.call("t1", "Bash", {}))))
    assert (stopped.code, "assistant" in stopped.message) == ("no-result", True)
    assert _code(say.parse()) == "no-result"
    assert _code(say.parse(say.init(), say.text(), say.result(), b'{"type": "sys')) == "no-result"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (129, "no-result"),
        (130, "no-result"),
        (137, "no-result"),
        (143, "no-result"),
        (-9, "no-result"),
        (-15, "no-result"),
        (-1, "no-result"),
        (-2, "no-result"),
        (-11, "exit-status"),
        (128, "exit-status"),
        (0, None),
        (None, None),
    ],
)
def test_rule_5_a_signals_status_is_no_result(say: Any, status: int | None, code: str | None) -> None:
    """129, 130, 137 and 143, and -N as 128+N, even after a result; other statuses are rule 14's."""
    assert _code(say.whole(say.text()), ending=Ending(exit_status=status)) == code


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"api_error_status": 429}, "provider-error"),
        ({"api_error_status": 0}, "provider-error"),
        ({"api_error_status": None}, None),
        ({"terminal_reason": "api_error"}, "provider-error"),
        ({"terminal_reason": "prompt_too_long"}, "provider-error"),
        ({"terminal_reason": "image_error"}, "provider-error"),
        ({"is_error": True}, "provider-error"),
        ({"is_error": True, "subtype": ..., "terminal_reason": ...}, "provider-error"),
        ({"is_error": True, "subtype": None, "terminal_reason": None}, "provider-error"),
        ({"is_error": True, "subtype": "error_during_execution"}, "stopped-short"),
        ({"is_error": None}, None),
    ],
)
def test_rule_6_the_providers_fault(say: Any, fields: dict[str, Any], code: str | None) -> None:
    """A status that is not null, a provider's terminal reason, or an error that nothing else explains."""
    assert _code(say.whole(say.text(), result=say.result(**fields))) == code


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"subtype": "error_max_turns", "is_error": True}, "stopped-short"),
        ({"subtype": "error_max_turns"}, "stopped-short"),
        ({"subtype": 7}, "stopped-short"),
        ({"subtype": []}, "stopped-short"),
        ({"subtype": ""}, "stopped-short"),
        ({"terminal_reason": "aborted_tools"}, "stopped-short"),
        ({"terminal_reason": {}}, "stopped-short"),
        ({"stop_reason": "pause_turn"}, "stopped-short"),
        ({"stop_reason": "max_tokens"}, "stopped-short"),
        ({"stop_reason": "model_context_window_exceeded"}, "stopped-short"),
        ({"stop_reason": "refusal"}, "stopped-short"),
        ({"subtype": ...}, None),
        ({"subtype": None}, None),
        ({"terminal_reason": ...}, None),
        ({"stop_reason": "banana"}, None),
        ({"stop_reason": ["banana"]}, None),
        ({"stop_reason": "tool_use"}, None),
        ({"stop_reason": None}, None),
    ],
)
def test_rule_7_a_turn_that_stopped_short(say: Any, fields: dict[str, Any], code: str | None) -> None:
    """Any other subtype or terminal reason that is present, or a stop reason that is no end; absent and null are graded."""
    assert _code(say.whole(say.text(), result=say.result(**fields))) == code


def test_rule_7_an_unknown_stop_reason_is_a_note(say: Any) -> None:
    """It is measured and flagged; a known one is not flagged."""
    assert "unknown stop_reason banana" in notes_of(
        Case(transcript=say.whole(say.text(), result=say.result(stop_reason="banana")))
    )
    assert not any("stop_reason" in note for note in notes_of(Case(transcript=say.whole(say.text()))))


def test_rule_8_plugin_errors_in_init(say: Any) -> None:
    """Any of them; an empty or a null list is none."""
    assert (
        _code(say.whole(say.text(), init=say.init(plugin_errors=[{"plugin": "p", "type": "generic-error"}])))
        == "plugin-error"
    )
    assert _code(say.whole(say.text(), init=say.init(plugin_errors={"odd": 1}))) == "plugin-error"
    nothing: tuple[Any, ...] = ([], None)
    for none in nothing:
        assert _code(say.whole(say.text(), init=say.init(plugin_errors=none))) is None


def test_rule_9_a_local_command(say: Any) -> None:
    """The result carries the command that the CLI answered by itself."""
    assert _code(say.whole(say.text(), result=say.result(local_command="compact"))) == "local-command"
    assert _code(say.whole(say.text(), result=say.result(local_command=None))) is None


def test_rule_10_damage_after_init(say: Any) -> None:
    """An unparsable line after init, wherever; before init it is preamble."""
    assert _code(say.parse(say.init(), b"{broken\n", say.text(), say.result())) == "damaged-transcript"
    assert _code(say.parse(say.init(), say.text(), say.result(), b"Goodbye\n")) == "damaged-transcript"
    assert _code(say.parse(b"Welcome\n", say.init(), say.text(), say.result())) is None


def test_rule_11_no_init(say: Any) -> None:
    """A result without an init, though nothing else is wrong."""
    assert _code(say.parse(say.text(), say.result())) == "no-init"


@pytest.mark.parametrize("value", [{"a": 1}, ["text"], 7, True, 0])
def test_rule_12_a_result_that_is_no_text(say: Any, value: Any) -> None:
    """It is reported and kept as a repr, never rendered for a grader, also beside a structured output."""
    transcript = say.whole(say.text(), result=say.result(result=value, structured_output={"b": 2}))
    assert _code(transcript) == "result-not-text"
    assert answer_of(transcript).text == repr(value)


def test_rule_13_an_empty_answer(say: Any) -> None:
    """Blank text and no main-thread text by a real model; earlier text or a structured output is an answer."""
    for blank in ("", " \n\t", None, ...):
        result = say.result(result=blank)
        assert _code(say.whole(result=result)) == "empty-answer"
        assert (
            _code(say.whole(say.text("sorry", model="<synthetic>"), say.text("sub", parent="t"), result=result))
            == "empty-answer"
        )
        assert _code(say.whole(say.text("before"), result=result)) is None
    assert _code(say.whole(result=say.result(result="", structured_output={}))) is None
    assert _code(say.whole(result=say.result(result="", structured_output=" "))) == "empty-answer"


def test_rule_14_a_bad_exit_status(say: Any) -> None:
    """After a good result it says both facts; 124 in a run is an exit status like any other."""
    outcome = classify(Case(transcript=say.whole(say.text()), ending=Ending(exit_status=1)))
    assert (outcome.code, "status 1" in outcome.message, "success" in outcome.message) == ("exit-status", True, True)
    assert _code(say.whole(say.text()), ending=Ending(exit_status=124)) == "exit-status"


@pytest.mark.parametrize(
    ("model", "code"),
    [
        ("m-1", None),
        ("m-1-20260101", None),
        ("m-10", "model-mismatch"),
        ("m-2", "model-mismatch"),
        ("m-1-1", "model-mismatch"),
        ("m-1-2026010", "model-mismatch"),
        ("m-1-202601011", "model-mismatch"),
    ],
)
def test_rule_15_another_model_than_the_pinned_one(say: Any, model: str, code: str | None) -> None:
    """Only where the model is pinned, and a dated name is the same model; the pseudo-model is none."""
    transcript = say.whole(say.text(model=model), say.text("x", model="<synthetic>"))
    assert _code(transcript, pinned_model="m-1") == code
    assert _code(transcript) is None


@pytest.mark.parametrize(
    "code", ["skill-failed", "skill-absent", "skill-unproven", "skill-ambiguous", "witnesses-disagree"]
)
def test_rule_16_the_skill_codes(say: Any, code: str) -> None:
    """The verdict's code is the outcome's; a skill that ran has none."""
    assert _code(say.whole(say.text()), skill=SkillVerdict("absent", code=code)) == code
    assert _code(say.whole(say.text()), skill=SkillVerdict("ran", True, True)) is None


def test_the_first_rule_that_speaks_decides(say: Any) -> None:
    """One run with every fault at once: taking the faults away one by one gives the codes in A8's order."""

    def run(*healed: str) -> str | None:
        off = set(healed)
        result = say.result(
            terminal_reason="completed" if "provider" in off else "api_error",
            subtype="success" if "short" in off else "error_max_turns",
            local_command=None if "local" in off else "compact",
            result="" if "text" in off else 7,
        )
        events = [
            *([say.init(plugin_errors=None if "plugin" in off else ["bad"])]),
            *([] if "damage" in off else [b"{broken\n"]),
            *([] if "empty" not in off else [say.text(model="m-2")]),
            *([] if "result" not in off else [result]),
        ]
        ending = Ending(
            exit_status=0 if "exit" in off else 3,
            ended_by=None if "timeout" in off else "timeout",
            setup=None if "setup" in off else SetupFailure("gate", "gate-unavailable", "no"),
            refusal=None if "gate" in off else Refusal(code="x", message="no"),
        )
        return _code(
            say.parse(*events),
            ending=ending,
            tampered=() if "tampered" in off else ("x",),
            pinned_model=None if "model" in off else "m-1",
            skill=SkillVerdict("absent", code="skill-absent"),
        )

    order = [
        "setup",
        "tampered",
        "timeout",
        "gate",
        "result",
        "provider",
        "short",
        "plugin",
        "local",
        "damage",
        "text",
        "empty",
        "exit",
        "model",
    ]
    codes = [run(*order[:count]) for count in range(len(order) + 1)]
    assert codes == [
        "gate-unavailable",
        "tampered",
        "timeout",
        "gate-refused",
        "no-result",
        "provider-error",
        "stopped-short",
        "plugin-error",
        "local-command",
        "damaged-transcript",
        "result-not-text",
        "empty-answer",
        "exit-status",
        "model-mismatch",
        "skill-absent",
    ]
    assert all(before != after for before, after in pairwise(codes))


def test_the_answer_is_text_then_structure_then_the_last_text(say: Any) -> None:
    """Each source is used when the ones before are blank; falling back to an earlier text is noted."""
    text = say.whole(say.text("t"), result=say.result(result="r", structured_output={"a": 1}))
    structure = say.whole(say.text("t"), result=say.result(result=" ", structured_output={"b": 1, "a": "é"}))
    earlier = say.whole(say.text("t"), result=say.result(result=""))
    assert [answer_of(case).text for case in (text, structure, earlier)] == ["r", '{"a": "é", "b": 1}', "t"]
    assert any("last main-thread text" in note for note in notes_of(Case(transcript=earlier)))
    assert answer_of(say.parse(say.init(), say.text("partial"))).text == "partial"


def test_notes_tell_what_decides_nothing(say: Any) -> None:
    """Servers that are down, another model, lost writes, retries and denials are said."""
    transcript = say.parse(
        say.init(mcp_servers=[{"name": "stub", "status": "failed"}, {"name": "ok", "status": "connected"}]),
        {"type": "system", "subtype": "api_retry"},
        say.text(model="m-2"),
        say.result(permission_denials=[{}]),
        {"type": "system", "subtype": "session_writes_lost"},
    )
    notes = " | ".join(notes_of(Case(transcript=transcript)))
    for words in ("stub: failed", "API retries: 1", "m-2", "permission denials: 1", "lost session writes: 1"):
        assert words in notes
    assert "ok: connected" not in notes
