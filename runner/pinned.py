"""The pinned world of a run: the date, the random seed and the kernel that the programs inside are shown (DESIGN "Bit for bit", ``pinned``).

Boundary: pure. Not here: what makes programs see it (sandbox/determinism), where its parts lie (pinned_parts.py), the rest of a plan (plan.py).
Rules: what is pinned stands in the plan, so that the same plan means the same requests, byte for byte, on every machine; nothing of it comes from the host. A pinned run shows an agent
another world than its users have (a clock that stands, repeated random numbers), and its CLI can be read, so that forging is not closed: it is measured and never scored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Final, Literal

from pydantic import Field

from runner.canonical import sha256_hex
from runner.errors import SettingInvalid
from runner.gate.exchange import Value

DEFAULT_DATE: Final = "2026-01-01T12:00:00Z"
RELEASE: Final = "6.12.0"
VERSION: Final = "#1 SMP"
ATTEND_INSIDE: Final = "/opt/attend"
"""The attendant's program, which starts the CLI. The agent can see the paths, so they name neither us nor an evaluation."""
CLOCK_INSIDE: Final = "/opt/clock.so"
ATTEND_SOURCE: Final = "@attend"
CLOCK_SOURCE: Final = "@clock"
NEVER_SCORED: Final = (
    "determinism pinned: measured only, never scored; the CLI's file can be read inside, so forging is not closed"
)
_NO_RDRAND: Final = "~0x4000000000000000"
_DATE = re.compile(r"(\d{4}-\d{2}-\d{2})(?:T(\d{2}:\d{2}:\d{2})Z)?\Z", re.ASCII)
_YEARS: Final = range(2000, 2049)
"""The certificates of a run's own authority are valid from 2000 to 2049."""


class PinnedWorld(Value):
    """What the programs of a pinned run are shown."""

    streams: Literal[1] = 1
    """Version of the way in which random bytes follow from the seed (attend.c)."""
    date: str
    """The second at which the wall clock stands, ``YYYY-MM-DDTHH:MM:SSZ``."""
    seed: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    release: Annotated[str, Field(pattern=r"^[ -~]{1,64}$")]
    version: Annotated[str, Field(pattern=r"^[ -~]{1,64}$")]
    machine: Annotated[str, Field(pattern=r"^[ -~]{1,64}$")]
    """These three as ``uname`` says them."""

    @property
    def epoch(self) -> int:
        """Seconds since 1970. Raises: SettingInvalid."""
        return seconds_of(self.date)

    def env(self) -> dict[str, str]:
        """Return the variables that load the clock, and keep the CLI's random generator from asking the processor: on some it mixes RDRAND into every draw."""
        return {**clock_env(f"={self.epoch}"), **({"OPENSSL_ia32cap": _NO_RDRAND} if self.machine == "x86_64" else {})}

    def argv(self, node: str, program: Sequence[str]) -> tuple[str, ...]:
        """Return the command line that starts ``program`` under the attendant; ``node`` is the host name inside."""
        return (ATTEND_INSIDE, self.seed, self.release, self.version, self.machine, node, *program)


def make_world(
    *, date: str | None, seed: str | None, fixture: str, repeat: int, toolchain: Mapping[str, object]
) -> PinnedWorld:
    """Return the world of a run: as asked for, else the default date, and a seed that follows from fixture and repeat.

    Raises: SettingInvalid.
    """
    if seed is not None and not re.fullmatch(r"[0-9a-f]{64}", seed):
        raise SettingInvalid("a seed is 64 hexadecimal digits, small letters", where="--pinned-seed")
    chosen = date or DEFAULT_DATE
    seconds_of(chosen)
    return PinnedWorld(
        date=chosen if "T" in chosen else f"{chosen}T12:00:00Z",
        seed=seed or sha256_hex(f"pinned\0{fixture}\0{repeat}".encode()),
        release=RELEASE,
        version=VERSION,
        machine=str(toolchain.get("system", "")).partition("-")[0] or "x86_64",
    )


def seconds_of(date: str) -> int:
    """Return a date's seconds since 1970: ``YYYY-MM-DD`` (its noon) or ``YYYY-MM-DDTHH:MM:SSZ``, in UTC.

    Raises: SettingInvalid.
    """
    found = _DATE.match(date)
    text = f"{found[1]}T{found[2] or '12:00:00'}+00:00" if found else "0001-01-01T00:00:00+00:00"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:  # the 30th of February
        moment = datetime.min.replace(tzinfo=UTC)
    if moment.year not in _YEARS:
        raise SettingInvalid(
            f"{date!r} is no date to pin",
            where="--pinned-date",
            hint=f"write YYYY-MM-DD or YYYY-MM-DDTHH:MM:SSZ, in the years {_YEARS[0]} to {_YEARS[-1]}",
        )
    return int(moment.timestamp())


def clock_env(setting: str) -> dict[str, str]:
    """Return the variables that load the clock with a setting of clock.c: ``=SECONDS`` stands, ``+SECONDS`` and ``-SECONDS`` shift."""
    return {"LD_PRELOAD": CLOCK_INSIDE, "WALL_CLOCK": setting}
