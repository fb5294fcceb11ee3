"""The worker as a Promptfoo provider: ``call_api(prompt, options, context)`` (A12).

Boundary: reads files and the environment, runs one worker. Not here: the run itself (runner/attempt.py), the metadata's names (runner/grade/metadata.py).
Rules: a run that could not be measured is an ``error`` and never an ``output``, so that no grader sees it (A2); nothing is raised. An error's text holds no word that Promptfoo
takes for a live rate limit, since it would call again, and pay again (case G05). Promptfoo imports this file by its path, so everything of ours is imported late.

Settings (``config`` of the provider in a Promptfoo file):
  fixture        path of a fixture; the prompt is then not used. Without it the prompt is the case's input, as ``{"prompt": …}``
  skill          skill name or ``<skill>/references/<file>.md`` (required without ``fixture``)
  skills         the skills folder (default: ``skills`` beside the fixture, else the shipped one)
  invocation     routing, slash or direct (default: slash for a skill name, direct for a reference)
  require_skill  false for a scenario that tests the fallback on purpose: a run without the skill is then an output (default: true)
  provider       ``anthropic`` (default; key from ``key_file`` or ANTHROPIC_API_KEY) or ``scripted`` with ``script``
  script, key_file, base_url, ca_file, launch, gate_mode, model, max_usd, timeout
  out            where the attempt is kept (default: below the user's state directory)
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.attempt import Attempted, Job
    from runner.envelope import Fixture

_ROOT = Path(__file__).resolve().parent.parent
_KEYS = frozenset(
    (
        *("fixture", "skill", "skills", "invocation", "require_skill", "provider", "script", "key_file", "base_url"),
        *("ca_file", "launch", "gate_mode", "model", "max_usd", "timeout", "out"),
    )
)
_ADDED_BY_PROMPTFOO = frozenset(("basePath", "pythonExecutable", "workers", "timeout"))
_SKILL_CODES = frozenset(("skill-failed", "skill-absent", "skill-unproven", "skill-ambiguous", "witnesses-disagree"))
_LIVE_LIMIT = re.compile(r"429|rate.?limit|too many requests|quota", re.IGNORECASE)


def call_api(prompt: str, options: Mapping[str, Any], context: Mapping[str, Any]) -> dict[str, Any]:
    """Run the worker once; return ``output`` or ``error``, with ``metadata``, ``cost`` and ``tokenUsage``."""
    if str(_ROOT) not in sys.path:
        sys.path.insert(0, str(_ROOT))
    from runner.errors import RunnerError

    config = options.get("config") or {}
    try:
        return _answer(_run(prompt, config), require_skill=config.get("require_skill", True))
    except RunnerError as error:
        return _failed(error.code, error.message, {"hint": error.hint, "where": error.where})
    except Exception as bug:  # noqa: BLE001  a bug is an error of the run, never an answer
        return _failed("internal", f"{type(bug).__name__}: {bug}", {})


def _run(prompt: str, config: Mapping[str, Any]) -> Attempted:
    """Check the settings, run, keep the attempt. Raises: RunnerError."""
    from runner.attempt import run_attempt
    from runner.cli.batch import open_machine
    from runner.errors import SettingInvalid

    unknown = sorted(set(config) - _KEYS - _ADDED_BY_PROMPTFOO)
    if unknown:
        raise SettingInvalid(
            f"unknown setting {unknown[0]!r}", where="config", hint=f"known: {', '.join(sorted(_KEYS))}"
        )
    if not isinstance(config.get("require_skill", True), bool):
        raise SettingInvalid("require_skill is true or false", where="config.require_skill")
    environ = dict(os.environ)  # noqa: TID251  an entry point reads the environment
    machine = open_machine(environ)
    return run_attempt(
        _job(prompt, config, environ), machine, tell=lambda step, facts: None, cancelled=threading.Event()
    )


def _job(prompt: str, config: Mapping[str, Any], environ: Mapping[str, str]) -> Job:
    from runner.attempt import Job
    from runner.cli.run import default_out
    from runner.fixture import load_fixture
    from runner.plan import PlanOptions

    path = config.get("fixture")
    fixture = load_fixture(Path(path)) if path else _fixture_of(prompt, config)
    folder = Path(path).parent if path else _ROOT / "fixtures"
    key, provider, upstream = _source(config, folder, fixture.script_name, environ)
    timeout = config.get("timeout")
    return Job(
        fixture=fixture,
        options=PlanOptions(
            launch=config.get("launch", "stock"),
            mode=config.get("gate_mode", "first-party"),
            model=config.get("model"),
            max_usd=None if config.get("max_usd") is None else str(config["max_usd"]),
            timeout_s=int(timeout) if timeout is not None else None,
        ),
        skills=Path(config.get("skills") or folder / "skills"),
        recipes=folder / "recipes",
        provider=provider,
        upstream=upstream,
        out=Path(config["out"]) if config.get("out") else default_out(dict(environ)),
        real_key=key,
    )


def _fixture_of(prompt: str, config: Mapping[str, Any]) -> Fixture:
    """Return the case that a prompt makes. Raises: FixtureInvalid, SettingInvalid."""
    from runner.errors import SettingInvalid
    from runner.fixture import parse_fixture

    skill = config.get("skill")
    if not isinstance(skill, str):
        raise SettingInvalid("which skill is under test?", where="config.skill", hint="name a skill, or a fixture")
    case = {
        "id": "promptfoo",
        "synthetic": True,
        "profile": "artifact",
        "skill": skill,
        "input": {"prompt": prompt},
        "rubric": [{"id": "elsewhere", "criterion": "Promptfoo grades this answer."}],
        "invocation": config.get("invocation") or ("direct" if "/" in skill else "slash"),
    }
    return parse_fixture(json.dumps(case).encode("ascii"), "promptfoo")


def _source(config: Mapping[str, Any], folder: Path, script_name: str, environ: Mapping[str, str]) -> Any:
    from types import SimpleNamespace

    from runner.cli.provider import make_source, read_key, require_listener

    choice = SimpleNamespace(
        provider=config.get("provider", "anthropic"),
        folder=folder,
        script=_path(config, "script"),
        base_url=config.get("base_url"),
        key_file=_path(config, "key_file"),
        ca_file=_path(config, "ca_file"),
        environ=environ,
    )
    key = read_key(choice) if choice.provider == "anthropic" else None
    source = make_source(choice, script_name, key)
    require_listener(choice)
    return (key, *source)


def _path(config: Mapping[str, Any], name: str) -> Path | None:
    return Path(config[name]) if config.get(name) else None


def _answer(attempted: Attempted, *, require_skill: bool) -> dict[str, Any]:
    row, assessment = attempted.row, attempted.assessment
    outcome = assessment.outcome
    excused = not require_skill and outcome.code in _SKILL_CODES and assessment.answer is not None
    metadata = _metadata(attempted)
    if outcome.kind == "measured" or excused:
        if excused:
            metadata["skill_excused"] = outcome.code
            metadata["unscored_output"] = None
        answer: dict[str, Any] = {"output": assessment.answer or "", "metadata": metadata}
    else:
        answer = _failed(outcome.code or "internal", outcome.message, metadata)
    if row["cost_usd"] is not None:
        answer["cost"] = row["cost_usd"]
    return answer


def _metadata(attempted: Attempted) -> dict[str, Any]:
    """Return what A12 lists, and the run's numbers under the names of Promptfoo's own Claude provider."""
    from runner.bundle.reader import open_attempt
    from runner.grade.metadata import metadata_of, read_seen

    row = attempted.row
    transcript = attempted.assessment.case.transcript
    seen = read_seen(open_attempt(attempted.kept.path).part("transcript.jsonl"))
    names = (
        *(
            "skill_state",
            "witnesses",
            "skills_invoked",
            "skill_call_inputs",
            "unscored_output",
            "duration_s",
            "cost_usd",
        ),
        *("unparsed_lines", "events_seen", "last_event_type", "notes", "outcome", "toolchain", "plan_sha256", "model"),
    )
    return {
        **metadata_of(seen, transcript.skill_calls),
        **{name: row[name] for name in names},
        "sandbox": {"kind": "bubblewrap", "rootfs": row["rootfs"], "gate_mode": row["gate_mode"]},
        "attempt": {"id": attempted.kept.id, "path": str(attempted.kept.path)},
    }


def _failed(code: str, message: str, metadata: dict[str, Any]) -> dict[str, Any]:
    """Return an error; its whole message stands in the metadata, where Promptfoo reads no limit into it."""
    text = f"{code}: {message}"
    if _LIVE_LIMIT.search(text):
        text = f"{code}: see metadata.error.message"
    return {"error": text, "metadata": {**metadata, "error": {"code": code, "message": message}}}
