"""The command inside: bash alone, exact exit statuses, and an honest word where no answer comes (B14)."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from runner.simulate.command_door import command_program
from tests.simulate.conftest import contract
from tests.simulate.contract_cases import LOST

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulate.conftest import Serve


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("help",),
        ("call",),
        ("call", "a", "b", "c"),
        ("schema",),
        ("schema", "a", "b"),
        ("list", "a"),
        ("--version",),
    ],
)
def test_wrong_usage_is_told_and_never_sent(serve: Serve, words: tuple[str, ...]) -> None:
    """Wrong usage ends with exit status 4 and the usage on stderr; nothing reaches the simulator. Right usage does."""
    served = serve(contract())
    got = served.command(*words)
    assert (got.exit_status, got.raw) == (4, "")
    assert "usage: tool call NAME [JSON | -]" in got.stderr
    assert served.command("list").exit_status == 0
    assert len(served.close().rows) == 1


def test_arguments_come_by_word_or_by_stdin_and_default_to_none(serve: Serve) -> None:
    """``-`` reads the arguments from stdin; without arguments a call has an empty object; all bytes of a text arrive."""
    served = serve(contract())
    text = {"ticket": "DESK-1", "body": 'é "q" \\ \u2028 $HOME `x` %s \U0001f511'}
    for words, stdin in (
        (("call", "ticket_comment", json.dumps(text, ensure_ascii=False)), None),
        (("call", "ticket_comment", "-"), (json.dumps(text, ensure_ascii=False) + "\n").encode()),
        (("call", "file_list"), None),
    ):
        assert served.command(*words, stdin=stdin).exit_status == 0
    assert [row.args for row in served.close().rows] == [text, text, {}]


@pytest.mark.parametrize(
    ("args", "kept"),
    [
        (b"", ""),
        (b"{", "{"),
        (b"[1]", "[1]"),
        (b'{"a":1,"a":2}', '{"a":1,"a":2}'),
        (b'{"ticket":"\xff"}', '{"ticket":"\\xff"}'),
        (b'{"ticket":"a\nb"}', '{"ticket":"a\nb"}'),
    ],
)
def test_unusable_arguments_are_a_row(serve: Serve, args: bytes, kept: str) -> None:
    """Arguments that are no JSON object are rejected before sending, and the trace keeps their text."""
    served = serve(contract())
    assert served.command("call", "ticket_read", args).exit_status == 4
    (row,) = served.close().rows
    assert (row.args, row.args_text, row.exit_status, row.status) == (None, kept, 4, None)


def test_a_tools_name_cannot_smuggle_a_line(serve: Serve) -> None:
    """A line feed in a name becomes a blank: it cannot move where the arguments begin."""
    served = serve(contract())
    assert served.command("call", 'ticket_read\n{"ticket":"DESK-1"}', "{}").exit_status == 4
    (row,) = served.close().rows
    assert (row.tool, row.args) == ('ticket_read {"ticket":"DESK-1"}', {})


def test_it_runs_in_any_locale_and_with_hostile_variables(serve: Serve) -> None:
    """Lengths are bytes whatever the locale; what the environment holds changes nothing."""
    served = serve(contract())
    for env in (
        {"LC_ALL": "C.UTF-8"},
        {"LC_ALL": "xx_YY"},
        {"io": "1", "mode": "list", "IFS": "e"},
        {"BASH_ENV": "/dev/null"},
    ):
        got = served.command("call", "ticket_comment", '{"ticket":"DESK-1","body":"éé"}', env=env)
        assert got.exit_status == 0, (env, got)
    assert [row.args for row in served.close().rows] == [{"ticket": "DESK-1", "body": "éé"}] * 4


def test_without_a_service_it_says_so(tmp_path: Path) -> None:
    """Where nothing listens the call was not sent: exit status 4."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = tmp_path / "tool"
    program.write_bytes(command_program(port))
    ran = subprocess.run(["/bin/bash", program, "list"], capture_output=True, text=True, check=False, timeout=30)
    assert (ran.returncode, ran.stdout, ran.stderr) == (4, "", "tool: the service cannot be reached\n")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\nx-exit-status: 0\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nx-exit-status: 0\r\n\r\n{}",
        b"SSH-2.0-x\r\n",
    ],
    ids=["nothing", "head", "short", "no-length", "other"],
)
def test_a_broken_answer_is_a_lost_one(tmp_path: Path, answer: bytes) -> None:
    """Whatever breaks off is a lost response: exit status 5, and the same text as in the trace."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                asked = b""
                while b"\r\n\r\n" not in asked:
                    asked += connection.recv(65536)
                connection.sendall(answer)

        server = threading.Thread(target=serve)
        server.start()
        program = tmp_path / "tool"
        program.write_bytes(command_program(listener.getsockname()[1]))
        ran = subprocess.run(["/bin/bash", program, "list"], capture_output=True, text=True, check=False, timeout=30)
        server.join()
    assert (ran.returncode, json.loads(ran.stdout)) == (5, LOST)
    assert ran.stderr == "tool: no response came; the call may have been carried out\n"
