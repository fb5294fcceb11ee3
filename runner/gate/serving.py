"""The gate's event loop: accept, read, decide, forward, refuse.

Boundary: touches: the listening socket and its connections. Not here: the decisions (policy.py, ledger.py), an answer's way (relay.py).
Rules: imported late (aiohttp). Every request that arrives is recorded, whatever becomes of it; every refusal says ``x-should-retry: false`` and
closes its connection. Nothing is sent before policy and ledger have said yes. A request that only has to wait for its turn (``Busy``) is held, first
come, first served, with its body already read; the number of connections bounds how many can wait, the ceilings bound the total. A client that
goes away while it waits is never sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any

from aiohttp import web

from runner.accepting import accepted
from runner.gate.authority import server_context
from runner.gate.connection import Answered, Connection, Hangup
from runner.gate.exchange import Headers, Refusal, Request
from runner.gate.ledger import Ask, Busy, Reservation, billed
from runner.gate.places import Places
from runner.gate.policy import Forward, Refuse, RequestHead, StartUp, decide_body, decide_head, error_body, refuse
from runner.gate.record import Draft
from runner.gate.redact import Scrubber, holds
from runner.gate.relay import Relay, Stopped, refusal_headers, render_head
from runner.gate.upstreams import UpstreamCut, UpstreamFailed, UpstreamRefusal, UpstreamRequest

if TYPE_CHECKING:
    import ssl

    from runner.gate.server import Gate

BODY_DEADLINE_S = 60.0
HANDSHAKE_DEADLINE_S = 10.0
REST_S, REST_POLL_S, REST_DEADLINE_S = 0.2, 0.02, 10.0
"""A stream is cut once the CLI has been at rest for so long after its last piece, looked at so often; at the latest after so long (a tool in the background may never rest). The CLI drops
what it has not read when the connection goes, and then counts another cost in its result. A pause by the clock alone was too short on a busy machine, now and then, whatever its length."""
ENDING_CODES = frozenset({"price-unknown", "unscripted", "replay-miss"})
"""Refusals that can end a run without being about a ceiling."""

KEY_INSIDE = "the request holds the real key, which has no business inside"
_NOT_FOUND = error_body("not_found_error", "gate: not served here")


class Serving:
    """Serves one listener for one gate."""

    def __init__(self, gate: Gate, listener: socket.socket) -> None:
        self._gate = gate
        self._settings = gate.settings
        self._recorder = gate.recorder
        self._ledger = gate.ledger
        self._listener = listener
        self._key = gate.real_key.encode("latin-1", "replace") if gate.real_key else None
        self._placeholder = gate.settings.placeholder_key.encode("ascii")
        self._context: ssl.SSLContext | None = None
        self._places = Places()
        self._turn = asyncio.Lock()
        self._settled = asyncio.Event()
        self._reading = 0
        self._stopping = False
        self._accepting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to accept."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._loop_error)
        if self._gate.authority is not None:
            self._context = server_context(self._gate.authority)
        await self._gate.upstream.open()
        self._listener.setblocking(False)
        self._server = web.Server(self.handle, handler_cancellation=True)
        self._accepting = loop.create_task(self._accept())

    async def stop(self) -> None:
        """End every connection and what is under way."""
        self._stopping = True
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.sleep(0)
        self._places.close_all()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if others:
            _, pending = await asyncio.wait(others, timeout=0.5)
            for task in pending:
                task.cancel()
            if pending:
                await asyncio.wait(pending, timeout=1.0)
        await self._gate.upstream.close()

    # -- connections

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        async for sock in accepted(self._listener, note=self._gate.note, give_up=self._gate.give_up):
            if self._places.full:
                gave_way = self._places.make_room()
                self._gate.connections_failed += gave_way != "unfinished"  # which is in the record
                if gave_way is None:
                    sock.close()
                    continue
            connection = Connection(self, self._server, loop)
            self._places.take(connection, loop.create_task(self._connect(connection, sock)))
            await asyncio.sleep(0)  # let it begin: cancelled before its first step it would not close its socket

    async def _connect(self, connection: Connection, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        deadline = HANDSHAKE_DEADLINE_S if self._context else None
        try:
            await loop.connect_accepted_socket(
                lambda: connection,
                sock,
                ssl=self._context,
                ssl_handshake_timeout=deadline,
                ssl_shutdown_timeout=1.0 if deadline else None,
            )
        except OSError as error:  # ssl.SSLError and TimeoutError are of this kind
            self._places.give_back(connection)
            self._gate.connections_failed += 1
            self._gate.note(f"connection failed: {error}")

    def _loop_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._gate.note(f"event loop: {context.get('message')}: {context.get('exception')!r}")

    # -- what connections tell (connection.Host)

    def unparsed(self, code: str, message: str, raw: bytes, *, answered: bool = True) -> bytes:
        """Record bytes that made no request: the first line as method and target as far as it goes, all of it as the body."""
        decision = refuse(code, message)
        raw = self._scrubber().whole(raw)
        parts = raw.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        request = Request(method=parts[0][:20], target=parts[1][:8192] if len(parts) > 1 else "", body=raw)
        return self._record_refusal(request, decision, answered=answered)

    def dropped(self, message: Any) -> None:
        """Record a pipelined request; it gets no answer."""
        decision = refuse("pipelined", "a second request came before the first was answered")
        if hasattr(message, "raw_headers"):
            headers = _texts(message.raw_headers)
            request = self._request(RequestHead(message.method, latin(message.path), (1, 1), headers), b"")
        else:
            request = Request(method="", target="")
        self._record_refusal(request, decision, answered=False)

    def broken(self, error: BaseException | None) -> bytes:
        """Note a fault of the gate's own."""
        self._gate.note(f"handler failed: {error!r}")
        body = error_body("api_error", "gate: internal fault")
        return render_head(500, refusal_headers(body)) + body

    def gone(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self._places.give_back(connection)

    def answered(self, connection: Connection) -> None:
        """Keep the order of last use."""
        self._places.used(connection)

    # -- requests

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Take one parsed request through policy, ledger and upstream."""
        version = (request.version.major, request.version.minor)
        head = RequestHead(request.method, latin(request.raw_path), version, _texts(request.raw_headers))
        decision = decide_head(head, self._settings)
        if not Connection.of(request).plain_line:
            decision = refuse("malformed", "the request line is not METHOD SP TARGET SP VERSION")
        if isinstance(decision, StartUp) and self._holds_key(head, b""):  # its body goes nowhere, its path is kept
            decision = refuse("key-inside", KEY_INSIDE)
        if isinstance(decision, StartUp):
            return await self._start_up(request, head)
        if isinstance(decision, Forward) and not self._recorder.room_for(self._reading + decision.length):
            decision = Refuse(Refusal(code="over-record", message="the attempt's record is full", over_budget=True))
        if isinstance(decision, Refuse):
            return await self._refuse(request, self._request(head, b""), decision)
        body = await self._body(request, head, decision.length)
        if isinstance(body, Refuse):
            return await self._refuse(request, self._request(head, b""), body)
        if self._holds_key(head, body):
            decision = refuse("key-inside", KEY_INSIDE)
        else:
            decision = decide_body(head, body, self._settings)
        if not isinstance(decision, Forward):
            assert isinstance(decision, Refuse)
            return await self._refuse(request, self._request(head, body), decision)
        return await self._forward(request, head, body, decision)

    async def _start_up(self, request: web.BaseRequest, head: RequestHead) -> web.StreamResponse:
        """Answer a start-up path: method and path are kept, nothing else."""
        target = head.target.split("?", 1)[0]
        draft = self._recorder.arrive("start-up", Request(method=head.method, target=target))
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BODY_DEADLINE_S):
                    async for _ in request.content.iter_any():
                        pass
            return await self._answer_start_up(request, draft)
        except (asyncio.CancelledError, web.RequestPayloadError, ConnectionError) as error:
            self._recorder.ended(draft, self._gone())
            if isinstance(error, asyncio.CancelledError):
                raise
            raise Hangup from error

    async def _answer_start_up(self, request: web.BaseRequest, draft: Draft) -> web.StreamResponse:
        body = b"" if request.method == "HEAD" else _NOT_FOUND
        headers: Headers = (("content-type", "application/json"), ("content-length", str(len(body))))
        await request.writer.write(render_head(404, headers) + body)
        self._recorder.started(draft, 404, headers)
        self._recorder.sent(draft, body)
        self._recorder.ended(draft, "complete")
        return Answered(keep_alive=request.keep_alive).as_response()

    async def _body(self, request: web.BaseRequest, head: RequestHead, length: int) -> bytes | Refuse:
        self._reading += length
        try:
            async with asyncio.timeout(None if request.content.is_eof() else BODY_DEADLINE_S):  # all there: no wait
                body = await request.content.read()
        except TimeoutError:
            return refuse("body-timeout", f"the body was not complete after {BODY_DEADLINE_S:g} s")
        except (asyncio.CancelledError, web.RequestPayloadError, ConnectionError) as error:
            gave_way = Connection.of(request).gave_way
            who = "the connection gave way to another" if gave_way else "the client went away"
            gone = refuse("body-incomplete", f"{who} before the body was complete")
            self._record_refusal(self._request(head, b""), gone, answered=False)
            if isinstance(error, asyncio.CancelledError):
                raise
            raise Hangup from error
        finally:
            self._reading -= length
        return body if len(body) == length else refuse("body-incomplete", "the body has another length than was said")

    async def _forward(
        self, request: web.BaseRequest, head: RequestHead, body: bytes, decision: Forward
    ) -> web.StreamResponse:
        assert decision.document is not None
        draft = self._recorder.arrive("inference", head.request(body))  # ``handle`` searched it: it holds no key
        ask = Ask(decision.endpoint, decision.model, len(body), decision.max_tokens)
        try:
            held = await self._reserve(ask)
        except asyncio.CancelledError:
            self._recorder.ended(draft, self._gone())
            raise
        if isinstance(held, Refusal):
            return await self._refuse(request, draft.request, Refuse(held), draft)
        scrubber = self._scrubber()
        relay = Relay(
            request.writer, self._recorder, draft, scrubber, response_bytes=self._settings.ceilings.response_bytes
        )
        asked = UpstreamRequest(
            draft.seq,
            decision.endpoint,
            head.target,
            head.headers,
            body,
            decision.document,
            draft.session,
            draft.agent,
            lambda: self._recorder.arrived,
        )
        try:
            return await self._answer(request, asked, relay, draft)
        finally:
            usage = billed(
                ask,
                status=relay.status,
                streamed=decision.stream,
                complete=relay.complete,
                seen=relay.meter.usage,
                final=relay.meter.final,
                body_bytes=relay.body_bytes,
            )
            self._ledger.settle(held, usage)
            self._settled.set()

    async def _reserve(self, ask: Ask) -> Reservation | Refusal:
        async with self._turn:
            while isinstance(outcome := self._ledger.reserve(ask), Busy):
                self._settled.clear()
                await self._settled.wait()
        return outcome

    async def _answer(
        self, request: web.BaseRequest, asked: UpstreamRequest, relay: Relay, draft: Draft
    ) -> web.StreamResponse:
        try:
            async with self._gate.upstream.answer(asked) as answer:
                await relay.pass_on(answer, key_known=self._key is not None)
        except UpstreamRefusal as error:
            relay.status = 400
            return await self._refuse(request, draft.request, Refuse(error.refusal), draft)
        except UpstreamFailed as error:
            await relay.send_failure(error)
        except UpstreamCut as error:
            if draft.status is not None:
                await self._rest()
            self._recorder.ended(draft, "cut")
            return await self._hang_up(request, reset=error.reset)
        except Stopped as error:
            draft.refusal = error.refusal
            self._tell(error.refusal)
            if draft.status is not None:
                self._recorder.ended(draft, "cut")
                return await self._hang_up(request, reset=False)
            await relay.send_error(502, f"{error.refusal.code}: {error.refusal.message}", retryable=False)
        except asyncio.CancelledError:
            self._recorder.ended(draft, self._gone())
            raise
        except (ConnectionError, TimeoutError) as error:
            self._recorder.ended(draft, self._gone())
            Connection.of(request).abort()
            raise Hangup from error
        self._recorder.ended(draft, "complete")
        return Answered(keep_alive=request.keep_alive).as_response()

    async def _rest(self) -> None:
        """Wait until the CLI has read what it was sent."""
        rested, deadline = 0.0, (now := asyncio.get_running_loop().time)() + REST_DEADLINE_S
        while rested < REST_S and now() < deadline:
            await asyncio.sleep(REST_POLL_S)
            rested = rested + REST_POLL_S if self._gate.at_rest() else 0.0

    async def _hang_up(self, request: web.BaseRequest, *, reset: bool) -> web.StreamResponse:
        connection = Connection.of(request)
        if reset:
            await connection.flushed(1.0)
            connection.abort(reset=True)
        raise Hangup

    # -- refusals

    async def _refuse(
        self, request: web.BaseRequest, recorded: Request, decision: Refuse, draft: Draft | None = None
    ) -> web.StreamResponse:
        answer = self._record_refusal(recorded, decision, draft)
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(BODY_DEADLINE_S):
                await request.writer.write(answer)
        return Answered(keep_alive=False).as_response()

    def _record_refusal(
        self, recorded: Request, decision: Refuse, draft: Draft | None = None, *, answered: bool = True
    ) -> bytes:
        """Record a refusal, and its answer if one is sent; return that answer, head and body."""
        if draft is None:
            draft = self._recorder.arrive("refused", recorded, decision.refusal)
        else:
            self._recorder.refused(draft, decision.refusal)
        headers = refusal_headers(decision.body)
        body = b"" if recorded.method == "HEAD" else decision.body
        if answered:
            self._recorder.started(draft, decision.status, headers)
            self._recorder.sent(draft, body)
        self._recorder.ended(draft, "complete" if answered else "client-gone")
        self._tell(decision.refusal)
        return render_head(decision.status, headers) + body

    def _tell(self, refusal: Refusal) -> None:
        if refusal.over_budget or refusal.code in ENDING_CODES:
            self._gate.stopped_by(refusal)

    # -- small things

    def _request(self, head: RequestHead, body: bytes) -> Request:
        """Return the recorded form of a request, without the real key should it be in there."""
        if not self._holds_key(head, body):
            return head.request(body)
        scrub = self._scrubber()
        headers = tuple((scrub.text(name), scrub.text(value)) for name, value in head.headers)
        return Request(
            method=scrub.text(head.method), target=scrub.text(head.target), headers=headers, body=scrub.whole(body)
        )

    def _holds_key(self, head: RequestHead, body: bytes) -> bool:
        if not self._key:
            return False
        parts = (head.method, head.target, *(part for pair in head.headers for part in pair))
        return holds(body, self._key) or self._key in "\n".join(parts).encode("latin-1")

    def _scrubber(self) -> Scrubber:
        return Scrubber(self._key, self._placeholder)

    def _gone(self) -> Any:
        return "cut" if self._stopping else "client-gone"


def _texts(raw: Any) -> Headers:
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in raw)


def latin(text: str) -> str:
    """Return aiohttp's reading of raw bytes (UTF-8 with escapes) as latin-1 text, one character a byte."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("latin-1")
