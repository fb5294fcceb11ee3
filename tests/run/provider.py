"""A provider on a loopback port for tests of the live upstream: answers from a script and keeps what it was sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from runner.gate.script import Asked, Progress, choose, parse_script
from runner.gate.script_wire import render


class LoopbackProvider:
    """Listens from construction to ``close``."""

    def __init__(self, rules: Sequence[Mapping[str, Any]], *, echo_key: bool = False) -> None:
        script = parse_script(json.dumps({"schema_version": 1, "replies": list(rules)}).encode())
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        lock = threading.Lock()
        outer = self
        progress = Progress()

        class Answering(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_POST(self) -> None:
                nonlocal progress
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.requests.append((self.path, dict(self.headers), body))
                document = json.loads(body)
                with lock:
                    asked = Asked("messages", self.headers.get("x-claude-code-agent-id", ""), document)
                    choice, progress = choose(script, asked, progress)
                assert choice is not None, "the test's script has no answer"
                made = render(choice, model=document["model"], stream=bool(document.get("stream")))
                data = b"".join(made.pieces)
                if echo_key:
                    data = data.replace(b"KEY-ECHO", self.headers["x-api-key"].encode())
                self.send_response(made.status)
                for name, value in made.headers:
                    self.send_header(name, value)
                if echo_key:
                    self.send_header("request-id", f"req-{self.headers['x-api-key']}")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
