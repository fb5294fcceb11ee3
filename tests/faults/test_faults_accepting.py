"""A listener that gives no connection any more ends whoever serves it; one error does not (runner/accepting.py)."""

from __future__ import annotations

import asyncio
import socket

import pytest

from runner import accepting


def take(listener: socket.socket, at_most: int) -> tuple[int, list[str], list[BaseException]]:
    """Take connections; return how many there were, the remarks, and why it was given up."""
    notes: list[str] = []
    given_up: list[BaseException] = []

    async def work() -> int:
        taken = 0
        async for sock in accepting.accepted(listener, note=notes.append, give_up=given_up.append):
            sock.close()
            taken += 1
            if taken == at_most:
                break
        return taken

    listener.setblocking(False)
    return asyncio.run(work()), notes, given_up


def test_connections_are_taken_as_they_come() -> None:
    """The control: what connects is handed on, and nothing is said."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        clients = [socket.create_connection(listener.getsockname()) for _ in range(3)]
        assert take(listener, 3) == (3, [], [])
        for client in clients:
            client.close()


def test_a_listener_that_gives_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many errors in a row are noted and end it, with the last one as the cause."""
    monkeypatch.setattr(accepting, "PAUSE_S", 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as no_listener:
        taken, notes, (cause,) = take(no_listener, 1)
    assert (taken, len(notes)) == (0, accepting.TRIES)
    assert isinstance(cause, OSError)


def test_a_few_errors_are_borne(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors that stop again are waited out; the count begins anew at every connection."""
    monkeypatch.setattr(accepting, "PAUSE_S", 0)
    real, left = asyncio.SelectorEventLoop.sock_accept, [accepting.TRIES - 1, accepting.TRIES - 1]

    async def faulty(self: asyncio.SelectorEventLoop, sock: socket.socket) -> tuple[socket.socket, object]:
        if left and left[0]:
            left[0] -= 1
            raise OSError(24, "Too many open files")
        if left:
            left.pop(0)
        return await real(self, sock)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_accept", faulty)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        clients = [socket.create_connection(listener.getsockname()) for _ in range(2)]
        taken, notes, given_up = take(listener, 2)
        for client in clients:
            client.close()
    assert (taken, len(notes), given_up) == (2, 2 * (accepting.TRIES - 1), [])
