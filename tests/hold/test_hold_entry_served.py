"""The hardened runner's entry as systemd would serve it: a run goes in by the socket, its attempt comes out (issue 4; facts/sandbox.md §6)."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.run.conftest import ROOT, Place, replies, text, tool

ENTRY = ROOT / "ci" / "runner" / "entry.py"
SUBMIT = ROOT / "ci" / "runner" / "submit.py"


# -- served


@contextmanager
def eval_socket(directory: Path, hermeval: Path, *, max_s: int = 600) -> Iterator[Path]:
    """What systemd does for hermeval-eval.socket: a connection's socket is the standard input and output of a program of its own."""
    path, children = directory / "eval.sock", list[subprocess.Popen[bytes]]()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            line = [
                sys.executable,
                "-I",
                "-S",
                str(ENTRY),
                "--hermeval",
                str(hermeval),
                "--gate",
                "/none",
                "--max-usd",
                "5",
                "--max-s",
                str(max_s),
            ]
            with connection:
                children.append(
                    subprocess.Popen(
                        line,
                        stdin=connection.fileno(),
                        stdout=connection.fileno(),
                        env={**os.environ, "TMPDIR": str(directory)},
                    )
                )

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield path
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for child in children:
            assert child.wait(60) in {0, 1}
        assert not list(directory.glob("eval-*")), "a request's folder is left"


@pytest.fixture
def hermeval(tmp_path: Path) -> Callable[[str], Path]:
    """Write the program that stands for an installed hermeval."""

    def write(script: str) -> Path:
        path = tmp_path / "hermeval"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return write


def submit(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", str(SUBMIT), "--socket", str(path), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_run_goes_in_by_the_socket_and_its_attempt_comes_out(
    tmp_path: Path, place: Place, hermeval: Callable[[str], Path]
) -> None:
    """The real command, CLI and sandbox behind the socket: the answer, the exit status and the whole attempt arrive, and nothing stays."""
    name = place.case("once", replies(tool("Skill", "toolu_1", skill="workflow"), text()))
    program = hermeval(f'PYTHONPATH={ROOT} exec {sys.executable} -P -m runner.cli "$@"')
    cache = os.environ.get("HERMEVAL_CACHE")
    if cache is None and os.geteuid() != 0:
        program.write_text(
            program.read_text().replace("PYTHONPATH", f"HERMEVAL_CACHE={Path.home()}/.cache/hermeval PYTHONPATH")
        )
    with eval_socket(tmp_path, program) as path:
        done = submit(path, str(place.folder), name, "--out", str(place.out), "--no-grade")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["attempts"]
    (attempt,) = place.out.glob("*.attempt")
    assert attempt.name == Path(row["path"]).name
    assert place.hermeval("verify", str(attempt)).code == 0


def test_folders_arrive_as_they_are_and_hermeval_sees_no_other_environment(
    tmp_path: Path, hermeval: Callable[[str], Path]
) -> None:
    """Bytes and the executable bit arrive; of the caller's environment only PATH and the place of the tools do; files come back whole, at their paths."""
    folder, out = tmp_path / "fixtures", tmp_path / "out"
    (folder / "skills" / "s").mkdir(parents=True)
    (folder / "attempts").mkdir()
    (folder / "attempts" / "old.attempt").write_bytes(b"old")
    (folder / "skills" / "s" / "run.sh").write_bytes(b"\x00\xff")
    (folder / "skills" / "s" / "run.sh").chmod(0o755)
    program = hermeval(
        'env | cut -d= -f1 >&2; mkdir -p "$6/deep"; cp "$4/skills/s/run.sh" "$6/deep/"; ln -s /etc/passwd "$6/link"; '
        'test -x "$4/skills/s/run.sh" && test ! -e "$4/attempts" && echo "[\\"$4\\", \\"$*\\"]"; exit 1'
    )
    with eval_socket(tmp_path, program) as path:
        done = submit(path, str(folder), "a", "b", "--out", str(out), "--model", "sonnet")
    assert done.returncode == 1, done.stderr
    words = json.loads(done.stdout)[1]
    assert words.endswith("--max-usd 2 --model sonnet -- a b")
    assert (out / "deep" / "run.sh").read_bytes() == b"\x00\xff"
    assert sorted(p.name for p in out.rglob("*")) == ["deep", "run.sh"]
    seen = {line.removeprefix("| ") for line in done.stderr.splitlines()}
    assert seen <= {"PATH", "HOME", "LANG", "HERMEVAL_CACHE", "PWD", "OLDPWD", "SHLVL", "_"}
    assert {"PATH", "HOME"} <= seen


def test_a_refused_request_starts_nothing_and_is_told(tmp_path: Path, hermeval: Callable[[str], Path]) -> None:
    """The client hears the code; the program was not started."""
    with eval_socket(tmp_path, hermeval(f"touch {tmp_path}/started")) as path, socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        sock.sendall(b'{"schema_version":1,"do":"run","fixtures":["../x"]}')
        sock.shutdown(socket.SHUT_WR)
        head = json.loads(sock.makefile("rb").read())
    assert (head["exit_status"], head["error"]["code"], head["files"]) == (2, "request-invalid", [])
    assert not (tmp_path / "started").exists()


def test_an_answer_that_is_none_is_an_error(tmp_path: Path, hermeval: Callable[[str], Path]) -> None:
    """A program that ends well and says nothing has measured nothing; its last words come along, harmless for a log."""
    with eval_socket(tmp_path, hermeval("printf '::add-mask::x\\033[2J' >&2; exit 0")) as path:
        done = submit(path, "--doctor")
    assert done.returncode == 2
    assert "error[no-answer]" in done.stderr
    assert json.loads(done.stdout)["error"]["code"] == "no-answer"
    assert "::" not in done.stderr
    assert "\x1b" not in done.stderr


def test_a_client_that_goes_away_takes_its_run_with_it(tmp_path: Path, hermeval: Callable[[str], Path]) -> None:
    """Nobody runs on for a connection that is gone."""
    program = hermeval(
        f"trap 'touch {tmp_path}/ended; exit 2' TERM; touch {tmp_path}/started; while :; do sleep 0.05; done"
    )
    with eval_socket(tmp_path, program) as path:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(path))
            sock.sendall(b'{"schema_version":1,"do":"doctor"}')
            sock.shutdown(socket.SHUT_WR)
            _wait(tmp_path / "started")
            assert not (tmp_path / "ended").exists()
        _wait(tmp_path / "ended")


def test_a_folder_with_a_link_is_not_sent(tmp_path: Path, hermeval: Callable[[str], Path]) -> None:
    """The submitting side follows nothing out of the folder: a pull request cannot have the runner's files sent."""
    folder = tmp_path / "fixtures"
    folder.mkdir()
    (folder / "a.json").symlink_to("/etc/passwd")
    with eval_socket(tmp_path, hermeval("echo '{}'")) as path:
        done = submit(path, str(folder), "a", "--out", str(tmp_path / "out"))
        (folder / "a.json").unlink()
        (folder / "a.json").write_text("{}")
        control = submit(path, str(folder), "a", "--out", str(tmp_path / "out"))
    assert (done.returncode, control.returncode) == (2, 0)
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["where"]) == ("folder-not-regular", str(folder / "a.json"))


@pytest.mark.parametrize(
    "row",
    [
        {"path": "../../x", "bytes": 1, "sha256": "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"},
        {"path": ".bashrc", "bytes": 1, "sha256": "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"},
        {"path": "x", "bytes": 1, "sha256": "0" * 64},
        {"path": "x", "bytes": 2, "sha256": "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"},
        {"path": "x", "bytes": 2**60, "sha256": ""},
        None,
    ],
    ids=["out of the folder", "hidden", "other bytes", "cut", "huge", "control"],
)
def test_a_runner_that_lies_writes_nothing(tmp_path: Path, row: dict[str, Any] | None) -> None:
    """Should the confined side be taken over, its answers still land in the named folder only, whole or not at all."""
    good = {"path": "x", "bytes": 1, "sha256": "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"}
    head = {"schema_version": 1, "exit_status": 0, "answer": {}, "files": [row or good]}
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                while connection.recv(65536):
                    pass
                connection.sendall(json.dumps(head).encode() + b"\nx")

        thread = threading.Thread(target=answer)
        thread.start()
        (tmp_path / "fixtures").mkdir()
        done = submit(path, str(tmp_path / "fixtures"), "a", "--out", str(tmp_path / "out" / "deep"))
        thread.join()
    left = [p for p in tmp_path.rglob("*") if p.is_file() and stat.S_ISREG(p.lstat().st_mode)]
    assert (done.returncode, len(left)) == ((2, 0) if row else (0, 1)), done.stderr


@contextmanager
def answering(path: Path, *answers: bytes | None) -> Iterator[None]:
    """A socket that serves one connection for each answer; None closes it unread, as systemd does over ``MaxConnections=``."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer() -> None:
            for one in answers:
                connection, _ = listener.accept()
                with connection:
                    if one is not None:
                        while connection.recv(65536):
                            pass
                        connection.sendall(one)

        thread = threading.Thread(target=answer)
        thread.start()
        yield
        thread.join()


GOOD = json.dumps({"schema_version": 1, "exit_status": 0, "answer": {"ok": True}, "files": []}).encode() + b"\n"


def test_a_runner_at_another_request_is_waited_for(tmp_path: Path) -> None:
    """A connection that is closed unread is tried again until the runner is free; with no time to wait it is ``runner-busy``, with what to do."""
    path = tmp_path / "s"
    with answering(path, None, None, GOOD):
        waited = submit(path, "--doctor", "--wait", "60")
    assert (waited.returncode, json.loads(waited.stdout)) == (0, {"ok": True}), waited.stderr
    assert waited.stderr.count("waiting") == 1
    path.unlink()
    with answering(path, None):
        done = submit(path, "--doctor", "--wait", "0")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "runner-busy")
    assert "--wait" in json.loads(done.stdout)["error"]["hint"]


def test_a_runner_that_took_the_request_and_ended_is_no_busy_one(tmp_path: Path) -> None:
    """What was read is not sent again: it may have been paid."""
    path = tmp_path / "s"
    with answering(path, b""):
        done = submit(path, "--doctor", "--wait", "60")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "runner-ended")


def test_a_place_that_cannot_be_written_is_found_before_anything_is_sent(
    tmp_path: Path, hermeval: Callable[[str], Path]
) -> None:
    """``--out`` is tried first, so that no run is paid and lost; a place that can be made is taken."""
    (tmp_path / "fixtures").mkdir()
    (tmp_path / "file").write_text("")
    program = hermeval(f"echo x >>{tmp_path}/started; echo '{{}}'")
    with eval_socket(tmp_path, program) as path:
        for out in (tmp_path / "file", tmp_path / "file" / "below"):
            done = submit(path, str(tmp_path / "fixtures"), "a", "--out", str(out))
            error = json.loads(done.stdout)["error"]
            assert (done.returncode, error["code"], error["where"]) == (2, "out-unwritable", str(out))
            assert "--out" in error["hint"]
        assert not (tmp_path / "started").exists()
        control = submit(path, str(tmp_path / "fixtures"), "a", "--out", str(tmp_path / "new" / "below"))
    assert control.returncode == 0, control.stderr
    assert (tmp_path / "started").read_text() == "x\n"
    assert list((tmp_path / "new" / "below").iterdir()) == []


def test_a_runner_that_is_not_there_is_told_with_its_place_and_its_cure(tmp_path: Path) -> None:
    """No socket, or a folder that is none: one JSON object with a code, the path and what to do, each."""
    absent = submit(tmp_path / "none", "--doctor")
    error = json.loads(absent.stdout)["error"]
    assert (absent.returncode, error["code"], error["where"]) == (2, "runner-absent", str(tmp_path / "none"))
    assert "hermeval-eval.socket" in error["hint"]
    nowhere = submit(tmp_path / "none", str(tmp_path / "gone"), "a", "--out", str(tmp_path / "out"))
    error = json.loads(nowhere.stdout)["error"]
    assert (error["code"], error["where"]) == ("folder-unreadable", str(tmp_path / "gone"))


def test_a_live_request_that_may_not_end_in_time_starts_nothing(
    tmp_path: Path, hermeval: Callable[[str], Path]
) -> None:
    """Nothing is paid for what could be cut off: the code says so before the program starts; one run less fits, and a scripted one costs nothing."""
    folder = tmp_path / "fixtures"
    folder.mkdir()
    program = hermeval(f"echo x >>{tmp_path}/started; echo '{{}}'")
    words = (str(folder), "a", "--out", str(tmp_path / "out"), "--timeout", "200", "--no-judge", "--repeat")
    with eval_socket(tmp_path, program, max_s=600) as path:
        done = submit(path, *words, "3", "--provider", "anthropic")
        assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "request-too-long")
        assert not (tmp_path / "started").exists()
        assert submit(path, *words, "2", "--provider", "anthropic").returncode == 0
        assert submit(path, *words, "3").returncode == 0


def test_what_was_finished_in_time_is_handed_over(tmp_path: Path, hermeval: Callable[[str], Path]) -> None:
    """At its last second the request is stopped, not lost with the unit: the finished attempt arrives, with ``out-of-time``."""
    (tmp_path / "fixtures").mkdir()
    program = hermeval('echo whole >"$6/a.attempt"; trap "exit 2" TERM; while :; do sleep 0.05; done')
    with eval_socket(tmp_path, program, max_s=2) as path:
        done = submit(path, str(tmp_path / "fixtures"), "a", "--out", str(tmp_path / "out"))
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "out-of-time")
    assert (tmp_path / "out" / "a.attempt").read_text() == "whole\n"


def _wait(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
