"""A file is there whole or not at all, on file systems with and without nameless files; a killed writer's is not."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from runner.errors import BundleExists
from runner.whole_file import LEFTOVER_AGE_S, WholeFile, leftovers_of, whole_file

BOTH = pytest.mark.parametrize("nameless", [True, False], ids=["nameless", "named"])


@BOTH
def test_nothing_is_seen_before_it_is_whole(tmp_path: Path, nameless: bool) -> None:
    """While it is written, no name but a temporary one is there; then the name is, and nothing else."""
    with whole_file(tmp_path, "report", nameless=nameless) as whole:
        whole.file.write(b"half")
        whole.file.flush()
        assert all(leftovers_of("report").match(name) for name in os.listdir(tmp_path))
        assert len(os.listdir(tmp_path)) == (0 if nameless else 1), (
            "the control: this file system can do without a name"
        )
        whole.file.write(b" and half")
        whole.publish(tmp_path / "whole")
    assert os.listdir(tmp_path) == ["whole"]
    assert (tmp_path / "whole").read_bytes() == b"half and half"


@BOTH
def test_publishing_replaces_nothing(tmp_path: Path, nameless: bool) -> None:
    """A name that is taken stays whose it is; another one can be had with the same bytes."""
    (tmp_path / "1").write_bytes(b"mine")
    with whole_file(tmp_path, "x", nameless=nameless) as whole:
        whole.file.write(b"yours")
        with pytest.raises(BundleExists):
            whole.publish(tmp_path / "1")
        whole.publish(tmp_path / "2")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"1": b"mine", "2": b"yours"}


@BOTH
@pytest.mark.parametrize("there", [True, False])
def test_replacing_takes_the_place(tmp_path: Path, nameless: bool, there: bool) -> None:
    """What had the name is gone, whether or not there was anything."""
    if there:
        (tmp_path / "report").write_bytes(b"old")
    with whole_file(tmp_path, "report", nameless=nameless) as whole:
        whole.file.write(b"new")
        whole.replace(tmp_path / "report")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"report": b"new"}


@BOTH
def test_what_was_not_published_is_gone(tmp_path: Path, nameless: bool) -> None:
    """An exception on the way leaves nothing."""

    def fail() -> None:
        with whole_file(tmp_path, "x", nameless=nameless) as whole:
            whole.file.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert os.listdir(tmp_path) == []


def test_a_copy_is_made_where_a_nameless_file_cannot_be_named(tmp_path: Path) -> None:
    """A file system that has nameless files and no links: the same bytes, by a temporary name."""

    class Linkless(WholeFile):
        def _link(self, name: Path) -> bool:
            return False

    for number, way in enumerate((Linkless.publish, Linkless.replace)):
        whole = Linkless(tmp_path, "x", nameless=True)
        whole.file.write(b"bytes" * 1000)
        way(whole, tmp_path / str(number))
        whole.close()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == dict.fromkeys("01", b"bytes" * 1000)


@BOTH
def test_a_killed_writer(tmp_path: Path, nameless: bool) -> None:
    """A nameless file goes with its writer; a named one is left, and removed by the next writer of its kind once it is old."""
    ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        with whole_file(tmp_path, "kind-1", nameless=nameless) as whole:
            whole.file.write(b"half")
            whole.file.flush()
            os.write(ready[1], b"x")
            signal.pause()
        os._exit(0)
    os.read(ready[0], 1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    left = os.listdir(tmp_path)
    assert len(left) == (0 if nameless else 1)
    for name in left:
        old = time.time() - 2 * LEFTOVER_AGE_S
        os.utime(tmp_path / name, (old, old))
    with whole_file(tmp_path, "other", kind=leftovers_of("other")) as whole:
        whole.publish(tmp_path / "a")
    assert set(os.listdir(tmp_path)) == {*left, "a"}, "another kind's are not touched"
    with whole_file(tmp_path, "kind-2", kind=leftovers_of("kind-[0-9]")) as whole:
        whole.publish(tmp_path / "b")
    assert set(os.listdir(tmp_path)) == {"a", "b"}
    for fd in ready:
        os.close(fd)


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The error's file name lies in the directory that was asked for."""
    with pytest.raises(FileNotFoundError) as caught, whole_file(tmp_path / "none", "x"):
        pass
    assert str(tmp_path / "none") in str(caught.value.filename)


def test_labels_are_matched_whole() -> None:
    """A temporary name is of a kind only by its whole label and its form."""
    kind = leftovers_of("a|b")
    assert all(kind.match(f".{label}.{'0' * 16}.tmp") for label in "ab")
    assert not any(
        kind.match(name)
        for name in (".ab.0123456789abcdef.tmp", ".a.0123.tmp", "a.0123456789abcdef.tmp", ".a.0123456789abcdef.tmpx")
    )
