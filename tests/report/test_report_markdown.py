"""Foreign text in Markdown is code and nothing else, wherever the summary ends up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from runner.report.markdown import batch_markdown, code_span, plain_word
from runner.report.view import AttemptView
from runner.text import visible
from sandbox.collect import Entry
from tests.report.made_attempts import Workshop

ANY_TEXT = st.text(st.characters(exclude_categories=()), min_size=1, max_size=40)
TICKS = st.text(st.sampled_from("`` |\\<a:#@[](*_\n"), min_size=1, max_size=30)


def inline(markdown: str) -> list[tuple[str, str]]:
    """The inline pieces that a Markdown reader finds in a list item, as type and content."""
    tokens = MarkdownIt("commonmark").enable("table").parse(f"- {markdown}\n")
    return [(child.type, child.content) for token in tokens for child in token.children or ()]


@given(ANY_TEXT | TICKS)
def test_any_text_is_one_piece_of_code(text: str) -> None:
    """Whatever the text, a reader finds one piece of code that holds it, made visible and without the marks of a command."""
    span = code_span(text)
    if span.startswith("("):
        assert not text.strip()
        return
    assert inline(span) == [("code_inline", visible(text).replace("::", ":\\x3a").replace("##", "#\\x23"))]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "`plain`"),
        ("a`b", "``a`b``"),
        ("`a`", "`` `a` ``"),
        ("```", "```` ``` ````"),
        ("::add-mask::x", "`:\\x3aadd-mask:\\x3ax`"),
        (":::x", "`:\\x3a:x`"),
        ("##[error]x", "`#\\x23[error]x`"),
        ("a\nb", "`a\\nb`"),
        ("", "(empty)"),
        ("  ", "(blank)"),
    ],
)
def test_known_texts_come_out_as_known(text: str, shown: str) -> None:
    """Backticks get a longer fence, workflow commands are broken up, line ends are escapes."""
    assert code_span(text) == shown


def test_long_text_says_its_length() -> None:
    """A text that is cut ends with how long it is."""
    assert code_span("x" * 1000).endswith("… (1,000 characters)`")


@pytest.mark.parametrize("word", ["ran", "skill-absent", "missing-account", "588ebf0ae747", "a.b"])
def test_plain_words_stand_in_cells(word: str) -> None:
    """Ids, states and codes stand in the table as they are."""
    assert plain_word(word) == word


@pytest.mark.parametrize(
    "word", ["a|b", "<b>", "@x", "a b", "www.x.org", "WWW.x", "a..b", "[x]", "`", "é", "-x", "x" * 200]
)
def test_other_words_do_not_stand_in_cells(word: str) -> None:
    """What could be more than a word is a question mark in the table."""
    assert plain_word(word) == "?"


def test_table_has_one_row_an_attempt_and_nine_cells(workshop: Workshop) -> None:
    """Every row of the table has as many cells as its head, also where an attempt's texts hold pipes."""
    paths = [workshop.attempt(number=number, answer="a | b") for number in (1, 2)]
    workshop.failing(paths[0], "x | y | `z")
    broken = workshop.attempt(number=3, entries=(Entry(b"a|b", "fifo", 0o644),))
    broken.write_bytes(b"| a | b |")
    views = [workshop.view(path, number) for number, path in enumerate([*paths, broken], 1)]
    rows = [line for line in _markdown(views).splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 3
    assert {line.count("|") for line in rows} == {10}


def test_what_did_not_pass_is_told_with_its_reasons(workshop: Workshop) -> None:
    """A fail names its unmet points, an error its code, message and hint; a pass is a row and no more."""
    failed, passed, errored = (workshop.attempt(number=number, skill_ran=number != 3) for number in (1, 2, 3))
    workshop.failing(failed)
    workshop.evaluate(passed)
    views = [workshop.view(path, number) for number, path in enumerate((failed, passed, errored), 1)]
    text = _markdown(views)
    assert "**1. made-case**: fail" in text
    assert "- not met: `role-preserved`: `the role is gone`" in text
    assert "**3. made-case**: error skill-absent" in text
    assert "- what to do: " in text
    assert "**2." not in text


def _markdown(views: list[AttemptView]) -> str:
    return "".join(batch_markdown(views))
