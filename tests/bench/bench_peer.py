"""A run inside a batch, beside the CLI's own evaluator: ``hermeval run --repeat 10`` and ``claude plugin eval --runs 10`` on the same work (acceptance 9).

The work: the skill ``workflow``, the prompt of the fixture ``workflow-routing``, a reply that calls the skill, a reply that answers. Both are whole commands, their own start
included, divided by the number of runs; both one run at a time, which is both commands' default, and then two at a time. The evaluator gives its agent four tools, so its
requests are smaller than those of our ``stock`` runs; ``lean`` is closer to it. It keeps no evidence and has no sandbox by default. It grades with a regular expression of its own;
our runs are timed without grading, which is a step of its own, and once with the fixture's checks graded by the pinned Promptfoo.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from runner.fixture import load_fixture
from runner.prompt import build_prompt
from tests.bench.figures import interleave, table, versus
from tests.bench.rig import FIXTURES, child_environment, endless, load, serve, this_machine

_FIXTURE = "workflow-routing"
_PLUGIN = "bench"
_FOLDERS = (".claude-plugin", "evals/one/graders")


def make_plugin(directory: Path) -> None:
    """Write the same work as a plugin with one case."""
    for folder in _FOLDERS:
        (directory / folder).mkdir(parents=True)
    shutil.copytree(FIXTURES / "skills" / "workflow", directory / "skills" / "workflow")
    about = {"name": _PLUGIN, "version": "0.0.1", "description": "Synthetic."}
    (directory / ".claude-plugin" / "plugin.json").write_text(json.dumps(about))
    prompt = build_prompt(load_fixture(FIXTURES / f"{_FIXTURE}.json"))
    front = "---\nmax_turns: 10\nallowed_tools: [Read, Glob, Grep, Skill]\n---\n"
    (directory / "evals" / "one" / "prompt.md").write_text(front + prompt + "\n")
    (directory / "evals" / "one" / "graders" / "criteria.md").write_text("---\ntype: regex\npattern: reviewer\n---\n")


def peer_script() -> bytes:
    """Return the fixture's script; inside a plugin the skill has the plugin's name before its own."""
    value = json.loads((FIXTURES / "scripts" / f"{_FIXTURE}.json").read_bytes())
    for rule in value["replies"]:
        for block in rule["reply"]["message"]["content"]:
            if block.get("name") == "Skill":
                block["input"] = {"skill": f"{_PLUGIN}:workflow"}
    return json.dumps(value).encode()


def main(rounds: int = 4, runs: int = 10) -> None:
    """Print the figures."""
    program = this_machine().toolchain.claude_executable
    with tempfile.TemporaryDirectory(prefix="hermeval-peer-") as name, serve(endless(peer_script())) as (gate, port):
        directory = Path(name)
        make_plugin(directory / "plugin")
        (directory / "home").mkdir()
        peer_env = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory / "home"),
            "IS_SANDBOX": "1",
            "ANTHROPIC_API_KEY": "sk-ant-placeholder",
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

        def peer(at_once: int) -> float:
            argv = [str(program), "plugin", "eval", ".", "--trust-plugin", "--runs", str(runs), "--no-publish"]
            argv += ["--ablation", "none", "--concurrency", str(at_once)]
            started = time.perf_counter()
            done = subprocess.run(
                argv,
                cwd=directory / "plugin",
                env=peer_env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=600,
            )
            seconds = time.perf_counter() - started
            assert done.returncode == 0, done.stdout[-1000:]
            return seconds / runs

        def ours(launch: str, at_once: int, grading: str = "--no-grade") -> float:
            out = directory / "out"
            argv = [sys.executable, "-P", "-m", "runner.cli", "run", _FIXTURE, "--gate-mode", "base-url", grading]
            argv += ["--launch", launch, "--repeat", str(runs), "--jobs", str(at_once), "--out", str(out), "--json"]
            started = time.perf_counter()
            done = subprocess.run(
                argv, env=child_environment(), cwd="/", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
            )
            seconds = time.perf_counter() - started
            answer = json.loads(done.stdout)
            assert answer["summary"]["measured"] == runs, answer
            shutil.rmtree(out)
            return seconds / runs

        for at_once in (1, 2):
            variants: dict[str, Callable[[], float]] = {
                "claude plugin eval": lambda: peer(at_once),  # noqa: B023  called in this turn
                "hermeval run, stock": lambda: ours("stock", at_once),  # noqa: B023
                "hermeval run, lean": lambda: ours("lean", at_once),  # noqa: B023
            }
            if at_once == 1 and runs > 1:
                variants["hermeval run, stock, checks graded"] = lambda: ours("stock", 1, "--no-judge")
            figures = interleave(
                dict(variants),
                runs=rounds,
                warmup=min(1, rounds - 1),
            )
            table(f"one run of a batch of {runs}, {at_once} at a time; {load()}", list(figures.values()))
            theirs, *mine = figures.values()
            for figure in mine:
                versus(figure, theirs, at_most_ratio=1.00)
        record = gate.close()
    assert record.unscripted == record.refused == 0, record.ended_by


if __name__ == "__main__":
    main()
