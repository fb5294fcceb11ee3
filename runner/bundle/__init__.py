"""The attempt bundle: one file that holds all evidence of a run.

Boundary: see the modules: format.py is pure, writer.py and reader.py touch files, exchanges.py needs pydantic, claims.py says what holds.
Rules: importing this package stays cheap (no pydantic), because ``list`` and ``verify`` start with it.
"""

from __future__ import annotations

from runner.bundle.format import FORMAT_VERSION, SUFFIX, Manifest, PartRecord, file_name
from runner.bundle.reader import Attempt, open_attempt, read_manifest
from runner.bundle.writer import AttemptContent, write_attempt

__all__ = [
    "FORMAT_VERSION",
    "SUFFIX",
    "Attempt",
    "AttemptContent",
    "Manifest",
    "PartRecord",
    "file_name",
    "open_attempt",
    "read_manifest",
    "write_attempt",
]
