"""What one program needs of the host: itself, its loader and its shared libraries, file by file; for Python its standard library too.

Boundary: reads the headers of ELF files and looks files up below the library directories. Not here: a whole system (rootfs.py), the inside view of a worker (view.py).
Rules: a sandbox made of these mounts holds no shell and no other program, so that what runs in it has nothing to start. Every file is bound at the path at which the loader
looks for it; a library that is missing is an error here and not a mystery inside. Nothing is executed to find out.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from sandbox.errors import SandboxUnavailable
from sandbox.pinned import read_pins
from sandbox.spec import RoBind

LIBRARY_DIRECTORIES = (
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
)
"""Where the loaders of Debian and its kin look without a cache; those of the other machine type do not exist and cost one look."""
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NEEDED, _DT_STRTAB, _DT_RPATH, _DT_RUNPATH = 1, 5, 15, 29
_MAX_HEADER = 1 << 16
_VERSIONED = re.compile(r"python3\.\d+\Z")


class Libraries(NamedTuple):
    """Where a program's loader and libraries come from, where it does not say so itself."""

    directories: tuple[str, ...] = LIBRARY_DIRECTORIES
    loader: Path | None = None
    """Bound at the usual path of the loader; None for the one that is there."""
    inside: str | None = None
    """The directory in which that loader looks by itself; None where each library is bound at the path at which it was found."""


class Needs(NamedTuple):
    """What an ELF file says it needs."""

    loader: str | None
    libraries: tuple[str, ...]
    search: tuple[str, ...]
    """Its own library directories (RPATH or RUNPATH), ``$ORIGIN`` replaced."""


def program_binds(programs: Iterable[tuple[Path, str]], *, libraries: Libraries | None = None) -> tuple[RoBind, ...]:
    """Return binds for programs, each given with its path inside, and for every shared file that they need.

    ``libraries`` are the pinned ones where this program comes from the flake, else the host's, unless others are given.
    Raises: SandboxUnavailable where a program or a library is missing, or a file is no ELF file.
    """
    libraries = libraries or find_libraries()
    binds = {inside: path.resolve() for path, inside in programs}
    pending = list(binds.values())
    seen: set[str] = set()
    while pending:
        path = pending.pop()
        needs = read_needs(path)
        if needs.loader is not None:
            binds.setdefault(needs.loader, _loader(Path(needs.loader), libraries))
        for name in needs.libraries:
            if name not in seen:
                seen.add(name)
                found, place = _find(name, needs.search, libraries, path)
                binds.setdefault(place, found.resolve())
                pending.append(found)
    return tuple(RoBind(source=str(source), target=inside) for inside, source in sorted(binds.items()))


def python_binds(python: Path) -> tuple[tuple[RoBind, ...], str]:
    """Return the binds of a Python interpreter with its standard library and no third-party package, and the path of its program inside.

    Raises: SandboxUnavailable where its standard library cannot be found.
    """
    program = python.resolve()
    prefix = program.parent.parent
    named = [prefix / "lib" / program.name] if _VERSIONED.match(program.name) else sorted(prefix.glob("lib/python3.*"))
    library = next((path for path in named if (path / "os.py").is_file()), None)
    if library is None:
        raise SandboxUnavailable(
            "the standard library of Python cannot be found", where=str(python), hint="install python3"
        )
    own = program_binds([(program, str(program))])
    return (*own, RoBind(source=str(library), target=str(library))), str(program)


def read_needs(path: Path) -> Needs:
    """Read the dynamic section of a 64-bit little-endian ELF file.

    Raises: SandboxUnavailable where the file cannot be read or is no such file.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_MAX_HEADER)
            _require_elf(head)
            offset, size, count = *struct.unpack_from("<Q", head, 32), *struct.unpack_from("<HH", head, 54)
            segments = [struct.unpack_from("<IIQQQQ", head, offset + number * size) for number in range(count)]

            def content(place: int, length: int) -> bytes:
                file.seek(place)
                return file.read(length)

            loader = next(
                (
                    content(at, length).rstrip(b"\0").decode()
                    for kind, _, at, _, _, length in segments
                    if kind == _PT_INTERP
                ),
                None,
            )
            dynamic = next((content(at, length) for kind, _, at, _, _, length in segments if kind == _PT_DYNAMIC), b"")
            entries = [struct.unpack_from("<QQ", dynamic, at) for at in range(0, len(dynamic) - 15, 16)]
            strings = next((value for tag, value in entries if tag == _DT_STRTAB), 0)
            place = next(
                (
                    at + strings - address
                    for kind, _, at, address, _, length in segments
                    if kind == _PT_LOAD and address <= strings < address + length
                ),
                0,
            )

            def text(value: int) -> str:
                return content(place + value, 4096).split(b"\0", 1)[0].decode()

            libraries = tuple(text(value) for tag, value in entries if tag == _DT_NEEDED)
            search = [
                part
                for tag, value in entries
                if tag in (_DT_RPATH, _DT_RUNPATH)
                for part in text(value).split(":")
                if part
            ]
    except (OSError, ValueError, OverflowError, struct.error) as error:
        raise SandboxUnavailable(f"a program's needs cannot be read: {error}", where=str(path)) from error
    return Needs(loader, libraries, tuple(part.replace("$ORIGIN", str(path.parent)) for part in search))


def _require_elf(head: bytes) -> None:
    if head[:6] != b"\x7fELF\x02\x01":
        raise ValueError("it is no 64-bit little-endian ELF file")


def find_libraries() -> Libraries:
    """Return the pinned loader and libraries, or the host's.

    Raises: SandboxUnavailable.
    """
    pins = read_pins()
    return Libraries() if pins is None else Libraries(pins.libraries, pins.loader, pins.libraries[0])


def _loader(usual: Path, libraries: Libraries) -> Path:
    """Return the file of a loader: a program of the store names its own, one of a distribution is given the pinned one."""
    if libraries.loader is not None and usual.name == libraries.loader.name and not _is_of_a_library(usual, libraries):
        return libraries.loader.resolve()
    return usual.resolve()


def _is_of_a_library(path: Path, libraries: Libraries) -> bool:
    return str(path.parent) in libraries.directories


def _find(name: str, search: Sequence[str], libraries: Libraries, of: Path) -> tuple[Path, str]:
    """Return a library's file and its path inside."""
    for directory in search:
        found = Path(directory, name)
        if found.is_file():
            return found, str(found)
    for directory in libraries.directories:
        found = Path(directory, name)
        if found.is_file():
            return found, str(found if libraries.inside is None else Path(libraries.inside, name))
    raise SandboxUnavailable(
        f"the shared library {name} of {of.name} is not installed",
        where=str(of),
        hint=f"install the package that has {name}",
    )
