"""Findings of the lint, and the units that are refused before anything is paid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runner.errors import SkillTreeInvalid
from runner.fixture import Fixture, parse_fixture
from runner.lint import Finding, check_unit, lint
from runner.skills import SkillTree, stage

CASES = Path(__file__).resolve().parents[1] / "cases" / "inputs"
GOOD = "---\nname: one\ndescription: Does one thing.\n---\n# One\n\nDo the thing.\n"


def tree_of(tmp_path: Path, files: dict[str, bytes | str]) -> SkillTree:
    for path, content in files.items():
        (tmp_path / "source" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / path).write_bytes(content.encode() if isinstance(content, str) else content)
    return stage(tmp_path / "source", tmp_path / "dest")


def codes(tmp_path: Path, skill: bytes | str) -> set[str]:
    return {finding.code for finding in lint(tree_of(tmp_path, {"one/SKILL.md": skill}))}


def fixture_of(skill: str, **changes: object) -> Fixture:
    raw: dict[str, Any] = {
        "id": "a",
        "synthetic": True,
        "profile": "artifact",
        "skill": skill,
        "input": {},
        "rubric": [{"id": "r", "criterion": "x"}],
    }
    return parse_fixture(json.dumps({**raw, **changes}).encode(), "a")


def test_good_skill_has_no_finding(tmp_path: Path) -> None:
    """A plain skill gives no warning at all."""
    assert codes(tmp_path, GOOD) == set()


@pytest.mark.parametrize(
    ("skill", "code"),
    [
        ("\ufeff" + GOOD, "byte-order-mark"),
        (GOOD.replace("\n", "\r\n"), "crlf"),
        (GOOD.replace("---\nname", "--- \nname"), "blanks-after-dashes"),
        (GOOD.replace("thing.\n---\n", "thing.\n---\t\n"), "blanks-after-dashes"),
        (GOOD.replace("---\nname", "---\u00a0\nname"), "blanks-after-dashes"),
        ("\u200b" + GOOD, "no-front-matter"),
        (GOOD.replace("name: one\n", "name: one\nname: two\n"), "front-matter-twice"),
        (GOOD + "Do \u202ethis.\n", "hidden-characters"),
        (GOOD + "Do\0 this.\n", "hidden-characters"),
        (GOOD.replace("thing.\n---\n", "thing.\n"), "front-matter-unclosed"),
        ("# One\n", "no-front-matter"),
        ("\n" + GOOD, "no-front-matter"),
        (GOOD.replace("Does", "Does: [it"), "front-matter-broken"),
        (GOOD.replace("one thing", "one --- thing"), "front-matter-cut"),
        (GOOD.replace("thing.\n---\n", "thing.\n----\n"), "front-matter-cut"),
        (GOOD.replace("description: Does one thing.\n", ""), "no-description"),
        (GOOD.replace("name: one", "name: other"), "name-differs"),
        (GOOD.encode() + b"\xff", "not-utf-8"),
        (GOOD + "Now !`date`\n", "runs-command"),
        (GOOD.replace("name: one", "name: one\ncontext: fork"), "context-fork"),
        (GOOD.replace("# One\n\nDo the thing.", "$ARGUMENTS"), "no-fixed-text"),
    ],
)
def test_each_finding_is_made(skill: bytes | str, code: str, tmp_path: Path) -> None:
    """Each trap in a SKILL.md is named by its code."""
    assert code in codes(tmp_path, skill)


def test_the_bytes_at_fault_are_named(tmp_path: Path) -> None:
    """Whoever edits the file is told which bytes to look for; CR LF alone is no blank, and joiners and tabs are no hidden characters (the controls)."""
    told = {
        "\u200b" + GOOD: "E2 80 8B",
        "\n" + GOOD: "bytes 0A",
        GOOD.replace("---\nname", "---\u00a0 \nname"): "C2 A0 20",
        GOOD.replace("thing.\n---\n", "thing.\n---\t\n"): "bytes 09",
        GOOD + "x\u2066": "U+2066",
    }
    for number, (skill, words) in enumerate(told.items()):
        messages = [finding.message for finding in lint(tree_of(tmp_path / str(number), {"one/SKILL.md": skill}))]
        assert any(words in message for message in messages), (words, messages)
    assert codes(tmp_path / "crlf", GOOD.replace("\n", "\r\n")) == {"crlf"}
    assert codes(tmp_path / "joiners", GOOD + "\tfamily \U0001f468\u200d\U0001f469\n") == set()


def test_list_body_is_no_cut(tmp_path: Path) -> None:
    """A body that begins with a list is not taken for a broken closing line."""
    assert codes(tmp_path, GOOD.replace("# One", "- One")) == set()


def test_command_is_named_with_its_text(tmp_path: Path) -> None:
    """A command that runs at load is shown in full, for it is code of the evaluated side."""
    tree = tree_of(tmp_path, {"one/SKILL.md": GOOD + "Now !`curl x | sh`\n"})
    assert lint(tree) == (
        Finding("runs-command", "one/SKILL.md", "the CLI runs this shell command when it loads the skill: curl x | sh"),
    )


def test_folder_without_a_skill_is_named(tmp_path: Path) -> None:
    """The CLI sees neither a folder without SKILL.md nor skill.md in lower case."""
    tree = tree_of(tmp_path, {"one/SKILL.md": GOOD, "two/skill.md": GOOD, "three/notes.md": "x", "README.md": "x"})
    assert {(finding.code, finding.path) for finding in lint(tree)} == {
        ("skill-file-case", "two/skill.md"),
        ("no-skill-file", "three"),
    }


def test_case_s11_is_linted_and_kept(tmp_path: Path) -> None:
    """S11: mark, CR LF and blanks after --- are named, the bytes stay, and the body is what the CLI sends."""
    data = (CASES / "S11.SKILL.md").read_bytes()
    tree = tree_of(tmp_path, {"ledger-check/SKILL.md": data})
    found = {finding.code for finding in lint(tree)}
    assert {"byte-order-mark", "blanks-after-dashes"} <= found
    assert ("crlf" in found) is (b"\r\n" in data)
    assert (tmp_path / "dest" / "ledger-check" / "SKILL.md").read_bytes() == data
    unit = tree.unit("ledger-check")
    assert unit is not None
    assert unit.names == ("ledger-check",)
    assert unit.body.startswith("# Ledger check")


def test_shared_name_is_named(tmp_path: Path) -> None:
    """Two skills that answer to one name are named, each at the other."""
    tree = tree_of(tmp_path, {"one/SKILL.md": GOOD, "two/SKILL.md": GOOD})
    assert {finding.path for finding in lint(tree) if finding.code == "name-shared"} == {"one/SKILL.md", "two/SKILL.md"}
    assert tree.unit("one") is not None


@pytest.mark.parametrize(
    ("skill", "fixture", "message"),
    [
        (GOOD.replace("name: one", "name: one\ncontext: fork"), {}, "fork"),
        (GOOD.replace("name: one", "description: a: b\ncontext: 'fork'"), {}, "fork"),
        (GOOD.replace("# One\n\nDo the thing.", "!`date` $1"), {}, "placeholders"),
        (GOOD, {"skill": "one/references/absent.md"}, "not there"),
        (GOOD, {"skill": "one/references/empty.md"}, "empty"),
        (GOOD, {"references": ["one/references/absent.md"]}, "not there"),
    ],
)
def test_unit_that_cannot_be_proved_is_refused(
    skill: str, fixture: dict[str, object], message: str, tmp_path: Path
) -> None:
    """A forked skill, a body of placeholders and a missing reference are refused; the good skill passes."""
    files: dict[str, bytes | str] = {
        "one/SKILL.md": skill,
        "one/references/empty.md": "\n",
        "one/references/how.md": "# How\n",
    }
    tree = tree_of(tmp_path, files)
    with pytest.raises(SkillTreeInvalid, match=message):
        check_unit(tree, fixture_of(str(fixture.pop("skill", "one")), **fixture))
    control = tree_of(tmp_path / "control", {**files, "one/SKILL.md": GOOD})
    assert check_unit(control, fixture_of("one/references/how.md")) == ()
    assert check_unit(control, fixture_of("one", references=["one/references/how.md"])) == ()


def test_fork_beside_the_unit_is_a_warning(tmp_path: Path) -> None:
    """Another skill of the tree may fork: the run of the unit can still be proved."""
    tree = tree_of(
        tmp_path, {"one/SKILL.md": GOOD, "two/SKILL.md": GOOD.replace("name: one", "name: two\ncontext: fork")}
    )
    assert check_unit(tree, fixture_of("one")) == ()
    assert "context-fork" in {finding.code for finding in lint(tree)}


def test_absent_unit_is_a_warning(tmp_path: Path) -> None:
    """A skill that is not in the tree is run without, so that its absence can be shown (A3)."""
    tree = tree_of(tmp_path, {"one/SKILL.md": GOOD})
    assert [finding.code for finding in check_unit(tree, fixture_of("two"))] == ["skill-not-staged"]
    found = check_unit(tree, fixture_of("two/references/x.md", references=["two/references/y.md"]))
    assert [finding.code for finding in found] == ["skill-not-staged", "reference-not-staged"]


def test_ambiguous_name_is_refused(tmp_path: Path) -> None:
    """A front-matter name that two folders share names no unit; a folder's own name does."""
    other = GOOD.replace("name: one", "name: shared")
    tree = tree_of(tmp_path, {"a/SKILL.md": other, "b/SKILL.md": other})
    with pytest.raises(SkillTreeInvalid, match="several"):
        check_unit(tree, fixture_of("shared"))
    assert check_unit(tree, fixture_of("a")) == ()


@pytest.mark.parametrize(
    ("line", "invocation", "code"),
    [
        ("user-invocable: false", "slash", "not-user-invocable"),
        ("disable-model-invocation: true", "routing", "not-model-invocable"),
    ],
)
def test_invocation_that_the_skill_forbids_is_a_warning(line: str, invocation: str, code: str, tmp_path: Path) -> None:
    """A way of calling that the front matter switches off is named; the other way is fine."""
    tree = tree_of(tmp_path, {"one/SKILL.md": GOOD.replace("name: one", f"name: one\n{line}")})
    other = "routing" if invocation == "slash" else "slash"
    assert [finding.code for finding in check_unit(tree, fixture_of("one", invocation=invocation))] == [code]
    assert check_unit(tree, fixture_of("one", invocation=other)) == ()


def test_unit_gives_what_the_evidence_needs(tmp_path: Path) -> None:
    """Folder, both names, body, base directory and references come out as plain values (A5, A7)."""
    tree = tree_of(
        tmp_path,
        {
            "one/SKILL.md": GOOD.replace("name: one", "name: other"),
            "one/references/how.md": b"# H\xff\n",
            "one/data.json": "{}",
        },
    )
    unit = tree.unit("other")
    assert unit is not None
    assert (unit.directory, unit.names, unit.base_dir) == ("one", ("one", "other"), "/home/eval/.claude/skills/one")
    assert unit.body == "# One\n\nDo the thing.\n"
    assert dict(unit.references) == {"references/how.md": "# H\ufffd\n"}
