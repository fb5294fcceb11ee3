"""The claim ``trace`` of ``verify``: a kept tool trace is what its calls give on its contract, or it is broken (B13, B14)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.bundle.reader import Attempt, open_attempt
from runner.bundle.writer import AttemptContent, write_attempt
from runner.canonical import canonical_json
from runner.errors import BundleCorrupt
from runner.grade.provenance import check_trace

ATTEMPTS = Path(__file__).resolve().parents[2] / "fixtures" / "attempts"
Alter = Callable[[Any], None]


def altered(attempt: Attempt, out: Path, part: str, alter: Alter | None) -> Attempt:
    """Write the attempt again with one JSON part altered, or left out: whole and intact by itself."""
    parts = {
        name: attempt.part(name)
        for name in attempt.part_names
        if name != "exchanges.json" and not name.startswith("exchanges/")
    }
    value = json.loads(parts.pop(part))
    if alter is not None:
        alter(value)
        parts[part] = canonical_json(value)
    content = AttemptContent(attempt.manifest.fixture, attempt.manifest.summary, parts, attempt.exchanges())
    return open_attempt(write_attempt(out, content))


def first_row(name: str, value: Any) -> Alter:
    """Set a field of the first row."""
    return lambda trace: trace["rows"][0].__setitem__(name, value)


@pytest.mark.parametrize("kind", ["mcp", "command"])
def test_a_trace_is_given_again_by_its_calls(kind: str, tmp_path: Path) -> None:
    """The committed attempts' traces hold, also when they are written down again; one without a service is unknown."""
    attempt = open_attempt(ATTEMPTS / f"{kind}.attempt")
    assert check_trace(attempt)[0] == "held"
    assert check_trace(altered(attempt, tmp_path, "trace.json", lambda trace: None))[0] == "held"
    assert check_trace(open_attempt(ATTEMPTS / "plain.attempt"))[0] == "unknown"
    assert check_trace(open_attempt(ATTEMPTS / "judge.attempt"))[0] == "unknown"


CHANGES: dict[str, Alter] = {
    "result": first_row("result", {"made": "up"}),
    "exit-status": first_row("exit_status", 1),
    "applied": first_row("applied", "no"),
    "index": first_row("index", 1),
    "row-left-out": lambda trace: trace["rows"].pop(0),
    "row-twice": lambda trace: trace["rows"].append(trace["rows"][-1]),
    "final-state": lambda trace: trace["final_state"]["tickets"].clear(),
    "tools": lambda trace: trace["tools"].pop(),
    "contract": lambda trace: trace.__setitem__("contract_sha256", "0" * 64),
    "no-rows": lambda trace: trace.__setitem__("rows", None),
}


UNREADABLE = {"applied", "no-rows"}


@pytest.mark.parametrize("kind", ["mcp", "command"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_trace_that_its_calls_do_not_give_is_broken(name: str, kind: str, tmp_path: Path) -> None:
    """A result, a status, an effect, a row more or less, another end: broken, or damage that is named."""
    attempt = altered(open_attempt(ATTEMPTS / f"{kind}.attempt"), tmp_path, "trace.json", CHANGES[name])
    if name in UNREADABLE:
        with pytest.raises(BundleCorrupt, match="not readable"):
            check_trace(attempt)
        return
    assert check_trace(attempt)[0] == "broken"


def test_another_contract_and_a_missing_part_are_named(tmp_path: Path) -> None:
    """The plan names the contract, so that an easier one is found; contract and trace go together."""
    attempt = open_attempt(ATTEMPTS / "mcp.attempt")

    def easier(contract: Any) -> None:
        contract["faults"] = []
        contract["name"] += "-easier"

    with pytest.raises(BundleCorrupt, match="another contract"):
        check_trace(altered(attempt, tmp_path, "contract.json", easier))
    for part in ("contract.json", "trace.json"):
        with pytest.raises(BundleCorrupt, match="go together"):
            check_trace(altered(attempt, tmp_path / part, part, None))
