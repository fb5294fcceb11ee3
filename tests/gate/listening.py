"""What providers in tests have in common: a loopback socket, a thread for each connection, and TLS by an authority of their own."""

from __future__ import annotations

import socket
import ssl
import threading
from abc import ABC, abstractmethod
from pathlib import Path

from runner.gate.authority import make_authority, server_context


class Listening(ABC):
    """Listens from construction to ``close``; ``talk`` has each connection to itself."""

    def __init__(self) -> None:
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @abstractmethod
    def talk(self, raw: socket.socket) -> None:
        """Answer on one connection."""

    def close(self) -> None:
        """Stop listening, and wait for whoever is still answering."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                raw, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._threads.append(threading.Thread(target=self.talk, args=(raw,)))
            self._threads[-1].start()


class ListeningTls(Listening):
    """The same behind TLS; ``ca_file`` is what a client has to trust."""

    def __init__(self, directory: Path) -> None:
        authority = make_authority("localhost")
        self.ca_file = directory / "provider-ca.pem"
        self.ca_file.write_bytes(authority.ca_pem)
        self._context = server_context(authority)
        super().__init__()

    @property
    def url(self) -> str:
        """The base URL."""
        return f"https://localhost:{self.port}"

    def talk(self, raw: socket.socket) -> None:
        """Answer one request after the other, until ``one`` says that it was the last."""
        raw.settimeout(60)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with self._context.wrap_socket(raw, server_side=True) as sock:
                while self.one(sock):
                    pass
        except OSError:
            raw.close()

    @abstractmethod
    def one(self, sock: ssl.SSLSocket) -> bool:
        """Answer one request; says whether the connection goes on."""
