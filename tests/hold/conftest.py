"""What the tests of the hardened runner share: the place that the tests of whole runs use."""

from __future__ import annotations

from tests.run.conftest import place

__all__ = ["place"]
