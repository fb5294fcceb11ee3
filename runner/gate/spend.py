"""A ledger whose account is a day's, and outlives its process: what ``hermeval gate`` books by.

Boundary: reads and writes one file, looks at the calendar. Not here: the decisions themselves (ledger.py), who asks (runner/cli/gate.py).
Rules: the file is written, durably and as a whole, before a request is sent, with the worst case of all that is under way; and again after it was settled. A process that dies, by
whatever hand, is so followed by one that knows at least what was spent. A file that is not understood, or belongs to another process, ends the start; one that cannot be
written refuses the request (``spend-not-kept``). A day is one of UTC. A clock that is set back opens no new day.

The file: ``{"schema_version":1,"day":"2026-12-01","requests":N,"tokens":N,"pico_usd":N}``, one JSON object, 10**12 ``pico_usd`` a US dollar.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from runner.errors import GateError
from runner.gate.exchange import Refusal
from runner.gate.ledger import Ask, Busy, Ledger, Reservation
from runner.gate.prices import PriceTable
from runner.gate.settings import Ceilings
from runner.gate.usage import Usage
from runner.whole_file import leftovers_of, whole_file

MAX_FILE_BYTES = 4096
_COUNTS = ("requests", "tokens", "pico_usd")


@dataclass(frozen=True)
class Spend:
    """What a day has cost so far: requests, tokens of all kinds, picodollars."""

    day: date
    requests: int = 0
    tokens: int = 0
    pico_usd: int = 0


class SpendFile:
    """The file, held by this process alone until ``close``. Its directory is this user's."""

    def __init__(self, path: Path) -> None:
        """Take hold of it. Raises: GateError (``spend-unusable``) if the directory is not there, or another process holds it."""
        self.path = path
        try:
            self._directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise self._unusable(f"its directory cannot be opened: {error.strerror}", "make the directory") from error
        try:
            fcntl.flock(self._directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise self._unusable("another gate keeps its account there", "end it, or name another file") from error

    def read(self) -> Spend | None:
        """Return what stands in it; None if there is no file yet. Raises: GateError (``spend-unusable``) for anything that ``write`` did not write."""
        cure = "find out who wrote it; removing it begins the day's account anew, at nothing"
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(f"it cannot be opened: {error.strerror}", cure) from error
        with os.fdopen(fd, "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise self._unusable("it is no regular file", cure)
            data = stream.read(MAX_FILE_BYTES + 1)
        try:
            return _parse(data)
        except (ValueError, RecursionError) as error:
            raise self._unusable(f"it does not say what was spent: {error}", cure) from error

    def write(self, spend: Spend) -> None:
        """Replace it, durably. Raises: OSError; the former one stands then."""
        document = {"schema_version": 1, "day": spend.day.isoformat()}
        document |= {name: getattr(spend, name) for name in _COUNTS}
        with whole_file(self.path.parent, "spend", kind=leftovers_of("spend")) as whole:
            whole.file.write(json.dumps(document).encode("ascii") + b"\n")
            whole.replace(self.path)

    def close(self) -> None:
        """Let go of it."""
        os.close(self._directory)

    def _unusable(self, said: str, cure: str) -> GateError:
        return GateError(
            f"the day's account cannot be used: {said}", where=str(self.path), hint=cure, code="spend-unusable"
        )


class DayLedger(Ledger):
    """The ledger of one day after another."""

    def __init__(
        self, ceilings: Ceilings, prices: PriceTable, file: SpendFile, *, today: Callable[[], date] | None = None
    ) -> None:
        """Go on where ``file`` ends, or begin. Raises: GateError (``spend-unusable``)."""
        super().__init__(ceilings, prices)
        self._file = file
        self._today = today or _today
        self.day = self._today()
        if (kept := file.read()) is not None:
            if kept.day > self.day + timedelta(days=1):
                raise GateError(
                    f"the day's account is of {kept.day}, and today is {self.day}",
                    where=str(file.path),
                    hint="set the clock; removing the file begins the day's account anew, at nothing",
                    code="spend-unusable",
                )
            if kept.day >= self.day:
                self.day = kept.day
                self.requests, self.pico, self.spent = kept.requests, kept.pico_usd, Usage(input=kept.tokens)

    def reserve(self, ask: Ask) -> Reservation | Busy | Refusal:
        """Hold back the worst case of ``ask`` once that is on disk, or say why not."""
        if (today := self._today()) > self.day and not self.under_way:
            self.day, self.requests, self.pico, self.spent = today, 0, 0, Usage()
        outcome = super().reserve(ask)
        if isinstance(outcome, Reservation) and (fault := self._keep()) is not None:
            del self.under_way[outcome.number]
            self.requests -= 1
            return Refusal(code="spend-not-kept", message=f"the day's account cannot be written: {fault.strerror}")
        return outcome

    def settle(self, reservation: Reservation, usage: Usage) -> None:
        """Book what the request really used. If that cannot be written the file has its worst case, and the next request is refused.

        Raises: KeyError if it was settled before or never reserved here.
        """
        super().settle(reservation, usage)
        self._keep()

    def _keep(self) -> OSError | None:
        held = self.under_way.values()
        tokens = self.spent.total + sum(one.tokens for one in held)
        pico = self.pico + sum(one.pico for one in held)
        try:
            self._file.write(Spend(self.day, self.requests, tokens, pico))
        except OSError as error:
            return error
        return None


def _parse(data: bytes) -> Spend:
    document = json.loads(data.decode("utf-8")) if len(data) <= MAX_FILE_BYTES else None
    if not isinstance(document, dict) or document.keys() != {"schema_version", "day", *_COUNTS}:
        raise ValueError("other fields, or none")
    counts = [document[name] for name in _COUNTS]
    if any(not isinstance(count, int) or isinstance(count, bool) or count < 0 for count in counts):
        raise ValueError("a count that is none")
    if document["schema_version"] != 1 or not isinstance(document["day"], str):
        raise ValueError("another version, or no day")
    return Spend(date.fromisoformat(document["day"]), *counts)


def _today() -> date:
    return datetime.now(UTC).date()
