"""Where the two C parts lie: those of the flake's package, or made once by the system's compiler and kept by what they were made from.

Boundary: starts the compiler, outside any sandbox; writes below the directory it is given. Not here: what the parts do (clock.c, attend.c), which directory (runner/pinned_parts.py).
Rules: a part is kept under the digest of its sources and options, so that a changed source is never answered by an old part. Whole or not at all: makers work beside, and the first
rename wins. Without a compiler, or without the C library's headers, the error says what is missing; nothing falls back to a run without the parts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from sandbox.errors import SandboxUnavailable
from sandbox.pinned import read_pins

COMPILERS: Final = ("cc", "gcc", "clang")
SEARCH: Final = "/usr/local/bin:/usr/bin:/bin"
OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "attend": ("-O2", "-std=gnu17", "-s", "attend.c"),
    "clock.so": ("-O2", "-std=gnu17", "-s", "-fPIC", "-shared", "-fvisibility=hidden", "clock.c"),
}
"""Part → arguments of the compiler; nix/determinism.nix has the same ones."""
_COMPILE_S = 120
_CURE = "install a C compiler and the C library's headers (Debian: apt-get install gcc libc6-dev), or use the flake's package, which brings the parts"


@dataclass(frozen=True)
class Parts:
    """The two parts, as files of this host."""

    attend: Path
    """A program."""
    clock: Path
    """A shared library to be preloaded."""

    @property
    def are_there(self) -> bool:
        """Whether both are."""
        return self.attend.is_file() and self.clock.is_file()

    @staticmethod
    def of(directory: Path) -> Parts:
        """Return the parts that lie in a directory."""
        return Parts(directory / "attend", directory / "clock.so")


def find_parts(shelf: Path, *, search: str = SEARCH) -> Parts:
    """Return the parts: the flake's where this program comes from it, else those that lie below ``shelf``, made now where they are not there yet.

    Raises: SandboxUnavailable: ``compiler-missing``, ``pinned-build-failed``.
    """
    pins = read_pins()
    if pins is not None:
        return Parts.of(pins.determinism)
    home = shelf / digest()
    parts = Parts.of(home)
    if not parts.are_there:
        make(home, search)
    return parts


def digest() -> str:
    """Return what the parts are kept under: of their sources, the compiler's options and the machine type."""
    here = Path(__file__).parent
    sources = b"".join(here.joinpath(words[-1]).read_bytes() for words in OPTIONS.values())
    return sha256(sources + repr((dict(OPTIONS), os.uname().machine)).encode()).hexdigest()[:16]


def make(home: Path, search: str = SEARCH) -> None:
    """Compile both parts into ``home``.

    Raises: SandboxUnavailable (as ``find_parts``).
    """
    import shutil  # late, as in compile_part: this module is on every run's path, and this is not
    import tempfile

    compiler = next((found for name in COMPILERS if (found := shutil.which(name, path=search))), None)
    if compiler is None:
        raise SandboxUnavailable(
            "pinned runs need two small programs in C, and there is no compiler to make them",
            where=search,
            hint=_CURE,
            code="compiler-missing",
        )
    try:
        if not home.parent.is_dir():
            home.parent.mkdir(parents=True, exist_ok=True)
            home.parent.chmod(0o755)  # the dropped uid of a root caller has to reach the parts, whatever the umask
        work = Path(tempfile.mkdtemp(prefix=f".{home.name}.", dir=home.parent))
        try:
            for part, words in OPTIONS.items():
                compile_part([compiler, *words, "-o", str(work / part)], search)
                (work / part).chmod(0o755)
            work.chmod(0o755)  # as above
            try:
                work.rename(home)
            except OSError:
                if not Parts.of(home).are_there:  # else another maker was faster
                    shutil.rmtree(home)  # somebody took a part away
                    work.rename(home)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise SandboxUnavailable(
            f"the programs of pinned runs cannot be kept: {error.strerror}",
            where=str(home),
            hint="let its owner run hermeval doctor --pinned once, or choose another cache with HERMEVAL_CACHE",
            code="pinned-build-failed",
        ) from error


def compile_part(argv: Sequence[str], search: str) -> None:
    """Start the compiler in this directory. Raises: SandboxUnavailable."""
    import subprocess  # noqa: TID251 - the compiler is not a program of a sandbox

    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={"PATH": search, "LC_ALL": "C"},
            cwd=Path(__file__).parent,
            timeout=_COMPILE_S,
            check=False,
        )
        said, failed = done.stderr.decode("utf-8", "replace"), done.returncode != 0
    except (OSError, subprocess.TimeoutExpired) as error:
        said, failed = str(error), True
    if failed:
        lines = [line for line in said.splitlines() if "error" in line] or said.splitlines() or ["it says nothing"]
        raise SandboxUnavailable(
            f"the compiler could not make {Path(argv[-1]).name}: {lines[0]}",
            where=argv[0],
            hint=_CURE,
            code="pinned-build-failed",
        )
