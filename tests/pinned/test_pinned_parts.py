"""How the C parts are had: made once, whole, by what is there; and what is said where nothing is there."""

from __future__ import annotations

import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runner.pinned_parts import open_parts
from sandbox.determinism.parts import OPTIONS, SEARCH, find_parts
from sandbox.errors import SandboxUnavailable
from tests.run.conftest import ROOT


def test_they_are_made_once_and_whole(tmp_path: Path) -> None:
    """Several makers at a time give one directory with both parts, readable for everybody; nothing else is left, and the next call makes nothing."""
    shelf = tmp_path / "cache" / "determinism"
    old = os.umask(0o077)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = set(pool.map(lambda _: find_parts(shelf), range(4)))
    finally:
        os.umask(old)
    (parts,) = found
    assert [path.name for path in shelf.iterdir()] == [parts.attend.parent.name]
    assert {stat.S_IMODE(path.stat().st_mode) for path in (shelf, *shelf.rglob("*"))} == {0o755}
    before = parts.attend.stat()
    assert find_parts(shelf, search="/nonexistent") == parts
    assert parts.attend.stat() == before


@pytest.mark.parametrize("part", ["attend", "clock.so"])
def test_a_part_that_was_taken_away_is_made_again(part: str, tmp_path: Path) -> None:
    """Whichever it was: both are there afterwards, and the same as before."""
    parts = find_parts(tmp_path)
    before = (parts.attend.read_bytes(), parts.clock.read_bytes())
    (parts.attend.parent / part).unlink()
    assert find_parts(tmp_path) == parts
    assert (parts.attend.read_bytes(), parts.clock.read_bytes()) == before
    assert [path.name for path in tmp_path.iterdir()] == [parts.attend.parent.name]


def test_without_a_compiler_it_is_said(tmp_path: Path) -> None:
    """A stable code, where was looked, and what to install; nothing is made. With the compiler the same call works."""
    with pytest.raises(SandboxUnavailable) as caught:
        find_parts(tmp_path, search=str(tmp_path))
    assert (caught.value.code, caught.value.where) == ("compiler-missing", str(tmp_path))
    assert "gcc libc6-dev" in caught.value.hint
    assert not list(tmp_path.iterdir())
    assert find_parts(tmp_path).clock.is_file()


def test_a_compiler_that_fails_is_quoted(tmp_path: Path) -> None:
    """What a compiler says (the C library's headers are missing) is told, with its own code; nothing half made is left."""
    compiler, shelf = tmp_path / "bin" / "cc", tmp_path / "shelf"
    compiler.parent.mkdir()
    compiler.write_text(
        "#!/bin/sh\necho 'attend.c: In function' >&2\necho 'attend.c:9: fatal error: linux/audit.h: No such file' >&2\nexit 1\n"
    )
    compiler.chmod(0o755)
    with pytest.raises(SandboxUnavailable) as caught:
        find_parts(shelf, search=f"{compiler.parent}:{SEARCH}")
    assert caught.value.code == "pinned-build-failed"
    assert "linux/audit.h: No such file" in caught.value.message
    assert not list(shelf.iterdir())


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """A file where the directory should be is an error of its own."""
    (tmp_path / "determinism").write_text("")
    with pytest.raises(SandboxUnavailable) as caught:
        open_parts(tmp_path)
    assert caught.value.code == "pinned-build-failed"


def test_parts_that_others_could_change_are_refused(tmp_path: Path) -> None:
    """They run with the rights of the program that they start: a part that somebody else may write is not used, and is again when it is private."""
    parts = open_parts(tmp_path)
    parts.attend.chmod(0o777)
    with pytest.raises(SandboxUnavailable) as caught:
        open_parts(tmp_path)
    assert caught.value.code == "toolchain-untrusted"
    parts.attend.chmod(0o755)
    assert open_parts(tmp_path) == parts


def test_nix_makes_them_by_the_same_options() -> None:
    """The flake's derivation has, part by part, the compiler's options of this program."""
    text = (ROOT / "nix" / "determinism.nix").read_text()
    made = dict(re.findall(r"^  cc (.*) -o \$out/(\S+) \$\{", text, re.MULTILINE))
    sources = re.findall(r"determinism/(\w+\.c)\}", text)
    assert {
        part: (*options.split(), source) for (options, part), source in zip(made.items(), sources, strict=True)
    } == OPTIONS
