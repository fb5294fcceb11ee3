"""Policy, rule by rule: beside each refusal the nearest head or body that is let through."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from runner.gate.policy import Refuse, RequestHead, decide_body, decide_head
from runner.gate.settings import Ceilings, GateSettings

HOST, JSON_TYPE = ("Host", "api.anthropic.com"), ("Content-Type", "application/json")
URL_IMAGE = {"type": "image", "source": {"type": "url", "url": "https://x.invalid/a.png"}}
INLINE_IMAGE = {"type": "image", "source": {"type": "base64", "data": "AA=="}}
SMALL = GateSettings(ceilings=Ceilings(body_bytes=1000))


def code_of_head(*headers: tuple[str, str]) -> str:
    decision = decide_head(RequestHead("POST", "/v1/messages?beta=true", (1, 1), headers), SMALL)
    return decision.refusal.code if isinstance(decision, Refuse) else type(decision).__name__


def code_of_body(target: str = "/v1/messages", **fields: Any) -> str:
    document = {
        "model": "claude-sonnet-5-5",
        "max_tokens": 10,
        "messages": [{"role": "user", "content": "x"}],
        **fields,
    }
    data = json.dumps(document).encode()
    decision = decide_body(RequestHead("POST", target, (1, 1), ()), data, GateSettings())
    return decision.refusal.code if isinstance(decision, Refuse) else type(decision).__name__


@pytest.mark.parametrize(
    ("good", "bad", "code"),
    [
        ([("Content-Length", "1000")], [("Content-Length", "1001")], "body-too-large"),
        ([("Connection", "keep-alive")], [("Connection", "HTTP2-Settings, Upgrade")], "upgrade"),
        ([("Accept", "x")], [("HTTP2-Settings", "AAMAAABkAAQCAAAAAAIAAAAA")], "upgrade"),
        ([("Accept", "application/json")], [("content-type", "application/json")], "content-type"),
        ([("Accept", "text/plain")], [("content-type", "text/plain")], "content-type"),
    ],
)  # fmt: skip
def test_a_header_more_is_refused_where_its_neighbour_is_not(
    good: list[tuple[str, str]], bad: list[tuple[str, str]], code: str
) -> None:
    """The ceiling itself is let through and one byte more is not; an offer of another protocol is refused by whichever header; a second type is, even the same."""
    plain = () if good[0][0] == "Content-Length" else (("Content-Length", "10"),)
    assert code_of_head(HOST, JSON_TYPE, *plain, *good) == "Forward"
    assert code_of_head(HOST, JSON_TYPE, *plain, *bad) == code


@pytest.mark.parametrize(
    ("good", "bad", "code"),
    [
        ({"max_tokens": 10_000_000}, {"max_tokens": 10_000_001}, "body-invalid"),
        ({"max_tokens": 1}, {"max_tokens": 10**30}, "body-invalid"),
        ({"container": None}, {"container": ""}, "provider-tool"),
        ({"container": None}, {"container": {}}, "provider-tool"),
        ({"container": None}, {"container": 0}, "provider-tool"),
        ({"tools": [{"type": "bash_20250124"}]}, {"tools": [{"type": "bash_2025"}]}, "provider-tool"),
        ({"tools": [{"type": "bash"}]}, {"tools": [{"type": "bash_1"}]}, "provider-tool"),
        ({"tools": [{"type": "memory_20250818"}]}, {"tools": [{"type": "memory_202508180"}]}, "provider-tool"),
    ],
)  # fmt: skip
def test_a_field_is_refused_where_its_neighbour_is_not(good: dict[str, Any], bad: dict[str, Any], code: str) -> None:
    """The largest number is let through and one more is not; an empty container is a container; a date has eight digits."""
    assert code_of_body(**good) == "Forward"
    assert code_of_body(**bad) == code


@pytest.mark.parametrize("target", ["/v1/messages", "/v1/messages/count_tokens"])
def test_media_in_messages_of_another_form_is_never_fetched(target: str) -> None:
    """One block where the list of messages should be is looked at like any other; media that is there itself is no reason to refuse it as media."""
    assert code_of_body(target, messages=[{"role": "user", "content": [INLINE_IMAGE]}]) == "Forward"
    assert code_of_body(target, messages=INLINE_IMAGE) != "provider-media"
    for messages in (URL_IMAGE, {"role": "user", "content": [URL_IMAGE]}):
        assert code_of_body(target, messages=messages) in ("provider-media", "body-invalid")


def said(*content: Any) -> list[Any]:
    return [{"role": "user", "content": list(content)}]


@pytest.mark.parametrize("wrap", [lambda block: said([block]), lambda block: [said(block)], lambda block: said([[[block]]]),
    lambda block: said({"type": "tool_result", "tool_use_id": "t", "content": [[block]]}),
    lambda block: said({"type": "document", "source": {"type": "content", "content": [[block]]}})],
    ids=["content", "messages", "deep", "tool result", "document"])  # fmt: skip
def test_media_in_lists_of_lists_is_never_fetched(wrap: Callable[[Any], Any]) -> None:
    """However deep the list; the same list around media that is there itself is let through."""
    assert code_of_body(messages=wrap(INLINE_IMAGE)) == "Forward"
    assert code_of_body(messages=wrap(URL_IMAGE)) == "provider-media"
    assert code_of_body(system=[[URL_IMAGE]]) == "provider-media"


@pytest.mark.parametrize(
    ("block", "allow"),
    [
        ({"type": "image_url", "image_url": {"url": "https://x.invalid/a.png"}}, "url"),
        ({"type": "input_image", "image_url": "https://x.invalid/a.png"}, "url"),
        ({"type": "input_image", "url": "https://x.invalid/a.png"}, "url"),
        ({"type": "input_image", "file_id": "f"}, "files"),
        ({"type": "input_file", "file_url": "https://x.invalid/a.pdf"}, "url"),
        ({"type": "input_file", "file_id": "f"}, "files"),
        ({"type": "file", "file_id": "f"}, "files"),
        ({"type": "file", "file": {"file_id": "f"}}, "files"),
        ({"type": "file", "file": {"url": "https://x.invalid/a.pdf"}}, "url"),
        ({"type": "text", "text": "x", "image_url": "https://x.invalid/a.png"}, "url"),
    ],
)
def test_blocks_of_other_apis_that_are_fetched_are_refused_unless_named(block: dict[str, Any], allow: str) -> None:
    """By their fields, whatever the block is called; let through where the fixture names exactly that; another name does not help."""
    assert code_of_body(messages=said(block)) == "provider-media"
    other = "files" if allow == "url" else "url"
    for names, code in (((other,), "provider-media"), ((allow,), "Forward")):
        settings = GateSettings(allow_provider_tools=names)
        data = json.dumps({"model": "claude-sonnet-5-5", "max_tokens": 10, "messages": said(block)}).encode()
        decision = decide_body(RequestHead("POST", "/v1/messages", (1, 1), ()), data, settings)
        assert (decision.refusal.code if isinstance(decision, Refuse) else "Forward") == code


@pytest.mark.parametrize(
    "block",
    [
        {"type": "tool_use", "id": "t", "name": "X", "input": {"image_url": "https://x.invalid", "file_id": "f"}},
        {"type": "web_search_tool_result", "content": [{"type": "web_search_result", "url": "https://x.invalid"}]},
        {"type": "code_execution_tool_result", "content": {"type": "code_execution_result", "content": [{"type": "code_execution_output", "file_id": "f"}]}},
        {"type": "text", "text": "x", "citations": [{"type": "web_search_result_location", "url": "https://x.invalid"}]},
        {"type": "search_result", "source": "https://x.invalid", "title": "x", "content": [{"type": "text", "text": "x"}]},
        {"type": "file", "file": {"name": "x"}},
    ],
)  # fmt: skip
def test_what_only_tells_of_an_address_is_let_through(block: dict[str, Any]) -> None:
    """A tool call's input, what a tool of the provider found, and where a text was found are no fetch."""
    assert code_of_body(messages=said(block)) == "Forward"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("application/json", "Forward"),
        ("Application/JSON", "Forward"),
        ("application/json;charset=utf-8", "Forward"),
        ("application/json; charset=UTF-8", "Forward"),
        ("application/json \t;  charset=\"utf-8\"", "Forward"),
        ("app lication/json", "content-type"),
        ("application /json", "content-type"),
        ("application/ json", "content-type"),
        ("application/js on", "content-type"),
        ("app lication / json", "content-type"),
        ("application/json; char set=utf-8", "content-type"),
        ("application/json; charset =utf-8", "content-type"),
        ("application/json; charset= utf-8", "content-type"),
        ("application/json; charset=utf -8", "content-type"),
        ("application/json; charset=\"utf-8", "content-type"),
        ("application/json; charset=utf-16", "content-type"),
        ("application/json charset=utf-8", "content-type"),
        ("application/json;", "content-type"),
        ("application/json, text/plain", "content-type"),
        ("application/json\u00a0", "content-type"),
        ("application/json\n", "content-type"),
        ("application/j\u017fon", "content-type"),
    ],
)  # fmt: skip
def test_a_content_type_is_read_as_it_is_written(kind: str, code: str) -> None:
    """Case and the space around the semicolon are free; a space inside a word is part of no type."""
    assert code_of_head(HOST, ("Content-Type", kind), ("Content-Length", "10")) == code
