"""What the gate's tests share: a gate on a loopback socket, and a client that writes raw bytes."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from runner.gate.authority import Authority, make_authority
from runner.gate.exchange import Refusal
from runner.gate.script import parse_script
from runner.gate.server import Gate, GateRecord
from runner.gate.settings import GateSettings
from runner.gate.upstreams import Upstream, UpstreamAnswer, UpstreamRequest
from runner.gate.upstreams.scripted import ScriptedUpstream

MODEL = "claude-sonnet-5-5"


class CountingUpstream:
    """Answers everything with one small message and keeps what it was asked."""

    kind = "counting"

    def __init__(self) -> None:
        self.asked: list[UpstreamRequest] = []

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    @asynccontextmanager
    async def answer(self, request: UpstreamRequest) -> AsyncIterator[UpstreamAnswer]:
        self.asked.append(request)

        async def body() -> AsyncIterator[bytes]:
            yield b'{"usage":{"input_tokens":10,"output_tokens":5}}'

        yield UpstreamAnswer(200, (("content-type", "application/json"),), body())


@dataclass
class Answer:
    """A response as the client read it; ``closed`` if the connection ended after it."""

    status: int
    headers: dict[str, str]
    body: bytes
    raw: bytes
    whole: bool

    @property
    def error(self) -> dict[str, Any]:
        return dict(json.loads(self.body)["error"])


@dataclass
class Rig:
    """A gate being tested."""

    gate: Gate
    upstream: Any
    address: tuple[str, int]
    authority: Authority | None
    stops: list[Refusal] = field(default_factory=list)
    record: GateRecord | None = None

    def connect(self, timeout_s: float = 10.0) -> socket.socket:
        sock = socket.create_connection(self.address, timeout=timeout_s)
        if self.authority is None:
            return sock
        context = ssl.create_default_context(cadata=self.authority.ca_pem.decode())
        return context.wrap_socket(sock, server_hostname="api.anthropic.com")

    def send(self, data: bytes, *, timeout_s: float = 10.0) -> Answer | None:
        """Send raw bytes on a connection of their own and read until it closes or one response is whole."""
        with self.connect(timeout_s) as sock:
            sock.sendall(data)
            return read_answer(sock)

    def post(self, document: dict[str, Any] | bytes, **headers: str) -> Answer | None:
        return self.send(self.request(document, **headers))

    def request(
        self, document: dict[str, Any] | bytes, target: str = "/v1/messages?beta=true", **headers: str
    ) -> bytes:
        body = document if isinstance(document, bytes) else json.dumps(document, separators=(",", ":")).encode()
        given = {
            "Host": self.gate.settings.expected_host,
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
        }
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items() if value), "", ""]
        return "\r\n".join(lines).encode("latin-1") + body

    def close(self) -> GateRecord:
        if self.record is None:
            self.record = self.gate.close()
        return self.record


def read_answer(sock: socket.socket) -> Answer | None:
    """Read one response; None if the connection ends before a whole head."""
    data = b""
    try:
        while b"\r\n\r\n" not in data:
            piece = sock.recv(65536)
            if not piece:
                return None
            data += piece
        head, rest = data.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
        whole, body = _read_body(sock, headers, rest)
    except ConnectionResetError:
        return None
    return Answer(int(lines[0].split(" ")[1]), headers, body, data, whole)


def _read_body(sock: socket.socket, headers: dict[str, str], rest: bytes) -> tuple[bool, bytes]:
    chunked = headers.get("transfer-encoding") == "chunked"
    while True:
        if chunked:
            whole, body = _unchunk(rest)
        else:
            whole, body = len(rest) >= int(headers.get("content-length", "0")), rest
        if whole:
            return True, body
        try:
            piece = sock.recv(65536)
        except ConnectionResetError:
            return False, body
        if not piece:
            return False, body
        rest += piece


def _unchunk(data: bytes) -> tuple[bool, bytes]:
    body = b""
    while b"\r\n" in data:
        size, data = data.split(b"\r\n", 1)
        length = int(size, 16)
        if length == 0:
            return data.startswith(b"\r\n"), body
        body += data[:length]
        data = data[length + 2 :]
    return False, body


def message(text: str = "hello", **more: Any) -> dict[str, Any]:
    """A small request."""
    return {"model": MODEL, "max_tokens": 100, "messages": [{"role": "user", "content": text}], **more}


@pytest.fixture
def rig() -> Iterator[Callable[..., Rig]]:
    """Make gates: ``rig(upstream or a script's replies, tls=False, **settings)``. They are closed at the end."""
    made: list[Rig] = []

    def make(
        upstream: Upstream | list[dict[str, Any]] | None = None,
        *,
        tls: bool = False,
        gate: dict[str, Any] | None = None,
        **settings: Any,
    ) -> Rig:
        if isinstance(upstream, list):
            upstream = ScriptedUpstream(parse_script(json.dumps({"schema_version": 1, "replies": upstream}).encode()))
        listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        port = int(listener.getsockname()[1])
        authority = make_authority() if tls else None
        given = GateSettings(mode="first-party" if tls else "base-url", base_url_port=port, **settings)
        used = upstream if upstream is not None else CountingUpstream()
        stops: list[Refusal] = []
        new = Gate(given, used, authority=authority, on_stop=stops.append, **(gate or {}))
        new.serve(listener)
        made.append(Rig(new, used, ("127.0.0.1", port), authority, stops))
        return made[-1]

    yield make
    for one in made:
        one.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "hermeval-gate"]


def wait_for(condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)


@pytest.fixture
def until() -> Callable[..., None]:
    """``wait_for``."""
    return wait_for


@pytest.fixture
def ask() -> Callable[..., dict[str, Any]]:
    """``message``: make a small request document."""
    return message


@pytest.fixture
def read() -> Callable[[socket.socket], Answer | None]:
    """``read_answer``: read one response from a socket."""
    return read_answer
