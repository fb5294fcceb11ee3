"""The timeline tells a transcript in order, whatever is in it, and never holds more than it shows."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.report.bounds import SHORT, WHOLE
from runner.report.timeline import Source, Step, Timeline, read_timeline

TRANSCRIPTS = sorted((Path(__file__).resolve().parents[1] / "cases" / "transcripts").glob("*.jsonl"))
_SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
_JSON = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
_BLOCK = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "tool_result", "thinking", "image", 7])},
    optional=dict.fromkeys(("id", "tool_use_id", "name", "input", "content", "text", "is_error", "thinking"), _JSON),
)
_EVENT = st.fixed_dictionaries(
    {"type": st.sampled_from(["assistant", "user", "result", "system", "odd", 7])},
    optional={
        "subtype": st.just("init") | _JSON,
        "message": st.fixed_dictionaries({"content": st.lists(_BLOCK | _JSON, max_size=3) | _JSON, "id": _JSON})
        | _JSON,
        "parent_tool_use_id": _JSON,
        "isReplay": _JSON,
        "result": _JSON,
        "is_error": _JSON,
        "total_cost_usd": _JSON,
        "num_turns": _JSON,
        "terminal_reason": _JSON,
        "skills": _JSON,
    },
)


def lines(*events: Any) -> bytes:
    return b"".join(event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n" for event in events)


def read(*events: Any, sources: dict[str, Source] | None = None) -> Timeline:
    return read_timeline(lines(*events), WHOLE, sources or {})


def said(*blocks: Any, message: str = "msg_1", parent: str | None = None) -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": message, "content": list(blocks)}, "parent_tool_use_id": parent}


def given_back(call: str, content: Any = "done", parent: str | None = None, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call, "content": content, **more}
    return {"type": "user", "message": {"content": [block]}, "parent_tool_use_id": parent}


def call(call_id: str, name: str = "Bash", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def kinds(line: Timeline) -> list[str]:
    return [step.kind for step in line.steps]


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_every_known_transcript_has_a_timeline(path: Path) -> None:
    """Each of the CLI's recorded transcripts is told, with a result step where it has a result event."""
    data = path.read_bytes()
    line = read_timeline(data, WHOLE, {})
    results = data.count(b'"type":"result"')
    assert kinds(line).count("result") == results
    assert line.left_out == 0


def test_result_goes_to_its_call() -> None:
    """Parallel results go to the calls that they name, in whatever order they come, and a call without one is told to have none."""
    line = read(said(call("a"), call("b"), call("c")), given_back("b", "two", is_error=True), given_back("a", "one"))
    told = {step.text.text: step for step in line.steps}
    assert len(told) == 1  # equal inputs
    states = [(step.state, None if step.result is None else step.result.text) for step in line.steps]
    assert states == [("good", "one"), ("error", "two"), ("open", None)]
    assert (line.calls, line.failed_calls) == (3, 1)


def test_sub_agent_has_a_lane_of_its_own() -> None:
    """What happens below a call stands in that sub-agent's lane; the same call id on another thread is another call."""
    line = read(
        said(call("a", "Agent", description="look")),
        said(call("a"), parent="toolu_x"),
        given_back("a", "inner", parent="toolu_x"),
        said({"type": "text", "text": "hi"}, parent="toolu_y"),
        given_back("a", "outer"),
    )
    assert [step.lane for step in line.steps] == [0, 1, 2]
    assert [step.result.text for step in line.steps if step.result is not None] == ["outer", "inner"]
    assert line.agents == 2


def test_message_is_bound_to_its_exchange() -> None:
    """A step of a message that an exchange brought names the exchange and its time on the gate's clock; another step does not."""
    line = read(
        said({"type": "text", "text": "x"}, message="msg_9"),
        said({"type": "text", "text": "y"}, message="forged"),
        sources={"msg_9": Source(4, 250_000)},
    )
    assert [(step.request, step.at_us) for step in line.steps] == [(4, 250_000), (None, None)]


def test_result_that_repeats_the_last_message_is_not_told_twice() -> None:
    """The result's text is left out where it is the main thread's last text, and told where it is another."""
    text = said({"type": "text", "text": "the answer"})
    same, other = (read(text, {"type": "result", "result": words}).steps[-1] for words in ("the answer", "another"))
    assert (same.text.text, "last message" in same.summary) == ("", True)
    assert (other.text.text, "last message" in other.summary) == ("another", False)


@pytest.mark.parametrize(("cost", "told"), [(0.5, "USD 0.5000"), (10**400, "–"), (-1, "–")])
def test_a_cost_that_is_none_is_not_told(cost: float, told: str) -> None:
    """An amount of any size can stand in a result; one that cannot be is a dash."""
    assert told in read({"type": "result", "result": "x", "total_cost_usd": cost}).steps[-1].summary


def test_skill_text_prompt_and_other_events_are_told_apart() -> None:
    """A replayed event is the prompt, a skill's text is called so, and events that are no step are counted by kind."""
    line = read(
        {"type": "system", "subtype": "init", "model": "m", "claude_code_version": "2", "skills": ["a"]},
        {"type": "user", "message": {"content": "do it"}, "isReplay": True},
        {"type": "user", "message": {"content": "Base directory for this skill: /x\n\nbody"}},
        {"type": "system", "subtype": "task_started"},
        {"type": "rate_limit_event"},
        b"no json\n",
    )
    assert kinds(line) == ["start", "prompt", "skill"]
    assert line.other_events == (("rate_limit_event", 1), ("system task_started", 1))
    assert line.unparsed == 1


def test_long_run_keeps_its_beginning_and_its_end() -> None:
    """Of more steps than are shown the first and the last ones are, the rest is counted, and memory does not grow with it."""
    bounds = replace(SHORT, first_steps=3, last_steps=2)
    events = (said(call(f"c{number}", x="y" * 5000)) for number in range(4_000))
    data = lines(*events)
    tracemalloc.start()
    line = read_timeline(data, bounds, {})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(line.first), line.left_out, len(line.last), line.total) == (3, 3_995, 2, 4_000)
    assert line.calls == 4_000
    assert peak < 12_000_000  # the transcript has 20 MB
    assert all(len(step.text.text) <= bounds.text_chars for step in line.steps)


@given(st.lists(_EVENT.map(lambda event: json.dumps(event).encode() + b"\n") | st.binary(max_size=40), max_size=8))
def test_any_bytes_have_a_timeline(pieces: list[bytes]) -> None:
    """Events of any shape and bytes of any kind give a timeline in which every step can be shown."""
    line = read_timeline(b"".join(pieces), WHOLE, {})
    assert all(_showable(step) for step in line.steps)


def _showable(step: Step) -> bool:
    texts = [step.title, step.text.text, step.text.lead, step.text.cut, step.summary, step.message]
    return all(isinstance(text, str) for text in texts) and isinstance(step.lane, int)
