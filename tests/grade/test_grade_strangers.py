"""A scripted vote never decides on a live provider's output (B12)."""

from __future__ import annotations

from typing import Any

import pytest

from runner.errors import NotJudged
from runner.grade.judge_verdict import JudgeFault, Judgement
from runner.replay import refuse_strangers


def vote(provider: str) -> Judgement:
    fields: dict[str, Any] = {
        "attempt_id": "a" * 64,
        "output_sha256": "b" * 64,
        "vote": 1,
        "model": "sonnet",
        "error": JudgeFault("no-result", "none", ""),
    }
    return Judgement(**fields, provider=provider)


def test_a_scripted_vote_on_a_live_output_is_refused_and_a_live_one_counts() -> None:
    """Live attempts take live votes only; scripted attempts take both (the control)."""
    with pytest.raises(NotJudged, match="not a live judge"):
        refuse_strangers("anthropic", [vote("anthropic"), vote("scripted")])
    refuse_strangers("anthropic", [vote("anthropic")])
    refuse_strangers("scripted", [vote("scripted"), vote("anthropic")])
