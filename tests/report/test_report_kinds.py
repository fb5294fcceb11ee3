"""Every kind of attempt has its page: a negative control, one of version 1, one with simulated tools, a judge's, and a run as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from runner.bundle.reader import open_attempt
from runner.bundle.writer import AttemptContent, write_attempt
from runner.canonical import canonical_json, sha256_hex
from runner.grade.control import write_control
from runner.report.bounds import BRIEF, SHORT, WHOLE
from runner.report.markdown import batch_markdown
from runner.report.pages import attempt_page, batch_page
from runner.report.view import AttemptView
from sandbox.collect import Entry
from tests.report.made_attempts import Workshop
from tests.report.page_reader import Page

ROOT = Path(__file__).resolve().parents[2]


def read(workshop: Workshop, path: Path) -> str:
    return " ".join(Page("".join(attempt_page(workshop.view(path)))).text.split())


def with_part(path: Path, name: str, value: Any, **summary: Any) -> Path:
    """Write a copy of an attempt with one part more."""
    attempt = open_attempt(path)
    parts = {part: attempt.part(part) for part in attempt.part_names if not part.startswith("exchanges")}
    parts[name] = canonical_json(value)
    content = AttemptContent(
        attempt.manifest.fixture, {**attempt.manifest.summary, **summary}, dict(parts), attempt.exchanges()
    )
    return write_attempt(path.parent, content)


def test_a_pinned_run_says_that_it_is_never_scored(workshop: Workshop) -> None:
    """Its page, its line in a batch and in Markdown say ``pinned``, and none says that it can be graded; the same run without pins says that it can."""
    pinned, free = (ROOT / f"fixtures/attempts/{name}.attempt" for name in ("pinned-subagent", "subagent"))
    views = [workshop.view(pinned), workshop.view(free, 2)]
    page = " ".join(Page("".join(attempt_page(views[0]))).text.split())
    assert "never scored" in page
    assert "replay makes one" not in page
    assert "can be graded" not in page
    assert [view.row.tags for view in views] == [("pinned",), ()]
    assert "replay makes one" in Page("".join(attempt_page(views[1]))).text
    told = "".join(batch_markdown(views))
    assert told.count("(pinned)") == 1


def test_an_evaluation_beside_a_pinned_run_makes_no_score(workshop: Workshop) -> None:
    """Whoever laid it there: the pinned run is measured and in no count of passes; beside the same run without pins it counts."""
    views: list[AttemptView] = []
    for name in ("pinned-subagent", "subagent"):
        path = workshop.directory / f"{name}.attempt"
        path.write_bytes((ROOT / f"fixtures/attempts/{name}.attempt").read_bytes())
        workshop.evaluate(path)
        views.append(workshop.view(path, len(views) + 1))
    assert [(view.row.word, view.row.checks_met) for view in views] == [("measured", None), ("pass", 2)]
    assert "all 2 checks" not in read(workshop, workshop.directory / "pinned-subagent.attempt")


def test_negative_control_says_what_it_is(workshop: Workshop) -> None:
    """The page shows the changed output, the reason, what became what, and the parent; the parent's page shows none of it."""
    path = workshop.attempt()
    attempt = open_attempt(path)
    control = write_control(
        attempt,
        "auditor: unresolved",
        [("auditor", "operator")],
        "Remove the required role",
        workshop.directory / "c.attempt",
    )
    view = workshop.view(control)
    assert view.row.is_control
    assert view.answer is not None
    assert view.answer.text == "operator: unresolved"
    text = read(workshop, control)
    for words in ("A negative control.", "Remove the required role", "auditor became operator (1×)", attempt.id):
        assert words in text
    assert "negative control" not in read(workshop, path).lower()


def test_version_1_is_shown_as_far_as_it_goes(workshop: Workshop) -> None:
    """An attempt of version 1 has its output, its rubric and its hashes, says that its outcome was not recorded, and has no section that it cannot fill."""
    output = "auditor: unresolved"
    document = {
        "format": "hermeval-attempt",
        "format_version": 1,
        "fixture": {"id": "old-case", "rubric": [{"id": "kept", "criterion": "Keeps it <b>."}]},
        "output": output,
        "output_sha256": sha256_hex(output.encode()),
        "skill_sha256": {"cf/SKILL.md": "a" * 64},
        "generation": {"model": "m-1", "revision": "r1", "output_sha256": sha256_hex(output.encode())},
    }
    path = workshop.directory / "old.attempt"
    path.write_text(json.dumps(document))
    view = workshop.view(path)
    assert (view.row.word, view.row.measured, view.row.fixture) == ("measured", True, "old-case")
    text = read(workshop, path)
    for words in (output, "version 1: its outcome was not recorded", "Keeps it <b>.", "a" * 64, "m-1"):
        assert words in text
    assert (view.timeline, view.traffic, view.proof) == (None, None, None)
    path.write_text(json.dumps({**document, "output": "changed"}))
    assert workshop.view(path).row.word == "error"


def test_simulated_tools_are_told_row_by_row(workshop: Workshop) -> None:
    """Each call of a simulated tool has its mode, name, exit status, arguments and result, and a diagnostic links to the rows that it is about."""
    rows = [
        {
            "index": number,
            "door": "mcp",
            "mode": "call",
            "tool": "comment_add",
            "writes": True,
            "args": {"ticket": "T-1", "text": "<b>"},
            "result": {"ok": True},
            "exit_status": 5 * number,
            "applied": not number,
            "fault": "lost" if number else None,
        }
        for number in (0, 1)
    ]
    path = with_part(workshop.attempt(), "trace.json", {"schema_version": 1, "rows": rows})
    workshop.failing(path)
    text = "".join(attempt_page(workshop.view(path)))
    told = " ".join(Page(text).text.split())
    for words in ("comment_add", "changed the state", "fault lost", '"ticket": "T-1"', "what the worker did"):
        assert words in told
    assert 'href="#a1-t0"' in text
    assert 'id="a1-t0"' in text


def test_parts_of_another_form_are_shown_as_far_as_they_can_be_read(workshop: Workshop) -> None:
    """A tool trace and rows of another form give what can be read of them and no failure."""
    base = workshop.attempt()
    values: list[Any] = [[], {"rows": 7}, {"rows": [7, {"index": "x", "args": [1], "result": {"a": [None]}}]}]
    for value in values:
        path = with_part(base, "trace.json", value)
        assert "Simulated tools" in read(workshop, path)


def test_workspace_shows_links_odd_names_and_what_was_left_out(workshop: Workshop) -> None:
    """Names that are no UTF-8 are shown by their bytes, links with their targets, contents where they are text, and the rest is counted."""
    entries = (
        Entry(b"bad\xffname", "file", 0o644, 5, content=b"hello"),
        Entry(b"binary", "file", 0o600, 4, content=b"\0\1\2\3"),
        Entry(b"link", "symlink", 0o777, target=b"/etc/passwd"),
        Entry(b"pipe", "fifo", 0o600),
        *(Entry(b"more%d" % number, "directory", 0o755) for number in range(60)),
    )
    path = workshop.attempt(entries=entries)
    text = read(workshop, path)
    for words in (r"bad\xffname", "hello", "to /etc/passwd", "fifo", "64 entries", "more59"):
        assert words in text
    short = workshop.view(path, 1, SHORT)
    assert short.workspace is not None
    assert (len(short.workspace.entries), short.workspace.left_out) == (40, 24)
    assert "24 more entries are not shown here" in "".join(batch_page([short], brief=False))


def test_each_level_shows_less_of_the_same_attempt(workshop: Workshop) -> None:
    """A page of one, of a few and of many agree on the verdict and get shorter."""
    path = workshop.attempt(answer="word " * 2_000)
    workshop.failing(path)
    sizes = []
    for bounds in (WHOLE, SHORT, BRIEF):
        view = workshop.view(path, 1, bounds)
        assert view.row.word == "fail"
        sizes.append(len("".join(batch_page([view], brief=bounds is BRIEF))))
    assert sizes == sorted(sizes, reverse=True)


def test_run_judged_and_graded_is_reported(tmp_path: Path) -> None:
    """A shipped fixture, run with the real CLI, judged and graded, gives a page of one worker that passed, with the judge's run listed and not counted."""
    out, page = tmp_path / "attempts", tmp_path / "report.html"
    ran = hermeval("run", "missing-account", "--out", str(out), "--json")
    assert ran.returncode == 0, ran.stderr
    made = hermeval("report", str(out), "-o", str(page), "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["summary"] == {"passed": 1, "measured": 1, "started": 1}
    text = " ".join(Page(page.read_text()).text.split())
    for words in ("role-preserved", "3 of 3 met", "a judge's run", "1 judge run listed too and not counted"):
        assert words in text


def hermeval(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``hermeval ARGUMENTS`` as a process of its own."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "runner.cli", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
