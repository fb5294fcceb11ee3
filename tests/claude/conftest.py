"""Builders of small transcripts and requests: each test says only what it is about."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.claude.facts import Transcript
from runner.claude.transcript import TranscriptParser
from runner.cli.show import judge_transcript
from runner.gate.exchange import Exchange, Request, Response
from tests.claude.conversation import Row


class Say:
    """Makes events as the CLI writes them, and facts and exchanges of them."""

    def init(self, **fields: Any) -> dict[str, Any]:
        """An init event."""
        return {
            "type": "system",
            "subtype": "init",
            "session_id": "s",
            "model": "m-1",
            "skills": [],
            "mcp_servers": [],
            **fields,
        }

    def result(self, **fields: Any) -> dict[str, Any]:
        """A good result event; a field given as ``...`` is left out."""
        event = {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "terminal_reason": "completed",
            "stop_reason": "end_turn",
            "result": "42 units",
            **fields,
        }
        return {key: value for key, value in event.items() if value is not ...}

    def text(
        self, text: str = "42 units", *, model: str = "m-1", parent: str | None = None, mid: str = "msg_1"
    ) -> dict[str, Any]:
        """An assistant event with one text block."""
        return self.assistant({"type": "text", "text": text}, model=model, parent=parent, mid=mid)

    def assistant(
        self, *blocks: Any, model: str = "m-1", parent: str | None = None, mid: str = "msg_1"
    ) -> dict[str, Any]:
        """An assistant event."""
        message = {"id": mid, "role": "assistant", "model": model, "content": list(blocks)}
        return {"type": "assistant", "message": message, "parent_tool_use_id": parent}

    def call(
        self, call_id: Any, name: str, given: Any, *, parent: str | None = None, mid: str = "msg_1"
    ) -> dict[str, Any]:
        """An assistant event with one tool call."""
        return self.assistant({"type": "tool_use", "id": call_id, "name": name, "input": given}, parent=parent, mid=mid)

    def skill(self, call_id: Any, skill: Any, *, parent: str | None = None) -> dict[str, Any]:
        """A Skill call by name."""
        return self.call(call_id, "Skill", {"skill": skill}, parent=parent)

    def answer(
        self, call_id: Any, content: Any = "Launching skill", *, parent: str | None = None, **fields: Any
    ) -> dict[str, Any]:
        """A user event with one tool result; ``is_error`` goes to the block, other fields to the event."""
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id, "content": content}
        if "is_error" in fields:
            block["is_error"] = fields.pop("is_error")
        return {"type": "user", "message": {"role": "user", "content": [block]}, "parent_tool_use_id": parent, **fields}

    def replay(self, content: Any, **fields: Any) -> dict[str, Any]:
        """A replayed user event."""
        return {
            "type": "user",
            "message": {"role": "user", "content": content},
            "parent_tool_use_id": None,
            "isReplay": True,
            **fields,
        }

    def tags(self, name: str, args: str | None = None) -> str:
        """The command tags of a slash load."""
        tail = "" if args is None else f"\n<command-args>{args}</command-args>"
        return f"<command-message>{name}</command-message>\n<command-name>/{name}</command-name>{tail}"

    def lines(self, *events: Any) -> bytes:
        """Events as stream-json bytes; bytes are taken as they are."""
        return b"".join(event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n" for event in events)

    def parse(self, *events: Any, **settings: Any) -> Transcript:
        """The facts of events."""
        parser = TranscriptParser(**settings)
        parser.feed(self.lines(*events))
        return parser.close()

    def whole(
        self, *between: Any, init: dict[str, Any] | None = None, result: dict[str, Any] | None = None
    ) -> Transcript:
        """The facts of init, events and a good result."""
        return self.parse(init or self.init(), *between, result or self.result())

    def request(self, *messages: Any, seq: int = 1, response: Any = None, **fields: Any) -> Exchange:
        """A main-thread inference exchange with these messages, and a JSON message or a Response as its answer."""
        body = json.dumps({"model": "m-1", "messages": list(messages)}).encode()
        if isinstance(response, dict):
            response = Response(
                status=200, headers=(("content-type", "application/json"),), body=json.dumps(response).encode()
            )
        request = Request(
            method=fields.pop("method", "POST"),
            target=fields.pop("target", "/v1/messages?beta=true"),
            body=fields.pop("body", body),
        )
        return Exchange(seq=seq, kind=fields.pop("kind", "inference"), request=request, response=response, **fields)

    def message(
        self, *blocks: Any, mid: str = "msg_1", stop_reason: str = "end_turn", model: str = "m-1"
    ) -> dict[str, Any]:
        """A whole answer of the provider."""
        return {
            "type": "message",
            "id": mid,
            "role": "assistant",
            "model": model,
            "content": list(blocks),
            "stop_reason": stop_reason,
            "usage": {},
        }

    def user(self, *blocks: Any) -> dict[str, Any]:
        """A user message; texts become text blocks."""
        return {
            "role": "user",
            "content": [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks],
        }


@pytest.fixture
def say() -> Say:
    """The builders."""
    return Say()


@pytest.fixture
def judge(tmp_path: Path) -> Callable[..., Row]:
    """Writes the bytes and judges them."""

    def run(
        transcript: bytes, skill: str | None = None, *, wire: bytes | None = None, status: int | None = None
    ) -> Row:
        path, requests = tmp_path / "t.jsonl", None
        path.write_bytes(transcript)
        if wire is not None:
            requests = tmp_path / "w.jsonl"
            requests.write_bytes(wire)
        row = judge_transcript(path, skill, requests, status, lambda _: None)
        json.dumps(row, allow_nan=False)
        outcome, witnesses = row["outcome"], row["witnesses"]
        if skill is not None and outcome["code"] is not None:
            assert row["output"] is None
        return outcome["kind"], outcome["code"], row["skill_state"], witnesses["transcript"], witnesses["wire"]

    return run
