"""The account of a day: on disk before a request is sent, read again at the next start, refused where it cannot be understood or written (runner/gate/spend.py)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import pytest

from runner.errors import GateError
from runner.gate.exchange import Refusal
from runner.gate.ledger import Ask, Reservation
from runner.gate.prices import load_prices
from runner.gate.settings import Ceilings
from runner.gate.spend import DayLedger, Spend, SpendFile
from runner.gate.usage import Usage

DAY = date(2026, 12, 1)
ASK = Ask("messages", "claude-sonnet-5-5", 2000, 1000)


def opened(path: Path, day: date = DAY, usd: str = "1") -> tuple[DayLedger, SpendFile]:
    file = SpendFile(path)
    return DayLedger(Ceilings(usd=usd, requests=5), load_prices(), file, today=lambda: day), file


def sent(ledger: DayLedger) -> Reservation:
    held = ledger.reserve(ASK)
    assert isinstance(held, Reservation), held
    return held


def test_a_new_process_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    """Requests, tokens and money of the day are there again; the ceiling is reached by all starts together, and not by one of them."""
    path = tmp_path / "spend.json"
    for number in range(5):
        ledger, file = opened(path)
        assert ledger.requests == number
        ledger.settle(sent(ledger), Usage(input=10, output=20))
        spent = (ledger.requests, ledger.spent.total, ledger.pico)
        file.close()
        again, file = opened(path)
        assert (again.requests, again.spent.total, again.pico) == spent
        file.close()
    ledger, file = opened(path)
    refusal = ledger.reserve(ASK)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "over-requests"
    file.close()


def test_what_was_under_way_is_booked_at_its_worst(tmp_path: Path) -> None:
    """A process that dies between sending and settling leaves the worst case of what it had sent; one that settled, what it cost."""
    ledger, file = opened(tmp_path / "spend.json")
    held = sent(ledger)
    assert file.read() == Spend(DAY, 1, held.tokens, held.pico)
    ledger.settle(held, Usage(output=1))
    assert file.read() == Spend(DAY, 1, 1, ledger.pico)
    assert ledger.pico < held.pico
    file.close()


def test_a_killed_process_has_told_what_it_sent(tmp_path: Path) -> None:
    """SIGKILL right after the reservation, as out of memory: the next process knows of it."""
    script = "import os, signal, sys; from pathlib import Path; from tests.gate.test_gate_spend import opened, sent\n"
    script += "sent(opened(Path(sys.argv[1]))[0]); os.kill(os.getpid(), signal.SIGKILL)"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-P", "-c", script, str(tmp_path / "spend.json")],
        env={**os.environ, "PYTHONPATH": str(root)},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    ledger, file = opened(tmp_path / "spend.json")
    assert ledger.requests == 1
    assert ledger.pico > 0
    file.close()


def test_a_new_day_begins_at_nothing(tmp_path: Path) -> None:
    """The day changes in a process and between two; not while a request is under way; a clock that is set back opens no new one."""
    days = [DAY]
    file = SpendFile(tmp_path / "spend.json")
    ledger = DayLedger(Ceilings(requests=5), load_prices(), file, today=lambda: days[-1])
    first = sent(ledger)
    days.append(DAY + timedelta(days=1))
    second = sent(ledger)
    assert ledger.requests == 2
    ledger.settle(first, Usage())
    ledger.settle(second, Usage())
    sent(ledger)
    assert (ledger.requests, ledger.day) == (1, days[-1])
    file.close()
    back, file = opened(tmp_path / "spend.json", DAY)
    assert (back.requests, back.day) == (1, days[-1])
    file.close()
    later, file = opened(tmp_path / "spend.json", DAY + timedelta(days=9))
    assert (later.requests, later.pico) == (0, 0)
    file.close()


GOOD = {"schema_version": 1, "day": "2026-12-01", "requests": 1, "tokens": 2, "pico_usd": 3}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff",
        b"[" * 4000,
        b" " * 5000,
        json.dumps({**GOOD, "requests": -1}).encode(),
        json.dumps({**GOOD, "pico_usd": True}).encode(),
        json.dumps({**GOOD, "pico_usd": 1.5}).encode(),
        json.dumps({**GOOD, "schema_version": 2}).encode(),
        json.dumps({**GOOD, "day": "yesterday"}).encode(),
        json.dumps({**GOOD, "more": 1}).encode(),
        json.dumps({**GOOD, "day": "2027-12-01"}).encode(),
    ],
    ids=[
        "empty",
        "cut",
        "no text",
        "deep",
        "long",
        "negative",
        "truth",
        "half",
        "version",
        "no day",
        "field",
        "future",
    ],
)
def test_an_account_that_is_not_understood_ends_the_start(tmp_path: Path, data: bytes) -> None:
    """Nobody spends on a broken account; the error names the file and what to do. A good one is read."""
    path = tmp_path / "spend.json"
    path.write_bytes(data)
    with pytest.raises(GateError) as caught:
        opened(path)
    assert (caught.value.code, caught.value.where) == ("spend-unusable", str(path))
    assert caught.value.hint
    other = tmp_path / "other" / "spend.json"
    other.parent.mkdir()
    other.write_text(json.dumps(GOOD))
    ledger, file = opened(other)
    assert (ledger.requests, ledger.spent.total, ledger.pico) == (1, 2, 3)
    file.close()


def test_a_link_a_pipe_and_a_second_process_are_no_account(tmp_path: Path) -> None:
    """What is no regular file is not followed and not waited for; the file has one holder at a time, and another one afterwards."""
    path = tmp_path / "spend.json"
    path.symlink_to(tmp_path / "elsewhere")
    first = SpendFile(path)
    with pytest.raises(GateError, match="cannot be opened"):
        first.read()
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(GateError, match="no regular file"):
        first.read()
    path.unlink()
    with pytest.raises(GateError, match="another gate"):
        SpendFile(path)
    first.close()
    SpendFile(path).close()
    with pytest.raises(GateError, match="directory"):
        SpendFile(tmp_path / "none" / "spend.json")


def test_a_request_that_cannot_be_booked_is_refused(tmp_path: Path) -> None:
    """Without its place nothing is sent and nothing is held back; with the place again it goes on."""
    folder = tmp_path / "state"
    folder.mkdir()
    ledger, file = opened(folder / "spend.json")
    folder.rmdir()
    refusal = ledger.reserve(ASK)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "spend-not-kept"
    assert (ledger.requests, ledger.under_way) == (0, {})
    folder.mkdir()
    sent(ledger)
    file.close()
