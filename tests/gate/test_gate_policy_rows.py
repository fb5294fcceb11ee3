"""Policy, rule by rule: beside each refusal the nearest head or body that is let through."""

from __future__ import annotations

import json
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
