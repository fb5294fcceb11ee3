"""Start-up of the command: `hermeval --help` beside a bare interpreter."""

from __future__ import annotations

import subprocess
import sys

from tests.bench.figures import aim, interleave, table, versus

TITLE = "hermeval --help (whole process)"


def main(runs: int = 15) -> None:
    """Print the figures."""

    def call(*arguments: str) -> None:
        subprocess.run([sys.executable, "-P", *arguments], check=True, stdout=subprocess.DEVNULL)

    figures = interleave({"python -c pass": lambda: call("-c", "pass"), "hermeval --help": lambda: call("-m", "runner.cli", "--help")}, runs=runs)
    table(TITLE, list(figures.values()))
    aim(figures["hermeval --help"], 0.200)
    versus(figures["hermeval --help"], figures["python -c pass"])


if __name__ == "__main__":
    main()
