"""What a reader of an outcome should know and what decides nothing: one sentence a fact.

Boundary: pure. Not here: the rules (outcome.py).
Rules: a note never changes an outcome; two counts of one thing are both said when they differ (cases P05, W07).
"""

from __future__ import annotations

from runner.claude.case import Case, among, answer_of, shown
from runner.claude.facts import Result, Transcript
from runner.claude.outcome import SHORT_STOPS

KNOWN_STOPS = (None, "end_turn", "tool_use", "stop_sequence", *SHORT_STOPS)


def notes_of(case: Case) -> tuple[str, ...]:
    """Return what a reader of the outcome should know and what decides nothing."""
    transcript, result, ending = case.transcript, case.transcript.answering, case.ending
    notes = [*transcript.format_notes, *transcript.event_notes]
    if result is not None:
        notes += _result_notes(transcript, result)
    if ending.ended_by == "grace":
        notes.append("the CLI did not exit after its result and was ended; the outcome stands")
    if ending.other_refusals:
        notes.append(f"refused requests that did not end the run: {ending.other_refusals}")
    if transcript.init is not None and transcript.init.failed_servers:
        notes.append(f"MCP servers not connected: {', '.join(transcript.init.failed_servers)}")
    if (
        transcript.init is not None
        and transcript.init.model
        and any(model != transcript.init.model for model in transcript.models)
    ):
        notes.append(f"init names the model {transcript.init.model}, messages came from {', '.join(transcript.models)}")
    return tuple(notes)


def _result_notes(transcript: Transcript, result: Result) -> list[str]:
    notes = []
    if answer_of(transcript).source == "main-thread-text":
        notes.append("the result's text is blank: the answer is the last main-thread text")
    if not among(result.stop_reason, KNOWN_STOPS):
        notes.append(f"unknown stop_reason {shown(result.stop_reason)}")
    if transcript.later_results:
        notes.append(
            f"{transcript.later_results} later results by task notifications: their cost is counted, their text is no answer"
        )
    if result.num_turns is not None and result.num_turns != transcript.rounds:
        notes.append(
            f"num_turns is {result.num_turns} (the CLI counts tool results too); rounds (distinct message ids): {transcript.rounds}"
        )
    told, own = transcript.result_usage, transcript.own_usage
    # An event carries the output count of its message's start, so the own sum is a lower bound of output and exact for the rest (facts/claude-cli.md §1).
    if told.input_tokens != own.input_tokens or told.output_tokens < own.output_tokens:
        notes.append(
            f"usage differs: the results say {told.input_tokens} in / {told.output_tokens} out, "
            f"main-thread messages once each {own.input_tokens} in / {own.output_tokens} out"
        )
    if result.permission_denials:
        notes.append(f"permission denials: {result.permission_denials}")
    return notes
