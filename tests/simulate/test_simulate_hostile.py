"""What a hostile worker can send to the simulator's port: everything is bounded, counted and answered, and nothing of it is a fail (B14)."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from runner.errors import SimulatorUnavailable
from runner.simulate import server
from runner.simulate.machine import Call
from runner.simulate.server import Simulator
from tests.simulate.conftest import Made, Served, contract

if TYPE_CHECKING:
    from tests.simulate.conftest import Serve

READ = Made("file_list", {})
JSON_TYPE = "Content-Type: application/json"
ACCEPT = "Accept: application/json, text/event-stream"


def status(answer: bytes) -> int:
    """The status of the (last) answer."""
    return int(answer.rpartition(b"HTTP/1.1 ")[2][:3])


def still_serves(served: Served) -> None:
    """Both doors still answer."""
    assert served.by_command([READ])[0].exit_status == 0
    assert served.by_mcp([READ])[0].is_error is False


@pytest.mark.parametrize(
    ("method", "path", "headers", "want"),
    [
        ("GET", "/", (), 404),
        ("POST", "/mcp/", (), 404),
        ("POST", "/mcp?x=1", (), 404),
        ("POST", "//mcp", (), 404),
        ("POST", "/%6dcp", (), 404),
        ("POST", "http://127.0.0.1/mcp", (), 404),
        ("POST", "/command/../mcp", (), 404),
        ("PUT", "/mcp", (), 405),
        ("GET", "/command", (), 405),
        ("POST", "/command", ("Content-Length: 2", "Content-Encoding: gzip"), 411),
        ("POST", "/mcp", ("Origin: http://127.0.0.1",), 403),
        ("POST", "/command", ("Content-Length: 262145",), 413),
        ("POST", "/mcp", ("Content-Length: 99999999999",), 413),
    ],
)
def test_what_is_not_served_is_refused_and_noted(
    serve: Serve, method: str, path: str, headers: tuple[str, ...], want: int
) -> None:
    """Other paths, methods, hosts, framings and sizes are refused before a body is read; that is a note and no error, and service goes on."""
    served = serve(contract())
    assert status(served.post(path, b"{}", *headers, method=method)) == want
    still_serves(served)
    record = served.close()
    assert (record.turned.refused, record.turned.malformed, record.fault) == (1, 0, None)
    assert len(record.turned.notes) == 1
    assert [row.tool for row in record.rows] == ["file_list", "file_list"]


@pytest.mark.parametrize(
    ("data", "want"),
    [
        (b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 421),
        (
            b"POST /command HTTP/1.1\r\nHost: @\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n6\r\nlist\n\n\r\n0\r\n\r\n",
            411,
        ),
        (b"POST /command HTTP/1.1\r\nHost: @\r\nConnection: close\r\n\r\n", 411),
    ],
    ids=["other-host", "chunked", "no-length"],
)
def test_a_head_that_does_not_fit_is_refused(serve: Serve, data: bytes, want: int) -> None:
    """Another host, and a body without a length are refused."""
    served = serve(contract())
    assert status(served.exchange(data.replace(b"@", b"127.0.0.1:%d" % served.port))) == want
    record = served.close()
    assert (record.turned.refused, record.turned.malformed, record.rows) == (1, 0, ())


def test_the_older_protocols_stream_and_session_are_declined(serve: Serve) -> None:
    """GET and DELETE of /mcp get 405, which clients take well; nobody did anything wrong."""
    served = serve(contract())
    for method in ("GET", "DELETE"):
        assert status(served.post("/mcp", b"", method=method)) == 405
    still_serves(served)
    record = served.close()
    assert (record.turned.refused, record.turned.malformed) == (0, 0)


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"POST /command HTTP/9.9\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"POST /command HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /command HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: a\r\n" % number for number in range(200)) + b"\r\n",
    ],
    ids=["words", "version", "no-host", "negative", "twice", "tls", "long", "many"],
)
def test_what_breaks_http_is_malformed(serve: Serve, data: bytes) -> None:
    """Bytes that are no request are counted as malformed, which makes the attempt an error of that name; service goes on."""
    served = serve(contract())
    with served.connect() as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
    still_serves(served)
    record = served.close()
    assert record.turned.malformed == 1
    assert record.fault is not None
    assert record.fault[0] == "simulator-malformed"
    assert "malformed" in record.turned.notes[0]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/mcp", b"{"),
        ("/mcp", b"[]"),
        ("/mcp", b'{"jsonrpc":"1.0","id":1,"method":"tools/list"}'),
        ("/mcp", b'{"jsonrpc":"2.0","id":{},"method":"tools/list"}'),
        ("/mcp", b"\xff\xfe"),
        ("/mcp", b"[" * 50_000),
        ("/command", b""),
        ("/command", b"call"),
        ("/command", b"steal\nx\n{}"),
        ("/command", b"list\nx\n"),
    ],
)
@pytest.mark.parametrize("version", ["2026-07-28", "2025-06-18"])
def test_what_breaks_a_doors_own_form_is_malformed(serve: Serve, path: str, body: bytes, version: str) -> None:
    """A body that is no JSON-RPC, or no command, is malformed too, in each of the protocol's forms; it makes no row."""
    served = serve(contract())
    assert served.post(path, body, JSON_TYPE, ACCEPT, f"MCP-Protocol-Version: {version}").startswith(b"HTTP/1.1 ")
    record = served.close()
    assert (record.turned.malformed, record.rows) == (1, ())


def rpc(method: str, version: str, **params: Any) -> tuple[bytes, list[str]]:
    """A whole JSON-RPC request of a version, and its headers."""
    headers = [JSON_TYPE, ACCEPT, f"MCP-Protocol-Version: {version}"]
    if version >= "2026":
        prefix = "io.modelcontextprotocol/"
        params["_meta"] = {
            f"{prefix}protocolVersion": version,
            f"{prefix}clientInfo": {"name": "x", "version": "1"},
            f"{prefix}clientCapabilities": {},
        }
        headers.append(f"Mcp-Method: {method}")
        headers += [f"Mcp-Name: {params['name']}"] if "name" in params else []
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode(), headers


@pytest.mark.parametrize("version", ["2026-07-28", "2025-06-18"])
def test_well_formed_requests_for_something_else_are_no_error(serve: Serve, version: str) -> None:
    """A method that is not served is answered with the protocol's own error, and is neither a row nor malformed; a call right after it is a row."""
    served = serve(contract())
    body, headers = rpc("resources/list", version)
    assert b"error" in served.post("/mcp", body, *headers)
    body, headers = rpc("tools/call", version, name="file_list", arguments={})
    answer = served.post("/mcp", body, *headers)
    assert status(answer) == 200
    assert b'"isError":false' in answer
    record = served.close()
    assert (len(record.rows), record.turned.malformed) == (1, 0)


def test_a_pipelined_request_is_not_carried_out(serve: Serve) -> None:
    """Of two requests sent at once the first is answered and the second is malformed: its call makes no row."""
    served = serve(contract())
    body = b"call\nfile_list\n{}"
    one = b"POST /command HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: %d\r\n\r\n%s" % (
        served.port,
        len(body),
        body,
    )
    assert served.exchange(one + one).count(b"HTTP/1.1 200") == 1
    record = served.close()
    assert (len(record.rows), record.turned.malformed) == (1, 1)


def test_a_connection_that_says_nothing_is_nothing(serve: Serve) -> None:
    """Connecting and leaving, as a port scan does, is neither refused nor malformed."""
    served = serve(contract())
    still_serves(served)
    for _ in range(3):
        served.connect().close()
    still_serves(served)
    record = served.close()
    assert (record.turned.refused, record.turned.malformed) == (0, 0)


@pytest.mark.parametrize(
    "part", [b"", b"P", b"POST /command HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: 9\r\n\r\nx"]
)
def test_many_connections_that_ask_nothing_do_not_keep_others_out(serve: Serve, part: bytes) -> None:
    """With more connections than are held, idle or with part of a request, a call still gets through: the oldest goes."""
    served = serve(contract())
    still_serves(served)
    held = [served.connect() for _ in range(100)]
    for connection in held:
        with contextlib.suppress(ConnectionError):  # it gave way already
            connection.sendall(part % served.port if b"%" in part else part)
    still_serves(served)
    for connection in held:
        connection.close()
    assert len(served.close().rows) == 4


def test_a_slow_answer_holds_nobody_up_and_leaving_early_changes_nothing(serve: Serve) -> None:
    """While one answer waits another call is served at once; a caller that leaves before its slow answer has made its call all the same."""
    served = serve(contract(faults=[{"id": "s", "kind": "slow", "tool": "file_list", "delay_ms": 30_000}]))
    body = b"call\nfile_list\n{}"
    head = b"POST /command HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: %d\r\n\r\n" % (served.port, len(body))
    connection = served.connect()
    connection.sendall(head + body)
    deadline = time.monotonic() + 20
    while served.command("call", "ticket_list").exit_status or time.monotonic() > deadline:
        pass
    before = time.monotonic()
    still_serves(served)
    assert time.monotonic() - before < 20
    connection.close()
    rows = served.close().rows
    assert [row.fault for row in rows if row.tool == "file_list"] == ["s", None, None]


def test_more_calls_than_a_trace_holds_are_an_error_of_their_own(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound nothing is carried out or kept, and the attempt is an error; within it there is none."""
    monkeypatch.setattr(server, "MAX_ROWS", 2)
    served = serve(contract())
    got = served.by_command([READ, READ, Made("ticket_comment", {"ticket": "DESK-1", "body": "x"})])
    assert [each.exit_status for each in got] == [0, 0, 4]
    record = served.close()
    assert len(record.rows) == 2
    assert [comment["body"] for comment in record.state.comments["DESK-1"]] == ["Reader replaced and tried."]
    assert record.fault is not None
    assert record.fault[0] == "simulator-overflow"


def test_the_bytes_of_a_trace_are_bounded_too(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few huge calls are stopped like many small ones."""
    monkeypatch.setattr(server, "MAX_TRACE_BYTES", 100_000)
    served = serve(contract())
    body = b"call\nfile_list\n" + b"x" * 60_000
    for _ in range(3):
        served.post("/command", body)
    record = served.close()
    assert (len(record.rows), record.overflow) == (1, True)


def broken() -> Any:
    """A contract with an operation that the machine does not know, which no loader would let through."""
    made = contract()
    tools = tuple(tool.model_copy(update={"operation": "ticket-burn"}) for tool in made.tools)
    return made.model_copy(update={"tools": tools})


@pytest.mark.parametrize("door", ["command", "mcp"])
def test_a_simulator_that_breaks_says_so(serve: Serve, door: str) -> None:
    """A fault of the simulator's own is its failure, whichever door met it: closing raises, and the run cannot be measured."""
    served = serve(broken())
    assert served.simulator.failure is None
    if door == "command":
        assert served.by_command([READ])[0].exit_status == 4
    else:
        assert served.by_mcp([READ])[0].is_error is None
    assert isinstance(served.simulator.failure, KeyError)
    with pytest.raises(SimulatorUnavailable, match="ticket-burn"):
        served.close()


def test_a_listener_that_is_gone_is_a_failure() -> None:
    """A simulator whose socket cannot be served has failed; one that is closed before it began has not."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.close()
    simulator = Simulator(contract(), port=1)
    simulator.serve(listener)
    deadline = time.monotonic() + 20
    while simulator.failure is None and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(SimulatorUnavailable):
        simulator.close()
    unused = Simulator(contract())
    assert unused.close().rows == ()
    assert unused.close() is unused.close()


@pytest.mark.parametrize(("doors", "closed"), [(["mcp"], "/command"), (["command"], "/mcp")])
def test_a_door_that_the_fixture_does_not_open_is_not_there(serve: Serve, doors: list[str], closed: str) -> None:
    """With one door only, the other's path is not served."""
    served = serve(contract(doors=doors))
    assert status(served.post(closed, b"list\n\n")) == 404
    if doors == ["mcp"]:
        assert served.by_mcp([READ])[0].is_error is False
    else:
        assert served.by_command([READ])[0].exit_status == 0


def test_the_tool_call_id_is_kept_only_where_it_is_one(serve: Serve) -> None:
    """The CLI's id of a tool call is kept in the row; anything that is no short printable text is not."""
    served = serve(contract())
    for value in ("toolu_1", 7, "x" * 200, "a\nb", None):
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        params = {"name": "file_list", "arguments": {}, "_meta": {"claudecode/toolUseId": value}}
        answer = served.post(
            "/mcp",
            json.dumps({**body, "params": params}).encode(),
            JSON_TYPE,
            ACCEPT,
            "MCP-Protocol-Version: 2025-06-18",
        )
        assert status(answer) == 200
    assert [row.tool_use_id for row in served.close().rows] == ["toolu_1", None, None, None, None]


def test_calls_are_taken_one_after_the_other(shipped: Any) -> None:
    """The trace's order is that of the calls, whoever made them."""
    simulator = Simulator(shipped)
    for number in range(5):
        simulator.take(Call("mcp" if number % 2 else "command", "call", "file_list"))
    rows = simulator.close().rows
    assert [(row.index, row.door) for row in rows] == [(n, "mcp" if n % 2 else "command") for n in range(5)]
