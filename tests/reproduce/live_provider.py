"""A provider behind TLS on a loopback port that sends its answers as awkwardly as HTTP allows: what a recording from the live upstream has to bear (issue 3, acceptance 5).

Rules: a request belongs to the case whose word ``case-NAME`` its body holds, and gets that case's next play, the last one again and again. ``sent`` keeps the bodies as they were sent, by case.
"""

from __future__ import annotations

import gzip
import json
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from runner.gate.script import Asked, Progress, choose, parse_script
from runner.gate.script_wire import Rendered, render
from tests.gate.listening import ListeningTls

_CASE = re.compile(rb"case-([a-z]+)")
_BEFORE_RESET_S = 0.2
"""So that what was sent has been read: a reset may overtake it."""
_PING = b'event: ping\ndata: {"type": "ping"}\n\n'


@dataclass(frozen=True)
class Play:
    """One answer, and how it goes over the wire."""

    reply: Mapping[str, Any]
    """As a script has it."""
    chunk_bytes: int = 0
    """Size of the pieces; 0 for one piece an event."""
    line_ends: bool = False
    """Whether lines end in CR LF, each pair and each character of several bytes torn apart."""
    gzipped: bool = False
    pings: bool = False
    """Whether a ping comes before and after each event."""
    ending: Literal["whole", "cut", "reset"] = "whole"
    """Whether the answer stops halfway, with or without a word."""


class LiveProvider(ListeningTls):
    """Plays to each case what is due to it."""

    def __init__(self, directory: Path, plays: Mapping[str, Sequence[Play]]) -> None:
        self.sent: dict[str, list[bytes]] = {name: [] for name in plays}
        self.heads: list[bytes] = []
        self._plays = {name: list(given) for name, given in plays.items()}
        self._lock = threading.Lock()
        super().__init__(directory)

    def one(self, sock: ssl.SSLSocket) -> bool:
        """Answer one request; says whether the connection goes on."""
        with sock.makefile("rb") as lines:
            return self._answer(sock, lines)

    def _answer(self, sock: ssl.SSLSocket, lines: IO[bytes]) -> bool:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = lines.readline()
            if not line:
                return False
            head += line
        length = re.search(rb"(?i)\ncontent-length: *(\d+)", head)
        body = lines.read(int(length[1]) if length else 0)
        found = _CASE.search(body)
        if found is None:
            sock.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return True
        name = found[1].decode()
        with self._lock:
            self.heads.append(head)
            left = self._plays[name]
            play = left.pop(0) if len(left) > 1 else left[0]
        made = _rendered(play, json.loads(body))
        headers, pieces = made.headers, list(_pieces(play, made))
        if play.gzipped:
            headers = (*headers, ("content-encoding", "gzip"))
        told = "".join(f"{header}: {value}\r\n" for header, value in headers)
        sock.sendall(f"HTTP/1.1 {made.status} Status\r\n{told}transfer-encoding: chunked\r\n\r\n".encode())
        if play.ending != "whole":
            pieces = pieces[: len(pieces) // 2]
        for piece in pieces:
            sock.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
        with self._lock:
            self.sent[name].append(b"".join(pieces))
        if play.ending == "whole":
            sock.sendall(b"0\r\n\r\n")
        elif play.ending == "reset":
            time.sleep(_BEFORE_RESET_S)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return play.ending == "whole"


def _rendered(play: Play, document: dict[str, Any]) -> Rendered:
    script = parse_script(json.dumps({"schema_version": 1, "replies": [{"reply": play.reply}]}).encode())
    choice, _ = choose(script, Asked("messages", "", document), Progress())
    assert choice is not None
    return render(choice, model=document["model"], stream=bool(document.get("stream")))


def _pieces(play: Play, made: Rendered) -> list[bytes]:
    pieces = [piece for event in made.pieces for piece in ((_PING, event, _PING) if play.pings else (event,))]
    body = b"".join(pieces)
    if play.line_ends:
        return _torn(body.replace(b"\n", b"\r\n"))
    if play.gzipped:
        body = gzip.compress(body, mtime=0)
    if play.chunk_bytes:
        return [body[start : start + play.chunk_bytes] for start in range(0, len(body), play.chunk_bytes)]
    return pieces if not play.gzipped else [body]


def _torn(body: bytes) -> list[bytes]:
    """Cut between CR and LF, and before each byte that goes on with a character."""
    cuts = [at for at in range(1, len(body)) if body[at - 1 : at + 1] == b"\r\n" or body[at] & 0xC0 == 0x80]
    return [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
