"""Claims on an attempt file, and the commands that print them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

import runner.cli.verify as verify_module
from runner.assess import assess_attempt, follows
from runner.bundle import Attempt, AttemptContent, open_attempt, write_attempt
from runner.bundle.claims import CLAIMS, Status, Verification, verify_attempt
from runner.canonical import sha256_hex
from runner.cli import run_command
from runner.errors import BundleCorrupt

_ROOT = Path(__file__).resolve().parents[2]


_FOR_A_RUN = dict.fromkeys(("grades", "requests", "results"), "unknown")
"""What no file can show by itself."""


def _claims(result: Verification) -> dict[str, str]:
    return {claim.name: claim.status for claim in result.claims}


@pytest.fixture
def path(tmp_path: Path, content: Callable[..., AttemptContent]) -> Path:
    """Return a whole attempt's path."""
    return write_attempt(tmp_path, content())


@pytest.mark.parametrize("status", ["held", "broken", "unknown"])
def test_each_claim_is_a_statement_of_its_own(path: Path, status: Status) -> None:
    """Toolchain and evidence are what the given functions say; the rest holds; only a broken claim gives 2."""

    def compare(record: object) -> tuple[Status, str]:
        assert record == {"system": "x86_64-linux"}
        return status, "compared"

    def recheck(attempt: Attempt) -> Status:
        assert attempt.exchanges()
        return status

    def check_records(attempt: Attempt) -> tuple[Status, str]:
        return status, "agree"

    def check_signature(named: Path, attempt_id: str | None) -> tuple[Status, str]:
        assert (named, attempt_id) == (path, open_attempt(path).id)
        return status, "signed"

    result = verify_attempt(
        path,
        compare_toolchain=compare,
        recheck=recheck,
        check_records=check_records,
        check_trace=check_records,
        check_signature=check_signature,
    )
    assert [claim.name for claim in result.claims] == list(CLAIMS)
    assert _claims(result) == dict.fromkeys(CLAIMS, "held") | _FOR_A_RUN | {
        "toolchain": status,
        "evidence": status,
        "records": status,
        "trace": status,
        "signature": status,
    }
    assert result.exit_code == (2 if status == "broken" else 0)
    assert result.attempt_id == open_attempt(path).id


def test_what_cannot_be_checked_is_unknown_and_not_broken(path: Path) -> None:
    """Without anything to compare with, toolchain and evidence are unknown, and the exit code is 0."""
    result = verify_attempt(path, compare_toolchain=None, recheck=None)
    assert (_claims(result)["toolchain"], _claims(result)["evidence"], result.exit_code) == ("unknown", "unknown", 0)


def test_a_damaged_file_is_not_intact_and_gives_no_evidence_for_the_rest(path: Path) -> None:
    """One flipped bit: intact is broken and names the part, everything else is unknown, the exit code is 2."""
    data = bytearray(path.read_bytes())
    data[open_attempt(path)._places["transcript.jsonl"].offset + 50] ^= 4
    path.write_bytes(data)
    result = verify_attempt(path, compare_toolchain=None, recheck=None)
    assert _claims(result) == dict.fromkeys(CLAIMS, "unknown") | {"intact": "broken"}
    assert "part transcript.jsonl" in result.claims[0].reason
    assert (result.attempt_id, result.exit_code) == (None, 2)


def test_a_plan_that_is_not_the_one_named_breaks_that_claim_alone(path: Path, pieces: Any) -> None:
    """A file put together with right digests but another plan digest is intact, and its plan is broken."""
    pieces.set_manifest(pieces.manifest() | {"plan_sha256": "0" * 64})
    path.write_bytes(pieces.data())
    result = verify_attempt(path, compare_toolchain=None, recheck=None)
    assert (_claims(result)["intact"], _claims(result)["plan"], result.exit_code) == ("held", "broken", 2)


def test_exchanges_that_cannot_be_read_break_the_format(path: Path, pieces: Any) -> None:
    """A file whose index of exchanges does not follow its schema is intact, and its format is broken."""
    manifest, forged = pieces.manifest(), b'{"schema_version":1}'
    at = next(number for number, part in enumerate(manifest["parts"]) if part["name"] == "exchanges.json")
    manifest["parts"][at] |= {"bytes": len(forged), "sha256": sha256_hex(forged)}
    pieces.set_manifest(manifest)
    pieces.frames[1 + at] = zstandard.ZstdCompressor().compress(forged)
    path.write_bytes(pieces.data())
    result = verify_attempt(path, compare_toolchain=None, recheck=None)
    assert (_claims(result)["intact"], _claims(result)["format"], result.exit_code) == ("held", "broken", 2)


def test_an_unsupported_version_and_a_missing_file_give_2(path: Path, pieces: Any) -> None:
    """Another format version breaks the format claim; a missing file breaks none and is an error all the same."""
    pieces.set_manifest(pieces.manifest() | {"format_version": 9})
    path.write_bytes(pieces.data())
    result = verify_attempt(path, compare_toolchain=None, recheck=None)
    assert (_claims(result), result.exit_code) == (dict.fromkeys(CLAIMS, "unknown") | {"format": "broken"}, 2)
    result = verify_attempt(path.with_name("none.attempt"), compare_toolchain=None, recheck=None)
    assert (_claims(result), result.exit_code) == (dict.fromkeys(CLAIMS, "unknown"), 2)
    assert result.error is not None
    assert result.error.code == "input-missing"


def test_a_part_that_breaks_while_the_outcome_is_recomputed_breaks_the_evidence(path: Path) -> None:
    """A recheck that meets damage breaks its claim and does not end the command."""

    def recheck(attempt: Attempt) -> Status:
        raise BundleCorrupt("gone", where="part output.txt")

    assert _claims(verify_attempt(path, compare_toolchain=None, recheck=recheck))["evidence"] == "broken"


def test_verify_prints_one_line_a_claim(
    tmp_path: Path,
    content: Callable[..., AttemptContent],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """People get the file and a line a claim on stdout; the evidence claim is what the plugged-in recheck says."""
    parts = {name: data for name, data in content().parts.items() if name != "toolchain.json"}
    path = write_attempt(tmp_path, content(parts=parts))
    statuses: list[Status] = ["held", "broken"]
    for status in statuses:
        monkeypatch.setattr(verify_module, "RECHECK", lambda attempt, answer=status: answer)
        monkeypatch.setattr(verify_module, "CHECK_RECORDS", lambda attempt: ("held", "agree"))
        assert run_command(["verify", str(path)]) == (0 if status == "held" else 2)
        lines = capsys.readouterr().out.splitlines()
        assert str(path) in lines[0]
        unknown = dict.fromkeys(("toolchain", "trace", "signature"), "unknown")
        held = dict.fromkeys(CLAIMS, "held") | _FOR_A_RUN | unknown | {"evidence": status}
        assert [tuple(line.split()[:2]) for line in lines[1:]] == list(held.items())


def test_verify_json_names_every_file(
    tmp_path: Path, content: Callable[..., AttemptContent], capsys: pytest.CaptureFixture[str]
) -> None:
    """The JSON object has a result for each file, a missing one included; its text goes to stderr."""
    parts = {name: data for name, data in content().parts.items() if name not in ("toolchain.json", "evidence.json")}
    path = write_attempt(tmp_path, content(parts=parts))
    missing = tmp_path / "none\x1b[2J.attempt"
    assert run_command(["verify", "--json", str(path), str(missing)]) == 2
    captured = capsys.readouterr()
    answer = json.loads(captured.out)
    assert (answer["schema_version"], answer["command"], answer["exit_code"]) == (1, "verify", 2)
    held, gone = answer["results"]
    assert held["id"] == open_attempt(path).id
    assert held["claims"] == {
        "intact": "held",
        "format": "held",
        "plan": "held",
        "toolchain": "unknown",
        "evidence": "unknown",
        "records": "unknown",
        "trace": "unknown",
        "signature": "unknown",
        **_FOR_A_RUN,
    }
    assert (gone["id"], gone["path"], gone["error"]["code"]) == (None, str(missing), "input-missing")
    assert set(gone["claims"].values()) == {"unknown"}
    assert "\x1b" not in captured.err
    assert "input-missing" in captured.err
    assert run_command(["verify", "--json", str(path)]) == 0


def test_list_shows_every_attempt_and_what_cannot_be_read(
    tmp_path: Path, content: Callable[..., AttemptContent], capsys: pytest.CaptureFixture[str]
) -> None:
    """Attempts are listed by name from their manifests; other files, temporary ones and folders are not; hostile text is escaped."""
    paths = sorted(write_attempt(tmp_path, content(fixture_id=name)) for name in ("beta", "alpha"))
    hostile = write_attempt(
        tmp_path, content(fixture_id="gamma", summary={"outcome": "\x1b[2J\u202e", "skill_state": 5})
    )
    (tmp_path / ".alpha-000000000000.attempt").write_bytes(b"")
    (tmp_path / "notes.txt").write_bytes(b"")
    assert run_command(["list", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert [line.split()[1] for line in out.splitlines()] == ["fixture", "alpha", "beta", "gamma"]
    assert "\x1b" not in out
    assert "\\x1b[2J\\u202e" in out
    assert run_command(["list", "--json", str(tmp_path)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [row["path"] for row in answer["attempts"]] == [str(path) for path in (*paths, hostile)]
    assert answer["attempts"][0] == {
        "id": open_attempt(paths[0]).id,
        "path": str(paths[0]),
        "fixture": "alpha",
        "kind": "worker",
        "outcome": {"kind": "measured", "code": None},
        "skill_state": "ran",
        "witnesses": None,
        "cost_usd": "0.01",
        "determinism": None,
    }
    (tmp_path / "half.attempt").write_bytes(b"half")
    assert run_command(["list", "--json", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert [row["error"]["code"] for row in json.loads(captured.out)["attempts"] if "error" in row] == ["integrity"]
    assert "half.attempt: error[integrity]" in captured.err


def test_list_of_nothing_is_not_list_of_a_missing_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty directory is an empty list; a missing one is an error, with one JSON object too."""
    assert run_command(["list", "--json", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["attempts"] == []
    assert run_command(["list", "--json", str(tmp_path / "none")]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "input-missing"
    assert run_command(["list", str(tmp_path / "none")]) == 2
    assert "input-missing" in capsys.readouterr().err


def test_looking_at_manifests_imports_nothing_heavy(path: Path) -> None:
    """``list`` and a manifest are read without pydantic, aiohttp or cryptography."""
    program = (
        "import sys; from runner.cli import run_command; assert run_command(['list', sys.argv[1]]) == 0; "
        "assert not {'pydantic', 'aiohttp', 'cryptography', 'asyncio'} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path.parent],
        cwd=_ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_conclusions_follow_by_what_they_decide_and_not_by_their_words() -> None:
    """Another release may tell the same outcome in other words; another code, state, witness or answer is another conclusion."""
    attempt = open_attempt(_ROOT / "fixtures" / "attempts" / "plain.attempt")
    assessment, stored = assess_attempt(attempt)
    assert follows(assessment, stored)
    reworded = {**stored, "outcome": {**stored["outcome"], "message": "all is well", "hint": "nothing"}}
    assert follows(assessment, reworded)
    for name, other in (("skill_state", "absent"), ("answer_sha256", None), ("events_seen", 1)):
        assert not follows(assessment, {**stored, name: other})
    for name in ("kind", "code"):
        assert not follows(assessment, {**stored, "outcome": {**stored["outcome"], name: "timeout"}})
