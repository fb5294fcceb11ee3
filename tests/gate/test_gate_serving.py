"""The gate as a whole: record, order, ceilings, the real key."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import zstandard

from runner.errors import GateError, GateUnavailable
from runner.gate.exchange import Headers
from runner.gate.server import Gate
from runner.gate.settings import Ceilings, GateSettings
from runner.gate.upstreams import UpstreamAnswer, UpstreamCut, UpstreamRequest

KEY = "sk-ant-real-0123456789-abcdefghij"
PLACEHOLDER = GateSettings().placeholder_key


class Playing:
    """Answers with given pieces; waits for ``go`` before its body if told to."""

    kind = "playing"

    def __init__(
        self,
        pieces: list[bytes],
        *,
        status: int = 200,
        headers: Headers = (("content-type", "application/json"),),
        cut: bool = False,
    ) -> None:
        self.pieces = pieces
        self.status = status
        self.headers = headers
        self.cut = cut
        self.asked: list[UpstreamRequest] = []
        self.under_way = 0
        self.most_under_way = 0
        self.go = threading.Event()
        self.go.set()

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    @asynccontextmanager
    async def answer(self, request: UpstreamRequest) -> AsyncIterator[UpstreamAnswer]:
        import asyncio

        self.asked.append(request)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            while not self.go.is_set():  # noqa: ASYNC110  (another thread sets it)
                await asyncio.sleep(0.005)
            yield UpstreamAnswer(self.status, self.headers, self._body())
        finally:
            self.under_way -= 1

    async def _body(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece
        if self.cut:
            raise UpstreamCut


USAGE = b'{"usage":{"input_tokens":10,"output_tokens":5}}'


def test_an_exchange_is_recorded_raw_with_its_chunks_and_lane(rig: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """Header order and case, repeats, the target and both bodies stand in the record as they went over the wire."""
    upstream = Playing([b"{", b'"a":', b"1}"])
    one = rig(upstream, gate={"session_id": "s1"})
    headers = {"X-Claude-Code-Session-Id": "s1", "x-claude-code-agent-id": "a1", "x-CasE": "1"}
    data = one.request(ask("hi"), **headers).replace(b"x-CasE: 1", b"x-CasE: 1\r\nX-Case: 2")
    answer = one.send(data)
    (exchange,) = one.close().exchanges
    assert exchange.request.headers[-2:] == (("x-CasE", "1"), ("X-Case", "2"))
    assert (exchange.request.method, exchange.request.target) == ("POST", "/v1/messages?beta=true")
    assert exchange.request.body == data.split(b"\r\n\r\n", 1)[1] == upstream.asked[0].body
    assert (exchange.session, exchange.agent, exchange.from_cli, exchange.is_main_inference) == (
        "s1",
        "a1",
        True,
        False,
    )
    assert exchange.response is not None
    assert (exchange.response.body, exchange.response.chunks, exchange.response.ending) == (
        b'{"a":1}',
        (1, 4, 2),
        "complete",
    )
    assert answer.body == exchange.response.body
    assert dict(exchange.response.headers) == {
        "content-type": "application/json",
        "request-id": "req_gate_0001",
        "transfer-encoding": "chunked",
    }
    assert 0 < exchange.arrived_us <= exchange.first_byte_us <= exchange.ended_us


def test_a_request_of_another_session_is_marked(rig: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """The agent's own curl is served within the ceilings, and told from the CLI where it can be."""
    one = rig(gate={"session_id": "s1"})
    one.post(ask(), X_Claude_Code_Session_Id="s2")
    unknown = rig()
    unknown.post(ask())
    assert one.close().exchanges[0].from_cli is False
    assert unknown.close().exchanges[0].from_cli is None


def test_order_is_kept_as_counts_of_what_had_arrived(
    rig: Callable[..., Any], ask: Callable[..., Any], until: Callable[..., None]
) -> None:
    """Two requests under way at once: the first answer to end saw both; a third, later one sees three."""
    upstream = Playing([USAGE])
    upstream.go.clear()
    one = rig(upstream)
    threads = [threading.Thread(target=one.post, args=(ask(str(n)),)) for n in range(2)]
    for thread in threads:
        thread.start()
    until(lambda: len(upstream.asked) == 2)
    upstream.go.set()
    for thread in threads:
        thread.join()
    one.post(ask("3"))
    exchanges = one.close().exchanges
    assert [exchange.seq for exchange in exchanges] == [1, 2, 3]
    assert [exchange.before_end for exchange in exchanges] == [2, 2, 3]


def test_the_request_over_the_ceiling_is_refused_and_told(rig: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """Three of three are sent, the fourth is refused; on_stop is called once, with a budget's refusal."""
    one = rig(ceilings=Ceilings(requests=3))
    answers = [one.post(ask()) for _ in range(5)]
    assert [answer.status for answer in answers] == [200, 200, 200, 403, 403]
    assert answers[3].headers["x-should-retry"] == "false"
    record = one.close()
    assert len(one.upstream.asked) == record.requests == 3
    assert [(stop.code, stop.over_budget) for stop in one.stops] == [("over-requests", True)]
    assert record.ended_by == one.stops[0]
    assert [exchange.refusal.code for exchange in record.exchanges if exchange.refusal] == ["over-requests"] * 2


def test_fifty_at_once_pass_four_at_a_time(rig: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """W11: parallel requests wait for a place, none is lost, and the total is bounded all the same."""
    upstream = Playing([USAGE])
    one = rig(upstream, ceilings=Ceilings(requests=40))
    statuses: list[int] = []
    threads = [threading.Thread(target=lambda: statuses.append(one.post(ask()).status)) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] * 40 + [403] * 10
    assert upstream.most_under_way <= 4
    assert one.close().requests == 40


def test_a_client_that_goes_away_while_it_waits_is_never_sent(
    rig: Callable[..., Any], ask: Callable[..., Any], until: Callable[..., None]
) -> None:
    """Its record has no answer, and the next in the queue gets the place."""
    upstream = Playing([USAGE])
    upstream.go.clear()
    one = rig(upstream, ceilings=Ceilings(parallel=1))
    first = threading.Thread(target=one.post, args=(ask("first"),))
    first.start()
    until(lambda: len(upstream.asked) == 1)
    with one.connect() as sock:
        sock.sendall(one.request(ask("gone")))
        until(lambda: one.gate.recorder.arrived == 2)
    time.sleep(0.05)
    third = threading.Thread(target=one.post, args=(ask("third"),))
    third.start()
    until(lambda: one.gate.recorder.arrived == 3)
    upstream.go.set()
    first.join()
    third.join()
    record = one.close()
    assert [json.loads(asked.body)["messages"][0]["content"] for asked in upstream.asked] == ["first", "third"]
    assert [exchange.response is None for exchange in record.exchanges] == [False, True, False]


def test_cost_and_tokens_are_booked_from_the_answers(rig: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """The estimate is exact; an error answer costs nothing."""
    one = rig(
        [
            {
                "reply": {
                    "message": {
                        "content": [{"type": "text", "text": "a"}],
                        "usage": {"input_tokens": 1000, "output_tokens": 100, "cache_read_input_tokens": 10},
                    }
                }
            },
            {"reply": {"error": {"status": 529, "type": "overloaded_error"}}},
        ]
    )
    one.post(ask(stream=True))
    assert one.post(ask(stream=True)).status == 529
    record = one.close()
    assert (record.input_tokens, record.output_tokens, record.cache_read_tokens, record.tokens) == (1000, 100, 10, 1110)
    assert record.cost_estimate_usd == "0.003001"
    assert record.requests == 2


def test_a_model_without_a_price_is_refused_before_it_is_sent(rig: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """Not a budget's refusal, but one that can end the run."""
    one = rig()
    assert one.post({**ask(), "model": "claude-new"}).error["message"].startswith("gate: price-unknown: ")
    assert one.upstream.asked == []
    assert [stop.code for stop in one.stops] == ["price-unknown"]
    assert one.close().cost_estimate_usd == "0"


def test_bodies_beyond_the_records_room_are_refused(rig: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """The record is held in memory, so it has a ceiling of its own."""
    one = rig(ceilings=Ceilings(record_bytes=1000))
    assert one.post(ask("x" * 500)).status == 200
    assert one.post(ask("x" * 500)).status == 403
    assert [stop.code for stop in one.stops] == ["over-record"]
    assert len(one.upstream.asked) == 1


def test_a_response_over_its_ceiling_is_cut(rig: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """What was sent is recorded, the cut too, with its reason."""
    one = rig(Playing([b"x" * 600, b"y" * 600]), ceilings=Ceilings(response_bytes=1000))
    answer = one.post(ask())
    assert (answer.body, answer.whole) == (b"x" * 600, False)
    (exchange,) = one.close().exchanges
    assert exchange.response is not None
    assert (exchange.response.body, exchange.response.ending) == (b"x" * 600, "cut")
    assert exchange.refusal is not None
    assert (exchange.refusal.code, exchange.kind) == ("response-too-large", "inference")


@pytest.mark.parametrize("size", [1, 5, 16, 10_000])
def test_the_real_key_in_an_answer_is_replaced_for_cli_and_record(
    rig: Callable[..., Any], ask: Callable[..., Any], size: int
) -> None:
    """In the head and in the body, across piece borders: the same bytes to both, and a count."""
    body = f'{{"error":"key {KEY} is wrong, {KEY[:-1]} is not it, {KEY}{KEY}"}}'.encode()
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    headers = (
        ("Content-Type", "application/json"),
        ("Request-Id", f"r-{KEY}"),
        ("Set-Cookie", "a=b"),
        ("anthropic-organization-id", "o"),
    )
    one = rig(Playing(pieces, status=401, headers=headers), gate={"real_key": KEY})
    answer = one.post(ask())
    (exchange,) = one.close().exchanges
    expected = body.replace(KEY.encode(), PLACEHOLDER.encode())
    assert exchange.response is not None
    assert answer.body == exchange.response.body == expected
    assert answer.headers == {
        "content-type": "application/json",
        "request-id": f"r-{PLACEHOLDER}",
        "transfer-encoding": "chunked",
    }
    assert exchange.key_redactions == 4
    assert KEY.encode() not in repr(exchange).encode() + answer.raw


def test_the_beginning_of_a_key_at_the_end_of_a_cut_answer_is_not_passed_on(
    rig: Callable[..., Any], ask: Callable[..., Any]
) -> None:
    """A cut after all but the last letter must not give the key away."""
    one = rig(Playing([b"key: " + KEY[:-1].encode()], cut=True), gate={"real_key": KEY})
    answer = one.post(ask())
    (exchange,) = one.close().exchanges
    assert not answer.whole
    assert KEY[:-1].encode() not in answer.body
    assert exchange.response is not None
    assert (exchange.response.ending, exchange.key_redactions) == ("cut", 1)


def test_an_encoded_answer_is_searched_before_it_is_passed_on(rig: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """Without the key it goes on byte for byte, still encoded; with the key, or in an encoding that cannot be read, nothing of it does."""
    headers = (("content-type", "application/json"), ("content-encoding", "zstd"))
    clean = zstandard.compress(USAGE)
    one = rig(Playing([clean[:9], clean[9:]], headers=headers), gate={"real_key": KEY})
    answer = one.post(ask())
    record = one.close()
    assert (answer.body, answer.headers["content-encoding"]) == (clean, "zstd")
    assert record.tokens == 15
    for body, encoding, code in (
        (zstandard.compress(USAGE + KEY.encode()), "zstd", "key-in-response"),
        (USAGE, "br", "upstream-encoding"),
        (clean[:-3], "zstd", "upstream-encoding"),
    ):
        one = rig(Playing([body], headers=(headers[0], ("content-encoding", encoding))), gate={"real_key": KEY})
        answer = one.post(ask())
        (exchange,) = one.close().exchanges
        assert (answer.status, answer.headers["x-should-retry"]) == (502, "false")
        assert exchange.refusal is not None
        assert exchange.refusal.code == code
        assert KEY not in repr(exchange)


@pytest.mark.parametrize("written", [str, str.upper])
def test_an_encoding_that_is_the_key_is_not_quoted(
    rig: Callable[..., Any], ask: Callable[..., Any], written: Callable[[str], str]
) -> None:
    """A key in lower case, as encoding in any case: in neither answer nor record; a known encoding is named (the control)."""
    headers = (("content-type", "application/json"), ("content-encoding", written(KEY)))
    one = rig(Playing([USAGE], headers=headers), gate={"real_key": KEY})
    answer = one.post(ask())
    record = one.close()
    assert (answer.status, answer.error["message"].split(":")[1]) == (502, " upstream-encoding")
    assert KEY.encode() not in answer.raw.lower()
    assert KEY not in repr(record).lower()
    assert record.key_redactions == (written is str)
    control = rig(Playing([USAGE], headers=(headers[0], ("content-encoding", "br"))), gate={"real_key": KEY})
    assert "encoded as br " in control.post(ask()).error["message"]


def test_the_key_in_a_header_of_an_encoded_answer_is_counted(rig: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """Its body is clean and goes on as it is; without the key in the head nothing is counted (the control)."""
    body = zstandard.compress(USAGE)
    for request_id, told, count in ((f"r-{KEY}", f"r-{PLACEHOLDER}", 1), ("r-1", "r-1", 0)):
        headers = (("content-type", "application/json"), ("content-encoding", "zstd"), ("request-id", request_id))
        one = rig(Playing([body], headers=headers), gate={"real_key": KEY})
        answer = one.post(ask())
        assert (answer.body, answer.headers["request-id"], one.close().key_redactions) == (body, told, count)


def test_an_encoded_answer_streams_untouched_where_there_is_no_key(
    rig: Callable[..., Any], ask: Callable[..., Any]
) -> None:
    """Its usage is read all the same."""
    body = zstandard.compress(USAGE)
    one = rig(Playing([body], headers=(("content-type", "application/json"), ("content-encoding", "zstd"))))
    assert one.post(ask()).body == body
    assert one.close().tokens == 15


@pytest.mark.parametrize("place", ["body", "header", "target"])
def test_a_request_that_holds_the_real_key_is_refused_and_kept_without_it(
    rig: Callable[..., Any], ask: Callable[..., Any], place: str
) -> None:
    """The key has no business inside: seen there, it is neither sent nor stored."""
    one = rig(gate={"real_key": KEY})
    if place == "target":
        answer = one.send(one.request(ask(), target=f"/v1/messages?beta={KEY}"))
    else:
        answer = one.post(ask(KEY)) if place == "body" else one.post(ask(), X_Api_Key=KEY)
    record = one.close()
    assert answer.status >= 403
    assert one.upstream.asked == []
    assert KEY not in record.model_dump_json()
    assert PLACEHOLDER in repr(record.exchanges[0].request)


def test_a_start_up_path_that_holds_the_key_is_refused_and_kept_without_it(rig: Callable[..., Any]) -> None:
    """The target is what is kept of such a request; with another name it is answered 404 as ever (the control)."""
    one = rig(gate={"real_key": KEY})
    host = one.gate.settings.expected_host
    for name, more, status in ((KEY, "", 403), ("abc", f"X-Api-Key: {KEY}\r\n", 403), ("abc", "", 404)):
        line = f"POST /api/eval/sdk-{name} HTTP/1.1\r\nHost: {host}\r\n{more}Content-Length: 0\r\n\r\n"
        assert one.send(line.encode()).status == status
    record = one.close()
    assert [exchange.refusal and exchange.refusal.code for exchange in record.exchanges] == ["key-inside"] * 2 + [None]
    assert record.exchanges[0].request.target == f"/api/eval/sdk-{PLACEHOLDER}"
    assert KEY not in repr(record)


def in_escapes(text: str) -> str:
    """The text with its hyphens and one letter as JSON escapes."""
    return text.replace("-", "\\u002d").replace("a", "\\u0061", 1)


def test_the_key_in_json_escapes_is_the_key(rig: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """Whoever reads the JSON has it plain. A request with it is refused, an answer loses it, plain or compressed; another word in escapes passes both ways (the control)."""
    one = rig(Playing([USAGE]), gate={"real_key": KEY})
    bodies = [json.dumps(ask("WORD")).replace("WORD", in_escapes(word)).encode() for word in (KEY, "another-word")]
    assert [one.post(body).status for body in bodies] == [403, 200]
    record = one.close()
    assert record.exchanges[0].refusal.code == "key-inside"
    assert in_escapes(KEY) not in repr(record).replace("\\\\", "\\")
    assert PLACEHOLDER.encode() in record.exchanges[0].request.body
    assert [asked.body for asked in one.upstream.asked] == [bodies[1]]
    for word, passed, count in ((KEY, PLACEHOLDER, 1), ("another-word", in_escapes("another-word"), 0)):
        said = b'{"error":"%b"}' % in_escapes(word).encode()
        for size in (1, 7, 1000):
            one = rig(Playing([said[at : at + size] for at in range(0, len(said), size)]), gate={"real_key": KEY})
            answer = one.post(ask())
            record = one.close()
            assert answer.body == record.exchanges[0].response.body == b'{"error":"%b"}' % passed.encode()
            assert record.key_redactions == count
        headers = (("content-type", "application/json"), ("content-encoding", "zstd"))
        one = rig(Playing([zstandard.compress(said)], headers=headers), gate={"real_key": KEY})
        assert one.post(ask()).status == (502 if count else 200)
        assert one.close().key_redactions == count


def test_a_redirect_is_neither_followed_nor_passed_on(rig: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """The CLI follows redirects (claude-cli.md §2), so it must never see one."""
    one = rig(Playing([b""], status=307, headers=(("location", "https://evil.invalid/"),)))
    answer = one.post(ask())
    assert (answer.status, answer.headers["x-should-retry"], "location" in answer.headers) == (502, "false", False)


def test_a_transfer_coding_that_is_not_undone_is_refused_by_name(
    rig: Callable[..., Any], ask: Callable[..., Any]
) -> None:
    """Whatever the upstream is that names one; chunked alone goes on (the control)."""
    kind = ("content-type", "application/json")
    for coding, told in (("gzip, chunked", "upstream-encoding"), ("chunked", None)):
        one = rig(Playing([USAGE], headers=(kind, ("Transfer-Encoding", coding))))
        answer = one.post(ask())
        (exchange,) = one.close().exchanges
        assert (answer.status, exchange.refusal and exchange.refusal.code) == (502 if told else 200, told)


@pytest.mark.parametrize("status", [204, 205, 206])
def test_a_success_without_a_whole_body_is_not_passed_on(
    rig: Callable[..., Any], ask: Callable[..., Any], read: Callable[..., Any], status: int
) -> None:
    """It becomes an error with a length, and the connection is good for the next request; other successes go on (the control)."""
    upstream = Playing([b""], status=status)
    one = rig(upstream)
    with one.connect() as sock:
        for given, told in ((status, 502), (200, 200), (201, 201)):
            upstream.status = given
            sock.sendall(one.request(ask()))
            answer = read(sock)
            assert (answer.status, answer.whole) == (told, True)
            assert ("transfer-encoding" in answer.headers) == (told != 502)
    assert [exchange.response.status for exchange in one.close().exchanges] == [502, 200, 201]


def test_count_tokens_is_forwarded(rig: Callable[..., Any], ask: Callable[..., Any]) -> None:
    """It needs no max_tokens and costs nothing."""
    one = rig([{"when": {"endpoint": "count_tokens"}, "reply": {"count_tokens": 12}}])
    document = {key: value for key, value in ask().items() if key != "max_tokens"}
    answer = one.send(one.request(document, target="/v1/messages/count_tokens?beta=true"))
    assert (answer.status, answer.body) == (200, b'{"input_tokens":12}')
    assert (one.close().tokens, one.record.requests) == (0, 1)


def test_closing_ends_what_is_under_way_at_once(
    rig: Callable[..., Any], ask: Callable[..., Any], until: Callable[..., None]
) -> None:
    """A request without an answer stays in the record without one; closing twice gives the same record."""
    upstream = Playing([USAGE])
    upstream.go.clear()
    one = rig(upstream)
    thread = threading.Thread(target=one.post, args=(ask(),))
    thread.start()
    until(lambda: len(upstream.asked) == 1)
    started = time.monotonic()
    record = one.close()
    assert time.monotonic() - started < 2
    thread.join()
    assert [exchange.response for exchange in record.exchanges] == [None]
    assert one.gate.close() is record
    upstream.go.set()


def test_a_gate_that_is_closed_before_it_served_has_an_empty_record() -> None:
    """The orchestrator may give up early."""
    gate = Gate(GateSettings(mode="base-url"), Playing([]))
    assert gate.close().exchanges == ()
    late = Gate(GateSettings(mode="base-url"), Playing([]))
    late.serve(socket.create_server(("127.0.0.1", 0)))
    assert late.close().exchanges == ()


def test_settings_that_do_not_fit_are_refused() -> None:
    """First-party mode without an authority; a key that is part of the placeholder, or too short to be found safely."""
    for settings, key in (
        (GateSettings(), None),
        (GateSettings(mode="base-url"), "short"),
        (GateSettings(mode="base-url"), PLACEHOLDER[:12]),
    ):
        with pytest.raises(GateError):
            Gate(settings, Playing([]), real_key=key)


def test_an_upstream_that_cannot_get_ready_makes_the_gate_unavailable(until: Callable[..., None]) -> None:
    """The thread's fault is told by close, not lost."""

    class Broken(Playing):
        async def open(self) -> None:
            raise GateError("no")

    gate = Gate(GateSettings(mode="base-url"), Broken([]))
    gate.serve(socket.create_server(("127.0.0.1", 0)))
    until(lambda: gate.failure is not None)
    with pytest.raises(GateUnavailable):
        gate.close()


def test_a_fault_of_the_gates_own_is_a_note_and_an_error_to_the_client(
    rig: Callable[..., Any], ask: Callable[..., Any]
) -> None:
    """It is answered without a retry, and said."""

    class Faulty(Playing):
        def answer(self, request: UpstreamRequest) -> Any:
            raise ZeroDivisionError("bug")

    one = rig(Faulty([]))
    answer = one.post(ask())
    assert (answer.status, answer.headers["x-should-retry"]) == (500, "false")
    assert one.close().notes == ("handler failed: ZeroDivisionError('bug')",)
