"""A batch: counts that leave nobody out, plots that tell the truth, one attempt in memory at a time, a page of sensible size."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from runner.report.bounds import BRIEF, SHORT, SHORT_UP_TO, WHOLE, bounds_for, excerpt, seconds_text
from runner.report.markdown import MAX_BYTES, batch_markdown
from runner.report.pages import batch_page
from runner.report.plots import WIDTH, histogram, strip
from runner.report.view import WORDS, AttemptView, Row, summarize
from tests.report.made_attempts import Workshop
from tests.report.page_reader import Page

_WORD = st.sampled_from(WORDS)


def row(number: int = 1, **changes: object) -> Row:
    made = Row(
        number=number,
        id="0" * 64,
        name="a.attempt",
        fixture="a",
        kind="worker",
        word="pass",
        measured=True,
        code="",
        why=excerpt("", 1),
        skill_state="ran",
        model="m",
        checks_met=1,
        checks_total=1,
        criteria_met=0,
        criteria_total=0,
        cost_usd=0.1,
        paid=False,
        duration_s=1.0,
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # a test's own fields


def test_bounds_follow_the_number_of_attempts() -> None:
    """One attempt is shown whole, a few shortly, many briefly; and each level shows no more than the one before."""
    assert [bounds_for(count) for count in (1, 2, SHORT_UP_TO, SHORT_UP_TO + 1, 10_000)] == [
        WHOLE,
        SHORT,
        SHORT,
        BRIEF,
        BRIEF,
    ]
    for larger, smaller in pairwise((WHOLE, SHORT, BRIEF)):
        for name in ("answer_chars", "text_chars", "first_steps", "exchanges", "files", "stderr_chars", "checks"):
            assert getattr(larger, name) >= getattr(smaller, name)


def test_error_is_started_and_not_measured() -> None:
    """An error stays in the count of what was started; a judge's run is in no count."""
    rows = [
        row(word="pass"),
        row(word="fail"),
        row(word="measured"),
        row(word="error", measured=True),
        row(word="error", measured=False),
        row(word="measured", kind="judge"),
    ]
    summary = summarize(rows)
    assert (summary.passed, summary.measured, summary.started) == (1, 4, 5)
    assert dict(summary.counts) == {"pass": 1, "fail": 1, "error": 2, "measured": 1}


@given(st.lists(_WORD, max_size=40))
def test_strip_is_as_long_as_the_whole(words: list[str]) -> None:
    """The strip has a segment for every verdict that occurs, in proportion, without gap or overlap."""
    summary = summarize([row(word=word) for word in words])
    segments = strip(summary)
    assert [segment.word for segment in segments] == [word for word in WORDS if word in words]
    at = 0.0
    for segment in segments:
        assert abs(float(segment.x) - at) < 0.02
        assert abs(float(segment.width) - 1000 * words.count(segment.word) / len(words)) < 0.02
        at += float(segment.width)
    assert not words or abs(at - 1000) < 0.1


@example([("pass", 5e-324), ("fail", 5e-324)])
@given(st.lists(st.tuples(_WORD, st.none() | st.floats(0, 1e7)), max_size=60))
def test_plot_shows_every_known_value_once(values: list[tuple[str, float | None]]) -> None:
    """Bars lie inside the plot; the words say how many values there are and how many attempts have none."""
    rows = [row(word=word, duration_s=value) for word, value in values]
    plot = histogram("Duration", rows, lambda one: one.duration_s, seconds_text)
    known = [value for _, value in values if value is not None]
    assert (plot is None) == (len(known) < 2)
    if plot is None:
        return
    assert f"{len(known)} attempts" in plot.told
    assert ("without" in plot.told) == (len(known) < len(rows))
    for bar in plot.bars:
        assert 0 <= float(bar.x) <= WIDTH
        assert float(bar.x) + float(bar.width) <= WIDTH + 0.01
        assert float(bar.y) >= 0
        assert float(bar.height) > 0
    assert 0 <= float(plot.median_x) <= WIDTH


def test_one_view_is_held_at_a_time(workshop: Workshop) -> None:
    """However many attempts there are, a view is gone before the next but one is made."""
    path = workshop.attempt()
    most = 0

    def views() -> Iterator[AttemptView]:
        nonlocal most
        for number in range(1, 16):
            yield workshop.view(path, number, BRIEF)
            gc.collect()  # what a template leaves is a cycle
            most = max(most, sum(type(thing) is AttemptView for thing in gc.get_objects()))

    for _ in batch_page(views(), brief=True):
        pass
    assert 0 < most <= 2


def test_large_batch_stays_small(workshop: Workshop) -> None:
    """Hundreds of long attempts make a page of less than 8 kB each, and a summary within its bound that says what it leaves out."""
    path = workshop.attempt(answer="long " * 5_000, stderr=b"e" * 100_000)
    workshop.failing(path, "r" * 4_000)
    view = workshop.view(path, 1, BRIEF)

    def many() -> Iterator[AttemptView]:
        for number in range(1, 301):
            yield replace(view, row=replace(view.row, number=number))

    text = "".join(batch_page(many(), brief=True))
    assert len(text) < 300 * 8_000
    page = Page(text)
    assert len(page.of("article")) == 300
    assert "Timeline, exchanges, workspace, sandbox and evidence are left out" in page.text
    markdown = "".join(batch_markdown(many()))
    assert len(markdown.encode()) < MAX_BYTES + 1_000
    assert "more attempts that did not pass are told in the table only" in markdown


def test_huge_batch_does_not_break_the_summary(workshop: Workshop) -> None:
    """Ten thousand attempts still give a summary within its bound: the counts are whole, the table says how many rows it lacks."""
    view = workshop.view(workshop.attempt(), 1, BRIEF)
    many = (replace(view, row=replace(view.row, number=number)) for number in range(1, 10_001))
    markdown = "".join(batch_markdown(many))
    assert markdown.startswith("### hermeval: 0 passed / 10000 measured / 10000 started\n")
    assert len(markdown.encode()) < MAX_BYTES + 1_000
    assert "more attempts are not shown here" in markdown
