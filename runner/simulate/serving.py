"""The simulator's event loop: accept, read, pass to a door, let answers go wrong.

Boundary: touches: the listening socket and its connections. Not here: what a call does (machine.py), the thread (server.py).
Rules: imported late (aiohttp, the MCP SDK). Everything that comes is hostile: heads, bodies, connections and the trace have bounds, every read has a deadline, and only ``/mcp`` and
``/command`` are served. The connection's own bounds are the gate's (runner/gate/connection.py). What breaks HTTP or JSON-RPC is *malformed* and makes the attempt an error; what merely
asks for something else is *refused* and noted. An answer is decided before its first byte goes out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import TYPE_CHECKING, Any

from aiohttp import web

from runner.accepting import accepted
from runner.gate.connection import Answered, Connection, Hangup
from runner.gate.places import Places
from runner.simulate import command_door, mcp_door
from runner.simulate.command_door import command_answer, garbled, parse_command
from runner.simulate.machine import Answer
from runner.simulate.mcp_door import ANSWER_KEY, McpDoor

if TYPE_CHECKING:
    from runner.simulate.server import Simulator

MAX_CONNECTIONS = 64
MAX_BODY_BYTES = 256 * 1024
BODY_DEADLINE_S = 30.0

Headers = tuple[tuple[str, str], ...]
_REASONS = {200: "OK", 202: "Accepted", 404: "Not Found", 405: "Method Not Allowed", 413: "Content Too Large"}


class Serving:
    """Serves one listener for one simulator."""

    def __init__(self, simulator: Simulator, listener: socket.socket) -> None:
        self._simulator = simulator
        self._listener = listener
        self._places = Places(MAX_CONNECTIONS)
        self._accepting: asyncio.Task[None] | None = None
        self._stack = contextlib.AsyncExitStack()
        self._mcp: McpDoor | None = None

    async def start(self) -> None:
        """Begin to accept."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._loop_error)
        if "mcp" in self._simulator.contract.doors:
            self._mcp = McpDoor(self._simulator.contract, self._simulator.take, self._simulator.listed)
            await self._stack.enter_async_context(self._mcp.running())
        self._listener.setblocking(False)
        self._server = web.Server(self.handle, handler_cancellation=True)
        self._accepting = loop.create_task(self._accept())

    async def stop(self) -> None:
        """End every connection and what is under way."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.sleep(0)
        self._places.close_all()
        await self._stack.aclose()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=1.0)

    # -- connections

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        async for sock in accepted(self._listener, note=self._simulator.note, give_up=self._simulator.give_up):
            if self._places.full and self._places.make_room() is None:
                self._simulator.refused("too-many-connections", "")
                sock.close()
                continue
            connection = Connection(self, self._server, loop)
            self._places.take(connection, loop.create_task(self._connect(connection, sock)))
            await asyncio.sleep(0)  # let it begin: cancelled before its first step it would not close its socket

    async def _connect(self, connection: Connection, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: connection, sock)
        except OSError as error:
            self._places.give_back(connection)
            self._simulator.note(f"connection failed: {error}")

    def _loop_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._simulator.note(f"event loop: {context.get('message')}: {context.get('exception')!r}")

    # -- what connections tell (connection.Host)

    def unparsed(self, code: str, message: str, raw: bytes, *, answered: bool = True) -> bytes:
        """Count bytes that made no request. A connection that says nothing whole and leaves is nobody's call either."""
        self._simulator.malformed(code, raw[:80].decode("latin-1"))
        return render(400, (), f"{message}\n".encode(), close=True)

    def dropped(self, message: Any) -> None:
        """Count a pipelined request; it gets no answer."""
        self._simulator.malformed("pipelined", "")

    def broken(self, error: BaseException | None) -> bytes:
        """Take a fault of the simulator's own: the run cannot be measured any more."""
        self._simulator.fail(error)
        return render(500, (), b"internal fault\n", close=True)

    def gone(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self._places.give_back(connection)

    def answered(self, connection: Connection) -> None:
        """Keep the order of last use."""
        self._places.used(connection)

    # -- requests

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Pass one request to its door."""
        target = request.raw_path.encode("utf-8", "surrogateescape").decode("latin-1")
        problem = self._head_problem(request, target)
        if problem is None:
            body = await self._body(request)
            if isinstance(body, bytes):
                return await (self._command if target == command_door.PATH else self._over_mcp)(request, body)
            problem = body
        status, code = problem
        if code == "stream":
            return await self._write(request, render(405, (("allow", "POST"),), b"", close=not request.keep_alive))
        self._simulator.refused(code, f"{request.method} {target[:80]}")
        return await self._write(request, render(status, (), f"{code}\n".encode(), close=True), keep_alive=False)

    def _head_problem(self, request: web.BaseRequest, target: str) -> tuple[int, str] | None:
        """Return HTTP status and code of what keeps a request from a door, judged by its head."""
        names = [name.lower() for name, _ in request.raw_headers]
        values = {name.lower(): value.decode("latin-1") for name, value in request.raw_headers}
        doors = self._simulator.contract.doors
        paths = {
            **({mcp_door.PATH: ("POST", "GET", "DELETE")} if "mcp" in doors else {}),
            **({command_door.PATH: ("POST",)} if "command" in doors else {}),
        }
        if names.count(b"host") != 1 or values[b"host"] != self._simulator.host:
            return 421, "host"
        if target not in paths:
            return 404, "not-served"
        if request.method not in paths[target]:
            return 405, "method"
        if request.method != "POST":
            return (
                405,
                "stream",
            )  # of the older protocol: there is no stream and no session, which the client takes well
        if b"transfer-encoding" in names or names.count(b"content-length") != 1 or b"content-encoding" in names:
            return 411, "no-length"
        if b"origin" in names:
            return 403, "origin"
        if not values[b"content-length"].isdecimal() or int(values[b"content-length"]) > MAX_BODY_BYTES:
            return 413, "body-too-large"
        return None

    async def _body(self, request: web.BaseRequest) -> bytes | tuple[int, str]:
        try:
            async with asyncio.timeout(BODY_DEADLINE_S):
                return await request.content.read()
        except TimeoutError:
            return 408, "body-timeout"
        except (web.RequestPayloadError, ConnectionError) as error:
            self._simulator.refused("body-incomplete", "")
            raise Hangup from error

    async def _command(self, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        call = parse_command(body)
        if call is None:
            self._simulator.malformed("command", body[:80].decode("latin-1"))
            return await self._write(request, render(400, (), b"not a command\n", close=True), keep_alive=False)
        answer = self._simulator.take(call)
        await self._wait_or_lose(answer)
        headers, text = command_answer(answer)
        return await self._write(request, render(200, headers, text, close=not request.keep_alive))

    async def _over_mcp(self, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        assert self._mcp is not None, "the head was judged"
        scope = asgi_scope(request, self._simulator.port)
        sent: list[dict[str, Any]] = []
        pending = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if pending:
                return pending.pop()
            await asyncio.Event().wait()  # the end of the connection cancels the handler
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self._mcp.handle(scope, receive, send)
        answer = scope.get(ANSWER_KEY)
        status = int(sent[0]["status"])
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in sent[0]["headers"])
        text = b"".join(message.get("body", b"") for message in sent[1:])
        if not is_message(body):
            self._simulator.malformed("json-rpc", body[:80].decode("latin-1"))
        if isinstance(answer, Answer):
            await self._wait_or_lose(answer)
            if answer.way == "malformed":
                text = garbled(text)
        kept = tuple((name, value) for name, value in headers if name not in ("content-length", "connection"))
        return await self._write(request, render(status, kept, text, close=not request.keep_alive))

    async def _wait_or_lose(self, answer: Answer) -> None:
        """Wait as long as a slow answer takes; hang up instead of answering where the answer is lost."""
        if answer.way == "lost":
            raise Hangup
        if answer.delay_ms:
            await asyncio.sleep(answer.delay_ms / 1000)

    async def _write(
        self, request: web.BaseRequest, answer: bytes, *, keep_alive: bool | None = None
    ) -> web.StreamResponse:
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(BODY_DEADLINE_S):
                await request.writer.write(answer)
        return Answered(keep_alive=request.keep_alive if keep_alive is None else keep_alive).as_response()


def render(status: int, headers: Headers, body: bytes, *, close: bool) -> bytes:
    """Return a whole HTTP response."""
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Refused')}"]
    lines += [f"{name}: {value}" for name, value in headers]
    if status != 202 or body:
        lines.append(f"content-length: {len(body)}")
    else:
        lines.append("content-length: 0")
    lines.append(f"connection: {'close' if close else 'keep-alive'}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def asgi_scope(request: web.BaseRequest, port: int) -> dict[str, Any]:
    """Return the ASGI scope of a request to the MCP path."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": mcp_door.PATH,
        "raw_path": mcp_door.PATH.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.raw_headers],
        "client": ("127.0.0.1", 0),
        "server": ("127.0.0.1", port),
        "state": {},
        "extensions": {},
    }


def is_message(body: bytes) -> bool:
    """Whether a body is one JSON-RPC request or notification. The SDK answers what is none in many ways, by protocol version; it is counted here, in one."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return False
    match message:
        case {"jsonrpc": "2.0", "method": str(), **rest}:
            return "id" not in rest or (isinstance(rest["id"], str | int) and not isinstance(rest["id"], bool))
        case _:
            return False
