"""The plan: everything that decides one worker run, frozen before anything is started (DESIGN, step 2).

Boundary: pure. Not here: a judge's plan (runner/grade/judge_plan.py), the prompt's text (prompt.py), the start of the CLI (runner/claude/launch.py), the inside view (confine.py).
Rules: two machines with the same fixture, skill tree, options and toolchain have the same plan, byte for byte: no path of a host, no time, no environment,
no random number is in it, and neither is the root file system, which may drift (DESIGN "Bit for bit"). Nothing of ``rubric`` and ``expect`` is in it but
through the fixture's sha256 (B3). A new field that changes a run belongs here; one that does not, does not.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from runner.canonical import canonical_json, sha256_hex
from runner.claude.launch import Launch, LaunchSetting, build_launch
from runner.confine import inside_view
from runner.envelope import Fixture, Invocation, check_settings
from runner.errors import SettingInvalid
from runner.gate.exchange import Value
from runner.gate.settings import Ceilings, GateSettings
from runner.lint import check_unit
from runner.pinned import PinnedWorld, make_world
from runner.prompt import build_prompt
from runner.simulate.planned import PlannedSimulation, planned_simulation
from runner.skills import SkillTree, SkillUnit
from sandbox.spec import Mount, SandboxSpec

if TYPE_CHECKING:
    from runner.simulate.contract import Contract

SCHEMA_VERSION = 1
DEFAULT_MODEL = "sonnet"
_SESSIONS = uuid.UUID("6f1f6c0e-8f0b-5c53-9c7e-2d1c0a9b7e11")
"""Name space of session ids; the id stands in every request, so it does not change once attempts are committed."""

ProviderKind = Literal["scripted", "anthropic", "recorded"]


class Provider(Value):
    """Where the answers come from."""

    kind: ProviderKind
    script: str | None = None
    """Name of the script, for ``scripted``."""
    script_sha256: str | None = None
    base_url: str | None = None
    """For ``anthropic``: the address of the API."""
    recording: str | None = None
    """For ``recorded``: the id of the attempt whose exchanges are served."""


class FixtureId(Value):
    """Which fixture."""

    id: str
    sha256: str
    """Of the file's bytes."""


class PlannedUnit(Value):
    """The unit under test, as the evidence will look for it (A5, A7). Its texts are in the staged tree."""

    skill: str
    """As the fixture names it."""
    names: tuple[str, ...]
    """Folder and front-matter name; the wanted name alone where nothing of that name is staged."""
    base_dir: str | None
    """None where nothing of that name is staged."""
    body_sha256: str | None
    """Of the body as the CLI sends it, in UTF-8."""
    reference: str | None
    reference_sha256: str | None


class PlannedSkills(Value):
    """The staged skill tree."""

    digest: str
    names: tuple[str, ...]
    recipes: tuple[str, ...]


class PlannedLaunch(Value):
    """The start of the CLI, as text."""

    setting: LaunchSetting
    argv: tuple[str, ...]
    env: dict[str, str]
    stdin: str
    home_files: dict[str, str]


class RunLimits(Value):
    """Deadlines and caps that the runner holds from outside."""

    wall_clock_s: int = 600
    first_event_s: int = 60
    """From the release of the CLI to its first event; after that ``timeout`` at step ``cli-start``."""
    after_result_s: int = 5
    """From a result with no background task running to the end of the CLI (A8)."""
    stdout_bytes: int = 64 << 20
    stderr_bytes: int = 4 << 20


class RunPlan(Value):
    """What every plan has, a worker's or a judge's: all that steps 3 to 7 need."""

    schema_version: Annotated[int, Field(ge=1)] = SCHEMA_VERSION
    fixture: FixtureId
    session_id: str
    model: str
    """The alias or name that the CLI is given (B16)."""
    launch: PlannedLaunch
    sandbox: dict[str, JsonValue]
    """The inside view as ``SandboxSpec`` in JSON, without the machine's own read-only system (confine.py)."""
    gate: GateSettings
    provider: Provider
    limits: RunLimits
    determinism: Literal["free", "pinned"]
    pinned: Annotated[PinnedWorld | None, Field(exclude_if=lambda value: value is None)] = None
    """What programs are shown, where determinism is ``pinned``. Left out of the JSON form where it is not so: free plans do not have it."""
    toolchain: dict[str, JsonValue]
    """Versions and NAR hashes of the tools that run inside (C2)."""
    simulation: PlannedSimulation | None = None
    """The simulated service, where the fixture has one (B14)."""
    shared_workspace: Annotated[bool, Field(exclude_if=lambda value: value is False)] = False
    """The workspace is a directory of the host, for debugging (A13); which one is no part of a plan. Left out of the JSON form where it is not so: other plans do not have it."""

    @model_validator(mode="after")
    def _world_goes_with_pinned(self) -> Self:
        if (self.determinism == "pinned") != (self.pinned is not None):
            raise ValueError("a pinned plan, and no other, says what is pinned")
        return self

    @classmethod
    def read(cls, part: bytes) -> Self:
        """Return a stored plan.

        Raises: ValueError where it is none of this release, or holds a value that canonical JSON cannot (whoever wrote it has not frozen it).
        """
        plan = cls.model_validate_json(part)
        plan.canonical()
        return plan

    def as_json(self) -> dict[str, JsonValue]:
        """Return the plan as a JSON value."""
        value: dict[str, JsonValue] = self.model_dump(mode="json")
        return value

    def canonical(self) -> bytes:
        """Return the canonical JSON of the plan: the part ``plan.json`` of an attempt."""
        return canonical_json(self.as_json())

    @property
    def sha256(self) -> str:
        """Hex sha256 of the canonical JSON (``plan_sha256``)."""
        return sha256_hex(self.canonical())

    def told(self) -> dict[str, JsonValue]:
        """Return what an attempt's row and its manifest tell of the plan beside what every run has; a judge's says more."""
        return {"skill": None}


class Plan(RunPlan):
    """One worker run, decided."""

    repeat: Annotated[int, Field(ge=0)]
    """Zero-based index among repeats of the same fixture."""
    invocation: Invocation
    prompt: str
    unit: PlannedUnit
    skills: PlannedSkills

    def told(self) -> dict[str, JsonValue]:
        """Return the unit under test, as the fixture names it."""
        debug: dict[str, JsonValue] = {"debug": "shared-workspace"} if self.shared_workspace else {}
        return {"skill": self.unit.skill, **debug}


@dataclass(frozen=True)
class PlanOptions:
    """What the caller may choose; None leaves it to the fixture, then to the default."""

    launch: LaunchSetting = "stock"
    mode: Literal["first-party", "base-url"] = "first-party"
    model: str | None = None
    repeat: int = 0
    max_usd: str | None = None
    timeout_s: int | None = None
    determinism: Literal["free", "pinned"] = "free"
    pinned_date: str | None = None
    """``YYYY-MM-DD`` or ``YYYY-MM-DDTHH:MM:SSZ``; for ``pinned`` only, as the next two."""
    pinned_seed: str | None = None
    """64 hexadecimal digits."""
    world: PinnedWorld | None = None
    """A recorded plan's, taken as it is."""
    shared_workspace: bool = False

    def __post_init__(self) -> None:
        """Refuse what makes no sense, before anything is started. Raises: SettingInvalid."""
        check_settings(model=self.model, max_usd=self.max_usd, timeout_s=self.timeout_s)
        if self.determinism == "free" and (self.pinned_date, self.pinned_seed, self.world) != (None, None, None):
            hint = "add --determinism pinned"
            raise SettingInvalid("a date or a seed goes with pinned determinism", where="determinism free", hint=hint)
        if self.repeat < 0:
            raise SettingInvalid("a repeat index is not negative", where=f"repeat {self.repeat}")


def build_plan(
    *,
    fixture: Fixture,
    tree: SkillTree,
    provider: Provider,
    toolchain: Mapping[str, JsonValue],
    options: PlanOptions | None = None,
    contract: Contract | None = None,
) -> Plan:
    """Freeze everything that decides a run.

    ``tree`` is the staged tree (its recipes those of the fixture), ``toolchain`` the record of the installed agent tools, ``contract`` that of the fixture's ``simulation``.
    Raises: SkillTreeInvalid for a unit whose run could not be proved; SettingInvalid for options that make no sense.
    """
    chosen = options or PlanOptions()
    check_unit(tree, fixture)
    if sorted(tree.recipes) != sorted(fixture.recipes):
        raise SettingInvalid("the staged tree does not hold the fixture's recipes", where=fixture.id)
    if (contract is None) != (fixture.simulation is None):
        raise SettingInvalid("a fixture's simulation and its contract go together", where=fixture.id)
    gate = _gate(fixture, chosen)
    model = chosen.model or fixture.worker.model or DEFAULT_MODEL
    session_id = str(uuid.uuid5(_SESSIONS, f"{fixture.id}/{chosen.repeat}"))
    prompt = build_prompt(fixture)
    unit = tree.unit(fixture.skill_name)
    simulation = planned_simulation(contract)
    world = _world(fixture, chosen, toolchain)
    launch = _launch(
        fixture, chosen, gate, prompt=prompt, model=model, session_id=session_id, unit=unit, simulation=simulation
    )
    return Plan(
        fixture=FixtureId(id=fixture.id, sha256=fixture.sha256),
        repeat=chosen.repeat,
        session_id=session_id,
        invocation=fixture.form,
        prompt=prompt,
        model=model,
        unit=_unit(fixture, unit),
        skills=PlannedSkills(digest=tree.digest, names=tree.names, recipes=tuple(sorted(tree.recipes))),
        launch=planned_launch(launch, chosen.launch),
        sandbox=inside_view(
            argv=launch.argv,
            env=launch.env,
            home_files=launch.home_files,
            gate=gate,
            simulation=simulation,
            shared_workspace=chosen.shared_workspace,
            pinned=world,
        ).model_dump(mode="json"),
        gate=gate,
        provider=provider,
        limits=RunLimits(wall_clock_s=_timeout(fixture, chosen)),
        determinism=chosen.determinism,
        pinned=world,
        toolchain=dict(toolchain),
        simulation=simulation,
        shared_workspace=chosen.shared_workspace,
    )


def planned_launch(launch: Launch, setting: LaunchSetting) -> PlannedLaunch:
    """Return the start of the CLI as it stands in a plan."""
    return PlannedLaunch(
        setting=setting,
        argv=launch.argv,
        env=dict(launch.env),
        stdin=launch.stdin.decode("ascii"),
        home_files={path: content.decode("utf-8") for path, content in launch.home_files.items()},
    )


def sandbox_spec(
    plan: RunPlan,
    *,
    rootfs: str,
    system: Sequence[Mount],
    seccomp: bytes | None = None,
    shift_s: int | None = None,
) -> SandboxSpec:
    """Return the sandbox of a plan on this machine.

    ``rootfs`` and ``system`` are the read-only system: its name and its mounts (sandbox/rootfs.py, or a pinned closure). The sources ``@claude``, ``@skills``
    and, in first-party mode, ``@ca`` are given their paths when the sandbox is started; ``@attend`` and ``@clock`` where the world is pinned or the clock shifted (``shift_s``, seconds).
    """
    home_files = {path: content.encode("utf-8") for path, content in plan.launch.home_files.items()}
    return inside_view(
        argv=plan.launch.argv,
        env=plan.launch.env,
        home_files=home_files,
        gate=plan.gate,
        rootfs=rootfs,
        system=system,
        seccomp=seccomp,
        simulation=plan.simulation,
        shared_workspace=plan.shared_workspace,
        pinned=plan.pinned,
        shift_s=shift_s,
    )


def _world(fixture: Fixture, chosen: PlanOptions, toolchain: Mapping[str, JsonValue]) -> PinnedWorld | None:
    """Return what is pinned: as recorded, as asked for, or as it follows from fixture and repeat. Raises: SettingInvalid."""
    if chosen.determinism == "free":
        return None
    return chosen.world or make_world(
        date=chosen.pinned_date,
        seed=chosen.pinned_seed,
        fixture=fixture.id,
        repeat=chosen.repeat,
        toolchain=toolchain,
    )


def _gate(fixture: Fixture, chosen: PlanOptions) -> GateSettings:
    """Return the gate's settings: option, else fixture, else default."""
    worker, default = fixture.worker, Ceilings()
    ceilings = Ceilings(
        usd=chosen.max_usd or worker.max_usd or default.usd,
        requests=worker.max_requests or default.requests,
        parallel=worker.max_parallel or default.parallel,
        tokens=worker.max_tokens or default.tokens,
    )
    return GateSettings(mode=chosen.mode, allow_provider_tools=tuple(sorted(worker.provider_tools)), ceilings=ceilings)


def _timeout(fixture: Fixture, chosen: PlanOptions) -> int:
    timeout_s = chosen.timeout_s if chosen.timeout_s is not None else fixture.worker.timeout_s
    return RunLimits().wall_clock_s if timeout_s is None else timeout_s


def _launch(
    fixture: Fixture,
    chosen: PlanOptions,
    gate: GateSettings,
    *,
    prompt: str,
    model: str,
    session_id: str,
    unit: SkillUnit | None,
    simulation: PlannedSimulation | None,
) -> Launch:
    settings = fixture.worker.settings
    permissions = None if settings is None else settings.permissions
    return build_launch(
        prompt=prompt,
        setting=chosen.launch,
        session_id=session_id,
        model=model,
        max_usd=gate.ceilings.usd,
        mode=gate.mode,
        base_url=gate.base_url,
        placeholder_key=gate.placeholder_key,
        permissions=None if permissions is None else {"allow": permissions.allow, "deny": permissions.deny},
        output_schema=fixture.worker.output_schema,
        skills=(unit.directory if unit is not None else fixture.skill_name,),
        mcp_servers=None if simulation is None else simulation.mcp_servers,
        programs=None if simulation is None else simulation.programs,
    )


def _unit(fixture: Fixture, unit: SkillUnit | None) -> PlannedUnit:
    reference = fixture.reference
    text = None if unit is None or reference is None else unit.references[reference]
    return PlannedUnit(
        skill=fixture.skill,
        names=unit.names if unit is not None else (fixture.skill_name,),
        base_dir=None if unit is None else unit.base_dir,
        body_sha256=None if unit is None else sha256_hex(unit.body.encode("utf-8")),
        reference=reference,
        reference_sha256=None if text is None else sha256_hex(text.encode("utf-8")),
    )
