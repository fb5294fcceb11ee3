"""What the runner itself needs of the machine: interpreter, packages, clock, a place for attempts.

Boundary: imports packages, writes and removes one file in the attempts' directory. Standard library only at import. Not here: the sandbox's needs (sandbox/doctor.py).
Rules: everything is tried, nothing is left behind.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import sys
from collections.abc import Mapping
from importlib import import_module, metadata
from pathlib import Path

from runner.doctor.check import Check

OLDEST_PYTHON = (3, 11)
PACKAGES: Mapping[str, str] = {
    "aiohttp": "aiohttp.web",
    "click": "click",
    "cryptography": "cryptography.hazmat.primitives.asymmetric.ec",
    "jinja2": "jinja2",
    "msgspec": "msgspec",
    "pydantic": "pydantic",
    "pyyaml": "yaml",
    "rich": "rich",
    "zstandard": "zstandard",
}
"""Distribution to the module that is imported, native code included."""
ROOM_NEEDED = 64 << 20
ROOM_WISHED = 1 << 30
_LOCKED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)", re.MULTILINE)
_BOOTSTRAP = "start through ci/hermeval, which makes the environment from hash-locked packages"


def check_interpreter(version: tuple[int, ...] = sys.version_info[:3], executable: str = sys.executable) -> Check:
    """The interpreter is new enough."""
    title = "The runner's Python is 3.11 or newer"
    told = ".".join(map(str, version))
    if version < OLDEST_PYTHON:
        cure = "install python3 3.11 or newer (Debian 12 has it), or set HERMEVAL_PYTHON"
        return Check("interpreter", title, "failed", f"{executable} is {told}", cure)
    return Check("interpreter", title, "ok", f"{executable} is {told}")


def check_packages(requirements: Path, packages: Mapping[str, str] = PACKAGES) -> Check:
    """Every package can be imported, and is the locked version where the lock is at hand."""
    title = "The runner's packages can be imported, at their locked versions"
    broken, other = [], []
    locked = dict(_LOCKED.findall(requirements.read_text(encoding="utf-8"))) if requirements.is_file() else {}
    for distribution, module in packages.items():
        try:
            import_module(module)
            version = metadata.version(distribution)
        except Exception as error:  # noqa: BLE001 - whatever importing native code raises is the finding
            broken.append(f"{distribution}: {type(error).__name__}: {error}")
            continue
        wanted = locked.get(distribution, version)
        if version != wanted:
            other.append(f"{distribution} {version}, locked {wanted}")
    if broken:
        return Check("packages", title, "failed", "; ".join(broken), _BOOTSTRAP)
    if other:
        return Check("packages", title, "degraded", "; ".join(other), _BOOTSTRAP)
    return Check("packages", title, "ok", f"{len(packages)} packages{'' if locked else ', no lock at hand'}")


def check_clock(now_s: float) -> Check:
    """The clock lies within the certificates' validity, else the CLI could not trust the gate in first-party mode."""
    title = "The clock is between 2000 and 2049, when the gate's certificates are valid"
    told = datetime.datetime.fromtimestamp(now_s, datetime.UTC).isoformat(timespec="seconds")
    if not 2000 <= int(told[:4]) <= 2049:
        return Check("clock", title, "failed", f"it says {told}", "set the clock (timedatectl set-ntp true)")
    return Check("clock", title, "ok", told)


def check_attempts(out: Path) -> Check:
    """An attempt can be written: make the directory, write, sync, link without overwriting, and remove all of it."""
    title = "Attempts can be written, and there is room for them"
    made: list[Path] = []
    probe = out / f".doctor.{os.urandom(6).hex()}.tmp"
    linked = probe.with_suffix(".linked")
    try:
        for directory in [*reversed(out.parents), out]:
            if not directory.is_dir():
                directory.mkdir()
                made.append(directory)
        with probe.open("xb") as file:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
        os.link(probe, linked)
        room = os.statvfs(out)
    except OSError as error:
        cause = f"{error.filename or out}: {error.strerror}"
        return Check("attempts", title, "failed", cause, "name another directory with --out, or make this one writable")
    finally:
        for remove in (probe.unlink, linked.unlink, *(directory.rmdir for directory in reversed(made))):
            with contextlib.suppress(OSError):
                remove()
    return judge_room(out, room.f_bavail * room.f_frsize, title)


def judge_room(out: Path, free_bytes: int, title: str) -> Check:
    """Judge how much room there is (pure)."""
    told = f"{out}: {free_bytes >> 20} MiB free"
    if free_bytes < ROOM_NEEDED:
        return Check("attempts", title, "failed", told, "make room, or name another directory with --out")
    if free_bytes < ROOM_WISHED:
        return Check("attempts", title, "degraded", told, "make room: one long run can take some hundred MiB")
    return Check("attempts", title, "ok", told)
