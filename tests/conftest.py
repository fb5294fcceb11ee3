"""Settings of every test: Hypothesis keeps no database, since a checkout may be read-only."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("hermeval", database=None, deadline=None)
settings.load_profile("hermeval")
