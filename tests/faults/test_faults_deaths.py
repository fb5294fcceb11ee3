"""Whoever takes part in a command may die at any moment: gate, provider, supervisor, sandbox, CLI, grader, and the command itself."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from runner.errors import ReproduceImpossible
from runner.reproduce import refuse_broken
from runner.run_facts import RunFacts
from tests.faults.conftest import Bench, Fault

GATE = frozenset({"gate-unavailable"})
JUDGE = frozenset({"judge-error"})
GONE = frozenset({"supervisor-gone"})
GRADER = frozenset({"grader-error", "sandbox-setup"})


def kill(
    to: str, *, who: str, nth: int, calls: tuple[str, ...] = ("openat",), signal: str = "SIGKILL", **more: Any
) -> dict[str, Any]:
    """A rule: at somebody's n-th call somebody is killed."""
    path = {"path": more.pop("path")} if "path" in more else {}
    return {"calls": calls, "who": who, "nth": nth, "do": {"signal": signal, "to": to, **more}, **path}


LOOP = [{"calls": ["epoll_wait"], "who": "runner", "nth": 12, "do": {"errno": "EIO"}}]
OTHERS = [
    Fault("run", "the gate", LOOP, wants=GATE),
    Fault("judge", "the gate", LOOP, wants=JUDGE),
    Fault("reproduce", "the gate", LOOP, wants=GATE),
    Fault("run", "the supervisor", [kill("supervisor", who="cli", nth=20)], wants=GONE),
    Fault("judge", "the supervisor", [kill("supervisor", who="cli", nth=60)], wants=JUDGE),
    Fault("reproduce", "the supervisor", [kill("supervisor", who="cli", nth=120, which="last")], wants=GONE),
    # For a root caller it is two processes, of which the first only waits; for others it is one.
    Fault(
        "run",
        "its first process alone",
        [kill("supervisor", who="cli", nth=20, which="first")],
        wants=GONE if os.geteuid() else frozenset(),
    ),
    Fault("replay", "the grader's supervisor", [kill("supervisor", who="node", nth=20)], wants=GRADER),
    Fault("run", "the sandbox", [kill("bwrap", who="cli", nth=40)], wants=frozenset({"bwrap-killed"})),
    Fault("run", "the CLI", [kill("cli", who="cli", nth=80)], wants=frozenset({"no-result"})),
    Fault("judge", "the CLI", [kill("cli", who="cli", nth=80)], wants=JUDGE),
    Fault("reproduce", "the CLI", [kill("cli", who="cli", nth=80)], wants=frozenset({"cli-killed"})),
    Fault("run", "the grader", [kill("node", who="node", nth=100)], wants=GRADER),
    Fault("replay", "the grader", [kill("node", who="node", nth=100)], wants=GRADER),
]
OUT = "^@OUT(/|$)"
ITSELF = [
    *(
        Fault(
            verb,
            f"{signal} before {call} {nth}",
            [kill("runner", who="runner", nth=nth, calls=(call,), signal=signal, path=OUT)],
            dies=True,
        )
        for verb, call, nth in (
            ("run", "write", 1),
            ("run", "linkat", 1),
            ("run", "fsync", 2),
            ("judge", "fsync", 1),
            ("judge", "linkat", 1),
            ("replay", "write", 1),
            ("replay", "linkat", 1),
            ("report", "write", 1),
            ("report", "fsync", 1),
        )
        for signal in (("SIGKILL", "SIGTERM") if call == "linkat" else ("SIGKILL",))
    ),
    Fault("reproduce", "SIGKILL with the CLI running", [kill("runner", who="cli", nth=100)], dies=True),
]


@pytest.mark.timeout(480)
def test_a_death_is_told_and_nothing_is_lost(bench: Bench) -> None:
    """Whoever dies, the command says that it could not measure, or survives with the right verdict; nothing is left behind."""
    outcomes = bench.suffer_all(OTHERS)
    assert [what for outcome in outcomes for what in outcome.wrong] == []


def test_the_commands_own_death_leaves_nothing_half(bench: Bench) -> None:
    """Killed right before a write, a flush or a name is given: no half file, no temporary one, nothing finished lost."""
    outcomes = bench.suffer_all(ITSELF)
    assert [what for outcome in outcomes for what in outcome.wrong] == []
    assert all(outcome.ending.code in (137, 2) for outcome in outcomes)


@pytest.fixture
def dying_provider() -> Iterator[str]:
    """A provider that begins to answer the first request, and is gone then, its port with it."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = server.accept()
        while not connection.recv(65536):  # the command asks first whether anybody listens, and says nothing
            connection.close()
            connection, _ = server.accept()
        server.close()
        connection.sendall(
            b'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nevent: message_start\ndata: {"type"'
        )
        connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}"
    thread.join(5)
    server.close()


def test_a_provider_that_dies_is_an_error_of_the_provider(
    bench: Bench, dying_provider: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A stream that breaks off, and nobody who listens any more: not measured, the cause named, the attempt kept."""
    key = tmp_path_factory.mktemp("key") / "key"
    key.write_text("sk-ant-real-0123456789abcdef")
    more = (
        "--provider",
        "anthropic",
        "--base-url",
        dying_provider,
        "--key-file",
        str(key),
        "--launch",
        "lean",
        "--no-judge",
    )
    fault = Fault("run", "the provider", more=more, wants=frozenset({"provider-error"}), prefix=lambda trial: [])
    assert bench.suffer(fault).wrong == []


def test_the_wall_clock_may_jump(bench: Bench) -> None:
    """Years forth and back while a command runs, for everything that it starts: the right verdict."""
    jumps = ((0.0, 0.0), (0.4, 400 * 86400.0), (0.9, -400 * 86400.0), (1.5, 3e8))
    outcomes = bench.suffer_all(
        [
            Fault(verb, "a jump", clock=jumps, wants=frozenset())
            for verb in ("run", "judge", "replay", "reproduce", "report")
        ]
    )
    assert [what for outcome in outcomes for what in outcome.wrong] == []


@pytest.mark.parametrize(
    ("now", "code"),
    [
        (RunFacts(exit_status=137), "cli-killed"),
        (RunFacts(ended_by="timeout", limit="600 s wall clock"), "timeout"),
        (RunFacts(exit_status=0, workspace_unread=True), "workspace-unread"),
    ],
)
def test_a_second_run_that_was_cut_short_is_not_compared(now: RunFacts, code: str) -> None:
    """What a machine did to the second run is no difference; what the first had too is compared."""
    with pytest.raises(ReproduceImpossible) as caught:
        refuse_broken(RunFacts(exit_status=0), now)
    assert caught.value.code == code
    refuse_broken(now, now)
    refuse_broken(RunFacts(exit_status=0), RunFacts(exit_status=1, ended_by="grace"))
