"""The skill tree as a value: what was staged, its digest, and each skill as the CLI will know it (A5, A7).

Boundary: ``stage`` and ``unchanged`` touch the skills folder, the recipes folder and the staging folder; the rest is pure. Not here: the walk
(staging.py), the parts of a SKILL.md (skill_text.py), findings (lint.py).
Rules: the digest depends on paths, contents and execute bits alone: not on times, owners, order or place (case A01). A skill is a folder at the top that
holds a SKILL.md, spelt so; the CLI knows no deeper ones.
"""

from __future__ import annotations

import os
import shutil
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from runner.canonical import digest_of
from runner.errors import InputError, InputMissing, MachineFault, SandboxFailure, SkillTreeInvalid
from runner.skill_text import SkillText, parse_skill_text
from runner.staging import Staged, StagedFile, StagingLimits, copy_tree, scan_tree, writing
from runner.unforeseen import unforeseen

SKILLS_INSIDE = "/home/eval/.claude/skills"
"""Where the tree lies in every sandbox; it stands in requests (DESIGN "The sandbox")."""


@dataclass(frozen=True)
class SkillUnit:
    """One skill of the tree, in plain values for the evidence (A7)."""

    directory: str
    """The folder's name; what the CLI replays for a slash load."""
    names: tuple[str, ...]
    """The folder's name and, if it is another, the front matter's: the CLI takes either (A5)."""
    body: str
    """The text that the CLI sends, before placeholders are filled in."""
    base_dir: str
    """The absolute path inside, as it stands behind ``Base directory for this skill:``."""
    references: Mapping[str, str]
    """Every other Markdown file: path in the skill (``references/x.md``) to text, bad UTF-8 as U+FFFD."""
    text: SkillText
    raw: bytes = field(repr=False)
    """The bytes of SKILL.md."""


@dataclass(frozen=True)
class SkillTree:
    """A staged skill tree."""

    staged: Staged
    units: tuple[SkillUnit, ...]
    """In order of their folders' names."""
    recipes: tuple[str, ...] = ()
    """The folders that came from the recipes."""

    @property
    def files(self) -> tuple[StagedFile, ...]:
        """Every file, in order of the paths."""
        return self.staged.files

    @cached_property
    def digest(self) -> str:
        """Hex sha256 over the canonical manifest."""
        return digest_of(manifest(self.files))

    @property
    def names(self) -> tuple[str, ...]:
        """The folders' names of all skills."""
        return tuple(unit.directory for unit in self.units)

    def named(self, name: str) -> tuple[SkillUnit, ...]:
        """Return the skills that answer to a name: by folder or by front matter. More than one is ambiguous (A5)."""
        return tuple(unit for unit in self.units if name in unit.names)

    def unit(self, name: str) -> SkillUnit | None:
        """Return the skill of that name: the one with that folder, else the only one with that front-matter name, else None."""
        found = [unit for unit in self.units if unit.directory == name] or list(self.named(name))
        return found[0] if len(found) == 1 else None


def manifest(files: Sequence[StagedFile]) -> list[dict[str, object]]:
    """Return the files as the JSON value that is digested and kept in the attempt: ``path``, ``bytes``, ``sha256``, ``executable``."""
    return [
        {"path": file.path, "bytes": file.bytes, "sha256": file.sha256, "executable": file.executable} for file in files
    ]


def stage(
    source: Path | None,
    dest: Path,
    *,
    recipes_root: Path | None = None,
    recipes: Sequence[str] = (),
    limits: StagingLimits | None = None,
) -> SkillTree:
    """Copy a skills folder and the recipes that a fixture names into the private folder ``dest``, as one tree (B5).

    ``source`` None stages no skills (the baseline of a comparison). ``dest`` is made if missing and must be empty.
    Raises: InputMissing; SkillTreeInvalid with the path in the tree, also for a recipe that is not there or has a skill's name. ``dest`` is empty then.
    """
    if dest.exists() and any(dest.iterdir()):
        raise SkillTreeInvalid("the staging folder is not empty", where=str(dest))
    try:
        return _stage(source, dest, recipes_root, recipes, limits)
    except BaseException:
        for child in dest.iterdir() if dest.exists() else ():
            shutil.rmtree(child) if child.is_dir() else child.unlink()
        raise


def _stage(
    source: Path | None, dest: Path, recipes_root: Path | None, recipes: Sequence[str], limits: StagingLimits | None
) -> SkillTree:
    left_out: list[str] = []
    if source is not None:
        left_out += copy_tree(source, dest, limits).left_out
    elif not dest.exists():
        with writing(dest):
            dest.mkdir()
            dest.chmod(0o755)
    taken = {_twin(name): name for name in os.listdir(dest)}
    for name in recipes:
        if recipes_root is None or not (recipes_root / name / "SKILL.md").is_file():
            raise SkillTreeInvalid(
                "there is no such recipe",
                where=f"{name}/SKILL.md",
                hint="recipes lie in the folder recipes beside the fixtures",
            )
        if _twin(name) in taken:
            raise SkillTreeInvalid(
                f"the recipe has the name of {taken[_twin(name)]!r}, which is there already", where=name
            )
        taken[_twin(name)] = name
        left_out += [f"{name}/{path}" for path in copy_tree(recipes_root / name, dest / name, limits).left_out]
    try:
        with writing(dest):
            tree = read_tree(dest, recipes=recipes, limits=limits)
    except InputMissing as error:  # it was made a moment ago
        raise SandboxFailure(error.message, where=error.where, code="sandbox-staging") from error
    return replace(tree, staged=replace(tree.staged, left_out=tuple(sorted(left_out))))


def read_tree(staged: Path, *, recipes: Sequence[str] = (), limits: StagingLimits | None = None) -> SkillTree:
    """Read a staged tree back as a value; links and everything else that staging refuses is refused here too.

    Raises: InputMissing, SkillTreeInvalid.
    """
    found = scan_tree(staged, limits)
    folders = sorted(
        file.path.split("/", 1)[0]
        for file in found.files
        if file.path.count("/") == 1 and file.path.endswith("/SKILL.md")
    )
    return SkillTree(found, tuple(_unit(staged, found, folder) for folder in folders), tuple(sorted(recipes)))


def unchanged(tree: SkillTree, staged: Path) -> tuple[str, ...]:
    """Compare the staged folder with what was staged, after a run; return the paths that differ, in order. Empty means unchanged.

    Raises: InputMissing, SkillTreeInvalid if the folder is not even a skill tree any more.
    """
    before = {file.path: file for file in tree.files}
    after = {file.path: file for file in scan_tree(staged).files}
    return tuple(sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path)))


def changed_since(tree: SkillTree, staged: Path) -> tuple[str, ...]:
    """Return as ``unchanged`` what differs after a run; of a folder that is no skill tree any more, the place that shows it.

    Raises: InputError over an OSError of the machine's: then nobody knows.
    """
    try:
        return unchanged(tree, staged)
    except InputError as error:
        if isinstance(unforeseen(error), MachineFault):
            raise
        return (error.where or ".",)


def _unit(root: Path, staged: Staged, folder: str) -> SkillUnit:
    prefix = f"{folder}/"
    raw = (root / folder / "SKILL.md").read_bytes()
    text = parse_skill_text(raw)
    references = {
        file.path.removeprefix(prefix): (root / file.path).read_bytes().decode("utf-8", "replace")
        for file in staged.files
        if file.path.startswith(prefix) and file.path.endswith(".md") and file.path != f"{folder}/SKILL.md"
    }
    other = text.text("name")
    names = (folder, other) if other and other != folder else (folder,)
    return SkillUnit(folder, names, text.body, f"{SKILLS_INSIDE}/{folder}", references, text, raw)


def _twin(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
