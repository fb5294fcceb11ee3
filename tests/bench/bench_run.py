"""What we add to the CLI: a run from its frozen plan to its classified outcome, beside the bare CLI on the same scripted server (acceptance 9).

Three figures of ours: in a process of its own, where the gate and the rules are still to be imported (a command with one fixture); in a warm process (every further run of a
batch); and the latter in first-party mode.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from tests.bench.figures import Figure, interleave, table, versus
from tests.bench.rig import Mode, bare_cli, child_environment, load, make_job, run_marked, this_machine

TITLE = "a run, from plan frozen to outcome classified (missing-account, stock, 2 requests)"
_STEPS = ("planned", "started", "first-event", "ended", "classified", "kept")


def main(runs: int = 15) -> None:
    """Print the figures."""
    machine = this_machine()
    marks: dict[str, list[dict[str, float]]] = {}

    def took(name: str, taken: dict[str, float]) -> float:
        marks.setdefault(name, []).append(taken)
        return taken["classified"] - taken["planned"]

    def own_process(mode: Mode) -> float:
        argv = [sys.executable, "-P", "-m", "tests.bench.one_run", mode]
        done = subprocess.run(argv, env=child_environment(), stdout=subprocess.PIPE, check=True, cwd="/")
        return took(f"{mode}, own process", json.loads(done.stdout))

    with tempfile.TemporaryDirectory(prefix="hermeval-out-") as name, bare_cli(machine) as bare:

        def here(mode: Mode) -> float:
            return took(f"{mode}, warm process", run_marked(make_job(mode, Path(name)), machine))

        figures = interleave(
            {
                "bare CLI": bare.run,
                "hermeval, base-url, warm process": lambda: here("base-url"),
                "hermeval, base-url, own process": lambda: own_process("base-url"),
                "hermeval, first-party, warm process": lambda: here("first-party"),
                "hermeval, first-party, own process": lambda: own_process("first-party"),
            },
            runs=runs,
            warmup=min(1, runs - 1),
        )
    table(f"{TITLE}; {load()}", list(figures.values()))
    bare_figure, *ours = figures.values()
    for figure in ours:
        if "base-url" in figure.name:
            versus(figure, bare_figure, at_most_ratio=1.10, at_most_more_s=0.100)
        else:
            versus(figure, figures[figure.name.replace("first-party", "base-url")])
    for name, taken in marks.items():
        steps(name, taken[-runs:])


def steps(name: str, taken: list[dict[str, float]]) -> None:
    """Print the median of each step of our runs."""
    between = [
        Figure(f"{before} to {after}", tuple(marks[after] - marks[before] for marks in taken))
        for before, after in pairwise(_STEPS)
    ]
    print(f"  {name}: " + ", ".join(f"{figure.name} {figure.median * 1e3:.0f}" for figure in between) + " (ms)")


if __name__ == "__main__":
    main()
