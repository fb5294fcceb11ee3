"""The NAR hash: golden values, the real nix-hash as oracle, and what is refused."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.errors import InputError, InputMissing
from runner.nar import hex_from_sri, nar_sha256

_names = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="/\0"), min_size=1, max_size=12
).filter(lambda name: name not in (".", "..") and len(name.encode()) < 200)
_files = st.tuples(
    st.sampled_from([0o644, 0o755, 0o744, 0o611, 0o600]),
    st.binary(max_size=40) | st.sampled_from([8, 70_000]).map(bytes),
)
_links = st.text("ab/.", min_size=1, max_size=9)
_trees = st.recursive(_files | _links, lambda inner: st.dictionaries(_names, inner, max_size=4), max_leaves=8)


def _build(path: Path, node: object) -> None:
    if isinstance(node, dict):
        path.mkdir()
        for name, child in node.items():
            _build(path / name, child)
    elif isinstance(node, str):
        path.symlink_to(node)
    else:
        assert isinstance(node, tuple)
        path.write_bytes(node[1])
        path.chmod(node[0])


def _golden_tree(root: Path) -> Path:
    _build(
        root,
        {
            "a": (0o644, b"alpha\n"),
            "B": (0o755, b"#!/bin/sh\n"),
            "empty": (0o644, b""),
            "dir": {"nested": {}, "é": (0o600, b"12345678")},
            "dir-x": (0o644, b"sorts between by bytes"),
            "link": "dir/é",
            "dangling": "/nowhere",
        },
    )
    return root


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (_golden_tree, "sha256-mRJRUNc9VVmb6HuS5m4/aklsnE2UYb643Yw+MNvDoyQ="),
        (lambda path: path.mkdir() or path, "sha256-pQpattmS9VmO3ZIQUFn66az8GSmB4IvYhTTCFn6SUmo="),
        (lambda path: (path.write_bytes(b"") and path) or path, "sha256-d6xi4mKdjkX2JFicDIv5niSzpyI0m/Hnm8GGAIU04kY="),
        (lambda path: path.symlink_to("x") or path, "sha256-u5QehrB0NlGMSdB+SvupPmNDunDzbhe96qdvPzL037Q="),
        (
            lambda path: path.write_bytes(bytes(range(256)) * 12_345) and path,
            "sha256-7p4O3zvzyJ5dklwV1evjaHasIAmYg/LZq6cxOv9VKnQ=",
        ),
    ],
    ids=["tree", "empty directory", "empty file", "link", "large file"],
)
def test_hashes_are_those_that_nix_gave(tmp_path: Path, build: object, expected: str) -> None:
    """Fixed trees have the hashes that nix-hash 2.8 printed for them."""
    assert callable(build)
    path = tmp_path / "root"
    build(path)
    assert nar_sha256(path) == expected


@pytest.mark.nix
@settings(max_examples=60, deadline=None)
@given(_trees)
def test_equal_to_the_real_nix_hash(node: object) -> None:
    """On generated trees (names of any bytes order, executables, links, empty and large files) the hash is nix-hash's."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "root"
        _build(path, node)
        assert hex_from_sri(nar_sha256(path)) == _nix_hash(path)


@pytest.mark.nix
def test_names_that_are_not_utf8_and_deep_trees_are_hashed_as_nix_does(tmp_path: Path) -> None:
    """Probe 64: a tree deeper than Python's recursion limit, and a name of raw bytes, give nix-hash's value."""
    root = tmp_path / "r"
    root.mkdir()
    (root / os.fsdecode(b"raw-\xff\xfe\n")).write_bytes(b"1")
    deep = root
    for _ in range(1200):
        deep = deep / "d"
        deep.mkdir()
    try:
        assert hex_from_sri(nar_sha256(root)) == _nix_hash(root)
    finally:
        subprocess.run(["rm", "-rf", "--", root], check=True)  # shutil.rmtree and pytest's clean-up recurse


def test_times_owners_and_other_modes_do_not_count(tmp_path: Path) -> None:
    """A01: the clock and the umask change nothing; a content byte and the owner's executable bit do."""
    root = _golden_tree(tmp_path / "root")
    before = nar_sha256(root)
    os.utime(root / "a", (1, 1))
    (root / "a").chmod(0o664)
    (root / "dir").chmod(0o700)
    assert nar_sha256(root) == before
    (root / "a").chmod(0o744)
    assert nar_sha256(root) != before
    (root / "a").chmod(0o655)
    assert nar_sha256(root) == before
    (root / "a").write_bytes(b"alphb\n")
    assert nar_sha256(root) != before


def test_a_fifo_and_a_socket_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no NAR form is named and never opened; the same tree without it is hashed."""
    root = _golden_tree(tmp_path / "root")
    os.mkfifo(root / "dir" / "pipe")
    with pytest.raises(InputError, match="fifo") as caught:
        nar_sha256(root)
    assert caught.value.where.endswith("dir/pipe")
    (root / "dir" / "pipe").unlink()
    monkeypatch.chdir(root)  # a relative name: socket paths are short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("s")
    with pytest.raises(InputError, match="socket"):
        nar_sha256(root)
    (root / "s").unlink()
    assert nar_sha256(root).startswith("sha256-")


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    """Nothing there is InputMissing with the path."""
    with pytest.raises(InputMissing) as caught:
        nar_sha256(tmp_path / "none")
    assert caught.value.where == str(tmp_path / "none")


@pytest.mark.parametrize(
    "sri",
    ["", "sha256-", "sha512-" + "A" * 44, "sha256-AAAA", "sha256-" + "!" * 44, "sha256-" + "A" * 42 + "B=", "sha256-é"],
)
def test_only_the_one_form_of_a_hash_is_taken(sri: str) -> None:
    """A hash in another form, or with stray bits, is ValueError; the right form gives 64 digits."""
    with pytest.raises(ValueError, match=r"."):
        hex_from_sri(sri)
    assert hex_from_sri("sha256-" + "A" * 43 + "=") == "0" * 64


def _nix_hash(path: Path) -> str:
    program = shutil.which("nix-hash")
    assert program, "this test needs Debian's nix-bin"
    done = subprocess.run([program, "--type", "sha256", str(path)], capture_output=True, text=True, check=True)
    return done.stdout.strip()
