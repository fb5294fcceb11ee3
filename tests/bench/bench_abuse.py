"""What 500 idle connections and a slow reader cost an honest run through the same gate (issue 4, acceptance 5): the real CLI, and a client that only asks.

Rules: two gates in this process, each with a thread of its own, alike but for what hangs on one of them; runs alternate between them. The slow reader asks for an answer of many megabytes and takes a few bytes
of it now and then, again and again; the idle ones are opened once and stay as far as the gate lets them.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial

from runner.gate.upstreams import Upstream, UpstreamAnswer, UpstreamRequest
from sandbox.view import HOME
from tests.bench.bench_gate import Client, request_body
from tests.bench.figures import interleave, table, versus
from tests.bench.rig import bare_cli, endless, load, script_source, serve, this_machine

IDLE = 500
AT_MOST = 1.10
_SLOW = "claude-slow-reader"
_ASKS = 20
_EVENT = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'


class Mixed:
    """Answers the slow reader with many megabytes, a plain client with one event, and the rest as another upstream does."""

    kind = "mixed"

    def __init__(self, rest: Upstream) -> None:
        self._rest = rest

    async def open(self) -> None:
        """Open the other."""
        await self._rest.open()

    async def close(self) -> None:
        """Close the other."""
        await self._rest.close()

    @asynccontextmanager
    async def answer(self, request: UpstreamRequest) -> AsyncIterator[UpstreamAnswer]:
        """Answer by who asks."""
        if request.document["model"] == _SLOW:
            yield UpstreamAnswer(200, (("content-type", "text/event-stream"),), _pieces(b"x" * 65536, 512))
        elif request.document.get("system", [{}])[0].get("text", "").startswith("You are an agent. "):
            yield UpstreamAnswer(200, (("content-type", "text/event-stream"),), _pieces(_EVENT, 1))
        else:
            async with self._rest.answer(request) as answer:
                yield answer


async def _pieces(piece: bytes, times: int) -> AsyncIterator[bytes]:
    for _ in range(times):
        yield piece


@contextmanager
def attack(port: int, host: str, count: int) -> Iterator[None]:
    """Hang idle connections and a slow reader on a gate."""
    over = threading.Event()

    def read_slowly() -> None:
        body = request_body(2000).replace(b"claude-sonnet-5-5", _SLOW.encode())
        while not over.is_set():
            with contextlib.suppress(OSError), socket.socket() as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                sock.connect(("127.0.0.1", port))
                sock.sendall(Client(sock, host, body).request)
                while sock.recv(64) and not over.wait(0.05):
                    pass

    reader = threading.Thread(target=read_slowly)
    reader.start()
    idle = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(count)]
    time.sleep(0.3)  # all are accepted, or have given way
    try:
        yield
    finally:
        over.set()
        for sock in idle:
            sock.close()
        reader.join()


def main(runs: int = 20, idle: int = IDLE) -> None:
    """Print the figures."""
    with bare_cli(this_machine()) as cli, contextlib.ExitStack() as stack:
        source = script_source().replace(HOME.encode(), str(cli.directory / "home").encode())
        ports = [stack.enter_context(serve(Mixed(endless(source))))[1] for _ in range(2)]
        stack.enter_context(attack(ports[1], f"127.0.0.1:{ports[1]}", idle))
        body = request_body(50_000)

        def ask(port: int) -> float:
            """Ask again and again on one connection, as a conversation does."""
            with socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
                client = Client(sock, f"127.0.0.1:{port}", body)
                started = time.perf_counter()
                for _ in range(_ASKS):
                    client.ask()
                return time.perf_counter() - started

        names = ("alone", f"beside {idle} idle connections and a slow reader")
        runs_of = [replace(cli, port=port) for port in ports]
        whole = interleave(dict(zip(names, (one.run for one in runs_of), strict=True)), runs=runs)
        asked = interleave({name: partial(ask, port) for name, port in zip(names, ports, strict=True)}, runs=runs)
    for title, figures in (("a run of the real CLI", whole), (f"{_ASKS} requests of {len(body)} bytes", asked)):
        table(f"{title} through a gate; {load()}", list(figures.values()))
        quiet, attacked = figures.values()
        versus(attacked, quiet, at_most_ratio=AT_MOST)


if __name__ == "__main__":
    main()
