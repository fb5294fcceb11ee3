"""Deadlines and caps of a whole run, with a stand-in for the CLI that behaves as the real one never would on demand (A8, A11; cases D10, D12, D14)."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from runner.assess import Assessment
from runner.attempt import Job, Work, assess_run, plan_job, staged_files, unit_texts
from runner.conduct import Machine, Seen, carry_out, open_supervisor
from runner.fixture import load_fixture
from runner.gate.upstreams import Upstream, UpstreamAnswer, UpstreamRequest
from runner.plan import PlanOptions, Provider, RunLimits
from runner.skills import stage
from runner.toolchain import default_cache_root, load_lock, open_agent
from sandbox.process import find_host
from tests.run.conftest import Place, replies, text

CASES = Path(__file__).resolve().parents[1] / "cases"
INIT = (
    '{"type":"system","subtype":"init","tools":[],"skills":[],"model":"claude-test-1","claude_code_version":"2.1.332"}'
)
RESULT = '{"type":"result","subtype":"success","is_error":false,"result":"","num_turns":1,"terminal_reason":"completed","stop_reason":"end_turn"}'
FORGED = RESULT.replace('"result":""', '"result":"done"')


class NoUpstream:
    """An upstream that must not be asked, and can fail to open."""

    kind = "scripted"

    def __init__(self, fault: Exception | None = None) -> None:
        self._fault = fault

    async def open(self) -> None:
        if self._fault is not None:
            raise self._fault

    async def close(self) -> None:
        pass

    def answer(self, request: UpstreamRequest) -> AbstractAsyncContextManager[UpstreamAnswer]:
        @asynccontextmanager
        async def never() -> AsyncIterator[UpstreamAnswer]:
            raise AssertionError(request)
            yield

        return never()


@dataclass(frozen=True)
class Done:
    """A run that was carried out and judged."""

    seen: Seen
    assessment: Assessment
    took_s: float

    @property
    def code(self) -> str | None:
        """The outcome's code."""
        return self.assessment.outcome.code


RunAs = Callable[..., Done]


@pytest.fixture
def run_as(place: Place) -> RunAs:
    """Carry out a run with a shell script in the CLI's place."""

    def run(script: str, *, upstream: Upstream | None = None, interpreter: str = "/bin/sh", **limits: Any) -> Done:
        name = place.case("stand-in", replies(text()))
        machine = Machine(find_host(), open_agent(load_lock(), default_cache_root(os.geteuid(), os.environ)))
        job = Job(
            load_fixture(place.folder / f"{name}.json"),
            PlanOptions(),
            place.folder / "skills",
            None,
            Provider(kind="scripted", script=name, script_sha256="0" * 64),
            lambda: upstream or NoUpstream(),
            place.out,
        )
        with open_supervisor(machine) as supervisor:
            tree = stage(job.skills, supervisor.staging / "skills", recipes_root=None, recipes=())
            stand_in = supervisor.staging / "stand-in"
            stand_in.write_text(f"#!{interpreter}\n{script}\n")
            stand_in.chmod(0o755)
            machine = replace(machine, toolchain=replace(machine.toolchain, claude_executable=stand_in))
            plan = plan_job(job, tree, machine.toolchain).model_copy(update={"limits": RunLimits(**limits)})
            work = Work(plan, job.fixture.source, tree, staged_files(supervisor, tree), unit_texts(tree, plan))
            started = time.monotonic()
            seen = carry_out(plan, tree, job, machine, supervisor, tell=lambda *_: None, cancelled=threading.Event())
            took_s = time.monotonic() - started
        return Done(seen, assess_run(work, seen, machine), took_s)

    return run


def test_a_stand_in_that_ends_well_is_judged_by_its_transcript(run_as: RunAs) -> None:
    """The control of all below: init, a result and exit 0 leave only to be told that no model said anything. An answer that no model gave is a forgery."""
    done = run_as(f"echo '{INIT}'; echo '{RESULT}'")
    assert (done.code, done.assessment.row["unscored_output"]) == ("empty-answer", None)
    assert (done.seen.run.exit_status, done.seen.run.bwrap_status) == (0, 0)
    forged = run_as(f"echo '{INIT}'; echo '{FORGED}'")
    assert (forged.code, forged.assessment.row["unscored_output"]) == ("tampered", "done")


def test_a_cli_that_says_nothing_is_ended_at_its_first_deadline(run_as: RunAs) -> None:
    """No event in time: ``timeout`` at the step cli-start, long before the wall clock."""
    done = run_as("sleep 60", first_event_s=1)
    assert (done.code, done.took_s < 5) == ("timeout", True)
    assert done.assessment.outcome.message.startswith("cli-start: ")


def test_a_cli_that_does_not_exit_after_its_result_is_ended_and_the_outcome_stands(run_as: RunAs) -> None:
    """After a result with nothing running in the background the CLI has its grace; then it is ended, noted, and judged as if it had exited."""
    done = run_as(f"echo '{INIT}'; echo '{RESULT}'; sleep 60", after_result_s=1)
    assert (done.code, done.took_s < 5) == ("empty-answer", True)
    assert done.seen.run.ended_by == "grace"
    assert "the CLI did not exit after its result and was ended; the outcome stands" in done.assessment.row["notes"]


def test_with_a_background_task_running_the_wall_clock_decides(run_as: RunAs) -> None:
    """A result is not the end while a background task runs: no grace, the wall clock (facts: a result line is not the end)."""
    task = '{"type":"system","subtype":"background_tasks_changed","tasks":[{"task_id":"a","run_id":"b","task_type":"local_bash"}]}'
    done = run_as(f"echo '{INIT}'; echo '{task}'; echo '{RESULT}'; sleep 60", after_result_s=1, wall_clock_s=3)
    assert (done.code, done.took_s >= 3) == ("timeout", True)


def test_an_output_over_its_cap_is_an_error_and_never_a_silent_cut(run_as: RunAs) -> None:
    """A flood of good lines, and one line that never ends: ``output-limit``, in bounded time (A11)."""
    flood = run_as(f'echo \'{INIT}\'; exec yes \'{{"type":"system","subtype":"noise","text":"{"x" * 2000}"}}\'')
    assert (flood.code, flood.seen.run.ended_by) == ("output-limit", "output-limit")
    assert flood.seen.ended is not None
    assert len(flood.seen.transcript) == 64 << 20 < flood.seen.ended.stdout_bytes
    line = run_as(f"echo '{INIT}'; yes x | tr -d '\\n'", stdout_bytes=1 << 30)
    assert line.code == "output-limit"
    assert len(line.seen.transcript) < 1 << 28


def test_a_flood_on_stderr_is_kept_at_both_ends_and_decides_nothing(run_as: RunAs) -> None:
    """stderr has a cap of its own; what was left out is said."""
    done = run_as(
        f"echo first >&2; yes {'y' * 99} | head -c 9000000 >&2; echo last >&2; echo '{INIT}'; echo '{RESULT}'"
    )
    assert done.code == "empty-answer"
    assert done.seen.ended is not None
    stderr = done.seen.ended.stderr
    assert stderr.startswith(b"first\n")
    assert stderr.endswith(b"last\n")
    assert b"bytes left out]" in stderr


def test_a_grandchild_that_holds_stdout_does_not_outlive_the_cli(run_as: RunAs) -> None:
    """A session leader that ignores SIGTERM and keeps the output open ends with the CLI, and the run does not wait for it (case D12)."""
    done = run_as((CASES / "inputs" / "D12.sh").read_text())
    assert done.took_s < 5
    assert done.seen.run.exit_status == 0
    assert done.code == "tampered", "its model text came with no request"


def test_stdin_ends_so_a_cli_that_waits_for_that_goes_on(run_as: RunAs) -> None:
    """The prompt is on stdin, and then stdin is closed (case D14)."""
    done = run_as((CASES / "inputs" / "D14.sh").read_text())
    assert done.took_s < 5
    assert done.seen.parsed is not None
    assert done.seen.parsed.answering is not None


def test_a_stub_loader_is_told_with_its_words_and_status(run_as: RunAs) -> None:
    """Exit 127 without any event is no result; the loader's own words are in the attempt's stderr (case D10)."""
    done = run_as("echo 'Could not start dynamically linked executable: /opt/claude' >&2; exit 127")
    assert (done.code, done.seen.run.exit_status) == ("no-result", 127)
    assert done.seen.ended is not None
    assert b"dynamically linked" in done.seen.ended.stderr


def test_a_program_that_cannot_be_started_is_the_sandboxs_error_not_the_clis(run_as: RunAs) -> None:
    """A missing interpreter is a failed set-up, never an exit status of 1."""
    done = run_as("", interpreter="/nonexistent/loader")
    assert done.code == "sandbox-setup-failed"
    assert done.seen.run.exit_status is None
    assert "loader" in done.assessment.outcome.message


def test_a_gate_that_dies_ends_the_run_and_is_named(run_as: RunAs) -> None:
    """A defect of the gate is an error of the step ``gate``, told long before any deadline of the run."""
    done = run_as(f"echo '{INIT}'; sleep 60", upstream=NoUpstream(OSError("no upstream today")))
    assert (done.code, done.took_s < 5) == ("gate-unavailable", True)
    assert "no upstream today" in done.assessment.outcome.message


@pytest.mark.parametrize(
    ("broken", "step"), [("runner.conduct._watch", "sandbox"), ("runner.conduct.changed_since", "collect")]
)
def test_a_fault_of_the_machine_after_the_release_names_its_step(
    run_as: RunAs, monkeypatch: pytest.MonkeyPatch, broken: str, step: str
) -> None:
    """What the machine fails at once the program runs is no failed start (A8), and how the program ended is kept where it is known."""

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(broken, fail)
    done = run_as(f"printf '%s\\n' '{INIT}' '{RESULT}'")
    assert done.seen.run.setup is not None
    assert (done.code, done.seen.run.setup.step, done.seen.run.setup.code) == ("machine-fault", step, "machine-fault")
    assert done.seen.run.exit_status == (0 if step == "collect" else None)
