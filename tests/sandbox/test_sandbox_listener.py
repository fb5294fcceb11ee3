"""The one listener inside, served from outside."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from sandbox.process import Host, Supervisor
from sandbox.running import start

if TYPE_CHECKING:
    from tests.sandbox.conftest import MakeSpec

CLIENT = """python3 -I -c "
import socket
def attempt(what, make):
    try: print(what, make())
    except OSError as e: print(what, e.errno)
def bind(port, option=None):
    s = socket.socket()
    if option: s.setsockopt(socket.SOL_SOCKET, option, 1)
    s.bind(('127.0.0.1', port)); return 'bound'
def ask(address, port):
    s = socket.create_connection((address, port), 5); s.sendall(b'ping'); return s.recv(100)
attempt('ask', lambda: ask('127.0.0.1', @port@))
attempt('rebind', lambda: bind(@port@))
attempt('reuse-port', lambda: bind(@port@, socket.SO_REUSEPORT))
attempt('reuse-address', lambda: bind(@port@, socket.SO_REUSEADDR))
attempt('other', lambda: ask('127.0.0.1', 1234))
attempt('free', lambda: bind(12345))
"
"""


@pytest.mark.parametrize("port", [443, 8080, 1, 65535])
def test_a_listener_is_served_from_outside_and_cannot_be_taken(host: Host, make_spec: MakeSpec, port: int) -> None:
    """The program reaches the runner at 127.0.0.1, also on a low port, and cannot bind the port itself; other ports refuse."""
    out = bytearray()
    refused = 13 if port < 1024 else 98  # EACCES: no capability for low ports inside; else EADDRINUSE
    with start(
        Supervisor(host, None), make_spec(CLIENT.replace("@port@", str(port)), port=port), on_stdout=out.extend
    ) as running:
        listener = running.listener
        assert listener is not None
        assert listener.getsockname() == ("127.0.0.1", port)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(connection.recv(100) + b"-pong")

        server = threading.Thread(target=serve)
        server.start()
        running.release()
        running.wait()
        server.join()
    assert out.decode().splitlines() == [
        "ask b'ping-pong'",
        f"rebind {refused}",
        f"reuse-port {refused}",
        f"reuse-address {refused}",
        "other 111",
        "free bound",
    ]


def test_the_listener_is_not_in_the_host_network(host: Host, make_spec: MakeSpec) -> None:
    """From outside nothing answers on that port, while the held sandbox's listener is up."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with start(Supervisor(host, None), make_spec(port=port), on_stdout=lambda _: None) as running:
        assert running.listener is not None
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 2)


def test_without_a_listener_there_is_none(host: Host, make_spec: MakeSpec) -> None:
    """A description without network gives no listener."""
    with start(Supervisor(host, None), make_spec(), on_stdout=lambda _: None) as running:
        assert running.listener is None
