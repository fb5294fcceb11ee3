"""The canonical rules: what they let differ, what they count, and that they let nothing else differ (issue 3; facts/replay.md R3, cases N01, N03)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.claude.canonical_transcript import canonical_events, compare_events
from runner.difference import first_difference
from runner.gate.rules import REASONS, Renaming, canonical_request, differing, id_pairs

CASES = Path(__file__).resolve().parents[1] / "cases" / "inputs"
AGENT, OTHER = "a0123456789abcdef", "afedcba9876543210"


def form(text: Any) -> Any:
    made = canonical_request(json.dumps({"messages": [{"role": "user", "content": text}]}).encode())
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("rule", "recorded", "now"),
    [
        ("date", "Today's date is 2026-11-30.", "Today's date is 2027-01-01."),
        ("kernel", " - OS Version: Linux 6.18.44\n", " - OS Version: Linux 6.1.0-recorded\n"),
        ("agent-id", f"agentId: {AGENT} done", f"agentId: {OTHER} done"),
        ("duration", "<duration_ms>12</duration_ms>", "<duration_ms>3456</duration_ms>"),
        ("duration", "duration_ms: 12", "duration_ms: 99"),
        ("budget", "USD budget: $0/$2; $2 remaining", "USD budget: $0.0004/$2; $1.9996 remaining"),
        ("cch", "cc_version=2.1.332; cch=0a1b2;", "cc_version=2.1.332; cch=ffff0;"),
        (
            "prompt-id",
            "cc_prompt_id=7ef64d5c-6fc5-4857-b473-abdcc98431b7;",
            "cc_prompt_id=c3a45dd3-6ea2-4390-82e3-850c7ae37c10;",
        ),
    ],
)
def test_each_rule_explains_its_value_and_is_counted(rule: str, recorded: str, now: str) -> None:
    """A value under a rule may differ and is counted once; the same value is not counted; every rule has a reason."""
    assert differing(form(recorded), form(now)) == {rule: 1}
    assert differing(form(recorded), form(recorded)) == {}
    assert REASONS[rule]


@pytest.mark.parametrize(
    ("recorded", "now"),
    [
        ("Today's date is 2026-11-30.", "Today's date is tomorrow."),
        ("OS Version: Linux 6.18", "OS Version: Darwin 25"),
        ("cc_version=2.1.332;", "cc_version=2.1.333;"),
        ("the plan", "the Plan"),
        (f"x{AGENT}", f"x{OTHER}"),
    ],
)
def test_nothing_else_may_differ(recorded: str, now: str) -> None:
    """Text outside the rules, or near one, stays a difference."""
    assert differing(form(recorded), form(now)) is None


def test_parallel_results_may_come_in_any_order() -> None:
    """Tool results of one message are compared by their ids, and what moved is counted; another content is a difference."""
    one, two = ({"type": "tool_result", "tool_use_id": name, "content": name} for name in ("toolu_1", "toolu_2"))
    assert differing(form([one, two]), form([two, one])) == {"tool-result-order": 2}
    assert differing(form([one, two]), form([two, {**one, "content": "other"}])) is None


def test_ids_are_renamed_one_to_one() -> None:
    """An id that stands for two, or two that become one, does not agree with what is known."""
    renaming = Renaming()
    pairs = id_pairs(form(f"{AGENT} {OTHER}"), form(f"{OTHER} {AGENT}"))
    assert renaming.agrees(pairs)
    renaming.learn(pairs)
    assert not renaming.agrees([(AGENT, AGENT)])
    assert not Renaming().agrees([(AGENT, AGENT), (OTHER, AGENT)])


def test_the_volatile_billing_line_of_a_real_report_is_explained() -> None:
    """Case N01: two bodies that differ only in the billing header's suffix and hash, the date and the session."""
    first, second = ((CASES / name).read_bytes() for name in ("N01a.json", "N01b.json"))
    one, two = canonical_request(first), canonical_request(second)
    assert one is not None
    assert two is not None
    found = first_difference(json.loads(one.text), json.loads(two.text))
    assert found is None or "cc_version" in found.recorded or "session" in found.recorded


@given(st.binary(max_size=200))
def test_a_body_that_cannot_be_read_equals_nothing(body: bytes) -> None:
    """Case N03: a canonical form exists only for one readable JSON object, and never for two different unreadable bodies."""
    made = canonical_request(body)
    if made is not None:
        assert isinstance(json.loads(body), dict)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
        max_leaves=20,
    )
)
def test_a_document_is_equal_to_itself_however_it_is_written(value: Any) -> None:
    """Key order and spacing do not matter; the canonical form is a function of the value."""
    document = {"messages": [], "value": value}
    try:
        plain = json.dumps(document).encode()
    except ValueError:
        return
    one, two = canonical_request(plain), canonical_request(json.dumps(document, indent=2, sort_keys=True).encode())
    assert one is not None
    assert two is not None
    assert differing(one, two) == {}


def test_an_event_that_is_nested_without_end_is_compared_as_it_stands() -> None:
    """A line that no reader keeps whole is equal to itself and to nothing else."""
    deep = b'{"type":"assistant","x":' + b"[" * 50_000 + b"1" + b"]" * 50_000 + b"}\n"
    recorded = canonical_events(deep)
    assert compare_events(recorded, canonical_events(deep))[1] is None
    assert compare_events(recorded, canonical_events(deep.replace(b"1", b"2")))[1] is not None


@pytest.mark.parametrize(
    ("recorded", "now", "sides"),
    [
        ([1], [1, {"path": "new"}], ("nothing (1 item)", '{"path": "new"} (2 items)')),
        ([1, 2, 3], [1], ("2 (3 items)", "nothing (1 item)")),
        ([], ["x"], ("nothing (0 items)", '"x" (1 item)')),
    ],
)
def test_a_list_that_is_longer_shows_its_first_entry_too_many(
    recorded: list[Any], now: list[Any], sides: tuple[str, str]
) -> None:
    """Not the lengths alone: which entry is new, or gone, and where."""
    found = first_difference({"entries": recorded}, {"entries": now})
    assert found is not None
    assert (found.recorded, found.now) == sides
    assert found.pointer == f"/entries/{min(len(recorded), len(now))}"
    assert first_difference({"entries": now}, {"entries": now}) is None
