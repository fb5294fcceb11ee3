"""A page is one file that asks nothing of anywhere, says the verdict first, and holds what a reader has to compare."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from runner.bundle.reader import open_attempt
from runner.gate.exchange import Refusal
from runner.report import pages
from runner.report.bounds import BRIEF, SHORT
from runner.report.pages import attempt_page, batch_page
from runner.report.view import AttemptView
from sandbox.collect import Entry
from tests.report.made_attempts import Workshop
from tests.report.page_reader import Page

_TEMPLATES = Path(pages.__file__).with_name("templates")
_LOADS = {"src", "srcset", "action", "formaction", "poster", "background", "cite", "ping", "manifest", "style"}


def whole(view: AttemptView) -> str:
    return "".join(attempt_page(view))


def batch(*views: AttemptView, brief: bool = False) -> str:
    return "".join(batch_page(views, brief=brief))


@pytest.fixture
def rich(workshop: Workshop) -> AttemptView:
    """An attempt with something in every section."""
    path = workshop.attempt(
        stderr=b"warning: x\n",
        entries=(Entry(b"note.md", "file", 0o644, 5, content=b"hello"), Entry(b"link", "symlink", 0o777, target=b"/x")),
        refusals=(Refusal(code="path", message="only the inference paths are served"),) * 3,
    )
    workshop.failing(path)
    return workshop.view(path)


def both(view: AttemptView) -> list[str]:
    return [whole(view), batch(view, view)]


def test_page_asks_nothing_of_anywhere(rich: AttemptView) -> None:
    """No element names another document: every href is a place on the page, and nothing that loads is there."""
    for text in both(rich):
        page = Page(text)
        for tag, attributes in page.elements:
            assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form", "audio", "video", "image"}
            assert not _LOADS & set(attributes), (tag, attributes)
            assert not any(name.startswith("on") for name in attributes)
            assert attributes.get("href", "#").startswith("#")
        assert "@import" not in text
        assert "url(" not in text


def test_policy_refuses_everything_but_the_own_style_and_script(rich: AttemptView) -> None:
    """The policy is the first thing of the page after its encoding; its hashes are those of the style and the script that are there."""
    for text, has_script in zip(both(rich), (False, True), strict=True):
        page = Page(text)
        names = [attributes.get("http-equiv", attributes.get("charset")) for attributes in page.of("meta")]
        assert names[:2] == ["utf-8", "Content-Security-Policy"]
        directives = dict(part.strip().split(" ", 1) for part in page.of("meta")[1]["content"].split(";"))
        assert directives["default-src"] == "'none'"
        assert directives["base-uri"] == directives["form-action"] == "'none'"
        assert directives["style-src"] == _source("".join(page.raw["style"]))
        assert (directives.get("script-src") is not None) == has_script
        assert len(page.of("style")) == 1
        assert len(page.of("script")) == has_script
        if has_script:
            assert directives["script-src"] == _source("".join(page.raw["script"]))


def test_page_is_well_formed_and_its_ids_are_unique(rich: AttemptView) -> None:
    """Every element that is opened is closed in order, no id stands twice, and every link finds its place."""
    second = rich
    for text in (whole(rich), batch(rich, _renumbered(second, 2))):
        page = Page(text)
        assert page.open == page.unclosed == page.comments == []
        assert len(page.ids) == len(set(page.ids))
        targets = {attributes["href"][1:] for _, attributes in page.elements if "href" in attributes}
        assert targets <= set(page.ids)


def test_verdict_stands_first_and_every_section_follows(rich: AttemptView) -> None:
    """The order is verdict, checks, rubric, answer, evidence, timeline, exchanges, diagnostics, notes or not, workspace, stderr, provenance, sandbox."""
    page = Page(whole(rich))
    sections = [name.removeprefix("a1-") for name in page.ids if name.startswith("a1-") and name[3:4] != "x"]
    wanted = "title checks rubric answer evidence timeline exchanges refusals diagnostics workspace stderr provenance sandbox"
    assert [name for name in sections if name != "notes"] == wanted.split()
    before = page.text.split("Checks")[0]
    assert "Fail" in before
    assert "not met: role-preserved" in before


def test_page_holds_the_facts_that_a_reader_compares(rich: AttemptView, workshop: Workshop) -> None:
    """Attempt id, plan digest, tree digest, tool hashes, root file system, reasons, witnesses, refusals, workspace and stderr are there whole."""
    text = Page(whole(rich)).text
    attempt = next(iter(workshop.directory.glob("*.attempt")))
    opened = open_attempt(attempt)
    tree = opened.json("skill-tree.json")
    assert isinstance(tree, dict)
    for fact in (opened.id, opened.manifest.plan_sha256, tree["digest"], "sha256-cli", "sha256-node", "sha256-p"):
        assert fact in text
    for words in (
        "the role is gone",
        "a replayed event is the command tags of /cf",
        "request 1 holds the staged text of the skill",
        "only the inference paths are served",
        "3×",
        "note.md",
        "warning: x",
        "host, not pinned: Debian GNU/Linux 12 (bookworm)",
        "network: one listener",
        "Keeps the account unresolved.",
        "d-1",
    ):
        assert words in text, words


def test_equal_attempts_give_equal_pages(workshop: Workshop) -> None:
    """The bytes depend on the attempt alone: not on the clock, the directory or what was made before."""
    path = workshop.attempt()
    first = whole(workshop.view(path))
    elsewhere = workshop.directory / "elsewhere"
    elsewhere.mkdir()
    copy = elsewhere / path.name
    copy.write_bytes(path.read_bytes())
    assert whole(workshop.view(copy)) == first
    assert str(workshop.directory) not in first


def test_batch_is_complete_without_its_script(workshop: Workshop) -> None:
    """Every attempt has a row and an article in the markup, neither is hidden, and only the filters wait for the script."""
    views = []
    for number in range(1, 4):
        path = workshop.attempt(number=number)
        views.append(workshop.view(path, number, SHORT))
    page = Page(batch(*views))
    rows = [attributes for attributes in page.of("tr") if "data-article" in attributes]
    assert [row["data-article"] for row in rows] == ["a1", "a2", "a3"]
    assert [attributes["id"] for attributes in page.of("article")] == ["a1", "a2", "a3"]
    hidden = [attributes.get("id") for _, attributes in page.elements if "hidden" in attributes]
    assert hidden == ["filters"]


@pytest.mark.parametrize(("bounds", "there"), [(SHORT, True), (BRIEF, False)])
def test_brief_batch_says_what_it_leaves_out(workshop: Workshop, bounds: object, there: bool) -> None:
    """A batch of few attempts has their timelines; one of many says that they are left out and where they are to be had."""
    path = workshop.attempt()
    view = workshop.view(path, 1, SHORT if bounds is SHORT else BRIEF)
    text = batch(view, brief=bounds is BRIEF)
    assert ('id="a1-timeline"' in text) == there
    assert ("are left out" in text) == (not there)


def test_error_shows_what_to_do_and_keeps_the_answer_apart(workshop: Workshop) -> None:
    """An errored attempt says its code, its message and its hint, and its answer is called unscored."""
    text = Page(whole(workshop.view(workshop.attempt(skill_ran=False)))).text
    assert "Error" in text
    assert "skill-absent" in text
    assert "What to do:" in text
    assert "Unscored answer" in text
    assert "never graded" in text
    good = Page(whole(workshop.view(workshop.attempt()))).text
    assert "Measured, not graded" in good
    assert "Unscored answer" not in good


def test_changed_file_is_not_believed(workshop: Workshop) -> None:
    """A file that does not hold what it says is an error that names the part; the same file before the change is not."""
    path = workshop.attempt()
    assert workshop.view(path).row.word == "measured"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    view = workshop.view(path)
    assert (view.row.word, view.row.code, view.row.measured) == ("error", "integrity", False)
    assert "part " in view.message.text
    assert "integrity" in Page(whole(view)).text


def test_colours_are_readable_in_both_schemes() -> None:
    """Every text colour has a contrast of at least 4.5 to each ground that it stands on, light and dark (WCAG AA)."""
    light, dark = re.findall(r":root \{(.*?)\n\s*\}", (_TEMPLATES / "report.css").read_text(), re.DOTALL)[:2]
    for scheme in (light, dark):
        colour = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", scheme))
        pairs = [(ink, ground) for ink in ("ink", "soft", "link") for ground in ("page", "card", "well")]
        pairs += [(word, f"{word}-bg") for word in ("pass", "fail", "error", "measured")]
        pairs += [(word, ground) for word in ("pass", "fail", "error", "measured") for ground in ("card", "page")]
        pairs += [("soft", f"{word}-bg") for word in ("pass", "fail", "error", "measured")]
        for ink, ground in pairs:
            assert _contrast(colour[ink], colour[ground]) >= 4.5, (ink, ground, _contrast(colour[ink], colour[ground]))


def test_templates_cannot_switch_escaping_off() -> None:
    """No template marks a text as safe, and HTML is made of text in one place of one module."""
    for template in _TEMPLATES.glob("*.j2"):
        source = template.read_text()
        assert "safe" not in re.findall(r"\|\s*(\w+)", source), template.name
        assert "autoescape" not in source
    made = [path.name for path in _TEMPLATES.parent.glob("*.py") for _ in re.findall(r"Markup\(", path.read_text())]
    assert made == ["pages.py"]


def _renumbered(view: AttemptView, number: int) -> AttemptView:
    return replace(view, row=replace(view.row, number=number))


def _source(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def _contrast(one: str, other: str) -> float:
    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)
