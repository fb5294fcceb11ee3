"""The job that needs the internet is ready: valid, without secrets, every action pinned by commit."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tests.nix.conftest import ROOT

WORKFLOW = ROOT / ".github" / "workflows" / "nix.yml"


def test_every_action_is_pinned_by_commit_and_nothing_can_be_written() -> None:
    """Each ``uses`` names forty digits and, for people, a version; the token may only read; no secret is named."""
    text = WORKFLOW.read_text()
    used = re.findall(r"uses: (\S+)(.*)", text)
    assert len(used) >= 2
    for action, comment in used:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), action
    assert "secrets." not in text
    loaded: dict[str, Any] = yaml.safe_load(text)
    assert loaded["permissions"] == {"contents": "read"}


def test_both_systems_are_checked_with_the_sandbox_on() -> None:
    """One job for each system of the flake; Nix's sandbox is on without a fall-back, and user namespaces are allowed before."""
    job = yaml.safe_load(WORKFLOW.read_text())["jobs"]["flake"]
    assert {entry["system"] for entry in job["strategy"]["matrix"]["include"]} == {"x86_64-linux", "aarch64-linux"}
    names = [step.get("uses", step.get("run", "")) for step in job["steps"]]
    allowed = next(number for number, name in enumerate(names) if "apparmor_restrict_unprivileged_userns=0" in name)
    checked = next(number for number, name in enumerate(names) if name.startswith("nix flake check"))
    assert allowed < checked
    settings = next(
        step["with"]["extra_nix_config"] for step in job["steps"] if "install-nix-action" in step.get("uses", "")
    )
    assert {"sandbox = true", "sandbox-fallback = false"} <= set(settings.splitlines())
