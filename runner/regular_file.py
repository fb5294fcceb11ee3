"""Read a file that somebody named: a regular one, within a bound, and never waiting.

Boundary: reads one file. Not here: what stands in it (its callers), attempts (runner/bundle/reader.py).
Rules: a pipe would be waited for and a device might never end, so both are refused, whatever they would give.
"""

from __future__ import annotations

import os
import stat
from io import BufferedReader
from pathlib import Path


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading. Raises: OSError; ValueError for what is none."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    file = os.fdopen(fd, "rb")
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        file.close()
        raise ValueError("it is no file")
    return file


def read_small(path: Path, limit: int) -> bytes:
    """Return a regular file's bytes. Raises: OSError; ValueError for what is no file, or larger than ``limit`` bytes."""
    with open_regular(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"it is larger than {limit} bytes")
    return data
