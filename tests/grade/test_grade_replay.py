"""``replay`` and ``mutate`` as people use them, with the real Promptfoo: verdicts, exit codes, evaluations, and attempts that do not touch each other."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.cli import run_command
from runner.grade.grading import Grader
from runner.grade.judge_answer import CriterionVote
from runner.grade.judge_verdict import JudgeFault, Judgement
from runner.grade.subject import Subject, load_subject
from runner.profile import PROFILES
from sandbox.process import Host
from tests.grade.conftest import ANSWER, RUBRIC, Remade, Saved

SAMPLE = Path(__file__).parent / "samples" / "version-1.attempt"
HEAD = "from profiles._types import Check, Diagnostic\n\n\ndef validate(fixture):\n    pass\n\n\ndef check_output(fixture, output, context):\n    "
THIRD = (
    HEAD
    + "return [Check('third', 'unresolved' in output and context['skill_state'] == 'ran', 'from a third profile')]\n"
)


@pytest.fixture
def third(tmp_path: Path) -> Path:
    """A profiles folder with one profile that nothing else knows of."""
    folder = tmp_path / "profiles"
    folder.mkdir()
    (folder / "third_profile.py").write_text(THIRD)
    return folder


def replay(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, Any]]:
    code = run_command(["replay", "--json", *map(str, arguments)])
    answer = json.loads(capsys.readouterr().out)
    assert answer["exit_code"] == code
    return code, answer


def test_a_saved_attempt_is_regraded(saved: Saved, remade: Remade, capsys: pytest.CaptureFixture[str]) -> None:
    """A measured attempt passes with named checks; each replay writes a new evaluation beside the earlier ones and leaves the attempt alone."""
    path = remade(number=1)
    before = path.read_bytes()
    code, answer = replay(capsys, path)
    assert code == 0
    assert answer["command"] == "replay"
    assert answer["summary"] == {"passed": 1, "measured": 1, "started": 1}
    (row,) = answer["attempts"]
    assert [check["id"] for check in row["checks"]] == ["role-preserved", "account-unresolved", "no-invented-access"]
    assert row["toolchain"]["promptfoo"]["version"] == "0.123.1"
    assert row["call_quality"] == {"status": "clean"}
    assert row["not_judged"] == ["kept"]
    assert replay(capsys, path)[0] == 0
    evaluations = sorted(path.parent.glob("*.evaluation.json"))
    assert [file.name.split(".")[1] for file in evaluations] == ["0001", "0002"]
    first, second = (json.loads(file.read_text()) for file in evaluations)
    assert first == second, "the same inputs give the same evaluation"
    assert (first["attempt"], first["verdict"], first["effort"]["tool_calls"]) == (row["id"], "pass", 2)
    assert path.read_bytes() == before


def test_a_negative_control_fails_by_name(saved: Saved, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The mutated copy exits 1 and names the intended check; the parent's judgement does not count for it."""
    control = tmp_path / "control.attempt"
    made = run_command(
        [
            "mutate",
            str(saved.measured),
            "--replace",
            "auditor=operator",
            "--reason",
            "Remove the required role",
            "-o",
            str(control),
        ]
    )
    assert made == 0
    capsys.readouterr()
    code, answer = replay(capsys, control)
    assert code == 1
    (row,) = answer["attempts"]
    assert {check["id"]: check["met"] for check in row["checks"]}["role-preserved"] is False
    assert row["verdict"] == "fail"
    assert row["negative_control"]["reason"] == "Remove the required role"
    assert run_command(["verify", str(control)]) == 0
    capsys.readouterr()


def test_mutate_refuses_what_it_cannot_prove(
    saved: Saved, remade: Remade, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No control is made of an attempt in error, of one with broken provenance, of version 1, or by a replacement that is none."""
    for attempt, pair in (
        (saved.errored, "auditor=x"),
        (remade(parts={"evidence.json": None}), "auditor=x"),
        (SAMPLE, "auditor=x"),
        (saved.measured, "auditor"),
        (saved.measured, "=x"),
    ):
        assert (
            run_command(["mutate", str(attempt), "--replace", pair, "--reason", "r", "-o", str(tmp_path / "n.attempt")])
            == 2
        )
    assert not (tmp_path / "n.attempt").exists()
    capsys.readouterr()


def test_version_1_is_regraded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The hand-written sample of version 1 passes; its checks are those of the profile artifact."""
    path = Path(shutil.copy(SAMPLE, tmp_path))
    code, answer = replay(capsys, path)
    assert code == 0
    (row,) = answer["attempts"]
    assert [check["id"] for check in row["checks"]] == ["output-present"]
    assert row["effort"]["duration_s"] is None


def test_a_third_profile_needs_no_edit_of_the_runner(
    remade: Remade, third: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A profile that a test writes into a folder grades an attempt that names it (B15)."""
    code, answer = replay(capsys, "--profiles", third, remade(fixture={"profile": "third-profile"}))
    assert code == 0
    assert [check["id"] for check in answer["attempts"][0]["checks"]] == ["third"]


BAD: dict[str, tuple[str, str]] = {
    "empty": ("return []", "returned no checks"),
    "raising": ("raise RuntimeError('broken')", "broken"),
    "looping": ("while True: pass", "too slow"),
    "writing": ("open('/scratch/x', 'w'); return []", "opened a file for writing"),
    "dialling": ("import socket; socket.socket(); return []", "socket"),
    "forking": ("import os; os.fork(); return []", "os.fork"),
    "doubling": ("return [Check('a', True, 'x'), Check('a', True, 'x')]", "two results have the id"),
    "vague": ("return [Check('a', 'yes', 'x')]", "not a boolean"),
    "contradicting": (
        "return [Check('a', True, 'x')]\n\n\ndef diagnose(fixture, output, context):\n"
        "    return [Diagnostic('d', 'uncertain-write', 'failure', 'x')]",
        "is a failure, and yet every check is met",
    ),
    "misdiagnosing": (
        "return [Check('a', True, 'x')]\n\n\ndef diagnose(fixture, output, context):\n"
        "    return [Diagnostic('d', 'uncertain-write', 'info', 'x', (4,))]",
        "no index into a trace",
    ),
    "unknown": ("", "there is no profile"),
}


def test_a_bad_profile_costs_its_own_attempt(remade: Remade, third: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Among attempts of bad profiles, a damaged file and one that is missing, the others pass; every error says its reason; the whole exits 2."""
    for name, (body, _) in BAD.items():
        if body:
            (third / f"{name}.py").write_text(f"{HEAD}{body}\n")
    good = [remade(fixture={"profile": "third-profile"}, number=number) for number in range(2)]
    bad = [remade(fixture={"profile": name}) for name in BAD]
    damaged = Path(shutil.copy(good[0], good[0].with_name("damaged.attempt")))
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    gone = good[0].with_name("gone.attempt")
    code, answer = replay(capsys, "--profiles", third, good[0], *bad, damaged, gone, good[1])
    assert code == 2
    rows = answer["attempts"]
    assert [row["verdict"] for row in rows] == ["pass", *["error"] * (len(bad) + 2), "pass"]
    assert answer["summary"] == {"passed": 2, "measured": 2, "started": len(bad) + 4}
    for row, (_, reason) in zip(rows[1:], BAD.values(), strict=False):
        assert reason in row["outcome"]["message"], row["outcome"]
        assert row["outcome"]["code"] in ("grader-error", "profile-unknown")
    assert [row["outcome"]["code"] for row in rows[-3:-1]] == ["integrity", "input-missing"]


def test_an_attempt_in_error_stays_one(saved: Saved, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """An errored attempt keeps its code, is never given to a check, and its evaluation says so."""
    path = Path(shutil.copy(saved.errored, tmp_path))
    code, answer = replay(capsys, path)
    assert code == 2
    (row,) = answer["attempts"]
    assert (row["verdict"], row["outcome"]["code"], row["checks"]) == ("error", "skill-absent", [])
    assert row["unscored_output"] == ANSWER
    (evaluation,) = tmp_path.glob("*.evaluation.json")
    assert json.loads(evaluation.read_text())["error"]["code"] == "skill-absent"


def test_the_rubric_can_be_required(remade: Remade, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """With --require-rubric an attempt that no judge decided is an error; --no-save and --out leave nothing beside it."""
    path = remade(number=2)
    code, answer = replay(capsys, "--require-rubric", "--no-save", path)
    assert code == 2
    assert answer["attempts"][0]["outcome"]["code"] == "not-judged"
    assert answer["attempts"][0]["checks"], "what was found before is told all the same"
    out = tmp_path / "out"
    out.mkdir()
    assert replay(capsys, "--out", out, path)[0] == 0
    assert len(list(out.glob("*.evaluation.json"))) == 1
    assert not list(path.parent.glob("*.evaluation.json"))


def test_a_directory_stands_for_its_attempts(
    remade: Remade, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A directory is all workers' attempts that lie in it; one without any is refused."""
    remade(number=3)
    remade(number=4)
    code, answer = replay(capsys, remade.directory)
    assert code == 0
    assert answer["summary"]["started"] == 2
    (tmp_path / "empty").mkdir()
    assert run_command(["replay", str(tmp_path / "empty")]) == 2
    capsys.readouterr()


class Judges:
    """Judgements as a test wants them."""

    def __init__(self) -> None:
        self.given: list[Judgement] = []

    def find(self, directory: Path, subject: Subject, output: bytes) -> list[Judgement]:
        """Return what was given."""
        return self.given


@pytest.fixture(scope="module")
def judges() -> Judges:
    """The judges of the module's judged grader."""
    return Judges()


@pytest.fixture(scope="module")
def judged(host: Host, cache_root: Path, judges: Judges) -> Iterator[Grader]:
    """A grader that asks ``judges``."""
    with Grader(host, cache_root=cache_root, judgements=judges.find) as made:
        yield made


def vote(met: bool | None, number: int = 1) -> Judgement:
    base = Judgement(
        "a" * 64,
        "b" * 64,
        number,
        "sonnet",
        (CriterionVote("kept", True, "it does"),),
        judge_attempt_id=f"{number}" * 64,
    )
    if met is None:
        return replace(base, criteria=(), error=JudgeFault("not-json", "the answer is prose"))
    return replace(base, criteria=(CriterionVote("kept", met, "why"),))


@pytest.mark.parametrize(
    ("votes", "verdict", "code"),
    [
        ([vote(True)], "pass", None),
        ([vote(False)], "fail", None),
        ([vote(True), vote(True, 2)], "pass", None),
        ([vote(None)], "error", "judge-error"),
        ([vote(True), vote(None, 2)], "error", "judge-error"),
        ([vote(True), vote(False, 2)], "error", "judge-error"),
        ([replace(vote(True), criteria=(CriterionVote("other", True, "y"),))], "error", "not-judged"),
    ],
)
def test_judged_criteria_decide_too(
    saved: Saved, judged: Grader, judges: Judges, votes: list[Judgement], verdict: str, code: str | None
) -> None:
    """A criterion that is not met is a fail; a judge's fault, a disagreement or another rubric is an error and never a fail (G01, G03)."""
    judges.given = votes
    evaluation = judged.grade(load_subject(saved.measured))
    assert evaluation.verdict == verdict
    assert (None if evaluation.error is None else evaluation.error.code) == code
    if code is None:
        assert [criterion.id for criterion in evaluation.criteria] == [RUBRIC[0]["id"]]
        assert evaluation.not_judged == ()
        assert evaluation.inputs.judges == tuple(f"{one.vote}" * 64 for one in votes)


def test_missing_tools_are_never_a_skip(
    saved: Saved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the grading tools replay exits 2 with a code and a hint, and writes no evaluation."""
    path = Path(shutil.copy(saved.measured, tmp_path))
    monkeypatch.setenv("HERMEVAL_CACHE", str(tmp_path / "nothing"))
    code, answer = replay(capsys, path)
    assert code == 2
    assert answer["error"]["code"] == "toolchain-missing"
    assert not list(tmp_path.glob("*.evaluation.json"))


def test_tools_altered_by_one_byte_are_refused(
    saved: Saved, cache_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copy of the grading tools is accepted by its hash; with one byte of one file altered in place, whatever its times, replay exits 2 with both hashes."""
    path = Path(shutil.copy(saved.measured, tmp_path))
    (tree,) = cache_root.glob("grader-*")
    copy = tmp_path / "cache" / tree.name
    shutil.copytree(tree, copy, symlinks=True)
    for directory in (tmp_path / "cache", *tmp_path.parents[:2], tmp_path):
        directory.chmod(0o755)
    monkeypatch.setenv("HERMEVAL_CACHE", str(tmp_path / "cache"))
    assert replay(capsys, path)[0] == 0
    target = copy / "node_modules" / "promptfoo" / "dist" / "src" / "index.js"
    before = target.stat()
    with target.open("r+b") as file:
        file.seek(before.st_size // 2)
        byte = file.read(1)
        file.seek(before.st_size // 2)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
    code, answer = replay(capsys, path)
    assert code == 2
    assert answer["error"]["code"] == "toolchain-mismatch"
    assert answer["error"]["message"].count("sha256-") == 2
    assert len(list(tmp_path.glob("*.evaluation.json"))) == 1
    assert PROFILES.is_dir()
