"""Collection of trees whose permissions are meant to hide them: every caller sees the same, and the tree is left as it was."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.collect import Workspace, collect, export
from sandbox.walk import Caps

ROOT = Path(__file__).resolve().parents[2]
UID = 61234
MODES = (0, 0o100, 0o200, 0o300, 0o400, 0o500, 0o600, 0o700)
AS_ANOTHER = """
import json, os, sys
from sandbox import walk
from sandbox.collect import collect
handle = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY) if sys.argv[2] == "open" else os.open(sys.argv[1], os.O_PATH)
if os.geteuid() == 0:
    os.setgroups([]); os.setresgid(61234, 61234, 61234); os.setresuid(61234, 61234, 61234)
if sys.argv[3] == "foreign" and os.stat(sys.argv[1] + "/secret").st_uid == os.geteuid():
    def refuse(descriptor, mode):  # what the kernel says to who is not the owner
        raise PermissionError(1, "Operation not permitted")
    walk._set_mode = refuse
found = collect(handle)
print(json.dumps([[[os.fsdecode(e.path), e.kind, e.mode, (e.content or b"").decode()] for e in found.entries], list(found.problems)]))
"""


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    """A directory that a user of another uid can reach."""
    path = Path(f"/tmp/forced-{os.urandom(6).hex()}")
    path.mkdir(mode=0o755)
    yield path
    subprocess.run(["chmod", "-R", "u+rwX", str(path)], check=True)
    shutil.rmtree(path)


def closed(top: Path) -> None:
    """Make directories and files of every owner's mode, one inside another."""
    for mode in MODES:
        below = top / f"d{mode:o}"
        (below / "inner").mkdir(parents=True)
        (below / "file").write_text("in")
        (below / "file").chmod(mode & 0o600)
        os.link(below / "file", below / "twin")
        (below / "inner" / "deep").write_text("deep")
        (below / "inner").chmod(mode)
        below.chmod(mode)


def own(top: Path) -> None:
    """Give the tree to the ordinary user, where root tests."""
    if os.geteuid() == 0:
        for folder, names, files in os.walk(top):
            for name in (*names, *files, "."):
                os.chown(os.path.join(folder, name), UID, UID, follow_symlinks=False)


def modes(top: Path) -> dict[str, int]:
    """Return every mode below, as ``find`` run by the tests' user would say it of a tree that it can read."""
    return {str(path): stat.S_IMODE(path.lstat().st_mode) for path in (top, *top.rglob("*"))}


def as_another(top: Path, how: str = "open", whose: str = "own") -> tuple[list[list[object]], list[str]]:
    """Collect as an ordinary user."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", AS_ANOTHER, str(top), how, whose],
        env={"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    entries, problems = json.loads(done.stdout)
    return entries, problems


def rows(found: Workspace) -> list[list[object]]:
    """Return entries in the form of ``as_another``."""
    return [
        [os.fsdecode(entry.path), entry.kind, entry.mode, (entry.content or b"").decode()] for entry in found.entries
    ]


def collected(top: Path) -> Workspace:
    """Collect as the tests' user."""
    handle = os.open(top, os.O_PATH)
    try:
        return collect(handle)
    finally:
        os.close(handle)


def test_no_mode_hides_anything_from_anybody(tree: Path) -> None:
    """Directories and files of all eight owner modes are whole for root and for an ordinary owner, with their modes as they were, twins included."""
    closed(tree)
    own(tree)
    entries, problems = as_another(tree)
    assert problems == []
    assert len(entries) == len(MODES) * 5
    told = {str(path): (mode, content) for path, _, mode, content in entries}
    for mode in MODES:
        assert told[f"d{mode:o}"] == (mode, "")
        assert told[f"d{mode:o}/inner"] == (mode, "")
        assert told[f"d{mode:o}/inner/deep"][1] == "deep"
        assert told[f"d{mode:o}/file"] == told[f"d{mode:o}/twin"] == (mode & 0o600, "in")
    ours = collected(tree)
    assert (rows(ours), ours.complete) == (entries, True), "the tests' own user sees the same, after the other did"


def test_the_top_itself_may_be_closed(tree: Path) -> None:
    """A handle on a tree whose top has mode 000, 400 or 600 reads as one whose top is open."""
    (tree / "file").write_text("in")
    own(tree)
    control = as_another(tree)
    assert control == ([["file", "file", 0o644 & ~_umask(), "in"]], [])
    for mode in (0, 0o400, 0o600, 0o200):
        tree.chmod(mode)
        assert as_another(tree, "path") == control
        assert stat.S_IMODE(tree.stat().st_mode) == mode


def test_the_tree_keeps_its_modes_however_the_walk_ends(tree: Path) -> None:
    """After a whole walk, one that a cap ended deep below, and an export, every mode is what it was; nothing stays open."""
    closed(tree)
    before = modes(tree) if os.geteuid() == 0 else None
    descriptors = len(os.listdir("/proc/self/fd"))
    handle = os.open(tree, os.O_PATH)
    for caps in (Caps(), Caps(entries=3), Caps(entries=4), Caps(depth=1), Caps(name_bytes=10)):
        collect(handle, caps)
    copy = tree.parent / (tree.name + "-copy")
    assert export(handle, copy) == ()
    shutil.rmtree(copy)
    os.close(handle)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert {row[0]: row[2] for row in rows(collected(tree))} == {
        f"d{mode:o}{name}": (
            mode & 0o600 if name in ("/file", "/twin") else 0o644 & ~_umask() if "deep" in name else mode
        )
        for mode in MODES
        for name in ("", "/file", "/inner", "/inner/deep", "/twin")
    }
    assert before is None or modes(tree) == before


def test_what_cannot_be_opened_is_left_out_alone(tree: Path) -> None:
    """A closed directory and a closed file of another owner are named as unreadable; what stands beside and behind them is there."""
    (tree / "secret").mkdir()
    (tree / "secret" / "x").write_text("hidden")
    (tree / "listed").mkdir()
    (tree / "listed" / "x").write_text("hidden")
    (tree / "zz").write_text("last")
    (tree / "own").write_text("mine")
    (tree / "own").chmod(0)
    (tree / "secret").chmod(0)
    (tree / "listed").chmod(0o444)
    (tree / "zz").chmod(0o644)
    entries, problems = as_another(tree, whose="foreign")
    assert [row[0] for row in entries] == ["listed", "own", "secret", "zz"]
    assert entries[3][3] == "last"
    assert [line.split(" (")[0] for line in problems] == ["unreadable: listed", "unreadable: own", "unreadable: secret"]


def test_force_follows_no_link(tree: Path) -> None:
    """Links, fifos and names of any bytes beside closed directories: nothing outside changes its mode, nothing blocks."""
    outside = tree / "outside"
    outside.mkdir()
    (outside / "file").write_text("o")
    (outside / "file").chmod(0)
    outside.chmod(0o300)
    top = tree / "top"
    top.mkdir()
    (top / "dir").symlink_to(outside)
    (top / "file").symlink_to(outside / "file")
    os.mkfifo(top / "fifo", 0)
    os.mkdir(os.fsencode(top) + b"/\xff\n", 0o200)
    own(top)
    entries, problems = as_another(top)
    assert [(row[0], row[1]) for row in entries] == [
        ("dir", "symlink"),
        ("fifo", "fifo"),
        ("file", "symlink"),
        ("\udcff\n", "directory"),
    ]
    assert problems == []
    assert stat.S_IMODE(outside.stat().st_mode) == 0o300
    outside.chmod(0o700)
    assert stat.S_IMODE((outside / "file").stat().st_mode) == 0


def _umask() -> int:
    found = os.umask(0o77)
    os.umask(found)
    return found
