"""Replay where no namespace can be had: graded alike in Nix's build sandbox, with a record of it, and refused everywhere else."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from runner.cli.replay import open_host
from runner.replay import ReplaySettings, replay
from runner.toolchain import default_cache_root
from sandbox.process import Host, find_host
from sandbox.surroundings import against_nix_build, read_surroundings
from tests.run.conftest import ROOT


@pytest.mark.parametrize("name", ["slash", "negative-control", "mcp"])
def test_bare_and_confined_grading_agree_but_for_the_record(tmp_path: Path, name: str) -> None:
    """The same checks, criteria and verdict; the evaluation and the row say ``inner: none`` for the one and nothing for the other."""
    host = find_host()
    settings = ReplaySettings(cache_root=default_cache_root(os.geteuid(), os.environ), out=tmp_path)
    path = ROOT / "fixtures" / "attempts" / f"{name}.attempt"
    found = {}
    for inner, on in (("namespaces", host), ("none", replace(host, inner="none"))):
        (graded,) = replay([path], on, settings)
        assert graded.saved is not None
        saved = json.loads(graded.saved.read_text())
        assert graded.row.get("inner") == (None if inner == "namespaces" else "none")
        found[inner] = (graded.verdict, saved)
    confined, bare = found["namespaces"], found["none"]
    assert bare[1]["grader"].pop("inner") == "none"
    assert bare == confined


def test_outside_a_build_there_is_no_bare_host() -> None:
    """On an ordinary machine the surroundings prove nothing, and the host has its namespaces or an error."""
    assert against_nix_build(read_surroundings())
    host: Host = open_host()
    assert host.inner == "namespaces"
