"""One answer on its way from the upstream to the CLI.

Boundary: touches: one connection, through the writer it is given. Not here: whether the request was sent (serving.py), what the upstream does.
Rules: streamed piece by piece, recorded as sent, in the same bytes. The head is rebuilt from an allow list: no cookie, no account's name, no
rate-limit figures. A redirect is never followed nor passed on. Framing is the gate's own (chunked). A cut answer is passed on as cut. Nothing is asked twice.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING

from runner.gate.exchange import Headers, Refusal
from runner.gate.policy import error_body
from runner.gate.redact import Scrubber, decode
from runner.gate.upstreams import UpstreamAnswer, UpstreamFailed
from runner.gate.usage import UsageMeter

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter

    from runner.gate.record import Draft, Recorder

WRITE_DEADLINE_S = 30.0
"""How long a client may take no byte at all."""

RESPONSE_HEADERS = frozenset(
    {"content-type", "content-encoding", "request-id", "retry-after", "retry-after-ms", "x-should-retry"}
)
"""Response headers that are passed on. ``request-id`` is made up where the upstream has none, since the CLI tells repeats by it."""


_NO_WHOLE_BODY = (204, 205, 206)
"""Statuses of success with no body, or with part of one: no answer of this API, and a client that knows them reads the gate's own framing as the next answer."""
_ENCODINGS = frozenset(
    {"aes128gcm", "br", "compress", "deflate", "exi", "gzip", "pack200-gzip", "x-compress", "x-gzip", "zstd"}
)
"""Encodings that a message may name; any other text of the provider's, which may be the key in whatever case, stands in none."""


class Stopped(Exception):
    """The gate stops an answer: before its first byte by a 502, later by a cut."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class Relay:
    """Passes one answer on. Afterwards ``status``, ``complete``, ``body_bytes``, ``usage`` and ``final`` say what came."""

    def __init__(
        self, writer: AbstractStreamWriter, recorder: Recorder, draft: Draft, scrubber: Scrubber, *, response_bytes: int
    ) -> None:
        self.status: int | None = None
        self.complete = False
        self.body_bytes = 0
        self.meter = UsageMeter(event_stream=False)
        self._writer = writer
        self._recorder = recorder
        self._draft = draft
        self._scrubber = scrubber
        self._limit = response_bytes

    async def pass_on(self, answer: UpstreamAnswer, *, key_known: bool) -> None:
        """Send the whole answer, or as much of it as comes.

        Raises: UpstreamCut, Stopped; TimeoutError and ConnectionError of the client's side.
        """
        self.status = answer.status
        if answer.status in _NO_WHOLE_BODY or not (200 <= answer.status < 300 or 400 <= answer.status < 600):
            await self.send_error(
                502, f"the provider answered with status {answer.status}, which is not passed on", retryable=False
            )
            return
        kinds = _values(answer.headers, "content-type")
        encodings = _values(answer.headers, "content-encoding")
        if any(value.strip().lower() != "chunked" for value in _values(answer.headers, "transfer-encoding")):
            raise Stopped(
                Refusal(
                    code="upstream-encoding", message="a response in a transfer coding other than chunked is not read"
                )
            )
        encoding = ",".join(encodings).strip().lower()
        self.meter = UsageMeter(event_stream=bool(kinds) and kinds[0].lower().startswith("text/event-stream"))
        headers = self._kept(answer.headers)
        self._note_redactions()
        if encoding in {"", "identity"}:
            await self._stream(answer, headers)
        elif key_known:
            await self._whole(answer, headers, encoding)
        else:
            await self._encoded(answer, headers, encoding)
        self.meter.close()
        self.complete = True

    async def send_failure(self, error: UpstreamFailed) -> None:
        """Say that no answer could be had. What nobody was sent has the gate's own status, for which nothing is booked."""
        if not error.sent:
            self.status = 502
        await self.send_error(502, error.message, retryable=error.retryable)

    async def send_error(self, status: int, message: str, *, retryable: bool) -> None:
        """Send an error of the gate's own."""
        body = error_body("api_error", f"gate: {message}")
        headers: Headers = (
            ("content-type", "application/json"),
            ("request-id", self._request_id()),
            ("content-length", str(len(body))),
        )
        if not retryable:
            headers += (("x-should-retry", "false"),)
        await self._write(render_head(status, headers) + body)
        self._recorder.started(self._draft, status, headers)
        self._recorder.sent(self._draft, body)

    async def _stream(self, answer: UpstreamAnswer, headers: Headers) -> None:
        await self._head(answer.status, headers)
        try:
            async for piece in answer.body:
                await self._piece(self._scrubber.feed(piece))
        finally:
            last = self._scrubber.close()
            self._note_redactions()
        if last:
            await self._piece(last)
        await self._write(b"0\r\n\r\n")

    async def _encoded(self, answer: UpstreamAnswer, headers: Headers, encoding: str) -> None:
        """Stream an encoded body where there is no key to look for; its usage is read at the end."""
        await self._head(answer.status, headers)
        meter, self.meter = self.meter, UsageMeter(event_stream=False)
        async for piece in answer.body:
            await self._piece(piece)
        await self._write(b"0\r\n\r\n")
        self.meter = meter
        if (text := decode(b"".join(self._draft.chunks), encoding)) is not None:
            meter.feed(text)

    async def _whole(self, answer: UpstreamAnswer, headers: Headers, encoding: str) -> None:
        """Pass an encoded body on only once it has been decoded and searched."""
        pieces: list[bytes] = []
        size = 0
        async for piece in answer.body:
            size += len(piece)
            self._check_size(size)
            pieces.append(piece)
        self.body_bytes = size
        body = b"".join(pieces)
        text = decode(body, encoding)
        if text is None:
            named = encoding if encoding in _ENCODINGS else "something else"
            raise Stopped(
                Refusal(
                    code="upstream-encoding", message=f"a response encoded as {named} cannot be searched for the key"
                )
            )
        self.meter.feed(text)
        if self._scrubber.whole(text) is not text or self._scrubber.whole(body) is not body:
            self._note_redactions()
            raise Stopped(Refusal(code="key-in-response", message="an encoded response holds the key"))
        self.body_bytes = 0
        await self._head(answer.status, headers)
        for piece in pieces:
            await self._piece(piece, metered=True)
        await self._write(b"0\r\n\r\n")

    def _kept(self, headers: Headers) -> Headers:
        kept = tuple((name, self._scrubber.text(value)) for name, value in headers if name.lower() in RESPONSE_HEADERS)
        if not any(name.lower() == "request-id" for name, _ in kept):
            kept += (("request-id", self._request_id()),)
        return (*kept, ("transfer-encoding", "chunked"))

    def _request_id(self) -> str:
        return f"req_gate_{self._draft.seq:04d}"

    async def _head(self, status: int, headers: Headers) -> None:
        await self._write(render_head(status, headers))
        self._recorder.started(self._draft, status, headers)

    async def _piece(self, piece: bytes, *, metered: bool = False) -> None:
        if not piece:
            return
        self._check_size(self.body_bytes + len(piece))
        await self._write(b"%x\r\n%b\r\n" % (len(piece), piece))
        self.body_bytes += len(piece)
        self._recorder.sent(self._draft, piece)
        if not metered:
            self.meter.feed(piece)

    def _check_size(self, size: int) -> None:
        if size > self._limit:
            raise Stopped(
                Refusal(code="response-too-large", message=f"the response passes {self._limit} bytes", over_budget=True)
            )
        if not self._recorder.room_for(size - self.body_bytes):
            raise Stopped(Refusal(code="over-record", message="the attempt's record is full", over_budget=True))

    def _note_redactions(self) -> None:
        self._draft.key_redactions = self._scrubber.count

    async def _write(self, data: bytes) -> None:
        async with asyncio.timeout(WRITE_DEADLINE_S):
            await self._writer.write(data)


def _values(headers: Headers, wanted: str) -> list[str]:
    return [value for name, value in headers if name.lower() == wanted]


def render_head(status: int, headers: Headers) -> bytes:
    """Return a response's head as it goes over the wire."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Status"
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def refusal_headers(body: bytes) -> Headers:
    """Return the headers of a refusal: the CLI is told not to try again, and the connection ends."""
    return (
        ("content-type", "application/json"),
        ("content-length", str(len(body))),
        ("x-should-retry", "false"),
        ("connection", "close"),
    )
