"""One run in a process of its own, as a command makes it: ``python -P -m tests.bench.one_run MODE``. Prints the marks of its steps as JSON. Part of bench_run."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import cast

from tests.bench.rig import Mode, make_job, run_marked, this_machine


def main() -> None:
    """Do it."""
    with tempfile.TemporaryDirectory(prefix="hermeval-one-") as out:
        print(json.dumps(run_marked(make_job(cast(Mode, sys.argv[1]), Path(out)), this_machine())))


if __name__ == "__main__":
    main()
