"""Valid samples: the repository's own fixtures, attempts and cases.

Boundary: reads the checkout. Not here: what is done to them (mutate.py).
Rules: no sample is so large that most changes would fall on filler.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MAX_SAMPLE = 12_000


@cache
def attempts() -> tuple[Any, ...]:
    from runner.bundle.reader import open_attempt
    from runner.bundle.version1 import is_version1

    paths = sorted((ROOT / "fixtures" / "attempts").glob("*.attempt"))
    return tuple(open_attempt(path) for path in paths if not is_version1(path))


@cache
def files(pattern: str) -> tuple[bytes, ...]:
    found = [path.read_bytes()[:MAX_SAMPLE] for path in sorted(ROOT.glob(pattern)) if path.is_file()]
    assert found, f"no samples: {pattern}"
    return tuple(found)


@cache
def parts(*names: str) -> tuple[bytes, ...]:
    return tuple(attempt.part(name)[:MAX_SAMPLE] for attempt in attempts() for name in names if attempt.has(name))


@cache
def bodies(side: str) -> tuple[bytes, ...]:
    bodies = []
    for attempt in attempts():
        for exchange in attempt.exchanges():
            half = getattr(exchange, side)
            if half is not None and half.body and len(half.body) <= 4 * MAX_SAMPLE:
                bodies.append(half.body)
    return tuple(dict.fromkeys(bodies))[:12]


@cache
def small_requests() -> tuple[bytes, ...]:
    """Requests in the CLI's form, without the long texts of its own."""
    block = {
        "type": "text",
        "text": "Base directory for this skill: /home/eval/.claude/skills/cf\n\nX",
        "cache_control": {"type": "ephemeral"},
    }
    use = {"type": "tool_use", "id": "toolu_1", "name": "Skill", "input": {"skill": "cf"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [block], "is_error": False}
    tool = {
        "name": "Bash",
        "description": "x",
        "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}},
    }
    document = {
        "model": "claude-sonnet-5-5", "max_tokens": 32000, "stream": True, "system": [block], "tools": [tool], "metadata": {"user_id": "u"},
        "messages": [{"role": "user", "content": [block]}, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}],
    }  # fmt: skip
    web = {
        **document,
        "tools": [{"type": "web_search_20250305", "name": "web_search"}],
        "mcp_servers": [{"url": "https://x"}],
    }
    image = {
        **document,
        "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://x"}}]}],
    }
    return tuple(json.dumps(value, separators=(",", ":")).encode() for value in (document, web, image))


@cache
def transcripts() -> tuple[bytes, ...]:
    return (*files("tests/cases/transcripts/*.jsonl"), *parts("transcript.jsonl"))


@cache
def streams() -> tuple[bytes, ...]:
    return bodies("response")


@cache
def skills() -> tuple[bytes, ...]:
    front = b"---\nname: cf\ndescription: 'Codes: fast'\nallowed-tools: [Read, Bash(ls *)]\nargument-hint: >-\n  a\n  b\nmodel: sonnet\ncontext: fork\n---\n# Do\n\nUse $ARGUMENTS and !`date`.\n"
    return (front, b"# no front matter\n", *files("fixtures/skills/*/SKILL.md"), *files("fixtures/recipes/*/SKILL.md"))


@cache
def small_attempts() -> tuple[tuple[str, dict[str, Any], dict[str, bytes]], ...]:
    """Fixture, summary and parts of attempts, the long requests of the CLI cut to what the rules look at."""
    found = []
    for attempt in attempts():
        parts = {name: attempt.part(name) for name in attempt.part_names}
        if sum(map(len, parts.values())) < 1 << 20:
            found.append((attempt.manifest.fixture, dict(attempt.manifest.summary), parts))
    assert found
    found.sort(key=lambda item: sum(map(len, item[2].values())))
    return tuple(found[:3])


@cache
def wire_files() -> tuple[bytes, ...]:
    """Files of exchanges, with short bodies."""
    request = {
        "method": "POST",
        "path": "/v1/messages?beta=true",
        "headers": {"x": "y"},
        "body": json.loads(small_requests()[0]),
    }
    short = [line for data in files("tests/cases/wire/*.jsonl") for line in data.splitlines() if len(line) < 2000]
    return ((json.dumps(request) + "\n").encode() * 2, b"\n".join(dict.fromkeys(short)))
