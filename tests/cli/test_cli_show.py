"""The command ``show --transcript``: one JSON object, exit status, warnings, errors, memory (A2, A3, A9, A11)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.cli import run_command

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests" / "cases"


def _show(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, Any, str]:
    code = run_command(["show", *map(str, arguments), "--json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out), captured.err


def test_a_measured_transcript_is_exit_0_and_not_graded(capsys: pytest.CaptureFixture[str]) -> None:
    """The envelope counts it as measured, with no verdict; the row has neither id nor path."""
    code, shown, _ = _show(
        capsys, "--transcript", CASES / "transcripts" / "slash_replayed.jsonl", "--skill", "cf", "--exit-status", 0
    )
    assert (code, shown["exit_code"], shown["verdict"], shown["command"], shown["schema_version"]) == (
        0,
        0,
        None,
        "show",
        1,
    )
    assert shown["summary"] == {"passed": 0, "measured": 1, "started": 1}
    (row,) = shown["attempts"]
    assert (row["verdict"], row["outcome"]["kind"], row["skill_state"]) == (None, "measured", "ran")
    assert row["witnesses"] == {"transcript": True, "wire": None}
    assert (row["checks"], row["criteria"], row["unscored_output"], row["unparsed_lines"]) == ([], [], None, 0)
    assert (row["skills_invoked"], row["events_seen"], row["last_event_type"], row["cost_usd"]) == (
        ["cf"],
        4,
        "result",
        0.0008,
    )
    assert row["toolchain"]["claude"]["version"] == "2.1.332"
    assert not {"id", "path"} & set(row)


def test_an_error_is_exit_2_and_keeps_the_answer_unscored(capsys: pytest.CaptureFixture[str]) -> None:
    """A skill that did not run is no fail: the verdict is error, and the answer is under ``unscored_output`` only."""
    code, shown, _ = _show(
        capsys, "--transcript", CASES / "transcripts" / "slash_replayed_absent.jsonl", "--skill", "cf"
    )
    (row,) = shown["attempts"]
    assert (code, shown["exit_code"], shown["verdict"], row["verdict"]) == (2, 2, "error", "error")
    assert shown["summary"] == {"passed": 0, "measured": 0, "started": 1}
    assert (row["outcome"]["code"], row["skill_state"], row["output"]) == ("skill-absent", "absent", None)
    assert row["unscored_output"].startswith("The auditor account")


def test_people_get_text_and_no_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Without --json the story is on stdout; with it on stderr."""
    path = str(CASES / "transcripts" / "slash_replayed.jsonl")
    assert run_command(["show", "--transcript", path]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("measured")
    assert captured.err == ""
    run_command(["show", "--transcript", path, "--json"])
    assert capsys.readouterr().err.startswith("measured")


@pytest.mark.parametrize(
    ("status", "code"),
    [("124", "timeout"), ("-9", "no-result"), ("143", "no-result"), ("1", "exit-status"), ("0", None)],
)
def test_an_exit_status_is_read_as_a_shell_reports_it(
    capsys: pytest.CaptureFixture[str], status: str, code: str | None
) -> None:
    """124 is the time limit's, -N is a signal's, another one is the CLI's own (A8)."""
    _, shown, _ = _show(capsys, "--transcript", CASES / "transcripts" / "slash_replayed.jsonl", "--exit-status", status)
    assert shown["attempts"][0]["outcome"]["code"] == code


def test_each_dropped_line_is_warned_about_with_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    """P01: two broken lines, two warnings on stderr; stdout stays one object."""
    code, shown, err = _show(capsys, "--transcript", CASES / "inputs" / "P01.jsonl")
    assert code == 2
    assert shown["attempts"][0]["unparsed_lines"] == 2
    assert [line.split(" is ")[0] for line in err.splitlines() if line.startswith("warning")] == [
        "warning: line 2",
        "warning: line 3",
    ]


def test_foreign_text_is_escaped_and_json_is_ascii(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Escape sequences do not reach a terminal; lone surrogates go through JSON as they came."""
    path = tmp_path / "t.jsonl"
    result = '{"type":"result","subtype":"success","result":"\\u001b[31mred \\ud83d \\u202e"}'
    path.write_text('{"type":"system","subtype":"init"}\n' + result + "\n")
    code = run_command(["show", "--transcript", str(path), "--json"])
    captured = capsys.readouterr()
    assert (code, json.loads(captured.out)["attempts"][0]["output"]) == (0, "\x1b[31mred \ud83d \u202e")
    assert captured.out.isascii()
    assert "\x1b" not in captured.err
    assert "\u202e" not in captured.err
    captured.err.encode()


def test_a_wire_file_without_a_skill_is_read_and_asked_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """No skill is required, so there is no state; a broken wire file is an error all the same."""
    transcript, wire = (
        CASES / "transcripts" / "slash_replayed.jsonl",
        CASES / "wire" / "first_party_slash_replayed.jsonl",
    )
    code, shown, _ = _show(capsys, "--transcript", transcript, "--wire", wire)
    assert (code, shown["attempts"][0]["skill_state"]) == (0, None)
    assert run_command(["show", "--transcript", str(transcript), "--wire", str(CASES / "inputs" / "P01.jsonl")]) == 2
    assert "wire-file-invalid" in capsys.readouterr().err


def test_a_wire_file_without_end_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not read until memory is full; one that just fits is read (control)."""
    transcript, wire = (
        CASES / "transcripts" / "slash_replayed.jsonl",
        CASES / "wire" / "first_party_slash_replayed.jsonl",
    )
    size = wire.stat().st_size
    monkeypatch.setattr("runner.cli.show._MAX_WIRE_BYTES", size)
    assert run_command(["show", "--transcript", str(transcript), "--wire", str(wire)]) == 0
    monkeypatch.setattr("runner.cli.show._MAX_WIRE_BYTES", size - 1)
    assert run_command(["show", "--transcript", str(transcript), "--wire", str(wire)]) == 2
    assert run_command(["show", "--transcript", str(transcript), "--wire", "/dev/zero"]) == 2
    assert capsys.readouterr().err.count("wire-file-invalid") == 2


def test_a_reference_unit_may_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """``--skill cf/references/ref.md``: the reference was read in one real run, and not in another."""
    for name, state, code in (("slash_and_read_ref", "ran", 0), ("slash_present", "absent", 2)):
        wire, stream = CASES / "wire" / f"wire_{name}.jsonl", CASES / "wire" / f"wire_{name}.stream.jsonl"
        found, shown, _ = _show(capsys, "--transcript", stream, "--wire", wire, "--skill", "cf/references/ref.md")
        assert (found, shown["attempts"][0]["skill_state"]) == (code, state)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--transcript", "/no/such/file"],
        ["--transcript", "/"],
        ["--transcript", "a\0b"],
        [],
        ["--transcript", str(CASES / "inputs" / "P03.jsonl"), "--skill", "/"],
        ["--transcript", str(CASES / "inputs" / "P03.jsonl"), "--wire", "/no/such/file"],
        ["--transcript", str(CASES / "inputs" / "P03.jsonl"), "--exit-status", "x"],
    ],
)
def test_bad_usage_is_exit_2(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    """A file that is not there, an empty name, a status that is no number: a message and exit 2, never a traceback."""
    assert run_command(["show", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_memory_does_not_grow_with_the_transcript(tmp_path: Path) -> None:
    """120 MB of ordinary lines cost no more than 24 MB over a small transcript (a gigabyte: see tests/bench)."""
    head, tail = (
        json.dumps(event) + "\n" for event in ({"type": "system", "subtype": "init"}, {"type": "result", "result": "x"})
    )
    peaks = {}
    for name, rounds in (("small", 1), ("large", 60_000)):
        path = tmp_path / name
        with path.open("w") as file:
            file.write(head)
            for number in range(rounds):
                use = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": "x" * 800}}
                call = {"type": "assistant", "message": {"id": f"m{number}", "model": "m", "content": [use]}}
                block = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "y" * 900}
                file.write(
                    json.dumps(call) + "\n" + json.dumps({"type": "user", "message": {"content": [block]}}) + "\n"
                )
            file.write(tail)
        program = (
            "import resource, sys; sys.path.insert(0, sys.argv[1]); from runner.cli import run_command;"
            "code = run_command(['show', '--transcript', sys.argv[2], '--json']);"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr); raise SystemExit(code)"
        )
        ran = subprocess.run([sys.executable, "-c", program, str(ROOT), str(path)], capture_output=True, check=True)
        peaks[name] = int(ran.stderr.split()[-1])
        assert json.loads(ran.stdout)["attempts"][0]["events_seen"] == 2 * rounds + 2
    assert peaks["large"] - peaks["small"] < 24 * 1024
