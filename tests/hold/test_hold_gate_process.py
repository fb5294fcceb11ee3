"""``hermeval gate``: the key lives in a process of its own, and a run without any key reaches the provider through its socket (facts/sandbox.md §6)."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from runner.cli.gate import command
from runner.errors import KeyMissing, SettingInvalid
from runner.gate.upstreams.anthropic import AnthropicUpstream, socket_path
from tests.run.conftest import ROOT, Place, replies, text, tool
from tests.run.provider import LoopbackProvider

KEY = "sk-ant-real-0123456789-abcdefghij"
MESSAGE = {"model": "claude-sonnet-5-5", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}

ACTIVATE = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
if listener.fileno() != 3:
    os.dup2(listener.fileno(), 3)
os.set_inheritable(3, True)
os.environ["LISTEN_FDS"], os.environ["LISTEN_PID"] = "1", str(os.getpid())
os.execv(sys.executable, [sys.executable, "-P", "-m", "runner.cli", *sys.argv[2:]])
"""
"""What systemd does for a socket-activated service."""


@pytest.fixture
def provider() -> Iterator[Callable[..., LoopbackProvider]]:
    made: list[LoopbackProvider] = []

    def start(*given: dict[str, Any], **options: Any) -> LoopbackProvider:
        made.append(LoopbackProvider(replies(*given), **options))
        return made[-1]

    yield start
    for one in made:
        one.close()


@contextmanager
def serving(
    directory: Path, url: str, *arguments: str, activated: bool = False
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A gate process on ``directory/s``; the totals that it prints at its end are filled in on the way out."""
    key_file, path, totals = directory / "key", directory / "s", dict[str, Any]()
    key_file.write_text(KEY + "\n")
    shared = ["gate", "--key-file", str(key_file), "--base-url", url, *arguments]
    line = (
        [sys.executable, "-c", ACTIVATE, str(path), *shared, "--activated"]
        if activated
        else [sys.executable, "-P", "-m", "runner.cli", *shared, "--listen", str(path)]
    )
    process = subprocess.Popen(
        line, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 30
        while not path.exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield path, totals
    finally:
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=30)
    assert process.returncode == 2, errors
    assert KEY not in out + errors
    totals |= json.loads(out)


def send(path: Path, document: dict[str, Any], target: str = "/v1/messages", **headers: str) -> tuple[int, bytes]:
    """One request on a connection of its own, written by hand."""
    body = json.dumps(document).encode()
    given = {"Host": "127.0.0.1:8080", "Content-Type": "application/json", "Content-Length": str(len(body))}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items()), "", ""]
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(20)
        for _ in range(200):
            try:
                sock.connect(str(path))
                break
            except ConnectionRefusedError:  # bound, and not listening yet
                time.sleep(0.02)
        sock.sendall("\r\n".join(lines).encode() + body)
        answer = b""
        while not answer.endswith(b"0\r\n\r\n") and (piece := sock.recv(65536)):
            answer += piece
    return int(answer.split()[1]), answer


def test_the_key_is_added_behind_the_socket_and_never_comes_back(
    tmp_path: Path, provider: Callable[..., LoopbackProvider]
) -> None:
    """A client's own credentials stay behind; the provider gets the key; a key that the provider echoes is replaced and counted."""
    one = provider(text("I hold KEY-ECHO."), echo_key=True)
    with serving(tmp_path, one.url) as (path, totals):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        status, answer = send(path, MESSAGE, X_Api_Key="sk-mine", Authorization="Bearer mine")
    assert status == 200
    assert KEY.encode() not in answer
    assert b"placeholder" in answer
    ((_, headers, _),) = one.requests
    assert headers["x-api-key"] == KEY
    assert "authorization" not in {name.lower() for name in headers}
    assert (totals["requests"], totals["key_redactions"] > 0) == (1, True)
    assert not path.exists()


def test_the_socket_of_systemd_is_served(tmp_path: Path, provider: Callable[..., LoopbackProvider]) -> None:
    """With --activated the gate takes the listening socket that it was started with, and makes none."""
    one = provider(text("yes"))
    with serving(tmp_path, one.url, activated=True) as (path, totals):
        assert send(path, MESSAGE)[0] == 200
    assert totals["requests"] == 1
    assert path.exists(), "the socket is systemd's"


def test_the_ceiling_is_for_all_clients_together(tmp_path: Path, provider: Callable[..., LoopbackProvider]) -> None:
    """Each client may think it is the first one: the gate counts them all, and the request over the ceiling reaches nobody."""
    one = provider(text("one"), text("two"), text("three"))
    with serving(tmp_path, one.url, "--max-requests", "2") as (path, totals):
        statuses = [send(path, MESSAGE)[0] for _ in range(3)]
    assert statuses == [200, 200, 403]
    assert len(one.requests) == 2
    assert (totals["requests"], totals["not_kept"]) == (2, 3)


def test_a_gate_that_is_started_again_goes_on_with_the_days_account(
    tmp_path: Path, provider: Callable[..., LoopbackProvider]
) -> None:
    """With ``--spend-file`` the ceiling is that of all starts; without it each start begins at nothing."""
    one = provider(*(text(str(number)) for number in range(6)))
    kept = ("--max-requests", "2", "--spend-file", str(tmp_path / "spend.json"))
    statuses = []
    for words in (kept, kept, kept, kept[:2], kept[:2]):
        with serving(tmp_path, one.url, *words) as (path, _):
            statuses.append(send(path, MESSAGE)[0])
    assert statuses == [200, 200, 403, 200, 200]
    assert json.loads((tmp_path / "spend.json").read_text())["requests"] == 2


def test_a_flood_of_bodies_is_refused_before_it_is_read(
    tmp_path: Path, provider: Callable[..., LoopbackProvider]
) -> None:
    """Bodies under way are bounded over all connections: what comes to more is refused by its head alone, and once they have gone requests are served again."""
    one = provider(text("control"), text("after"))
    head = "POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {30 * 1024 * 1024}\r\n\r\n"
    with serving(tmp_path, one.url) as (path, _):
        assert send(path, MESSAGE)[0] == 200
        with ExitStack() as stack:
            answers = []
            for _ in range(4):
                sock = stack.enter_context(socket.socket(socket.AF_UNIX))
                sock.settimeout(20)
                sock.connect(str(path))
                sock.sendall(head.encode() + b"{")
                answers.append(sock)
            refused = [sock.recv(65536) for sock in answers[2:]]
        assert all(b" 403 " in answer[:20] and b"gate-full" in answer for answer in refused), refused
        deadline = time.monotonic() + 30
        while (status := send(path, MESSAGE)[0]) != 200 and time.monotonic() < deadline:
            time.sleep(0.05)
    assert status == 200
    assert len(one.requests) == 2


@pytest.mark.parametrize(
    ("change", "target"),
    [
        ({}, "/v1/files"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "/v1/messages"),
        ({"model": "claude-opus-5-5"}, "/v1/messages"),
    ],
    ids=["path", "provider tool", "model"],
)
def test_policy_holds_a_second_time(
    tmp_path: Path, provider: Callable[..., LoopbackProvider], change: dict[str, Any], target: str
) -> None:
    """Whoever holds the socket without being a run gets no further than a run's own gate would let it, while an honest request is served."""
    one = provider(text("control"))
    with serving(tmp_path, one.url, "--model", "claude-sonnet-5-5") as (path, _):
        assert send(path, {**MESSAGE, **change}, target)[0] in {403, 404}
        assert one.requests == []
        assert send(path, MESSAGE)[0] == 200


def test_a_whole_run_without_a_key_is_answered_through_the_socket(
    tmp_path: Path, place: Place, provider: Callable[..., LoopbackProvider]
) -> None:
    """The real CLI, the run's own gate, the key's process, the provider: measured, and no byte of the attempt or of the run's environment is the key."""
    name = place.case("live", [])
    one = provider(
        tool("Skill", "toolu_1", skill="workflow"),
        text("The auditor account is unresolved."),
    )
    with serving(tmp_path, one.url) as (path, totals):
        answer = place.run(
            name, "--provider", "anthropic", "--base-url", f"unix://{path}", env={"ANTHROPIC_API_KEY": ""}
        )
    assert answer.row["outcome"]["kind"] == "measured", answer.stderr
    assert totals["requests"] == len(one.requests) == 2
    assert KEY.encode() not in Path(answer.row["path"]).read_bytes()


@pytest.mark.parametrize(
    "address",
    ["unix:relative", "unix://relative/path", "unix:///a/../b", "unix:///a?b", "unix:///" + "a" * 107, "unix:///a\nb"],
)
def test_an_address_that_is_no_plain_absolute_socket_is_refused(address: str) -> None:
    """Socket addresses have one form; a good one is taken."""
    with pytest.raises(SettingInvalid):
        socket_path(address)
    assert socket_path("unix:///run/hermeval/gate.sock") == Path("/run/hermeval/gate.sock")
    assert socket_path("https://api.anthropic.com") is None


def test_a_key_and_a_socket_exclude_each_other() -> None:
    """With a socket no key is taken, without one a key is needed: it cannot be in two places by accident."""
    with pytest.raises(SettingInvalid):
        AnthropicUpstream(KEY, base_url="unix:///run/hermeval/gate.sock")
    with pytest.raises(KeyMissing):
        AnthropicUpstream(None)
    AnthropicUpstream(None, base_url="unix:///run/hermeval/gate.sock")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--activated"], SettingInvalid),
        ([], SettingInvalid),
        (["--listen", "s", "--activated"], SettingInvalid),
        (["--listen", "s", "--base-url", "unix:///run/other"], SettingInvalid),
        (["--listen", "s", "--max-usd", "lots"], SettingInvalid),
    ],
    ids=["nothing passed", "no socket", "two sockets", "gate behind gate", "ceiling"],
)
def test_a_gate_that_cannot_be_set_up_does_not_start(
    tmp_path: Path, arguments: list[str], error: type[Exception]
) -> None:
    """What makes no sense is refused before a socket is made."""
    key = tmp_path / "key"
    key.write_text(KEY)
    with pytest.raises(error):
        command.main(["--key-file", str(key), *arguments], standalone_mode=False)
    key.write_text("")
    with pytest.raises(KeyMissing):
        command.main(["--key-file", str(key), "--listen", "s"], standalone_mode=False)
