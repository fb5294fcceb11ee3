"""Which request leaves the gate: a pure decision on the raw head, then on the body.

Boundary: pure. Not here: ceilings (ledger.py), reading the socket and answering (serving.py).
Rules: the decision is made on the raw target and the raw header list, never on a normalised form; everything that is not known is refused. A request
reaches an upstream only by ``Forward``. Paths are a table. The sender is never trusted to be the CLI.
Sources: facts/sandbox.md §2 C (probes 33–45), facts/namespaces-and-gate.md "aiohttp as the gate" and "First-party mode".

Refusal codes, in the order of the checks:

    http-version       not HTTP/1.1                        body-not-json   no JSON object with one reading
    method             CONNECT, or a method not in the     duplicate-key   an object has the same key twice
                       table for that path                 field-unknown   a top-level field that is not in the list
    target-form        absolute form, //, ., .., %, ;, …   body-invalid    model, max_tokens, stream or a tool is malformed
    host               not exactly one, or another one     model-not-allowed
    transfer-encoding  bodies come with a length only      price-field     a field that changes the price, under a USD ceiling
    content-encoding   an encoded body                     provider-tool   a tool that the provider executes, a remote MCP server
    expect, upgrade    hop tricks                          provider-media  media that the provider fetches
    path, query        not in the table
    content-type, content-length, body-too-large

Made elsewhere: malformed, head-too-large, head-timeout, body-timeout, body-incomplete, pipelined, key-inside (serving.py);
over-requests, over-tokens, over-usd, over-record, price-unknown (ledger.py, serving.py); gate-full (held.py), spend-not-kept (spend.py); unscripted (upstreams/scripted.py); response-too-large,
key-in-response, upstream-encoding (relay.py: an answer that was stopped).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from runner.gate.document import BadDocument, parse_document
from runner.gate.exchange import Headers, Refusal, Request
from runner.gate.ledger import Endpoint
from runner.gate.settings import GateSettings

INFERENCE_PATHS: dict[str, Endpoint] = {"/v1/messages": "messages", "/v1/messages/count_tokens": "count_tokens"}
"""The only paths that are ever forwarded, by POST, with ``INFERENCE_QUERIES``."""

INFERENCE_QUERIES = frozenset({None, "beta=true"})
"""Allowed queries, to the byte; None for no ``?`` at all."""

START_UP_PATHS: dict[str, frozenset[str]] = {
    "/api/claude_code/settings": frozenset({"GET"}),
    "/api/claude_code/policy_limits": frozenset({"GET"}),
    "/api/claude_code/organizations/metrics_enabled": frozenset({"GET"}),
    "/api/claude_code_penguin_mode": frozenset({"GET"}),
    "/api/claude_cli/bootstrap": frozenset({"GET"}),
    "/api/directory/server-urls": frozenset({"GET"}),
    "/api/event_logging/v2/batch": frozenset({"POST"}),
    "/api/hello": frozenset({"GET", "HEAD"}),
}
"""What the CLI asks at its start: answered with 404 by the gate itself, never forwarded (DESIGN "The gate")."""

START_UP_PREFIXES: dict[str, frozenset[str]] = {"/api/eval/sdk-": frozenset({"POST"})}

REQUEST_FIELDS = frozenset(
    {
        "model", "messages", "max_tokens", "system", "tools", "tool_choice", "stream", "stop_sequences", "temperature", "top_p", "top_k",
        "metadata", "thinking", "context_management", "output_config", "output_format", "cache_control", "diagnostics",
        "mcp_servers", "container", "service_tier", "speed", "inference_geo",
    }
)  # fmt: skip
"""Top-level fields of a request; ``mcp_servers``, ``container`` and the last three have rules of their own. ``fallbacks`` (other models) is not among them."""

_PRICE_FIELDS = {
    "service_tier": ("auto", "standard_only"),
    "speed": ("standard",),
    "inference_geo": ("global",),
}
"""The values that a field may have. Tuples, as everything that is compared with a value from outside: that may be a list, which no set can be asked for."""
_CLIENT_TOOLS = frozenset({"custom", "bash", "text_editor", "computer", "memory"})
"""Tool types (without their date) that the asking side executes."""

_INLINE_SOURCES = ("base64", "text", "content")
_ADDRESSES = frozenset({"url", "image_url", "file_url", "video_url", "audio_url", "document_url"})
"""Fields of a content block that say where its content is to be fetched: of no block of this API, but of other APIs that a provider may take as well."""
_TOLD = ("_result", "_output")
"""How block types end that only tell what a tool of the provider found, with its address or file."""
_TARGET = re.compile(r"/[A-Za-z0-9_\-./]*(\?[A-Za-z0-9_\-.~=&:,%+]*)?", re.ASCII)
_JSON_TYPE = re.compile(r'application/json(?:[ \t]*;[ \t]*charset=("?)utf-8\1)?', re.ASCII | re.IGNORECASE)
"""A media type and its one parameter as RFC 9110 writes them: space stands around the semicolon only."""
_LENGTH = re.compile(r"\d{1,12}", re.ASCII)
_DATE = re.compile(r"_\d{8}$", re.ASCII)
_STATUS = {
    "http-version": 505, "method": 405, "host": 421, "expect": 417, "path": 404, "query": 404, "content-encoding": 415,
    "content-type": 415, "content-length": 411, "body-too-large": 413, "head-too-large": 431, "head-timeout": 408, "body-timeout": 408,
    "target-form": 400, "transfer-encoding": 400, "upgrade": 400, "malformed": 400, "pipelined": 400, "body-incomplete": 400,
    "upstream-encoding": 502, "key-in-response": 502,
}  # fmt: skip
_ERROR_TYPES = {400: "invalid_request_error", 404: "not_found_error", 413: "request_too_large", 502: "api_error"}


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request line and its header list, as they arrived (latin-1 text)."""

    method: str
    target: str
    version: tuple[int, int]
    headers: Headers

    def named(self) -> dict[str, list[str]]:
        """All values of each header, by its lower-case name."""
        named: dict[str, list[str]] = {}
        for key, value in self.headers:
            named.setdefault(key.lower(), []).append(value)
        return named

    def request(self, body: bytes) -> Request:
        """The recorded form of the request, as it came: for one that is known to hold no real key."""
        return Request(method=self.method, target=self.target, headers=self.headers, body=body)


@dataclass(frozen=True, slots=True)
class Forward:
    """The request may go on. ``document`` and what follows it are set once the body has been decided on."""

    endpoint: Endpoint
    length: int = 0
    """Body size in bytes, as declared."""
    document: dict[str, Any] | None = None
    model: str = ""
    max_tokens: int = 0
    stream: bool = False


@dataclass(frozen=True, slots=True)
class StartUp:
    """A known start-up path: the gate answers 404 itself."""

    length: int = 0


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request stays here."""

    refusal: Refusal

    @property
    def status(self) -> int:
        """The HTTP status of the refusal: 403 for what the content or a ceiling forbids (the CLI asks once and stops), the protocol's own for the rest."""
        return _STATUS.get(self.refusal.code, 403)

    @property
    def body(self) -> bytes:
        """The refusal as the provider would word an error."""
        return error_body(
            _ERROR_TYPES.get(self.status, "permission_error"),
            f"gate: {self.refusal.code}: {self.refusal.message}",
        )


Decision = Forward | StartUp | Refuse


def refuse(code: str, message: str) -> Refuse:
    """Return a refusal that is not about a ceiling."""
    return Refuse(Refusal(code=code, message=message))


def error_body(kind: str, message: str) -> bytes:
    """Return an error body in the provider's shape."""
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}}, separators=(",", ":")).encode()


def decide_head(head: RequestHead, settings: GateSettings) -> Decision:
    """Decide on the request line and the headers alone, before any of the body is read."""
    named = head.named()
    return _shape(head, named, settings) or _route(head, named, settings)


def decide_body(head: RequestHead, body: bytes, settings: GateSettings) -> Decision:
    """Decide on the body of a request whose head was let through."""
    endpoint = INFERENCE_PATHS[head.target.split("?", 1)[0]]
    try:
        document = parse_document(body)
    except BadDocument as error:
        return refuse(error.code, str(error))
    unknown = document.keys() - REQUEST_FIELDS
    if unknown:
        return refuse("field-unknown", f"request field {min(unknown)[:80]!r} is not known to this release")
    return (
        _basics(document, settings, endpoint)
        or _provider_side(document, settings)
        or _forward(document, endpoint, len(body))
    )


def _shape(head: RequestHead, named: Mapping[str, list[str]], settings: GateSettings) -> Refuse | None:
    """Refuse what no honest client of this API sends."""
    if head.version != (1, 1):
        return refuse("http-version", "only HTTP/1.1 is served")
    if head.method == "CONNECT":
        return refuse("method", "CONNECT is not served")
    if bad := _bad_target(head.target):
        return refuse("target-form", bad)
    hosts = named.get("host", ())
    if len(hosts) != 1 or hosts[0].lower() != settings.expected_host:
        return refuse("host", f"exactly one Host is needed, and it must be {settings.expected_host}")
    if "transfer-encoding" in named:
        return refuse("transfer-encoding", "a body must come with its length")
    if "content-encoding" in named:
        return refuse("content-encoding", "an encoded body is not read")
    if "expect" in named:
        return refuse("expect", "Expect is not served")
    hops = named.get("connection", ())
    if "upgrade" in named or "http2-settings" in named or any("upgrade" in value.lower() for value in hops):
        return refuse("upgrade", "no other protocol is served")
    return None


def _bad_target(target: str) -> str | None:
    if not _TARGET.fullmatch(target):
        return "the target must be a plain path on this host"
    path = target.split("?", 1)[0]
    if "//" in path or any(part in {".", ".."} for part in path.split("/")):
        return "the target's path must be plain"
    return None


def _route(head: RequestHead, named: Mapping[str, list[str]], settings: GateSettings) -> Decision:
    path, has_query, query = head.target.partition("?")
    lengths = named.get("content-length", ())
    if len(lengths) > 1 or (lengths and not _LENGTH.fullmatch(lengths[0])):
        return refuse("content-length", "one plain Content-Length is needed")
    length = int(lengths[0]) if lengths else 0
    if length > settings.ceilings.body_bytes:
        return refuse("body-too-large", f"the body has {length} bytes; the ceiling is {settings.ceilings.body_bytes}")
    methods = START_UP_PATHS.get(path) or next(
        (m for prefix, m in START_UP_PREFIXES.items() if path.startswith(prefix)), None
    )
    if methods is not None:
        return StartUp(length) if head.method in methods else refuse("method", f"{head.method[:20]} is not served here")
    endpoint = INFERENCE_PATHS.get(path)
    if endpoint is None:
        return refuse("path", "only the inference paths are served")
    if head.method != "POST":
        return refuse("method", "only POST is served here")
    if (query if has_query else None) not in INFERENCE_QUERIES:
        return refuse("query", "only no query or beta=true is served")
    kinds = named.get("content-type", ())
    if len(kinds) != 1 or not _JSON_TYPE.fullmatch(kinds[0]):
        return refuse("content-type", "the body must be application/json")
    if not lengths:
        return refuse("content-length", "one plain Content-Length is needed")
    return Forward(endpoint, length)


def _basics(document: dict[str, Any], settings: GateSettings, endpoint: Endpoint) -> Refuse | None:
    model = document.get("model")
    if not isinstance(model, str) or not model:
        return refuse("body-invalid", "model must be a name")
    if settings.models and model not in settings.models:
        return refuse("model-not-allowed", f"model {model[:80]!r} is not among {', '.join(settings.models)}")
    most = document.get("max_tokens")
    if endpoint == "messages" and (type(most) is not int or not 1 <= most <= 10_000_000):
        return refuse("body-invalid", "max_tokens must be a whole number from 1")
    if not isinstance(document.get("stream", False), bool):
        return refuse("body-invalid", "stream must be true or false")
    if settings.ceilings.usd is not None:
        for name, known in _PRICE_FIELDS.items():
            if document.get(name) is not None and document[name] not in known:
                return refuse("price-field", f"{name} changes the price in a way that the table does not know")
    return None


def _provider_side(document: dict[str, Any], settings: GateSettings) -> Refuse | None:
    """Refuse what would make the provider reach out for the model (probe 43): an allowed host alone is no isolation."""
    allowed = settings.allow_provider_tools
    if document.get("mcp_servers") and "mcp" not in allowed:
        return refuse("provider-tool", "remote MCP servers are not allowed by the fixture")
    if document.get("container") is not None and "container" not in allowed:
        return refuse("provider-tool", "a container is not allowed by the fixture")
    tools = document.get("tools") or []
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        return refuse("body-invalid", "tools must be a list of objects")
    for tool in tools:
        kind = tool.get("type", "custom")
        if not isinstance(kind, str):
            return refuse("body-invalid", "a tool's type must be a name")
        base = kind if kind in _CLIENT_TOOLS else _DATE.sub("", kind)
        if base not in _CLIENT_TOOLS and base not in allowed and not (base == "mcp_toolset" and "mcp" in allowed):
            return refuse(
                "provider-tool", f"tool type {kind[:80]!r} runs at the provider and is not allowed by the fixture"
            )
    for block in _blocks(document):
        if reason := _fetching(block, allowed):
            return refuse("provider-media", reason)
    return None


def _fetching(block: dict[str, Any], allowed: tuple[str, ...]) -> str | None:
    kind, source, file = block.get("type"), block.get("source"), block.get("file")
    if "files" not in allowed and (kind == "container_upload" or _names(block, file, "file_id")):
        return "a file of the account is not allowed by the fixture"
    if "url" not in allowed and _names(block, file, *_ADDRESSES):
        return "content that the provider fetches from an address is not allowed by the fixture"
    if kind not in ("image", "document") and not isinstance(source, dict):
        return None
    kind = source.get("type") if isinstance(source, dict) else source
    if kind in _INLINE_SOURCES or (kind == "url" and "url" in allowed) or (kind == "file" and "files" in allowed):
        return None
    return f"media of source type {str(kind)[:40]!r} would be fetched by the provider and is not allowed by the fixture"


def _names(block: dict[str, Any], file: Any, *fields: str) -> bool:
    """Return whether a block, or the file that it describes, has one of the fields, unless it only tells what was found."""
    kind = block.get("type")
    if isinstance(kind, str) and kind.endswith(_TOLD):
        return False
    return any(field in block or (isinstance(file, dict) and field in file) for field in fields)


def _blocks(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every message and every content block: of messages and system, in tool results and in documents made of blocks, in lists of lists however deep; never a tool call's own input."""
    todo: list[Any] = [document.get("system"), document.get("messages")]
    while todo:
        content = todo.pop()
        for block in content if isinstance(content, list) else (content,):
            if isinstance(block, list):
                todo.append(block)
            elif isinstance(block, dict):
                yield block
                if isinstance(block.get("content"), list | dict):
                    todo.append(block["content"])
                source = block.get("source")
                if isinstance(source, dict) and isinstance(source.get("content"), list | dict):
                    todo.append(source["content"])


def _forward(document: dict[str, Any], endpoint: Endpoint, length: int) -> Forward:
    most = document.get("max_tokens", 0) if endpoint == "messages" else 0
    return Forward(endpoint, length, document, document["model"], most, bool(document.get("stream", False)))
