"""``python -P -m tests.bench [--quick] [NAME…]``: runs the benches of those names, or all. ``--quick`` takes the smallest number of rounds: it shows that they work, not how fast anything is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from tests.bench import (
    bench_abuse,
    bench_bundle,
    bench_gate,
    bench_help,
    bench_hold,
    bench_list,
    bench_peer,
    bench_replay,
    bench_reproduce,
    bench_run,
    bench_start,
    bench_transcript,
)

BENCHES: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
    "help": (bench_help.main, lambda: bench_help.main(1)),
    "list": (bench_list.main, lambda: bench_list.main((0, 100), 1)),
    "bundle": (bench_bundle.main, lambda: bench_bundle.main(1, 1)),
    "hold": (bench_hold.main, lambda: bench_hold.main(3)),
    "transcript": (bench_transcript.main, lambda: bench_transcript.main(1, 5, 20)),
    "abuse": (bench_abuse.main, lambda: bench_abuse.main(1, 50)),
    "gate": (bench_gate.main, lambda: bench_gate.main(10)),
    "start": (bench_start.main, lambda: bench_start.main(1, 2)),
    "run": (bench_run.main, lambda: bench_run.main(1)),
    "reproduce": (bench_reproduce.main, lambda: bench_reproduce.main(1)),
    "replay": (bench_replay.main, lambda: bench_replay.main((1, 3), 1)),
    "peer": (bench_peer.main, lambda: bench_peer.main(1, 1)),
}
"""Name → the bench, and its quick form."""


def main() -> None:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(prog="ci/bench", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHES))
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in BENCHES]
    if unknown:
        parser.error(f"no such bench: {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    for name in chosen.names or BENCHES:
        BENCHES[name][chosen.quick]()
        sys.stdout.flush()


if __name__ == "__main__":
    main()
