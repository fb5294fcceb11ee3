"""Findings about a staged skill tree: what an author should know, and what makes a unit under test unusable.

Boundary: pure. Not here: what cannot even be staged (staging.py).
Rules: a finding never changes a byte; the tree runs as its users have it (case S11). ``lint`` only warns. ``check_unit`` refuses, before anything is paid, the
unit whose run could not be proved (A4, A7); a unit that is not there at all is a warning, because a run without the skill is how a baseline is made and
how its absence is shown (A3).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from runner.envelope import Fixture
from runner.errors import SkillTreeInvalid
from runner.skill_text import JS_BLANKS
from runner.skills import SkillTree, SkillUnit

_BLANKS = rf"(?:(?!\n)[{JS_BLANKS}])"
_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Control characters, marks of direction, and what has no width; not the joiners that scripts and emoji need."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One warning."""

    code: str
    """Stable."""
    path: str
    """Path in the tree."""
    message: str


def lint(tree: SkillTree) -> tuple[Finding, ...]:
    """Return the warnings about a whole tree, in order of the paths."""
    found = [
        Finding("left-out", path, "it is not staged: a repository has no place in a skill")
        for path in tree.staged.left_out
    ]
    folders = {file.path.split("/", 1)[0] for file in tree.files if "/" in file.path}
    for folder in sorted(folders - set(tree.names)):
        other = next((file.path for file in tree.files if file.path.lower() == f"{folder}/skill.md".lower()), None)
        if other is not None:
            found.append(
                Finding("skill-file-case", other, "the CLI looks for SKILL.md, in capitals; it does not see this skill")
            )
        else:
            found.append(Finding("no-skill-file", folder, "the folder holds no SKILL.md, so it is no skill"))
    for unit in tree.units:
        found += [Finding(code, f"{unit.directory}/SKILL.md", message) for code, message in _skill(unit)]
        found += _shared_names(tree, unit)
    return tuple(sorted(found, key=lambda finding: (finding.path, finding.code, finding.message)))


def check_unit(tree: SkillTree, fixture: Fixture) -> tuple[Finding, ...]:
    """Check the fixture's unit against the tree; return warnings about the two together.

    Raises: SkillTreeInvalid for a skill with ``context: fork``, with no text of its own, with an ambiguous name, or without the reference
    that the fixture names.
    """
    name = fixture.skill_name
    unit = tree.unit(name)
    if unit is None:
        if len(tree.named(name)) > 1:
            listed = ", ".join(found.directory for found in tree.named(name))
            raise SkillTreeInvalid(
                f"the name {name!r} is that of several skills: {listed}",
                where=name,
                hint="name the skill by its folder",
            )
        return (
            Finding(
                "skill-not-staged",
                name,
                "no skill of that name is in the tree: the run can only show that it is absent",
            ),
            *_references(tree, fixture, None),
        )
    where = f"{unit.directory}/SKILL.md"
    if unit.text.forks:
        raise SkillTreeInvalid(
            "the skill says 'context: fork': it runs in a context of its own, where its load cannot be proved yet",
            where=where,
        )
    if not unit.text.fixed_text:
        raise SkillTreeInvalid(
            "the skill's body has no text but placeholders and commands, so nothing on the wire could prove its load",
            where=where,
        )
    if fixture.reference is not None and fixture.reference not in unit.references:
        raise SkillTreeInvalid("the reference under test is not there", where=f"{unit.directory}/{fixture.reference}")
    if fixture.reference is not None and not unit.references[fixture.reference].strip():
        raise SkillTreeInvalid("the reference under test is empty", where=f"{unit.directory}/{fixture.reference}")
    return (*_fit(unit, fixture), *_references(tree, fixture, unit))


def _fit(unit: SkillUnit, fixture: Fixture) -> Iterator[Finding]:
    where = f"{unit.directory}/SKILL.md"
    if fixture.form != "routing" and unit.text.is_false("user-invocable"):
        yield Finding(
            "not-user-invocable",
            where,
            f"the skill says 'user-invocable: false'; the CLI answers /{fixture.skill_name} itself, without a request",
        )
    if fixture.form == "routing" and unit.text.is_true("disable-model-invocation"):
        yield Finding(
            "not-model-invocable",
            where,
            "the skill says 'disable-model-invocation: true'; the model cannot route to it",
        )


def _references(tree: SkillTree, fixture: Fixture, unit: SkillUnit | None) -> Iterator[Finding]:
    paths = {file.path for file in tree.files}
    for path in fixture.references:
        if path in paths:
            continue
        if unit is not None and path.split("/", 1)[0] == unit.directory:
            raise SkillTreeInvalid("a reference that the fixture names is not there", where=path)
        yield Finding("reference-not-staged", path, "a reference that the fixture names is not in the tree")


def _skill(unit: SkillUnit) -> Iterator[tuple[str, str]]:
    text = unit.text
    if unit.raw.startswith(b"\xef\xbb\xbf"):
        yield "byte-order-mark", "the file begins with the bytes EF BB BF; the CLI drops them only before front matter"
    if b"\r\n" in unit.raw:
        line = unit.raw[: unit.raw.index(b"\r\n")].count(b"\n") + 1
        yield "crlf", f"line {line} ends in CR LF (0D 0A); they go to the model as they are"
    yield from _front_matter(unit)
    if not text.text("description").strip():
        yield "no-description", "there is no description; the list of skills shows the body's first line instead"
    if "name" in text.fields and text.text("name") != unit.directory:
        yield (
            "name-differs",
            f"the front matter's name is {text.text('name')!r}, the folder is {unit.directory!r}; the CLI takes either",
        )
    if "�" in text.body:
        yield "not-utf-8", "the body holds bytes that are not UTF-8; the model sees U+FFFD in their place"
    hidden = _HIDDEN.search(text.body)
    if hidden:
        line = text.body[: hidden.start()].count("\n") + 1
        yield (
            "hidden-characters",
            f"line {line} of the body holds U+{ord(hidden[0]):04X}, which people do not see and the model does",
        )
    for command in text.commands:
        yield "runs-command", f"the CLI runs this shell command when it loads the skill: {command}"
    if text.forks:
        yield "context-fork", "the skill runs in a context of its own; as a unit under test it is refused"
    if not text.fixed_text:
        yield "no-fixed-text", "the body has no text of its own; as a unit under test it is refused"


def _front_matter(unit: SkillUnit) -> Iterator[tuple[str, str]]:
    text = unit.text
    shown = unit.raw.decode("utf-8", "replace").removeprefix("\ufeff")
    first = re.match(rf"---({_BLANKS}+?)\r?\n", shown)
    if first and first[1] != "\r":
        yield "blanks-after-dashes", f"blanks stand after the first --- ({_bytes(first[1])})"
    closing = shown[shown.index(text.front) + len(text.front) :] if text.front else ""
    last = re.match(rf"---({_BLANKS}+?)(?:\r?\n|\Z)", closing)
    if last and last[1] != "\r":
        yield "blanks-after-dashes", f"blanks stand after the closing --- ({_bytes(last[1])})"
    if text.state == "unclosed":
        yield "front-matter-unclosed", "the front matter is not closed by ---; the model sees it as text"
    elif text.state == "none":
        late = re.match(r"([^\w#<>`*-]{1,64})---[ \t]*\r?\n", shown)
        why = "there is no front matter"
        if late:
            why = f"there is none, because the file does not begin with --- but with {_bytes(late[1])}"
        yield "no-front-matter", why
    elif text.state == "repaired":
        yield "front-matter-broken", f"it is no YAML ({text.problem}); the CLI mends it as it sees fit"
    keys = re.findall(r"^([A-Za-z][\w-]*)[ \t]*:", text.front, re.MULTILINE)
    for key in sorted({key for key in keys if keys.count(key) > 1}):
        yield "front-matter-twice", f"the key {key!r} stands there twice; which one counts is the CLI's choice"
    if text.front and not text.front.endswith("\n"):
        yield "front-matter-cut", "a --- that does not stand at the start of a line closes it"
    elif re.match(r"---\S", closing):
        yield "front-matter-cut", "text follows on the line of the closing ---; it is part of the body"


def _bytes(text: str) -> str:
    """Return characters as the bytes that an editor finds: ``bytes E2 80 8B``."""
    return f"bytes {text.encode('utf-8').hex(' ').upper()}"


def _shared_names(tree: SkillTree, unit: SkillUnit) -> Iterator[Finding]:
    for name in unit.names:
        others = [other.directory for other in tree.named(name) if other is not unit]
        if others:
            yield Finding(
                "name-shared", f"{unit.directory}/SKILL.md", f"the name {name!r} is also that of {', '.join(others)}"
            )
