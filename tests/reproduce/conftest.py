"""One recorded attempt of each shipped fixture, made once, and a way to alter a part of one consistently."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from runner.bundle.reader import Attempt, open_attempt
from runner.bundle.writer import AttemptContent, write_attempt
from runner.gate.exchange import Exchange
from tests.run.conftest import Place, place, replies, serve_provider, text, tool

Alter = Callable[[dict[str, Any]], None]


def rewrite(
    attempt: Attempt,
    out: Path,
    *,
    parts: Mapping[str, bytes] | None = None,
    exchanges: Callable[[tuple[Exchange, ...]], tuple[Exchange, ...]] = lambda given: given,
) -> Path:
    """Write the attempt again with other parts or exchanges: whole and intact by itself, as a forger would."""
    kept = {
        name: attempt.part(name)
        for name in attempt.part_names
        if name != "exchanges.json" and not name.startswith("exchanges/")
    }
    content = AttemptContent(
        attempt.manifest.fixture, attempt.manifest.summary, {**kept, **(parts or {})}, exchanges(attempt.exchanges())
    )
    return write_attempt(out, content)


def edit_json(attempt: Attempt, part: str, alter: Alter) -> dict[str, bytes]:
    """Return a JSON part altered in place, canonical again."""
    from runner.canonical import canonical_json

    value = json.loads(attempt.part(part))
    alter(value)
    return {part: canonical_json(value)}


def edit_exchange(number: int, **fields: Any) -> Callable[[tuple[Exchange, ...]], tuple[Exchange, ...]]:
    """Alter the n-th (1-based) inference exchange."""

    def alter(given: tuple[Exchange, ...]) -> tuple[Exchange, ...]:
        inference = [exchange for exchange in given if exchange.kind == "inference"]
        chosen = inference[number - 1]
        return tuple(exchange.model_copy(update=fields) if exchange is chosen else exchange for exchange in given)

    return alter


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Attempts by name: the shipped direct, slash and routing cases, and one with a Bash call."""
    base = tmp_path_factory.mktemp("recorded")
    site = Place(base / "fixtures", base / "attempts")
    for name in ("scripts", "skills", "recipes"):
        (site.folder / name).mkdir(parents=True)
    site.skill("workflow", provision="# Provision\n\nKeep a missing account unresolved.\n")
    site.case(
        "bash",
        replies(tool("Bash", "toolu_1", command="printf kept > note.txt; cat note.txt", description="x"), text()),
        invocation="slash",
    )
    made = site.run("bash")
    assert made.code == 0, made.stderr
    paths = {"bash": Path(made.row["path"])}
    shipped = site.hermeval(
        "run", "--no-grade", "missing-account", "slash-cf", "workflow-routing", "--json", "--out", str(site.out)
    )
    assert shipped.code == 0, shipped.stderr
    return paths | {row["fixture"]: Path(row["path"]) for row in shipped.object["attempts"]}


@pytest.fixture
def opened(recorded: dict[str, Path]) -> Callable[[str], Attempt]:
    """Open a recorded attempt by name."""
    return lambda name: open_attempt(recorded[name])


__all__ = ["edit_exchange", "edit_json", "place", "rewrite", "serve_provider"]
