"""Attempts made without a CLI: a slash-loaded skill, one tool call, an answer; any text in any place."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.assess import assess, parse_transcript
from runner.bundle.reader import open_attempt
from runner.fixture import parse_fixture
from runner.gate.exchange import Exchange, Refusal, Request, Response
from runner.gate.prices import load_prices
from runner.grade.answers import CheckResult, DiagnosticResult
from runner.grade.assertions import Criterion
from runner.grade.evaluation import Evaluation, Inputs, save_evaluation
from runner.grade.subject import Effort
from runner.kept import Evidence, save
from runner.plan import Plan, Provider, build_plan, sandbox_spec
from runner.report.bounds import Bounds, bounds_for
from runner.report.gather import view_attempt
from runner.report.view import AttemptView
from runner.run_facts import GateFacts, RunFacts
from runner.skills import read_tree
from sandbox.collect import Entry, Workspace
from sandbox.walk import Omission

TOOLS: dict[str, Any] = {
    "schema_version": 1,
    "system": "x86_64-linux",
    "agent": {
        "nar_sha256": "sha256-tree",
        "claude": {"version": "2.1.332", "nar_sha256": "sha256-cli"},
        "node": {"version": "24.1.0", "nar_sha256": "sha256-node"},
    },
}


@dataclass(frozen=True)
class Story:
    """What a made attempt holds; every text may be anything."""

    fixture: str = "made-case"
    answer: str = "auditor: unresolved"
    tool: str = "Bash"
    given: Any = field(default_factory=lambda: {"command": "ls"})
    result: str = "a file"
    stderr: bytes = b""
    criterion: str = "Keeps the account unresolved."
    entries: tuple[Entry, ...] = ()
    omitted: tuple[Omission, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    target: str = "/v1/files"
    model: str = "claude-sonnet-5-5"
    system_name: str = "Debian GNU/Linux 12 (bookworm)"
    skill_ran: bool = True
    setup_error: str = ""
    extra_lines: bytes = b""
    number: int = 0
    duration_us: int = 1_200_000


@dataclass(frozen=True)
class Workshop:
    """Makes attempts in a directory."""

    directory: Path

    def attempt(self, story: Story | None = None, **changes: Any) -> Path:
        """Write an attempt and return its path."""
        told = story or Story(**changes)
        (self.directory / "tree" / "cf").mkdir(parents=True, exist_ok=True)
        text = "---\nname: cf\ndescription: x\n---\n# Work\n\nDo it.\n"
        (self.directory / "tree" / "cf" / "SKILL.md").write_text(text)
        tree = read_tree(self.directory / "tree")
        source = json.dumps(
            {
                "id": told.fixture,
                "synthetic": True,
                "profile": "artifact",
                "skill": "cf",
                "invocation": "slash",
                "input": {"role": "auditor"},
                "rubric": [{"id": "kept", "criterion": told.criterion}],
            }
        ).encode()
        fixture = parse_fixture(source, told.fixture)
        plan = build_plan(
            fixture=fixture,
            tree=tree,
            provider=Provider(kind="scripted", script="a", script_sha256="0" * 64),
            toolchain=TOOLS,
        )
        transcript, exchanges = _record(told, plan)
        run = RunFacts.model_validate(
            {"exit_status": 0}
            if not told.setup_error
            else {"setup": {"step": "sandbox-start", "code": "sandbox-setup-failed", "message": told.setup_error}}
        )
        gate = GateFacts(mode="first-party", upstream="scripted", requests=2, refused=len(told.refusals))
        assessment = assess(
            plan=plan,
            unit_texts={"body": "# Work\n\nDo it."},
            transcript=parse_transcript(transcript),
            exchanges=exchanges,
            run=run,
            gate=gate,
            toolchain=TOOLS,
        )
        evidence = Evidence(
            plan=plan,
            fixture_source=source,
            tree=tree,
            skill_files={"cf/SKILL.md": text.encode()},
            spec=sandbox_spec(plan, rootfs="host", system=()),
            rootfs={"kind": "host", "pinned": False, "identity": {"pretty_name": told.system_name}},
            toolchain=TOOLS,
            transcript=transcript,
            stderr=told.stderr,
            exchanges=exchanges,
            workspace=Workspace(told.entries, told.omitted),
            run=run,
            gate=gate,
            assessment=assessment,
            observations={"kernel": "6.1", "number": told.number, "duration_us": told.duration_us},
        )
        return save(evidence, self.directory, real_key=None).path

    def evaluate(self, path: Path, directory: Path | None = None, **changes: Any) -> Path:
        """Write an evaluation beside an attempt, or into ``directory``."""
        attempt = open_attempt(path)
        inputs = Inputs(
            output_sha256="0" * 64,
            fixture_sha256="3" * 64,
            skill_sha256="4" * 64,
            profile="artifact",
            profile_sha256="5" * 64,
            modules_sha256="1" * 64,
            driver_sha256="2" * 64,
        )
        fields: dict[str, Any] = {
            "attempt_id": attempt.id,
            "attempt_format": 2,
            "fixture": attempt.manifest.fixture,
            "verdict": "pass",
            "message": "all 2 checks and 1 criteria are met",
            "inputs": inputs,
            "grader": {"nar_sha256": "sha256-g", "promptfoo": {"version": "0.1", "nar_sha256": "sha256-p"}},
            "checks": (CheckResult("output-present", True, "there is one"), CheckResult("second", True, "so it is")),
            "criteria": (Criterion("kept", "Keeps the account unresolved.", True, "it does"),),
            "effort": Effort(turns=2, requests=2, tool_calls=1, cost_usd=0.0008, duration_s=1.2),
            **changes,
        }
        return save_evaluation(Evaluation(**fields), path, directory)

    def failing(self, path: Path, reason: str = "the role is gone") -> Path:
        """Write an evaluation that fails on one check."""
        return self.evaluate(
            path,
            verdict="fail",
            message="not met: role-preserved",
            checks=(CheckResult("output-present", True, "there is one"), CheckResult("role-preserved", False, reason)),
            diagnostics=(DiagnosticResult("d-1", "call-recovery", "warning", reason, (0,)),),
        )

    def view(self, path: Path, number: int = 1, bounds: Bounds | None = None) -> AttemptView:
        """Return what a page shows of an attempt."""
        return view_attempt(path, number, bounds or bounds_for(1), load_prices())


def _record(told: Story, plan: Plan) -> tuple[bytes, tuple[Exchange, ...]]:
    """Return a transcript and the exchanges that go with it."""
    base = plan.unit.base_dir
    tags = f"<command-message>cf</command-message>\n<command-name>/cf</command-name>\n<command-args>{plan.prompt}</command-args>"
    loaded = [{"type": "text", "text": f"Base directory for this skill: {base}\n\n# Work\n\nDo it."}]
    asked = [{"role": "user", "content": [{"type": "text", "text": tags}, *(loaded if told.skill_ran else [])]}]
    call = {"type": "tool_use", "id": "toolu_1", "name": told.tool, "input": told.given}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": told.result}
    answer = {"type": "text", "text": told.answer}
    later = [*asked, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    replay = tags if told.skill_ran else "/cf do it"
    events = [
        {"type": "system", "subtype": "init", "model": told.model, "claude_code_version": "2.1.332", "skills": ["cf"]},
        _user(replay, isReplay=True),
        _assistant("msg_1", told.model, call),
        _user([result]),
        _assistant("msg_2", told.model, answer),
        {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "terminal_reason": "completed",
            "stop_reason": "end_turn",
            "result": told.answer,
            "num_turns": 2,
            "total_cost_usd": 0.0008,
        },
    ]
    lines = [json.dumps(event).encode() + b"\n" for event in events]
    exchanges = [
        _exchange(1, asked, _message("msg_1", told.model, call), plan),
        *(
            Exchange(
                seq=2 + at,
                kind="refused",
                from_cli=False,
                request=Request(method="GET", target=told.target),
                response=Response(status=404),
                refusal=refusal,
            )
            for at, refusal in enumerate(told.refusals)
        ),
    ]
    exchanges.append(_exchange(len(exchanges) + 1, later, _message("msg_2", told.model, answer), plan))
    return told.extra_lines + b"".join(lines), tuple(exchanges)


def _user(content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": content}, "parent_tool_use_id": None, **more}


def _assistant(message_id: str, model: str, block: Mapping[str, Any]) -> dict[str, Any]:
    message = {"id": message_id, "role": "assistant", "model": model, "content": [block]}
    return {"type": "assistant", "message": message, "parent_tool_use_id": None}


def _message(message_id: str, model: str, block: Mapping[str, Any]) -> bytes:
    usage = {"input_tokens": 100, "output_tokens": 20}
    stop = "tool_use" if block["type"] == "tool_use" else "end_turn"
    return json.dumps(
        {"type": "message", "id": message_id, "model": model, "content": [block], "stop_reason": stop, "usage": usage}
    ).encode()


def _exchange(seq: int, messages: Sequence[Any], answer: bytes, plan: Plan) -> Exchange:
    return Exchange(
        seq=seq,
        kind="inference",
        session=plan.session_id,
        from_cli=True,
        request=Request(
            method="POST",
            target="/v1/messages?beta=true",
            body=json.dumps({"model": "claude-sonnet-5-5", "messages": messages}).encode(),
        ),
        response=Response(status=200, headers=(("content-type", "application/json"),), body=answer),
        arrived_us=seq * 100_000,
        ended_us=seq * 100_000 + 4_000,
    )
