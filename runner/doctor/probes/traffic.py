"""Probes 33 to 45: raw bytes at the real gate, on a loopback port, with an upstream that counts what reaches it.

Boundary: opens loopback sockets; nothing leaves the machine. Not here: the gate's own tests. Rules: each attempt has a gate and a connection of its own; ``=refused`` means an error status or a
close, *and* that nothing was forwarded. The control is the same request in good form.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

from runner.gate.connection import HEAD_DEADLINE_S
from runner.gate.server import Gate
from runner.gate.settings import Ceilings, GateSettings
from runner.gate.upstreams import UpstreamAnswer, UpstreamRequest
from sandbox.probes.table import Expects, Seen, Status
from sandbox.probes.trying import Site, Table, Try, python, works

MODEL = "claude-sonnet-5-5"
KEY = "sk-ant-probe-key-0123456789"
REFUSED = ("=refused",)
CALLS, BURST = 10_000, 50
"""Calls of one run, and how many of them come on one connection without waiting for an answer."""
BODY = json.dumps({"model": MODEL, "max_tokens": 16, "messages": [{"role": "user", "content": "hello"}]}).encode()
TRAFFIC = Table()


class Counting:
    """An upstream that answers everything alike and keeps what it was asked."""

    kind = "counting"

    def __init__(self, answer: bytes = b'{"usage":{"input_tokens":1,"output_tokens":1}}', *, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> None:  # fmt: skip
        self.asked: list[UpstreamRequest] = []
        self._answer, self._status, self._headers = answer, status, headers

    async def open(self) -> None:
        """Nothing is needed."""

    async def close(self) -> None:
        """Nothing is held."""

    def answer(self, request: UpstreamRequest) -> AbstractAsyncContextManager[UpstreamAnswer]:
        """Keep the request and answer it."""
        return self._answered(request)

    @asynccontextmanager
    async def _answered(self, request: UpstreamRequest) -> AsyncIterator[UpstreamAnswer]:
        self.asked.append(request)

        async def body() -> AsyncIterator[bytes]:
            yield self._answer

        yield UpstreamAnswer(self._status, (("content-type", "application/json"), *self._headers), body())


class Port:
    """A gate that serves a loopback port."""

    def __init__(
        self, upstream: Any = None, *, real_key: str | None = None, session_id: str | None = None, **settings: Any
    ) -> None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=600)
        self.address = ("127.0.0.1", int(listener.getsockname()[1]))
        self.upstream = upstream or Counting()
        given = GateSettings(mode="base-url", base_url_port=self.address[1], **settings)
        self.host = given.expected_host
        self.gate = Gate(given, self.upstream, real_key=real_key, session_id=session_id)
        self.gate.serve(listener)

    def send(self, data: bytes, *, timeout_s: float = 15.0) -> bytes:
        """Send bytes with ``{host}`` filled in; return all until the gate closes, or a whole answer after which it does not."""
        received = b""
        with socket.create_connection(self.address, timeout_s) as sock:
            try:
                sock.sendall(data.replace(b"{host}", self.host.encode()))
                while piece := sock.recv(65536):
                    received += piece
                    if is_whole(received):
                        break
            except (ConnectionResetError, BrokenPipeError):
                pass
        return received

    def outcome(self, data: bytes) -> str:
        """Return ``=refused``, or what else came."""
        before = len(self.upstream.asked)
        received = self.send(data)
        if len(self.upstream.asked) > before:
            return "=forwarded"
        status = received.split(b" ", 2)[1:2]
        return "=refused" if not received or (status and status[0] >= b"400") else f"={received[:40]!r}"


def is_whole(received: bytes) -> bool:
    """Whether an answer has come to its end, after which the connection stays open (pure)."""
    head, found, body = received.partition(b"\r\n\r\n")
    if not found or b"connection: close" in head.lower():
        return False
    length = re.search(rb"\ncontent-length: *(\d+)", head.lower())
    return len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n")


@contextmanager
def port(upstream: Any = None, **options: Any) -> Iterator[Port]:
    """Serve a gate for a while."""
    one = Port(upstream, **options)
    try:
        yield one
    finally:
        one.gate.close()


def request(body: bytes = BODY, target: str = "/v1/messages?beta=true", *, line: str = "", headers: str = "", drop: str = "") -> bytes:  # fmt: skip
    """Return an honest request, changed."""
    given = {
        "Host": "{host}",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "anthropic-version": "2023-06-01",
    }
    lines = [line or f"POST {target} HTTP/1.1"] + [f"{name}: {value}" for name, value in given.items() if name != drop]
    head = "\r\n".join(lines) + "\r\n" + headers + "\r\n"
    return head.encode("latin-1") + body


def document(**changes: Any) -> bytes:
    """Return a body, changed."""
    return json.dumps({**json.loads(BODY), **changes}).encode()


def good(**options: Any) -> dict[str, str]:
    """The control: the honest request is answered and forwarded once."""
    with port(**options) as one:
        received = one.send(request())
        fine = received.startswith(b"HTTP/1.1 200") and len(one.upstream.asked) == 1
        return {"an honest request": "=forwarded" if fine else f"{received[:60]!r}"}


def enter(number: int, name: str, status: Status, layer: str, expects: Expects, act: Try) -> None:
    """Enter a probe into the table."""
    TRAFFIC.probe(number, name, status, layer, expects)(act)


def forms(number: int, name: str, attempts: Mapping[str, bytes], **options: Any) -> None:
    """Enter a probe of forms that are all refused."""

    def act(_: Site) -> Seen:
        found = {}
        for form, data in attempts.items():
            with port(**options) as one:
                found[form] = one.outcome(data)
        return Seen(found, good(**options))

    enter(number, name, "refused", "gate", dict.fromkeys(attempts, REFUSED), act)


def image(source: Mapping[str, str]) -> bytes:
    """Return a body with an image of that source."""
    return document(messages=[{"role": "user", "content": [{"type": "image", "source": source}]}])


LENGTH = f"Content-Length: {len(BODY)}\r\n"
forms(
    33, "CONNECT through the gate", {"CONNECT": b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n"}
)
forms(34, "Another destination in the request line", {
    "absolute form": request(line="POST http://evil.example/v1/messages HTTP/1.1"),
    "two slashes": request(target="//evil.example/v1/messages"),
})  # fmt: skip
forms(35, "Another host, or two", {
    "another": request(drop="Host", headers="Host: evil.example\r\n"),
    "two": request(headers="Host: evil.example\r\n"),
    "none": request(drop="Host"),
})  # fmt: skip
forms(36, "Requests with two readings", {
    "length and chunked": request(headers="Transfer-Encoding: chunked\r\n"),
    "chunked": request(drop="Content-Length", headers="Transfer-Encoding: chunked\r\n"),
    "two lengths": request(headers="Content-Length: 1\r\n"),
    "length +5": request(drop="Content-Length", headers="Content-Length: +5\r\n"),
    "length 1_0": request(drop="Content-Length", headers="Content-Length: 1_0\r\n"),
    "length -1": request(drop="Content-Length", headers="Content-Length: -1\r\n"),
    "folded": request(headers="X-A: b\r\n c\r\n"),
    "space before colon": request(drop="Content-Length", headers=LENGTH.replace(":", " :")),
    "bare line feeds": request().replace(b"\r\n", b"\n"),
    "NUL in a value": request(headers="X-A: b\x00c\r\n"),
    "CR in a value": request(headers="X-A: b\rc\r\n"),
})  # fmt: skip
forms(37, "Other paths", {
    path: request(target=path) for path in ("/v1/messages/../admin", "/v1/%2e%2e/admin", "/v1/messages;x", "/v1/messages?beta=true&x=../../y", "/v1/messages%00", "/v1/MESSAGES")
})  # fmt: skip
forms(40, "Too large, or packed", {
    "1 GiB": request(drop="Content-Length", headers="Content-Length: 1073741824\r\n"),
    "gzip": request(headers="Content-Encoding: gzip\r\n"),
    "br": request(headers="Content-Encoding: br\r\n"),
    "100,000 headers": request(headers="".join(f"X-{n}: y\r\n" for n in range(100_000))),
    "a header of 1 MiB": request(headers=f"X-A: {'b' * (1 << 20)}\r\n"),
})  # fmt: skip
forms(43, "Have the provider fetch or run", {
    "image by URL": request(image({"type": "url", "url": "http://evil.example/x"})),
    "remote MCP server": request(document(mcp_servers=[{"type": "url", "url": "http://evil.example", "name": "x"}])),
    "web search": request(document(tools=[{"type": "web_search_20250305", "name": "web_search"}])),
    "web fetch": request(document(tools=[{"type": "web_fetch_20250910", "name": "web_fetch"}])),
    "code execution": request(document(tools=[{"type": "code_execution_20250825", "name": "code_execution"}])),
    "container": request(document(container="container_1")),
    "files": request(target="/v1/files"),
    "batches": request(target="/v1/messages/batches"),
})  # fmt: skip


def own_headers(_: Site) -> Seen:
    """What the client says of itself is not passed on; upgrades are refused."""
    found = {}
    for name, header in {
        "Upgrade": "Upgrade: websocket\r\nConnection: Upgrade\r\n",
        "h2c": "Upgrade: h2c\r\n",
        "Expect": "Expect: 100-continue\r\n",
    }.items():
        with port() as one:
            found[name] = one.outcome(request(headers=header))
    head = live_head(
        "x-api-key: sk-ant-from-inside\r\nAuthorization: Bearer sk-ant-from-inside\r\nX-Forwarded-For: 192.0.2.1\r\nProxy-Authorization: sk-ant-from-inside\r\n"
    )
    found["passed on"] = f"={[word for word in ('from-inside', '192.0.2.1') if word in head]}"
    return Seen(found, {**good(), "the key is ours": "=yes" if KEY in head else f"{head[:80]!r}"})


def live_head(headers: str) -> str:
    """Return the request head that a live upstream on a loopback port gets from the gate."""
    from runner.gate.upstreams.anthropic import AnthropicUpstream

    heard = bytearray()
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
    with socket.create_server(("127.0.0.1", 0)) as provider:

        def serve() -> None:
            connection, _ = provider.accept()
            with connection:
                while b"\r\n\r\n" not in heard:
                    heard.extend(connection.recv(65536))
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        upstream: Any = AnthropicUpstream(KEY, base_url=f"http://127.0.0.1:{provider.getsockname()[1]}")
        with port(upstream, real_key=KEY) as one, socket.create_connection(one.address, 10) as sock:
            sock.sendall(request(headers=headers).replace(b"{host}", one.host.encode()))
            sock.recv(65536)
        thread.join(5)
    return heard.decode("latin-1")


def pipelined(_: Site) -> Seen:
    """Behind a refused request nothing is read, and behind a 4xx the body is not taken for a request."""
    with port() as one:
        received = one.send(request(target="/v1/admin") + request())
        return Seen(
            {
                "second": "=forwarded" if one.upstream.asked else "=refused",
                "answers": f"={received.count(b'HTTP/1.1 ')}",
            },
            good(),
        )


def slow(_: Site) -> Seen:
    """A head that never ends is cut at its deadline; idle connections and one that never reads hold nobody up."""
    with port() as one:
        held = [socket.create_connection(one.address, 5) for _ in range(500)]
        deaf = socket.create_connection(one.address, 5)
        deaf.sendall(request().replace(b"{host}", one.host.encode()))
        loris = socket.create_connection(one.address, HEAD_DEADLINE_S + 5)
        loris.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: ")
        begun = time.monotonic()
        honest = one.send(request(), timeout_s=5)
        took_s = time.monotonic() - begun
        try:
            ending = loris.recv(65536)
        except TimeoutError:
            ending = b"open"
        except ConnectionResetError:
            ending = b""
        closed = "=closed" if not ending or ending.startswith(b"HTTP/1.1 4") else f"={ending[:40]!r}"
        for sock in (*held, deaf, loris):
            sock.close()
        fine = honest.startswith(b"HTTP/1.1 200")
        return Seen({"slow head": closed, "beside 500 idle ones": f"={fine and took_s < 4}"}, good())


def spending(_: Site) -> Seen:
    """Whoever asks: models that are not named, more requests and more output than the ceilings say are refused."""
    found = {}
    with port(models=(MODEL,)) as one:
        found["another model"] = one.outcome(request(document(model="claude-opus-5-5")))
    with port(ceilings=Ceilings(requests=2)) as one:
        found["requests"] = [one.outcome(request()) for _ in range(3)][-1]
    with port(ceilings=Ceilings(tokens=10)) as one:
        found["tokens"] = one.outcome(request(document(max_tokens=100_000)))
    with port() as one:
        found["huge max_tokens"] = one.outcome(request(document(max_tokens=10**9)))
    with port(session_id="of-the-cli") as one:
        for _number in range(CALLS // BURST):
            one.send(request() * BURST)
        record = one.gate.close()
        found["10,000 calls"] = f"={len(one.upstream.asked)} sent"
        found["marked"] = f"={sorted({bool(exchange.from_cli) for exchange in record.exchanges})}"
    with port(session_id="of-the-cli") as one:
        one.send(request(headers="X-Claude-Code-Session-Id: of-the-cli\r\n"))
        own = one.gate.close().exchanges[0].from_cli
    return Seen(found, {**good(models=(MODEL,)), "the CLI's own is not": "=own" if own else f"{own}"})


def hostile_upstream(_: Site) -> Seen:
    """A redirect goes to the client and nowhere else; a key in an answer is replaced, there and in the record."""
    echo = json.dumps({"error": KEY, "usage": {"input_tokens": 1, "output_tokens": 1}}).encode()
    with port(Counting(echo), real_key=KEY) as one:
        answer = one.send(request())
        record = one.gate.close()
    kept = b"".join(exchange.response.body for exchange in record.exchanges if exchange.response is not None)
    with port(Counting(b"", status=302, headers=(("location", "http://127.0.0.1:9/"),))) as one:
        one.send(request())
        asked = len(one.upstream.asked)
    return Seen(
        {
            "key to the client": f"={KEY.encode() in answer}",
            "key in the record": f"={KEY.encode() in kept}",
            "redirects followed": f"={asked - 1}",
        },
        {"the rest is passed on": "=yes" if b'"error"' in answer else f"{answer[:80]!r}", **good()},
    )


def gate_dies(site: Site) -> Seen:
    """When the gate is gone its port refuses, and there is still no other way out."""
    from sandbox.process import Supervisor
    from sandbox.running import start
    from sandbox.spec import Listener

    code = (
        "import socket, sys\nsys.stdin.read(1)\n"
        "for where in (('127.0.0.1', 8080), ('192.0.2.1', 443)):\n"
        "    try: socket.create_connection(where, 5); print('connected')\n"
        "    except OSError as error: print(error.errno)\n"
        "print(len(open('/proc/net/dev').readlines()) - 2)"
    )
    spec = python(code).model_copy(update={"network": Listener(port=8080)})
    output = bytearray()
    with start(Supervisor(site.host, None), spec, stdin=b"x", on_stdout=output.extend) as running:
        listener, running.listener = running.listener, None
        assert listener is not None
        gate = Gate(GateSettings(mode="base-url"), Counting())
        gate.serve(listener)
        gate.close()
        running.release()
        running.wait()
    words = (output.decode().split() + ["none"] * 3)[:3]
    return Seen({"its port": f"={words[0]}", "elsewhere": f"={words[1]}", "interfaces": f"={words[2]}"}, works(site))


enter(38, "Headers of the client's own", "refused", "gate", {"Upgrade": REFUSED, "h2c": REFUSED, "Expect": REFUSED, "passed on": ("=[]",)}, own_headers)  # fmt: skip
enter(39, "A second request behind a refused one", "refused", "gate", {"second": REFUSED, "answers": ("=1",)}, pipelined)  # fmt: skip
enter(41, "Slow, idle and deaf clients", "held", "gate", {"slow head": ("=closed",), "beside 500 idle ones": ("=True",)}, slow)  # fmt: skip
enter(42, "Spend beside the CLI", "refused", "ceilings", {"another model": REFUSED, "requests": REFUSED, "tokens": REFUSED, "huge max_tokens": REFUSED, "10,000 calls": ("=60 sent",), "marked": ("=[False]",)}, spending)  # fmt: skip
enter(44, "A hostile answer", "held", "gate", {"key to the client": ("=False",), "key in the record": ("=False",), "redirects followed": ("=0",)}, hostile_upstream)  # fmt: skip
enter(45, "The gate dies during a run", "held", "network-namespace", {"its port": ("=111",), "elsewhere": ("=101",), "interfaces": ("=1",)}, gate_dies)  # fmt: skip
