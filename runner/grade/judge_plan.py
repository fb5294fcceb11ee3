"""A judge's plan: everything that decides one judge run, frozen before anything is started (B12, DESIGN step 2).

Boundary: pure. Not here: the words (judge_prompt.py), the start of the CLI (runner/claude/launch.py), what every plan has (runner/plan.py).
Rules: the same worker's attempt, vote, settings and tools give the same plan, byte for byte; the fence is derived, not drawn, and stands in it. Worker and judge share nothing
but the attempt: the judge's sandbox has an empty skill tree and an empty workspace, and its plan holds the output and the rubric, never the case's input.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue

from runner.claude.launch import build_judge_launch
from runner.confine import inside_view
from runner.envelope import Criterion, Fixture, check_settings
from runner.errors import SettingInvalid
from runner.gate.exchange import Value
from runner.gate.settings import Ceilings, GateSettings
from runner.grade.judge_prompt import SYSTEM_PROMPT, build_blocks, derive_fence, fenced, rubric_text, shown
from runner.plan import DEFAULT_MODEL, FixtureId, PlannedSkills, Provider, RunLimits, RunPlan, planned_launch
from runner.skills import SkillTree

JUDGE_KIND: Final = "judge"
"""How a judge's plan and manifest name their kind; a worker's name none."""
DEFAULT_USD = "1"
DEFAULT_REQUESTS = 8
DEFAULT_TIMEOUT_S = 300
MAX_VOTES = 25
_SESSIONS = uuid.UUID("9d8f5a52-21f0-5b0a-8a56-0f6a4c1f7b3e")
"""Name space of judges' session ids; the id stands in every request, so it does not change once attempts are committed."""


class Judged(Value):
    """What is judged."""

    attempt: str
    """The worker's attempt id."""
    output_sha256: str
    """Of the output's bytes as the attempt keeps them."""
    replaced_characters: int = 0
    """Lone surrogates that the judge sees as U+FFFD."""


class JudgePlan(RunPlan):
    """One judge run, decided."""

    kind: Literal["judge"] = JUDGE_KIND
    judged: Judged
    vote: Annotated[int, Field(ge=1)]
    """1-based among the votes on this output."""
    rubric: Annotated[tuple[Criterion, ...], Field(min_length=1)]
    fence: str
    system_prompt: str
    blocks: tuple[str, str]
    """The message: the fenced data, and the words that ask."""
    skills: PlannedSkills
    """The staged skill tree, which is empty."""

    def told(self) -> dict[str, JsonValue]:
        """Return what lists and rows say of a judge's attempt."""
        judged: dict[str, JsonValue] = {
            "attempt": self.judged.attempt,
            "output_sha256": self.judged.output_sha256,
            "vote": self.vote,
        }
        return {**super().told(), "kind": self.kind, "judges": judged}

    def shows(self, output: str) -> bool:
        """Whether the message really holds this output and the plan's rubric, each whole and behind the plan's fence, which neither of them holds."""
        text, rubric = shown(output).text, rubric_text(self.rubric)
        data = self.blocks[0]
        return (
            data.startswith(fenced("answer", text, self.fence))
            and fenced("rubric", rubric, self.fence) in data
            and self.fence not in text.casefold()
            and self.fence not in rubric.casefold()
        )

    @property
    def ids(self) -> tuple[str, ...]:
        """The criteria's ids, in the rubric's order."""
        return tuple(criterion.id for criterion in self.rubric)


@dataclass(frozen=True)
class JudgeOptions:
    """What the caller may choose; None leaves it to the fixture's ``judge`` settings, then to the default."""

    mode: Literal["first-party", "base-url"] = "first-party"
    max_usd: str | None = None
    timeout_s: int | None = None
    most_usd: str | None = None
    """What the caller of ``run`` set for every run: neither the fixture nor the default goes above it, since a fixture may be a stranger's."""
    most_s: int | None = None
    """The same for the wall clock, in seconds."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense. Raises: SettingInvalid."""
        check_settings(max_usd=self.max_usd, timeout_s=self.timeout_s)
        check_settings(max_usd=self.most_usd, timeout_s=self.most_s)

    def usd(self, fixture: Fixture) -> str:
        """Return the spend ceiling of one vote."""
        usd = self.max_usd or fixture.judge.max_usd or DEFAULT_USD
        return usd if self.most_usd is None else min(usd, self.most_usd, key=Decimal)

    def wall_clock_s(self, fixture: Fixture) -> int:
        """Return the wall clock of one vote."""
        wanted = self.timeout_s or fixture.judge.timeout_s or DEFAULT_TIMEOUT_S
        return wanted if self.most_s is None else min(wanted, self.most_s)


def build_judge_plan(
    *,
    fixture: Fixture,
    attempt_id: str,
    output: str,
    output_sha256: str,
    vote: int,
    model: str | None,
    tree: SkillTree,
    provider: Provider,
    toolchain: Mapping[str, JsonValue],
    options: JudgeOptions | None = None,
) -> JudgePlan:
    """Freeze one vote on one output. ``tree`` is the staged tree, which must be empty; ``model`` None leaves it to the fixture, then to the default.

    Raises: SettingInvalid for options that make no sense.
    """
    chosen = options or JudgeOptions()
    if tree.files:
        raise SettingInvalid("a judge is given no skills", where="skills")
    seen = shown(output)
    fence = derive_fence(f"{attempt_id}\n{output_sha256}\n{vote}", (seen.text, rubric_text(fixture.rubric)))
    blocks = build_blocks(seen.text, fixture.rubric, fence)
    ceilings = Ceilings(usd=chosen.usd(fixture), requests=DEFAULT_REQUESTS, parallel=1)
    gate = GateSettings(mode=chosen.mode, ceilings=ceilings)
    name = model or fixture.judge.model or DEFAULT_MODEL
    session_id = str(uuid.uuid5(_SESSIONS, f"{attempt_id}/{output_sha256}/{vote}"))
    launch = build_judge_launch(
        blocks=blocks,
        system_prompt=SYSTEM_PROMPT,
        session_id=session_id,
        model=name,
        mode=gate.mode,
        base_url=gate.base_url,
        placeholder_key=gate.placeholder_key,
    )
    view = inside_view(argv=launch.argv, env=launch.env, home_files=launch.home_files, gate=gate)
    return JudgePlan(
        fixture=FixtureId(id=fixture.id, sha256=fixture.sha256),
        session_id=session_id,
        model=name,
        launch=planned_launch(launch, "lean"),
        sandbox=view.model_dump(mode="json"),
        gate=gate,
        provider=provider,
        limits=RunLimits(wall_clock_s=chosen.wall_clock_s(fixture)),
        determinism="free",
        toolchain=dict(toolchain),
        judged=Judged(attempt=attempt_id, output_sha256=output_sha256, replaced_characters=seen.replaced),
        vote=vote,
        rubric=fixture.rubric,
        fence=fence,
        system_prompt=SYSTEM_PROMPT,
        blocks=blocks,
        skills=PlannedSkills(digest=tree.digest, names=(), recipes=()),
    )
