"""A directory of the host as the workspace of one run, for debugging only (A13)."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.bundle.reader import open_attempt
from runner.errors import SettingInvalid
from runner.shared_workspace import open_shared
from sandbox.identity import NOBODY, Account, Identity, read_identity
from tests.run.conftest import ROOT, Place, replies, text, tool

LITTER = """cd /workspace && mkdir -p deep/er && echo kept > deep/er/note.txt && mkfifo pipe && ln -s /etc/shadow out && ln -s nowhere dangling \\
 && truncate -s 900M huge && ln deep/er/note.txt twin && python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")' && chmod 0 twin; \\
 chmod 4755 deep/er/note.txt; ls -l /proc/self/fd | wc -l; grep -c ' /workspace ' /proc/self/mountinfo"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A new directory that every user can reach: pytest's own are private."""
    made = Path(tempfile.mkdtemp(prefix="shared-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def test_what_a_run_leaves_stays_and_the_attempt_says_debug(place: Place, shared: Path) -> None:
    """Files, links, a fifo, a socket and a huge sparse file stay on the host; the attempt has them as what they are, holds, is marked, and cannot be reproduced."""
    place.case(
        "litter", replies(tool("Skill", "toolu_1", skill="workflow"), tool("Bash", "toolu_2", command=LITTER), text())
    )
    done = place.run("litter", "--shared-workspace", str(shared))
    assert done.code == 0, done.stderr
    row = done.row
    assert (row["outcome"]["kind"], row["debug"]) == ("measured", "shared-workspace")
    assert "DEBUG" in done.stderr
    assert str(shared) not in done.stdout, "the directory is no part of the attempt"

    found = {path.name: path for path in shared.rglob("*")}
    assert found["note.txt"].lstat().st_nlink == 2
    assert not found["note.txt"].lstat().st_mode & (stat.S_ISUID | stat.S_ISGID)
    assert stat.S_ISFIFO(found["pipe"].lstat().st_mode)
    assert stat.S_ISSOCK(found["socket"].lstat().st_mode)
    assert shared.stat().st_uid == os.geteuid(), "it is the caller's again"

    attempt = open_attempt(Path(row["path"]))
    tree: Any = attempt.json("workspace.json")
    plan: Any = attempt.json("plan.json")
    sandbox: Any = attempt.json("sandbox.json")
    seen: Any = attempt.json("observations.json")
    entries = {entry["path"]: entry for entry in tree["entries"]}
    kinds = {name: entry["kind"] for name, entry in entries.items()}
    assert kinds == {
        "deep": "directory", "deep/er": "directory", "deep/er/note.txt": "file", "twin": "file", "huge": "file",
        "pipe": "fifo", "socket": "socket", "out": "symlink", "dangling": "symlink",
    }  # fmt: skip
    assert attempt.part(entries["deep/er/note.txt"]["part"]) == b"kept\n"
    assert attempt.part(entries["twin"]["part"]) == b"kept\n"
    assert entries["out"]["target"] == "/etc/shadow"
    assert entries["huge"]["bytes"] == 900 << 20
    assert "part" not in entries["huge"]
    assert [(item["path"], item["why"]) for item in tree["omitted"]] == [("huge", "file-bytes")]
    assert plan["shared_workspace"] is True
    assert "a directory of the host, writable, shared for debugging" in sandbox["description"]
    assert seen["limits"]["disk"] == "none"
    result = "\n".join(
        json.dumps(json.loads(line)) for line in attempt.part("transcript.jsonl").splitlines() if b"tool_result" in line
    )
    assert "5\\n1" in result, "three standard descriptors and that of ls itself; one mount"

    assert place.hermeval("verify", row["path"]).code == 0
    page = shared / "page.html"
    assert place.hermeval("report", row["path"], "-o", str(page)).code == 0
    assert "shared for debugging; not for results" in page.read_text()
    again = place.hermeval("reproduce", row["path"], "--json")
    assert again.code == 2
    assert "shared-workspace" in again.stdout

    second = place.run("litter", "--shared-workspace", str(shared))
    assert (second.code, second.object["error"]["code"]) == (2, "setting-invalid")


def test_a_plan_without_it_does_not_tell_of_it(place: Place, shared: Path) -> None:
    """The plan of an ordinary run has no word of it, so that its digest is what it was; with it the plan is another, and the directory's path is in neither (B16)."""
    place.case("plain", replies(text()))
    (plain,) = place.run("plain", "--prepare-only").object["plans"]
    (with_it,) = place.run("plain", "--prepare-only", "--shared-workspace", str(shared)).object["plans"]
    assert "shared_workspace" not in plain["plan"]
    assert with_it["plan"]["shared_workspace"] is True
    assert plain["plan_sha256"] != with_it["plan_sha256"]
    assert str(shared) not in json.dumps(with_it)
    assert not list(shared.iterdir())


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("plain", "--repeat", "2"), "one run of one fixture"),
        (("plain", "other"), "one run of one fixture"),
        ((), "one run of one fixture"),
        (("plain", "--keep", "{shared}/kept"), "--keep lies in the shared workspace"),
        (("plain", "--out", "{shared}/out"), "it is not empty"),
    ],
)
def test_it_is_for_one_run_and_for_nothing_else(place: Place, shared: Path, words: tuple[str, ...], what: str) -> None:
    """Repeats, several fixtures, and a place for copies or attempts in it are refused before anything runs."""
    place.case("plain", replies(text()))
    place.case("other", replies(text()))
    given = [word.format(shared=shared) for word in words]
    done = place.run(*given, "--shared-workspace", str(shared))
    assert (done.code, done.object["error"]["code"]) == (2, "setting-invalid")
    assert what in done.object["error"]["message"]
    assert done.object["error"]["hint"]


def refused(path: Path, identity: Identity | None = None, home: str = "/nonexistent") -> str:
    """Return why a directory is refused."""
    with pytest.raises(SettingInvalid) as caught:
        open_shared(path, identity=identity or read_identity(), environ={"HOME": home}).close()
    assert caught.value.hint
    return str(caught.value)


def taken(path: Path) -> bool:
    """Whether a directory is taken, the control of every refusal."""
    open_shared(path, identity=read_identity(), environ={"HOME": "/nonexistent"}).close()
    return True


def test_only_a_directory_to_throw_away_is_taken(shared: Path) -> None:
    """What holds something, is or lies in a repository, is a home, is reached by a link, is not the caller's alone, or is in use, is refused; the same directory without that is taken."""
    inner = shared / "inner"
    inner.mkdir(mode=0o755)
    assert taken(inner)

    (inner / ".hidden").touch()
    assert "not empty" in refused(inner)
    (inner / ".hidden").unlink()
    assert taken(inner)

    assert "home directory" in refused(inner, home=str(inner))
    (shared / ".git").mkdir()
    assert "repository" in refused(inner)
    (shared / ".git").rmdir()
    (shared / ".git").write_text("gitdir: elsewhere\n")
    assert "repository" in refused(inner)
    (shared / ".git").unlink()
    for name in ("HEAD", "objects", "refs"):
        (shared / name).mkdir()
    assert "repository" in refused(inner)
    for name in ("HEAD", "objects", "refs"):
        (shared / name).rmdir()
    assert taken(inner)

    (shared / "link").symlink_to(inner)
    assert "following a link" in refused(shared / "link")
    (shared / "above").symlink_to(shared)
    assert "following a link" in refused(shared / "above" / "inner")
    (shared / "file").touch()
    assert "cannot be opened" in refused(shared / "file")
    assert "cannot be opened" in refused(shared / "missing")
    assert "cannot be opened" in refused(Path(str(inner) + "\0"))

    inner.chmod(0o777)
    assert "others may write" in refused(inner)
    inner.chmod(0o555)
    assert "may not read, write and enter" in refused(inner)
    inner.chmod(0o755)
    identity = read_identity()
    assert "belongs to uid" in refused(inner, identity._replace(uid=identity.uid + 1))
    held = open_shared(inner, identity=identity, environ={})
    assert "another run" in refused(inner)
    held.close()
    assert taken(inner)


def test_system_places_homes_and_this_checkout_are_refused() -> None:
    """The root, every home of the user database, and this program's own folder are refused, whoever asks."""
    assert refused(Path("/"))
    assert refused(Path(pwd.getpwuid(0).pw_dir))
    assert "own folder" in refused(ROOT)
    assert "own folder" in refused(ROOT / "tests")


def test_root_is_told_where_the_run_uid_cannot_go(shared: Path) -> None:
    """A directory below one that the run uid may not enter is refused before anything starts; opened for passing through it is taken."""
    identity = read_identity()._replace(run_as=Account(NOBODY, NOBODY))
    inner = shared / "inner"
    inner.mkdir(mode=0o755)
    shared.chmod(0o700)
    assert "cannot enter" in refused(inner, identity)
    shared.chmod(0o711)
    open_shared(inner, identity=identity, environ={}).close()
