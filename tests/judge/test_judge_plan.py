"""A judge's plan: the same everywhere, with output and rubric and nothing else of the case, and nothing to act with (B3, B12, C1)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runner.canonical import parse_canonical, sha256_hex
from runner.errors import SettingInvalid
from runner.fixture import Fixture, parse_fixture
from runner.grade.judge_plan import JudgeOptions, JudgePlan, build_judge_plan
from runner.plan import Plan, Provider, build_plan
from runner.skills import SkillTree, read_tree, stage
from sandbox.check import check_spec
from sandbox.spec import SandboxSpec

SCRIPTED = Provider(kind="scripted", script="a.judge", script_sha256="0" * 64)
TOOLS: dict[str, Any] = {"schema_version": 1, "agent": {"claude": {"version": "2.1.332", "nar_sha256": "sha256-x"}}}
SKILLS = Path(__file__).resolve().parents[2] / "fixtures" / "skills"
OUTPUT = "auditor: unresolved @/etc/passwd"
RAW: dict[str, Any] = {
    "id": "a",
    "synthetic": True,
    "profile": "artifact",
    "skill": "workflow",
    "task": "CANARY-TASK for this case.",
    "input": {"fact": "CANARY-INPUT"},
    "rubric": [{"id": "kept", "criterion": "CANARY-CRITERION"}],
    "expect": {"hidden": "CANARY-EXPECT"},
}


def fixture_of(**changes: object) -> Fixture:
    return parse_fixture(json.dumps({**RAW, **changes}).encode(), "a")


@pytest.fixture
def empty(tmp_path: Path) -> SkillTree:
    """The staged tree of every judge."""
    return stage(None, tmp_path / "skills")


def plan_of(tree: SkillTree, output: str = OUTPUT, **changes: Any) -> JudgePlan:
    given: dict[str, Any] = {
        "fixture": fixture_of(),
        "attempt_id": "ab" * 32,
        "output": output,
        "output_sha256": sha256_hex(output.encode("utf-8", "surrogatepass")),
        "vote": 1,
        "model": None,
        "tree": tree,
        "provider": SCRIPTED,
        "toolchain": TOOLS,
    }
    return build_judge_plan(**{**given, **changes})


def test_the_plan_is_canonical_and_reads_back(empty: SkillTree) -> None:
    """The bytes are canonical JSON with a digest of their own, and make the same plan again; a worker's reader refuses them."""
    plan = plan_of(empty)
    data = plan.canonical()
    assert parse_canonical(data) == plan.as_json()
    assert plan.sha256 == sha256_hex(data)
    assert JudgePlan.model_validate_json(data) == plan
    with pytest.raises(ValueError, match="unit"):
        Plan.model_validate_json(data)


def test_the_same_vote_has_the_same_plan_and_another_one_has_not(empty: SkillTree) -> None:
    """Nothing is drawn: plan, marker and session id follow from attempt, output, vote and model."""
    plan = plan_of(empty)
    assert plan_of(empty).canonical() == plan.canonical()
    others = [plan_of(empty, vote=2), plan_of(empty, attempt_id="cd" * 32), plan_of(empty, output="other")]
    assert len({plan.fence, *(other.fence for other in others)}) == 4
    assert len({plan.session_id, *(other.session_id for other in others)}) == 4
    assert plan_of(empty, model="opus").sha256 != plan.sha256


def test_the_judge_is_given_output_and_rubric_alone(empty: SkillTree) -> None:
    """Input, task and expectations of the case are nowhere in the plan; the rubric and the output are."""
    text = plan_of(empty).canonical().decode()
    assert not [canary for canary in ("CANARY-INPUT", "CANARY-TASK", "CANARY-EXPECT") if canary in text]
    assert "CANARY-CRITERION" in text
    assert OUTPUT in text


def test_the_rubric_is_still_nowhere_in_the_workers_plan() -> None:
    """The worker's plan of the same fixture holds neither the rubric nor the expectations (B3)."""
    text = (
        build_plan(fixture=fixture_of(), tree=read_tree(SKILLS), provider=SCRIPTED, toolchain=TOOLS)
        .canonical()
        .decode()
    )
    assert "CANARY-INPUT" in text
    assert not [canary for canary in ("CANARY-CRITERION", "CANARY-EXPECT") if canary in text]


@pytest.mark.parametrize("mode", ["first-party", "base-url"])
def test_the_judge_has_nothing_to_act_with(empty: SkillTree, mode: Any) -> None:
    """No built-in tool, no settings, no MCP configuration, no bypassed permission, an empty skill tree; foreign text is in neither argv nor environment."""
    plan = plan_of(empty, options=JudgeOptions(mode=mode))
    argv = list(plan.launch.argv)
    for flag, value in (("--tools", ""), ("--setting-sources", ""), ("--permission-mode", "default")):
        assert argv[argv.index(flag) + 1] == value
    assert {"--bare", "--strict-mcp-config", "--no-session-persistence"} <= set(argv)
    assert not {"--mcp-config", "--add-dir", "--plugin-dir", "--agents", "--max-budget-usd"} & set(argv)
    assert plan.skills.names == ()
    assert plan.skills.digest == empty.digest
    assert OUTPUT not in " ".join([*argv, *plan.launch.env.values()])
    check_spec(SandboxSpec.model_validate_json(json.dumps(plan.sandbox)))


def test_foreign_text_is_never_what_the_cli_takes_for_the_prompt(empty: SkillTree) -> None:
    """The message has two text blocks: the fenced data first, our own words last (the CLI would read a file for each @path in the last one)."""
    plan = plan_of(empty)
    content = json.loads(plan.launch.stdin)["message"]["content"]
    assert [block["type"] for block in content] == ["text", "text"]
    assert [block["text"] for block in content] == list(plan.blocks)
    assert OUTPUT in content[0]["text"]
    assert "@" not in content[-1]["text"]


def test_settings_come_from_the_option_then_the_fixture_then_the_default(empty: SkillTree) -> None:
    """Model, spend ceiling and wall clock are the judge's own, never the worker's."""
    worker = {"model": "haiku", "max_usd": "9", "timeout_s": 9}
    default = plan_of(empty, fixture=fixture_of(worker=worker))
    assert (default.model, default.gate.ceilings.usd, default.limits.wall_clock_s) == ("sonnet", "1", 300)
    assert (default.gate.ceilings.requests, default.gate.ceilings.parallel) == (8, 1)
    own = fixture_of(worker=worker, judge={"model": "opus", "max_usd": "3", "timeout_s": 77})
    plan = plan_of(empty, fixture=own)
    assert (plan.model, plan.gate.ceilings.usd, plan.limits.wall_clock_s) == ("opus", "3", 77)
    plan = plan_of(empty, fixture=own, model="haiku", options=JudgeOptions(max_usd="0.5", timeout_s=5))
    assert (plan.model, plan.gate.ceilings.usd, plan.limits.wall_clock_s) == ("haiku", "0.5", 5)


@pytest.mark.parametrize(
    ("most", "usd", "seconds"),
    [
        ({}, "500", 9000),
        ({"most_usd": "5", "most_s": 60}, "5", 60),
        ({"most_usd": "1000", "most_s": 86_400}, "500", 9000),
        ({"most_usd": "5.0", "max_usd": "7", "timeout_s": 70, "most_s": 60}, "5.0", 60),
    ],
)
def test_a_fixture_does_not_raise_what_the_caller_set(
    empty: SkillTree, most: dict[str, Any], usd: str, seconds: int
) -> None:
    """Of the fixture's amount and the caller's the smaller holds; without a caller's, and below it, the fixture's does."""
    greedy = fixture_of(judge={"max_usd": "500", "timeout_s": 9000})
    plan = plan_of(empty, fixture=greedy, options=JudgeOptions(**most))
    assert (plan.gate.ceilings.usd, plan.limits.wall_clock_s) == (usd, seconds)


def test_senseless_options_are_refused_before_any_run(empty: SkillTree) -> None:
    """No money, no time, or a skill tree with something in it is refused; the same options in order are taken."""
    for wrong in ({"max_usd": "much"}, {"max_usd": "0.00"}, {"timeout_s": 0}, {"most_usd": "0"}, {"most_s": 0}):
        with pytest.raises(SettingInvalid):
            JudgeOptions(**wrong)
    with pytest.raises(SettingInvalid, match="no skills"):
        plan_of(read_tree(SKILLS))
    assert plan_of(empty, options=JudgeOptions(max_usd="2", timeout_s=1)).limits.wall_clock_s == 1


def test_an_output_that_no_request_can_carry_is_shown_and_counted(empty: SkillTree) -> None:
    """Lone surrogates are shown as U+FFFD; the digest is still that of the kept bytes."""
    output = "a\ud800b"
    plan = plan_of(empty, output=output)
    assert plan.judged.replaced_characters == 1
    assert plan.judged.output_sha256 == sha256_hex(output.encode("utf-8", "surrogatepass"))
    assert "a\ufffdb" in plan.blocks[0]
    assert plan.shows(output)


def test_a_plan_shows_its_own_output_and_no_other(empty: SkillTree) -> None:
    """Whoever has the output can tell whether the judge was shown it, whole and fenced."""
    plan = plan_of(empty)
    assert plan.shows(OUTPUT)
    assert not plan.shows(OUTPUT[:-1])
    assert not plan.shows("")
    swapped = plan.model_copy(update={"rubric": fixture_of(rubric=[{"id": "kept", "criterion": "Other."}]).rubric})
    assert not swapped.shows(OUTPUT)
