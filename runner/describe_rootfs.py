"""Describe a pinned root file system: run by the flake (nix/rootfs.nix) as ``python -m runner.describe_rootfs``, writes JSON for sandbox/rootfs.py to stdout.

Boundary: reads the reference graph that Nix wrote and every path of the closure. Not here: reading the description again.
Rules: each store path is hashed here, from its own bytes, so the description holds what is there. A description says ``nix`` only where every program and the loader lie
inside the closure; where one does not, that is an error. With a stand-in for nixpkgs, whose programs are the host's, the description says ``host``, and a stand-in
whose programs all lay inside would be an error too: the flag is never the only evidence.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from runner.errors import RunnerError, ToolchainError
from runner.nar import nar_sha256


def parse_graph(text: str) -> tuple[str, ...]:
    """Return the store paths of a reference graph as ``exportReferencesGraph`` writes it: path, deriver, number of references, references; sorted.

    Raises:
        ValueError: it is not such a graph.
    """
    lines = iter(text.splitlines())
    paths = []
    for path in lines:
        next(lines, None)  # the deriver
        count = next(lines, "")
        if not path.startswith("/") or not count.isdigit():
            raise ValueError(f"not a reference graph at {path[:200]!a}")
        number = int(count)
        references = list(islice(lines, min(number, len(text))))  # no more than there can be, whatever it says
        if len(references) != number or not all(reference.startswith("/") for reference in references):
            raise ValueError(f"{path} has fewer references than it says")
        paths.append(path)
    if not paths or len(set(paths)) != len(paths):
        raise ValueError("a reference graph is not empty and names nothing twice")
    return tuple(sorted(paths))


def outside(root: Path, closure: Sequence[str]) -> tuple[str, ...]:
    """Return the links of ``root``'s ``bin`` and ``lib`` that lead out of the closure, or nowhere."""
    found = []
    for link in sorted([*root.glob("bin/*"), *root.glob("lib/*")]):
        real = link.resolve()
        if not real.exists() or not any(real.is_relative_to(path) for path in closure):
            found.append(f"{link.name} -> {real}")
    return tuple(found)


def describe(*, graph: str, root: Path, store: Path, loader: str, stand_in: bool) -> dict[str, object]:
    """Return the description; ``root`` is the environment, ``loader`` the usual path of the dynamic loader.

    Raises:
        ToolchainError: a program or the loader is not in the closure, or all are where a stand-in said otherwise.
        ValueError: the graph cannot be read.
    """
    closure = parse_graph(graph)
    astray = outside(root, closure)
    if stand_in:
        if not astray:
            raise ToolchainError("this stand-in for nixpkgs is self-contained; it is no stand-in", where=str(root))
        return {
            "schema_version": 1,
            "kind": "host",
            "reason": "nixpkgs is a stand-in: the programs are the host's own",
        }
    if astray:
        raise ToolchainError(
            f"the pinned root file system is not self-contained: {', '.join(astray[:5])}", where=str(root)
        )
    return {
        "schema_version": 1,
        "kind": "nix",
        "store": str(store),
        "links": {
            "/bin": f"{root}/bin",
            "/usr/bin": f"{root}/bin",
            loader: f"{root}/lib/{Path(loader).name}",
        },
        "closure": {path: nar_sha256(Path(path)) for path in closure},
    }


def main(arguments: Sequence[str]) -> int:
    """Run as a program; return 0, or 2 with the error on stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m runner.describe_rootfs", description="Describe a pinned root file system."
    )
    parser.add_argument("--graph", type=Path, required=True, help="the reference graph that Nix wrote")
    parser.add_argument("--root", type=Path, required=True, help="the environment: bin and lib with links")
    parser.add_argument("--store", type=Path, required=True, help="the store's directory")
    parser.add_argument("--loader", required=True, help="the usual path of the dynamic loader")
    parser.add_argument("--stand-in", action="store_true", help="nixpkgs is a stand-in")
    chosen = parser.parse_args(arguments)
    try:
        described = describe(
            graph=chosen.graph.read_text(encoding="ascii"),
            root=chosen.root,
            store=chosen.store,
            loader=chosen.loader,
            stand_in=chosen.stand_in,
        )
    except (RunnerError, OSError, ValueError) as error:
        sys.stderr.write((error.diagnostics() if isinstance(error, RunnerError) else f"error: {error}") + "\n")
        return 2
    sys.stdout.write(json.dumps(described, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
