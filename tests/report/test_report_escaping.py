"""Nothing of an attempt is ever anything but text: not in HTML, not in Markdown, not in JSON, not on a terminal."""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
import unicodedata
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from runner.cli.report import command
from runner.gate.exchange import Refusal
from runner.report.bounds import Excerpt
from runner.report.markdown import batch_markdown
from runner.report.pages import attempt_page, batch_page, shown_text
from runner.report.view import AttemptView
from runner.text import visible
from sandbox.collect import Entry
from sandbox.walk import Omission
from tests.report.made_attempts import Story, Workshop
from tests.report.page_reader import Page

ATTACK = (
    "</script></style></pre></title></textarea><script>alert(1)</script><zz q='1' q=\"2\" onclick=x style=y>"
    "<img src=x onerror=alert(2)> ]]> --> <!-- {{ 7*7 }} {% raw %} &lt; &amp; \" ' ` ``` | [l](http://e.invalid) ![i](x) "
    "@team #1 http://e.invalid/ www.e.invalid ::add-mask::x ::stop-commands::y ##[error]z \x1b[2J\x1b]0;t\x07 \x00 \x7f \x9b "
    "\u202egnp\u202c \u2066x\u2069 \u2028 \u2029 \ufeff \U000e0001 \ud800 \udfff \r\n| a | b |\n# h\n- i\n```\n<b>x</b>"
)
ELEMENTS = {
    "a": {"href", "class", "tabindex", "title"},
    "article": {"id", "class", "aria-labelledby"},
    "nav": {"class", "aria-label"},
    "p": {"class", "aria-hidden"},
    "pre": {"class", "tabindex"},
    "section": {"id", "class", "aria-labelledby"},
    "details": {"class", "id", "open"},
    "option": {"value"},
    "input": {"type", "name", "value", "checked", "id", "autocomplete", "spellcheck"},
    "svg": {"class", "aria-hidden", "focusable", "viewbox", "preserveaspectratio", "role", "aria-label"},
    "rect": {"class", "x", "y", "width", "height"},
    "line": {"class", "x1", "y1", "x2", "y2"},
    "tr": {"id", "class", "data-word", "data-fixture", "data-article"},
    "td": {"class", "data-l"},
}
"""Every other element of a page has at most a class and an id."""
OTHERS = frozenset(
    re.findall(
        r"\w+",
        "html head meta title style script body symbol path circle use div b span main header footer h1 h2 h3 h4 small dl dt dd ul ol li "
        "summary code bdi table thead tbody th br figure figcaption fieldset legend label select output",
    )
)
FREE = {"meta", "html", "symbol", "path", "circle", "use", "div", "output"}
ANY_TEXT = st.one_of(
    st.just(ATTACK),
    st.text(st.characters(exclude_categories=()), max_size=30),
    st.sampled_from(["", " ", "<zz q=1>", "'\" onx=1 ", "`", "a``b", "]]>", "\ud800", "\u202e", "&#60;zz&#62;"]),
)


def anything(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a view's field, with any text in every text."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is str:
        return ANY_TEXT
    if hint is bool:
        return st.booleans()
    if hint is int:
        return st.integers(0, 10**12)
    if hint is float:
        return st.floats(0, 1e6)
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*(st.none() if one is type(None) else anything(one) for one in inner))
    if origin is tuple and len(inner) == 2 and inner[1] is ...:
        return st.lists(anything(inner[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*(anything(one) for one in inner))
    if origin is dict:
        return st.just({})
    if hint is Excerpt:
        return ANY_TEXT.map(lambda text: Excerpt(text, len(text), len(text)))
    fields = get_type_hints(hint)
    return st.builds(hint, **{field.name: anything(fields[field.name]) for field in dataclasses.fields(hint)})


def assert_only_text(html: str) -> Page:
    """Hold a page to the elements and attributes that templates write, and to characters that do nothing."""
    page = Page(html)
    for tag, attributes in page.elements:
        assert tag in ELEMENTS or tag in OTHERS, tag
        if tag not in FREE:
            assert set(attributes) <= ELEMENTS.get(tag, {"id", "class", "colspan"}), (tag, attributes)
        assert not {name for name in attributes if name.startswith("on")} | ({"style", "src"} & set(attributes))
        assert attributes.get("href", "#")[:1] == "#"
    assert page.open == page.unclosed == page.comments == []
    assert len(page.of("script")) <= 1
    assert_harmless(html)
    return page


def assert_harmless(text: str) -> None:
    """No character that a terminal or a bidirectional display would act on, and nothing that is no UTF-8."""
    text.encode("utf-8")
    bad = {ch for ch in set(text) if unicodedata.category(ch) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - {"\n", "\t"}
    assert not bad, sorted(bad)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(anything(AttemptView))
def test_any_text_in_any_field_is_only_text(view: AttemptView) -> None:
    """Whatever stands in whichever field of a view, the page has the templates' elements and attributes and no others, alone and in a batch."""
    assert_only_text("".join(attempt_page(view)))
    assert_only_text("".join(batch_page([view], brief=False)))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(anything(AttemptView))
def test_any_text_in_any_field_is_only_text_in_markdown(view: AttemptView) -> None:
    """A Markdown reader finds plain words, one table and code in it: no link, image, HTML, heading or list of an attempt's making, and no workflow command."""
    text = "".join(batch_markdown([view]))
    assert_markdown_is_only_text(text)


def assert_markdown_is_only_text(text: str) -> None:
    """Hold Markdown to what the summary itself writes."""
    assert_harmless(text)
    assert "::" not in text
    assert "##[" not in text.replace("### ", "")
    headings = tables = 0
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        headings += token.type == "heading_open"
        tables += token.type == "table_open"
        assert token.type not in ("html_block", "fence", "code_block", "blockquote_open", "hr", "ordered_list_open")
        for child in token.children or ():
            assert child.type in ("text", "code_inline", "strong_open", "strong_close", "softbreak"), child
            if child.type == "text":
                assert not set(child.content) & set("<>@`[]")
                assert "www." not in child.content
    assert (headings, tables) == (1, 1)


def test_what_is_shown_can_be_read_back() -> None:
    """The attack stands in the page as a reader sees it, whole, and escaping it twice changes nothing."""
    assert shown_text(ATTACK) == shown_text(shown_text(ATTACK))
    assert shown_text("a\tb\nc") == "a\tb\nc"
    assert_harmless(shown_text(ATTACK))


@pytest.fixture
def hostile(workshop: Workshop) -> Path:
    """An attempt with the attack in every place that an agent, a tool, a model or an author of a profile can write to."""
    raw = ATTACK.encode("utf-8", "backslashreplace")
    path = workshop.attempt(
        Story(
            answer=ATTACK + "W" * 1_000_000,
            tool=ATTACK,
            given={"command": ATTACK, ATTACK: [ATTACK, {"deep": ATTACK}]},
            result=ATTACK + "R" * 1_000_000,
            stderr=raw + b"\xff\xfe" + b"E" * 1_000_000,
            criterion=ATTACK.encode("utf-8", "replace").decode(),
            entries=(
                Entry(raw.replace(b"\0", b""), "file", 0o644, len(raw), content=raw + b"\xff"),
                Entry(b"\xff\xfe<zz>\n", "fifo", 0o644),
                Entry(b"l<zz>", "symlink", 0o777, target=b"/etc/\xffpasswd<zz>"),
            ),
            omitted=(Omission(raw.replace(b"\0", b""), "depth", "<zz>"),),
            refusals=(Refusal(code="path", message=ATTACK.encode("utf-8", "replace").decode()),),
            target="/<zz q=1>\x1b[2J?" + "t" * 5000,
            system_name="<zz>\x1b[31m",
            extra_lines=b"<zz> no JSON \x1b[2J\n" + b"x" * 1_000_000 + b"\n",
        )
    )
    workshop.failing(path, ATTACK.encode("utf-8", "backslashreplace").decode())
    return path


def test_hostile_attempt_shows_as_text_everywhere(workshop: Workshop, hostile: Path) -> None:
    """HTML of one and of many, Markdown, JSON and the terminal: the attack can be read in each, does nothing in any, and long values say their size."""
    single, many, markdown = (workshop.directory / name for name in ("one.html", "many.html", "sum.md"))
    other = str(workshop.attempt(number=2))
    for arguments, target in (
        ([str(hostile)], single),
        ([str(hostile), other], many),
        ([str(hostile), other, "--markdown"], markdown),
    ):
        done = CliRunner().invoke(command, [*arguments, "-o", str(target), "--json"], standalone_mode=False)
        assert done.exception is None
        assert_harmless(done.stdout + done.stderr)
        assert json.loads(done.stdout)["summary"]["started"] == len(arguments) - ("--markdown" in arguments)
    page = assert_only_text(single.read_bytes().decode("utf-8"))
    assert visible("</script></style></pre></title></textarea><script>alert(1)</script>") in page.text
    assert r"\x1b[2J" in page.text
    assert r"\u202egnp\u202c" in page.text
    assert "of 1,000," in page.text
    assert single.stat().st_size < 3_000_000
    assert_only_text(many.read_bytes().decode("utf-8"))
    assert many.stat().st_size < 200_000
    assert_markdown_is_only_text(markdown.read_bytes().decode("utf-8"))
    assert "</script></style>" in markdown.read_text()
