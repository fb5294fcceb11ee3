"""How the CLI is started: arguments, environment, standard input and the seeded home (DESIGN "Decided", facts/claude-cli.md §4).

Boundary: pure. Not here: the prompt (runner/prompt.py), the sandbox around it (runner/confine.py).
Rules: ``stock`` is what users have, but for an empty home; ``lean`` adds what makes runs small and equal; a judge is lean and has nothing at hand. Every difference between
them stands in this file. The key inside is a placeholder, always. Nothing here depends on the machine: paths are those of the fixed inside view.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from runner.claude.permissions import with_skill_rules

LaunchSetting = Literal["stock", "lean"]

CLAUDE_INSIDE = "/opt/claude"
HOME_INSIDE = "/home/eval"
CA_INSIDE = "/etc/ssl/extra-ca.pem"
"""The run's own authority in first-party mode. The agent can see the path, so it names neither us nor an evaluation."""

HOME_SEED = {"hasCompletedOnboarding": True, "userID": "0" * 64}
"""``~/.claude.json``: a fixed device id, which the CLI would make at random else and send in every request."""

_STOCK_ENV = {
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "HOME": HOME_INSIDE,
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "TZ": "UTC",
}
_LEAN_ENV = {
    "CLAUDE_AGENT_SDK_DISABLE_BUILTIN_AGENTS": "1",
    "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    "CLAUDE_CODE_DISABLE_BUNDLED_SKILLS": "1",
    "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",
    "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS": "1",
    "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS": "1",
    # A cut stream would make the CLI ask again without streaming and run a tool twice (case N07). Users' agents do that too, so stock keeps it.
    "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
    "CLAUDE_CODE_MAX_RETRIES": "0",
    "DISABLE_AUTO_COMPACT": "1",
}
_JUDGE_ENV = {
    # A judgement is short; the gate reserves this many tokens of output at list price before each request.
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "16000",
    "CLAUDE_CODE_MAX_RETRIES": "2",
}
_STREAMS = (
    CLAUDE_INSIDE,
    "--print",
    "--input-format",
    "stream-json",
    "--output-format",
    "stream-json",
    "--verbose",
    "--replay-user-messages",
)
_LEAN_SETTINGS: dict[str, object] = {
    "disableAllHooks": True,
    "enabledPlugins": {
        "cc-plugin-agents-md@builtin": False,
        "cc-plugin-plugin-authoring@builtin": False,
        "cc-plugin-privacy@builtin": False,
    },
}


@dataclass(frozen=True)
class Launch:
    """Everything that the CLI is given."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    stdin: bytes
    """One stream-json user message and a line end; then the pipe is closed (case D14)."""
    home_files: Mapping[str, bytes]
    """Path below the home to content; copied in, never bound (case D08)."""
    notes: tuple[str, ...] = field(default=())
    """What a person should know of the settings that were written."""


def build_launch(
    *,
    prompt: str,
    setting: LaunchSetting,
    session_id: str,
    model: str,
    max_usd: str | None,
    mode: Literal["first-party", "base-url"],
    base_url: str,
    placeholder_key: str,
    permissions: Mapping[str, object] | None = None,
    output_schema: Mapping[str, object] | None = None,
    skills: Sequence[str] = (),
    mcp_servers: Mapping[str, str] | None = None,
    programs: str | None = None,
) -> Launch:
    """Return the start of the CLI for one prompt.

    ``max_usd`` None leaves the CLI without a ceiling of its own (the gate has one). ``permissions`` (``allow``, ``deny``) goes to ``--settings``, with a rule
    for each of ``skills`` (case S03); ``base_url`` matters in base-URL mode only.
    ``mcp_servers`` gives names their addresses (streamable HTTP), for ``--mcp-config``; ``programs`` is a directory of programs for the agent, first in its PATH.
    """
    settings: dict[str, object] = dict(_LEAN_SETTINGS) if setting == "lean" else {}
    notes: tuple[str, ...] = ()
    if permissions is not None:
        rules, notes = with_skill_rules(permissions, skills)
        settings["permissions"] = rules
    argv = [*_STREAMS, "--permission-mode", "bypassPermissions"]
    argv += ["--session-id", session_id, "--model", model, "--strict-mcp-config"]
    if mcp_servers:
        servers = {name: {"type": "http", "url": url} for name, url in mcp_servers.items()}
        argv += ["--mcp-config", _json({"mcpServers": servers})]
    if max_usd is not None:
        argv += ["--max-budget-usd", max_usd]
    if output_schema is not None:
        argv += ["--json-schema", _json(output_schema)]
    if setting == "lean":
        # Not the empty list of facts/claude-cli.md §4: it would drop the skills, which lie in the home here.
        argv += ["--setting-sources", "user", "--tools", "Bash,Read,Write,Edit,Skill", "--no-session-persistence"]
    if settings:
        argv += ["--settings", _json(settings)]
    env = {**_STOCK_ENV, **(_LEAN_ENV if setting == "lean" else {}), **_address(mode, base_url, placeholder_key)}
    if programs is not None:
        env["PATH"] = f"{programs}:{env['PATH']}"
    return Launch(
        argv=tuple(argv),
        env=dict(sorted(env.items())),
        stdin=_message(prompt),
        home_files={".claude.json": _json(HOME_SEED).encode("ascii")},
        notes=notes,
    )


def build_judge_launch(
    *,
    blocks: Sequence[str],
    system_prompt: str,
    session_id: str,
    model: str,
    mode: Literal["first-party", "base-url"],
    base_url: str,
    placeholder_key: str,
) -> Launch:
    """Return the start of the CLI for a judge (B12): no tool, no MCP server, no skill, no settings, no word about its surroundings.

    ``--bare`` leaves out date, system and directory, so that the request holds ``system_prompt`` and ``blocks`` and nothing of the machine. The last block must be
    words of ours: the CLI reads the last one as the prompt and would put files into the request for every ``@path`` in it; the earlier ones go out as they are (both measured).
    """
    argv = [*_STREAMS, "--bare", "--permission-mode", "default"]
    argv += [
        "--session-id",
        session_id,
        "--model",
        model,
        "--strict-mcp-config",
        "--setting-sources",
        "",
        "--tools",
        "",
    ]
    argv += ["--no-session-persistence", "--settings", _json(_LEAN_SETTINGS), "--system-prompt", system_prompt]
    env = {**_STOCK_ENV, **_LEAN_ENV, **_JUDGE_ENV, **_address(mode, base_url, placeholder_key)}
    return Launch(
        argv=tuple(argv),
        env=dict(sorted(env.items())),
        stdin=_message([{"type": "text", "text": block} for block in blocks]),
        home_files={".claude.json": _json(HOME_SEED).encode("ascii")},
    )


def _address(mode: Literal["first-party", "base-url"], base_url: str, placeholder_key: str) -> dict[str, str]:
    where = {"NODE_EXTRA_CA_CERTS": CA_INSIDE} if mode == "first-party" else {"ANTHROPIC_BASE_URL": base_url}
    return {"ANTHROPIC_API_KEY": placeholder_key, **where}


def _message(content: str | Sequence[Mapping[str, str]]) -> bytes:
    message = {"type": "user", "message": {"role": "user", "content": content}}
    return json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":"))
