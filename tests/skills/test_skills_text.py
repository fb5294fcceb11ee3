"""What the CLI makes of a SKILL.md. The expected bodies are what CLI 2.1.332 sent for exactly these bytes."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.skill_text import parse_skill_text

FM = b"---\nname: v\ndescription: d here\n---\n"

MEASURED: dict[str, tuple[bytes, str]] = {
    "plain": (FM + b"# Body one\ntext\n", "# Body one\ntext\n"),
    "mark before front matter": (b"\xef\xbb\xbf" + FM + b"# Body\n", "# Body\n"),
    "mark without front matter stays": (b"\xef\xbb\xbf# Body\n", "\ufeff# Body\n"),
    "two marks": (b"\xef\xbb\xbf\xef\xbb\xbf---\nname: v\n---\n# Body\n", "\ufeff\ufeff---\nname: v\n---\n# Body\n"),
    "CR LF": (FM.replace(b"\n", b"\r\n") + b"# Body\r\ntwo\r\n", "# Body\r\ntwo\r\n"),
    "CR alone is no line end": (
        FM.replace(b"\n", b"\r") + b"# Body\rtwo\r",
        "---\rname: v\rdescription: d here\r---\r# Body\rtwo\r",
    ),
    "blank after the opening": (b"--- \nname: v\n---\n# Body\n", "# Body\n"),
    "tab after the opening": (b"---\t\nname: v\n---\n# Body\n", "# Body\n"),
    "blanks after the closing": (b"---\nname: v\n---  \n# Body\n", "# Body\n"),
    "not closed": (b"---\nname: v\ndescription: d\n# Body\n", "---\nname: v\ndescription: d\n# Body\n"),
    "none": (b"# Just body\ntext\n", "# Just body\ntext\n"),
    "line before": (b"\n---\nname: v\n---\n# Body\n", "\n---\nname: v\n---\n# Body\n"),
    "blank before": (b" ---\nname: v\n---\n# Body\n", " ---\nname: v\n---\n# Body\n"),
    "four dashes": (b"----\nname: v\n----\n# Body\n", "----\nname: v\n----\n# Body\n"),
    "dots do not close": (b"---\nname: v\n...\n# Body\n---\nafter\n", "after\n"),
    "broken YAML": (b"---\nname: [v\ndescription: d: e: f\n---\n# Body\n", "# Body\n"),
    "a list": (b"---\n- a\n- b\n---\n# Body\n", "# Body\n"),
    "empty": (b"---\n---\n# Body\n", "# Body\n"),
    "an empty line": (b"---\n\n---\n# Body\n", "# Body\n"),
    "nothing after the closing": (b"---\nname: v\n---", ""),
    "no body": (FM, ""),
    "leading blanks go, trailing ones stay": (FM + b"\n \t\n  # Body\ntext  \n\n\n", "# Body\ntext  \n\n\n"),
    "JavaScript's blanks go": (FM + "\u00a0\u2028\u3000\ufeff# Body\n".encode(), "# Body\n"),
    "bad UTF-8": (
        FM + b"# B\xff\xfe body \xc3\n\xed\xa0\x80 x \xf0\x9f\x98\n",
        "# B\ufffd\ufffd body \ufffd\n\ufffd\ufffd\ufffd x \ufffd\n",
    ),
    "NUL": (FM + b"# B\x00 x\x01\n", "# B\x00 x\x01\n"),
    "dashes in a block text": (b"---\ndescription: |\n  a\n  ---\n  b\n---\n# Body\n", "b\n---\n# Body\n"),
    "dashes within a line": (b"---\nname: v\ndescription: a --- b\n---\n# Body\n", "b\n---\n# Body\n"),
    "text after the closing": (b"---\nname: v\n---x\n# Body\n", "x\n# Body\n"),
}


@pytest.mark.parametrize("case", MEASURED)
def test_body_is_what_the_cli_sends(case: str) -> None:
    """The body of each variant equals the text that the real CLI sent for it."""
    data, body = MEASURED[case]
    assert parse_skill_text(data).body == body


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"---\nname: 123\n---\n# B\n", "123"),
        (b"---\nname: on\n---\n# B\n", "on"),
        (b"---\nname: 2026-01-02\n---\n# B\n", "2026-01-02"),
        (b'---\nname: "o p"\n---\n# B\n', "o p"),
        (b"---\nname: first\nname: second\n---\n# B\n", "second"),
        (b"---\nname: v\ndescription: d: e\n---\n# B\n", "v"),
        (b"---\nname: v\ndescription: [d\n---\n# B\n", "v"),
        (b"---\nname: [v]\n---\n# B\n", ""),
        (b"# B\n", ""),
    ],
)
def test_name_is_text_as_written(data: bytes, name: str) -> None:
    """Numbers, dates and YAML 1.1 booleans stay text; of two keys the last counts; broken YAML is mended line by line."""
    assert parse_skill_text(data).text("name") == name


@pytest.mark.parametrize(
    ("front", "forks"),
    [
        (b"context: fork", True),
        (b'context: "fork"', True),
        (b"description: d: e\ncontext: fork", True),
        (b"description: [d\ncontext: 'fork'", True),
        (b"Context: Fork", True),
        (b"context: fork\ncontext: inline", True),
        (b"context: inline", False),
        (b"description: context fork", False),
        (b"description: d", False),
    ],
)
def test_fork_is_seen_in_doubt(front: bytes, forks: bool) -> None:
    """A skill that may run in a context of its own is found, also in front matter that is no YAML, which the CLI mends."""
    assert parse_skill_text(b"---\n" + front + b"\n---\n# B\n").forks is forks


def test_body_cannot_fork() -> None:
    """The same words in the body mean nothing."""
    assert not parse_skill_text(FM + b"context: fork\n").forks


def test_commands_are_named() -> None:
    """Commands in a code span after ! and in a block opened by ```! are found; what the CLI leaves alone is not."""
    body = b"Now !`echo hi` and\n```!\necho fenced\n```\nx!`echo no`\n```sh\n!x\n```\n!`last`\n"
    assert parse_skill_text(FM + body).commands == ("echo hi", "echo fenced", "last")


@pytest.mark.parametrize(
    "body", ["$ARGUMENTS", "$ARGUMENTS[0] $1 \\$2\n${CLAUDE_SKILL_DIR} $who", "!`date`", "```!\ndate\n```\n", " \n", ""]
)
def test_body_of_placeholders_has_no_fixed_text(body: str) -> None:
    """What is filled in at load proves nothing; one word beside it is enough."""
    assert parse_skill_text(FM + body.encode()).fixed_text == ""
    assert parse_skill_text(FM + body.encode() + b" word").fixed_text == "word"


@pytest.mark.parametrize(
    "front",
    [
        b"a: &x [1, 2]\nb: *x\n",
        b"a: " + b"[" * 5000 + b"\n",
        b"a: " + b"{x: " * 3000 + b"\n",
        b"a: !!python/object/apply:os.system [echo]\n" + b"b: '",
        b"? " * 20000 + b"\n",
        b"x: " + b"y" * 100_000 + b"\n",
        b"- " * 20000 + b"\n",
        b"\x00\x01\n",
    ],
)
def test_hostile_front_matter_is_bounded(front: bytes) -> None:
    """Aliases, depth, tags and size cost no time, run nothing and raise nothing."""
    started = time.monotonic()
    text = parse_skill_text(b"---\n" + front + b"\n---\n# Body\n")
    assert text.state == "repaired"
    assert text.problem
    assert time.monotonic() - started < 10


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=300),
        st.text(st.sampled_from("-: \n\r\t\ufeffab[]{}&*!|>'\"#%@`$"), max_size=80).map(
            lambda text: b"---\n" + text.encode()
        ),
    )
)
def test_any_bytes_give_a_value(data: bytes) -> None:
    """Nothing raises, and the body is always the end of the decoded text."""
    text = parse_skill_text(data)
    assert data.decode("utf-8", "replace").endswith(text.body)
    assert isinstance(text.forks, bool)
    assert isinstance(text.commands, tuple)
    assert len(text.fixed_text) <= len(text.body)
