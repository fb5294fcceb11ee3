"""The MCP door: the official SDK's server over the simulator, as one ASGI application (B14).

Boundary: imports the SDK (late: a second and 50 MiB; only runs with a simulation pay it). Not here: the socket (serving.py), what a call does (machine.py).
Rules: no session and no stream: each request is one POST with one JSON document for an answer, in the protocol's present form (2026-07-28) and in the older ones. A refusal and a rejection are
tool results with ``isError``, as the protocol wants misfits of the input told. A client lists the tools by itself, when it connects and after calls: that is nothing a worker did, so it is
counted and is no row. How an answer goes wrong on its way is not the SDK's business: it is noted in the request's scope and done by
serving.py. The SDK's default middleware (tracing) is off.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from runner.simulate.contract import Contract
from runner.simulate.machine import Answer, Call

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

PATH = "/mcp"
ANSWER_KEY = "hermeval.answer"
"""Where a request's scope keeps the answer that its call got."""

TOOL_USE_KEY = "claudecode/toolUseId"
"""In a call's ``_meta``: the CLI's id of the tool call (facts/claude-cli.md §5)."""

Take = Callable[[Call], Answer]


class McpDoor:
    """One MCP server; serves while ``running`` is entered."""

    def __init__(self, contract: Contract, take: Take, listed: Callable[[], None]) -> None:
        import mcp_types as types
        from mcp.server.lowlevel import Server
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        logging.getLogger("mcp").addHandler(logging.NullHandler())  # what a worker sends is no matter for our stderr
        offered = [
            types.Tool(name=tool.name, description=tool.description, input_schema=dict(tool.input_schema))
            for tool in contract.tools
        ]
        schemas: dict[str, Mapping[str, Any]] = {tool.name: tool.input_schema for tool in contract.tools}

        async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
            listed()
            return types.ListToolsResult(tools=offered)

        async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
            answer = take(Call("mcp", "call", params.name, _text(params.arguments), _tool_use_id(context.meta)))
            _note(context, answer)
            return types.CallToolResult(
                content=[types.TextContent(type="text", text=answer.text)],
                structured_content=answer.sent,
                is_error=answer.exit_status in (1, 4),
            )

        server: Server[Any] = Server(
            contract.server,
            version="1",
            instructions=contract.instructions,
            on_list_tools=list_tools,
            on_call_tool=call_tool,
            get_tool_input_schema=schemas.get,  # else each call would list the tools, and the trace would say so
        )
        server.middleware.clear()
        self._manager: StreamableHTTPSessionManager = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True
        )

    def running(self) -> AbstractAsyncContextManager[None]:
        """Return the context in which requests can be handled; once."""
        return self._manager.run()

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one request (ASGI)."""
        await self._manager.handle_request(scope, receive, send)


def _note(context: Any, answer: Answer) -> None:
    request = context.request
    if request is not None:
        request.scope[ANSWER_KEY] = answer


def _text(arguments: Mapping[str, Any] | None) -> str:
    import json

    return json.dumps(arguments if arguments is not None else {}, ensure_ascii=True)


def _tool_use_id(meta: Any) -> str | None:
    value = meta.get(TOOL_USE_KEY) if isinstance(meta, Mapping) else None
    return value if isinstance(value, str) and value.isascii() and value.isprintable() and len(value) <= 128 else None
