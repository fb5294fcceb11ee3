"""Collection and export of hostile trees."""

# ruff: noqa: PTH123 - names are bytes here

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.collect import Workspace, collect, export
from sandbox.errors import CollectFailed
from sandbox.walk import Caps

if TYPE_CHECKING:
    from tests.sandbox.conftest import Run


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A directory and a handle on it."""
    path = tmp_path / "tree"
    path.mkdir()
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    yield path, handle
    os.close(handle)


def kinds(workspace: Workspace) -> dict[bytes, str]:
    """Return path and kind of every entry."""
    return {entry.path: entry.kind for entry in workspace.entries}


def test_files_and_directories_come_with_their_bytes(tree: tuple[Path, int]) -> None:
    """Contents, permission bits and sizes are as they are; order is bytewise."""
    path, handle = tree
    (path / "b").mkdir()
    (path / "b" / "x").write_bytes(b"\0\xff")
    (path / "b" / "x").chmod(0o751)
    (path / "a").write_text("text")
    (path / "b.").write_text("")
    found = collect(handle)
    assert found.complete
    assert [entry.path for entry in found.entries] == [b"a", b"b", b"b.", b"b/x"]
    assert found.entries[3].content == b"\0\xff"
    assert found.entries[3].facts() == {"mode": 0o751, "bytes": 2}
    assert found.entries[1].content is None


def test_links_are_recorded_and_never_followed(tree: tuple[Path, int]) -> None:
    """Links to files, directories, nowhere and themselves are entries with a target, whatever bytes it has."""
    path, handle = tree
    for name, target in (
        (b"passwd", b"/etc/passwd"),
        (b"root", b"/"),
        (b"self", b"self"),
        (b"up", b"../.."),
        (b"bad", b"\xff\x1b[2J"),
        (b"long", b"x" * 4095),
    ):
        os.symlink(target, os.fsencode(path) + b"/" + name)
    found = collect(handle)
    assert set(kinds(found).values()) == {"symlink"}
    assert {entry.path: entry.target for entry in found.entries}[b"passwd"] == b"/etc/passwd"
    assert all(entry.content is None for entry in found.entries)
    by_path = {entry.path: entry.facts() for entry in found.entries}
    assert by_path[b"root"]["target"] == "/"
    assert by_path[b"bad"]["target_hex"] == b"\xff\x1b[2J".hex()


def test_fifos_and_sockets_are_typed_and_never_opened(tree: tuple[Path, int]) -> None:
    """A fifo without a writer would block whoever opens it; it is an entry, and so is a socket."""
    path, handle = tree
    os.mkfifo(path / "fifo")
    with socket.socket(socket.AF_UNIX) as bound:
        os.chdir(path)
        try:
            bound.bind("socket")
        finally:
            os.chdir("/")
        result: list[Workspace] = []
        thread = threading.Thread(target=lambda: result.append(collect(handle)), daemon=True)
        thread.start()
        thread.join(10)
    assert result, "collection blocked"
    assert kinds(result[0]) == {b"fifo": "fifo", b"socket": "socket"}
    assert result[0].complete


def test_names_are_bytes_and_problems_are_plain(tree: tuple[Path, int]) -> None:
    """Any name comes through as it is; a line about it is printable ASCII."""
    path, handle = tree
    names = [b"\n", b"\x1b[2J", b"\xff\xfe", b"-rf", b"x" * 255, b"Case", b"case", "é".encode(), b"::add-mask::"]
    for name in names:
        with open(os.fsencode(path) + b"/" + name, "wb") as file:
            file.write(name)
    assert {entry.path: entry.content for entry in collect(handle).entries} == {name: name for name in names}
    lines = collect(handle, Caps(file_bytes=0)).problems
    assert len(lines) == len(names)
    assert all(line.isascii() and line.isprintable() for line in lines)


def test_a_deep_tree_is_walked_without_recursion(tree: tuple[Path, int]) -> None:
    """1,500 levels need no recursion and no more descriptors than a shallow tree; a depth cap is told."""
    path, handle = tree
    here = os.dup(handle)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    with open(os.open("leaf", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=here), "wb") as file:
        file.write(b"deep")
    os.close(here)
    before = len(os.listdir("/proc/self/fd"))
    found = collect(handle)
    assert len(os.listdir("/proc/self/fd")) == before
    assert found.complete
    assert len(found.entries) == 1501
    assert found.entries[-1].content == b"deep"
    capped = collect(handle, Caps(depth=100))
    assert [omission.why for omission in capped.omitted] == ["depth"]
    dest = path.parent / "copy"
    assert export(handle, dest) == ()
    again = os.open(dest, os.O_RDONLY | os.O_DIRECTORY)
    assert [entry.path for entry in collect(again).entries] == [entry.path for entry in found.entries]
    os.close(again)
    for top in (path, dest):  # pytest's own removal would recurse
        subprocess.run(["rm", "-rf", str(top)], check=True)


def test_no_cap_is_silent(tree: tuple[Path, int]) -> None:
    """Each cap that is reached is in ``omitted`` with its kind; what is kept is whole."""
    path, handle = tree
    for name, size in (("a", 10), ("b", 100), ("c", 30)):
        (path / name).write_bytes(b"x" * size)
    assert [(o.path, o.why) for o in collect(handle, Caps(file_bytes=50)).omitted] == [(b"b", "file-bytes")]
    total = collect(handle, Caps(total_bytes=50))
    assert [(o.path, o.why) for o in total.omitted] == [(b"b", "total-bytes")]
    assert [entry.content and len(entry.content) for entry in total.entries] == [10, None, 30]
    entries = collect(handle, Caps(entries=2))
    assert [(o.path, o.why) for o in entries.omitted] == [(b"c", "entries")]
    assert len(entries.entries) == 2
    assert [o.why for o in collect(handle, Caps(name_bytes=2)).omitted] == ["names"]
    assert collect(handle).complete


def test_a_sparse_file_is_told_and_not_read_into_memory(tree: tuple[Path, int]) -> None:
    """A terabyte of nothing is a size, a flag and an omission; a small sparse file is read and flagged."""
    path, handle = tree
    with (path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    with (path / "small").open("wb") as file:
        file.truncate(1 << 20)
    huge, small = collect(handle).entries
    assert (huge.size, huge.sparse, huge.content) == (1 << 40, True, None)
    assert (small.sparse, small.content) == (True, bytes(1 << 20))
    assert [o.why for o in collect(handle).omitted] == ["file-bytes"]


def test_permissions_do_not_hide_and_set_id_bits_do_not_pass(tree: tuple[Path, int]) -> None:
    """What has mode 000 is read all the same; a set-id bit is told and in neither mode nor copy; hard links are counted."""
    path, handle = tree
    (path / "closed").mkdir()
    (path / "closed" / "inner").write_text("in")
    (path / "closed").chmod(0)
    (path / "locked").write_text("locked")
    (path / "locked").chmod(0)
    (path / "suid").write_text("s")
    (path / "suid").chmod(0o6755)
    os.link(path / "suid", path / "twin")
    found = {entry.path: entry for entry in collect(handle).entries}
    assert found[b"closed/inner"].content == b"in"
    assert (found[b"closed"].mode, found[b"locked"].mode, found[b"locked"].content) == (0, 0, b"locked")
    assert (found[b"suid"].mode, found[b"suid"].set_id, found[b"twin"].hard_links) == (0o755, True, 2)
    export(handle, path.parent / "copy")
    assert (path.parent / "copy" / "suid").stat().st_mode & 0o7777 == 0o700
    (path / "closed").chmod(0o700)


def test_export_refuses_what_is_there_already(tree: tuple[Path, int], tmp_path: Path) -> None:
    """A destination that is not empty, a file or a link is refused; an empty or a new one is filled, without links."""
    path, handle = tree
    (path / "sub").mkdir()
    (path / "sub" / "f").write_text("f")
    (path / "link").symlink_to("/etc/passwd")
    os.mkfifo(path / "fifo")
    full = tmp_path / "full"
    full.mkdir()
    (full / "x").touch()
    with pytest.raises(CollectFailed, match="not empty"):
        export(handle, full)
    aside = tmp_path / "aside"
    aside.symlink_to(full)
    with pytest.raises(OSError, match="Not a directory"):
        export(handle, aside)
    left_out = export(handle, tmp_path / "new" / "copy")
    assert {(o.path, o.why) for o in left_out} == {(b"link", "not-copied"), (b"fifo", "not-copied")}
    assert (tmp_path / "new" / "copy" / "sub" / "f").read_text() == "f"
    assert sorted(os.listdir(tmp_path / "new" / "copy")) == ["sub"]


def test_a_hostile_workspace_is_collected_after_death(run: Run) -> None:
    """The same through a real sandbox: its tmpfs is read after its death, by whoever runs the test."""
    found: list[Workspace] = []
    script = (
        "cd /workspace; echo hello >a; ln -s /etc/shadow l; mkfifo f; mkdir -p d/e; chmod 000 d/e; printf x >\"$(printf 'n\\nl')\"; truncate -s 900M sparse;"
        "cp /bin/true t; chmod 6755 t 2>/dev/null; echo seed >/home/eval/h"
    )
    seen = run(
        script,
        look=lambda running: found.extend(
            (collect(running.handle("/workspace")), collect(running.handle("/home/eval")))
        ),
    )
    assert seen.ended.exit_status == 0, seen.ended.stderr
    workspace, home = found
    assert kinds(workspace) == {
        b"a": "file",
        b"d": "directory",
        b"d/e": "directory",
        b"f": "fifo",
        b"l": "symlink",
        b"n\nl": "file",
        b"sparse": "file",
        b"t": "file",
    }
    assert [omission.why for omission in workspace.omitted] == ["file-bytes"]
    assert {entry.path: entry.content for entry in home.entries} == {b"h": b"seed\n"}


_NAMES = st.binary(min_size=1, max_size=20).filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..")
)


@given(
    st.recursive(
        st.binary(max_size=50), lambda inner: st.dictionaries(_NAMES, inner, max_size=4), max_leaves=12
    ).filter(lambda tree: isinstance(tree, dict))
)
def test_any_tree_comes_back(tmp_path_factory: pytest.TempPathFactory, shape: dict[bytes, object]) -> None:
    """Whatever was written is what is collected, and what is exported is the same again."""
    root = tmp_path_factory.mktemp("tree")
    expected: dict[bytes, bytes | None] = {}

    def write(directory: bytes, prefix: bytes, content: dict[bytes, object]) -> None:
        for name, value in content.items():
            if isinstance(value, dict):
                os.mkdir(directory + b"/" + name)
                expected[prefix + name] = None
                write(directory + b"/" + name, prefix + name + b"/", value)
            else:
                assert isinstance(value, bytes)
                with open(directory + b"/" + name, "wb") as file:
                    file.write(value)
                expected[prefix + name] = value

    write(os.fsencode(root), b"", shape)
    for path in (root, root.parent / (root.name + "-copy")):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        assert {entry.path: entry.content for entry in collect(handle).entries} == expected
        if path == root:
            export(handle, root.parent / (root.name + "-copy"))
        os.close(handle)
    shutil.rmtree(root)
    shutil.rmtree(root.parent / (root.name + "-copy"))
