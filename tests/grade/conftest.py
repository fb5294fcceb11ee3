"""Saved attempts to grade: one run of the real CLI for the whole session, and well-formed variants of what it left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runner.attempt import Job, Machine, run_attempt
from runner.bundle.reader import open_attempt
from runner.bundle.writer import AttemptContent, write_attempt
from runner.canonical import canonical_json, parse_canonical, sha256_hex
from runner.fixture import load_fixture
from runner.gate.script import parse_script
from runner.gate.upstreams import Upstream
from runner.gate.upstreams.scripted import ScriptedUpstream
from runner.grade.grading import Grader
from runner.plan import PlanOptions, Provider
from runner.toolchain import default_cache_root, load_lock, open_agent
from sandbox.process import Host, find_host

ROOT = Path(__file__).resolve().parents[2]
ANSWER = "auditor: unresolved (no account holds this role)"
RUBRIC = [{"id": "kept", "criterion": "Keeps the account unresolved."}]
INPUT = {"required_role": "auditor", "accounts": [{"name": "mara.voss", "roles": ["editor"]}]}


@dataclass(frozen=True)
class Saved:
    """The attempts of the session's run."""

    measured: Path
    """The skill ran by a Skill call, a reference was read, the answer is ``ANSWER``."""
    errored: Path
    """The skill did not run."""


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """Run two fixtures with the real CLI and the scripted provider."""
    folder, out = tmp_path_factory.mktemp("fixtures"), tmp_path_factory.mktemp("attempts")
    for name in ("scripts", "skills/workflow/references", "recipes"):
        (folder / name).mkdir(parents=True)
    skill = folder / "skills" / "workflow"
    (skill / "SKILL.md").write_text(
        "---\nname: workflow\ndescription: Handles access tickets.\n---\n# Work\n\nFollow the reference.\n"
    )
    (skill / "references" / "provision.md").write_text("# Provision\n\nKeep a missing account unresolved.\n")
    read = {"file_path": "/home/eval/.claude/skills/workflow/references/provision.md"}
    scripts = {
        "measured": [_tool("Skill", "toolu_1", {"skill": "workflow"}), _tool("Read", "toolu_2", read), _text(ANSWER)],
        "errored": [_text(ANSWER)],
    }
    for name, replies in scripts.items():
        case = {
            "id": name,
            "synthetic": True,
            "profile": "missing-account",
            "skill": "workflow",
            "input": INPUT,
            "rubric": RUBRIC,
        }
        (folder / f"{name}.json").write_text(json.dumps(case))
        rules = [{"when": {"lane": "main", "nth": number + 1}, "reply": reply} for number, reply in enumerate(replies)]
        (folder / "scripts" / f"{name}.json").write_text(json.dumps({"schema_version": 1, "replies": rules}))
    paths = {}
    machine = Machine(find_host(), open_agent(load_lock(), default_cache_root(os.geteuid(), os.environ)))
    for name in scripts:
        fixture = load_fixture(folder / f"{name}.json")
        script_file = folder / "scripts" / f"{name}.json"
        provider = Provider(kind="scripted", script=name, script_sha256=sha256_hex(script_file.read_bytes()))
        upstream = ScriptedUpstream(parse_script(script_file.read_bytes(), name))
        makes: Callable[[], Upstream] = partial(_same, upstream)
        job = Job(fixture, PlanOptions(), folder / "skills", folder / "recipes", provider, makes, out)
        paths[name] = run_attempt(job, machine, tell=lambda step, facts: None, cancelled=threading.Event()).kept.path
    return Saved(paths["measured"], paths["errored"])


def hermeval(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``hermeval ARGUMENTS`` as a process of its own."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "runner.cli", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@dataclass(frozen=True)
class Remade:
    """Makes attempts whose digests add up, from the parts of one that was run."""

    base: Path
    directory: Path

    def __call__(
        self,
        *,
        fixture: Mapping[str, Any] | None = None,
        source: bytes | None = None,
        parts: Mapping[str, bytes | None] | None = None,
        summary: Mapping[str, Any] | None = None,
        number: int | None = None,
        keep_exchanges: bool = True,
        plan: bool = True,
    ) -> Path:
        """Write a variant. ``fixture`` changes members of the fixture (and the plan's digest of it, with ``plan``); a part of None is left out; ``number`` makes the id another."""
        attempt = open_attempt(self.base)
        held = {name: attempt.part(name) for name in attempt.part_names if not name.startswith("exchanges")}
        if fixture is not None or source is not None:
            held["fixture.json"] = (
                source or json.dumps({**json.loads(held["fixture.json"]), **(fixture or {})}).encode()
            )
            if plan:
                planned: Any = parse_canonical(held["plan.json"])
                planned["fixture"]["sha256"] = sha256_hex(held["fixture.json"])
                held["plan.json"] = canonical_json(planned)
        if number is not None:
            observed: Any = parse_canonical(held["observations.json"])
            held["observations.json"] = canonical_json({**observed, "number": number})
        for name, content in (parts or {}).items():
            held.pop(name, None)
            if content is not None:
                held[name] = content
        made = AttemptContent(
            attempt.manifest.fixture,
            attempt.manifest.summary if summary is None else summary,
            dict(held),
            attempt.exchanges() if keep_exchanges else (),
        )
        return write_attempt(self.directory, made)


@pytest.fixture
def remade(saved: Saved, tmp_path: Path) -> Remade:
    """Make variants of the measured attempt in a directory of the test's own."""
    return Remade(saved.measured, tmp_path / "remade")


@pytest.fixture(scope="session")
def host() -> Host:
    """This host, with bubblewrap on it."""
    return find_host()


@pytest.fixture(scope="session")
def cache_root() -> Path:
    """The installed tools, which grading needs: without them every test here fails."""
    return default_cache_root(os.geteuid(), os.environ)


@pytest.fixture(scope="module")
def grader(host: Host, cache_root: Path) -> Iterator[Grader]:
    """The real Promptfoo and the profile host, started once for a module's tests."""
    with Grader(host, cache_root=cache_root) as made:
        yield made


def _same(upstream: ScriptedUpstream) -> ScriptedUpstream:
    return upstream


def _text(words: str) -> dict[str, Any]:
    return {"message": {"content": [{"type": "text", "text": words}]}}


def _tool(name: str, call_id: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"message": {"content": [{"type": "tool_use", "id": call_id, "name": name, "input": arguments}]}}
