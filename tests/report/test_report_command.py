"""``hermeval report``: what it takes, what it refuses, what it writes, and how it ends."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from runner.cli import run_command
from runner.cli.report import command, write_to
from runner.errors import RunnerError
from runner.grade.answers import CheckResult
from tests.report.made_attempts import Workshop
from tests.report.page_reader import Page


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def answer(self) -> dict[str, Any]:
        """The one object on stdout."""
        value: dict[str, Any] = json.loads(self.stdout)
        return value


def report(*arguments: str | Path) -> Done:
    """Run the command as the program does, errors and all."""
    words = ["report", *map(str, arguments)]
    with CliRunner().isolation() as streams:
        code = run_command(words)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        return Done(code, streams[0].getvalue().decode(), streams[1].getvalue().decode())


def test_evaluations_of_another_directory_are_found_where_it_is_named(workshop: Workshop, tmp_path: Path) -> None:
    """What ``replay --out DIR`` wrote is shown with ``--evaluations DIR``, as later than what lies beside; an unknown directory is a usage error."""
    path, elsewhere, page = workshop.attempt(), tmp_path / "evaluations", tmp_path / "page.html"
    elsewhere.mkdir()
    workshop.evaluate(path, elsewhere, verdict="fail", checks=(CheckResult("role-preserved", False, "it is gone"),))

    def verdict(*options: str | Path) -> str | None:
        return str(report(path, "-o", page, "--json", *options).answer["attempts"][0]["verdict"])

    assert [verdict(), verdict("--evaluations", elsewhere)] == ["None", "fail"]
    workshop.evaluate(path)
    assert [verdict(), verdict("--evaluations", elsewhere)] == ["pass", "fail"]
    assert verdict("--evaluations", path.parent) == "pass"
    assert report(path, "-o", page, "--evaluations", tmp_path / "none").code == 2


def test_one_attempt_is_written_whole(workshop: Workshop) -> None:
    """One attempt gives its own page in the named file, and stderr says where; nothing else is left beside it."""
    path, target = workshop.attempt(), workshop.directory / "x.html"
    done = report(path, "-o", target)
    assert done.code == 0
    assert done.stdout == ""
    assert "report: 1 attempt, " in done.stderr
    page = Page(target.read_text())
    assert len(page.of("article")) == 1
    assert page.of("script") == []
    assert [item.name for item in workshop.directory.iterdir() if item.name.endswith(".tmp")] == []


def test_directory_gives_a_batch_that_counts_every_attempt(workshop: Workshop) -> None:
    """Passed, measured and started count what lies directly in the directory: errors and unreadable files are started, never measured, never left out."""
    workshop.evaluate(workshop.attempt(number=1))
    workshop.failing(workshop.attempt(number=2))
    workshop.attempt(number=3)
    workshop.attempt(number=4, skill_ran=False)
    broken = workshop.attempt(number=5)
    broken.write_bytes(broken.read_bytes()[:-1])
    (workshop.directory / "inner").mkdir()
    (workshop.directory / ".hidden.attempt").write_bytes(b"x")
    target = workshop.directory / "x.html"
    done = report(workshop.directory, "-o", target, "--json")
    answer = done.answer
    assert done.code == answer["exit_code"] == 2
    assert answer["summary"] == {"passed": 1, "measured": 3, "started": 5}
    assert sorted(str(row["verdict"]) for row in answer["attempts"]) == ["None", "error", "error", "fail", "pass"]
    assert "integrity" in done.stderr
    page = Page(target.read_text())
    assert len(page.of("article")) == 5
    told = " ".join(page.text.split())
    assert "1 passed / 3 measured / 5 started" in told


def test_json_is_one_object_by_the_contract(workshop: Workshop) -> None:
    """The object names the command, the exit code, the summary, the file with its size, and each attempt's row."""
    path, target = workshop.attempt(), workshop.directory / "x.html"
    workshop.evaluate(path)
    answer = report(path, "-o", target, "--json").answer
    assert list(answer)[:3] == ["schema_version", "command", "exit_code"]
    assert (answer["command"], answer["exit_code"], answer["verdict"]) == ("report", 0, "pass")
    assert answer["report"] == {"path": str(target), "format": "html", "bytes": target.stat().st_size}
    (row,) = answer["attempts"]
    assert (row["path"], row["fixture"], row["skill_state"]) == (str(path), "made-case", "ran")
    assert row["outcome"]["kind"] == "measured"


def test_verdicts_are_data_and_not_the_exit_code(workshop: Workshop) -> None:
    """A page of a failed attempt is a page that could be made: 0, with the verdict in the object."""
    path, target = workshop.attempt(), workshop.directory / "x.html"
    workshop.failing(path)
    done = report(path, "-o", target, "--json")
    assert (done.code, done.answer["verdict"]) == (0, "fail")


def test_attempt_that_is_named_twice_counts_once(workshop: Workshop) -> None:
    """A file, a copy of it and its directory are one attempt, and the page says how many files were passed over."""
    path = workshop.attempt(number=1)
    workshop.attempt(number=2)
    copy = workshop.directory / "copy.attempt"
    copy.write_bytes(path.read_bytes())
    target = workshop.directory / "x.html"
    done = report(path, workshop.directory, "-o", target, "--json")
    assert done.answer["summary"]["started"] == 2
    assert "2 files hold an attempt that was given already" in target.read_text()


def test_damaged_copy_of_an_attempt_is_not_passed_over(workshop: Workshop) -> None:
    """A cut copy claims the id of the whole one in its first frame, and is an error of its own all the same; a whole copy is passed over."""
    path = workshop.attempt()
    for name, data in (("cut.attempt", path.read_bytes()[:-100]), ("copy.attempt", path.read_bytes())):
        (workshop.directory / name).write_bytes(data)
    done = report(workshop.directory, "-o", workshop.directory / "x.html", "--json")
    assert (done.code, done.answer["summary"]) == (2, {"passed": 0, "measured": 1, "started": 2})


def test_pipe_is_an_error_and_is_not_waited_for(workshop: Workshop) -> None:
    """A pipe under an attempt's name is told as no attempt, at once."""
    workshop.attempt()
    os.mkfifo(workshop.directory / "pipe.attempt")
    done = report(workshop.directory, "-o", workshop.directory / "x.html", "--json")
    assert (done.code, done.answer["summary"]["started"]) == (2, 2)


def test_markdown_goes_to_stdout_or_to_the_file(workshop: Workshop) -> None:
    """Without -o the summary is on stdout and nothing else is; with it the file holds the same."""
    path, target = workshop.attempt(), workshop.directory / "x.md"
    workshop.failing(path)
    shown, written = report(path, "--markdown"), report(path, "--markdown", "-o", target)
    assert (shown.code, written.code) == (0, 0)
    assert shown.stdout == target.read_text()
    assert shown.stdout.startswith("### hermeval: 0 passed / 1 measured / 1 started\n")
    assert "- not met: `role-preserved`: `the role is gone`" in shown.stdout
    assert written.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["A"], "-o FILE.html"),
        (["A", "--json"], "-o FILE.html"),
        (["A", "--json", "--markdown"], "--json takes stdout"),
        (["A", "-o", "-", "--json"], "--json takes stdout"),
        (["A", "-o", "A"], "never overwritten"),
        (["A", "-o", "new.attempt"], "never overwritten"),
        (["missing.attempt", "-o", "x.html"], "cannot be read"),
        (["empty", "-o", "x.html"], "there is no attempt"),
        (["A", "-o", "missing/x.html"], "could not be written"),
        (["A", "-o", "empty"], "could not be written"),
        (["-o", "x.html"], "Missing argument"),
    ],
)
def test_what_cannot_be_done_is_refused_with_2(workshop: Workshop, arguments: list[str], said: str) -> None:
    """Bad usage, a missing file, an empty directory and a place that cannot be written end in 2, say why, and leave the attempt and no page."""
    path = workshop.attempt()
    before = path.read_bytes()
    (workshop.directory / "empty").mkdir()
    names = {"A": path}
    words = [word if word.startswith("-") else str(names.get(word, workshop.directory / word)) for word in arguments]
    done = report(*words)
    assert done.code == 2
    assert said in done.stderr
    assert path.read_bytes() == before
    assert not (workshop.directory / "x.html").exists()
    assert report(path, "-o", workshop.directory / "x.html").code == 0


def test_page_replaces_an_earlier_one_and_only_when_it_is_whole(workshop: Workshop) -> None:
    """A page that breaks off leaves the earlier one as it was and no temporary file; the next whole one takes its place."""
    target = workshop.directory / "x.html"
    target.write_text("earlier")

    def breaks() -> Any:
        yield "half"
        raise RunnerError("it broke")

    with pytest.raises(RunnerError, match="it broke"):
        write_to(target, breaks())
    assert target.read_text() == "earlier"
    assert [item.name for item in workshop.directory.iterdir()] == ["x.html"]
    assert write_to(target, ["whole ", "\u00e9"]) == len("whole é".encode())
    assert target.read_text() == "whole é"


def test_page_can_be_read_by_whoever_serves_it(workshop: Workshop) -> None:
    """The file has the permissions that the umask gives, as any new file, and a link to it stays a link."""
    target, link = workshop.directory / "x.html", workshop.directory / "link.html"
    link.symlink_to(target.name)
    before = os.umask(0o022)
    try:
        write_to(link, ["x"])
    finally:
        os.umask(before)
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o644


def test_help_names_the_options() -> None:
    """The help says what is written where."""
    text = CliRunner().invoke(command, ["--help"]).output
    for word in ("-o, --output FILE", "--markdown", "--json", "ATTEMPT|DIR..."):
        assert word in text
