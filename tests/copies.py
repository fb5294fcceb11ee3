"""Copies of folders of this checkout, which may be read-only, that can be changed and taken away again."""

from __future__ import annotations

import shutil
from pathlib import Path


def copy_folder(source: Path, target: Path) -> Path:
    """Copy a folder whose every folder and file its user may write; compiled modules stay behind."""
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (target, *target.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | 0o200)
    return target
