"""Does the transcript agree with the gate's record? (rule 2 of A8, DESIGN "Decided")

Boundary: pure. Not here: the digests of both sides (ledger.py), the outcome (outcome.py).
Rules: the agent can write into the CLI's output, it cannot write into the gate's record. Main thread only. A finding is a contradiction
between the two, never a mere gap that real life explains: messages of the pseudo-model, retries, cut streams and what was under way when
we ended the run are no findings. Skill evidence that disagrees is ``witnesses-disagree``, not this. The answer is looked at most closely: it is what is graded (ADR 0016).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from runner.claude import ledger
from runner.claude.facts import Transcript
from runner.claude.lines import loads
from runner.gate.exchange import Exchange
from runner.gate.message import Message, read_message

_NO_CONTENT = "(no content)"
"""What the CLI writes in place of an empty text block."""
_UNSHOWN_STOPS = frozenset({"refusal", "compaction"})
"""Stop reasons after which the CLI may throw a complete answer away and ask again (facts/claude-cli.md §2)."""
_STRUCTURED_TOOL = "StructuredOutput"
_MAX_FINDINGS = 10


def tamper_findings(
    transcript: Transcript,
    exchanges: Sequence[Exchange],
    *,
    stopped_by_us: bool = False,
    exit_status: int | None = None,
    status_fd_exit: int | None = None,
) -> tuple[str, ...]:
    """Return what in the transcript contradicts the record, at most ten sentences; () if nothing does.

    ``stopped_by_us``: the CLI was ended by the runner, so its last answers may be unwritten. ``exit_status`` is what anything else than the
    status descriptor says of the CLI's end, ``status_fd_exit`` what the descriptor says; None where one says nothing.
    """
    findings = []
    if exit_status is not None and status_fd_exit is not None and exit_status != status_fd_exit:
        findings.append(f"exit status {exit_status} is reported where the status descriptor says {status_fd_exit}")
    findings += _own_calls(exchanges)
    main = [exchange for exchange in exchanges if exchange.is_main_inference and exchange.kind == "inference"]
    entries = list(ledger.unpack(transcript.ledger))
    said = [entry for entry in entries if entry.kind in ("text", "call")]
    if said and not main:
        findings.append(
            f"the transcript holds model output from event {said[0].event} on, and no main-thread request was sent"
        )
        return tuple(findings)
    messages = [message for exchange in main if (message := read_message(exchange)) is not None]
    findings += _unrecorded(said, messages)
    findings += _unwritten(said, messages, transcript, stopped_by_us)
    findings += _changed_results([entry for entry in entries if entry.kind == "result"], main, messages)
    findings += _unfounded_results([entry for entry in entries if entry.kind == "answer"], messages)
    if not findings:
        findings += _unfounded_answer(transcript, messages)
    return tuple(findings[:_MAX_FINDINGS])


def _own_calls(exchanges: Sequence[Exchange]) -> list[str]:
    """Find model calls that something else than the CLI made: of another session, where the CLI's own requests name theirs. Who made them may say of any that it is a sub-agent's."""
    if not any(exchange.from_cli for exchange in exchanges):
        return []
    return [
        f"exchange {exchange.seq}: a model call that the CLI did not make"
        for exchange in exchanges
        if exchange.kind == "inference" and exchange.is_inference and exchange.from_cli is False
    ]


def _unfounded_answer(transcript: Transcript, messages: Sequence[Message]) -> list[str]:
    """Find a result that claims success and holds an answer which the last recorded response does not.

    The last response is the last complete one; what came after it in part counts as well, since the CLI may have read more of it than we saw sent. Of several results
    (background tasks have turns of their own) the answering one may rest on any response that ended a turn.
    """
    result = transcript.answering
    if result is None or not result.claims_answer:
        return []
    shown = [message for message in messages if message.stop_reason not in _UNSHOWN_STOPS]
    whole = [at for at, message in enumerate(shown) if message.complete and _has_output(message)]
    last = shown[whole[-1] :] if whole else shown
    several = transcript.later_results or transcript.compactions
    if several:
        last = [message for message in shown if message.stop_reason != "tool_use"]
    if result.structured_output is not None:
        given = (block for message in messages for block in message.blocks if block.name == _STRUCTURED_TOOL)
        found = any(block.input == result.structured_output for block in given)
        return [] if found else ["the result's structured output is the input of no recorded call"]
    if result.has_text and ledger.text_content(result.text) not in _texts(last):
        return ["the result's text is not that of the last recorded response"]
    told, recorded = result.stop_reason, last[0].stop_reason if len(last) == 1 and not several else None
    if isinstance(told, str) and isinstance(recorded, str) and told != recorded:
        return [
            f"the result says that the model stopped for {told!r:.80}, the last recorded response says {recorded!r:.80}"
        ]
    return []


def _unfounded_results(results: Iterable[ledger.Entry], messages: Iterable[Message]) -> list[str]:
    """Find results, also such as answer nothing, whose text stands in no recorded response."""
    texts = _texts(messages)
    return [
        f"event {entry.event}: a result whose text no recorded response holds"
        for entry in results
        if entry.content not in texts
    ]


def _texts(messages: Iterable[Message]) -> set[ledger.Digest]:
    return {ledger.text_content(block.text) for message in messages for block in message.blocks if block.type == "text"}


def _unrecorded(said: Iterable[ledger.Entry], messages: Iterable[Message]) -> list[str]:
    """Find main-thread texts and tool calls that no recorded response with that message id holds."""
    recorded: set[tuple[str, ledger.Digest, ledger.Digest]] = set()
    for message in messages:
        key = ledger.digest(message.id)
        for block in message.blocks:
            if block.type == "text":
                recorded.add(("text", key, ledger.text_content(block.text)))
            elif block.type == "tool_use":
                recorded.add(("call", key, ledger.call_content(block.id, block.name)))
    filler = ledger.text_content(_NO_CONTENT)
    what = {"text": "a text", "call": "a tool call"}
    return [
        f"event {entry.event}: {what[entry.kind]} that no recorded response with its message id holds"
        for entry in said
        if (entry.kind, entry.key, entry.content) not in recorded and entry.content != filler
    ]


def _unwritten(
    said: Iterable[ledger.Entry], messages: Sequence[Message], transcript: Transcript, stopped_by_us: bool
) -> list[str]:
    """Find completed main-thread responses that the transcript lacks.

    Only where the transcript goes on to a result: what a CLI that was killed had not written yet is no contradiction. Each compaction
    has one answer of its own that is never shown.
    """
    if transcript.answering is None:
        return []
    written = {entry.key for entry in said}
    judged = messages[:-1] if stopped_by_us else messages
    missing = [
        f"the completed response {message.id!r} is missing from the transcript"
        for message in judged
        if message.complete
        and message.stop_reason not in _UNSHOWN_STOPS
        and _has_output(message)
        and ledger.digest(message.id) not in written
    ]
    return missing if len(missing) > transcript.compactions else []


def _has_output(message: Message) -> bool:
    return any((block.type == "text" and block.text.strip()) or block.type == "tool_use" for block in message.blocks)


def _changed_results(
    results: Sequence[ledger.Entry], main: Iterable[Exchange], messages: Iterable[Message]
) -> list[str]:
    """Find tool results whose text differs from what the requests hold under that call id, reminders behind it aside.

    A result that was never sent (no request followed) is no finding, also where its call id had been used before, by as many calls as there are results.
    """
    calls = Counter(
        ledger.digest(block.id) for message in messages for block in message.blocks if block.type == "tool_use"
    )
    sent: dict[ledger.Digest, set[ledger.Digest]] = {}
    for exchange in main:
        for call_id, content in _sent_results(exchange.request.body):
            sent.setdefault(ledger.digest(call_id), set()).update(ledger.sent_result_contents(content))
    uses = Counter(entry.key for entry in results)
    left = uses.copy()
    findings = []
    for entry in results:
        left[entry.key] -= 1
        unsent = 1 < uses[entry.key] <= calls[entry.key] and left[entry.key] == 0
        if entry.key in sent and entry.content not in sent[entry.key] and not unsent:
            findings.append(f"event {entry.event}: a tool result that differs from the one in the next request")
    return findings


def _sent_results(body: bytes) -> Iterable[tuple[str, Any]]:
    try:
        document = loads(body)
    except ValueError:
        return
    messages = document.get("messages") if isinstance(document, dict) else None
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) and message.get("role") == "user" else None
        for block in content if isinstance(content, list) else ():
            if (
                isinstance(block, dict)
                and block.get("type") == "tool_result"
                and isinstance(block.get("tool_use_id"), str)
            ):
                yield block["tool_use_id"], block.get("content")
