"""``ci/soak-reproduce``: every committed attempt again and again at every place, under load, and a table of the words (issue 3, acceptance 3).

Prints Markdown on stdout and what is under way on stderr. Exit status 1 if any word was not one that expected.json names.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from tests.reproduce.places import PLACES, Place, Word, expected, reproduce_in_nix

_NIX = "nix"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the soak as the arguments say."""
    parser = argparse.ArgumentParser(prog="soak-reproduce", description="Reproduce committed attempts many times.")
    parser.add_argument("attempts", nargs="*", help="file names below fixtures/attempts; default: all")
    parser.add_argument("--times", type=int, default=20, help="per place and attempt (default 20)")
    parser.add_argument(
        "--load", type=int, default=multiprocessing.cpu_count(), help="busy processes beside it (default: one a core)"
    )
    parser.add_argument("--places", nargs="+", choices=[*PLACES, _NIX], default=[*PLACES, _NIX])
    options = parser.parse_args(argv)
    wanted = expected()
    names = options.attempts or list(wanted)
    if unknown := sorted(set(names) - set(wanted)):
        parser.error(f"expected.json does not name {', '.join(unknown)}")
    found: dict[str, dict[str, Counter[str]]] = {}
    began = time.monotonic()
    with _load(options.load):
        for place in options.places:
            found[place] = defaultdict(Counter)
            for number, words in enumerate(_rounds(place, names, options.times), 1):
                for row in words:
                    found[place][row.attempt][row.word if row.code is None else f"{row.word} ({row.code})"] += 1
                click.echo(f"{place}: {number} of {options.times}, {time.monotonic() - began:.0f} s", err=True)
    click.echo("\n".join(_table(found, names)))
    return int(
        any(
            word.split(" ")[0] not in wanted[name]
            for rows in found.values()
            for name, words in rows.items()
            for word in words
        )
    )


def _rounds(place: str, names: Sequence[str], times: int) -> Iterator[list[Word]]:
    if place == _NIX:
        reproduce_in_nix(names)  # builds what the checks need, and perhaps them; a build that is there gives no word
        for _ in range(times):
            yield reproduce_in_nix(names, again=True)
        return
    with Place() as here:
        PLACES[place](here)
        for _ in range(times):
            yield here.reproduce(names)


@contextmanager
def _load(count: int) -> Iterator[None]:
    workers = [multiprocessing.Process(target=_burn, daemon=True) for _ in range(count)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


def _burn() -> None:
    while True:
        pass


def _table(found: dict[str, dict[str, Counter[str]]], names: Sequence[str]) -> Iterator[str]:
    yield "| attempt | " + " | ".join(found) + " |"
    yield "|---|" + "---|" * len(found)
    for name in names:
        cells = (
            ", ".join(f"{word} {count}" for word, count in sorted(rows[name].items())) or "none"
            for rows in found.values()
        )
        yield f"| {name.removesuffix('.attempt')} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.exit(main())
