"""Closures made of this host's programs, for tests: files of a made-up store, so that a pinned root file system can be tried where nothing is pinned."""

from __future__ import annotations

import base64
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.programs import Libraries, program_binds, read_needs
from sandbox.rootfs import Rootfs, parse_description
from sandbox.spec import RoBind

STORE = "/nix/store"
HASH = "sha256-" + base64.b64encode(bytes(32)).decode()
LIBC = f"{'1' * 32}-libc"
INSIDE = f"{'2' * 32}-inside"
OTHER = f"{'3' * 32}-other"
"""Lies in the store, and in no closure."""


@dataclass(frozen=True)
class MadeClosure:
    """A closure of two paths, and where their files really lie."""

    description: dict[str, Any]
    files: Path

    def rootfs(self) -> Rootfs:
        """Read the description, and take the files from where they lie."""
        found = parse_description(json.dumps(self.description).encode())
        assert found is not None
        mounts = [
            mount.model_copy(update={"source": str(self.files / Path(mount.source).name)})
            if isinstance(mount, RoBind)
            else mount
            for mount in found.mounts
        ]
        return Rootfs(found.kind, tuple(mounts), found.identity)


@contextmanager
def made_closure(programs: Sequence[str], needed_by: Sequence[Path] = ()) -> Iterator[MadeClosure]:
    """Make a closure of programs by name, and of the libraries that they and ``needed_by`` need.

    The directory of its libraries is linked too, since Debian's loader looks there. The run uid can read it; it is gone afterwards.
    """
    with tempfile.TemporaryDirectory(prefix="store-", dir="/tmp") as made:
        files = Path(made)
        files.chmod(0o755)
        for directory in (files / LIBC / "lib", files / INSIDE / "bin", files / OTHER):
            directory.mkdir(parents=True)
        loader = read_needs(Path("/bin/sh").resolve()).loader
        assert loader is not None
        wanted = [(Path("/bin", name).resolve(), f"/program/{name}") for name in programs]
        wanted += [(path, f"/needed/{path.name}") for path in needed_by]
        for program in wanted:
            for bind in program_binds([program], libraries=Libraries()):
                if bind.target.startswith("/needed/"):
                    continue
                place = f"{INSIDE}/bin" if bind.target.startswith("/program/") else f"{LIBC}/lib"
                target = files / place / Path(bind.target).name
                if not target.exists():
                    shutil.copyfile(bind.source, target)
                    target.chmod(0o555)
        links = {
            "/bin": f"{STORE}/{INSIDE}/bin",
            "/usr/bin": f"{STORE}/{INSIDE}/bin",
            loader: f"{STORE}/{LIBC}/lib/{Path(loader).name}",
            f"/lib/{os.uname().machine}-linux-gnu": f"{STORE}/{LIBC}/lib",
        }
        closure = {f"{STORE}/{LIBC}": HASH, f"{STORE}/{INSIDE}": HASH}
        described = {"schema_version": 1, "kind": "nix", "store": STORE, "links": links, "closure": closure}
        yield MadeClosure(described, files)
