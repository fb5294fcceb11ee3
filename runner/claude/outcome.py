"""What a run amounts to: measured, or an error of one kind (A2, A8).

Boundary: pure. Not here: the facts (transcript.py), the skill's state (evidence.py), the comparison with the gate's record (tamper.py).
Rules: ``RULES`` is A8's list, in its order; the first rule that speaks decides. The CLI's own exit status and ``subtype`` are data for the
rules, never a verdict. An error never carries a graded answer: what there is goes to ``unscored_output``. If you change a rule, change its
test in tests/claude/test_claude_outcome.py too: there is one per number.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from runner.claude.case import Case, Outcome, among, answer_of, shown
from runner.claude.facts import Result

_PROVIDER_REASONS = ("api_error", "prompt_too_long", "image_error")
_FINE = (None, "success", "completed")
SHORT_STOPS = ("pause_turn", "max_tokens", "model_context_window_exceeded", "refusal")
_SIGNAL_EXITS = {129: "SIGHUP", 130: "SIGINT", 137: "SIGKILL", 143: "SIGTERM"}
_TAIL_SHOWN = 300


def classify(case: Case) -> Outcome:
    """Return the outcome of a run: the first of A8's rules that speaks, else measured."""
    for _number, rule in RULES:
        outcome = rule(case)
        if outcome is not None:
            return outcome
    return Outcome("measured", message="the run is complete and its answer can be graded")


# 1: a set-up step that failed or passed its own deadline.
def _setup(case: Case) -> Outcome | None:
    setup = case.ending.setup
    if setup is None:
        return None
    return Outcome("error", setup.code, f"{setup.step}: {setup.message}", setup.hint)


# 2: the transcript contradicts the gate's record.
def _tampered(case: Case) -> Outcome | None:
    if not case.tampered:
        return None
    return _error(
        "tampered", "; ".join(case.tampered), "the agent's own output cannot be trusted; look at the exchanges"
    )


# 3: we ended it.
def _ended_by_us(case: Case) -> Outcome | None:
    limit = f" ({case.ending.limit})" if case.ending.limit else ""
    if case.ending.ended_by == "timeout":
        return _error(
            "timeout",
            f"the run passed its time limit and was ended{limit}",
            "raise the wall clock, or look at the last event",
        )
    if case.ending.ended_by == "output-limit" or case.transcript.overflow:
        what = (
            "a line of the transcript is longer than the parser's bound"
            if case.transcript.overflow
            else "the CLI's output passed its cap"
        )
        return _error("output-limit", f"{what}{limit}", "raise the cap, or find out what floods the output")
    return None


# 4: the gate refused or capped the request that ended the run.
def _gate(case: Case) -> Outcome | None:
    refusal = case.ending.refusal
    if refusal is None:
        return None
    code = "over-budget" if refusal.over_budget else "gate-refused"
    return _error(
        code, f"the gate refused a request ({refusal.code}): {refusal.message}", "see the gate settings of the plan"
    )


# 5: no result event, nothing parsed, a cut line, or a signal's exit status.
def _no_result(case: Case) -> Outcome | None:
    transcript, status = case.transcript, case.ending.status
    cut = transcript.cut and case.ending.ended_by != "grace"
    signal = _SIGNAL_EXITS.get(status) if status is not None else None
    if transcript.answering is not None and not cut and signal is None:
        return None
    if not transcript.events_seen:
        what = "nothing in the transcript could be parsed"
    elif transcript.answering is None:
        what = f"the transcript stops after {transcript.events_seen} events (the last one: {transcript.last_event_type}) without a result"
    elif cut:
        what = "the transcript's last line is cut"
    else:
        what = "the transcript has a result"
    if signal is not None:
        what += f"; the CLI was ended by {signal} (exit status {status})"
    budget = f"USD {case.budget_usd}" if case.budget_usd else "not known here"
    tail = transcript.tail[-_TAIL_SHOWN:].decode(errors="replace")
    causes = f"usual causes: the CLI's output format changed, or its budget ran out in mid-turn (ceiling: {budget})"
    return _error(
        "no-result",
        f"{what}; {causes}. End of stdout: {shown(tail)}",
        "events_seen and last_event_type tell the causes apart: nothing parsed at all, or a stop in mid-turn",
    )


# 6: the provider's fault.
def _provider(case: Case) -> Outcome | None:
    result = _answering(case)
    unexplained = result.is_error and among(result.subtype, _FINE) and among(result.terminal_reason, _FINE)
    if result.api_error_status is None and not among(result.terminal_reason, _PROVIDER_REASONS) and not unexplained:
        return None
    status = "" if result.api_error_status is None else f", api_error_status {shown(result.api_error_status)}"
    text = f": {shown(result.text)}" if isinstance(result.text, str) and result.text.strip() else ""
    return _error(
        "provider-error",
        f"the provider failed{_facts(result, case)}{status}{text}",
        "try again later, or look at the exchanges",
    )


# 7: the turn stopped short.
def _stopped_short(case: Case) -> Outcome | None:
    result = _answering(case)
    whole = among(result.subtype, _FINE) and among(result.terminal_reason, _FINE)
    if whole and not among(result.stop_reason, SHORT_STOPS):
        return None
    errors = f": {'; '.join(result.errors)}" if result.errors else ""
    stop = f", stop_reason {shown(result.stop_reason)}" if result.stop_reason is not None else ""
    return _error("stopped-short", f"the turn stopped before its end{_facts(result, case)}{stop}{errors}", "")


# 8: a plugin did not load.
def _plugin(case: Case) -> Outcome | None:
    init = case.transcript.init
    if init is None or not init.plugin_errors:
        return None
    return _error(
        "plugin-error", f"plugins did not load: {'; '.join(init.plugin_errors)}", "mend the plugin's manifest or path"
    )


# 9: the CLI answered by itself.
def _local_command(case: Case) -> Outcome | None:
    command = _answering(case).local_command
    if command is None:
        return None
    return _error(
        "local-command", f"the CLI answered the prompt itself as the command {shown(command)}; no model was asked", ""
    )


# 10: a lost line may be the deciding one.
def _damaged(case: Case) -> Outcome | None:
    transcript = case.transcript
    our_cut = transcript.cut and case.ending.ended_by == "grace"  # a line that we cut ourselves, after the result
    lost = transcript.unparsed_after_init - our_cut
    if lost <= 0:
        return None
    numbers = ", ".join(map(str, transcript.unparsed_numbers))
    return _error("damaged-transcript", f"{lost} lines after init are no JSON objects (lines {numbers})", "")


# 11: no init.
def _no_init(case: Case) -> Outcome | None:
    return None if case.transcript.init is not None else _error("no-init", "the transcript has no init event", "")


# 12: a result that is no text.
def _not_text(case: Case) -> Outcome | None:
    if answer_of(case.transcript).source != "repr":
        return None
    return _error(
        "result-not-text",
        f"the result is no text but {_kind(_answering(case))}",
        "its repr is kept unscored",
    )


# 13: no answer.
def _empty(case: Case) -> Outcome | None:
    if answer_of(case.transcript).text is not None:
        return None
    return _error("empty-answer", "the result's text is blank, and no model wrote any text on the main thread", "")


# 14: a bad exit status after a good result.
def _exit_status(case: Case) -> Outcome | None:
    status = case.ending.status
    if not status:
        return None
    return _error(
        "exit-status", f"the CLI exited with status {status}{_facts(_answering(case), None)}", "see its stderr"
    )


# 15: another model than the pinned one.
def _model(case: Case) -> Outcome | None:
    pinned = case.pinned_model
    if pinned is None:
        return None
    others = [model for model in case.transcript.models if not re.fullmatch(re.escape(pinned) + r"(-\d{8})?", model)]
    if not others:
        return None
    return _error("model-mismatch", f"the run is pinned to {pinned}, messages came from {', '.join(others)}", "")


# 16: the skill codes.
def _skill(case: Case) -> Outcome | None:
    if case.skill.code is None:
        return None
    return _error(case.skill.code, case.skill.message, "see skills_invoked and skill_call_inputs for what was called")


RULES: tuple[tuple[int, Callable[[Case], Outcome | None]], ...] = (
    (1, _setup),
    (2, _tampered),
    (3, _ended_by_us),
    (4, _gate),
    (5, _no_result),
    (6, _provider),
    (7, _stopped_short),
    (8, _plugin),
    (9, _local_command),
    (10, _damaged),
    (11, _no_init),
    (12, _not_text),
    (13, _empty),
    (14, _exit_status),
    (15, _model),
    (16, _skill),
)
"""A8's rules by their numbers; rules 6, 7, 9, 12 and 14 run only where rule 5 has found an answering result."""


def _answering(case: Case) -> Result:
    result = case.transcript.answering
    assert result is not None, "rule 5 comes first"
    return result


def _kind(result: Result) -> str:
    """Say what stands in place of the answer: a value under ``result``, or a structured output that nobody could write as JSON."""
    if result.text is None or isinstance(result.text, str):
        return "a structured output that cannot be written as JSON"
    return type(result.text).__name__


def _facts(result: Result, case: Case | None) -> str:
    """Say the result's own words, and the exit status too: both facts belong into the message (case P17)."""
    words = f"subtype {shown(result.subtype)}, is_error {shown(result.is_error)}, terminal_reason {shown(result.terminal_reason)}"
    status = f", exit status {case.ending.status}" if case is not None and case.ending.status else ""
    return f" (result {words}{status})"


def _error(code: str, message: str, hint: str) -> Outcome:
    return Outcome("error", code, message, hint)
