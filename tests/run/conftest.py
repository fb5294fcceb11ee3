"""A folder of fixtures made by a test, and the command as people start it: a process of its own, with the real CLI, bwrap and gate."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FINAL = "The auditor account is unresolved."


@dataclass(frozen=True)
class Answer:
    """What a command left."""

    code: int
    stdout: str
    stderr: str

    @property
    def object(self) -> dict[str, Any]:
        """The one JSON object on stdout."""
        value: dict[str, Any] = json.loads(self.stdout)
        return value

    @property
    def row(self) -> dict[str, Any]:
        """The only attempt's row."""
        (row,) = self.object["attempts"]
        assert isinstance(row, dict)
        return row


def text(words: str = FINAL) -> dict[str, Any]:
    """A reply that ends the turn."""
    return {"message": {"content": [{"type": "text", "text": words}]}}


def tool(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    """A reply that calls one tool."""
    return {"message": {"content": [{"type": "tool_use", "id": call_id, "name": name, "input": arguments}]}}


def replies(*given: dict[str, Any]) -> list[dict[str, Any]]:
    """Main-thread replies in order."""
    return [{"when": {"lane": "main", "nth": number + 1}, "reply": reply} for number, reply in enumerate(given)]


@dataclass(frozen=True)
class Place:
    """A fixtures folder, an attempts folder, and the command."""

    folder: Path
    out: Path

    def case(self, name: str, rules: Sequence[Mapping[str, Any]], **fields: Any) -> str:
        """Write a fixture and its script; returns its id."""
        fixture: dict[str, Any] = {
            "id": name,
            "synthetic": True,
            "profile": "artifact",
            "skill": "workflow",
            "references": [],
            "input": {"role": "auditor", "facts": ["No matching account exists."]},
            "rubric": [{"id": "kept", "criterion": "Keeps the account unresolved."}],
            **fields,
        }
        (self.folder / f"{name}.json").write_text(json.dumps(fixture))
        (self.folder / "scripts" / f"{name}.json").write_text(json.dumps({"schema_version": 1, "replies": list(rules)}))
        return name

    def judge(self, name: str, *rules: Mapping[str, Any], met: bool = True) -> None:
        """Write the scripted judge of a case whose rubric is ``case``'s own; unless ``rules`` say otherwise it answers ``met``."""
        said = json.dumps({"criteria": [{"id": "kept", "met": met, "reason": "So it says."}]})
        script = {"schema_version": 1, "replies": list(rules) or replies(text(said))}
        (self.folder / "scripts" / f"{name}.judge.json").write_text(json.dumps(script))

    def skill(self, name: str, body: str = "# Work\n\nFollow the reference.\n", front: str = "", **files: str) -> None:
        """Write a skill; further keyword arguments are references by their stem."""
        home = self.folder / "skills" / name
        home.mkdir(parents=True, exist_ok=True)
        (home / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Handles access tickets.\n{front}---\n{body}")
        for stem, content in files.items():
            (home / "references").mkdir(exist_ok=True)
            (home / "references" / f"{stem}.md").write_text(content)

    def command(self, *arguments: str, env: Mapping[str, str] | None = None) -> list[str]:
        """The command line of ``hermeval ARGUMENTS``."""
        return [sys.executable, "-P", "-m", "runner.cli", *arguments]

    def hermeval(self, *arguments: str, env: Mapping[str, str] | None = None) -> Answer:
        """Run ``hermeval ARGUMENTS``."""
        done = subprocess.run(
            self.command(*arguments),
            env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def run(self, *arguments: str, env: Mapping[str, str] | None = None, grade: bool = False) -> Answer:
        """Run ``hermeval run --json ARGUMENTS`` on this folder; ungraded, unless ``grade``."""
        return self.hermeval(
            "run",
            *(() if grade else ("--no-grade",)),
            "--json",
            "--fixtures",
            str(self.folder),
            "--out",
            str(self.out),
            *arguments,
            env=env,
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty place with the skill ``workflow`` and its reference ``provision``."""
    folder = tmp_path / "fixtures"
    for name in ("scripts", "skills", "recipes"):
        (folder / name).mkdir(parents=True)
    made = Place(folder, tmp_path / "attempts")
    made.skill("workflow", provision="# Provision\n\nKeep a missing account unresolved.\n")
    return made


@pytest.fixture
def serve_provider() -> Iterator[Callable[..., Any]]:
    """Start scripted providers on loopback ports: the live upstream's counterpart."""
    from tests.run.provider import LoopbackProvider

    started: list[LoopbackProvider] = []

    def start(rules: Sequence[Mapping[str, Any]], **options: Any) -> LoopbackProvider:
        provider = LoopbackProvider(rules, **options)
        started.append(provider)
        return provider

    yield start
    for provider in started:
        provider.close()
