"""Whether somebody listens where live answers are to come from: asked once, before anything is started or booked."""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from runner.cli import run_command
from runner.errors import ProviderUnreachable
from runner.gate.upstreams.reach import require_listener

ROOT = Path(__file__).resolve().parents[2]


def refused_port() -> int:
    """A loopback port on which nobody listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory whose name is short enough for sockets in it."""
    with tempfile.TemporaryDirectory(prefix="g") as name:
        yield Path(name)


def listening(path: Path, backlog: int = 1) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen(backlog)
    return made


def test_a_listener_is_found_and_told_nothing(place: Path) -> None:
    """A gate's socket and a provider's port take one connection, which ends without a byte; a full queue is a listener too."""
    with closing(listening(place / "s")) as gate, closing(socket.create_server(("127.0.0.1", 0))) as provider:
        for url, listener in (
            (f"unix://{place}/s", gate),
            (f"http://127.0.0.1:{provider.getsockname()[1]}/prefix", provider),
        ):
            require_listener(url)
            came, _ = listener.accept()
            with came:
                assert came.recv(1) == b""
    with closing(listening(place / "busy", backlog=0)):
        for _ in range(3):
            require_listener(f"unix://{place}/busy", timeout_s=1.0)


def test_what_nobody_listens_on_is_named(place: Path) -> None:
    """No such socket, one that nobody serves, what is no socket, a refused port and a name that is none: each has its stable code, its address and what to do."""
    listening(place / "left").close()
    (place / "file").write_text("no socket")
    for url, code in (
        (f"unix://{place}/absent", "gate-unreachable"),
        (f"unix://{place}/left", "gate-unreachable"),
        (f"unix://{place}/file", "gate-unreachable"),
        (f"http://127.0.0.1:{refused_port()}", "provider-unreachable"),
        (f"https://{'a' * 70}.invalid", "provider-unreachable"),
    ):
        with pytest.raises(ProviderUnreachable) as caught:
            require_listener(url)
        assert (caught.value.code, caught.value.where) == (code, url)
        assert caught.value.hint


@pytest.mark.parametrize("verb", ["run", "judge"])
def test_without_a_listener_nothing_starts(
    verb: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``run`` and ``judge`` end with exit status 2 and the code before any attempt, and book nothing; plans are made without a provider."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-real-0123456789abcdef")
    named = "missing-account" if verb == "run" else str(ROOT / "fixtures" / "attempts" / "plain.attempt")
    out = place / "out"
    for url, code in (
        (f"unix://{place}/absent", "gate-unreachable"),
        (f"http://127.0.0.1:{refused_port()}", "provider-unreachable"),
    ):
        line = [verb, named, "--json", "--out", str(out), "--provider", "anthropic", "--base-url", url]
        assert run_command(line) == 2
        answer = json.loads(capsys.readouterr().out)
        assert (answer["error"]["code"], answer["summary"]["started"]) == (code, 0)
        assert list(out.iterdir()) == []
        if verb == "run":
            assert run_command([*line, "--prepare-only"]) == 0
            capsys.readouterr()
