"""One byte of an attempt is another, and everything that stands for it was made to agree, as a forger with our tools would: still never a match, and the difference is named (issue 3, acceptance 4)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runner.assess import stored_plan
from runner.bundle.reader import Attempt, open_attempt
from runner.canonical import canonical_json
from runner.replan import replan
from runner.reproduce import write_tree
from runner.skills import manifest, read_tree
from tests.reproduce.conftest import edit_exchange, edit_json, rewrite
from tests.run.conftest import Place, replies, text


@dataclass(frozen=True)
class Change:
    """What was altered, and what must be said of it."""

    make: Callable[[dict[str, Attempt], Path], Path]
    place: str
    """Where the first difference lies; the error's code where nothing was compared."""
    told: tuple[str, ...] = ()
    """Words of what is said."""
    differs: bool = True
    """Whether it was compared (exit 1) or refused (exit 2)."""


def agreeing(attempt: Attempt, folder: Path, part: str, old: bytes, new: bytes) -> Path:
    """Alter a part, and make digests, skill tree and plan anew from what is there then."""
    assert old in attempt.part(part)
    changed = open_attempt(rewrite(attempt, folder / "first", parts={part: attempt.part(part).replace(old, new)}))
    staged = folder / "staged"
    write_tree(changed, staged)
    plan = stored_plan(changed)
    tree = read_tree(staged, recipes=plan.skills.recipes)
    listed = {"schema_version": 1, "digest": tree.digest, "files": manifest(tree.files)}
    again = replan(changed, plan, tree, None)
    assert again is not None
    return rewrite(
        changed,
        folder / "second",
        parts={"plan.json": again.canonical(), "skill-tree.json": canonical_json(listed)},
    )


def other_tool(name: str) -> Callable[[dict[str, Attempt], Path], Path]:
    """Say in every record that another version of a tool ran."""

    def alter(record: dict[str, Any]) -> None:
        record["agent"][name]["version"] += ".1"

    def make(given: dict[str, Attempt], folder: Path) -> Path:
        attempt = given["bash"]
        plan = edit_json(attempt, "plan.json", lambda value: alter(value["toolchain"]))
        return rewrite(attempt, folder, parts=edit_json(attempt, "toolchain.json", alter) | plan)

    return make


def without(name: str, *numbers: int) -> Callable[[dict[str, Attempt], Path], Path]:
    """Leave inference exchanges out, by their place."""

    def make(given: dict[str, Attempt], folder: Path) -> Path:
        gone = [one for one in given[name].exchanges() if one.kind == "inference"]
        left_out = {gone[number - 1].seq for number in numbers}
        return rewrite(
            given[name], folder, exchanges=lambda all_: tuple(one for one in all_ if one.seq not in left_out)
        )

    return make


def swapped(given: dict[str, Attempt], folder: Path) -> Path:
    """Give each of two requests the other's answer."""
    attempt = given["bash"]
    first, second = (one for one in attempt.exchanges() if one.kind == "inference")
    once = edit_exchange(1, response=second.response)
    return rewrite(attempt, folder, exchanges=lambda all_: edit_exchange(2, response=first.response)(once(all_)))


CHANGES = {
    "skill": Change(
        lambda given, folder: agreeing(given["bash"], folder, "skill-tree/workflow/SKILL.md", b"# Work", b"# Wort"),
        "request",
        ("# Work", "# Wort", "/messages"),
    ),
    "prompt": Change(
        lambda given, folder: agreeing(given["bash"], folder, "fixture.json", b"auditor", b"auditos"),
        "request",
        ("auditor", "auditos", "/messages"),
    ),
    "cli-version": Change(
        other_tool("claude"), "toolchain-mismatch", ("claude: recorded", ".1 sha256-"), differs=False
    ),
    "node-version": Change(other_tool("node"), "toolchain-mismatch", ("node: recorded", ".1 sha256-"), differs=False),
    "answers-swapped": Change(swapped, "requests"),
    "first-missing": Change(without("bash", 1), "request", ("no recorded exchange has this body",)),
    "asked-twice-kept-once": Change(without("retried", 2), "request", ("was served already",)),
    "none": Change(without("bash", 1, 2), "no-exchanges", ("no exchanges",), differs=False),
}


@pytest.fixture(scope="module")
def given(recorded: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Attempt]:
    """Attempts to alter: one with a tool call, and one whose first request was made twice, since its first answer was an error."""
    base = tmp_path_factory.mktemp("retried")
    site = Place(base / "fixtures", base / "attempts")
    for name in ("scripts", "skills", "recipes"):
        (site.folder / name).mkdir(parents=True)
    site.skill("workflow")
    busy = {"error": {"status": 529, "type": "overloaded_error", "message": "busy"}}
    site.case("retried", replies(busy, text()), invocation="slash")
    made = site.run("retried")
    assert made.code == 0, made.stderr
    return {"bash": open_attempt(recorded["bash"]), "retried": open_attempt(Path(made.row["path"]))}


@pytest.fixture(scope="module")
def rows(given: dict[str, Attempt], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What one ``reproduce`` says of each altered attempt, and of the two that were not."""
    folder = tmp_path_factory.mktemp("altered")
    paths = {name: change.make(given, folder / name) for name, change in CHANGES.items()}
    paths |= {f"whole-{name}": attempt.path for name, attempt in given.items()}
    elsewhere = edit_json(given["retried"], "observations.json", lambda seen: seen.update(kernel="5.0-elsewhere"))
    paths["elsewhere"] = rewrite(given["retried"], folder / "elsewhere", parts=elsewhere)
    answer = Place(folder, folder).hermeval("reproduce", "--json", *map(str, paths.values()))
    assert answer.code == 2
    found = {row["path"]: row for row in answer.object["results"]}
    return {name: found[str(path)] for name, path in paths.items()}


@pytest.mark.parametrize("name", CHANGES)
def test_one_change_that_agrees_with_itself_is_never_a_match(name: str, rows: dict[str, dict[str, Any]]) -> None:
    """It is refused, or diverges, and the place and both sides of the first difference are told."""
    change, row = CHANGES[name], rows[name]
    if change.differs:
        assert (row["verdict"], row["first_difference"]["place"]) == ("diverged", change.place), row
    else:
        assert (row["verdict"], row["error"]["code"]) == ("error", change.place), row
    told = json.dumps(row["first_difference"] if change.differs else row["error"])
    assert [word for word in change.told if word not in told] == [], told


@pytest.mark.parametrize("name", ["bash", "retried"])
def test_what_was_not_altered_is_a_match(name: str, rows: dict[str, dict[str, Any]]) -> None:
    """The attempts that were altered come back when they are not."""
    row = rows[f"whole-{name}"]
    assert row["verdict"] in ("exact", "normalised")
    assert row["claims"]["requests"] == row["verdict"]
    assert row["drift"] == []


def test_another_kernel_is_drift_and_no_difference(rows: dict[str, dict[str, Any]]) -> None:
    """An attempt that was recorded on another kernel is a match, and says so apart."""
    row = rows["elsewhere"]
    assert row["verdict"] in ("exact", "normalised")
    assert [drift.partition(",")[0] for drift in row["drift"]] == ["kernel: recorded 5.0-elsewhere"]
