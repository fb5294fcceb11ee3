"""Ledger, prices and usage: what is held back, booked and refused."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from runner.errors import GateError
from runner.gate.exchange import Refusal
from runner.gate.ledger import Ask, Busy, Ledger, Reservation, billed
from runner.gate.prices import PICO, load_prices, parse_prices, usd
from runner.gate.settings import Ceilings
from runner.gate.usage import Usage, UsageMeter

PRICES = load_prices()
SONNET = "claude-sonnet-5-5"


def ask(max_tokens: int = 1000, body_bytes: int = 2000, model: str = SONNET) -> Ask:
    return Ask("messages", model, body_bytes, max_tokens)


def test_prices_are_those_that_the_cli_computes() -> None:
    """The table's rates give the CLI's own costUSD for the usages it was measured with."""
    measured = [
        ("claude-opus-5-5", Usage(input=1_000_000, output=1), "4.00002"),
        ("claude-opus-5-5", Usage(cache_write_5m=1_000_000), "5"),
        ("claude-opus-5-5", Usage(cache_write_1h=1_000_000), "8"),
        ("claude-opus-5-5", Usage(cache_read=1_000_000), "0.2"),
        (SONNET, Usage(input=1, output=1_000_000), "10.000002"),
        (SONNET, Usage(cache_read=1_000_000), "0.1"),
        ("claude-haiku-5-5", Usage(input=100_000, output=1000), "0.0105"),
        ("claude-haiku-5-5", Usage(input=100_001, output=1000), "0.0525005"),
        ("claude-haiku-5-5", Usage(input=10, output=1000, cache_read=100_000), "0.007505"),
        ("claude-haiku-5-5", Usage(cache_write_1h=50_000), "0.01"),
    ]
    for model, usage, cost in measured:
        price = PRICES.find(model)
        assert price is not None
        assert usd(price.cost(usage)) == cost


def test_a_dated_name_has_its_models_price_and_no_other_name_has_one() -> None:
    """Nothing is guessed from a family."""
    assert PRICES.find("claude-opus-5-5-20260901") == PRICES.find("claude-opus-5-5") is not None
    for name in (
        "claude-opus-5-6",
        "claude-opus-5-5-latest",
        "claude-opus-5-5-2026090",
        "opus",
        "",
        "claude-opus-5-5[1m]",
        "-20260901",
    ):
        assert PRICES.find(name) is None


def test_a_broken_price_table_is_refused() -> None:
    """A number instead of a decimal string, an unknown key, a negative price: none is read."""
    good = {
        "schema_version": 1,
        "date": "2026-01-01",
        "currency": "USD",
        "unit": "per million tokens",
        "source": "s",
        "models": {},
    }
    assert parse_prices(json.dumps(good).encode()).models == {}
    rates = {"input": "1", "output": "1", "cache_write_5m": "1", "cache_write_1h": "1", "cache_read": "1"}
    for bad in ({"input": 1}, {"input": "-1"}, {"extra": "1"}, {"input": "1.0000001"}):
        with pytest.raises(GateError):
            parse_prices(json.dumps({**good, "models": {"m": {**rates, **bad}}}).encode())


def test_an_unknown_price_is_refused_under_a_usd_ceiling_and_never_free() -> None:
    """Without a ceiling the model is let through, and counted as unpriced."""
    refused = Ledger(Ceilings(), PRICES).reserve(ask(model="unheard-of"))
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.over_budget) == ("price-unknown", False)
    ledger = Ledger(Ceilings(usd=None), PRICES)
    held = ledger.reserve(ask(model="unheard-of"))
    assert isinstance(held, Reservation)
    ledger.settle(held, Usage(output=5))
    assert (ledger.unpriced, ledger.pico) == (1, 0)


@pytest.mark.parametrize(
    ("ceilings", "code"),
    [
        (Ceilings(requests=2), "over-requests"),
        (Ceilings(tokens=7000), "over-tokens"),
        (Ceilings(usd="0.036"), "over-usd"),
    ],
)
def test_the_request_that_would_pass_a_ceiling_is_refused_and_those_before_are_not(
    ceilings: Ceilings, code: str
) -> None:
    """Two requests fit, the third does not, and the refusal is one of budget."""
    ledger = Ledger(ceilings, PRICES)
    for _ in range(2):
        held = ledger.reserve(ask())
        assert isinstance(held, Reservation)
        ledger.settle(held, Usage(input=2000, output=1000))
    refused = ledger.reserve(ask())
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.over_budget) == (code, True)
    assert ledger.requests == 2


def test_what_only_has_to_wait_is_busy_and_not_refused() -> None:
    """The decision does not depend on how fast others are answered."""
    for ceilings in (Ceilings(parallel=1), Ceilings(usd="0.03"), Ceilings(tokens=5000)):
        ledger = Ledger(ceilings, PRICES)
        first = ledger.reserve(ask())
        assert isinstance(first, Reservation)
        assert isinstance(ledger.reserve(ask()), Busy)
        ledger.settle(first, Usage(input=10, output=10))
        assert isinstance(ledger.reserve(ask()), Reservation)


def test_the_default_output_of_the_cli_fits_the_default_ceiling() -> None:
    """Of the CLI's 128,000 output tokens only the reserve is held back, so that opus can be asked; a higher reserve refuses it, with the numbers."""
    for model in ("claude-sonnet-5-5", "claude-opus-5-5"):
        assert isinstance(Ledger(Ceilings(), PRICES).reserve(ask(128_000, 50_000, model)), Reservation)
    strict = Ceilings(output_reserve_tokens=128_000)
    refused = Ledger(strict, PRICES).reserve(ask(128_000, 50_000, "claude-opus-5-5"))
    assert isinstance(refused, Refusal)
    assert "max_tokens 128000" in refused.message


def test_an_answer_beyond_its_reserve_is_booked_whole_and_ends_the_spending() -> None:
    """What an answer has beyond its reserve may pass the ceiling once; after that nothing is sent."""
    ledger = Ledger(Ceilings(usd="0.5"), PRICES)
    held = ledger.reserve(ask(128_000, 1000))
    assert isinstance(held, Reservation)
    ledger.settle(held, Usage(output=100_000))
    assert ledger.pico == 10**12
    assert isinstance(ledger.reserve(ask(1, 10)), Refusal)


def test_a_reservation_is_settled_once() -> None:
    """Settling twice is a fault of the caller's and is loud."""
    ledger = Ledger(Ceilings(), PRICES)
    held = ledger.reserve(ask())
    assert isinstance(held, Reservation)
    ledger.settle(held, Usage())
    with pytest.raises(KeyError):
        ledger.settle(held, Usage())


def test_count_tokens_costs_nothing_and_counts_as_a_request() -> None:
    """It needs no price either."""
    ledger = Ledger(Ceilings(usd="0", tokens=0, requests=1), PRICES)
    held = ledger.reserve(Ask("count_tokens", "unheard-of", 5000, 0))
    assert isinstance(held, Reservation)
    ledger.settle(
        held, billed(held.ask, status=200, streamed=False, complete=True, seen=None, final=False, body_bytes=20)
    )
    assert (ledger.requests, ledger.pico, ledger.spent.total, ledger.unpriced) == (1, 0, 0, 0)
    assert isinstance(ledger.reserve(Ask("count_tokens", "x", 1, 0)), Refusal)


class LedgerMachine(RuleBasedStateMachine):
    """Any order of asking and answering, with usages within what was reserved."""

    CEILINGS = Ceilings(usd="0.5", requests=40, parallel=3, tokens=60_000)

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(self.CEILINGS, PRICES)
        self.held: list[Reservation] = []

    @rule(
        body_bytes=st.integers(0, 20_000),
        max_tokens=st.integers(1, 20_000),
        model=st.sampled_from([SONNET, "claude-opus-5-5", "claude-haiku-5-5", "unheard-of"]),
    )
    def reserve(self, body_bytes: int, max_tokens: int, model: str) -> None:
        before = (self.ledger.requests, dict(self.ledger.under_way), self.ledger.pico)
        outcome = self.ledger.reserve(Ask("messages", model, body_bytes, max_tokens))
        if isinstance(outcome, Reservation):
            assert model != "unheard-of"
            self.held.append(outcome)
        else:
            assert (self.ledger.requests, self.ledger.under_way, self.ledger.pico) == before
            assert not isinstance(outcome, Busy) or self.held

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        held = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        prompt = data.draw(st.integers(0, held.ask.prompt_tokens))
        output = data.draw(st.integers(0, held.ask.max_tokens))
        read = data.draw(st.integers(0, prompt))
        self.ledger.settle(held, Usage(input=prompt - read, cache_read=read, output=output))

    @invariant()
    def ceilings_hold(self) -> None:
        limit = int((self.CEILINGS.usd_amount or Decimal(0)) * PICO)
        assert self.ledger.pico + sum(held.pico for held in self.held) <= limit
        assert self.ledger.spent.total + sum(held.tokens for held in self.held) <= self.CEILINGS.tokens
        assert self.ledger.requests <= self.CEILINGS.requests
        assert len(self.ledger.under_way) <= self.CEILINGS.parallel
        assert set(self.ledger.under_way.values()) == set(self.held)


LedgerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLedgerMachine = LedgerMachine.TestCase


@given(st.lists(st.integers(0, 400_000), min_size=1, max_size=20))
def test_a_provider_that_uses_more_than_it_may_is_booked_and_stopped(outputs: list[int]) -> None:
    """Usage beyond the reservation is booked in full; once the total is past the ceiling nothing more is sent."""
    ledger = Ledger(Ceilings(usd="1"), PRICES)
    for output in outputs:
        held = ledger.reserve(ask())
        if ledger.pico > PICO:
            assert isinstance(held, Refusal)
        if isinstance(held, Reservation):
            ledger.settle(held, Usage(output=output))


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({"status": 529}, Usage()),
        ({"seen": Usage(input=7, output=8), "final": True}, Usage(input=7, output=8)),
        ({"status": None}, Usage(cache_write_1h=2024)),
        ({"status": None, "streamed": False}, Usage(cache_write_1h=2024, output=1000)),
        ({"streamed": False}, Usage(cache_write_1h=2024, output=1000)),
        ({"complete": True}, Usage(cache_write_1h=2024, output=1000)),
        ({"seen": Usage(input=9, output=1), "body_bytes": 300}, Usage(input=9, output=300)),
        ({"seen": Usage(input=9, output=1), "body_bytes": 9000}, Usage(input=9, output=1000)),
    ],
)
def test_what_is_booked_is_never_below_what_may_be_billed(given_: dict[str, object], expected: Usage) -> None:
    """Errors are free, whole answers cost what they say, and what was not seen costs its bound."""
    base: dict[str, object] = {
        "status": 200,
        "streamed": True,
        "complete": False,
        "seen": None,
        "final": False,
        "body_bytes": 0,
    }
    assert billed(ask(), **{**base, **given_}) == expected  # type: ignore[arg-type]  # a table of keyword arguments


STREAM = (
    b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":3,"output_tokens":1,"cache_read_input_tokens":50,'
    b'"cache_creation_input_tokens":30,"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20}}}}\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"\\"usage\\" of \xc3\xa4"}}\n\nevent: ping\ndata: {}\n\n'
    b'event: message_delta\r\ndata: {"type":"message_delta","usage":{"output_tokens":44}}\r\n\r\n'
)


@given(st.lists(st.integers(1, len(STREAM)), max_size=12))
def test_usage_is_read_from_a_stream_cut_anywhere(cuts: list[int]) -> None:
    """Piece borders change nothing."""
    meter = UsageMeter(event_stream=True)
    start = 0
    for end in [*sorted(cuts), len(STREAM)]:
        meter.feed(STREAM[start:end])
        start = end
    meter.close()
    assert meter.usage == Usage(input=3, output=44, cache_write_5m=10, cache_write_1h=20, cache_read=50)
    assert meter.final


def test_usage_is_unknown_and_not_zero_where_it_cannot_be_read() -> None:
    """A torn event, a huge line, text instead of numbers, HTML."""
    meter = UsageMeter(event_stream=True)
    meter.feed(b'data: {"type":"message_delta","usage":{"outp\n')
    meter.feed(b"data: " + b"x" * 5_000_000)
    assert (meter.usage, meter.final) == (None, False)
    meter.feed(b'"usage"\n' + STREAM)
    assert meter.usage is not None
    assert meter.final
    for body in (b"<html>", b"", b"[]", b'{"usage":5}'):
        whole = UsageMeter(event_stream=False)
        whole.feed(body)
        whole.close()
        assert whole.usage is None


def test_a_whole_message_is_read_at_its_end() -> None:
    """JSON answers, and the answer of count_tokens, which costs nothing."""
    meter = UsageMeter(event_stream=False)
    for piece in (b'{"type":"message","usage":{"input_tok', b'ens":5,"output_tokens":6}}'):
        meter.feed(piece)
    meter.close()
    assert (meter.usage, meter.final) == (Usage(input=5, output=6), True)


@given(st.binary(max_size=200), st.booleans())
def test_the_meter_takes_any_bytes(data: bytes, stream: bool) -> None:
    """Nothing escapes it."""
    meter = UsageMeter(event_stream=stream)
    meter.feed(data)
    meter.close()
