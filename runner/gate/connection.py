"""One accepted connection: aiohttp's parser, with nothing that it refuses or receives left out of the record.

Boundary: touches: one socket, through asyncio. Not here: what a parsed request gets (serving.py).
Rules: this is the one place that leans on aiohttp's inner workings (``RequestHandler``'s ``data_received``, ``handle_error``, ``finish_response``,
``_messages``, ``_request_count``): a new aiohttp is tried against tests/gate first. One request at a time: whatever is pipelined behind one that is not yet
answered is dropped and recorded, and the connection closes after the answer. A request's head has a deadline and a size from its first byte.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import struct
from typing import Any, Protocol, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.web_protocol import RequestHandler
from typing_extensions import override

HEAD_DEADLINE_S = 10.0
IDLE_DEADLINE_S = 75.0
LINGER_S = 2.0
"""How long the rest of a refused request is read and dropped, so that its answer is not lost to a reset."""

MAX_HEAD_BYTES = 64 * 1024
MAX_HEADERS = 100

_LINE = re.compile(rb"(?:\r\n)*[^ \t\r\n]+ [^ \t\r\n]+ HTTP/\d\.\d\r\n")
"""A request line as RFC 9112 has it; the parser takes more than one space, and half of a line's end before it."""

_LOG = logging.getLogger(__name__)


class Hangup(ConnectionError):
    """Raised by a handler to end the connection without another byte."""


class Answered:
    """Stands in for aiohttp's response object: everything has been written already."""

    def __init__(self, *, keep_alive: bool) -> None:
        self.keep_alive = keep_alive

    async def prepare(self, request: object) -> None:
        """Do nothing."""

    async def write_eof(self) -> None:
        """Do nothing."""

    def as_response(self) -> web.StreamResponse:
        """Return this under the type that aiohttp asks for; it uses no more than what is here."""
        return cast("web.StreamResponse", self)


class Host(Protocol):
    """What a connection tells its owner."""

    def unparsed(self, code: str, message: str, raw: bytes, *, answered: bool = True) -> bytes:
        """Record bytes that made no request, and whether they get the answer that this returns (head and body)."""
        ...

    def dropped(self, message: Any) -> None:
        """Record a request that was pipelined and is not answered."""
        ...

    def broken(self, error: BaseException | None) -> bytes:
        """Note a fault of the gate's own; return the whole answer to send."""
        ...

    def gone(self, connection: Connection) -> None:
        """The connection is closed."""
        ...

    def answered(self, connection: Connection) -> None:
        """A request has been answered."""
        ...


class Connection(RequestHandler):
    """The protocol object of one connection."""

    def __init__(self, host: Host, server: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            auto_decompress=False,
            keepalive_timeout=IDLE_DEADLINE_S,
            tcp_keepalive=False,
            lingering_time=LINGER_S,
            max_headers=MAX_HEADERS,
            read_bufsize=256 * 1024,
            logger=_LOG,
            access_log=cast("logging.Logger", None),
        )
        self._host = host
        self._head: bytes | bytearray = b""
        """What came of a head that is not complete; all of what came last where that is the whole of it, so that a head in one piece is never copied."""
        self._refused_head = b""
        self._head_timer: asyncio.TimerHandle | None = None
        self._payload: Any = None
        self._answered_count = 0
        self._dropped: list[Any] = []
        self.gave_way = False
        """Whether it was closed to make room."""

    @classmethod
    def of(cls, request: web.BaseRequest) -> Connection:
        """Return the connection that a request came over."""
        connection = request.protocol
        assert isinstance(connection, cls)
        return connection

    @property
    def outstanding(self) -> int:
        """Requests received and not yet answered."""
        return self._request_count - self._answered_count

    @property
    def plain_line(self) -> bool:
        """Whether the line of the request that is being handled came as it must: what two readers could take apart in two ways is refused."""
        return _LINE.match(self._refused_head) is not None

    @property
    def idle(self) -> bool:
        """Whether nothing would be lost by closing now."""
        return not self.outstanding and not self._head

    @property
    def unfinished(self) -> bool:
        """Whether all that is here is part of a head, or a request whose body is not all there: nothing of it can have been booked or sent."""
        if self.outstanding:
            return self._payload is not None and not self._payload.is_eof()
        return bool(self._head)

    @override
    def data_received(self, data: bytes) -> None:
        if self._force_close or self._close:
            return
        in_body = self._payload is not None and not self._payload.is_eof()
        # aiohttp calls this without data to go on after a pause: that is no head, and its deadline would end in the middle of the answer.
        if data and not in_body:
            if not self._head:
                self._head = data
            else:
                if isinstance(self._head, bytes):
                    self._head = bytearray(self._head)
                self._head += data
        before = self._request_count
        super().data_received(data)
        if self._request_count > before:
            self._head_complete()
        elif len(self._head) > MAX_HEAD_BYTES:
            self._refuse("head-too-large", f"the head passes {MAX_HEAD_BYTES} bytes")
        elif self._head and self._head_timer is None:
            self._head_timer = self._loop.call_later(HEAD_DEADLINE_S, self._head_late)

    def _head_complete(self) -> None:
        self._stop_timer()
        self._refused_head = bytes(self._head[:MAX_HEAD_BYTES])
        self._head = b""
        # One that has been taken up already is no longer in _messages; else the first in it is the one to answer.
        taken = self.outstanding > len(self._messages)
        keep = 0 if taken else 1
        while len(self._messages) > keep:
            message, _ = self._messages.pop()
            self._request_count -= 1
            self._dropped.insert(0, message)
        if self._messages:
            self._payload = self._messages[-1][1]
        if self._dropped or (self._messages and not hasattr(self._messages[-1][0], "raw_headers")):
            self.close()  # nothing behind a pipelined request or a parser's refusal is read

    @override
    async def finish_response(self, request: web.BaseRequest, resp: Any, start_time: float | None) -> tuple[Any, bool]:
        self._answered_count += 1
        self._host.answered(self)
        self._record_dropped()
        return await super().finish_response(request, resp, start_time)

    @override
    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        if isinstance(exc, ConnectionError):
            raise exc
        if isinstance(exc, HttpProcessingError):
            code = "head-too-large" if isinstance(exc, LineTooLong) or "too many" in str(exc).lower() else "malformed"
            answer = self._host.unparsed(code, "the HTTP parser refused it", self._refused_head)
        else:
            answer = self._host.broken(exc)
        if self.transport is not None:
            self.transport.write(answer)
        return Answered(keep_alive=False).as_response()

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_timer()
        if not self._force_close:
            self._head_lost("the connection closed before the head was complete")
        self._record_dropped()
        super().connection_lost(exc)
        self._host.gone(self)

    def abort(self, *, reset: bool = False) -> None:
        """End the connection at once, by a reset if asked for."""
        self._force_close = True
        transport = self.transport
        if transport is None:
            return
        if reset and (sock := transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()

    def give_way(self) -> None:
        """End an idle or unfinished connection at once, so that another can have its place; part of a head is recorded, part of a body by whoever waits for the rest."""
        self.gave_way = True
        self._stop_timer()
        self._head_lost("the connection gave way to another before the head was complete")
        self.abort()

    async def flushed(self, deadline_s: float) -> None:
        """Wait until everything written has gone to the kernel."""
        end = self._loop.time() + deadline_s
        while (transport := self.transport) is not None:
            if not transport.get_write_buffer_size() or self._loop.time() > end:
                return
            await asyncio.sleep(0.001)

    def _head_lost(self, message: str) -> None:
        """Record part of a head of which no more comes."""
        if self._head:
            self._host.unparsed("malformed", message, bytes(self._head[:MAX_HEAD_BYTES]), answered=False)
            self._head = b""

    def _record_dropped(self) -> None:
        dropped, self._dropped = self._dropped, []
        for message in dropped:
            self._host.dropped(message)

    def _head_late(self) -> None:
        self._head_timer = None
        self._refuse("head-timeout", f"the head was not complete after {HEAD_DEADLINE_S:g} s")

    def _refuse(self, code: str, message: str) -> None:
        self._stop_timer()
        under_way = self.outstanding > 0
        answer = self._host.unparsed(code, message, bytes(self._head[:MAX_HEAD_BYTES]), answered=not under_way)
        self._head = b""
        if under_way:  # whatever is written now would stand in the middle of that answer
            self.close()
            return
        if self.transport is not None:
            self.transport.write(answer)
        self.force_close()

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
