"""What was recorded from a live provider, however awkwardly it answered, is reproduced without it (issue 3, acceptance 5; facts/replay.md R1, R5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runner.bundle.reader import open_attempt
from runner.gate.exchange import Response
from tests.reproduce.live_provider import LiveProvider, Play
from tests.run.conftest import Place

WORDS = "Das Konto «auditor» ist ungeklärt — unresolved ✓ 😀."
KEY = "sk-ant-real-0123456789abcdef"


def says(message_id: str = "msg_live", **more: Any) -> dict[str, Any]:
    """A reply of text with characters of two, three and four bytes."""
    return {"message": {"id": message_id, "content": [{"type": "text", "text": WORDS}]}, **more}


def fails(status: int, kind: str, **headers: str) -> dict[str, Any]:
    """An error of the provider's."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return {"error": {"status": status, "type": kind, "message": "busy", "headers": named}}


PLAYS: dict[str, list[Play]] = {
    "plain": [Play(says())],
    "bytes": [Play(says(), chunk_bytes=1)],
    "torn": [Play(says(), line_ends=True)],
    "gzip": [Play(says(), gzipped=True, chunk_bytes=7)],
    "pings": [Play(says(), pings=True)],
    "cut": [Play(says(), ending="cut"), Play(says("msg_again"))],
    "reset": [Play(says(), ending="reset"), Play(says("msg_again"))],
    "overload": [
        Play(says(cut_after_event=2, error_event={"type": "overloaded_error", "message": "busy"})),
        Play(says("msg_again")),
    ],
    "wait": [Play(fails(529, "overloaded_error", retry_after="1")), Play(says("msg_again"))],
    "limited": [Play(fails(429, "rate_limit_error", retry_after_ms="20")), Play(says("msg_again"))],
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One recording of each case from the live upstream, over TLS; the provider is gone afterwards."""
    base = tmp_path_factory.mktemp("live")
    place = Place(base / "fixtures", base / "attempts")
    for name in ("scripts", "skills", "recipes"):
        (place.folder / name).mkdir(parents=True)
    place.skill("workflow")
    for name in PLAYS:
        place.case(name, [], invocation="slash", task=f"Say it for case-{name}.")
    (base / "key").write_text(KEY)
    provider = LiveProvider(base, PLAYS)
    try:
        options = ("--base-url", provider.url, "--key-file", str(base / "key"), "--ca-file", str(provider.ca_file))
        answer = place.run(*PLAYS, "--provider", "anthropic", "--jobs", "2", *options)
    finally:
        provider.close()
    assert answer.object["summary"]["started"] == len(PLAYS), answer.stderr
    assert all(KEY.encode() in head for head in provider.heads)
    assert sum(map(len, provider.sent.values())) == len(provider.heads)
    paths = {row["fixture"]: Path(row["path"]) for row in answer.object["attempts"]}
    for name, path in paths.items():
        answers, sent = responses(path), provider.sent[name]
        assert len(answers) == len(sent), name
        for given, body in zip(answers, sent, strict=True):
            assert given.body == body or (name == "reset" and body.startswith(given.body)), name
    return paths


@pytest.fixture(scope="module")
def reproduced(recorded: dict[str, Path]) -> dict[str, dict[str, Any]]:
    """Each recording run again, by one command."""
    place = Place(Path("/nonexistent"), Path("/nonexistent"))
    answer = place.hermeval("reproduce", "--json", *map(str, recorded.values()))
    by_path = {row["path"]: row for row in answer.object["results"]}
    return {name: by_path[str(path)] for name, path in recorded.items()}


def responses(path: Path) -> list[Response]:
    """What the provider answered, in the order of the requests."""
    inference = [exchange for exchange in open_attempt(path).exchanges() if exchange.kind == "inference"]
    return [exchange.response for exchange in inference if exchange.response is not None]


@pytest.mark.parametrize("name", PLAYS)
def test_an_awkward_answer_is_recorded_and_comes_back(
    name: str, recorded: dict[str, Path], reproduced: dict[str, dict[str, Any]]
) -> None:
    """The record holds the provider's own bytes, in whatever form they came; the CLI does the same again on them, and every exchange is served once."""
    row, answers = reproduced[name], responses(recorded[name])
    assert row["verdict"] in ("exact", "normalised"), row.get("differences") or row.get("error")
    assert row["first_difference"] is None
    assert row["claims"]["results"] == "held"
    assert row["requests"]["served"] == len(answers) >= len(PLAYS[name])


def test_the_recordings_are_of_the_kinds_that_they_say(recorded: dict[str, Path]) -> None:
    """The cases are not all the same: compression, line ends, pings, a cut, an error in the stream, a time to wait are really there."""
    first = {name: responses(path)[0] for name, path in recorded.items()}
    assert first["gzip"].body.startswith(b"\x1f\x8b")
    assert ("content-encoding", "gzip") in first["gzip"].headers
    assert b"\r\n\r\n" in first["torn"].body
    assert b"event: ping" in first["pings"].body
    assert b"event: error" in first["overload"].body
    assert [first[name].ending for name in ("plain", "cut", "reset")] == ["complete", "cut", "cut"]
    assert (first["wait"].status, ("retry-after", "1") in first["wait"].headers) == (529, True)
    assert (first["limited"].status, ("retry-after-ms", "20") in first["limited"].headers) == (429, True)
    outputs = {name: open_attempt(path).part("output.txt").decode() for name, path in recorded.items()}
    assert outputs == dict.fromkeys(PLAYS, WORDS)
