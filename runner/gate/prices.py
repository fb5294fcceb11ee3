"""List prices by model, from a dated data file.

Boundary: touches: reads prices.json beside this module (load_prices); the rest is pure. Not here: what was used (usage.py), the ceilings
(ledger.py).
Rules: amounts are whole picodollars (10⁻¹² USD), so that sums are exact. A model that is not in the table has no price; nothing is guessed
from its family. The estimate knows token prices only: fees of provider-executed tools (refused unless the fixture names them) are not in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from runner.errors import GateError
from runner.gate.exchange import Value
from runner.gate.usage import Usage

PICO = 10**12
"""Picodollars in one USD."""

_AMOUNT = r"^\d{1,6}(\.\d{1,6})?$"
_TABLE = Path(__file__).with_name("prices.json")


@dataclass(frozen=True, slots=True)
class Rates:
    """Picodollars for one token of each kind."""

    input: int
    output: int
    cache_write_5m: int
    cache_write_1h: int
    cache_read: int

    def cost(self, usage: Usage) -> int:
        """Return what ``usage`` costs, in picodollars."""
        return (
            usage.input * self.input
            + usage.output * self.output
            + usage.cache_write_5m * self.cache_write_5m
            + usage.cache_write_1h * self.cache_write_1h
            + usage.cache_read * self.cache_read
        )

    def worst(self, prompt_tokens: int, output_tokens: int) -> int:
        """Return the most that a request can cost: the whole prompt at the dearest input-side rate, all output used."""
        dearest = max(self.input, self.cache_write_5m, self.cache_write_1h, self.cache_read)
        return prompt_tokens * dearest + output_tokens * self.output


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """A model's rates, and those for long prompts where they differ."""

    rates: Rates
    long_rates: Rates | None = None
    long_over_tokens: int = 0

    def for_prompt(self, prompt_tokens: int) -> Rates:
        """Return the rates that hold for a prompt of that many tokens."""
        if self.long_rates is not None and prompt_tokens > self.long_over_tokens:
            return self.long_rates
        return self.rates

    def cost(self, usage: Usage) -> int:
        """Return what one response's ``usage`` costs, in picodollars."""
        return self.for_prompt(usage.prompt).cost(usage)


class _RateText(Value):
    input: str = Field(pattern=_AMOUNT)
    output: str = Field(pattern=_AMOUNT)
    cache_write_5m: str = Field(pattern=_AMOUNT)
    cache_write_1h: str = Field(pattern=_AMOUNT)
    cache_read: str = Field(pattern=_AMOUNT)

    def rates(self) -> Rates:
        return Rates(
            *(
                int(Decimal(text) * 1_000_000)
                for text in (self.input, self.output, self.cache_write_5m, self.cache_write_1h, self.cache_read)
            )
        )


class _LongText(_RateText):
    over_tokens: int = Field(ge=1)


class _ModelText(_RateText):
    long_prompt: _LongText | None = None


class _TableText(Value):
    schema_version: Literal[1]
    date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    currency: Literal["USD"]
    unit: Literal["per million tokens"]
    source: str = Field(min_length=1)
    models: dict[str, _ModelText]


@dataclass(frozen=True, slots=True)
class PriceTable:
    """All known prices, with the table's date and source."""

    date: str
    source: str
    models: dict[str, ModelPrice]

    def find(self, model: str) -> ModelPrice | None:
        """Return the price of ``model`` as it stands in a request, or None.

        A dated name (``claude-opus-5-5-20260901``) is its model; nothing else is derived.
        """
        found = self.models.get(model)
        if found is None and (cut := model.rfind("-")) > 0 and len(model) - cut == 9 and model[cut + 1 :].isascii():
            found = self.models.get(model[:cut]) if model[cut + 1 :].isdigit() else None
        return found


def parse_prices(data: bytes, name: str = "prices.json") -> PriceTable:
    """Return the table in ``data``.

    Raises: GateError (``prices-invalid``) if the file breaks its schema.
    """
    try:
        text = _TableText.model_validate_json(data)
    except ValidationError as error:
        raise GateError(
            f"the price table is not usable: {error.errors()[0]['msg']}", where=name, code="prices-invalid"
        ) from error
    models = {
        model: ModelPrice(
            entry.rates(),
            entry.long_prompt.rates() if entry.long_prompt else None,
            entry.long_prompt.over_tokens if entry.long_prompt else 0,
        )
        for model, entry in text.models.items()
    }
    return PriceTable(text.date, text.source, models)


def load_prices(path: Path = _TABLE) -> PriceTable:
    """Read the table shipped with this release, or another one."""
    return parse_prices(path.read_bytes(), str(path.name))


def usd(pico: int) -> str:
    """Return picodollars as an exact decimal string in USD, without trailing zeros."""
    whole, rest = divmod(pico, PICO)
    return f"{whole}.{rest:012d}".rstrip("0").rstrip(".") if rest else str(whole)
