"""Several runs as one command: everything is loaded and checked first, then run, some at a time, in threads of their own.

Boundary: reads fixtures, scripts and the key; starts threads. Not here: options (run.py), text (story.py), the run (runner/attempt.py).
Rules: an interrupt ends the runs under way (their sandboxes die, nothing of them is kept) and leaves finished attempts alone; their rows are told still. A fault of one run,
a bug too, is that run's row and stops no other. Rows come out in the order of the fixtures. No scratch directory is made but a supervised one: SIGKILL leaves nothing.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.cli.interrupt import INTERRUPTS, Interrupted
from runner.cli.paths import shortened
from runner.cli.provider import make_source, read_key, require_listener
from runner.errors import InputMissing, RunnerError, SettingInvalid
from runner.unforeseen import unforeseen
from runner.waiting import wait_all

if TYPE_CHECKING:
    from runner.attempt import Job, Machine
    from runner.cli.grading import GradingChoice, GradingDesk
    from runner.cli.story import Story
    from runner.plan import Plan


@dataclass(frozen=True)
class Request:
    """What the command line asked for."""

    names: tuple[str, ...]
    folder: Path
    skills: Path | None
    provider: str
    script: Path | None
    base_url: str | None
    key_file: Path | None
    ca_file: Path | None
    gate_mode: Any
    launch: Any
    model: str | None
    max_usd: str | None
    timeout_s: int | None
    repeat: int
    jobs: int
    out: Path
    keep: Path | None
    environ: Mapping[str, str]
    grading: GradingChoice | None = None
    """How attempts are judged and graded; None leaves them ungraded."""
    require_limits: tuple[str, ...] = ()
    """Limits without which no run starts."""
    determinism: Any = "free"
    pinned_date: str | None = None
    pinned_seed: str | None = None
    shared_workspace: Path | None = None
    """A directory of the host that is the workspace of the one run, for debugging (A13)."""


def run_batch(request: Request, story: Story) -> int:
    """Run everything that was asked for, and judge and grade what was measured; return the exit code (B11)."""
    jobs = load_jobs(request)
    machine = open_machine(request.environ, request.require_limits)
    if request.determinism == "pinned":
        require_parts(machine)
    require_listener(request)
    with contextlib.ExitStack() as held:
        if request.shared_workspace is not None:
            jobs = [share(jobs[0], request, machine, held)]
        return _run_jobs(jobs, request, machine, story)


def _run_jobs(jobs: list[Job], request: Request, machine: Machine, story: Story) -> int:
    if len(jobs) > 1:
        _plan_all(jobs, machine)  # a fault in the last fixture is found before the first is paid
    cancelled = threading.Event()
    if request.grading is None:
        story.begin(request, len(jobs))
        return _run_all(jobs, request, machine, story, cancelled, None)
    from runner.cli.grading import GradingDesk

    with GradingDesk(request, machine, request.grading, [job.fixture for job in jobs]) as desk:
        story.begin(request, len(jobs))
        return _run_all(jobs, request, machine, story, cancelled, desk)


def _run_all(
    jobs: list[Job],
    request: Request,
    machine: Machine,
    story: Story,
    cancelled: threading.Event,
    desk: GradingDesk | None,
) -> int:
    from runner.attempt import Cancelled, run_attempt

    def work(number: int, job: Job) -> dict[str, Any]:
        if cancelled.is_set():
            raise Cancelled
        told = story.teller(number, job.fixture.id)

        def tell(step: str, facts: Mapping[str, Any]) -> None:
            told(step, facts)
            if desk is not None and step == "first-event":
                desk.warm()  # not before: until then the CLI boots, and both want the processor

        try:
            attempted = run_attempt(job, machine, tell=tell, cancelled=cancelled)
        except Cancelled:
            raise
        except RunnerError as error:
            return story.failed(job.fixture.id, error)
        except Exception as bug:  # noqa: BLE001  one run's bug stops no other
            return story.failed(job.fixture.id, unforeseen(bug))
        return story.ended(attempted)

    futures: list[Future[dict[str, Any]]] = []
    try:
        with INTERRUPTS.deferred(cancelled.set):
            with ThreadPoolExecutor(request.jobs, "hermeval-run") as pool:
                futures = [pool.submit(work, number, job) for number, job in enumerate(jobs)]
                wait_all(futures)
            rows = [future.result() for future in futures if future.exception() is None]
            if desk is not None and not cancelled.is_set():
                try:
                    rows = desk.finish(rows, story, cancelled)
                except RunnerError as error:
                    return story.ungraded(rows, error)
    except Interrupted as stop:
        return story.interrupted([future.result() for future in futures if future.exception() is None], str(stop))
    for future in futures:
        future.result()  # raises what a thread could not tell
    return story.finish(rows)


def prepare(request: Request) -> list[Plan]:
    """Return the plans of everything that was asked for; no model call is made and nothing is written but a private directory that is removed (B16)."""
    jobs, machine = load_jobs(request), open_machine(request.environ)
    with contextlib.ExitStack() as held:
        if request.shared_workspace is not None:
            share(jobs[0], request, machine, held)  # refused here as it would be in a run
        return _plan_all(jobs, machine)


def _plan_all(jobs: list[Job], machine: Machine) -> list[Plan]:
    from runner.attempt import as_runner_error, plan_job
    from runner.skills import stage
    from sandbox.errors import SandboxError
    from sandbox.process import supervise

    try:
        supervisor = supervise(machine.host, runtime_dir=machine.runtime_dir)
    except SandboxError as error:
        raise as_runner_error(error) from error
    plans = []
    with supervisor:
        for number, job in enumerate(jobs):
            scratch = supervisor.staging / str(number)
            tree = stage(job.skills, scratch, recipes_root=job.recipes, recipes=job.fixture.recipes)
            plans.append(plan_job(job, tree, machine.toolchain))
    return plans


def open_machine(environ: Mapping[str, str], require_limits: tuple[str, ...] = ()) -> Machine:
    """Find what runs need on this machine.

    Raises: SandboxFailure, ToolchainError.
    """
    from runner.attempt import Machine, as_runner_error
    from runner.pinned_parts import open_parts
    from runner.toolchain import default_cache_root, load_lock, open_agent
    from sandbox.errors import SandboxError
    from sandbox.process import find_host
    from sandbox.rootfs import find_rootfs

    cache_root = default_cache_root(os.geteuid(), environ)
    toolchain = open_agent(load_lock(), cache_root)
    runtime = environ.get("XDG_RUNTIME_DIR")
    try:
        return Machine(
            find_host(),
            toolchain,
            Path(runtime) if runtime else None,
            find_rootfs(),
            require_limits=require_limits,
            parts=partial(open_parts, cache_root, search=environ.get("PATH")),
        )
    except SandboxError as error:
        raise as_runner_error(error) from error


def require_parts(machine: Machine) -> None:
    """Find or make the C parts of pinned runs, before anything is started. Raises: SandboxFailure."""
    from runner.attempt import as_runner_error
    from sandbox.errors import SandboxError

    try:
        machine.parts()
    except SandboxError as error:
        raise as_runner_error(error) from error


def load_jobs(request: Request) -> list[Job]:
    """Load and check every fixture, profile, script and setting.

    Raises: InputError, GateError; nothing was started then.
    """
    from runner.attempt import Job
    from runner.fixture import load_fixture
    from runner.plan import PlanOptions
    from runner.profile import validate_fixture

    for option, place in (("--keep", request.keep), ("--shared-workspace", request.shared_workspace)):
        if place is not None and (request.repeat > 1 or len(request.names) != 1):
            raise SettingInvalid(
                f"{option} goes with one run of one fixture", where=option, hint="name one fixture, without --repeat"
            )
    if request.keep is not None:
        check_keep(request.keep)
    check_out(request.out)
    key = read_key(request) if request.provider == "anthropic" else None
    skills = request.skills or request.folder / "skills"
    jobs = []
    for path in fixture_paths(request):
        fixture = load_fixture(path)
        validate_fixture(fixture)
        contract = None
        if fixture.simulation is not None:
            from runner.simulate.load import contract_of

            contract = contract_of(fixture.simulation, path.parent, fixture.id)
        provider, upstream = make_source(request, fixture.script_name, key)
        for repeat in range(request.repeat):
            options = PlanOptions(
                launch=request.launch,
                mode=request.gate_mode,
                model=request.model,
                repeat=repeat,
                max_usd=request.max_usd,
                timeout_s=request.timeout_s,
                determinism=request.determinism,
                pinned_date=request.pinned_date,
                pinned_seed=request.pinned_seed,
                shared_workspace=request.shared_workspace is not None,
            )
            jobs.append(
                Job(
                    fixture,
                    options,
                    skills,
                    request.folder / "recipes",
                    provider,
                    upstream,
                    request.out,
                    key,
                    request.keep,
                    contract,
                )
            )
    return jobs


def share(job: Job, request: Request, machine: Machine, held: contextlib.ExitStack) -> Job:
    """Return the job with the shared workspace, open until ``held`` is closed. Raises: SettingInvalid."""
    from runner.shared_workspace import open_shared

    assert request.shared_workspace is not None
    shared = open_shared(request.shared_workspace, identity=machine.host.identity, environ=request.environ)
    held.callback(shared.close)
    if request.keep is not None and shared.path in (kept := Path(os.path.abspath(request.keep)), *kept.parents):
        raise SettingInvalid("--keep lies in the shared workspace", where=str(request.keep), hint="name another place")
    return replace(job, shared=shared)


def fixture_paths(request: Request) -> list[Path]:
    """Return the fixtures' files: those named, or every one of the folder."""
    if not request.names:
        found = sorted(request.folder.glob("*.json"), key=lambda path: path.stem)
        if not found:
            raise InputMissing("there is no fixture", where=str(request.folder), hint="name the folder with --fixtures")
        return found
    paths: list[Path] = []
    for name in request.names:
        is_path = "/" in name or name.endswith(".json")
        path = Path(name) if is_path else request.folder / f"{name}.json"
        if not _is_file(path, name):
            known = ", ".join(sorted(file.stem for file in request.folder.glob("*.json")))
            raise InputMissing(
                f"there is no fixture {shortened(name)}", where=str(path), hint=f"known here: {known or 'none'}"
            )
        if any(path.samefile(other) for other in paths):
            raise SettingInvalid(f"the fixture {name!r} is named twice", where=str(path), hint="use --repeat N")
        paths.append(path)
    return paths


def _is_file(path: Path, name: str) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        raise InputMissing(
            f"the fixture {shortened(name)} cannot be looked at: {error.strerror}",
            where="FIXTURE",
            hint="name a fixture's id, or a path to its file",
        ) from error


def check_keep(keep: Path) -> None:
    """Refuse a place for ``--keep`` that holds anything: what is copied there comes from an agent (A13). Raises: SettingInvalid."""
    try:
        held = next(iter(os.listdir(keep)), None)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SettingInvalid(
            f"--keep cannot be used: {reason}", where=str(keep), hint="name a new or empty directory"
        ) from error
    if held is not None:
        raise SettingInvalid(
            f"--keep is not empty: it holds {held!r}", where=str(keep), hint="name a new or empty directory"
        )


def check_out(out: Path) -> None:
    """Make the attempts' directory where it is missing. Raises: SettingInvalid if that fails or nothing can be written there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingInvalid(
            f"the attempts' directory cannot be made: {error.strerror}", where=str(out), hint="name another with --out"
        ) from error
    if not os.access(out, os.W_OK | os.X_OK):
        raise SettingInvalid("the attempts' directory is not writable", where=str(out), hint="name another with --out")
