"""The plan: canonical, the same everywhere, and without a trace of what the worker must not see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.canonical import parse_canonical, sha256_hex
from runner.errors import SettingInvalid, SkillTreeInvalid
from runner.fixture import Fixture, list_fixtures, load_fixture, parse_fixture
from runner.gate.script import parse_script
from runner.plan import Plan, PlanOptions, Provider, build_plan, sandbox_spec
from runner.simulate.load import contract_of
from runner.skills import SkillTree, read_tree, stage
from sandbox.check import check_spec
from sandbox.spec import RoBind, SandboxSpec

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "fixtures"
LETTERS = st.characters(categories=("L", "Zs"))
SCRIPTED = Provider(kind="scripted", script="a", script_sha256="0" * 64)
TOOLS: dict[str, Any] = {"schema_version": 1, "agent": {"claude": {"version": "2.1.332", "nar_sha256": "sha256-x"}}}
RAW: dict[str, Any] = {
    "id": "a",
    "synthetic": True,
    "profile": "artifact",
    "skill": "workflow",
    "input": {"b": 1, "a": "x"},
    "rubric": [{"id": "r", "criterion": "x"}],
}


@pytest.fixture(scope="module")
def tree() -> SkillTree:
    """The shipped skills."""
    return read_tree(FIXTURES / "skills")


def fixture_of(**changes: object) -> Fixture:
    return parse_fixture(json.dumps({**RAW, **changes}).encode(), "a")


def plan_of(tree: SkillTree, options: PlanOptions | None = None, **changes: object) -> Plan:
    fixture = fixture_of(**changes)
    contract = contract_of(fixture.simulation, FIXTURES, fixture.id)
    return build_plan(
        fixture=fixture, tree=tree, provider=SCRIPTED, toolchain=TOOLS, options=options, contract=contract
    )


def test_plan_is_canonical_and_reads_back(tree: SkillTree) -> None:
    """The bytes are canonical JSON, the digest is theirs, and they make the same plan again."""
    plan = plan_of(tree)
    data = plan.canonical()
    assert parse_canonical(data) == plan.as_json()
    assert plan.sha256 == sha256_hex(data)
    again = Plan.model_validate_json(data)
    assert again == plan
    assert again.sha256 == plan.sha256


@pytest.mark.parametrize("path", list_fixtures(FIXTURES), ids=lambda path: path.stem)
@pytest.mark.parametrize("launch", ["stock", "lean"])
@pytest.mark.parametrize("mode", ["first-party", "base-url"])
def test_shipped_fixtures_plan(path: Path, launch: Any, mode: Any, tree: SkillTree) -> None:
    """Every shipped fixture has a plan in both settings and modes, whose sandbox keeps the sandbox's rules."""
    fixture = load_fixture(path)
    plan = build_plan(
        fixture=fixture,
        tree=tree,
        provider=SCRIPTED,
        toolchain=TOOLS,
        options=PlanOptions(launch=launch, mode=mode),
        contract=contract_of(fixture.simulation, FIXTURES, fixture.id),
    )
    assert plan.skills.digest == tree.digest
    assert plan.unit.body_sha256 is not None
    assert (plan.unit.reference_sha256 is None) == (fixture.reference is None)
    check_spec(sandbox_spec(plan, rootfs="host", system=(RoBind(source="/usr", target="/usr"),)))


def test_shipped_scripts_are_scripts() -> None:
    """Each shipped fixture has a script for its worker and one for its judge that the scripted provider can read, and no script lies there unused."""
    names = {load_fixture(path).script_name for path in list_fixtures(FIXTURES)}
    wanted = names | {f"{name}.judge" for name in names}
    assert {path.stem for path in (FIXTURES / "scripts").iterdir()} == wanted
    for name in wanted:
        assert parse_script((FIXTURES / "scripts" / f"{name}.json").read_bytes(), name).replies


def test_defaults_are_the_designs(tree: SkillTree) -> None:
    """Model, ceilings and deadlines are those of DESIGN where nobody says otherwise."""
    plan = plan_of(tree)
    assert plan.model == "sonnet"
    ceilings = plan.gate.ceilings
    assert (ceilings.usd, ceilings.requests, ceilings.parallel, ceilings.tokens) == ("2", 60, 4, 2_000_000)
    limits = plan.limits
    assert (limits.wall_clock_s, limits.first_event_s, limits.after_result_s, limits.stdout_bytes) == (
        600,
        60,
        5,
        64 << 20,
    )
    assert (plan.gate.mode, plan.launch.setting, plan.determinism, plan.invocation) == (
        "first-party",
        "stock",
        "free",
        "routing",
    )


def test_option_goes_before_fixture_before_default(tree: SkillTree) -> None:
    """What the caller chooses wins over the fixture's settings, and both over the defaults (B16)."""
    worker = {
        "model": "opus",
        "max_usd": "0.50",
        "max_requests": 5,
        "max_parallel": 1,
        "max_tokens": 9,
        "timeout_s": 30,
        "provider_tools": ["web_search"],
    }
    plan = plan_of(tree, worker=worker)
    assert (plan.model, plan.gate.ceilings.usd, plan.limits.wall_clock_s) == ("opus", "0.50", 30)
    assert (plan.gate.ceilings.requests, plan.gate.ceilings.parallel, plan.gate.ceilings.tokens) == (5, 1, 9)
    assert plan.gate.allow_provider_tools == ("web_search",)
    assert "0.50" in plan.launch.argv
    chosen = plan_of(tree, PlanOptions(model="haiku", max_usd="1", timeout_s=7), worker=worker)
    assert (chosen.model, chosen.gate.ceilings.usd, chosen.limits.wall_clock_s) == ("haiku", "1", 7)
    assert chosen.launch.argv[chosen.launch.argv.index("--model") + 1] == "haiku"


@pytest.mark.parametrize(
    "options",
    [
        *({"repeat": -1}, {"timeout_s": 0}, {"timeout_s": 86_401}),
        *({"max_usd": value} for value in ("two", "", "-1", "NaN", "1e400", "0", "0.00")),
        *({"model": value} for value in ("", "so net", "a\nb", "sonnet\n", "-p")),
    ],
)
def test_senseless_options_are_refused(options: dict[str, Any]) -> None:
    """An option that makes no sense is the caller's error; an empty one is never taken for no choice."""
    with pytest.raises(SettingInvalid):
        PlanOptions(**options)


def test_an_option_may_say_what_a_fixture_may() -> None:
    """The control: names and amounts of the usual forms are taken."""
    for model in ("sonnet", "claude-opus-5-5", "claude-sonnet-5-5[1m]"):
        assert PlanOptions(model=model, max_usd="0.50", timeout_s=86_400).model == model


def test_session_id_follows_fixture_and_repeat(tree: SkillTree) -> None:
    """Each repeat has its own session id, the same on every machine; the literal guards committed attempts."""
    plans = [plan_of(tree, PlanOptions(repeat=index)) for index in (0, 1)]
    assert plans[0].session_id != plans[1].session_id
    assert plan_of(tree, id="a").session_id == plans[0].session_id == "616209a6-8703-5a78-9129-3c93d606016d"
    assert plans[0].session_id in plans[0].launch.argv
    differing = {key for key, value in plans[0].as_json().items() if plans[1].as_json()[key] != value}
    assert differing == {"repeat", "session_id", "launch", "sandbox"}


def test_denied_skill_is_in_the_plan(tree: SkillTree) -> None:
    """A routing fixture that denies its own skill is planned: the refusal is what its run shows."""
    plan = plan_of(tree, worker={"settings": {"permissions": {"deny": ["Skill(workflow)"]}}})
    assert '{"permissions":{"deny":["Skill(workflow)"]}}' in plan.launch.argv


def test_absent_skill_is_planned_without_a_body(tree: SkillTree) -> None:
    """A fixture whose skill is not staged has a plan that says so, so that the absence can be shown."""
    plan = plan_of(tree, skill="not-there")
    assert (plan.unit.names, plan.unit.base_dir, plan.unit.body_sha256) == (("not-there",), None, None)


def test_unprovable_unit_and_wrong_recipes_are_refused(tree: SkillTree, tmp_path: Path) -> None:
    """No plan is made for a forked skill, nor with a tree that lacks the fixture's recipes."""
    (tmp_path / "s" / "workflow").mkdir(parents=True)
    (tmp_path / "s" / "workflow" / "SKILL.md").write_text("---\ncontext: fork\n---\n# x\n")
    with pytest.raises(SkillTreeInvalid):
        plan_of(stage(tmp_path / "s", tmp_path / "d"))
    with pytest.raises(SettingInvalid):
        plan_of(tree, recipes=["recipe-probe"])
    both = stage(FIXTURES / "skills", tmp_path / "e", recipes_root=FIXTURES / "recipes", recipes=("recipe-probe",))
    assert plan_of(both, recipes=["recipe-probe"]).skills.recipes == ("recipe-probe",)


def test_rubric_and_expect_are_nowhere_in_the_plan(tree: SkillTree) -> None:
    """Canaries in rubric and expect reach no part of the plan; the one in the input does (B3)."""
    changes: dict[str, Any] = {
        "rubric": [{"id": "canary-one", "criterion": "canary-two"}],
        "expect": {"canary-three": "canary-four"},
        "simulation": {
            "contract": "ticketing",
            "comments": {"DESK-1": [{"author": "canary-five", "body": "canary-seven"}]},
            "faults": [{"id": "canary-eight", "kind": "refused", "tool": "ticket_read", "message": "canary-nine"}],
        },
        "judge": {"model": "canary-six"},
        "input": {"seen": "canary-input"},
    }
    forms: list[dict[str, Any]] = [{}, {"invocation": "slash"}, {"skill": "workflow/references/provision.md"}]
    for form in forms:
        plan = plan_of(tree, **changes, **form)
        text = plan.canonical().decode()
        assert "canary-input" in text
        assert text.count("canary") == text.count("canary-input")
        spec = sandbox_spec(plan, rootfs="host", system=())
        inside = spec.model_dump_json() + "".join(
            file.content.decode() for file in spec.mounts if hasattr(file, "content")
        )
        assert "canary" not in inside.replace("canary-input", "")


def test_plan_holds_no_place_of_this_machine(tree: SkillTree, tmp_path: Path) -> None:
    """No host path, user or home is in the plan; the sources of its binds are names."""
    text = plan_of(stage(FIXTURES / "skills", tmp_path / "staged")).canonical().decode()
    for word in (str(tmp_path), str(ROOT), sys.prefix, "/root", "/var/"):
        assert word not in text
    spec = SandboxSpec.model_validate_json(json.dumps(plan_of(tree).sandbox))
    assert {mount.source for mount in spec.mounts if isinstance(mount, RoBind)} == {"@claude", "@skills", "@ca"}


def test_sandbox_of_this_machine_is_the_planned_one_and_its_system(tree: SkillTree) -> None:
    """The sandbox that is started differs from the one in the plan by the read-only system alone."""
    plan = plan_of(tree)
    system = (RoBind(source="/usr", target="/usr"), RoBind(source="/etc/ld.so.cache", target="/etc/ld.so.cache"))
    spec = sandbox_spec(plan, rootfs="host", system=system)
    without = spec.model_copy(
        update={"rootfs": "any", "mounts": tuple(mount for mount in spec.mounts if mount not in system)}
    )
    assert without.model_dump(mode="json") == plan.sandbox


def test_modes_differ_in_port_names_and_authority(tree: SkillTree) -> None:
    """First-party mode maps the provider's name and shows the run's authority; base-URL mode does neither."""
    first = sandbox_spec(plan_of(tree), rootfs="host", system=())
    other = sandbox_spec(plan_of(tree, PlanOptions(mode="base-url")), rootfs="host", system=())
    assert first.network is not None
    assert other.network is not None
    assert (first.network.port, other.network.port) == (443, 8080)
    hosts = [
        next(
            file.content
            for file in spec.mounts
            if getattr(file, "target", "") == "/etc/hosts" and hasattr(file, "content")
        )
        for spec in (first, other)
    ]
    assert b"api.anthropic.com" in hosts[0]
    assert b"api.anthropic.com" not in hosts[1]
    assert "@ca" not in other.model_dump_json()


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from runner.fixture import load_fixture
from runner.plan import Provider, build_plan
from runner.skills import read_tree
root = Path(sys.argv[1])
fixture = load_fixture(root / "fixtures" / "missing-account.json")
plan = build_plan(fixture=fixture, tree=read_tree(root / "fixtures" / "skills"), provider=Provider(kind="scripted"), toolchain={})
print(plan.sha256)
"""


def test_plan_does_not_depend_on_cwd_environment_or_hash_seed(tmp_path: Path) -> None:
    """Three processes with other working directories, locales, zones and hash seeds make the same plan."""
    digests = set()
    for cwd, env in (
        ("/", {"PYTHONHASHSEED": "1"}),
        (str(tmp_path), {"PYTHONHASHSEED": "2", "TZ": "Asia/Tokyo", "LC_ALL": "C", "HOME": "/nonexistent"}),
        ("/", {"PYTHONHASHSEED": "3", "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://x"}),
    ):
        ran = subprocess.run(
            [sys.executable, "-B", "-c", PROGRAM, str(ROOT)],
            cwd=cwd,
            env={"PATH": os.defpath, **env},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(ran.stdout)
    assert len(digests) == 1


def shuffled(value: Any, order: int) -> Any:
    """Return a JSON value with the keys of its objects in another order."""
    if isinstance(value, dict):
        keys = list(value)[order % max(1, len(value)) :] + list(value)[: order % max(1, len(value))]
        return {key: shuffled(value[key], order) for key in keys}
    return [shuffled(part, order) for part in value] if isinstance(value, list) else value


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.text(LETTERS, max_size=4),
        st.integers(-9, 9) | st.text(LETTERS, max_size=9),
        max_size=4,
    ),
    st.integers(0, 99),
)
def test_key_order_changes_nothing_but_the_source(tree: SkillTree, facts: dict[str, Any], order: int) -> None:
    """Two fixtures that differ in the order of keys have plans that differ in the fixture's sha256 alone."""
    changes = {"input": {"facts": facts, "none": None}, "worker": {"timeout_s": 9, "model": "opus"}}
    one = json.dumps({**RAW, **changes}).encode()
    two = json.dumps(shuffled({**RAW, **changes}, order)).encode()
    plans = [
        build_plan(fixture=parse_fixture(data, "a"), tree=tree, provider=SCRIPTED, toolchain=TOOLS).as_json()
        for data in (one, two)
    ]
    for plan in plans:
        plan.pop("fixture")
    assert plans[0] == plans[1]
