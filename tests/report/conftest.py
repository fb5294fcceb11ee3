"""A directory to make attempts in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report.made_attempts import Workshop


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    """An empty directory to make attempts in."""
    made = tmp_path / "attempts"
    made.mkdir()
    return Workshop(made)
