"""The reader of bytes on a connection of the gate: parser and policy.

Boundary: an event loop without a socket. Not here: the gate over a real one (tests/gate).
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import cache
from typing import Any

from aiohttp import web

from runner.gate.connection import Answered, Connection
from runner.gate.policy import INFERENCE_PATHS, Forward, RequestHead, decide_head
from runner.gate.settings import GateSettings
from tests.fuzz.target import Read

SETTINGS = GateSettings()


class Wire(asyncio.Transport):
    """A transport that leads nowhere."""

    closed = False

    def write(self, data: Any) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


class Keeper:
    """Whom a connection tells; keeps what broke."""

    def __init__(self) -> None:
        self.broke: list[BaseException | None] = []

    def unparsed(self, code: str, message: str, raw: bytes, *, answered: bool = True) -> bytes:
        return b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"

    def dropped(self, message: Any) -> None:
        pass

    def broken(self, error: BaseException | None) -> bytes:
        self.broke.append(error)
        return b""

    def gone(self, connection: Connection) -> None:
        pass

    def answered(self, connection: Connection) -> None:
        pass


async def handle(request: web.BaseRequest) -> web.StreamResponse:
    """Decide on a request's head as the gate does; what is forwarded is one of the few exact requests."""
    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.raw_headers)
    target = request.raw_path.encode("utf-8", "surrogateescape").decode("latin-1")
    head = RequestHead(request.method, target, (request.version.major, request.version.minor), headers)
    if isinstance(decide_head(head, SETTINGS), Forward):
        assert request.method == "POST"
        assert target.partition("?")[0] in INFERENCE_PATHS
    return Answered(keep_alive=False).as_response()


async def serve(server: web.Server, data: bytes) -> None:
    """Let bytes come on a connection, in two pieces, then close it. Raises: AssertionError where the gate's own code broke."""
    keeper = Keeper()
    connection = Connection(keeper, server, asyncio.get_running_loop())
    connection.connection_made(Wire())
    connection.data_received(data[: len(data) // 3])
    connection.data_received(data[len(data) // 3 :])
    for _ in range(3):
        await asyncio.sleep(0)
    connection.connection_lost(None)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    for error in keeper.broke:
        raise AssertionError("the gate broke") from error


def read_http() -> Read:
    """Bytes on a connection of the gate."""
    loop = asyncio.new_event_loop()

    async def make() -> web.Server:
        return web.Server(handle, handler_cancellation=True)

    server = loop.run_until_complete(make())
    return lambda data: loop.run_until_complete(serve(server, data))


@cache
def heads() -> tuple[bytes, ...]:
    """Requests as the CLI sends them, whole."""
    body = b'{"model":"claude-sonnet-5-5","max_tokens":9,"messages":[]}'
    length = str(len(body)).encode()
    head = b"POST /v1/messages?beta=true HTTP/1.1\r\nHost: api.anthropic.com\r\ncontent-type: application/json\r\nx-api-key: placeholder\r\ncontent-length: "
    hello = b"GET /api/hello HTTP/1.1\r\nHost: api.anthropic.com\r\naccept: */*\r\n\r\n"
    return (head + length + b"\r\n\r\n" + body, hello, b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n", hello * 2)
