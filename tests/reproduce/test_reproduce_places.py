"""Committed attempts come back as expected wherever a colleague runs them (issue 3, acceptance 3); the same places many times: ci/soak-reproduce."""

from __future__ import annotations

import pytest

from tests.reproduce.places import PLACES, Place, expected


@pytest.mark.parametrize("name", PLACES)
def test_every_committed_attempt_comes_back_there(name: str) -> None:
    """Each attempt gives a word that expected.json names for it, the ones that only replay are refused or differ as named, and at least ten are the same."""
    wanted = expected()
    with Place() as place:
        PLACES[name](place)
        found = place.reproduce(list(wanted))
    assert {row.attempt: (row.word, row.code) for row in found if row.word not in wanted[row.attempt]} == {}
    assert sum(row.word in ("exact", "normalised") for row in found) >= 10
