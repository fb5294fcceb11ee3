"""Paths that are none: an empty text, a name that no file system takes, files that never end; each an error with a stable code, and nothing done."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.cli import run_command

ROOT = Path(__file__).resolve().parents[2]
PLAIN = ROOT / "fixtures" / "attempts" / "plain.attempt"
LONG = "a" * 100_000
KEY = "sk-ant-real-0123456789-abcdefghij"
MUTATE = ("mutate", str(PLAIN), "--replace", "a=b", "--reason", "r", "-o")
LIVE = ("run", "missing-account", "--prepare-only", "--provider", "anthropic")


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """Return the error of a command that ends with exit status 2, told to people by its code and without a traceback."""
    as_json = arguments[0] != "gate"  # whose object is that of its end
    assert run_command([*arguments, *(["--json"] if as_json else [])]) == 2
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert len(said.err) < 2_000
    if not as_json:
        told = dict(line.strip().partition(": ")[::2] for line in said.err.splitlines())
        code = next(name[len("error[") : -1] for name in told if name.startswith("error["))
        return {"code": code, "where": told["where"].strip(), "hint": told["do"].strip()}
    error: dict[str, Any] = json.loads(said.out)["error"]
    assert f"error[{error['code']}]" in said.err
    return error


@pytest.mark.parametrize("path", ["", LONG], ids=["empty", "long"])
@pytest.mark.parametrize(
    "before",
    [
        *(("judge",), ("replay",), ("reproduce",), ("show",), ("list",), ("verify",), ("sign", "--key", "k")),
        *(("report", "-o", "page.html"), ("report", str(PLAIN), "-o"), MUTATE, ("mutate", "-o", "x", "--replace", "a=b", "--reason", "r")),
        *(("run", "missing-account", f"--{name}") for name in ("out", "fixtures", "skills", "script", "keep")),
        *((*LIVE, "--key-file"), ("replay", str(PLAIN), "--out"), ("replay", str(PLAIN), "--profiles")),
        *(("doctor", "--out"), ("show", "--transcript"), ("toolchain", "verify", "--cache"), ("gate", "--key-file")),
    ],
    ids=lambda words: " ".join(words).replace(str(PLAIN), "ATTEMPT"),
)  # fmt: skip
def test_what_can_be_no_path_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: tuple[str, ...], path: str
) -> None:  # fmt: skip
    """An unset variable of a caller's script is never the working directory, and a name that is too long is no defect of ours; nothing is written."""
    shutil.copy(PLAIN, tmp_path / "here.attempt")
    monkeypatch.chdir(tmp_path)
    error = error_of(capsys, *before, path)
    assert error["code"] == "path-invalid"
    assert error["where"]
    assert error["hint"]
    assert os.listdir(tmp_path) == ["here.attempt"]


def test_the_working_directory_is_had_by_its_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: ``.`` is the working directory, and a long path that can be had is."""
    shutil.copy(PLAIN, tmp_path / "here.attempt")
    monkeypatch.chdir(tmp_path)
    for path in (".", "./" * 1_000):
        assert run_command(["list", path, "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)["attempts"]) == 1


@pytest.mark.parametrize("name", ["", LONG, "a/" * 50_000], ids=["empty", "long", "long path"])
def test_a_fixture_of_an_impossible_name_is_missing(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """A fixture's name is an id or a path; one that can be neither is told in a line."""
    assert error_of(capsys, "run", "--", name)["code"] == "input-missing"


@pytest.mark.parametrize("path", [".", "/", "..", "/dev/null"])
def test_what_is_no_file_is_not_signed(capsys: pytest.CaptureFixture[str], tmp_path: Path, path: str) -> None:
    """Directories and devices have no signature beside them, and get none."""
    assert run_command(["sign", path, "--key", str(tmp_path / "key"), "--json"]) == 2
    said = capsys.readouterr()
    assert [row["error"]["code"] for row in json.loads(said.out)["results"]] == ["input-missing"]
    assert "Traceback" not in said.err
    assert run_command(["verify", path]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_key_file_is_a_small_regular_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A device that never ends, a pipe that nobody writes to and a directory are refused at once, as is a large file; a key in a file is taken."""
    fifo, large, good = tmp_path / "fifo", tmp_path / "large", tmp_path / "key"
    os.mkfifo(fifo)
    large.write_text("k" * 20_000)
    good.write_text(f"{KEY}\n")
    for path in ("/dev/zero", fifo, tmp_path, large):
        for line in (LIVE, ("gate", "--listen", str(tmp_path / "s"))):
            error = error_of(capsys, *line, "--key-file", str(path))
            assert (error["code"], error["where"]) == ("key-missing", str(path))
    assert error_of(capsys, "run", "missing-account", "--script", str(fifo))["code"] == "input-missing"
    assert error_of(capsys, "run", "missing-account", "--script", "/dev/zero")["code"] == "input-missing"
    assert run_command([*LIVE, "--key-file", str(good), "--json"]) == 0
    assert KEY not in capsys.readouterr().out


def test_an_empty_address_is_not_the_default(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """An unset variable for ``--base-url`` sends nothing to the default provider."""
    key = tmp_path / "key"
    key.write_text(KEY)
    assert error_of(capsys, *LIVE, "--key-file", str(key), "--base-url", "")["code"] == "setting-invalid"


def test_a_descriptor_that_was_not_passed_is_told(tmp_path: Path) -> None:
    """``gate --activated`` whose caller claims a socket and passes none ends with a code."""
    (tmp_path / "key").write_text(KEY)
    start = (
        "import os, sys; os.closerange(3, 64); os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1'); "
        "os.execv(sys.executable, [sys.executable, '-P', '-m', 'runner.cli', *sys.argv[1:]])"
    )
    done = subprocess.run(
        [sys.executable, "-c", start, "gate", "--activated", "--key-file", str(tmp_path / "key")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert "error[setting-invalid]" in done.stderr
    assert "Traceback" not in done.stderr
