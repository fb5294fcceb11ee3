"""The live upstream: sends a request to a provider that speaks the Anthropic API, and streams its answer back.

Boundary: touches: the network, to one fixed origin, or the socket of a ``hermeval gate``; the system's trust store or the given file. Not here: whether to send, redaction, limits.
Rules: the origin is fixed by ``base_url``; a request adds its own target, which policy took from a table. Headers are picked by an allow list; ``x-api-key``,
``authorization``, hop-by-hop and forwarding headers from inside never leave. The key is added last and only here; a ``unix://`` address takes none, since the gate
behind that socket has it. Nothing is retried, no redirect
followed, no cookie kept, no proxy or netrc taken from the environment. A body that ends early is passed on as cut.

Content encoding: the provider is asked for ``identity``, whatever the CLI would take. The record's rule "as sent" (replay.md R1) holds for what the CLI gets,
and a plain body can be searched for the key while it streams; a compressed one would have to be held whole. The transfer
costs a few kilobytes more on a wire that is not the bottleneck. If a provider compresses all the same, the bytes are left as they are, and the
relay holds, decodes and searches them before it passes them on.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit
from weakref import WeakSet

from runner.errors import GateError, KeyMissing, SettingInvalid
from runner.gate.exchange import Headers
from runner.gate.settings import GateSettings
from runner.gate.upstreams import UpstreamAnswer, UpstreamCut, UpstreamFailed, UpstreamRequest
from runner.regular_file import open_regular

if TYPE_CHECKING:
    import aiohttp

DEFAULT_BASE_URL = "https://api.anthropic.com"
GATE_SETTINGS = GateSettings(mode="base-url")
"""How a gate behind a socket is spoken to: plain HTTP, with the Host that base-URL mode expects. ``hermeval gate`` serves with the same mode."""
MAX_SOCKET_PATH = 107
"""Bytes of a socket's path that the kernel takes."""
CLOSE_STEPS = 100
"""Steps of 5 ms in which connections may end before they are left to the process's end."""

FORWARDED_HEADERS = frozenset({"accept", "content-type", "user-agent", "anthropic-version", "anthropic-beta", "x-app"})
FORWARDED_PREFIXES = ("x-stainless-", "x-claude-", "anthropic-dangerous-")
"""Headers of the CLI that reach the provider: what makes it the same agent for the provider, and nothing that carries a credential."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds to wait for a connection, for the answer's head, and between two pieces of its body."""

    connect_s: float = 15.0
    first_byte_s: float = 600.0
    idle_s: float = 300.0


class AnthropicUpstream:
    """One provider, one key."""

    kind = "anthropic"

    def __init__(
        self,
        key: str | None,
        *,
        base_url: str = DEFAULT_BASE_URL,
        scheme: Literal["x-api-key", "bearer"] = "x-api-key",
        ca_file: Path | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        """Make the upstream. ``base_url`` may have a path, which the target is put behind; ``ca_file`` is trusted beside the system's store.

        ``unix:///absolute/path`` is the socket of a ``hermeval gate``, which has the key: ``key`` must be None then, and may be in no other case.

        Raises: KeyMissing; SettingInvalid for an address that is not usable (plain HTTP is taken on loopback only: the key would be readable).
        """
        self._ca_file = ca_file
        self._timeouts = timeouts or Timeouts()
        self._session: aiohttp.ClientSession | None = None
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._socket_path = socket_path(base_url)
        self._auth: tuple[tuple[str, str], ...] = ()
        if self._socket_path is not None:
            if key is not None or ca_file is not None:
                raise SettingInvalid(
                    "a gate behind a socket has the key and the trust itself", where=base_url, hint="give neither here"
                )
            self._base = GATE_SETTINGS.base_url
            return
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise KeyMissing(
                "the live provider needs a key",
                hint="set ANTHROPIC_API_KEY, or name a file that holds the key and nothing else",
            )
        self._base = _checked(base_url)
        self._auth = (("x-api-key", key) if scheme == "x-api-key" else ("authorization", f"Bearer {key}"),)

    async def open(self) -> None:
        """Make the client.

        Raises: GateError (``ca-file``) if the extra trust file cannot be used.
        """
        import aiohttp

        context = ssl.create_default_context()
        if self._ca_file is not None:
            try:
                open_regular(self._ca_file).close()  # OpenSSL would wait for a pipe, and read a device without end
                context.load_verify_locations(cafile=str(self._ca_file))
            except (OSError, ValueError) as error:
                raise GateError(
                    f"the trust file cannot be used: {error}", where=str(self._ca_file), code="ca-file"
                ) from error
        self._session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(path=str(self._socket_path), limit=0, keepalive_timeout=30)
            if self._socket_path is not None
            else aiohttp.TCPConnector(limit=0, ssl=context, keepalive_timeout=30, socket_factory=self._socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(
                total=None, connect=None, sock_connect=self._timeouts.connect_s, sock_read=None
            ),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            auto_decompress=False,
            trust_env=False,
        )

    async def close(self) -> None:
        """Close the client and its connections, also those that are still saying goodbye after a failure."""
        if self._session is None:
            return
        await self._session.close()
        self._session = None
        for _ in range(CLOSE_STEPS):
            left = [sock for sock in self._sockets if sock.fileno() >= 0]
            if not left:
                return
            for sock in left:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            await asyncio.sleep(0.005)

    def _socket(self, address: tuple[Any, ...]) -> socket.socket:
        """Make a connection's socket, and keep track of it."""
        sock = socket.socket(*address[:3])
        self._sockets.add(sock)
        return sock

    @asynccontextmanager
    async def answer(self, request: UpstreamRequest) -> AsyncIterator[UpstreamAnswer]:
        """Send one request, once."""
        response = await self._send(request)
        try:
            headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in response.raw_headers)
            yield UpstreamAnswer(response.status, headers, self._body(response))
        finally:
            response.close()

    async def _send(self, request: UpstreamRequest) -> aiohttp.ClientResponse:
        import aiohttp
        from yarl import URL

        assert self._session is not None
        url = URL(self._base + request.target, encoded=True)
        try:
            async with asyncio.timeout(self._timeouts.first_byte_s):
                return await self._session.post(
                    url, data=request.body, headers=self._headers(request.headers), allow_redirects=False
                )
        except aiohttp.ClientConnectorCertificateError as error:
            raise UpstreamFailed(
                f"the provider's certificate is not trusted: {error.certificate_error}", retryable=False, sent=False
            ) from error
        except aiohttp.ClientConnectorDNSError as error:
            raise UpstreamFailed("the provider's name cannot be resolved", retryable=False, sent=False) from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise UpstreamFailed(
                f"the connection to the provider failed: {type(error).__name__}", retryable=True, sent=False
            ) from error
        except TimeoutError as error:
            raise UpstreamFailed("the provider did not answer in time", retryable=True) from error
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamFailed(
                f"the connection to the provider failed: {type(error).__name__}", retryable=True
            ) from error

    def _headers(self, given: Headers) -> list[tuple[str, str]]:
        kept = [
            (name, value)
            for name, value in given
            if (low := name.lower()) in FORWARDED_HEADERS or low.startswith(FORWARDED_PREFIXES)
        ]
        return [*kept, ("accept-encoding", "identity"), *self._auth]

    async def _body(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        import aiohttp

        while True:
            try:
                async with asyncio.timeout(self._timeouts.idle_s):
                    piece = await response.content.readany()
            except (aiohttp.ClientError, OSError) as error:
                # What came before the cut and was not read yet: aiohttp raises first, and has no public way to what it still holds.
                if left := b"".join(response.content._buffer):
                    yield left
                raise UpstreamCut(reset=isinstance(error, ConnectionResetError)) from error
            if not piece:
                return
            yield piece


def socket_path(base_url: str | None) -> Path | None:
    """Return the socket that a ``unix://`` address names, or None for another address. Raises: SettingInvalid."""
    if base_url is None or not base_url.startswith("unix:"):
        return None
    path = base_url.removeprefix("unix://")
    plain = path.isascii() and path.isprintable() and not {"?", "#", "%"} & set(path)
    if not path.startswith("/") or not plain or ".." in path.split("/") or len(path) > MAX_SOCKET_PATH:
        raise SettingInvalid(
            "a gate's socket is named unix:///absolute/path, in plain characters, 107 at most", where=base_url[:200]
        )
    return Path(path)


def _checked(base_url: str) -> str:
    """Return the base address without its last slash, if it is one that the gate may use."""
    try:
        parts = urlsplit(base_url)
        port = parts.port
    except ValueError as error:
        raise SettingInvalid(f"the provider's address is not usable: {error}") from error
    plain = all(33 <= ord(letter) < 127 for letter in base_url)
    loopback = parts.hostname in {"127.0.0.1", "::1", "localhost"}
    if not plain or not parts.hostname or port == 0 or parts.username is not None or "?" in base_url or "#" in base_url:
        raise SettingInvalid("the provider's address must be a plain https address, without user, query or fragment")
    if parts.scheme != "https" and not (parts.scheme == "http" and loopback):
        raise SettingInvalid("the provider's address must be https (http is taken on loopback only)")
    return base_url.rstrip("/")
