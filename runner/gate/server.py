"""The gate: serves a listening socket from a thread of its own, and hands back the record.

Boundary: touches: a thread, the given socket. Not here: HTTP (serving.py), decisions (policy.py, ledger.py), answers (upstreams/).
Rules: ``serve`` once, ``close`` once (again gives the same record). ``aiohttp`` is imported in the thread, so that the CLI boots meanwhile; the kernel
holds early connections. Nothing in here ends a run: ``on_stop`` tells the orchestrator of the first refusal that may have, from the gate's
thread; which refusal did is decided later, from the record.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from runner.errors import GateError, GateUnavailable
from runner.gate.exchange import Exchange, Refusal, Value
from runner.gate.ledger import Ledger
from runner.gate.prices import PriceTable, load_prices, usd
from runner.gate.record import Recorder
from runner.gate.settings import GateSettings
from runner.gate.upstreams import Upstream

if TYPE_CHECKING:
    import asyncio

    from runner.gate.authority import Authority

CLOSE_TIMEOUT_S = 10.0


class GateRecord(Value):
    """Everything the gate saw in one attempt."""

    exchanges: tuple[Exchange, ...] = ()
    upstream_kind: str = ""
    mode: str = "first-party"
    requests: int = 0
    """Requests sent to the upstream."""
    refused: int = 0
    """Refused requests among ``exchanges``."""
    unscripted: int = 0
    """Requests that the upstream had no answer for."""
    not_kept: int = 0
    """Refused and start-up requests beyond the number that is kept; all requests, of a gate that keeps none."""
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    tokens: int = 0
    """All kinds together, as booked."""
    cost_estimate_usd: str = "0"
    """List price of the booked tokens, exact decimal."""
    unpriced_requests: int = 0
    """Requests that the estimate lacks, for want of a price (possible only without a USD ceiling)."""
    prices_date: str = ""
    ended_by: Refusal | None = None
    """The first refusal of a kind that can end a run: a ceiling, an unknown price, no scripted answer."""
    key_redactions: int = 0
    connections_failed: int = 0
    """Connections that came to no request: a failed TLS handshake, silence, too many at once."""
    notes: tuple[str, ...] = ()
    """What went wrong inside the gate itself, if anything."""


class Gate:
    """One gate for one attempt."""

    def __init__(
        self,
        settings: GateSettings,
        upstream: Upstream,
        *,
        authority: Authority | None = None,
        real_key: str | None = None,
        session_id: str | None = None,
        on_stop: Callable[[Refusal], None] | None = None,
        prices: PriceTable | None = None,
        keep: bool = True,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Make a gate. ``authority`` is needed in first-party mode. ``real_key`` is what to keep out of responses and record (the upstream has its own).
        Without ``keep`` the record has counts and sums, and no exchanges (``hermeval gate``, which outlives attempts).

        Raises: GateError (``gate-settings``) if these do not fit together.
        """
        if settings.tls != (authority is not None):
            raise GateError("first-party mode needs an authority, base-URL mode takes none", code="gate-settings")
        if real_key is not None and (len(real_key) < 8 or real_key in settings.placeholder_key):
            raise GateError("the key is too short to be told from other text", code="gate-settings")
        self.settings = settings
        self.upstream = upstream
        self.authority = authority
        self.real_key = real_key
        self.ledger = Ledger(settings.ceilings, prices or load_prices())
        start_ns = monotonic_ns()
        self.recorder = Recorder(
            lambda: (monotonic_ns() - start_ns) // 1000,
            session_id=session_id,
            record_bytes=settings.ceilings.record_bytes,
            keep=keep,
        )
        self.ended_by: Refusal | None = None
        self.notes: list[str] = []
        self.connections_failed = 0
        self._on_stop = on_stop
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self._record: GateRecord | None = None

    def serve(self, listener: socket.socket) -> None:
        """Serve ``listener`` (bound and listening) until ``close``; the gate takes it over. Returns at once."""
        if self._thread is not None:
            raise GateError("a gate serves once", code="gate-settings")
        self._thread = threading.Thread(target=self._run, args=(listener,), name="hermeval-gate", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> BaseException | None:
        """Why the gate's thread ended by itself, if it did."""
        return self._failure

    def close(self) -> GateRecord:
        """Stop serving, end what is under way, and return the record.

        Raises: GateUnavailable if the gate's thread failed or does not end.
        """
        if self._record is None:
            with self._lock:
                self._closing = True
                if self._loop is not None and self._stop is not None:
                    self._loop.call_soon_threadsafe(self._stop.set)
            if self._thread is not None:
                self._thread.join(CLOSE_TIMEOUT_S)
                if self._thread.is_alive():
                    raise GateUnavailable("the gate's thread does not end", hint="report this as a bug")
            self._record = self._make_record()
        if self._failure is not None:
            raise GateUnavailable(f"the gate's thread failed: {self._failure!r}") from self._failure
        return self._record

    def stopped_by(self, refusal: Refusal) -> None:
        """Note a refusal that can end a run; called in the gate's thread."""
        if self.ended_by is None:
            self.ended_by = refusal
            if self._on_stop is not None:
                self._on_stop(refusal)

    def note(self, text: str) -> None:
        """Keep a remark about the gate itself (at most 100)."""
        if len(self.notes) < 100:
            self.notes.append(text[:500])

    def _run(self, listener: socket.socket) -> None:
        try:
            import asyncio

            with listener:
                asyncio.run(self._main(listener))
        except BaseException as error:  # noqa: BLE001  (a thread has nobody to raise to; close() tells)
            self._failure = error

    async def _main(self, listener: socket.socket) -> None:
        import asyncio

        with self._lock:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            if self._closing:
                return
        from runner.gate.serving import Serving

        serving = Serving(self, listener)
        try:
            await serving.start()
            await self._stop.wait()
        finally:
            with self._lock:
                self._loop = None
            await serving.stop()

    def _make_record(self) -> GateRecord:
        exchanges = self.recorder.exchanges()
        spent = self.ledger.spent
        return GateRecord(
            exchanges=exchanges,
            upstream_kind=self.upstream.kind,
            mode=self.settings.mode,
            requests=self.ledger.requests,
            refused=sum(exchange.kind == "refused" for exchange in exchanges),
            unscripted=sum(
                exchange.refusal is not None and exchange.refusal.code == "unscripted" for exchange in exchanges
            ),
            not_kept=self.recorder.not_kept,
            input_tokens=spent.input,
            output_tokens=spent.output,
            cache_read_tokens=spent.cache_read,
            cache_write_tokens=spent.cache_write_5m + spent.cache_write_1h,
            tokens=spent.total,
            cost_estimate_usd=usd(self.ledger.pico),
            unpriced_requests=self.ledger.unpriced,
            prices_date=self.ledger.prices.date,
            ended_by=self.ended_by,
            key_redactions=sum(exchange.key_redactions for exchange in exchanges) + self.recorder.redactions_not_kept,
            connections_failed=self.connections_failed,
            notes=tuple(self.notes),
        )
