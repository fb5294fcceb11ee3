"""Whether this process is in Nix's build sandbox, proved from inside: the one place where a grading program may run without a namespace of its own.

Boundary: ``read_surroundings`` reads /proc and looks at the root directory; the decision is pure. Not here: what follows from it (bare.py, runner/cli/replay.py).
Rules: no variable of the environment is evidence. Every fact must hold: the network is a loopback and nothing else, there is no /home and no /root, the user namespace maps
one uid that is not the outer root, and no new privileges can be had. What is missing is named.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from sandbox.identity import parse_uid_map


class Surroundings(NamedTuple):
    """What can be seen of where this process runs."""

    interfaces: frozenset[str]
    """Network interfaces, by name."""
    homes: tuple[str, ...]
    """Those of /home and /root that exist."""
    uid_map: str
    no_new_privileges: bool


def against_nix_build(seen: Surroundings) -> tuple[str, ...]:
    """Return what speaks against Nix's build sandbox, in words; empty where it is proved. Pure."""
    against = []
    if seen.interfaces != {"lo"}:
        against.append(f"network interfaces: {', '.join(sorted(seen.interfaces)) or 'unknown'}")
    against += [f"{home} exists" for home in seen.homes]
    lines = parse_uid_map(seen.uid_map).lines
    if len(lines) != 1 or lines[0][2] != 1 or lines[0][1] == 0:
        against.append("the user namespace maps more than one unprivileged uid")
    if not seen.no_new_privileges:
        against.append("new privileges can be had")
    return tuple(against)


def read_surroundings(root: Path = Path("/")) -> Surroundings:
    """Look around; what cannot be read speaks against."""
    return Surroundings(
        frozenset(line.partition(":")[0].strip() for line in _read(root / "proc/net/dev").splitlines()[2:]),
        tuple(f"/{name}" for name in ("home", "root") if (root / name).exists()),
        _read(root / "proc/self/uid_map"),
        "NoNewPrivs:\t1" in _read(root / "proc/self/status").splitlines(),
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
