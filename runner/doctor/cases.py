"""The fixtures at hand: whether they load, whether their policies let the skill run, and on request one whole run.

Boundary: reads the fixtures' folder; ``check_run`` starts a run whose attempt is thrown away. Not here: the checks of the host.
Rules: no model call is made and nothing is paid: the run is a scripted one.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from runner.doctor.check import Check, failed_by
from runner.errors import InputMissing, RunnerError

if TYPE_CHECKING:
    from runner.attempt import Job
    from runner.conduct import Machine
    from runner.envelope import Fixture

MAX_NAMED = 5


def check_fixtures(folder: Path) -> tuple[Check, list[Fixture]]:
    """Every fixture of the folder is valid, its profile accepts it, and its script and contract can be read."""
    from runner.fixture import list_fixtures, load_fixture
    from runner.gate.script import parse_script
    from runner.profile import validate_fixture
    from runner.simulate.load import contract_of

    title = "The fixtures can be loaded, with their profiles and scripts"
    fixtures: list[Fixture] = []
    wrong: list[str] = []
    try:
        paths = list_fixtures(folder)
    except RunnerError as error:
        return failed_by("fixtures", title, error, "name the folder with --fixtures"), []
    for path in paths:
        try:
            fixture = load_fixture(path)
            validate_fixture(fixture)
            contract_of(fixture.simulation, path.parent, fixture.id)
            script = folder / "scripts" / f"{fixture.script_name}.json"
            if script.is_file():
                parse_script(script.read_bytes(), str(script))
        except RunnerError as error:
            wrong.append(f"{error.where or path}: {error.message}")
        else:
            fixtures.append(fixture)
    if wrong:
        more = f"; and {len(wrong) - MAX_NAMED} more" if len(wrong) > MAX_NAMED else ""
        return Check(
            "fixtures", title, "failed", "; ".join(wrong[:MAX_NAMED]) + more, "mend the named places"
        ), fixtures
    if not fixtures:
        cure = "name the folder with --fixtures"
        return Check("fixtures", title, "degraded", f"there is no fixture in {folder}", cure), fixtures
    return Check("fixtures", title, "ok", f"{len(fixtures)} in {folder}"), fixtures


def check_skill_rules(fixtures: list[Fixture]) -> Check:
    """A fixture that lists permissions names its skill among them; the runner adds what is missing (case S03)."""
    from runner.claude.permissions import denies_skill, missing_skill_rules

    title = "Permission rules of fixtures name the skill under test"
    missing, denied = [], []
    for fixture in fixtures:
        if fixture.worker.settings is None:
            continue
        rules = fixture.worker.settings.permissions.model_dump()
        name = fixture.skill_name
        missing += [f"{fixture.id} does not name Skill({name})" for name in missing_skill_rules(rules, (name,))]
        denied += [f"{fixture.id} denies Skill({name})"] if denies_skill(rules, name) else []
    if missing:
        cause = f"{'; '.join(missing)}: without that rule the skill would be refused, so the runner adds it"
        return Check("skill-rules", title, "degraded", cause, "add the rule to worker.settings.permissions.allow")
    return Check("skill-rules", title, "ok", "; ".join(denied))


def check_run(folder: Path, fixtures: list[Fixture], machine: Machine) -> Check:
    """Run the first fixture that has a script, the real CLI on the real skill, and throw the attempt away."""
    import threading

    from runner.attempt import run_attempt
    from runner.conduct import open_supervisor

    title = "A whole run: the real CLI on a scripted provider, from fixture to attempt"
    try:
        with open_supervisor(machine) as keeper:  # its private directory is gone whatever ends this process
            job = scripted_job(folder, fixtures, keeper.staging)
            done = run_attempt(job, machine, tell=lambda *_: None, cancelled=threading.Event())
    except RunnerError as error:
        return failed_by("run", title, error, "cure what failed above")
    outcome = done.assessment.outcome
    if outcome.kind != "measured":
        cause = f"{job.fixture.id}: error[{outcome.code}]: {outcome.message}"
        return Check("run", title, "failed", cause, outcome.hint or "run it by hermeval run and look at the attempt")
    return Check("run", title, "ok", f"{job.fixture.id}: measured in {done.row['duration_s']:.1f} s")


def scripted_job(folder: Path, fixtures: list[Fixture], out: Path) -> Job:
    """Return a run of the first fixture that has a script and whose policy lets its skill run.

    Raises: InputMissing, ScriptInvalid.
    """
    from runner.attempt import Job
    from runner.canonical import sha256_hex
    from runner.claude.permissions import denies_skill
    from runner.gate.script import parse_script
    from runner.gate.upstreams.scripted import ScriptedUpstream
    from runner.plan import PlanOptions, Provider
    from runner.simulate.load import contract_of

    for fixture in fixtures:
        path = folder / "scripts" / f"{fixture.script_name}.json"
        settings = fixture.worker.settings
        if not path.is_file() or (
            settings is not None and denies_skill(settings.permissions.model_dump(), fixture.skill_name)
        ):
            continue
        source = path.read_bytes()
        upstream = partial(ScriptedUpstream, parse_script(source, str(path)))
        return Job(
            fixture,
            PlanOptions(),
            folder / "skills",
            folder / "recipes",
            Provider(kind="scripted", script=path.stem, script_sha256=sha256_hex(source)),
            upstream,
            out,
            contract=contract_of(fixture.simulation, folder, fixture.id),
        )
    raise InputMissing(
        "no fixture has a script", where=str(folder / "scripts"), hint="name another folder with --fixtures"
    )
