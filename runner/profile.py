"""Finding a profile by its name, and asking it whether a fixture is complete (B6, B15).

Boundary: reads and imports modules of the profiles folder. Not here: running checks over an output (the profile host), what a profile may use.
Rules: a profile's id names a file of the folder and nothing else; there is no registry. A profile is trusted code of the repository, so importing it is fine; what
it raises is still an error of its fixture, never a crash.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from runner.envelope import Fixture
from runner.errors import FixtureInvalid, ProfileUnknown

PROFILES = Path(__file__).resolve().parent.parent / "profiles"


@dataclass(frozen=True)
class ProfileFile:
    """A profile, found and not yet imported."""

    id: str
    path: Path
    sha256: str
    """Of the module's bytes."""


def find_profile(profile_id: str, folder: Path = PROFILES) -> ProfileFile:
    """Return the profile's module: ``<folder>/<id with - as _>.py``, a regular file.

    Raises: ProfileUnknown, naming the profiles that there are.
    """
    path = folder / f"{profile_id.replace('-', '_')}.py"
    known = list_profiles(folder)
    if profile_id not in known:
        raise ProfileUnknown(
            f"there is no profile {profile_id!r}",
            where=str(path),
            hint=f"known: {', '.join(known) or 'none'}; a new one is a new file there",
        )
    return ProfileFile(profile_id, path, hashlib.sha256(path.read_bytes()).hexdigest())


def list_profiles(folder: Path = PROFILES) -> tuple[str, ...]:
    """Return the ids of all profiles of a folder, in order; modules that begin with ``_`` are none."""
    if not folder.is_dir():
        return ()
    found = (
        path
        for path in folder.glob("*.py")
        if path.is_file() and not path.is_symlink() and not path.name.startswith("_")
    )
    return tuple(sorted(path.stem.replace("_", "-") for path in found))


def load_profile(found: ProfileFile) -> ModuleType:
    """Import a profile from its file, under a name of its own, and check that it offers ``validate`` and ``check_output``.

    Raises: ProfileUnknown if it cannot be imported or lacks one of them; the cause is kept.
    """
    name = f"_profile_{found.path.stem}_{found.sha256[:16]}"
    spec = importlib.util.spec_from_file_location(name, found.path)
    if spec is None or spec.loader is None:
        raise ProfileUnknown("the profile is no Python module", where=str(found.path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    writes = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # the folder may be read-only, and a profile must not come from a stale cache
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ProfileUnknown(
            f"the profile cannot be imported: {type(error).__name__}: {error}", where=str(found.path)
        ) from error
    finally:
        sys.dont_write_bytecode = writes
    for function in ("validate", "check_output"):
        if not callable(getattr(module, function, None)):
            raise ProfileUnknown(f"the profile has no function {function!r}", where=str(found.path))
    return module


def validate_fixture(fixture: Fixture, folder: Path = PROFILES) -> ProfileFile:
    """Resolve the fixture's profile and let it validate the fixture, before anything is paid.

    Raises: ProfileUnknown; FixtureInvalid if the profile refuses the fixture, with the profile's own words.
    """
    found = find_profile(fixture.profile, folder)
    module = load_profile(found)
    try:
        module.validate(fixture.as_json())
    except Exception as error:
        raise FixtureInvalid(
            f"the profile {found.id!r} refuses it: {str(error) or type(error).__name__}",
            where=_where(fixture, str(error)),
        ) from error
    return found


def _where(fixture: Fixture, message: str) -> str:
    pointer = message.split(":", 1)[0]
    return f"{fixture.id}.json#{pointer}" if pointer.startswith("/") and " " not in pointer else f"{fixture.id}.json#"
