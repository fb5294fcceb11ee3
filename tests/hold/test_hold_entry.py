"""The program behind hermeval-eval.socket: what it takes for a request, and one request served from end to end without systemd."""

from __future__ import annotations

import base64
import contextlib
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ci.runner import request as asked
from ci.runner.request import Request, RequestInvalid, command_line, parse_request
from runner.grade.judge_plan import DEFAULT_TIMEOUT_S
from runner.plan import RunLimits
from tests.run.conftest import ROOT

RUN: dict[str, Any] = {
    "schema_version": 1,
    "do": "run",
    "fixtures": ["a"],
    "files": [{"path": "a.json", "content": "e30=", "executable": True}],
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ["schema_version", "do", "fixtures", "files", "provider", "launch", "model", "max_usd", "timeout_s", "repeat"]
ENTRY = ROOT / "ci" / "runner" / "entry.py"
SUBMIT = ROOT / "ci" / "runner" / "submit.py"


def parse(**changes: Any) -> Request:
    return parse_request(json.dumps({**RUN, **changes}).encode())


# -- the parser


def test_a_full_request_is_read() -> None:
    """Every field has its place, and those left out have the defaults of the command."""
    request = parse(
        provider="anthropic",
        launch="lean",
        model="sonnet",
        max_usd="0.5",
        timeout_s=60,
        repeat=3,
        grade=False,
        judge=False,
    )
    assert request == Request(
        "run",
        ("a",),
        (asked.File("a.json", b"{}", True),),
        "anthropic",
        "lean",
        "sonnet",
        Decimal("0.5"),
        60,
        3,
        False,
        False,
    )
    assert parse() == Request("run", ("a",), (asked.File("a.json", b"{}", True),))
    assert parse_request(b'{"schema_version":1,"do":"doctor"}') == Request("doctor")


@settings(max_examples=300)
@given(st.binary(max_size=300) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_give_a_request_or_the_one_declared_error(data: bytes) -> None:
    """Nothing else comes out of the parser, whatever goes in."""
    with contextlib.suppress(RequestInvalid):
        assert isinstance(parse_request(data), Request)


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(FIELDS), JSON, min_size=1, max_size=3))
def test_a_request_with_any_values_is_a_request_or_the_one_declared_error(changes: dict[str, Any]) -> None:
    """Near misses of a good request are tried too; what is taken has no word that could be an option."""
    try:
        request = parse_request(json.dumps({**RUN, **changes}).encode())
    except RequestInvalid:
        return
    words = command_line(request, "/h", "/g", Decimal(5), Path("/f"), Path("/o"))
    assert all(not name.startswith("-") for name in request.fixtures)
    assert words[-len(request.fixtures) - 1] == "--" if request.do == "run" else words == ["/h", "doctor", "--json"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[" * 100_000,
        b'{"schema_version":' + b"1" * 5_000 + b"}",
        b'{"schema_version":1,"do":"doctor","do":"doctor"}',
        b'{"schema_version":NaN,"do":"doctor"}',
        b'{"schema_version":true,"do":"doctor"}',
        b'{"schema_version":1,"do":"doctor","x":1}',
        b'\xff{"schema_version":1,"do":"doctor"}',
        b'{"schema_version":1,"do":"doctor"}{}',
    ],
    ids=[
        "nothing",
        "deep",
        "endless integer",
        "twice",
        "NaN",
        "true is no 1",
        "unknown field",
        "not UTF-8",
        "two documents",
    ],
)
def test_what_is_no_strict_json_is_refused(data: bytes) -> None:
    """The usual ways to make two readers see two things, or one reader none."""
    with pytest.raises(RequestInvalid):
        parse_request(data)


@pytest.mark.parametrize(
    "changes",
    [
        {"fixtures": []},
        {"fixtures": ["--help"]},
        {"fixtures": ["../a"]},
        {"fixtures": ["a"] * 51},
        {"model": "-x"},
        {"model": "a b"},
        {"max_usd": "1e9"},
        {"max_usd": "-1"},
        {"max_usd": 2},
        {"repeat": 0},
        {"repeat": True},
        {"provider": "recorded"},
        {"base_url": "https://elsewhere.invalid"},
        {"key_file": "/etc/shadow"},
    ],
    ids=lambda changes: json.dumps(changes)[:40],
)
def test_a_value_that_could_be_more_than_a_value_is_refused(changes: dict[str, Any]) -> None:
    """No option, path, address or exponent gets in; what the command has and this does not, is no field."""
    with pytest.raises(RequestInvalid):
        parse(**changes)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../x",
        "a/../b",
        "a//b",
        "./a",
        "a/",
        "a\nb",
        "a\0b",
        "\ud800",
        "x" * 241,
        "a/" * 16 + "a",
        7,
        None,
    ],
    ids=repr,
)
def test_a_path_that_is_not_plain_is_refused(path: object) -> None:
    """A file lands below the request's own folder or nowhere; a plain path with spaces and letters of any script is taken."""
    with pytest.raises(RequestInvalid):
        parse(files=[{"path": path, "content": ""}])
    assert (
        parse(files=[{"path": "skills/Prüfung 1/SKILL.md", "content": ""}]).files[0].path == "skills/Prüfung 1/SKILL.md"
    )


@pytest.mark.parametrize(
    "files",
    [
        [{"path": "a", "content": ""}, {"path": "a", "content": ""}],
        [{"path": "a", "content": ""}, {"path": "a/b/c", "content": ""}],
        [{"path": "a", "content": "e30"}],
        [{"path": "a", "content": "e3 0="}],
        [{"path": "a", "content": "é"}],
        [{"path": "a"}],
        [{"path": "a", "content": "", "mode": 0o4755}],
        [{"path": str(number), "content": ""} for number in range(2001)],
    ],
    ids=["twice", "file and folder", "padding", "space", "letter", "no content", "mode", "too many"],
)
def test_files_that_contradict_each_other_or_their_form_are_refused(files: list[dict[str, Any]]) -> None:
    """One path is one file; content is base64 to the letter; there are no modes but the executable bit."""
    with pytest.raises(RequestInvalid):
        parse(files=files)


def test_sizes_are_bounded() -> None:
    """A request over the bound is refused before it is parsed; files that come to more than theirs when decoded, too."""
    with pytest.raises(RequestInvalid) as caught:
        parse_request(b" " * (asked.MAX_REQUEST + 1))
    assert caught.value.code == "request-too-large"
    half = base64.b64encode(bytes(asked.MAX_CONTENT // 2 + 1)).decode()
    with pytest.raises(RequestInvalid) as caught:
        parse(files=[{"path": "a", "content": half}, {"path": "b", "content": half}])
    assert caught.value.code == "request-too-large"
    assert parse(files=[{"path": "a", "content": half}]).files[0].path == "a"


def test_nobody_spends_more_than_the_unit_says() -> None:
    """The lower of the request's ceiling and the unit's stands in the command; the gate's socket is the only way to the provider."""

    def ceiling(asked: str | None) -> str:
        words = command_line(parse(max_usd=asked, provider="anthropic"), "/h", "/g", Decimal(5), Path("/f"), Path("/o"))
        assert words[words.index("--base-url") + 1] == "unix:///g"
        return words[words.index("--max-usd") + 1]

    assert [ceiling(asked) for asked in ("0.25", "4", "5", "999999", None)] == ["0.25", "4", "5", "5", "2"]


def test_the_worst_case_counts_every_wall_clock() -> None:
    """The request's timeout, else the fixture's, else hermeval's default; a vote for each run that is judged; all of it for each repetition."""
    assert (RunLimits().wall_clock_s, DEFAULT_TIMEOUT_S) == (asked.RUN_S, asked.JUDGE_S)
    fixture = {"worker": {"timeout_s": 1000}, "judge": {"timeout_s": 50}}
    files = [{"path": "a.json", "content": base64.b64encode(json.dumps(fixture).encode()).decode()}]
    around = asked.AROUND_S
    assert asked.worst_case_s(parse(files=files)) == 1000 + 50 + around
    assert asked.worst_case_s(parse(files=files, judge=False, repeat=3)) == 3 * (1000 + around)
    assert asked.worst_case_s(parse(files=files, timeout_s=20)) == 20 + 20 + around
    assert asked.worst_case_s(parse(files=[], fixtures=["a", "b"])) == 2 * (asked.RUN_S + asked.JUDGE_S + around)


def test_only_a_live_request_is_held_to_its_worst_case() -> None:
    """The exact time fits, a second less does not; a scripted request pays nothing."""
    live = parse(provider="anthropic")
    asked.check_fits(live, asked.worst_case_s(live))
    asked.check_fits(parse(), 1)
    with pytest.raises(RequestInvalid) as caught:
        asked.check_fits(live, asked.worst_case_s(live) - 1)
    assert caught.value.code == "request-too-long"


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"[" * 9999, b'{"worker":7}', b'{"worker":{"timeout_s":true}}'],
    ids=["empty", "list", "deep", "number", "truth"],
)
def test_a_fixture_that_cannot_be_read_counts_with_the_defaults(content: bytes) -> None:
    """hermeval refuses it, and says why."""
    files = [{"path": "a.json", "content": base64.b64encode(content).decode()}]
    assert asked.worst_case_s(parse(files=files)) == asked.RUN_S + asked.JUDGE_S + asked.AROUND_S
