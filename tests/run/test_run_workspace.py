"""A workspace that an agent would rather have nobody see: it is read all the same, and what is not kept is said everywhere (facts/sandbox.md §2, 63–66)."""

from __future__ import annotations

import json
import os
from pathlib import Path

from runner.bundle.reader import open_attempt
from runner.grade.grading import Grader
from runner.toolchain import default_cache_root
from sandbox.process import find_host
from tests.run.conftest import Place, replies, text, tool

HIDE = """
import os
os.chdir("/workspace")
open("plain", "w").write("control")
for name, mode in (("listed", 0o600), ("closed", 0), ("read", 0o400), ("search", 0o300)):
    os.makedirs(name + "/inner")
    open(name + "/evidence", "w").write(name)
    os.chmod(name + "/inner", mode); os.chmod(name + "/evidence", 0); os.chmod(name, mode)
open("file", "w").write("secret"); os.link("file", "twin"); os.chmod("file", 0)
open(b"n\\nl\\xff", "w").write("x"); os.mkfifo("fifo", 0); os.symlink("/etc/shadow", "link")
os.chmod("/workspace", 0)
"""
"""Everything that an owner can close, closed."""
CROWD = """
import os
os.makedirs("/workspace/!<zz>")
os.chdir("/workspace/!<zz>")
for i in range(10001): os.close(os.open("%d" % i, os.O_CREAT | os.O_WRONLY))
open("/workspace/evil.txt", "w").write("evidence")
"""
"""More names than are kept, before the one that matters."""
MUCH = """
for n in range({files}):
    open(f'/workspace/a{{n}}', 'w').write('x' * (1 << 20))
open('/workspace/evil.txt', 'w').write('evidence')
"""
"""Seven files of the greatest size that a profile is shown, or with the eighth more than it is shown of all."""
LOOKS = """
from profiles._types import Check

def validate(fixture):
    pass

def check_output(fixture, output, context):
    found = [entry for entry in context["workspace"] if entry["path"] == "evil.txt"]
    return [Check("clean", not found, "No evil.txt is left")]
"""
"""A profile that would pass where evidence is missing."""


def does(place: Place, name: str, program: str) -> str:
    """Write a case whose agent runs a program and then answers."""
    command = f"python3 -I -S - <<'PROGRAM'\n{program}\nPROGRAM"
    return place.case(
        name, replies(tool("Skill", "toolu_1", skill="workflow"), tool("Bash", "toolu_2", command=command), text())
    )


def assert_all_seen(path: Path) -> None:
    """Assert that an attempt holds all that ``HIDE`` hid, with the modes that it had."""
    attempt = open_attempt(path)
    listing = attempt.json("workspace.json")
    assert isinstance(listing, dict)
    assert listing["omitted"] == []
    entries = {entry.get("path", entry.get("path_hex")): entry for entry in listing["entries"]}
    for name, mode in (("listed", 0o600), ("closed", 0), ("read", 0o400), ("search", 0o300)):
        assert (entries[name]["mode"], entries[f"{name}/inner"]["mode"], entries[f"{name}/evidence"]["mode"]) == (
            mode,
            mode,
            0,
        )
        assert attempt.part(entries[f"{name}/evidence"]["part"]) == name.encode()
    assert attempt.part(entries["plain"]["part"]) == b"control"
    assert (entries["file"]["mode"], entries["twin"]["mode"]) == (0, 0)
    assert attempt.part(entries["twin"]["part"]) == b"secret"
    assert (entries["fifo"]["kind"], entries["link"]["kind"]) == ("fifo", "symlink")
    assert b"n\nl\xff".hex() in entries


def test_what_an_agent_closed_is_kept(place: Place) -> None:
    """Directories, files and the workspace itself without permissions are in the attempt, with their modes; nothing is noted, since nothing is missing."""
    row = place.run(does(place, "hide", HIDE)).row
    assert row["outcome"]["kind"] == "measured"
    assert not [note for note in row["notes"] if "workspace" in note]
    assert_all_seen(Path(row["path"]))


def test_what_is_not_kept_is_said_everywhere_and_not_graded(place: Place, tmp_path: Path) -> None:
    """A crowd pushes a name out of the evidence: row, show, story and page say so, and a profile that looks at the workspace is an error; without the crowd it is not."""
    answer = place.run(does(place, "crowd", CROWD))
    row = answer.row
    told = "the workspace is not kept whole: '!<zz>/9999': too many entries: this and all that follow"
    assert answer.code == 0, answer.stderr
    assert row["outcome"]["kind"] == "measured"
    assert row["notes"][0] == told
    assert place.hermeval("show", "--json", row["path"]).row["notes"] == row["notes"]
    assert told in place.hermeval("show", row["path"]).stdout
    page = tmp_path / "page.html"
    assert place.hermeval("report", "-o", str(page), row["path"]).code == 0
    html = page.read_text()
    assert html.count("too many entries: this and all that follow") == 1
    assert "not collected: " in html
    assert "<zz>" not in html
    control = place.run(does(place, "quiet", MUCH.format(files=7))).row
    much = place.run(does(place, "much", MUCH.format(files=8))).row
    assert not [note for note in much["notes"] if "workspace" in note], "all of it is kept"
    assert not [note for note in control["notes"] if "workspace" in note]
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    (profiles / "artifact.py").write_text(LOOKS)
    graded = {}
    with Grader(find_host(), cache_root=default_cache_root(os.geteuid(), os.environ), profiles=profiles) as grader:
        from runner.grade.subject import load_subject

        for name, path in (("crowd", row["path"]), ("quiet", control["path"]), ("much", much["path"])):
            graded[name] = grader.grade(load_subject(Path(path)))
    assert graded["quiet"].verdict == "fail", "the file is there, and was looked for"
    assert graded["crowd"].verdict == "error"
    assert graded["crowd"].error is not None
    assert graded["crowd"].error.code == "workspace-unmeasured"
    assert told in graded["crowd"].error.message
    assert graded["much"].error is not None
    assert graded["much"].error.code == "workspace-unmeasured"
    assert "its small files are 8388616 bytes together" in graded["much"].error.message
    verified = place.hermeval("verify", "--json", row["path"])
    assert verified.code == 0
    assert json.loads(verified.stdout)["results"][0]["claims"]["evidence"] == "held"
