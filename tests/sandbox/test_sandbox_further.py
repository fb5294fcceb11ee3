"""More than one listener inside, each served from outside by its own server."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from sandbox.check import check_spec
from sandbox.errors import SpecInvalid
from sandbox.process import Host, Supervisor
from sandbox.running import start
from sandbox.spec import Listener

if TYPE_CHECKING:
    import socket

    from tests.sandbox.conftest import MakeSpec

ASK = """for port in 443 8790 8791; do
  exec 3<>/dev/tcp/127.0.0.1/$port && printf 'to %s\\n' $port >&3 && IFS= read -r line <&3 && printf '%s\\n' "$line"
done"""


def test_each_listener_has_its_own_server(host: Host, make_spec: MakeSpec) -> None:
    """Three ports are reached from inside, low and high, and each connection comes out at the socket of its port."""
    out = bytearray()
    spec = make_spec(argv=("/bin/bash", "-c", ASK), port=443, further_ports=(8790, 8791))
    assert "3 listeners at 127.0.0.1:443, 127.0.0.1:8790, 127.0.0.1:8791" in spec.describe()

    def serve(listener: socket.socket) -> None:
        with listener:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"from %d, %s" % (listener.getsockname()[1], connection.recv(100)))

    with start(Supervisor(host, None), spec, on_stdout=out.extend) as running:
        assert running.listener is not None
        listeners = [running.listener, *running.further]
        running.further.clear()
        assert [listener.getsockname() for listener in listeners] == [("127.0.0.1", port) for port in (443, 8790, 8791)]
        servers = [threading.Thread(target=serve, args=(listener,)) for listener in listeners]
        for server in servers:
            server.start()
        running.release()
        running.wait()
        for server in servers:
            server.join()
    assert out.decode().splitlines() == [f"from {port}, to {port}" for port in (443, 8790, 8791)]


def test_listeners_that_nobody_takes_are_closed(host: Host, make_spec: MakeSpec) -> None:
    """Closing the sandbox closes further listeners too."""
    with start(Supervisor(host, None), make_spec(port=443, further_ports=(8790,)), on_stdout=lambda _: None) as running:
        (further,) = running.further
    assert further.fileno() == -1


@pytest.mark.parametrize(
    ("port", "further"), [(None, (8790,)), (8790, (8790,)), (443, (8790, 8790)), (443, tuple(range(9000, 9008)))]
)
def test_listeners_that_do_not_fit_together_are_refused(
    make_spec: MakeSpec, port: int | None, further: tuple[int, ...]
) -> None:
    """A further listener needs a first one and a port of its own, and there are at most eight; two that differ are taken."""
    spec = make_spec(port=port, further_ports=further)
    with pytest.raises(SpecInvalid, match="listener"):
        check_spec(spec)
    check_spec(make_spec(port=443, further_ports=(8790,)))
    assert spec.further == tuple(Listener(port=each) for each in further)
