"""Exchanges in an attempt: what went over the wire comes back, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.bundle import AttemptContent, open_attempt, write_attempt
from runner.bundle.exchanges import exchange_parts, exchanges_from
from runner.canonical import parse_canonical
from runner.errors import BundleCorrupt
from runner.gate.exchange import Exchange, Refusal, Request, Response

_latin = st.text(st.characters(max_codepoint=255), max_size=12)
_headers = st.lists(st.tuples(_latin, _latin), max_size=4).map(tuple)
_requests = st.builds(Request, method=_latin, target=_latin, headers=_headers, body=st.binary(max_size=60))
_responses = st.builds(
    Response,
    status=st.integers(100, 599),
    headers=_headers,
    body=st.binary(max_size=60),
    ending=st.sampled_from(["complete", "cut", "client-gone"]),
    chunks=st.lists(st.integers(0, 99), max_size=4).map(tuple),
)
_exchanges = st.builds(
    Exchange,
    seq=st.integers(1, 9999),
    kind=st.sampled_from(["inference", "start-up", "refused"]),
    session=_latin,
    agent=_latin,
    from_cli=st.none() | st.booleans(),
    request=_requests,
    response=st.none() | _responses,
    refusal=st.none() | st.builds(Refusal, code=_latin, message=st.text(max_size=9), over_budget=st.booleans()),
    before_end=st.integers(0, 99),
    key_redactions=st.integers(0, 9),
    arrived_us=st.integers(0, 2**53 - 1),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(_exchanges, max_size=4).map(tuple))
def test_exchanges_come_back_as_they_were(exchanges: tuple[Exchange, ...]) -> None:
    """Bodies of any bytes, headers in their order and case, an empty body and no response at all survive the round trip."""
    parts = exchange_parts(exchanges)
    assert exchanges_from(parse_canonical(parts["exchanges.json"]), parts.__getitem__) == exchanges


def test_no_response_is_not_an_empty_one(tmp_path: Path, content: Callable[..., AttemptContent]) -> None:
    """A response without a body has an empty part; no response has none."""
    request = Request(method="POST", target="/", headers=(("B", "2"), ("a", "1"), ("A", "1"), ("B", "2")))
    exchanges = (
        Exchange(seq=1, kind="inference", request=request, response=Response(status=200)),
        Exchange(seq=2, kind="inference", request=request, response=None),
    )
    attempt = open_attempt(write_attempt(tmp_path, content(exchanges=exchanges)))
    assert attempt.part("exchanges/0001.response") == b""
    assert not attempt.has("exchanges/0002.response")
    assert attempt.exchanges() == exchanges
    assert open_attempt(write_attempt(tmp_path, content(exchanges=()))).exchanges() == ()


@pytest.mark.parametrize(
    "index",
    [
        None,
        [],
        {},
        {"schema_version": 2, "exchanges": []},
        {"schema_version": 1, "exchanges": {}},
        {"schema_version": 1, "exchanges": [1]},
        {"schema_version": 1, "exchanges": [{}]},
        {
            "schema_version": 1,
            "exchanges": [
                {"seq": 1, "kind": "inference", "request": {"method": "", "target": "", "body": "plan.json"}}
            ],
        },
        {
            "schema_version": 1,
            "exchanges": [{"seq": 1, "kind": "inference", "request": {"method": "", "target": "", "body": 5}}],
        },
        {"schema_version": 1, "exchanges": [{"seq": "1", "kind": "x", "request": None, "new": 1}]},
    ],
)
def test_an_index_of_another_shape_is_damage(index: Any) -> None:
    """An index that does not follow its schema, or points a body at another part, is BundleCorrupt and names the part."""
    with pytest.raises(BundleCorrupt) as caught:
        exchanges_from(index, {"plan.json": b"{}"}.__getitem__)
    assert caught.value.where == "part exchanges.json"
