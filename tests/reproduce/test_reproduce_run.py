"""``reproduce`` with the real CLI: the same bits come back, and one changed byte anywhere is found and named (issue 3, acceptance 3 and 4)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.bundle.reader import Attempt
from tests.reproduce.conftest import edit_exchange, edit_json, rewrite
from tests.run.conftest import Answer, Place, replies, text, tool


@pytest.fixture
def reproduce(place: Place) -> Callable[..., Answer]:
    """Run ``hermeval reproduce --json``."""
    return lambda *paths: place.hermeval("reproduce", "--json", *map(str, paths))


def test_recorded_attempts_come_back(recorded: dict[str, Path], reproduce: Callable[..., Answer]) -> None:
    """Slash and direct cases are exact, but for the budget note that the CLI words as it books; a routing case, for whose prompt the CLI draws an id, is normalised."""
    answer = reproduce(*recorded.values())
    assert answer.code == 0, answer.stdout
    results = {Path(row["path"]).name.rsplit("-", 1)[0]: row for row in answer.object["results"]}
    assert set(results) == {"bash", "missing-account", "slash-cf", "workflow-routing"}
    assert results["slash-cf"]["verdict"] == "exact"
    assert results["workflow-routing"]["verdict"] == "normalised"
    assert {"cch", "prompt-id"} <= set(results["workflow-routing"]["rules"]) <= {"cch", "prompt-id", "budget"}
    for name in ("bash", "missing-account"):
        assert set(results[name]["rules"]) <= {"cch", "budget"}
    assert all(row["first_difference"] is None for row in results.values())


def test_a_recording_of_faults_comes_back(place: Place, reproduce: Callable[..., Answer]) -> None:
    """A provider error that was retried and a cut stream are served again as they were; the run concludes the same error or answer."""
    rules: list[dict[str, Any]] = [
        {
            "when": {"lane": "main", "nth": 1},
            "reply": {"error": {"status": 529, "type": "overloaded_error", "message": "busy"}},
        },
        {"when": {"lane": "main", "nth": 2}, "reply": text()},
    ]
    place.case("retried", rules, invocation="slash")
    place.case("cut", [{"reply": {**text(), "cut_after_event": 3}, "times": None}], invocation="slash")
    rows = [place.run("retried").row, place.run("cut", "--launch", "lean").row]
    assert [row["outcome"]["code"] for row in rows] == [None, "provider-error"]
    answer = reproduce(*(row["path"] for row in rows))
    assert all(row["verdict"] in ("exact", "normalised") for row in answer.object["results"]), answer.stdout


def _response(old: bytes, new: bytes) -> Callable[[Attempt], dict[str, Any]]:
    def alter(attempt: Attempt) -> dict[str, Any]:
        last = [exchange for exchange in attempt.exchanges() if exchange.kind == "inference"][-1]
        assert last.response is not None
        assert old in last.response.body
        body = last.response.body.replace(old, new)
        response = last.response.model_copy(update={"body": body, "chunks": (len(body),)})
        count = sum(exchange.kind == "inference" for exchange in attempt.exchanges())
        return {"exchanges": edit_exchange(count, response=response)}

    return alter


def _request(old: bytes, new: bytes) -> Callable[[Attempt], dict[str, Any]]:
    def alter(attempt: Attempt) -> dict[str, Any]:
        last = [exchange for exchange in attempt.exchanges() if exchange.kind == "inference"][-1]
        assert old in last.request.body
        request = last.request.model_copy(update={"body": last.request.body.replace(old, new)})
        count = sum(exchange.kind == "inference" for exchange in attempt.exchanges())
        return {"exchanges": edit_exchange(count, request=request)}

    return alter


def _plan(alter: Callable[[dict[str, Any]], None]) -> Callable[[Attempt], dict[str, Any]]:
    return lambda attempt: {"parts": edit_json(attempt, "plan.json", alter)}


def _prompt(plan: dict[str, Any]) -> None:
    plan["prompt"] = plan["prompt"].replace("auditor", "auditos")
    plan["launch"]["stdin"] = plan["launch"]["stdin"].replace("auditor", "auditos")


def _cli(record: dict[str, Any]) -> None:
    record["agent"]["claude"]["version"] = "2.1.333"


def _part(name: str, old: bytes, new: bytes) -> Callable[[Attempt], dict[str, Any]]:
    return lambda attempt: {"parts": {name: attempt.part(name).replace(old, new)}}


CHANGES: dict[str, tuple[Callable[[Attempt], dict[str, Any]], int, str]] = {
    "skill": (_part("skill-tree/workflow/SKILL.md", b"# Work", b"# Wort"), 2, "plan-mismatch"),
    "prompt": (_plan(_prompt), 2, "plan-mismatch"),
    "fixture": (_part("fixture.json", b"auditor", b"auditos"), 2, "plan-mismatch"),
    "toolchain": (lambda attempt: {"parts": edit_json(attempt, "toolchain.json", _cli)}, 2, "toolchain-mismatch"),
    "tool-result": (_request(b'"content":"kept"', b'"content":"kepT"'), 1, "request"),
    "response": (_response(b"unresolved", b"unresolveD"), 1, "transcript"),
    "output": (_part("output.txt", b"unresolved", b"unresolveD"), 1, "output"),
    "workspace": (_part("workspace/0", b"kept", b"kepT"), 1, "workspace"),
    "nothing-recorded": (
        lambda attempt: {"exchanges": lambda given: tuple(one for one in given if one.kind != "inference")},
        2,
        "no-exchanges",
    ),
    "one-more": (
        lambda attempt: {"exchanges": lambda given: (*given, given[-1].model_copy(update={"seq": given[-1].seq + 1}))},
        1,
        "requests",
    ),
    "one-missing": (lambda attempt: {"exchanges": lambda given: given[:-1]}, 1, "request"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_one_changed_thing_is_never_a_match(
    name: str, opened: Callable[[str], Attempt], tmp_path: Path, reproduce: Callable[..., Answer]
) -> None:
    """An attempt altered in one place and made consistent again is refused or differs, and the place is named."""
    alter, code, place = CHANGES[name]
    attempt = opened("bash")
    path = rewrite(attempt, tmp_path, **alter(attempt))
    answer = reproduce(path)
    (row,) = answer.object["results"]
    assert answer.code == code, answer.stdout
    if code == 2:
        assert (row["verdict"], row["error"]["code"]) == ("error", place)
    else:
        assert (row["verdict"], row["first_difference"]["place"]) == ("diverged", place)


def test_a_live_recording_comes_back(
    place: Place, serve_provider: Callable[..., Any], reproduce: Callable[..., Answer], tmp_path: Path
) -> None:
    """What was recorded from the live upstream reproduces without it and without its key."""
    rules = replies(tool("Skill", "toolu_1", skill="workflow"), text())
    place.case("live", rules)
    key = tmp_path / "key"
    key.write_text("sk-ant-real-0123456789abcdef")
    provider = serve_provider(rules)
    row = place.run("live", "--provider", "anthropic", "--base-url", provider.url, "--key-file", str(key)).row
    provider.close()
    answer = reproduce(row["path"])
    assert answer.code == 0, answer.stdout
    assert json.loads(answer.stdout)["results"][0]["verdict"] == "normalised"
