"""Make an attempt's plan again from its own fixture and skill tree, to see that the three belong together.

Boundary: pure but for parsing the stored fixture. Not here: what follows from a difference (reproduce.py).
Rules: options are read back from the stored plan; whatever the options do not decide must come out the same, so that an edited prompt, argument or environment is found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.plan import Plan, PlanOptions, RunPlan, build_plan

if TYPE_CHECKING:
    from runner.bundle.reader import Attempt
    from runner.simulate.contract import Contract
    from runner.skills import SkillTree


def replan(attempt: Attempt, plan: RunPlan, tree: SkillTree, contract: Contract | None) -> RunPlan | None:
    """Return the plan that this release makes of the attempt's fixture and tree; None for a kind of plan that is not made from them (a judge's)."""
    from runner.fixture import parse_fixture

    if not isinstance(plan, Plan):
        return None
    fixture = parse_fixture(attempt.part("fixture.json"), plan.fixture.id)
    options = PlanOptions(
        launch=plan.launch.setting,
        mode=plan.gate.mode,
        model=plan.model,
        repeat=plan.repeat,
        max_usd=plan.gate.ceilings.usd,
        timeout_s=plan.limits.wall_clock_s,
        determinism=plan.determinism,
        world=plan.pinned,
        shared_workspace=plan.shared_workspace,
    )
    return build_plan(
        fixture=fixture, tree=tree, provider=plan.provider, toolchain=plan.toolchain, options=options, contract=contract
    )
