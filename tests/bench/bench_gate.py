"""What the gate adds to a request's way: time to first byte through a gate with the live upstream, beside a direct client (acceptance 9).

The provider is a plain server in a process of its own that answers at once with an event stream; the request is one the CLI made. Client and gate each keep one connection, as
the CLI does. A gate with a provider key searches every answer for it, as in a live run.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from runner.gate.authority import make_authority
from runner.gate.server import Gate
from runner.gate.settings import PROVIDER_HOST, Ceilings, GateSettings
from runner.gate.upstreams.anthropic import AnthropicUpstream
from tests.bench.figures import interleave, table, versus
from tests.bench.rig import child_environment, load

_ORDINARY, _LONG = 50_000, 300_000
"""Bytes of a first request, and of one late in a conversation (facts/namespaces-and-gate.md)."""
_KEY = "sk-ant-api03-synthetic-of-the-bench-0123456789"
_EVENTS = [
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-5-5",'
    b'"content":[],"usage":{"input_tokens":10,"output_tokens":1}}}\n\n',
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
]


def provider() -> None:
    """Be the provider: print the port, answer every request on every connection until stdin closes."""
    import asyncio

    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    answer = head + b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in _EVENTS) + b"0\r\n\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                asked = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.split(b":")[1])
                    for line in asked.split(b"\r\n")
                    if line.lower().startswith(b"content-length:")
                )
                await reader.readexactly(length)
                writer.write(answer)
                await writer.drain()
        writer.close()

    async def stay() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)

    asyncio.run(stay())


class Client:
    """One connection that is kept, and one request that is sent over it again and again."""

    def __init__(self, sock: socket.socket, host: str, body: bytes) -> None:
        self.sock = sock
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = f"POST /v1/messages?beta=true HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self.request = head.encode() + body

    def ask(self) -> float:
        """Send the request, read the answer; return the seconds to its first byte."""
        started = time.perf_counter()
        self.sock.sendall(self.request)
        answer = self.sock.recv(65536)
        seconds = time.perf_counter() - started
        while not answer.endswith(b"\r\n0\r\n\r\n"):
            piece = self.sock.recv(65536)
            assert piece, answer
            answer += piece
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        return seconds


def request_body(size: int) -> bytes:
    """Return a request of about ``size`` bytes in the CLI's shape: system blocks, tools, and a conversation that makes up the rest."""
    tools = [
        {"name": f"Tool{number}", "description": "What it does. " * 60, "input_schema": {"type": "object"}}
        for number in range(22)
    ]
    value = {
        "model": "claude-sonnet-5-5",
        "max_tokens": 32_000,
        "stream": True,
        "system": [{"type": "text", "text": "You are an agent. " * 100}] * 4,
        "tools": tools,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello."}]}],
    }
    rest = size - len(json.dumps(value))
    value["messages"] = [{"role": "user", "content": [{"type": "text", "text": "a line of output\n" * (rest // 18)}]}]
    return json.dumps(value, separators=(",", ":")).encode()


@contextmanager
def through(provider_port: int, *, tls: bool) -> Iterator[tuple[socket.socket, str]]:
    """Give a connection through a gate with the live upstream, and the host to name."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    port = int(listener.getsockname()[1])
    ceilings = Ceilings(usd=None, requests=1_000_000, tokens=10**12, record_bytes=1 << 32)
    settings = GateSettings(mode="first-party" if tls else "base-url", base_url_port=port, ceilings=ceilings)
    authority = make_authority() if tls else None
    upstream = AnthropicUpstream(_KEY, base_url=f"http://127.0.0.1:{provider_port}")
    gate = Gate(settings, upstream, authority=authority, real_key=_KEY)
    gate.serve(listener)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
            if authority is None:
                yield sock, settings.expected_host
            else:
                import ssl

                context = ssl.create_default_context(cadata=authority.ca_pem.decode())
                with context.wrap_socket(sock, server_hostname=PROVIDER_HOST) as wrapped:
                    yield wrapped, settings.expected_host
    finally:
        record = gate.close()
    assert record.refused == 0, record.ended_by


def main(runs: int = 300) -> None:
    """Print the figures."""
    argv = [sys.executable, "-P", "-c", "from tests.bench.bench_gate import provider; provider()"]
    with ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(
                argv, env=child_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
            )
        )
        assert process.stdout is not None
        port = int(process.stdout.readline())
        for size in (_ORDINARY, _LONG):
            body = request_body(size)
            with ExitStack() as connections:
                direct = connections.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
                clients = {"direct": Client(direct, f"127.0.0.1:{port}", body)}
                for name, tls in (("through the gate, base-url", False), ("through the gate, first-party", True)):
                    sock, host = connections.enter_context(through(port, tls=tls))
                    clients[name] = Client(sock, host, body)
                figures = interleave({name: client.ask for name, client in clients.items()}, runs=runs, warmup=10)
            table(f"time to first byte, request of {len(body)} bytes; {load()}", list(figures.values()))
            # The aim is for what the CLI sends at first; of a long conversation every byte is parsed, searched and sent once more.
            aim_s = 0.001 if size == _ORDINARY else None
            versus(figures["through the gate, base-url"], figures["direct"], at_most_more_s=aim_s)
            versus(figures["through the gate, first-party"], figures["direct"])


if __name__ == "__main__":
    main()
