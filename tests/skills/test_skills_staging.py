"""Staging: regular files only, nothing outside is read, and a digest that depends on names and contents alone."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.errors import InputMissing, SandboxFailure, SkillTreeInvalid
from runner.skills import SkillTree, changed_since, manifest, read_tree, stage, unchanged
from runner.staging import StagingLimits, copy_tree

SKILL = b"---\nname: one\ndescription: Does one thing.\n---\n# One\n\nDo the thing.\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small skill tree that stages without a finding."""
    root = tmp_path / "source"
    (root / "one" / "references").mkdir(parents=True)
    (root / "one" / "SKILL.md").write_bytes(SKILL)
    (root / "one" / "references" / "how.md").write_text("# How\n")
    (root / "one" / "run.sh").write_text("#!/bin/sh\n")
    (root / "one" / "run.sh").chmod(0o755)
    return root


def staged(source: Path, tmp_path: Path) -> SkillTree:
    return stage(source, tmp_path / "dest")


def paths(tree: SkillTree) -> list[str]:
    return [file.path for file in tree.files]


def test_copy_holds_the_regular_files_with_plain_modes(source: Path, tmp_path: Path) -> None:
    """Every file arrives with its bytes; modes are 0644, or 0755 for what may be executed, and 0755 for folders."""
    (source / "one" / "SKILL.md").chmod(0o400)
    tree = staged(source, tmp_path)
    assert paths(tree) == ["one/SKILL.md", "one/references/how.md", "one/run.sh"]
    assert [file.executable for file in tree.files] == [False, False, True]
    dest = tmp_path / "dest"
    modes = {path.relative_to(dest).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in dest.rglob("*")}
    assert modes == {
        "one": 0o755,
        "one/SKILL.md": 0o644,
        "one/references": 0o755,
        "one/references/how.md": 0o644,
        "one/run.sh": 0o755,
    }
    assert (dest / "one" / "SKILL.md").read_bytes() == SKILL


def test_plain_modes_do_not_depend_on_the_umask(source: Path, tmp_path: Path) -> None:
    """A caller with umask 077 stages a tree that another uid can read."""
    before = os.umask(0o077)
    try:
        staged(source, tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "dest" / "one" / "SKILL.md").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "dest" / "one").stat().st_mode) == 0o755


def link(target: str) -> Callable[[Path], None]:
    return lambda root: os.symlink(target, root / "one" / "bad")


def with_mode(mode: int) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        (root / "one" / "bad").touch()
        (root / "one" / "bad").chmod(mode)

    return make


def twins(root: Path) -> None:
    for name in ("e\u0301.md", "\u00e9.md"):
        (root / "one" / name).touch()


def sparse(root: Path) -> None:
    with (root / "one" / "bad").open("wb") as file:
        file.truncate(1 << 40)


def unix_socket(root: Path) -> None:
    here = os.open(root / "one", os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"/proc/self/fd/{here}/bad")
    finally:
        os.close(here)


BREAKAGES: dict[str, Callable[[Path], object]] = {
    "link out of the tree": link("../../outside"),
    "link by an absolute path": link("/etc/hostname"),
    "link to an absolute path in the tree": lambda root: os.symlink(root / "one" / "SKILL.md", root / "one" / "bad"),
    "link to a folder": link("references"),
    "link to itself": link("bad"),
    "dangling link": link("nothing"),
    "link through a file": link("SKILL.md/x"),
    "link to proc": link("/proc/self/environ"),
    "fifo": lambda root: os.mkfifo(root / "one" / "bad"),
    "socket": unix_socket,
    "set-user-id": with_mode(0o4755),
    "set-group-id": with_mode(0o2755),
    "unreadable by its owner": with_mode(0o000),
    "case twin": lambda root: (root / "one" / "skill.MD").write_text("x"),
    "case twin of a folder": lambda root: (root / "One").mkdir(),
    "unicode twin": twins,
    "name that is not UTF-8": lambda root: Path(os.fsdecode(os.fsencode(root) + b"/one/\xff.md")).touch(),
    "name with a newline": lambda root: (root / "one" / "a\nb").touch(),
    "name with an escape": lambda root: (root / "one" / "a\x1b[2J").touch(),
    "name with a line separator": lambda root: (root / "one" / "a\u2028b").touch(),
    "name like an option": lambda root: (root / "one" / "--bind").touch(),
    "sparse giant": sparse,
    "deep folders": lambda root: (root / "/".join(["one", *["d"] * 40])).mkdir(parents=True),
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_what_is_no_plain_file_is_refused(breakage: str, source: Path, tmp_path: Path) -> None:
    """Each kind of entry that cannot be staged is refused with its path, and nothing is left staged; without it the tree stages."""
    (tmp_path / "outside").write_text("secret")
    staged(source, tmp_path / "control")
    BREAKAGES[breakage](source)
    with pytest.raises(SkillTreeInvalid) as caught:
        staged(source, tmp_path)
    assert caught.value.where
    assert caught.value.where.isprintable()
    assert list((tmp_path / "dest").iterdir()) == []


def test_link_inside_the_tree_becomes_a_copy(source: Path, tmp_path: Path) -> None:
    """A relative link to a regular file of the tree, over another link too, is staged as a file with that content."""
    os.symlink("../references/how.md", source / "one" / "references" / "again.md")
    os.symlink("references/again.md", source / "one" / "third.md")
    tree = staged(source, tmp_path)
    assert "one/third.md" in paths(tree)
    for name in ("references/again.md", "third.md"):
        copy = tmp_path / "dest" / "one" / name
        assert not copy.is_symlink()
        assert copy.read_text() == "# How\n"


def test_fifo_with_no_writer_does_not_hang(tmp_path: Path) -> None:
    """A tree that is nothing but a fifo is refused at once."""
    (tmp_path / "source").mkdir()
    os.mkfifo(tmp_path / "source" / "SKILL.md")
    with pytest.raises(SkillTreeInvalid, match="fifo"):
        staged(tmp_path / "source", tmp_path)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (StagingLimits(files=2), "files"),
        (StagingLimits(file_bytes=20), "at most 20"),
        (StagingLimits(total_bytes=50), "bytes"),
        (StagingLimits(depth=0), "deep"),
    ],
)
def test_caps_hold(limits: StagingLimits, message: str, source: Path, tmp_path: Path) -> None:
    """Counts, sizes and depth over their caps are refused; the same tree passes with the usual caps."""
    with pytest.raises(SkillTreeInvalid, match=message):
        copy_tree(source, tmp_path / "dest", limits)
    assert len(copy_tree(source, tmp_path / "other").files) == 3


def test_repository_is_left_out(source: Path, tmp_path: Path) -> None:
    """A .git folder or file is not staged, and that is said."""
    (source / ".git" / "objects").mkdir(parents=True)
    (source / ".git" / "HEAD").write_text("ref")
    (source / "one" / ".git").write_text("gitdir: x")
    tree = staged(source, tmp_path)
    assert tree.staged.left_out == (".git", "one/.git")
    assert all(".git" not in path for path in paths(tree))


def test_missing_source_and_full_dest_are_refused(source: Path, tmp_path: Path) -> None:
    """A skills folder that is not there, and a staging folder that is not empty, are errors; the full one keeps its content."""
    with pytest.raises(InputMissing):
        staged(tmp_path / "absent", tmp_path)
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("x")
    with pytest.raises(SkillTreeInvalid):
        stage(source, full)
    assert (full / "mine").read_text() == "x"


def test_no_source_is_an_empty_tree(tmp_path: Path) -> None:
    """The baseline without skills stages an empty tree with a digest of its own."""
    tree = stage(None, tmp_path / "dest")
    assert (tree.files, tree.units) == ((), ())
    assert tree.digest == "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"


def test_digest_does_not_see_times_owners_or_order(source: Path, tmp_path: Path) -> None:
    """The same contents give the same digest with other times, modes and creation order (case A01); another bit gives another."""
    first = staged(source, tmp_path).digest
    other = tmp_path / "other" / "one"
    (other / "references").mkdir(parents=True)
    (other / "run.sh").write_text("#!/bin/sh\n")
    (other / "run.sh").chmod(0o700)
    (other / "references" / "how.md").write_text("# How\n")
    (other / "SKILL.md").write_bytes(SKILL)
    os.utime(other / "SKILL.md", (1, 1))
    assert stage(tmp_path / "other", tmp_path / "dest2").digest == first
    (other / "run.sh").chmod(0o600)
    assert stage(tmp_path / "other", tmp_path / "dest3").digest != first


def test_digest_is_that_of_the_manifest(source: Path, tmp_path: Path) -> None:
    """The digest can be recomputed from the manifest that an attempt keeps."""
    tree = staged(source, tmp_path)
    assert read_tree(tmp_path / "dest").digest == tree.digest
    assert manifest(tree.files)[0]["path"] == "one/SKILL.md"


def test_change_of_the_staged_tree_is_seen(source: Path, tmp_path: Path) -> None:
    """After a run each added, removed, changed or newly executable file is named; an untouched tree is unchanged."""
    tree = staged(source, tmp_path)
    dest = tmp_path / "dest"
    assert unchanged(tree, dest) == ()
    (dest / "one" / "SKILL.md").write_text("other")
    (dest / "one" / "new").write_text("x")
    (dest / "one" / "run.sh").unlink()
    (dest / "one" / "references" / "how.md").chmod(0o755)
    assert unchanged(tree, dest) == ("one/SKILL.md", "one/new", "one/references/how.md", "one/run.sh")


def test_link_put_into_the_staged_tree_is_refused(source: Path, tmp_path: Path) -> None:
    """A link in what was staged means that someone else wrote there."""
    tree = staged(source, tmp_path)
    os.symlink("SKILL.md", tmp_path / "dest" / "one" / "link")
    with pytest.raises(SkillTreeInvalid):
        unchanged(tree, tmp_path / "dest")
    assert len(changed_since(tree, tmp_path / "dest")) == 1


def test_a_staged_tree_that_is_gone_has_changed(source: Path, tmp_path: Path) -> None:
    """After a run a folder that cannot be read is told as changed, so that the run itself is still kept."""
    tree = staged(source, tmp_path)
    assert changed_since(tree, tmp_path / "dest") == ()
    shutil.rmtree(tmp_path / "dest")
    assert changed_since(tree, tmp_path / "dest") == (str(tmp_path / "dest"),)


def test_a_staged_tree_that_the_machine_cannot_read_is_not_called_changed(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken disk says nothing of what an agent did: that is the machine's fault, and no difference."""
    tree = staged(source, tmp_path)

    def broken(*_: object, **__: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "open", broken)
    with pytest.raises(InputMissing):
        changed_since(tree, tmp_path / "dest")


def test_a_copy_that_cannot_be_written_is_not_the_skills_fault(source: Path, tmp_path: Path) -> None:
    """A full disk below the private copy is the machine's: another code than a bad skill's, with the system's words."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SandboxFailure) as caught:
        copy_tree(source, tmp_path / "file" / "dest")
    assert caught.value.code == "sandbox-staging"
    assert "File exists" in caught.value.message


def test_recipes_are_installed_beside_the_skills(source: Path, tmp_path: Path) -> None:
    """A recipe that a fixture names becomes a skill of the tree, and only that one (B5)."""
    for name in ("probe", "unused"):
        (tmp_path / "recipes" / name).mkdir(parents=True)
        (tmp_path / "recipes" / name / "SKILL.md").write_bytes(SKILL.replace(b"one", name.encode()))
    tree = stage(source, tmp_path / "dest", recipes_root=tmp_path / "recipes", recipes=("probe",))
    assert tree.names == ("one", "probe")
    assert tree.recipes == ("probe",)
    assert tree.unit("probe") is not None


@pytest.mark.parametrize("name", ["absent", "one", "One"])
def test_recipe_that_is_missing_or_collides_is_refused(name: str, source: Path, tmp_path: Path) -> None:
    """A recipe must be there, and must not have a skill's name, in whatever case."""
    for made in ("one", "One"):
        (tmp_path / "recipes" / made).mkdir(parents=True)
        (tmp_path / "recipes" / made / "SKILL.md").write_bytes(SKILL)
    with pytest.raises(SkillTreeInvalid):
        stage(source, tmp_path / "dest", recipes_root=tmp_path / "recipes", recipes=(name,))
    assert list((tmp_path / "dest").iterdir()) == []


def test_shipped_trees_stage() -> None:
    """Every shipped skill and recipe is read by the copy that each fixture's run makes."""
    fixtures = Path(__file__).resolve().parents[2] / "fixtures"
    assert {"cf/SKILL.md", "workflow/SKILL.md", "workflow/references/provision.md"} <= set(
        paths(read_tree(fixtures / "skills"))
    )
    assert read_tree(fixtures / "recipes").names == ("recipe-probe",)


NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp"), exclude_characters="/"), min_size=1, max_size=8
).filter(lambda name: name not in (".", "..") and not name.startswith("-") and name.lower() != ".git")


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(NAMES, st.tuples(st.binary(max_size=50), st.booleans()), max_size=5))
def test_any_plain_files_survive_the_copy(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, tuple[bytes, bool]]
) -> None:
    """Whatever the names and bytes are, a staged tree reads back with the same digest, or holds twins and is refused."""
    root = tmp_path_factory.mktemp("any")
    (root / "source" / "one").mkdir(parents=True)
    for name, (data, executable) in files.items():
        (root / "source" / "one" / name).write_bytes(data)
        (root / "source" / "one" / name).chmod(0o755 if executable else 0o644)
    try:
        tree = stage(root / "source", root / "dest")
    except SkillTreeInvalid as error:
        assert "differ only" in error.message  # noqa: PT017 -- the other branch is as fine
        return
    assert {file.path: file.executable for file in tree.files} == {
        f"one/{name}": flag for name, (_, flag) in files.items()
    }
    assert unchanged(tree, root / "dest") == ()
