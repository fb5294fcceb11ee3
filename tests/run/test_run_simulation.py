"""A simulated service in a whole run: both doors with the real CLI, the trace in the attempt, and what a worker can do to it (B13, B14)."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from runner.bundle.reader import Attempt, open_attempt
from runner.canonical import parse_canonical
from runner.simulate.contract import Contract
from runner.simulate.retrace import recomputed
from runner.simulate.trace import Row
from tests.run.conftest import ROOT, Answer, Place, replies, text, tool

READ, COMMENT = "mcp__desk__ticket_read", "mcp__desk__ticket_comment"
BODY = "The reviewer account is unresolved."


def attempt_of(answer: Answer) -> Attempt:
    """The attempt of a single run."""
    return open_attempt(Path(answer.row["path"]))


def trace_of(attempt: Attempt) -> dict[str, Any]:
    """The trace, which is canonical JSON."""
    document = parse_canonical(attempt.part("trace.json"))
    assert isinstance(document, dict)
    return document


def brief(document: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What each row says at a glance."""
    names = ("door", "mode", "tool", "exit_status", "status", "applied", "fault")
    return [tuple(row[name] for name in names) for row in document["rows"]]


@pytest.fixture
def desk(place: Place) -> Place:
    """A place with the shipped contract."""
    shutil.copytree(ROOT / "fixtures" / "contracts", place.folder / "contracts")
    return place


def case(
    desk: Place, name: str, *steps: dict[str, Any], faults: list[dict[str, Any]] | None = None, **more: Any
) -> str:
    """A case on the shipped desk whose worker loads the skill and then does these steps."""
    simulation = {
        "contract": "ticketing",
        "tickets": {"DESK-9": {"title": "Reviewer account", "state": "open"}},
        "faults": faults or [],
        **more,
    }
    return desk.case(
        name, replies(tool("Skill", "toolu_skill", skill="workflow"), *steps, text()), simulation=simulation
    )


def bash(call_id: str, command: str) -> dict[str, Any]:
    """A step that runs a command."""
    return tool("Bash", call_id, command=command, description="Try")


def result_of(attempt: Attempt, call_id: str) -> str:
    """What the CLI gave the model for a tool call, as it went over the wire."""
    for exchange in reversed(attempt.exchanges()):
        if exchange.kind != "inference":
            continue
        for message in json.loads(exchange.request.body)["messages"]:
            for block in message["content"] if isinstance(message["content"], list) else ():
                if block.get("tool_use_id") == call_id:
                    return json.dumps(block["content"])
    raise AssertionError(f"no result for {call_id}")


def test_the_mcp_case_leaves_its_trace(place: Place) -> None:
    """The shipped case by MCP: the server is connected, each call is a row with the conversation's own id, and trace, contract and plan belong together."""
    attempt = attempt_of(place.hermeval("run", "ticket-comment", "--no-grade", "--json", "--out", str(place.out)))
    trace = trace_of(attempt)
    assert brief(trace) == [
        ("mcp", "call", "ticket_read", 0, 200, False, None),
        ("mcp", "call", "ticket_comment", 0, 200, True, None),
    ]
    assert [row["tool_use_id"] for row in trace["rows"]] == ["toolu_read_ticket", "toolu_comment"]
    assert trace["other_requests"] == {"lists": 1, "malformed": 0, "notes": [], "refused": 0}
    assert trace["final_state"]["comments"]["DESK-7"][1]["author"] == "desk-agent"
    assert b'"mcp_servers":[{"name":"desk","status":"connected","source":"dynamic"}]' in attempt.part(
        "transcript.jsonl"
    )
    contract = Contract.model_validate_json(attempt.part("contract.json"))
    plan = json.loads(attempt.part("plan.json"))
    assert plan["simulation"] == {
        "contract": "ticketing",
        "contract_sha256": contract.sha256,
        "doors": ["mcp"],
        "port": 8790,
        "server": "desk",
    }
    assert trace["contract_sha256"] == contract.sha256
    rows = tuple(Row.model_validate_json(json.dumps(row)) for row in trace["rows"])
    assert recomputed(contract, rows)[0] == rows


def test_the_command_case_leaves_its_trace(place: Place) -> None:
    """The shipped case by the command: the lost response is what the model was told, the read-back shows the write, and two runs give equal traces, plans and requests."""
    attempts = [
        attempt_of(place.hermeval("run", "ticket-comment-lost", "--no-grade", "--json", "--out", str(place.out)))
        for _ in range(2)
    ]
    assert brief(trace_of(attempts[0])) == [
        ("command", "list", None, 0, 200, False, None),
        ("command", "call", "ticket_read", 0, 200, False, None),
        ("command", "call", "ticket_comment", 5, 0, True, "comment-answer-lost"),
        ("command", "call", "ticket_read", 0, 200, False, None),
    ]
    told = result_of(attempts[0], "toolu_comment")
    assert "Exit code 5" in told
    assert "no response came; the call may have been carried out" in told
    assert "comment-2" in result_of(attempts[0], "toolu_again")
    for part in ("trace.json", "plan.json", "contract.json"):
        assert attempts[0].part(part) == attempts[1].part(part)
    bodies = [
        [exchange.request.body for exchange in attempt.exchanges() if exchange.kind == "inference"]
        for attempt in attempts
    ]
    assert len(bodies[0]) == 5
    assert bodies[0] == bodies[1]


@pytest.mark.parametrize(
    ("kind", "status", "told"), [("lost", 0, "ECONNRESET"), ("malformed", 200, "could not be parsed")]
)
def test_a_lost_answer_over_mcp_is_not_repeated_by_the_cli(desk: Place, kind: str, status: int, told: str) -> None:
    """The CLI tells the model that the answer failed and makes the call once: the write is there exactly once."""
    case(
        desk,
        "unsure",
        tool(COMMENT, "toolu_1", ticket="DESK-9", body=BODY),
        tool(READ, "toolu_2", ticket="DESK-9"),
        faults=[{"id": "f", "kind": kind, "tool": "ticket_comment"}],
    )
    answer = desk.run("unsure")
    assert answer.row["outcome"]["kind"] == "measured", answer.row["outcome"]
    attempt = attempt_of(answer)
    assert brief(trace_of(attempt)) == [
        ("mcp", "call", "ticket_comment", 5, status, True, "f"),
        ("mcp", "call", "ticket_read", 0, 200, False, None),
    ]
    assert told in result_of(attempt, "toolu_1")
    assert result_of(attempt, "toolu_2").count(BODY) == 1


def test_both_doors_lead_to_one_state(desk: Place) -> None:
    """What is written by MCP is read by the command; exit statuses reach the worker; rows keep the order across doors."""
    case(
        desk,
        "both",
        tool(COMMENT, "toolu_1", ticket="DESK-9", body=BODY),
        bash("toolu_2", 'tool call ticket_read \'{"ticket":"DESK-9"}\''),
        bash("toolu_3", 'tool call ticket_read; echo is $?; tool call ticket_read \'{"ticket":"DESK-2"}\'; echo is $?'),
        faults=[],
    )
    attempt = attempt_of(desk.run("both"))
    assert [row[:4] for row in brief(trace_of(attempt))] == [
        ("mcp", "call", "ticket_comment", 0),
        ("command", "call", "ticket_read", 0),
        ("command", "call", "ticket_read", 4),
        ("command", "call", "ticket_read", 1),
    ]
    assert BODY in result_of(attempt, "toolu_2")
    assert "is 4" in result_of(attempt, "toolu_3")
    assert "is 1" in result_of(attempt, "toolu_3")


def test_a_worker_that_sends_what_is_no_request_is_an_error(desk: Place) -> None:
    """Garbage at the simulator's port makes the attempt an error of its own name, never a fail; the trace is kept."""
    case(desk, "garbage", bash("toolu_1", "exec 3<>/dev/tcp/127.0.0.1/8790; printf 'x\\r\\n\\r\\n' >&3; cat <&3"))
    answer = desk.run("garbage")
    assert answer.code == 2
    assert answer.row["outcome"]["code"] == "simulator-malformed"
    assert answer.row["output"] is None
    trace = trace_of(attempt_of(answer))
    assert trace["other_requests"]["malformed"] == 1
    assert "malformed (malformed)" in trace["other_requests"]["notes"][0]


def test_a_worker_that_asks_for_something_else_is_noted(desk: Place) -> None:
    """A well-formed request for another path is refused and noted; the run is measured."""
    ask = "exec 3<>/dev/tcp/127.0.0.1/8790; printf 'GET /state HTTP/1.1\\r\\nHost: 127.0.0.1:8790\\r\\n\\r\\n' >&3; cat <&3"
    case(desk, "curious", bash("toolu_1", ask))
    answer = desk.run("curious")
    assert answer.row["outcome"]["kind"] == "measured", answer.row["outcome"]
    attempt = attempt_of(answer)
    assert trace_of(attempt)["other_requests"] | {"lists": 0} == {
        "lists": 0,
        "malformed": 0,
        "notes": ["refused (not-served): GET /state"],
        "refused": 1,
    }
    assert "404" in result_of(attempt, "toolu_1")


def test_the_command_cannot_be_changed_and_is_there_for_simulations_only(desk: Place) -> None:
    """The program is read-only inside; a run without a simulation has neither the command nor the port."""
    probe = (
        "echo x > /opt/bin/tool; rm -f /opt/bin/tool; command -v tool; (exec 3<>/dev/tcp/127.0.0.1/8790) && echo open"
    )
    case(desk, "with", bash("toolu_1", probe))
    desk.case("without", replies(tool("Skill", "toolu_skill", skill="workflow"), bash("toolu_1", probe), text()))
    told = {name: result_of(attempt_of(desk.run(name)), "toolu_1") for name in ("with", "without")}
    assert "/opt/bin/tool" in told["with"].split("Read-only file system")[-1]
    assert told["with"].count("Read-only file system") == 2
    assert "open" in told["with"]
    assert "Connection refused" in told["without"]
    assert "/opt/bin/tool\\n" not in told["without"]
    assert "open" not in told["without"].split("refused")[-1]


def test_a_simulator_that_dies_is_an_error(desk: Place) -> None:
    """A fault of the simulator's own ends the run and is the attempt's outcome; what the worker said is kept unscored."""
    from runner.attempt import Job, run_attempt
    from runner.canonical import sha256_hex
    from runner.cli.batch import open_machine
    from runner.fixture import load_fixture
    from runner.gate.script import parse_script
    from runner.gate.upstreams.scripted import ScriptedUpstream
    from runner.plan import PlanOptions, Provider
    from runner.simulate.load import contract_of

    name = case(desk, "dies", tool(READ, "toolu_1", ticket="DESK-9"), bash("toolu_2", "sleep 20"))
    fixture = load_fixture(desk.folder / f"{name}.json")
    contract = contract_of(fixture.simulation, desk.folder, name)
    assert contract is not None
    tools = tuple(each.model_copy(update={"operation": "ticket-burn"}) for each in contract.tools)
    source = (desk.folder / "scripts" / f"{name}.json").read_bytes()
    script = parse_script(source, name)
    desk.out.mkdir()
    job = Job(
        fixture,
        PlanOptions(),
        desk.folder / "skills",
        desk.folder / "recipes",
        Provider(kind="scripted", script=name, script_sha256=sha256_hex(source)),
        lambda: ScriptedUpstream(script),
        desk.out,
        contract=contract.model_copy(update={"tools": tools}),
    )
    attempted = run_attempt(job, open_machine(os.environ), tell=lambda _step, _facts: None, cancelled=threading.Event())
    outcome = attempted.row["outcome"]
    assert (outcome["kind"], outcome["code"]) == ("error", "simulator-unavailable")
    assert attempted.row["output"] is None
    assert not open_attempt(attempted.kept.path).has("trace.json")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"contract": "absent"}, "input-missing"),
        ({"faults": [{"id": "f", "kind": "lost", "tool": "gone"}]}, "fixture-invalid"),
        ({"more": 1}, "fixture-invalid"),
    ],
)
def test_a_broken_simulation_is_found_before_anything_starts(desk: Place, change: dict[str, Any], code: str) -> None:
    """A contract that is missing or additions that do not fit end the command with exit 2 and a code; nothing is run."""
    case(desk, "broken", **change)
    answer = desk.run("broken")
    assert answer.code == 2
    assert answer.object["error"]["code"] == code
    assert list(desk.out.glob("*.attempt")) == []
