"""Views to HTML: one page of one attempt, or of a batch.

Boundary: reads this folder's templates, style and script; a batch's articles go through a temporary file. Not here: what is shown (view.py), where the page is written.
Rules: this is the one place where text becomes HTML. Autoescape is on, an unknown name is an error, and everything that a template prints is made visible first (runner/text.py), so
that no template can forget it. ``Markup`` is made of this folder's own files and of rendered templates, never of anything else. No attribute holds a style or an event handler; style
and script are named in the page's policy by their hash, and everything else is refused by it.
"""

from __future__ import annotations

import base64
import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup

from runner.report.bounds import SHORT_UP_TO, seconds_text, size_text, usd_text
from runner.report.plots import histogram, strip
from runner.report.view import LABELS, WORDS, AttemptView, Row, Word, summarize
from runner.text import visible

_FOLDER = Path(__file__).with_name("templates")
_SPOOL_MEMORY = 4 << 20
_PIECE = 1 << 18


@dataclass(frozen=True, slots=True)
class Cell:
    """One attempt in a fixture's strip."""

    word: Word
    anchor: str
    number: int


@dataclass(frozen=True, slots=True)
class FixtureLine:
    """One fixture of a batch."""

    name: str
    passed: int
    measured: int
    started: int
    cells: tuple[Cell, ...]


def shown_text(value: object) -> str:
    r"""Return what may stand in a page, unescaped: line feeds and tabs are kept, every other character that would act is written as an escape."""
    text = value if isinstance(value, str) else str(value)
    if text.isprintable():
        return text
    return "\t".join(visible(piece, newlines=True) for piece in text.split("\t"))


def policy(style: str, script: str | None) -> str:
    """Return the Content-Security-Policy of a page: nothing from anywhere, this style, and this script or none."""
    parts = ["default-src 'none'", f"style-src '{_hash(style)}'"]
    if script is not None:
        parts.append(f"script-src '{_hash(script)}'")
    return "; ".join([*parts, "base-uri 'none'", "form-action 'none'"])


def attempt_page(view: AttemptView) -> Iterator[str]:
    """Yield the page of one attempt."""
    style = _own("report.css")
    yield from (
        _environment()
        .get_template("one.html.j2")
        .generate(a=view, batch=False, style=_ours(style), policy=policy(style, None))
    )


def batch_page(views: Iterable[AttemptView], *, brief: bool, repeated: int = 0) -> Iterator[str]:
    """Yield the page of a batch. Views are taken one at a time and none is kept: their articles wait in a temporary file.

    ``brief`` says that the views were made briefly; ``repeated`` is the number of files that held an attempt which was given already.
    """
    article = _environment().get_template("attempt.html.j2")
    rows: list[Row] = []
    with tempfile.SpooledTemporaryFile(_SPOOL_MEMORY, mode="w+", encoding="utf-8", newline="") as spool:
        for view in views:
            rows.append(view.row)
            spool.writelines(article.generate(a=view, batch=True))
        spool.seek(0)
        style, script = _own("report.css"), _own("filter.js")
        summary = summarize(rows)
        workers = [row for row in rows if row.kind == "worker"]
        plots = (
            histogram("Duration", workers, lambda row: row.duration_s, seconds_text),
            histogram("Cost", workers, lambda row: row.cost_usd, usd_text),
        )
        yield from (
            _environment()
            .get_template("batch.html.j2")
            .generate(
                batch=True,
                rows=rows,
                summary=summary,
                strip=strip(summary),
                plots=[plot for plot in plots if plot is not None],
                fixtures=_fixtures(workers),
                present=[word for word in WORDS if any(row.word == word for row in rows)],
                names=sorted({row.fixture for row in rows if row.fixture}),
                judges=len(rows) - len(workers),
                repeated=repeated,
                brief=brief,
                short_up_to=SHORT_UP_TO,
                articles=(_ours(piece) for piece in iter(lambda: spool.read(_PIECE), "")),
                style=_ours(style),
                script=_ours(script),
                policy=policy(style, script),
            )
        )


def _fixtures(rows: Sequence[Row]) -> tuple[FixtureLine, ...]:
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(row.fixture or "(not readable)", []).append(row)
    return tuple(
        FixtureLine(
            name,
            sum(row.word == "pass" for row in own),
            sum(row.measured for row in own),
            len(own),
            tuple(Cell(row.word, row.anchor, row.number) for row in own),
        )
        for name, own in sorted(by_name.items())
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


@cache
def _own(name: str) -> str:
    return _FOLDER.joinpath(name).read_text(encoding="utf-8")


def _ours(text: str) -> Markup:
    """Return text of this folder's own files, or of a rendered template, as HTML."""
    return Markup(text)  # noqa: S704  the one place


def _finalize(value: object) -> object:
    return value if isinstance(value, Markup) else shown_text(value)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER, encoding="utf-8"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals.update(labels=LABELS, size=size_text, took=seconds_text)
    return environment
