"""The worker as a Promptfoo provider: output or error with metadata, as Promptfoo calls it (A12)."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.grade.conftest import ANSWER, ROOT

Call = Callable[..., dict[str, Any]]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    """Call the provider as Promptfoo does, loaded from its path, with the scripted upstream and a skill ``workflow``."""
    spec = importlib.util.spec_from_file_location("promptfoo_provider", ROOT / "runner" / "promptfoo_provider.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    skill = tmp_path / "skills" / "workflow"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(
        "---\nname: workflow\ndescription: Handles tickets.\n---\n# Work\n\nKeep it open.\n"
    )

    def made(*replies: dict[str, Any], prompt: str = "What of the auditor?", **config: Any) -> dict[str, Any]:
        rules = [{"when": {"lane": "main", "nth": number + 1}, "reply": reply} for number, reply in enumerate(replies)]
        script = tmp_path / "script.json"
        script.write_text(json.dumps({"schema_version": 1, "replies": rules}))
        settings = {
            "skill": "workflow",
            "skills": str(tmp_path / "skills"),
            "provider": "scripted",
            "script": str(script),
            "out": str(tmp_path / "out"),
            "basePath": str(tmp_path),
            **config,
        }
        answer = module.call_api(prompt, {"id": "hermeval", "config": settings}, {"vars": {"x": "y"}})
        assert isinstance(answer, dict)
        json.dumps(answer)
        assert ("output" in answer) != ("error" in answer)
        return answer

    return made


def text(words: str = ANSWER) -> dict[str, Any]:
    return {"message": {"content": [{"type": "text", "text": words}]}}


def test_a_measured_run_is_an_output(call: Call, tmp_path: Path) -> None:
    """The answer comes with skill state, invoked skills, duration, sandbox, cost, and the provider's own metadata names; the attempt is kept."""
    answer = call(text())
    assert answer["output"] == ANSWER
    assert answer["cost"] > 0
    metadata = answer["metadata"]
    assert (metadata["skill_state"], metadata["skills_invoked"]) == ("ran", ["workflow"])
    assert metadata["skillCalls"][0]["source"] == "slash"
    assert metadata["unscored_output"] is None
    assert metadata["duration_s"] > 0
    assert metadata["sandbox"]["kind"] == "bubblewrap"
    assert Path(metadata["attempt"]["path"]).parent == tmp_path / "out"


def test_a_run_without_the_skill_is_an_error_unless_that_is_asked_for(call: Call) -> None:
    """Where the skill did not run the answer is kept as unscored_output; with require_skill false it is the output, and the metadata says so (A2)."""
    answer = call(text(), invocation="routing")
    assert answer["error"].startswith("skill-absent: ")
    assert answer["metadata"]["unscored_output"] == ANSWER
    assert answer["metadata"]["skill_state"] == "absent"
    excused = call(text(), invocation="routing", require_skill=False)
    assert excused["output"] == ANSWER
    assert (excused["metadata"]["skill_state"], excused["metadata"]["skill_excused"]) == ("absent", "skill-absent")


def test_other_errors_are_not_excused_and_look_like_no_live_limit(call: Call) -> None:
    """A provider's error stays one with require_skill false, and its text holds nothing that Promptfoo would call again for (G05)."""
    limited = {"error": {"status": 400, "type": "invalid_request_error", "message": "rate limit 429 reached"}}
    answer = call(limited, require_skill=False)
    assert answer["error"] == "provider-error: see metadata.error.message"
    assert "429" in answer["metadata"]["error"]["message"]
    assert answer["metadata"]["duration_s"] > 0


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"colour": "red"}, "setting-invalid"),
        ({"require_skill": "no"}, "setting-invalid"),
        ({"skill": None}, "setting-invalid"),
        ({"skill": "work flow"}, "fixture-invalid"),
        ({"script": "/nonexistent.json"}, "input-missing"),
        ({"provider": "anthropic", "script": None, "key_file": "/nonexistent"}, "key-missing"),
        ({"fixture": "/nonexistent.json"}, "input-missing"),
    ],
)
def test_unusable_settings_are_errors_and_raise_nothing(call: Call, config: dict[str, Any], code: str) -> None:
    """Whatever is wrong with the settings comes back as an error with its code, before anything is paid."""
    answer = call(text(), **config)
    assert answer["error"].startswith(f"{code}: ")


def test_a_fixture_can_be_named(call: Call) -> None:
    """With ``fixture`` its own input and script are used, and the prompt is not."""
    fixture = ROOT / "fixtures" / "missing-account.json"
    answer = call(fixture=str(fixture), script=None, skills=None, skill=None, prompt="not used")
    assert "unresolved" in answer["output"]
