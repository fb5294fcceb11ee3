"""The gate: serves a listening socket from a thread of its own, and hands back the record.

Boundary: touches: a thread, the given socket. Not here: HTTP (serving.py), decisions (policy.py, ledger.py), answers (upstreams/).
Rules: ``serve`` once, ``close`` once (again gives the same record). ``aiohttp`` is imported in the thread, so that the CLI boots meanwhile; the kernel
holds early connections. Nothing in here ends a run: ``on_stop`` tells the orchestrator of the first refusal that may have, from the gate's
thread; which refusal did is decided later, from the record.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from runner.errors import GateError, GateUnavailable
from runner.gate.exchange import Exchange, Refusal
from runner.gate.ledger import Ledger
from runner.gate.prices import PriceTable, load_prices, usd
from runner.gate.record import Recorder
from runner.gate.settings import GateSettings
from runner.gate.totals import GateTotals
from runner.gate.upstreams import Upstream
from runner.serving_thread import ServingThread

if TYPE_CHECKING:
    from runner.gate.authority import Authority
    from runner.gate.serving import Serving


class GateRecord(GateTotals):
    """Everything the gate saw in one attempt."""

    exchanges: tuple[Exchange, ...] = ()
    upstream_kind: str = ""
    mode: str = "first-party"
    tokens: int = 0
    """All kinds together, as booked."""
    ended_by: Refusal | None = None
    """The first refusal of a kind that can end a run: a ceiling, an unknown price, no scripted answer."""


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
        ledger: Ledger | None = None,
        most_held: int | None = None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Make a gate. ``authority`` is needed in first-party mode. ``real_key`` is what to keep out of responses and record (the upstream has its own).
        Without ``keep`` the record has counts and sums, and no exchanges (``hermeval gate``, which outlives attempts). ``ledger`` is one with an account of its
        own; ``most_held`` bounds the bytes of all requests under way.

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
        self.ledger = ledger or Ledger(settings.ceilings, prices or load_prices())
        start_ns = monotonic_ns()
        self.recorder = Recorder(
            lambda: (monotonic_ns() - start_ns) // 1000,
            session_id=session_id,
            record_bytes=settings.ceilings.record_bytes,
            keep=keep,
        )
        self.at_rest: Callable[[], bool] = lambda: True
        """Whether the gate's client has nothing to do at this moment; set by whoever can know it. Called in the gate's thread."""
        self.ended_by: Refusal | None = None
        self.notes: list[str] = []
        self.connections_failed = 0
        self._on_stop = on_stop
        self._most_held = most_held
        self._thread = ServingThread("hermeval-gate", self._serving)
        self._record: GateRecord | None = None

    def serve(self, listener: socket.socket) -> None:
        """Serve ``listener`` (bound and listening) until ``close``; the gate takes it over. Returns at once."""
        if self._thread.begun:
            raise GateError("a gate serves once", code="gate-settings")
        self._thread.serve(listener)

    @property
    def failure(self) -> BaseException | None:
        """Why the gate's thread ended by itself, if it did."""
        return self._thread.failure

    def close(self) -> GateRecord:
        """Stop serving, end what is under way, and return the record.

        Raises: GateUnavailable if the gate's thread failed or does not end.
        """
        if self._record is None:
            if not self._thread.close():
                raise GateUnavailable("the gate's thread does not end", hint="report this as a bug")
            self._record = self._make_record()
        if self.failure is not None:
            raise GateUnavailable(f"the gate's thread failed: {self.failure!r}") from self.failure
        return self._record

    def stopped_by(self, refusal: Refusal) -> None:
        """Note a refusal that can end a run; called in the gate's thread."""
        if self.ended_by is None:
            self.ended_by = refusal
            if self._on_stop is not None:
                self._on_stop(refusal)

    def give_up(self, error: BaseException) -> None:
        """End by itself, as where the gate's thread fails; called in the gate's thread."""
        self._thread.give_up(error)

    def note(self, text: str) -> None:
        """Keep a remark about the gate itself (at most 100)."""
        if len(self.notes) < 100:
            self.notes.append(text[:500])

    def _serving(self, listener: socket.socket) -> Serving:
        if self._most_held is not None:
            from runner.gate.held import BoundedServing

            return BoundedServing(self, listener, self._most_held)
        from runner.gate.serving import Serving

        return Serving(self, listener)

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
