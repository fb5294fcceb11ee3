"""The gate's event loop with a bound on what all connections together make it hold.

Boundary: touches what its base touches. Not here: everything else (serving.py).
Rules: a request is counted by the length that it says, from its head to its end, so that its body, its document and its wait for a turn are covered. Over the bound it is
refused unread (``gate-full``). A run's own gate needs none of this: what it records is bounded, and it ends with its run. ``hermeval gate`` outlives runs, and a flood that
ended it would be felt by all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from runner.gate.exchange import Request
from runner.gate.policy import refuse
from runner.gate.serving import Serving, latin

if TYPE_CHECKING:
    import socket

    from aiohttp import web

    from runner.gate.server import Gate


class BoundedServing(Serving):
    """Serves one listener for one gate, and holds at most ``most`` bytes of requests."""

    def __init__(self, gate: Gate, listener: socket.socket, most: int) -> None:
        super().__init__(gate, listener)
        self._most = most
        self._held = 0

    @override
    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Take one parsed request on, or refuse it for want of room."""
        said = request.headers.get("Content-Length", "")
        length = int(said) if said.isascii() and said.isdigit() and len(said) < 12 else 0  # policy has a word on others
        if self._held + length > self._most:
            scrub = self._scrubber().text
            told = Request(method=scrub(request.method)[:20], target=scrub(latin(request.raw_path))[:8192])
            full = refuse("gate-full", f"requests under way come to {self._most} bytes, which is all the gate holds")
            return await self._refuse(request, told, full)
        self._held += length
        try:
            return await super().handle(request)
        finally:
            self._held -= length
