"""What must never get into a sandbox, a request or an attempt: rubric and expectations, the real key, the runner's environment (B3, DESIGN "The gate"; issue 1, acceptance 6)."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.bundle.reader import Attempt, open_attempt
from runner.gate.settings import GateSettings
from tests.run.conftest import ROOT, Place, replies, text, tool
from tests.run.leftovers import descendants_of

PLACEHOLDER = GateSettings().placeholder_key
KEY = "sk-ant-real-4f1c9a7be02d48d6"
PLACES = "/home/eval /workspace /tmp /etc /opt /dev/shm /run /var"


def canary(name: str) -> str:
    """A word that stands nowhere else."""
    return f"canary-{name}-b7e19c44"


def search_for(*words: str) -> str:
    """A shell command that looks for words in every file, environment and command line that can be read inside, and says where; it does not hold the words itself."""
    lines = ["cd /"]
    for number, word in enumerate(words):
        coded = base64.b64encode(word.encode()).decode()
        lines += [
            f"w=$(echo {coded} | base64 -d)",
            # The searching shell's own variable is its own, not exported; grep's pattern comes from a descriptor.
            f'n=$( (/usr/bin/grep -rlaF -f <(printf %s "$w") {PLACES}; for f in /proc/[0-9]*/environ /proc/[0-9]*/cmdline; do '
            f'/usr/bin/grep -laF -f <(printf %s "$w") $f; done) 2>/dev/null | sort -u)',
            f"printf 'word {number} found in %s places: %s\\n' $(printf %s \"$n\" | grep -c .) \"$(printf %s \"$n\" | tr '\\n' ' ')\"",
        ]
    return "; ".join(lines)


def stored_pieces(attempt: Attempt) -> Iterator[tuple[str, bytes]]:
    """Everything that an attempt holds, piece by piece: its manifest, its parts, and the exchanges once more as values."""
    yield "manifest", attempt.manifest.to_bytes()
    for name in attempt.part_names:
        yield name, attempt.part(name)
    for exchange in attempt.exchanges():
        yield f"exchange {exchange.seq}", exchange.model_dump_json().encode()
        yield f"request body {exchange.seq}", exchange.request.body
        if exchange.response is not None:
            yield f"response body {exchange.seq}", exchange.response.body


def pieces_with(attempt: Attempt, word: str) -> list[str]:
    """The names of the pieces that hold a word."""
    return [name for name, data in stored_pieces(attempt) if word.encode() in data]


def tool_results(attempt: Attempt) -> str:
    """What the tools answered, as the last request holds it."""
    bodies = [exchange.request.body for exchange in attempt.exchanges() if exchange.kind == "inference"]
    found = []
    for message in json.loads(bodies[-1])["messages"]:
        blocks = message["content"] if isinstance(message["content"], list) else []
        found += [json.dumps(block["content"]) for block in blocks if block.get("type") == "tool_result"]
    return "\n".join(found)


@pytest.mark.parametrize("gate_mode", ["first-party", "base-url"])
def test_rubric_and_expectations_are_nowhere_inside_and_in_no_request(place: Place, gate_mode: str) -> None:
    """Canaries of ``rubric`` and ``expect`` are in no file, environment or command line inside, and in the attempt only in the fixture; that of ``input`` is found (B3)."""
    words = [canary(name) for name in ("input", "criterion", "expect")]
    look = tool("Bash", "toolu_2", command=search_for(*words))
    place.case(
        "canaries",
        replies(tool("Skill", "toolu_1", skill="workflow"), look, text()),
        profile="missing-account",
        input={"required_role": "auditor", "fact": words[0]},
        rubric=[{"id": "kept", "criterion": f"Says {words[1]} at the end."}],
        expect={"unresolved_terms": ["unresolved", words[2]]},
    )
    done = place.run("canaries", "--gate-mode", gate_mode)
    assert done.code == 0, done.stderr
    attempt = open_attempt(Path(done.row["path"]))
    results = tool_results(attempt)
    assert "word 0 found in 0" not in results, "the control: what is in the prompt is found in the CLI's files"
    assert "word 0 found in " in results
    assert "word 1 found in 0 places" in results
    assert "word 2 found in 0 places" in results
    assert {"plan.json", "exchange 1"} & set(pieces_with(attempt, words[0])), (
        "the control: a canary in the evidence is seen"
    )
    for word in words[1:]:
        assert pieces_with(attempt, word) == ["fixture.json"]


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """The real key in a file."""
    path = tmp_path / "key"
    path.write_text(KEY + "\n")
    path.chmod(0o600)
    return path


def test_the_real_key_is_in_no_stored_byte_and_no_process(
    place: Place, serve_provider: Callable[..., Any], key_file: Path
) -> None:
    """The provider gets the key and echoes it in text, tool calls and headers; neither the agent nor the attempt nor any process below the runner ever has it."""
    rules = replies(
        tool("Skill", "toolu_1", skill="workflow"),
        tool("Bash", "toolu_2", command="echo KEY-ECHO > /workspace/echo; sleep 0.7; cat /workspace/echo"),
        tool("Bash", "toolu_3", command=search_for(KEY, canary("runner"), PLACEHOLDER)),
        text("The key is KEY-ECHO."),
    )
    provider = serve_provider(rules, echo_key=True)
    place.case("key", replies(text("never used")))
    live = ["--provider", "anthropic", "--base-url", provider.url, "--key-file", str(key_file)]
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "HERMEVAL_CANARY": canary("runner"),
        "ANTHROPIC_API_KEY": canary("other-key-in-runner"),
    }
    argv = place.command(
        "run", "--no-grade", "--json", "--fixtures", str(place.folder), "--out", str(place.out), *live, "key"
    )
    below: list[bytes] = []
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            for pid in [process.pid, *(found.pid for found in descendants_of(process.pid))]:
                below += [read_quietly(f"/proc/{pid}/{name}") for name in ("environ", "cmdline")]
            time.sleep(0.05)
        out, err = process.communicate()
    assert process.returncode == 0, err
    row = json.loads(out)["attempts"][0]
    attempt = open_attempt(Path(row["path"]))

    assert {headers["x-api-key"] for _, headers, _ in provider.requests} == {KEY}, (
        "the control: the provider did get it"
    )
    assert any(canary("runner").encode() in data for data in below), (
        "the control: the runner's own environment was seen"
    )
    assert not any(KEY.encode() in data for data in below)

    assert json.loads(attempt.part("plan.json"))["gate"]["placeholder_key"] == PLACEHOLDER
    assert row["output"] == f"The key is {PLACEHOLDER}."
    results = tool_results(attempt)
    assert "word 0 found in 0 places" in results
    assert "word 1 found in 0 places" in results
    assert "word 2 found in 0 places" not in results, "the control: the placeholder is in the CLI's environment"
    (entry,) = json.loads(attempt.part("workspace.json"))["entries"]
    assert attempt.part(entry["part"]).decode() == PLACEHOLDER + "\n"
    assert json.loads(attempt.part("evidence.json"))["gate"]["key_redactions"] >= 3

    for secret in (KEY, canary("runner"), canary("other-key-in-runner")):
        assert pieces_with(attempt, secret) == []
        assert secret not in out + err
    assert not any(KEY.encode() in path.read_bytes() for path in place.out.rglob("*") if path.is_file())
    assert all(KEY.encode() not in body for _, _, body in provider.requests)


def read_quietly(path: str) -> bytes:
    """Return what can be read."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def test_the_key_of_the_environment_is_used_and_kept_out_too(place: Place, serve_provider: Callable[..., Any]) -> None:
    """With ANTHROPIC_API_KEY in place of a file: the same, and the CLI's own environment holds the placeholder."""
    look = tool("Bash", "toolu_2", command='echo "key $ANTHROPIC_API_KEY"; ' + search_for(KEY))
    provider = serve_provider(replies(tool("Skill", "toolu_1", skill="workflow"), look, text()))
    place.case("key", replies(text("never used")))
    done = place.run("key", "--provider", "anthropic", "--base-url", provider.url, env={"ANTHROPIC_API_KEY": KEY})
    assert done.code == 0, done.stderr
    attempt = open_attempt(Path(done.row["path"]))
    assert {headers["x-api-key"] for _, headers, _ in provider.requests} == {KEY}
    assert f"key {PLACEHOLDER}" in tool_results(attempt)
    assert "word 0 found in 0 places" in tool_results(attempt)
    assert pieces_with(attempt, KEY) == []


def test_the_key_is_in_no_process_that_judges_or_grades(place: Place, serve_provider: Callable[..., Any]) -> None:
    """With the key in the runner's environment and a live judge: neither the supervisors, the judge's CLI, Promptfoo's Node nor the profile host have it in environment or command line, and no file of the run does."""
    said = json.dumps({"criteria": [{"id": "kept", "met": True, "reason": "KEY-ECHO"}]})
    provider = serve_provider(
        [
            {"when": {"lane": "main", "any_contains": "Says so at the end"}, "reply": text(said)},
            {"when": {"lane": "main", "nth": 1}, "reply": tool("Skill", "toolu_1", skill="workflow")},
            {"when": {"lane": "main"}, "reply": text("The key is KEY-ECHO.")},
        ],
        echo_key=True,
    )
    place.case("key", replies(text("never used")), rubric=[{"id": "kept", "criterion": "Says so at the end."}])
    argv = place.command("run", "--json", "--fixtures", str(place.folder), "--out", str(place.out), "key")
    argv += ["--provider", "anthropic", "--base-url", provider.url]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "ANTHROPIC_API_KEY": KEY}
    own: set[bytes] = set()
    below: set[bytes] = set()
    holders: set[bytes] = set()
    copies: dict[int, float] = {}
    with (place.folder / "stderr").open("w+") as err:
        with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=err, text=True) as process:
            while process.poll() is None:
                own.add(read_quietly(f"/proc/{process.pid}/environ"))
                own_command = read_quietly(f"/proc/{process.pid}/cmdline")
                for found in descendants_of(process.pid):
                    command = read_quietly(f"/proc/{found.pid}/cmdline")
                    below.add(command)
                    if KEY.encode() not in read_quietly(f"/proc/{found.pid}/environ") + command:
                        continue
                    if command == own_command:  # forked, and not yet another program: the runner itself for a moment
                        since = copies.setdefault(found.pid, time.monotonic())
                        command = b"" if time.monotonic() - since < 2 else command
                    holders.add(command)
                time.sleep(0.02)
            out, _ = process.communicate()
        err.seek(0)
        told = err.read()
    assert process.returncode == 0, told
    row = json.loads(out)["attempts"][0]
    assert row["criteria"] == [{"id": "kept", "met": True, "reason": PLACEHOLDER}]
    assert {headers["x-api-key"] for _, headers, _ in provider.requests} == {KEY}
    assert sum(b"Says so at the end" in body for _, _, body in provider.requests) == 1, "the judge was asked for real"
    assert any(KEY.encode() in data for data in own), "the control: the runner itself has the key"
    commands = b"\n".join(below)
    for program in (b"/opt/claude", b"driver.mjs", b"host.py", b"supervisor"):
        assert program in commands, f"the control: {program!r} was seen while it ran"
    assert holders <= {b""}
    assert not any(KEY.encode() in path.read_bytes() for path in place.out.rglob("*") if path.is_file())
    assert len(list(place.out.glob("*.attempt"))) == 2
    assert list(place.out.glob("*.evaluation.json"))
    assert KEY not in out + told
