"""How the CLI is started: the exact arguments and environment of both settings and both modes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest

from runner.claude.launch import CA_INSIDE, Launch, LaunchSetting, build_launch
from runner.claude.permissions import denies_skill, missing_skill_rules, with_skill_rules

CASES = Path(__file__).resolve().parents[1] / "cases" / "inputs"
KEY = "placeholder-key"


def launch_of(
    setting: LaunchSetting = "stock", mode: Literal["first-party", "base-url"] = "first-party", **changes: Any
) -> Launch:
    given: dict[str, Any] = {
        "prompt": "/cf do\n\u2028\u00e9",
        "session_id": "11111111-2222-4333-8444-555555555555",
        "model": "sonnet",
        "max_usd": "2",
    }
    return build_launch(
        **{
            **given,
            "setting": setting,
            "mode": mode,
            "base_url": "http://127.0.0.1:8080",
            "placeholder_key": KEY,
            **changes,
        }
    )


STOCK_WORDS = """
/opt/claude --print --input-format stream-json --output-format stream-json --verbose --replay-user-messages
--permission-mode bypassPermissions --session-id 11111111-2222-4333-8444-555555555555 --model sonnet --strict-mcp-config --max-budget-usd 2
"""
STOCK_ENV = {
    "ANTHROPIC_API_KEY": KEY,
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "HOME": "/home/eval",
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "TZ": "UTC",
}


def test_stock_is_what_the_design_says() -> None:
    """Stock has print mode, stream-json both ways, replayed messages, bypassed permissions, a ceiling, and no more."""
    launch = launch_of()
    assert list(launch.argv) == STOCK_WORDS.split()
    assert launch.env == {**STOCK_ENV, "NODE_EXTRA_CA_CERTS": CA_INSIDE}


def test_base_url_mode_names_the_listener_and_no_authority() -> None:
    """In base-URL mode the CLI is told the address; in first-party mode never, for it would be another agent."""
    launch = launch_of(mode="base-url")
    assert launch.env == {**STOCK_ENV, "ANTHROPIC_BASE_URL": "http://127.0.0.1:8080"}
    assert "ANTHROPIC_BASE_URL" not in launch_of().env
    assert launch.argv == launch_of().argv


def test_lean_only_adds() -> None:
    """Lean keeps every word and variable of stock, in order, and adds its own list; skills in the home stay."""
    stock, lean = launch_of(), launch_of("lean")
    assert lean.argv[: len(stock.argv)] == stock.argv
    added = list(lean.argv[len(stock.argv) :])
    assert added[:5] == [
        "--setting-sources",
        "user",
        "--tools",
        "Bash,Read,Write,Edit,Skill",
        "--no-session-persistence",
    ]
    settings = json.loads(added[added.index("--settings") + 1])
    assert settings["disableAllHooks"] is True
    assert set(settings["enabledPlugins"].values()) == {False}
    assert stock.env.items() <= lean.env.items()
    assert {
        "CLAUDE_CODE_DISABLE_BUNDLED_SKILLS",
        "CLAUDE_CODE_MAX_RETRIES",
        "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK",
    } <= lean.env.keys()


def test_stdin_is_one_ascii_line() -> None:
    """The prompt is one stream-json user message on one line, whatever characters are in it."""
    stdin = launch_of().stdin
    assert stdin.endswith(b"\n")
    assert stdin.count(b"\n") == 1
    assert stdin.isascii()
    assert json.loads(stdin) == {"type": "user", "message": {"role": "user", "content": "/cf do\n\u2028\u00e9"}}


def test_home_is_seeded_with_a_fixed_device_id() -> None:
    """The one file in the home pins the device id, which stands in every request."""
    assert {path: json.loads(content) for path, content in launch_of().home_files.items()} == {
        ".claude.json": {"userID": "0" * 64, "hasCompletedOnboarding": True}
    }


def test_ceiling_and_schema_are_optional() -> None:
    """Without a ceiling the flag is absent; with a schema it is handed over as canonical JSON."""
    assert "--max-budget-usd" not in launch_of(max_usd=None).argv
    argv = launch_of(output_schema={"type": "object", "a": 1}).argv
    assert argv[argv.index("--json-schema") + 1] == '{"a":1,"type":"object"}'


def test_denied_skill_stays_denied() -> None:
    """A setting that denies the skill reaches the CLI as it is, and nothing allows the skill beside it."""
    launch = launch_of(permissions={"allow": (), "deny": ("Skill(workflow)",)}, skills=("workflow",))
    settings = json.loads(launch.argv[launch.argv.index("--settings") + 1])
    assert settings == {"permissions": {"deny": ["Skill(workflow)"]}}
    assert launch.notes == ("the settings deny Skill(workflow)",)
    assert "--settings" not in launch_of().argv


def test_allow_list_gets_the_skill_under_test() -> None:
    """An allow list without the skill would refuse it, so its rule is added, and said (case S03)."""
    launch = launch_of(permissions={"allow": ("Read",)}, skills=("workflow",))
    settings = json.loads(launch.argv[launch.argv.index("--settings") + 1])
    assert settings == {"permissions": {"allow": ["Read", "Skill(workflow)"]}}
    assert launch.notes


def test_case_s03_policy_lacks_the_skill() -> None:
    """S03: the saved policy names no skill; that is found, and mended without touching its other rules."""
    policy = json.loads((CASES / "S03.settings.json").read_text())["permissions"]
    assert missing_skill_rules(policy, ("cf",)) == ("cf",)
    rules, notes = with_skill_rules(policy, ("cf",))
    assert rules == {"defaultMode": "dontAsk", "allow": ["Read", "Bash(ls:*)", "Skill(cf)"]}
    assert notes == ("allowed Skill(cf), which the settings did not name",)
    assert missing_skill_rules(rules, ("cf",)) == ()


@pytest.mark.parametrize("rule", ["Skill", "Skill(cf)"])
def test_general_and_exact_rules_count(rule: str) -> None:
    """A rule for all skills or for this one settles it; a rule for a skill that only begins alike does not."""
    assert missing_skill_rules({"allow": (rule,)}, ("cf",)) == ()
    assert denies_skill({"deny": (rule,)}, "cf")
    assert missing_skill_rules({"allow": ("Skill(cf-generate)",)}, ("cf",)) == ("cf",)
    assert not denies_skill({"deny": ("Skill(cf-generate)",)}, "cf")
