"""What Nix has put in place, where this program comes from the flake: one file that nix/program.nix lays beside the toolchain lock of the package.

Boundary: reads that one file. Not here: whether a tree is the one of the lock (runner/toolchain.py), what the root file system is (rootfs.py), when it is used.
Rules: the file is part of the program and lies in the store like its modules, so that no variable of the environment can put other tools in place. Everything in it is a path;
no hash is believed from it. A checkout has no such file: then programs are the host's, and trees lie in the toolchain cache.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.errors import SandboxUnavailable

FILE = Path(__file__).resolve().parent / "toolchain" / "pins.json"
_MAX_BYTES = 1 << 16
_FIELDS = frozenset(
    {"schema_version", "system", "store", "trees", "programs", "libraries", "loader", "rootfs", "determinism"}
)


@dataclass(frozen=True)
class Programs:
    """The programs that run outside every sandbox."""

    bwrap: Path = Path("/usr/bin/bwrap")
    python: Path = Path("/usr/bin/python3")
    ssh_keygen: Path = Path("/usr/bin/ssh-keygen")


@dataclass(frozen=True)
class Pins:
    """Where everything pinned lies, for one system."""

    system: str
    store: str
    """The store's directory, ``/nix/store`` unless somebody moved it."""
    trees: Mapping[str, Path]
    """``agent`` and ``grader``: each a ``node_modules``."""
    programs: Programs
    loader: Path
    """The dynamic loader that programs built for a distribution are given at its usual path."""
    libraries: tuple[str, ...]
    """Where the libraries of such programs lie; the first directory is the one in which that loader looks by itself."""
    rootfs: Path
    """The description of the read-only system."""
    determinism: Path
    """The directory of the two C parts of pinned runs (sandbox/determinism)."""


def read_pins(path: Path = FILE) -> Pins | None:
    """Return what the file says, or None where there is none.

    Raises: SandboxUnavailable (code ``pins-invalid``) where it cannot be read or does not follow its schema.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _invalid(error.strerror or str(error), path) from error
    try:
        return parse_pins(data)
    except (ValueError, RecursionError) as error:
        raise _invalid(str(error), path) from error


def parse_pins(data: bytes) -> Pins:
    """Return the pins of a file's bytes. Pure.

    Raises: ValueError where they do not follow their schema.
    """
    if len(data) > _MAX_BYTES:
        raise ValueError("too large")
    found = json.loads(data)
    if not isinstance(found, dict) or set(found) != _FIELDS or found["schema_version"] != 1:
        raise ValueError(f"not an object of schema version 1 with {', '.join(sorted(_FIELDS))}")
    trees, programs, libraries = found["trees"], found["programs"], found["libraries"]
    if not isinstance(trees, dict) or set(trees) != {"agent", "grader"}:
        raise ValueError("trees are agent and grader")
    if not isinstance(programs, dict) or set(programs) != {"bwrap", "python", "ssh_keygen"}:
        raise ValueError("programs are bwrap, python and ssh_keygen")
    if not isinstance(libraries, list) or not libraries:
        raise ValueError("libraries are directories, at least one")
    if not isinstance(found["system"], str):
        raise ValueError("system is a text")  # noqa: TRY004 - one kind of error for a file
    return Pins(
        system=found["system"],
        store=_path(found["store"]),
        trees={kind: Path(_path(tree)) for kind, tree in trees.items()},
        programs=Programs(**{name: Path(_path(program)) for name, program in programs.items()}),
        loader=Path(_path(found["loader"])),
        libraries=tuple(_path(directory) for directory in libraries),
        rootfs=Path(_path(found["rootfs"])),
        determinism=Path(_path(found["determinism"])),
    )


def find_programs() -> Programs:
    """Return the programs that run outside every sandbox: the pinned ones, or the host's.

    Raises: SandboxUnavailable.
    """
    pins = read_pins()
    return Programs() if pins is None else pins.programs


def _path(value: object) -> str:
    if (
        not isinstance(value, str)
        or not value.startswith("/")
        or any(part in ("", ".", "..") for part in value[1:].split("/"))
    ):
        raise ValueError(f"not an absolute path in normal form: {value!a}")
    return value


def _invalid(message: str, path: Path) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"what is pinned here cannot be read: {message}",
        where=str(path),
        hint="build the flake's package again",
        code="pins-invalid",
    )
