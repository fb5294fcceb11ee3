"""Comparing a staged body with what stands on the wire (A7)."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.claude.body import body_matches, lines_cover, literal_segments, strip_line_numbers


@pytest.mark.parametrize(
    ("body", "text", "same"),
    [
        ("# cf\nDo it.\n", "# cf\nDo it.\n", True),
        ("\n\n# cf\nDo it.\n", "# cf\nDo it.\n", True),
        ("\ufeff# cf\nDo it.\n", "# cf\nDo it.", True),
        ("\ufeff# cf\nDo it.\n", "\ufeff# cf\nDo it.\n\n\nARGUMENTS: go", True),
        ("# cf\nDo it.\n", "# cf\nDo it.\n\n\nARGUMENTS: write a plan", True),
        ("# cf\nDo it.\n", "# cf\nDo it.\n\nARGUMENTS: a\n\nARGUMENTS: b", True),
        ("# cf\r\nDo it.\r\n", "# cf\r\nDo it.\r\n\n\nARGUMENTS: x", True),
        ("# cf\nDo it.\n", "# cf\nDo it. And more.", False),
        ("# cf\nDo it.\n", "# cf\nDo it.ARGUMENTS: x", False),
        ("# cf\nDo it.\n", "# cf\nDo", False),
        ("# cf\nDo it.\n", "", False),
        ("# cf\nDo it.\n", "before\n# cf\nDo it.\n", False),
        ("# cf\nDo: $ARGUMENTS\n", "# cf\nDo: write a plan\n", True),
        ("# cf\nDo: $ARGUMENTS\n", "# cf\nDo: \n", True),
        ("# cf\nDo: $ARGUMENTS\n", "# cf\nDont: x\n", False),
        ("Do $0 and $1, $ARGUMENTS[2], $who, ${CLAUDE_SKILL_DIR}/x.", "Do a and b, c, me, /home/eval/x.", True),
        ("Do $0 and $1.", "Do a or b.", False),
        (r"Cost \$ARGUMENTS here", "Cost $ARGUMENTS here", True),
        ("Now !`date` it is.", "Now Mon\nTue it is.", True),
        ("A\n```!\nls -l\n```\nB", "A\nx y z\nB", True),
        ("A\n```sh\nls -l\n```\nB", "A\nx y z\nB", False),
        ("a $x b $y b", "a 1 b 2 b 3 b", True),
        ("a $x b $y c", "a 1 b 2 c\n\nARGUMENTS: z", True),
        ("a $x bc", "a b", False),
        ("aXa$x aXa", "aXa", False),
        ("$ARGUMENTS", "anything", False),
        (" \n$ARGUMENTS !`date`\n", "anything", False),
        ("", "", False),
    ],
)
def test_placeholders_stand_for_any_text_and_a_tail_may_follow(body: str, text: str, same: bool) -> None:
    """Literal text must be there whole, in order, anchored at both ends; a body without any proves nothing."""
    assert body_matches(body, text) is same


_PIECE = st.text(alphabet="ab \n", min_size=1, max_size=5)
_HOLE = st.sampled_from(["$ARGUMENTS", "$1", "${A}", "$who", "!`ls`", r"\$x", "$ARGUMENTS[0]"])


@given(
    st.lists(st.tuples(_PIECE, _HOLE, st.text(alphabet="abAR: \n", max_size=6)), min_size=1, max_size=5),
    _PIECE,
    st.booleans(),
)
def test_a_filled_body_always_matches(parts: list[tuple[str, str, str]], end: str, tail: bool) -> None:
    """Whatever is filled in, the text is recognised, with and without a tail."""
    body = "X" + "".join(f"{piece} {hole} " for piece, hole, _ in parts) + end + "Y"
    text = "X" + "".join(f"{piece} {value} " for piece, _, value in parts) + end + "Y"
    assert body_matches(body, text + ("\n\nARGUMENTS: b" if tail else ""))
    assert not body_matches(body + "Z", text)


def test_matching_stays_linear_on_a_hostile_body() -> None:
    """Bodies and texts that make a backtracking matcher explode are answered at once."""
    started = time.monotonic()
    for body, text in (
        ("a$x-" * 20_000 + "b", "a-" * 200_000),
        ("$x-" + "a" * 50_000 + "$y-b", "-" + "a" * 400_000),
        ("x$a y", "x" + "\n\nARGUMENTS: " * 40_000),
        ("```!\n" * 50_000 + "!`" * 50_000 + "${" * 50_000, "x"),
        ("$" * 200_000 + "\\" * 200_000 + "a", "b"),
    ):
        assert not body_matches(body, text)
    assert time.monotonic() - started < 10


def test_segments_are_the_literal_texts() -> None:
    """A body is cut at its placeholders; blanks at the ends are off."""
    assert literal_segments("\n a $x b ${Y}\n") == ["a ", " b ", ""]


def test_a_read_result_loses_its_line_numbers() -> None:
    """``NUMBER<TAB>line`` lines, with an offset, and without the reminder behind; any other form is none."""
    assert strip_line_numbers("1\tREF\n2\t") == {1: "REF", 2: ""}
    assert strip_line_numbers("  41\ta\tb\n  42\tc\r\n\n<system-reminder>\nx\n</system-reminder>") == {
        41: "a\tb",
        42: "c",
    }
    assert strip_line_numbers("no numbers") is None
    assert strip_line_numbers(f"{'9' * 5000}\tx") is None


def test_a_reference_is_covered_when_each_line_was_read() -> None:
    """Several reads may add up; a missing or another line breaks it; an empty reference is never covered."""
    body = "one\ntwo\r\nthree\n\n"
    assert lines_cover({1: "one", 2: "two", 3: "three"}, body)
    assert lines_cover({1: "one", 2: "two", 3: "three", 4: ""}, "\ufeff" + body)
    assert not lines_cover({1: "one", 3: "three"}, body)
    assert not lines_cover({1: "one", 2: "too", 3: "three"}, body)
    assert not lines_cover({1: ""}, "\n")
