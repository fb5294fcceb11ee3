"""The supervisor's program, or the whole room, with some of its lines changed: for tests that need a part of it gone or slow."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from sandbox.probes.layers import Edit

PACKAGE = Path(__file__).resolve().parents[2] / "sandbox"


def altered(place: Path, edits: Sequence[Edit]) -> Path:
    """Copy the package with some of its lines changed; each change must be possible."""
    copy = Path(shutil.copytree(PACKAGE, place / "sandbox", ignore=shutil.ignore_patterns("__pycache__")))
    for directory, _, names in os.walk(copy):
        Path(directory).chmod(0o755)
        for name in names:
            Path(directory, name).chmod(0o644)
    for name, old, new in edits:
        text = (copy / name).read_text()
        assert old in text, (name, old)
        (copy / name).write_text(text.replace(old, new, 1))
    return copy
