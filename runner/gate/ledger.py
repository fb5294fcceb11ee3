"""The attempt's account: what has been sent, what is under way, what it cost, and whether one more request may be sent.

Boundary: pure state machine: no clock, no I/O, one owner (the gate's event loop). Not here: prices (prices.py), the waiting itself (serving.py).
Rules: ``reserve`` comes before sending, ``settle`` exactly once after; a request's worst case is held back in between. At every moment
settled + reserved ≤ ceiling, as long as no response uses more than was reserved for it; if one does, its real usage is booked and nothing
more is sent once the ceiling is reached. A request that would fit but for others under way is ``Busy`` (wait), not refused: the decision then does
not depend on timing.

Worst case of a request: prompt = one token for every ``BYTES_PER_TOKEN`` bytes of the body plus ``HIDDEN_PROMPT_TOKENS``, at the dearest
input-side rate; output = ``max_tokens``, at most ``output_reserve_tokens``, at the output rate. Plain text runs at 3 to 4 bytes a token, so the prompt's part is an over-estimate
for all but contrived bodies; it is an estimate all the same. Base64 media are counted by their bytes, far above what they cost.
The Claude CLI asks for 128,000 output tokens by default and hardly ever gets them: at the opus price that alone is 2.56 USD, above the default
ceiling. So at most ``output_reserve_tokens`` of a request's ``max_tokens`` are held back. An answer that is longer is booked in full, so that an attempt
can pass its ceilings by at most what its last answers under way have beyond their reserve, and nothing is sent after that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from runner.gate.exchange import Refusal
from runner.gate.prices import PICO, ModelPrice, PriceTable, usd
from runner.gate.settings import Ceilings
from runner.gate.usage import Usage

BYTES_PER_TOKEN = 2
HIDDEN_PROMPT_TOKENS = 1024
"""What the provider adds of its own (its tool-use preamble): some hundreds of tokens, rounded up."""

Endpoint = Literal["messages", "count_tokens"]


@dataclass(frozen=True, slots=True)
class Ask:
    """What the ledger needs to know of a request."""

    endpoint: Endpoint
    model: str
    body_bytes: int
    max_tokens: int

    @property
    def prompt_tokens(self) -> int:
        """Upper estimate of the prompt's size in tokens; 0 for count_tokens, which the provider does not bill."""
        if self.endpoint == "count_tokens":
            return 0
        return -(-self.body_bytes // BYTES_PER_TOKEN) + HIDDEN_PROMPT_TOKENS


@dataclass(frozen=True, slots=True)
class Reservation:
    """One request that may be sent; to be settled once."""

    number: int
    ask: Ask
    tokens: int
    pico: int


@dataclass(frozen=True, slots=True)
class Busy:
    """The request fits, but not beside those under way: try again after the next settling."""


@dataclass(slots=True)
class Ledger:
    """The account of one attempt."""

    ceilings: Ceilings
    prices: PriceTable
    requests: int = 0
    """Requests sent so far, those under way included."""
    spent: Usage = field(default_factory=Usage)
    """Usage of all settled requests."""
    pico: int = 0
    """Their list price, in picodollars."""
    unpriced: int = 0
    """Settled requests to a model without a price (possible only without a USD ceiling)."""
    under_way: dict[int, Reservation] = field(default_factory=dict)

    def reserve(self, ask: Ask) -> Reservation | Busy | Refusal:
        """Hold back the worst case of ``ask``, or say why not."""
        ceilings = self.ceilings
        if self.requests >= ceilings.requests:
            return _over("over-requests", f"the ceiling of {ceilings.requests} requests is reached")
        price = self.prices.find(ask.model)
        limit = None if ceilings.usd_amount is None else int(ceilings.usd_amount * PICO)
        if price is None and limit is not None and ask.endpoint == "messages":
            return Refusal(
                code="price-unknown",
                message=f"model {ask.model!r} has no price in the table of {self.prices.date}, and a ceiling of {ceilings.usd} USD is in force",
            )
        output = min(ask.max_tokens, ceilings.output_reserve_tokens)
        tokens = ask.prompt_tokens + output
        pico = _worst(price, ask, output)
        if self.spent.total + tokens > ceilings.tokens:
            return _over(
                "over-tokens",
                f"{self.spent.total} tokens used and up to {tokens} for this request (max_tokens {ask.max_tokens}) pass the ceiling of {ceilings.tokens}",
            )
        if limit is not None and self.pico + pico > limit:
            return _over(
                "over-usd",
                f"{usd(self.pico)} USD spent and up to {usd(pico)} for this request (max_tokens {ask.max_tokens}) pass the ceiling of {ceilings.usd} USD",
            )
        held_tokens = sum(held.tokens for held in self.under_way.values())
        held_pico = sum(held.pico for held in self.under_way.values())
        if (
            len(self.under_way) >= ceilings.parallel
            or self.spent.total + held_tokens + tokens > ceilings.tokens
            or (limit is not None and self.pico + held_pico + pico > limit)
        ):
            return Busy()
        self.requests += 1
        reservation = Reservation(self.requests, ask, tokens, pico)
        self.under_way[reservation.number] = reservation
        return reservation

    def settle(self, reservation: Reservation, usage: Usage) -> None:
        """Book what the request really used and give the rest back.

        Raises: KeyError if it was settled before or never reserved here.
        """
        del self.under_way[reservation.number]
        self.spent += usage
        price = self.prices.find(reservation.ask.model)
        if price is None:
            self.unpriced += reservation.ask.endpoint == "messages"
        else:
            self.pico += price.cost(usage)


def billed(
    ask: Ask, *, status: int | None, streamed: bool, complete: bool, seen: Usage | None, final: bool, body_bytes: int
) -> Usage:
    """Return the usage to book for a request, never below what the provider may bill.

    ``status`` None: no answer came. An error status costs nothing. A whole answer costs what it says; one that says nothing readable, the worst case.
    A stream that ended early costs its prompt as far as known, and for its output one token for each byte that arrived (a token is at least
    a byte), within ``max_tokens``. An answer in one piece that did not arrive may have been made all the same: the worst case.
    """
    if ask.endpoint == "count_tokens" or (status is not None and not 200 <= status < 300):
        return Usage()
    worst = Usage(cache_write_1h=ask.prompt_tokens, output=ask.max_tokens)
    if seen is not None and final:
        return seen
    if not streamed or complete:
        return worst
    known = seen or Usage(cache_write_1h=ask.prompt_tokens)
    output = max(known.output, min(ask.max_tokens, body_bytes))
    return Usage(known.input, output, known.cache_write_5m, known.cache_write_1h, known.cache_read)


def _worst(price: ModelPrice | None, ask: Ask, output: int) -> int:
    if price is None or ask.endpoint == "count_tokens":
        return 0
    rates = price.for_prompt(ask.prompt_tokens)
    return rates.worst(ask.prompt_tokens, output)


def _over(code: str, message: str) -> Refusal:
    return Refusal(code=code, message=message, over_budget=True)
