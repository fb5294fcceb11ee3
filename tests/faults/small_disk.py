"""Run a command on a disk of its own that is too small: a real tmpfs over a directory, in a mount namespace that goes with the command.

Usage: ``python -m tests.faults.small_disk SIZE DIRECTORY KEPT COMMAND…``. What lies in DIRECTORY is on the small disk too, and goes with it; what is there at the end is
copied to KEPT, which must not be there yet. SIZE is bytes; ``full`` leaves no room at all beyond what was there. Exits as the command does.

Boundary: namespaces and mounts of this process. Not here: what must hold (scene.py).
Rules: for root. Others would need a user namespace, in which whatever is root's on this machine is nobody's, and no tool is trusted; they have the injector. Nothing of it is
seen outside.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

_NEW_MOUNTS = 0x00020000
_PRIVATE = 0x40000 | 0x4000  # MS_PRIVATE | MS_REC
_BLOCK = 4096
libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    """Raise where a call failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def own_mounts() -> None:
    """Enter a mount namespace of our own."""
    check(libc.unshare(_NEW_MOUNTS), "unshare")
    check(libc.mount(b"none", b"/", None, _PRIVATE, None), "mount --make-rprivate")


def main() -> int:
    """Do what the arguments say."""
    size, directory, kept, command = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]
    own_mounts()
    there = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    mode = directory.stat().st_mode & 0o7777
    used = sum(-(-len(data) // _BLOCK) * _BLOCK for data in there.values()) + _BLOCK
    room = used if size == "full" else max(int(size), used)
    check(libc.mount(b"small", os.fsencode(directory), b"tmpfs", 0, f"size={room},mode={mode:o}".encode()), "mount")
    for name, data in there.items():
        (directory / name).write_bytes(data)
    if size == "full":
        fill(directory)
    status = subprocess.run(command, check=False).returncode
    (directory / ".filler").unlink(missing_ok=True)
    shutil.copytree(directory, kept, symlinks=True)
    return 128 - status if status < 0 else status


def fill(directory: Path) -> None:
    """Take what room is left."""
    with (directory / ".filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(_BLOCK))
        except OSError:
            return


if __name__ == "__main__":
    sys.exit(main())
