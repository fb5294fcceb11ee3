"""The exchanges of a run as rows: what was asked, what it cost, how it ended, and what the gate refused.

Boundary: pure but for the price table, which comes in as a value. Not here: what a response says (runner/gate/message.py), the gate's own totals (runner/assess.py).
Rules: the money is an estimate at the list prices of the table that is passed in, for a response whose usage was read to its end; nothing is guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from runner.gate.exchange import Exchange
from runner.gate.message import Message, decoded_body, read_message
from runner.gate.prices import PICO, PriceTable
from runner.gate.usage import Usage, UsageMeter
from runner.report.bounds import Bounds
from runner.report.timeline import Source

_MAX_REFUSALS = 30
_MAX_TARGET = 200


@dataclass(frozen=True, slots=True)
class ExchangeRow:
    """One exchange."""

    seq: int
    kind: str
    what: str
    """Method and target."""
    lane: str
    """``main``, ``sub-agent``, or ``not the CLI``."""
    model: str
    status: int | None
    ending: str
    """``complete``, ``cut``, ``client-gone``, or empty where no response began and the CLI did not close."""
    stop_reason: str
    tokens_in: int | None
    tokens_out: int | None
    cache_read: int | None
    cache_write: int | None
    cost_usd: float | None
    request_bytes: int
    response_bytes: int
    at_us: int
    took_us: int | None
    refusal: str
    redactions: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Requests that the gate refused for one reason."""

    code: str
    message: str
    over_budget: bool
    count: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """All exchanges of a run."""

    rows: tuple[ExchangeRow, ...]
    left_out: int
    start_up: tuple[tuple[str, int], ...]
    """Start-up requests that the gate answered itself: method and target, and how often."""
    refused: tuple[Refused, ...]
    refused_kinds_left_out: int
    prices_date: str
    sources: dict[str, Source]
    """By message id."""


def read_traffic(exchanges: Sequence[Exchange], bounds: Bounds, prices: PriceTable) -> Traffic:
    """Return the rows of a run's exchanges, start-up requests summed up."""
    rows: list[ExchangeRow] = []
    sources: dict[str, Source] = {}
    left_out = 0
    start_up: Counter[str] = Counter()
    refused: Counter[tuple[str, str, bool]] = Counter()
    for exchange in exchanges:
        if exchange.refusal is not None:
            refused[exchange.refusal.code, exchange.refusal.message, exchange.refusal.over_budget] += 1
        if exchange.kind == "start-up":
            start_up[_what(exchange)] += 1
            continue
        message = read_message(exchange)
        if message is not None and message.id:
            sources.setdefault(message.id, Source(exchange.seq, exchange.arrived_us))
        if len(rows) >= bounds.exchanges:
            left_out += 1
            continue
        rows.append(_row(exchange, message, prices))
    kinds = [Refused(*reason, count) for reason, count in refused.most_common()]
    return Traffic(
        rows=tuple(rows),
        left_out=left_out,
        start_up=tuple(start_up.most_common(_MAX_REFUSALS)),
        refused=tuple(kinds[:_MAX_REFUSALS]),
        refused_kinds_left_out=max(0, len(kinds) - _MAX_REFUSALS),
        prices_date=prices.date,
        sources=sources,
    )


def _row(exchange: Exchange, message: Message | None, prices: PriceTable) -> ExchangeRow:
    response = exchange.response
    model = "" if message is None else message.model
    usage = _usage(exchange)
    return ExchangeRow(
        seq=exchange.seq,
        kind=exchange.kind,
        what=_what(exchange),
        lane="not the CLI" if exchange.from_cli is False else "sub-agent" if exchange.agent else "main",
        model=model,
        status=None if response is None else response.status,
        ending="client-gone" if exchange.client_gone else "" if response is None else response.ending,
        stop_reason="" if message is None else message.stop_reason or "",
        tokens_in=None if usage is None else usage.input,
        tokens_out=None if usage is None else usage.output,
        cache_read=None if usage is None else usage.cache_read,
        cache_write=None if usage is None else usage.cache_write_5m + usage.cache_write_1h,
        cost_usd=_cost(model, usage, prices),
        request_bytes=len(exchange.request.body),
        response_bytes=0 if response is None else len(response.body),
        at_us=exchange.arrived_us,
        took_us=exchange.ended_us - exchange.arrived_us if exchange.ended_us >= exchange.arrived_us > 0 else None,
        refusal="" if exchange.refusal is None else exchange.refusal.code,
        redactions=exchange.key_redactions,
    )


def _what(exchange: Exchange) -> str:
    target = exchange.request.target
    return f"{exchange.request.method} {target if len(target) <= _MAX_TARGET else target[:_MAX_TARGET] + '…'}"


def _usage(exchange: Exchange) -> Usage | None:
    response = exchange.response
    if exchange.kind != "inference" or response is None or not 200 <= response.status < 300:
        return None
    body = decoded_body(response)
    if body is None:
        return None
    meter = UsageMeter(event_stream=body.lstrip()[:1] != b"{")
    meter.feed(body)
    meter.close()
    return meter.usage


def _cost(model: str, usage: Usage | None, prices: PriceTable) -> float | None:
    price = prices.find(model)
    return None if usage is None or price is None else price.cost(usage) / PICO
