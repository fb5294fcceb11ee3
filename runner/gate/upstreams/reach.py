"""Whether somebody listens where a live run's answers are to come from: asked once, before anything is started.

Boundary: touches: the network or a Unix socket, by one connection that says nothing. Not here: what an address may be (anthropic.py checked it), trust, keys, requests.
Rules: it is a question about the machine, not about the provider: no byte is sent, no TLS is begun, nothing is booked. A listener that is busy is one. A run whose provider goes
away later is that run's own error; this is for the address that never was one, which the CLI would ask again and again until its wall clock.
"""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit

from runner.errors import ProviderUnreachable
from runner.gate.upstreams.anthropic import Timeouts, socket_path


def require_listener(base_url: str, *, timeout_s: float = Timeouts().connect_s) -> None:
    """Connect once to ``base_url``, as ``AnthropicUpstream`` takes it, and hang up.

    Raises: ProviderUnreachable, ``gate-unreachable`` for the socket of a ``hermeval gate``.
    """
    path = socket_path(base_url)
    try:
        if path is None:
            parts = urlsplit(base_url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
            socket.create_connection((parts.hostname or "", port), timeout_s).close()
        else:
            _connect(path, timeout_s)
    except (OSError, UnicodeError) as error:  # UnicodeError: a host's name that no resolver is asked for
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if path is None:
            raise ProviderUnreachable(
                f"the provider's address does not take a connection: {reason}",
                where=base_url,
                hint="check the address and the network; without a provider there is --provider scripted",
            ) from error
        raise ProviderUnreachable(
            f"no gate can be had at its socket: {reason}",
            where=base_url,
            hint="start hermeval gate with this socket, or ask for the right to use it",
            code="gate-unreachable",
        ) from error


def _connect(path: Path, timeout_s: float) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(timeout_s)
        try:
            sock.connect(str(path))
        except BlockingIOError:
            return  # its queue is full: it listens, and a run waits for its turn
