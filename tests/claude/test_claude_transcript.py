"""The stream parser: threads, ids, results, texts, live properties, and any bytes at all (A4, A8, A9, A11)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.claude.case import Case
from runner.claude.evidence import Requirement, judge_skill
from runner.claude.facts import Transcript
from runner.claude.outcome import classify
from runner.claude.row import attempt_row
from runner.claude.transcript import TranscriptParser


def _states(facts: Transcript) -> list[tuple[str | None, str, str | None]]:
    return [(call.name, call.state, call.parent) for call in facts.skill_calls]


def test_a_result_is_bound_to_its_call(say: Any) -> None:
    """A good result loads the call with that id; a call without a result stays without."""
    facts = say.whole(say.skill("t1", "cf"), say.answer("t1"), say.skill("t2", "other"))
    assert _states(facts) == [("cf", "loaded", None), ("other", "no-result", None)]


def test_another_calls_success_is_no_evidence(say: Any) -> None:
    """A success under another id, of another tool or on another thread binds to nothing."""
    facts = say.whole(
        say.skill("t1", "cf"),
        say.call("t2", "Bash", {}),
        say.answer("t2"),
        say.answer("t3"),
        say.answer("t1", parent="toolu_agent"),
    )
    assert _states(facts) == [("cf", "no-result", None)]


def test_of_duplicate_call_ids_the_last_wins(say: Any) -> None:
    """The last call under an id counts, with the results after it; a result given to the earlier call is not inherited."""
    assert _states(say.whole(say.skill("t1", "cf"), say.skill("t1", "other"), say.answer("t1"))) == [
        ("other", "loaded", None)
    ]
    assert _states(say.whole(say.skill("t1", "other"), say.answer("t1"), say.skill("t1", "cf"))) == [
        ("cf", "no-result", None)
    ]
    assert _states(say.whole(say.skill("t1", "cf"), say.call("t1", "Bash", {}), say.answer("t1"))) == []


def test_of_duplicate_results_the_last_wins(say: Any) -> None:
    """A later result for the same call replaces the earlier one, both ways."""
    good, bad = say.answer("t1"), say.answer("t1", is_error=True)
    assert _states(say.whole(say.skill("t1", "cf"), good, bad)) == [("cf", "failed", None)]
    assert _states(say.whole(say.skill("t1", "cf"), bad, good)) == [("cf", "loaded", None)]


def test_a_result_before_its_call_is_none(say: Any) -> None:
    """What comes before the call answers something else."""
    assert _states(say.whole(say.answer("t1"), say.skill("t1", "cf"))) == [("cf", "no-result", None)]


def test_a_sub_agents_load_is_listed_with_its_parent(say: Any) -> None:
    """The same id on two threads is two calls; the sub-agent's carries the id of the call that started it."""
    facts = say.whole(
        say.skill("t1", "cf", parent="toolu_agent"),
        say.answer("t1", parent="toolu_agent"),
        say.skill("t1", "cf"),
        say.answer("t1", is_error=True),
    )
    assert _states(facts) == [("cf", "loaded", "toolu_agent"), ("cf", "failed", None)]


def test_a_made_up_id_touches_no_slash_load(say: Any) -> None:
    """Whatever text a call's or a result's id is, a slash load and a call without an id stay what they are."""
    events = [say.replay(say.tags("cf")), say.skill(None, "other")]
    for made_up in ("\0slash cf", "slash", "cf", "\x001", "1"):
        facts = say.whole(*events, say.call(made_up, "Bash", {}), say.answer(made_up, "no", is_error=True))
        assert _states(facts) == [("cf", "loaded", None), ("other", "no-result", None)]


@pytest.mark.parametrize("call_id", [None, 7, ["t1"], {}])
def test_a_call_without_an_id_gets_no_result(say: Any, call_id: Any) -> None:
    """An id that is no text binds to nothing, and nothing is raised."""
    assert _states(say.whole(say.skill(call_id, "cf"), say.answer(call_id))) == [("cf", "no-result", None)]


def test_a_slash_load_is_a_replay_of_nothing_but_tags(say: Any) -> None:
    """String and list content, with and without arguments; prose, tags in prose, mixed blocks and the raw prompt are replays only."""
    for content in (say.tags("cf"), say.tags("cf", "write a plan"), [{"type": "text", "text": say.tags("cf", "x")}]):
        facts = say.whole(say.replay(content))
        assert _states(facts) == [("cf", "loaded", None)]
        assert facts.replays == 1
    for content in (
        "/cf write a plan",
        f"see {say.tags('cf')}",
        [{"type": "text", "text": say.tags("cf")}, {"type": "image"}],
        None,
        7,
    ):
        facts = say.whole(say.replay(content))
        assert _states(facts) == []
        assert facts.replays == 1


def test_only_a_main_thread_replay_counts(say: Any) -> None:
    """``isReplay`` must be true itself, and the thread the main one."""
    for fields in ({"isReplay": False}, {"isReplay": "true"}, {"isReplay": 1}, {"parent_tool_use_id": "toolu_agent"}):
        facts = say.whole(say.replay(say.tags("cf"), **fields))
        assert (facts.replays, _states(facts)) == (0, [])


def test_an_absent_parent_is_the_main_thread(say: Any) -> None:
    """Null and absent are the same; any other value is some other thread."""
    event = say.text("main")
    del event["parent_tool_use_id"]
    assert say.whole(event).last_text == "main"
    others: list[Any] = ["", 0, {}]
    for parent in others:
        assert say.whole({**say.text("sub"), "parent_tool_use_id": parent}).last_text is None


def test_the_last_main_text_is_kept(say: Any) -> None:
    """Blank texts, sub-agents' texts, the pseudo-model's and partial messages are not it."""
    seen: list[str] = []
    facts = say.whole(
        say.text("first"),
        say.assistant({"type": "text", "text": "one"}, {"type": "text", "text": "two"}),
        say.text(" \n"),
        say.text("sub", parent="toolu_agent"),
        say.text("API Error", model="<synthetic>"),
        {
            "type": "stream_event",
            "event": {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "partial"}},
        },
    )
    assert facts.last_text == "two"
    parser = TranscriptParser(on_main_text=seen.append)
    parser.feed(say.lines(say.text("first"), say.text("second")))
    assert seen == ["first", "second"]


def test_text_without_a_model_or_as_a_string_is_text(say: Any) -> None:
    """An unknown model is another model than the pseudo-model; content may be one string."""
    event = {"type": "assistant", "message": {"id": "a", "content": "plain"}}
    assert say.whole(event).last_text == "plain"


def test_a_later_turns_text_is_no_answer_to_the_prompt(say: Any) -> None:
    """With a blank answering result, the last text up to it answers; a later text does only where there was none before (A8)."""
    noted = [say.text("noted"), say.result(result="noted", origin={"kind": "task-notification"})]
    assert say.parse(say.init(), say.text("first"), say.result(result=""), *noted).last_text == "first"
    assert say.parse(say.init(), say.result(result=""), *noted).last_text == "noted"
    assert (
        say.parse(say.init(), say.text("first"), say.result(), say.text("second"), say.result(result="")).last_text
        == "second"
    )


def test_the_answering_result_is_the_last_of_the_prompt(say: Any) -> None:
    """Results of task notifications give cost only; without any other the last one answers."""
    note = {"origin": {"kind": "task-notification"}}
    facts = say.parse(
        say.init(),
        say.result(result="first", total_cost_usd=0.1),
        say.result(result="second", total_cost_usd=0.2),
        say.result(result="noted", total_cost_usd=0.3, **note),
    )
    assert facts.answering is not None
    assert (facts.answering.text, facts.later_results, facts.cost_usd, facts.results) == ("second", 1, 0.3, 3)
    only = say.parse(say.init(), say.result(result="a", **note), say.result(result="b", **note))
    assert only.answering is not None
    assert only.answering.text == "b"
    back = say.parse(say.init(), say.result(result="a", **note), say.result(result="b", origin={"kind": "user"}))
    assert back.answering is not None
    assert back.answering.text == "b"


def test_cost_is_read_as_a_finite_number_only(say: Any) -> None:
    """Text, booleans and infinities are no cost; an earlier cost stays."""
    for cost in ("1", True, None, [1]):
        assert say.parse(say.result(total_cost_usd=0.5), say.result(total_cost_usd=cost)).cost_usd == 0.5
    assert say.parse(b'{"type": "result", "total_cost_usd": 1e999}\n').cost_usd is None
    assert say.parse(say.result(total_cost_usd=-1)).cost_usd is None
    assert say.parse(b'{"type": "result", "total_cost_usd": ' + b"9" * 400 + b"}\n").cost_usd is None


def test_references_are_what_a_main_thread_read_returned(say: Any) -> None:
    """A Read without an error counts; a failed one, another tool and a sub-agent's do not."""
    path = {"file_path": "/home/eval/.claude/skills/cf/references/a.md"}
    good = say.whole(say.call("t1", "Read", path), say.answer("t1", "1\tx"))
    assert good.references_read == {path["file_path"]}
    for events in (
        [say.call("t1", "Read", path), say.answer("t1", "no", is_error=True)],
        [say.call("t1", "Bash", path), say.answer("t1", "1\tx")],
        [say.call("t1", "Read", path, parent="x"), say.answer("t1", "1\tx", parent="x")],
        [say.call("t1", "Read", path)],
    ):
        assert say.whole(*events).references_read == frozenset()


def test_init_fields_are_the_first_ones_and_lists_add_up(say: Any) -> None:
    """A second init (the next turn) may add skills and plugin errors, and overrides no field."""
    facts = say.parse(
        say.init(skills=["a"]),
        say.init(model="m-2", skills=["b", 7], plugin_errors=[{"plugin": "p", "message": "bad"}, "odd"]),
    )
    assert facts.init is not None
    assert (facts.init.model, facts.init.skills, facts.init.plugin_errors) == ("m-1", {"a", "b"}, ("p: bad", "odd"))


def test_unparsable_lines_are_numbered_and_placed(say: Any) -> None:
    """Before init they are preamble, after it damage; each is told as it is dropped, with its number."""
    told: list[int] = []
    facts = say.parse(b"hello\n", b"\n", say.init(), b"{broken\n", b"42\n", say.result(), on_unparsed=told.append)
    assert (facts.unparsed_lines, facts.unparsed_after_init, told, facts.unparsed_numbers) == (
        3,
        2,
        [1, 4, 5],
        (1, 4, 5),
    )
    assert (facts.events_seen, facts.last_event_type, facts.cut) == (2, "result", False)


def test_a_cut_last_line_is_told_from_a_whole_one(say: Any) -> None:
    """The last line may lack its line end if it is whole; if it is unparsable too, the stream was cut."""
    whole = say.parse(say.init(), json.dumps(say.result()).encode())
    assert (whole.cut, whole.results) == (False, 1)
    cut = say.parse(say.init(), json.dumps(say.result()).encode()[:-5])
    assert (cut.cut, cut.unparsed_lines, cut.results) == (True, 1, 0)
    assert not say.parse(say.init(), say.result(), b"  \r").cut


def test_foreign_line_forms_are_accepted_and_noted(say: Any) -> None:
    """A BOM at the start, CR before LF and blank lines change nothing but the notes; a BOM elsewhere is no JSON."""
    plain = say.parse(say.init(), say.result())
    foreign = say.parse(
        b"\xef\xbb\xbf", json.dumps(say.init()).encode() + b"\r\n \t\r\n\n", json.dumps(say.result()).encode() + b"\r\n"
    )
    assert (foreign.answering, foreign.init, foreign.unparsed_lines) == (plain.answering, plain.init, 0)
    assert len(foreign.format_notes) == 3
    assert say.parse(say.init(), b"\xef\xbb\xbf" + json.dumps(say.result()).encode() + b"\n").unparsed_lines == 1


def test_a_line_over_the_bound_overflows(say: Any) -> None:
    """The flag is up while the line is still coming, the line is counted as dropped, the rest is read."""
    parser = TranscriptParser(max_line_bytes=100_000)
    parser.feed(say.lines(say.init()) + b"x" * 100_001)
    assert parser.overflow
    parser.feed(b"x\n" + say.lines(say.result()))
    facts = parser.close()
    assert (facts.overflow, facts.unparsed_lines, facts.results) == (True, 1, 1)


def test_the_live_properties_follow_the_stream(say: Any) -> None:
    """First event, result and running background tasks are told as they come."""
    parser = TranscriptParser()
    assert not (parser.first_event_seen)
    assert not (parser.result_seen)
    assert not (parser.background_running)
    assert not (parser.overflow)
    parser.feed(say.lines(say.init()))
    assert parser.first_event_seen
    parser.feed(
        say.lines(
            {"type": "system", "subtype": "background_tasks_changed", "tasks": [{"task_id": "b1"}, {"task_id": "b2"}]}
        )
    )
    assert parser.background_running
    parser.feed(say.lines({"type": "system", "subtype": "task_notification", "task_id": "b1"}, say.result()))
    assert parser.result_seen
    assert parser.background_running
    parser.feed(
        say.lines({"type": "system", "subtype": "task_updated", "task_id": "b2", "patch": {"status": "killed"}})
    )
    assert not parser.background_running
    assert parser.close().background_at_result


def test_a_started_background_task_runs_until_the_list_says_otherwise(say: Any) -> None:
    """``task_started`` counts when it is in the background; an empty list ends all."""
    parser = TranscriptParser()
    parser.feed(say.lines({"type": "system", "subtype": "task_started", "task_id": "f", "is_backgrounded": False}))
    assert not parser.background_running
    parser.feed(say.lines({"type": "system", "subtype": "task_started", "task_id": "b", "is_backgrounded": True}))
    assert parser.background_running
    parser.feed(say.lines({"type": "system", "subtype": "background_tasks_changed", "tasks": []}))
    assert not parser.background_running


def test_deep_inputs_are_replaced_by_a_sentence(say: Any) -> None:
    """An input that could not be written again as JSON is not kept; an ordinary one is kept as it is."""
    deep: Any = "x"
    for _ in range(300):
        deep = [deep]
    facts = say.whole(
        say.call("t1", "Skill", {"skill": "cf", "args": deep}), say.call("t2", "Skill", {"skill": "cf", "args": "a"})
    )
    assert "levels deep" in facts.skill_calls[0].input
    assert facts.skill_calls[1].input == {"skill": "cf", "args": "a"}


def test_the_tail_is_the_end_of_the_stream(say: Any) -> None:
    """However it comes, the last bytes are kept for the missing-result message."""
    data = bytes(range(256)) * 20
    whole, single = TranscriptParser(), TranscriptParser()
    whole.feed(data)
    for index in range(len(data)):
        single.feed(data[index : index + 1])
    assert whole.close().tail == single.close().tail == data[-2048:]


_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from([0.5, float("inf")])
    | st.sampled_from(["", "x", "init", "result", "cf", "t1", "Skill", "<synthetic>", "\ud800"])
)
_ANY = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "text",
                    "id",
                    "name",
                    "input",
                    "skill",
                    "content",
                    "tool_use_id",
                    "kind",
                    "status",
                    "task_id",
                    "model",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=6,
)
_KEYS = [
    "subtype",
    "message",
    "parent_tool_use_id",
    "isReplay",
    "tool_use_result",
    "result",
    "origin",
    "usage",
    "total_cost_usd",
    "num_turns",
    "errors",
    "permission_denials",
    "skills",
    "plugin_errors",
    "mcp_servers",
    "tasks",
    "task_id",
    "patch",
    "structured_output",
    "is_error",
    "stop_reason",
]
_EVENT = st.fixed_dictionaries(
    {"type": st.sampled_from(["system", "assistant", "user", "result", "stream_event", "new"]) | _ANY},
    optional=dict.fromkeys(_KEYS, _ANY),
)


@given(st.lists(_EVENT, max_size=6))
def test_any_events_give_facts(events: list[Any]) -> None:
    """Whatever JSON stands in whatever field, there are facts and a row that any JSON reader can read, and nothing is raised."""
    parser = TranscriptParser()
    parser.feed(b"".join(json.dumps(event).replace("Infinity", "1e999").encode() + b"\n" for event in events))
    facts = parser.close()
    assert facts.events_seen == len(events)
    case = Case(transcript=facts, skill=judge_skill(facts, Requirement.parse("cf"), None))
    json.dumps(attempt_row(case, classify(case)), allow_nan=False)


@given(st.binary(max_size=300), st.integers(1, 50))
def test_any_bytes_give_facts_whatever_the_cuts(data: bytes, size: int) -> None:
    """Any bytes are a Transcript, and the same one in any chunks."""
    whole = TranscriptParser(max_line_bytes=120)
    whole.feed(data)
    parser = TranscriptParser(max_line_bytes=120)
    for start in range(0, len(data), size):
        parser.feed(data[start : start + size])
    assert parser.close() == whole.close()
