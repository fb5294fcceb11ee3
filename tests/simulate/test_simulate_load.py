"""Contracts and a fixture's additions are read strictly (B4, B14)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.canonical import parse_canonical
from runner.errors import ContractInvalid, FixtureInvalid, InputMissing
from runner.simulate.contract import Contract
from runner.simulate.load import contract_of, load_contract, parse_contract, parse_simulation, resolve
from runner.simulate.planned import planned_simulation
from tests.simulate.conftest import FIXTURES

RAW: dict[str, Any] = {
    "schema_version": 1,
    "server": "desk",
    "tools": [
        {
            "name": "ticket_read",
            "operation": "ticket-read",
            "description": "Read.",
            "input_schema": {
                "type": "object",
                "properties": {"ticket": {"type": "string"}},
                "required": ["ticket"],
                "additionalProperties": False,
            },
        }
    ],
}


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    raw = json.loads(json.dumps(RAW))
    change(raw)
    return json.dumps(raw).encode()


def schema(raw: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = raw["tools"][0]["input_schema"]
    return found


def test_the_shipped_contract_loads() -> None:
    """The shipped contract is taken, with every operation in it, and what is resolved is canonical and reads back."""
    file = load_contract(FIXTURES / "contracts", "ticketing")
    assert len({tool.operation for tool in file.tools}) == 7
    made = resolve(file, parse_simulation({"contract": "ticketing"}, "a"), "a")
    assert parse_canonical(made.canonical()) == made.model_dump(mode="json")
    assert Contract.model_validate_json(made.canonical()) == made


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        (lambda raw: raw.update(more=1), "/more"),
        (lambda raw: raw.update(schema_version=2), "/schema_version"),
        (lambda raw: raw.update(server="a b"), "/server"),
        (lambda raw: raw.update(root="srv"), "/root"),
        (lambda raw: raw.update(root="/srv/"), "/root"),
        (lambda raw: raw.update(tools=[]), "/tools"),
        (lambda raw: raw["tools"].append(raw["tools"][0]), "/tools/1/name"),
        (lambda raw: raw["tools"][0].update(operation="ticket-burn"), "/tools/0/operation"),
        (lambda raw: raw["tools"][0].update(name="Read"), "/tools/0/name"),
        (lambda raw: raw["tools"][0].update(description="see https://desk.example.com"), "/tools/0/description"),
        (lambda raw: schema(raw).update(additionalProperties=True), "/tools/0/input_schema"),
        (lambda raw: schema(raw).update(required=[]), "/tools/0/input_schema"),
        (lambda raw: schema(raw).update(type="array"), "/tools/0/input_schema"),
        (lambda raw: schema(raw).update(minProperties="x"), "/tools/0/input_schema"),
        (lambda raw: schema(raw)["properties"].update(a={"$ref": "http://x.invalid/s"}), "/tools/0/input_schema"),
        (lambda raw: schema(raw)["properties"].update(ticket={"type": "integer"}), "/tools/0/input_schema"),
        (lambda raw: raw.update(state={"tickets": {"a b": {}}}), "/state/tickets/a b"),
        (lambda raw: raw.update(state={"files": {"../x": ""}}), "/state/files/..~1x"),
        (lambda raw: raw.update(state={"tickets": {"A": {"due": 1.5}}}), ""),
        (lambda raw: raw.update(faults=[{"id": "f", "kind": "burnt", "tool": "ticket_read"}]), "/faults/0/kind"),
    ],
)
def test_a_broken_contract_is_refused_with_its_place(change: Callable[[dict[str, Any]], object], pointer: str) -> None:
    """Each broken rule names the file and the JSON pointer; the unchanged contract is taken."""
    assert parse_contract(changed(lambda raw: None), "a").server == "desk"
    with pytest.raises(ContractInvalid) as caught:
        parse_contract(changed(change), "a")
    assert caught.value.where.removeprefix("a.json").removeprefix("#") == pointer
    assert caught.value.code == "contract-invalid"


@given(st.binary(max_size=300))
def test_any_bytes_are_a_contract_or_refused(data: bytes) -> None:
    """Nothing but the declared error comes out of the parser."""
    with pytest.raises(ContractInvalid):
        parse_contract(data, "a")


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"contract": "Ticketing"}, "/contract"),
        ({"tools": []}, "/tools"),
        ({"doors": []}, "/doors"),
        ({"doors": ["mcp", "mcp"]}, "/doors"),
        ({"doors": ["stdio"]}, "/doors/0"),
        ({"comments": {"DESK-9": []}}, "/comments/DESK-9"),
        ({"tickets": {"DESK-7": {"id": "DESK-8"}}}, "/tickets/DESK-7/id"),
        ({"faults": [{"id": "f", "kind": "lost", "tool": "ticket_close"}]}, "/faults/0/tool"),
        ({"faults": [{"id": "f", "kind": "slow", "tool": "ticket_read"}]}, "/faults/0/delay_ms"),
        ({"faults": [{"id": "f", "kind": "lost", "tool": "ticket_read", "delay_ms": 5}]}, "/faults/0/delay_ms"),
        ({"faults": [{"id": "f", "kind": "lost", "tool": "ticket_read"}] * 2}, "/faults/1/id"),
        ({"faults": [{"id": "f", "kind": "lost", "tool": "ticket_read", "expect": {"state": {"x": 1}}}]}, None),
        ({"faults": [{"id": "f", "kind": "lost", "tool": "ticket_read", "when": {}}]}, "/faults/0/when"),
    ],
)
def test_a_broken_simulation_is_refused_with_its_place(change: dict[str, Any], pointer: str | None) -> None:
    """A fixture's additions name their place too; sound ones are laid over the contract and change its digest."""
    sound = {"contract": "ticketing", "tickets": {"DESK-7": {"state": "open"}}, "comments": {"DESK-7": []}}
    made, plain = contract_of(sound, FIXTURES, "a"), contract_of({"contract": "ticketing"}, FIXTURES, "a")
    assert made is not None
    assert plain is not None
    assert (set(made.state.tickets), made.sha256 == plain.sha256) == ({"DESK-1", "DESK-7"}, False)
    with pytest.raises(FixtureInvalid) as caught:
        contract_of(sound | change, FIXTURES, "a")
    assert caught.value.where.startswith("a.json#/simulation")
    if pointer is not None:
        assert caught.value.where == f"a.json#/simulation{pointer}"


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A missing contract, a directory and a fifo are input that is missing; a fixture without a simulation needs none."""
    import os

    (tmp_path / "dir.json").mkdir()
    os.mkfifo(tmp_path / "fifo.json")
    for name in ("absent", "dir", "fifo"):
        with pytest.raises(InputMissing):
            load_contract(tmp_path, name)
    assert contract_of(None, tmp_path, "a") is None
    assert planned_simulation(None) is None


def test_the_plan_tells_contract_doors_and_port() -> None:
    """What the plan says of a simulation is the digest, the doors and the fixed port; each door's part of the start goes with it."""
    for doors, servers, programs in (
        (["mcp"], {"desk": "http://127.0.0.1:8790/mcp"}, None),
        (["command"], {}, "/opt/bin"),
        (["command", "mcp"], {"desk": "http://127.0.0.1:8790/mcp"}, "/opt/bin"),
    ):
        made = contract_of({"contract": "ticketing", "doors": doors}, FIXTURES, "a")
        assert made is not None
        planned = planned_simulation(made)
        assert planned is not None
        assert (planned.mcp_servers, planned.programs, planned.port) == (servers, programs, 8790)
        assert planned.contract_sha256 == made.sha256
