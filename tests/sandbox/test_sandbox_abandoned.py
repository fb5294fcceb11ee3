"""Private directories that nobody is left to remove go with the next run; those of living runs, young ones and foreign ones stay (sandbox/abandoned.py)."""

from __future__ import annotations

import os
import time
from pathlib import Path

from sandbox.abandoned import AGE_S, hold, remove_abandoned, remove_abandoned_groups


def directory(parent: Path, number: int, *, old: bool = True) -> Path:
    path = parent / f"hermeval-{number:016x}"
    (path / "skills" / "deep").mkdir(parents=True)
    (path / "skills" / "deep" / "SKILL.md").write_text("x")
    if old:
        then = time.time() - 2 * AGE_S
        os.utime(path, (then, then))
    return path


def test_only_what_is_abandoned_is_removed(tmp_path: Path) -> None:
    """An old directory that nobody holds goes whole; a held one, a young one, another name, a file and a link stay, and a held one goes once it is let go."""
    dead, living, young = directory(tmp_path, 1), directory(tmp_path, 2), directory(tmp_path, 3, old=False)
    foreign = directory(tmp_path, 4).rename(tmp_path / "hermeval-notes")
    file, link = tmp_path / f"hermeval-{5:016x}", tmp_path / f"hermeval-{6:016x}"
    file.write_text("x")
    link.symlink_to(foreign)
    then = time.time() - 2 * AGE_S
    for path in (foreign, file):
        os.utime(path, (then, then))
    mine = directory(tmp_path, 7, old=False)
    held = hold(living)
    remove_abandoned(mine)
    assert not dead.exists()
    assert all(os.path.lexists(path) for path in (living, young, foreign, file, link, mine))
    os.close(held)
    remove_abandoned(mine)
    assert not living.exists()
    assert (foreign / "skills" / "deep" / "SKILL.md").exists()


def test_what_is_abandoned_in_another_place_goes_too(tmp_path: Path) -> None:
    """By the same rules: an old one goes, a held and a young one stay, and a place that is gone keeps none of the others from being looked at."""
    mine = directory(tmp_path / "here", 1, old=False)
    dead, living, young = (directory(tmp_path / "there", number, old=number < 4) for number in (2, 3, 4))
    held = hold(living)
    remove_abandoned(mine)
    assert dead.exists(), "the control: nothing is looked at that was not named"
    remove_abandoned(mine, [tmp_path / "gone", tmp_path / "there"])
    assert [path.exists() for path in (mine, dead, living, young)] == [True, False, True, True]
    os.close(held)


def test_a_directory_that_cannot_be_looked_at_is_no_fault(tmp_path: Path) -> None:
    """Nothing is raised where the place is gone."""
    remove_abandoned(tmp_path / "gone" / "hermeval-0000000000000001")


def test_empty_control_groups_of_dead_runs_are_removed(tmp_path: Path) -> None:
    """An old empty one goes; one that is in use (a directory that is not empty stands for it), a young one and another name stay. A place that is gone is no fault."""
    names = ["hermeval-0000000000000001", "hermeval-0000000000000002", "hermeval-0000000000000003", "others"]
    dead, living, young, foreign = (tmp_path / name for name in names)
    for path in (dead, living / "held", young, foreign):
        path.mkdir(parents=True)
    then = time.time() - 2 * AGE_S
    for path in (dead, living, foreign):
        os.utime(path, (then, then))
    remove_abandoned_groups(tmp_path, time.time())
    assert sorted(tmp_path.iterdir()) == [living, young, foreign]
    remove_abandoned_groups(tmp_path / "gone", time.time())
