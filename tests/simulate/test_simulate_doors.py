"""Both doors against fixed literals and against each other, with the official MCP client and the real command; and that a drift is seen (B14)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from runner.canonical import canonical_json
from runner.simulate.machine import same_json
from runner.simulate.retrace import recomputed
from runner.simulate.trace import Row
from tests.simulate.conftest import ROOTS, Got, contract
from tests.simulate.contract_cases import CASES, ROOT, SEED, Case, Want
from tests.simulate.doors import Output, same_output, same_trace

if TYPE_CHECKING:
    from tests.simulate.conftest import Serve


def rooted(value: Any, root: str) -> Any:
    """The literal, below a root."""
    return json.loads(json.dumps(value).replace(ROOT, root))


def check_rows(case: Case, rows: tuple[Row, ...], root: str) -> None:
    """Check a trace against the case's literals."""
    assert len(rows) == len(case.steps)
    for number, (row, (made, want)) in enumerate(zip(rows, case.steps, strict=True)):
        assert (row.index, row.mode, row.tool) == (number, "call", made.tool)
        assert (row.exit_status, row.status, row.writes, row.applied, row.fault) == (
            want.exit_status,
            want.status,
            want.writes,
            want.applied,
            want.fault,
        )
        assert same_json(row.result, rooted(want.result, root)), (row.result, want.result)
        if row.args is None:
            assert row.args_text is not None
            assert json.loads(row.args_text) == dict(made.args)
        else:
            assert row.args_text is None
            assert same_json(row.args, dict(made.args))


def check_command(got: Got, want: Want, root: str) -> None:
    """Check what the command printed, and how it ended."""
    assert got.exit_status == want.exit_status
    if want.status == 200 and want.exit_status == 5:
        assert got.raw
        with pytest.raises(ValueError, match=r"Expecting|Unterminated|Invalid"):
            json.loads(got.raw)
    else:
        assert got.raw == canonical_json(rooted(want.result, root)).decode() + "\n"
    assert bool(got.stderr) == (want.exit_status == 5)


def check_mcp(got: Got, want: Want, root: str) -> None:
    """Check what the official client was given; it raises where no usable answer comes."""
    if want.exit_status == 5:
        assert got.is_error is None
        return
    assert got.is_error == (want.exit_status != 0)
    assert got.raw == canonical_json(rooted(want.result, root)).decode()
    assert same_json(got.structured, rooted(want.result, root))


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_both_doors_give_the_literals_and_equal_traces(serve: Serve, case: Case, mode: str) -> None:
    """Each case through MCP (newest protocol and the older one) and through the command: results as written, traces equal but for the contract root."""
    calls = [made for made, _ in case.steps]
    simulation = SEED | case.simulation
    over_mcp = serve(contract(ROOTS["mcp"], **simulation))
    by_command = serve(contract(ROOTS["command"], **simulation))
    got_mcp, got_command = over_mcp.by_mcp(calls, mode=mode), by_command.by_command(calls)
    mcp, command = over_mcp.close(), by_command.close()
    check_rows(case, mcp.rows, ROOTS["mcp"])
    check_rows(case, command.rows, ROOTS["command"])
    for one, other, (_, want) in zip(got_mcp, got_command, case.steps, strict=True):
        check_mcp(one, want, ROOTS["mcp"])
        check_command(other, want, ROOTS["command"])
        if want.exit_status != 5:
            assert same_output(Output(one.raw, ROOTS["mcp"]), Output(other.raw, ROOTS["command"]))
    assert {row.door for row in mcp.rows} == {"mcp"}
    assert {row.door for row in command.rows} == {"command"}
    assert same_trace(mcp.rows, ROOTS["mcp"], command.rows, ROOTS["command"])
    assert mcp.turned.malformed == command.turned.malformed == 0
    assert mcp.fault is command.fault is None
    for record in (mcp, command):
        assert recomputed(record.contract, record.rows)[0] == record.rows


TOOLS = [
    {"name": "ticket_list", "description": "List tickets, all or those in one state."},
    {"name": "ticket_read", "description": "Read one ticket with its comments."},
    {"name": "ticket_comment", "description": "Add a comment to a ticket. Each call adds one."},
    {"name": "ticket_update", "description": "Set a ticket's state or assignee."},
    {"name": "file_list", "description": "List the desk's files."},
    {"name": "file_read", "description": "Read one of the desk's files."},
    {"name": "file_write", "description": "Write one of the desk's files, whole."},
]
READ_SCHEMA = {
    "type": "object",
    "properties": {"ticket": {"type": "string", "description": "The ticket's id, such as DESK-7"}},
    "required": ["ticket"],
    "additionalProperties": False,
}


def test_list_and_schema_are_told_alike(serve: Serve) -> None:
    """The tools and a tool's schema are the same literals by both doors, . Over MCP the client lists by itself, which is no row."""
    import asyncio

    from mcp import Client

    one, other = serve(contract()), serve(contract())

    async def listed() -> list[dict[str, Any]]:
        async with Client(f"http://127.0.0.1:{one.port}/mcp") as client:
            found = await client.list_tools()
            return [
                {"name": tool.name, "description": tool.description, "schema": tool.input_schema}
                for tool in found.tools
            ]

    over_mcp = asyncio.run(listed())
    assert [{key: tool[key] for key in ("name", "description")} for tool in over_mcp] == TOOLS
    assert over_mcp[1]["schema"] == READ_SCHEMA
    by_command = other.command("list")
    assert (json.loads(by_command.raw), by_command.exit_status) == ({"tools": TOOLS}, 0)
    listed_over_mcp = one.close()
    assert (listed_over_mcp.rows, listed_over_mcp.turned.lists) == ((), 1)
    assert [(row.mode, row.tool, row.result) for row in other.close().rows] == [("list", None, {"tools": TOOLS})]
    third = serve(contract())
    assert json.loads(third.command("schema", "ticket_read").raw) == READ_SCHEMA
    unknown = third.command("schema", "ticket_close")
    assert (json.loads(unknown.raw), unknown.exit_status) == (
        {"error": {"code": "rejected", "message": "there is no tool ticket_close"}},
        4,
    )
    rows = third.close().rows
    assert [(row.mode, row.tool, row.exit_status, row.writes) for row in rows] == [
        ("schema", "ticket_read", 0, False),
        ("schema", "ticket_close", 4, False),
    ]


CALLS = [made for made, _ in CASES[2].steps]
DRIFTS: dict[str, dict[str, Any]] = {
    "another author": {"author": "desk-agent "},
    "another id": {"comments": SEED["comments"] | {"DESK-1": []}},
    "another state": {"tickets": {"DESK-7": SEED["tickets"]["DESK-7"] | {"state": "waiting"}}},
    "another kind of value": {"tickets": {"DESK-7": SEED["tickets"]["DESK-7"] | {"state": True}}},
    "another failure class": {"faults": [{"id": "f", "kind": "rejected", "tool": "ticket_comment"}]},
    "a failure at another call": {"faults": [{"id": "f", "kind": "lost", "tool": "ticket_comment", "after": 1}]},
    "a fault without effect on the answer": {
        "faults": [{"id": "f", "kind": "slow", "tool": "ticket_read", "delay_ms": 1}]
    },
}


@pytest.mark.parametrize("drift", DRIFTS, ids=lambda name: name.replace(" ", "-"))
def test_a_drift_between_the_doors_is_seen(serve: Serve, drift: str) -> None:
    """A deliberate variation of what stands behind one door makes the traces unequal; without it they are equal."""
    behind = {name: serve(contract(ROOTS[name], **SEED)) for name in ("mcp", "command")}
    varied = serve(contract(ROOTS["command"], **(SEED | DRIFTS[drift])))
    behind["mcp"].by_mcp(CALLS)
    for served in (behind["command"], varied):
        served.by_command(CALLS)
    mcp = behind["mcp"].close().rows
    assert same_trace(mcp, ROOTS["mcp"], behind["command"].close().rows, ROOTS["command"])
    assert not same_trace(mcp, ROOTS["mcp"], varied.close().rows, ROOTS["command"])


def test_a_drift_in_the_calls_is_seen(serve: Serve) -> None:
    """Other order, one call less, and other arguments of equal length each make the traces unequal."""
    rows = {}
    for name, calls in {
        "same": CALLS,
        "order": [CALLS[1], CALLS[0], *CALLS[2:]],
        "less": CALLS[:-1],
        "args": [CALLS[0]._replace(args={**CALLS[0].args, "body": "The auditor account is unresolved!"}), *CALLS[1:]],
    }.items():
        served = serve(contract(ROOTS["command"], **SEED))
        served.by_command(calls)
        rows[name] = served.close().rows
    over_mcp = serve(contract(ROOTS["mcp"], **SEED))
    over_mcp.by_mcp(CALLS)
    mcp = over_mcp.close().rows
    equal = {name: same_trace(mcp, ROOTS["mcp"], other, ROOTS["command"]) for name, other in rows.items()}
    assert equal == {"same": True, "order": False, "less": False, "args": False}


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ('{"a":1,"b":2}', '{ "b": 2,\n "a": 1 }', True),
        ('{"p":"/srv/desk-one/a"}', '{"p":"/srv/desk-two/a"}', True),
        ("no ticket below /srv/desk-one", "no ticket below /srv/desk-two", True),
        ('{"a":1}', '{"a":true}', False),
        ('{"a":1}', '{"a":1.0}', False),
        ('{"a":"x"}', '{"a":"x "}', False),
        ('{"a":[1,2]}', '{"a":[2,1]}', False),
        ('{"p":"/srv/desk-one/a"}', '{"p":"/srv/desk-two/b"}', False),
        ('{"p":"/srv/desk-one"}', '{"p":"/srv/desk-one"}', False),
        ('{"p":"/srv/desk-one2/a"}', '{"p":"/srv/desk-two2/a"}', False),
        ("not JSON", "not  JSON", False),
        ('{"a":1', '{"a": 1', False),
        ("", "{}", False),
    ],
)
def test_only_json_layout_and_the_contract_root_are_taken_out(one: str, other: str, equal: bool) -> None:
    """Two outputs are equal by JSON value and below their roots, and exact in everything else; the raw text is kept."""
    outputs = Output(one, "/srv/desk-one"), Output(other, "/srv/desk-two")
    assert same_output(*outputs) is equal
    assert [output.raw for output in outputs] == [one, other]
