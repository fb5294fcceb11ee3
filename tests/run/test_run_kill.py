"""Nothing of a run outlives the runner, however that ends, and no attempt is half written (A1, B11; issue 1, acceptance 7)."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runner.bundle.reader import open_attempt
from tests.run.conftest import ROOT, Place, replies, text, tool
from tests.run.leftovers import Traces, abandoned, wait_until

MOMENTS = [("start", 0.5)] * 7 + [("running", 0.8)] * 36 + [("end", 0.15)] * 7
"""When the runner is killed: after what, and within how many seconds from then."""
SEEN_RUNNING = 30
LANES = 2
DETACHED = "(setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' >/dev/null 2>&1 &); sleep 0.1"
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass
class Victim:
    """Runs to be ended, and where they work."""

    place: Place
    scratch: Path
    markers: dict[str, str]
    """Fixture to a word that stands in its CLI's command line and in no other's."""

    def start(
        self, names: Sequence[str], *options: str, prefix: Sequence[str] = (), grade: bool = False, **popen: Any
    ) -> tuple[subprocess.Popen[str], Traces]:
        """Start ``hermeval run --json`` with private runtime and temporary directories of its own; ungraded, unless ``grade``."""
        home = self.scratch / os.urandom(6).hex()
        traces = Traces(home / "run", home / "tmp", tuple(self.markers[name] for name in names))
        for folder in (home, traces.runtime_dir, traces.temporary):
            folder.mkdir(mode=0o700)
        arguments = [
            "run",
            *(() if grade else ("--no-grade",)),
            "--json",
            "--fixtures",
            str(self.place.folder),
            "--out",
            str(self.place.out),
            *names,
        ]
        env = {"PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(traces.runtime_dir), "TMPDIR": str(traces.temporary)}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **popen}
        argv = [*prefix, *self.place.command(*arguments, *options)]
        if "preexec_fn" not in popen:
            streams["preexec_fn"] = hear
        return subprocess.Popen(argv, env={**os.environ, **env}, text=True, **streams), traces


@pytest.fixture
def victim(place: Place, tmp_path: Path) -> Victim:
    """Fixtures whose run takes about a second and a half and leaves a detached process behind, stubborn against every signal but SIGKILL."""
    names = [f"victim-{number}-{os.urandom(4).hex()}" for number in range(LANES)]
    calls = (tool("Skill", "toolu_1", skill="workflow"), tool("Bash", "toolu_2", command=DETACHED), text())
    for name in names:
        place.case(name, replies(*({**reply, "delay_ms": 200} for reply in calls)))
    prepared = place.run("--prepare-only", *names)
    assert prepared.code == 0, prepared.stderr
    plans = [entry["plan"] for entry in prepared.object["plans"]]
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return Victim(place, scratch, {plan["fixture"]["id"]: plan["session_id"] for plan in plans})


@pytest.fixture(autouse=True)
def _nothing_abandoned() -> Iterator[None]:
    """Run directories that nobody owns are neither there before nor after."""
    assert wait_until(lambda: not abandoned(), 30), f"left before the test: {abandoned()}"
    yield
    assert wait_until(lambda: not abandoned(), 30), f"left by the test: {abandoned()}"


def hear() -> None:
    """What the caller of these tests had ignored (SIGINT in a script's background, SIGHUP by nohup), hermeval would leave ignored: not here."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def chance(*words: object) -> float:
    """A number in [0, 1) that is the same whenever the tests run."""
    return int.from_bytes(hashlib.sha256(repr(words).encode()).digest()[:4]) / 2**32


def await_moment(process: subprocess.Popen[str], traces: Traces, phase: str, delay_s: float) -> bool:
    """Wait until so long after the start, after a CLI was first seen (``running``), or after it was gone again (``end``). Says whether one is seen then."""
    seen, gone = phase == "start", phase != "end"
    deadline = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < deadline and not (seen and gone):
        running = traces.look(process.pid)
        gone = gone or (seen and not running)
        seen = seen or running
        time.sleep(0.01)
    until = time.monotonic() + delay_s
    while process.poll() is None and time.monotonic() < until:
        traces.look(process.pid)
        time.sleep(min(0.02, max(0.0, until - time.monotonic())))
    return traces.look(process.pid)


def what_is_left(traces: Traces) -> list[str]:
    """Wait two seconds at most, and return what is left then."""
    wait_until(lambda: not traces.left())
    return traces.left()


def assert_all_whole(place: Place) -> None:
    """Every attempt of the directory is whole: by ``verify``, and by having what only a finished run has."""
    attempts = sorted(place.out.glob("*.attempt"))
    if not attempts:
        return
    verified = place.hermeval("verify", "--json", *map(str, attempts))
    assert verified.code == 0, verified.stderr
    assert len(verified.object["results"]) == len(attempts)
    for path in attempts:
        attempt = open_attempt(path)
        assert b'"type":"result"' in attempt.part("transcript.jsonl")
        assert attempt.manifest.summary["outcome"]["kind"] == "measured"


def finish_one(victim: Victim, name: str) -> tuple[Path, str]:
    """Run to the end; return the attempt and its digest."""
    process, traces = victim.start([name])
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert what_is_left(traces) == []
    path = Path(json.loads(out)["attempts"][0]["path"])
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.timeout(600)  # a minute on two idle cores
def test_sigkill_at_any_moment_leaves_nothing_and_no_half_attempt(victim: Victim) -> None:
    """SIGKILL at 50 moments of start-up, of the CLI's run and of the saving: after two seconds all is gone, and every attempt there is whole."""
    names = list(victim.markers)
    finished, digest = finish_one(victim, names[0])

    def kill_in_lane(lane: int) -> tuple[int, list[str]]:
        running, left = 0, []
        for turn in range(lane, len(MOMENTS), LANES):
            phase, span_s = MOMENTS[turn]
            process, traces = victim.start([names[lane]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            running += await_moment(process, traces, phase, chance("kill", turn) * span_s)
            process.kill()
            process.wait()
            left += [f"kill {turn}, {phase}: {what}" for what in what_is_left(traces)]
        return running, left

    with ThreadPoolExecutor(LANES) as pool:
        results = list(pool.map(kill_in_lane, range(LANES)))
    assert [what for _, left in results for what in left] == []
    assert len(MOMENTS) == 50
    assert sum(running for running, _ in results) >= SEEN_RUNNING
    assert hashlib.sha256(finished.read_bytes()).hexdigest() == digest
    assert_all_whole(victim.place)


def test_sigkill_with_several_runs_under_way_leaves_nothing(victim: Victim) -> None:
    """The same with ``--jobs 2``, from the planning of both runs on."""
    seen = 0
    for turn in range(6):
        phase = "start" if turn < 2 else "running"
        process, traces = victim.start(
            list(victim.markers), "--jobs", "2", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        seen += await_moment(process, traces, phase, chance("jobs", turn) * 0.5)
        process.kill()
        process.wait()
        assert what_is_left(traces) == []
    assert seen >= 3
    assert_all_whole(victim.place)


def test_sigkill_while_judging_and_grading_leaves_nothing(victim: Victim) -> None:
    """The judge's run and the grader's processes go too; the attempt stays, and an evaluation is whole or not there."""
    name = next(iter(victim.markers))
    quick = victim.place.case(name, replies(tool("Skill", "toolu_1", skill="workflow"), text()))
    victim.place.judge(quick)
    for turn in range(4):
        before = set(victim.place.out.glob("*.attempt"))
        process, traces = victim.start([quick], grade=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while set(victim.place.out.glob("*.attempt")) == before and time.monotonic() < deadline:
            traces.look(process.pid)
            time.sleep(0.01)
        assert set(victim.place.out.glob("*.attempt")) > before
        until = time.monotonic() + chance("grading", turn) * 2
        while process.poll() is None and time.monotonic() < until:
            traces.look(process.pid)
            time.sleep(0.02)
        process.kill()
        process.wait()
        assert what_is_left(traces) == []
    assert_all_whole(victim.place)
    for path in victim.place.out.glob("*.evaluation.json"):
        json.loads(path.read_bytes())


def test_a_signal_while_judging_and_grading_is_two_and_the_attempt_stays(victim: Victim) -> None:
    """SIGTERM after the attempt was written: exit 2, the interruption told, the attempt kept and whole, nothing else left."""
    name = next(iter(victim.markers))
    quick = victim.place.case(name, replies(tool("Skill", "toolu_1", skill="workflow"), text()))
    victim.place.judge(quick)
    process, traces = victim.start([quick], grade=True)
    deadline = time.monotonic() + 60
    while not list(victim.place.out.glob("*.attempt")) and time.monotonic() < deadline:
        traces.look(process.pid)
        time.sleep(0.01)
    traces.look(process.pid)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2, err
    answer = json.loads(out)
    assert answer["error"]["code"] == "interrupted"
    (row,) = answer["attempts"]
    assert row["path"] in {str(path) for path in victim.place.out.glob("*.attempt")}
    assert what_is_left(traces) == []
    assert_all_whole(victim.place)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_ends_the_run_in_two_and_leaves_nothing(victim: Victim, number: signal.Signals) -> None:
    """SIGTERM, SIGINT and SIGHUP with the CLI running: exit 2, one JSON object that says so, at once, nothing kept and nothing left."""
    process, traces = victim.start(list(victim.markers)[:1])
    assert await_moment(process, traces, "running", 0.4)
    assert {what.split()[0] for what in traces.left()} >= {"process", "directory"}, "the control: these are seen"
    sent = time.monotonic()
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert time.monotonic() - sent < 2
    answer = json.loads(out)
    assert (process.returncode, answer["exit_code"], answer["verdict"]) == (2, 2, "error")
    assert answer["error"]["code"] == "interrupted"
    assert number.name in answer["error"]["message"]
    assert answer["attempts"] == []
    assert what_is_left(traces) == []
    assert list(victim.place.out.iterdir()) == []


def test_further_signals_change_nothing(victim: Victim) -> None:
    """An impatient caller's second and third Ctrl-C, and a SIGTERM, are harmless: the same answer, the same cleanliness."""
    process, traces = victim.start(list(victim.markers)[:1])
    assert await_moment(process, traces, "running", 0.2)
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.003)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 2, err
    assert json.loads(out)["error"]["code"] == "interrupted"
    assert "Traceback" not in err
    assert what_is_left(traces) == []


def test_a_signal_during_start_up_is_two_as_well(victim: Victim) -> None:
    """From the moment that signals are taken over, before anything slow is imported, each of them gives exit 2 and one object."""
    for turn in range(9):
        process, traces = victim.start(list(victim.markers)[:1])
        assert wait_until(lambda pid=process.pid: catches(pid, signal.SIGTERM), 10)  # type: ignore[misc]
        time.sleep(chance("early", turn) * 0.4)
        process.send_signal(SIGNALS[turn % 3])
        out, err = process.communicate(timeout=30)
        assert process.returncode == 2, err
        assert json.loads(out)["error"]["code"] == "interrupted"
        assert "Traceback" not in err
        assert what_is_left(traces) == []


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler of its own for the signal."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    return bool(caught >> (number - 1) & 1)


def test_an_interrupted_batch_tells_of_what_was_finished(victim: Victim) -> None:
    """With two jobs at a time and more to come: finished attempts stay and are told, those under way are not kept, those to come are not begun."""
    victim.place.case("a-quick", replies(tool("Skill", "toolu_1", skill="workflow"), text()))
    for name in ("b-slow", "c-slow", "d-slow"):
        victim.place.case(name, replies({**text(), "delay_ms": 60_000}))
    names = ["a-quick", "b-slow", "c-slow", "d-slow"]
    victim.markers |= {name: f"{name}-has-no-marker" for name in names}
    process, traces = victim.start(names, "--jobs", "2")
    assert wait_until(lambda: bool(list(victim.place.out.glob("*.attempt"))), 30)
    assert await_moment(process, traces, "running", 0.3)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    answer = json.loads(out)
    assert process.returncode == 2
    assert [row["fixture"] for row in answer["attempts"]] == ["a-quick"]
    assert answer["summary"] == {"passed": 0, "measured": 1, "started": 1}
    assert (answer["verdict"], answer["error"]["code"]) == ("error", "interrupted")
    assert [str(path) for path in victim.place.out.iterdir()] == [answer["attempts"][0]["path"]]
    assert what_is_left(traces) == []
    assert_all_whole(victim.place)


def test_an_ignored_hangup_stays_ignored(victim: Victim) -> None:
    """Under nohup a SIGHUP ends nothing."""
    process, traces = victim.start(list(victim.markers)[:1], prefix=["/usr/bin/nohup"])
    assert await_moment(process, traces, "running", 0.1)
    process.send_signal(signal.SIGHUP)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert json.loads(out)["summary"]["measured"] == 1
    assert what_is_left(traces) == []


@pytest.mark.parametrize("how", ["gone", "closed", "full"])
def test_an_answer_that_nobody_gets_is_two(victim: Victim, how: str) -> None:
    """Where stdout's reader is gone, stdout is closed or its disk is full: exit 2, never 1, the attempt is kept, and stderr has the code."""
    prefix = ["/bin/sh", "-c", 'exec "$@" >&-', "sh"] if how == "closed" else []
    with Path("/dev/full").open("w") as full:
        process, traces = victim.start(
            list(victim.markers)[:1], prefix=prefix, stdout=full if how == "full" else subprocess.PIPE
        )
        with process:
            if how == "gone":
                assert process.stdout is not None
                process.stdout.close()
            assert process.stderr is not None
            err = process.stderr.read()
    assert process.returncode == 2, err
    assert ": measured\n" in err
    assert "error[answer-lost]: the answer could not be written: " in err
    assert what_is_left(traces) == []
    assert_all_whole(victim.place)
    assert len(list(victim.place.out.iterdir())) == 1


def test_people_who_stop_reading_end_no_run(victim: Victim) -> None:
    """Where stderr's reader is gone the run goes on, and the object on stdout is whole."""
    process, traces = victim.start(list(victim.markers)[:1])
    with process:
        assert process.stderr is not None
        assert process.stdout is not None
        process.stderr.close()
        out = process.stdout.read()
    assert process.returncode == 0
    assert json.loads(out)["summary"]["measured"] == 1
    assert what_is_left(traces) == []
