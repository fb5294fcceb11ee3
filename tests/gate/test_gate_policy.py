"""Policy: which heads and bodies may leave the gate."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.gate.document import BadDocument, parse_document
from runner.gate.policy import (
    INFERENCE_PATHS,
    START_UP_PATHS,
    Forward,
    Refuse,
    RequestHead,
    StartUp,
    decide_body,
    decide_head,
)
from runner.gate.settings import Ceilings, GateSettings

SETTINGS = GateSettings()
GOOD = (("Host", "api.anthropic.com"), ("Content-Type", "application/json"), ("Content-Length", "10"))


def head(
    method: str = "POST", target: str = "/v1/messages?beta=true", headers: Any = GOOD, version: tuple[int, int] = (1, 1)
) -> RequestHead:
    return RequestHead(method, target, version, tuple(headers))


def code(decision: object) -> str:
    return decision.refusal.code if isinstance(decision, Refuse) else type(decision).__name__


def body(**fields: Any) -> bytes:
    document = {
        "model": "claude-sonnet-5-5",
        "max_tokens": 10,
        "messages": [{"role": "user", "content": "x"}],
        **fields,
    }
    return json.dumps(document, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "target",
    ["/v1/messages", "/v1/messages?beta=true", "/v1/messages/count_tokens", "/v1/messages/count_tokens?beta=true"],
)
def test_the_four_inference_targets_are_let_through(target: str) -> None:
    """The positive control of every refusal below."""
    decision = decide_head(head(target=target), SETTINGS)
    assert isinstance(decision, Forward)
    assert decision.length == 10


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"method": "GET"}, "method"),
        ({"method": "CONNECT", "target": "evil:443"}, "method"),
        ({"version": (1, 0)}, "http-version"),
        ({"target": "http://api.anthropic.com/v1/messages"}, "target-form"),
        ({"target": "//evil/v1/messages"}, "target-form"),
        ({"target": "/v1//messages"}, "target-form"),
        ({"target": "/v1/messages/../admin"}, "target-form"),
        ({"target": "/v1/./messages"}, "target-form"),
        ({"target": "/v1/%6dessages"}, "target-form"),
        ({"target": "/v1/%2e%2e/messages"}, "target-form"),
        ({"target": "/v1/messages;x"}, "target-form"),
        ({"target": "/v1/messages#x"}, "target-form"),
        ({"target": "/v1\\messages"}, "target-form"),
        ({"target": "*"}, "target-form"),
        ({"target": "/v1/mess\u00e4ges"}, "target-form"),
        ({"target": "/v1/messages?"}, "query"),
        ({"target": "/v1/messages?beta=true&x=1"}, "query"),
        ({"target": "/v1/messages?beta=TRUE"}, "query"),
        ({"target": "/v1/messages?beta=true?beta=true"}, "target-form"),
        ({"target": "/v1/messages/"}, "path"),
        ({"target": "/v1/messages/batches"}, "path"),
        ({"target": "/v1/files"}, "path"),
        ({"target": "/v1/models"}, "path"),
        ({"target": "/V1/messages"}, "path"),
        ({"target": "/api/claude_code/settings"}, "method"),
        ({"headers": GOOD[1:]}, "host"),
        ({"headers": (*GOOD, ("host", "api.anthropic.com"))}, "host"),
        ({"headers": (("Host", "api.anthropic.com.evil.invalid"), *GOOD[1:])}, "host"),
        ({"headers": (("Host", "api.anthropic.com:8443"), *GOOD[1:])}, "host"),
        ({"headers": (*GOOD, ("Transfer-Encoding", "chunked"))}, "transfer-encoding"),
        ({"headers": (*GOOD, ("Content-Encoding", "gzip"))}, "content-encoding"),
        ({"headers": (*GOOD, ("Expect", "100-continue"))}, "expect"),
        ({"headers": (*GOOD, ("Upgrade", "h2c"))}, "upgrade"),
        ({"headers": (*GOOD, ("Connection", "keep-alive, Upgrade"))}, "upgrade"),
        ({"headers": GOOD[:2]}, "content-length"),
        ({"headers": (*GOOD[:2], ("Content-Length", "+5"))}, "content-length"),
        ({"headers": (*GOOD, ("Content-Length", "10"))}, "content-length"),
        ({"headers": (*GOOD[:2], ("Content-Length", "99999999999"))}, "body-too-large"),
        ({"headers": (GOOD[0], GOOD[2])}, "content-type"),
        ({"headers": (GOOD[0], ("Content-Type", "text/plain"), GOOD[2])}, "content-type"),
    ],
)
def test_every_other_head_is_refused_by_name(change: dict[str, Any], expected: str) -> None:
    """One change to a good head is enough to be refused, with the code of what is wrong."""
    assert code(decide_head(head(**change), SETTINGS)) == expected


def test_start_up_paths_are_recognised_with_their_methods() -> None:
    """The table's paths are answered by the gate, with any query, and no other path is."""
    for path, methods in START_UP_PATHS.items():
        for method in methods:
            assert isinstance(decide_head(head(method=method, target=f"{path}?a=%20b"), SETTINGS), StartUp)
    assert isinstance(decide_head(head(target="/api/eval/sdk-abc"), SETTINGS), StartUp)
    assert code(decide_head(head(method="GET", target="/api/organizations"), SETTINGS)) == "path"


@given(st.text(max_size=60), st.sampled_from(["POST", "GET", "PUT", "DELETE"]))
def test_no_other_target_is_ever_forwarded(target: str, method: str) -> None:
    """Whatever the target, Forward means POST to one of four exact targets."""
    decision = decide_head(head(method=method, target=target), SETTINGS)
    if isinstance(decision, Forward):
        path, _, query = target.partition("?")
        assert method == "POST"
        assert path in INFERENCE_PATHS
        assert query in {"", "beta=true"}
        assert not target.endswith("?")


def test_a_plain_body_goes_on_with_what_the_ledger_needs() -> None:
    """The positive control for bodies: client-side tools, inline media and a tool call that merely mentions an address."""
    decision = decide_body(
        head(),
        body(
            stream=True,
            tools=[{"name": "Bash"}, {"type": "custom", "name": "X"}, {"type": "bash_20250124", "name": "bash"}],
            system=[{"type": "text", "text": "s"}],
            messages=[
                {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": "AA=="}}]},
                {
                    "role": "assistant",
                    "content": [
                        {
                            "type": "tool_use",
                            "id": "t",
                            "name": "X",
                            "input": {"type": "image", "source": {"type": "url", "url": "http://x"}},
                        }
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "ok"}]}
                    ],
                },
            ],
        ),
        SETTINGS,
    )
    assert isinstance(decision, Forward)
    assert (decision.model, decision.max_tokens, decision.stream) == ("claude-sonnet-5-5", 10, True)


URL_IMAGE = {"type": "image", "source": {"type": "url", "url": "https://x.invalid/a.png"}}
FILE_DOCUMENT = {"type": "document", "source": {"type": "file", "file_id": "f"}}


@pytest.mark.parametrize(
    ("fields", "expected", "allow"),
    [
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "provider-tool", "web_search"),
        ({"tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}]}, "provider-tool", "web_fetch"),
        ({"tools": [{"type": "code_execution_20250825", "name": "code_execution"}]}, "provider-tool", "code_execution"),
        ({"tools": [{"type": "advisor_20260301", "name": "advisor"}]}, "provider-tool", "advisor"),
        ({"tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}]}, "provider-tool", "mcp"),
        ({"mcp_servers": [{"type": "url", "url": "https://x.invalid", "name": "x"}]}, "provider-tool", "mcp"),
        ({"container": "c1"}, "provider-tool", "container"),
        ({"messages": [{"role": "user", "content": [URL_IMAGE]}]}, "provider-media", "url"),
        ({"messages": [{"role": "user", "content": URL_IMAGE}]}, "provider-media", "url"),
        ({"system": [URL_IMAGE]}, "provider-media", "url"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [URL_IMAGE]}]}
                ]
            },
            "provider-media",
            "url",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "document", "source": {"type": "content", "content": [URL_IMAGE]}}],
                    }
                ]
            },
            "provider-media",
            "url",
        ),
        ({"messages": [{"role": "user", "content": [FILE_DOCUMENT]}]}, "provider-media", "files"),
        (
            {"messages": [{"role": "user", "content": [{"type": "container_upload", "file_id": "f"}]}]},
            "provider-media",
            "files",
        ),
    ],
)
def test_what_the_provider_would_fetch_or_run_is_refused_unless_named(
    fields: dict[str, Any], expected: str, allow: str
) -> None:
    """Refused by default; let through once the fixture names exactly that; another name does not help."""
    assert code(decide_body(head(), body(**fields), SETTINGS)) == expected
    assert code(decide_body(head(), body(**fields), GateSettings(allow_provider_tools=("something_else",)))) == expected
    assert code(decide_body(head(), body(**fields), GateSettings(allow_provider_tools=(allow,)))) == "Forward"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "body-not-json"),
        (b"[]", "body-not-json"),
        (b"{}x", "body-not-json"),
        (b"\xef\xbb\xbf{}", "body-not-json"),
        (b'{"a":"\xff"}', "body-not-json"),
        (b'{"a":NaN}', "body-not-json"),
        (b"[" * 100_000, "body-not-json"),
        (b'{"model":"a","model":"b"}', "duplicate-key"),
        (b'{"messages":[{"role":"user","role":"user"}]}', "duplicate-key"),
        (b'{"mo\\u0064el":"a","model":"b"}', "duplicate-key"),
        (body(fallbacks=[{"model": "x"}]), "field-unknown"),
        (body(Tools=[]), "field-unknown"),
        (body(model=""), "body-invalid"),
        (body(max_tokens=0), "body-invalid"),
        (body(max_tokens=True), "body-invalid"),
        (body(max_tokens=1.5), "body-invalid"),
        (body(max_tokens=None), "body-invalid"),
        (body(stream="yes"), "body-invalid"),
        (body(tools={"a": 1}), "body-invalid"),
        (body(tools=[1]), "body-invalid"),
        (body(tools=[{"type": 5}]), "body-invalid"),
        (body(speed="fast"), "price-field"),
        (body(service_tier="priority"), "price-field"),
        (body(inference_geo="us"), "price-field"),
    ],
)
def test_bodies_with_two_readings_or_unknown_parts_are_refused(data: bytes, expected: str) -> None:
    """The gate reads what the provider reads, or sends nothing."""
    assert code(decide_body(head(), data, SETTINGS)) == expected


def test_the_model_list_and_the_usd_ceiling_decide_where_they_are_set() -> None:
    """A model outside the list is refused; without a USD ceiling a price-changing field is nobody's business."""
    assert code(decide_body(head(), body(), GateSettings(models=("claude-opus-5-5",)))) == "model-not-allowed"
    assert code(decide_body(head(), body(), GateSettings(models=("claude-sonnet-5-5",)))) == "Forward"
    assert code(decide_body(head(), body(speed="fast"), GateSettings(ceilings=Ceilings(usd=None)))) == "Forward"


def test_a_lone_surrogate_is_read() -> None:
    """JavaScript writes a torn emoji as an escape; that is fine JSON."""
    assert code(decide_body(head(), body(system="\ud83d"), SETTINGS)) == "Forward"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), JSON, max_size=5), st.booleans(), st.sampled_from([None, 1]))
def test_any_object_is_read_as_python_reads_it(value: dict[str, Any], ascii_only: bool, indent: int | None) -> None:
    """The fast reading and the strict one agree, in every style of writing."""
    data = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    try:
        assert parse_document(data) == json.loads(data)
    except BadDocument:
        assert not ascii_only


@pytest.mark.parametrize("odd", [{}, [], [{}], {"type": {}}], ids=repr)
def test_a_value_of_another_type_is_decided_on(odd: Any) -> None:
    """Lists and objects where a name should stand are answered like any other wrong value, and are no fault of the gate's own."""
    block = {"type": odd, "text": "x"}
    assert code(decide_body(head(), body(messages=[{"role": "user", "content": [block]}]), SETTINGS)) == "Forward"
    for source in (odd, {"type": odd}):
        media = {"type": "image", "source": source}
        decision = decide_body(head(), body(messages=[{"role": "user", "content": [media]}]), SETTINGS)
        assert code(decision) == "provider-media"
    for field in ("service_tier", "speed", "inference_geo"):
        assert code(decide_body(head(), body(**{field: odd}), SETTINGS)) == "price-field"


@given(st.binary(max_size=80))
def test_only_the_declared_error_escapes(data: bytes) -> None:
    """Any bytes give a decision."""
    assert isinstance(decide_body(head(), data, SETTINGS), Refuse | Forward)
