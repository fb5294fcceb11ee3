"""Start-up of the command: `hermeval --help` beside a bare interpreter."""

from __future__ import annotations

import subprocess
import sys

from tests.bench.figures import aim, interleave, table, versus
from tests.bench.rig import child_environment, load

TITLE = "hermeval --help (whole process)"


def main(runs: int = 15) -> None:
    """Print the figures."""

    def call(*arguments: str) -> None:
        argv = [sys.executable, "-P", *arguments]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, env=child_environment(), cwd="/")

    figures = interleave(
        {"python -c pass": lambda: call("-c", "pass"), "hermeval --help": lambda: call("-m", "runner.cli", "--help")},
        runs=runs,
    )
    table(f"{TITLE}; {load()}", list(figures.values()))
    aim(figures["hermeval --help"], 0.200)
    versus(figures["hermeval --help"], figures["python -c pass"])


if __name__ == "__main__":
    main()
