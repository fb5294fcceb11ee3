"""Where faults happen: one case with finished attempts of it, the five commands that read and write them, and what must hold whatever became of a command.

Boundary: makes directories where it is told to and starts the real command. Not here: the faults (inject.py, small_disk.py), when they come (kills.py, the tests).
Rules: what was finished before a fault is there after it, byte for byte; what is new is whole, or is not there. Exit status 2 says that something could not be had; 0 and a
verdict are the right ones; 1 would be a lie, since every answer here is right.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.bundle.reader import open_attempt
from runner.errors import RunnerError
from tests.run.conftest import FINAL, ROOT, Place, replies, text, tool
from tests.run.leftovers import ROOT_RUNS, Traces, wait_until

COMMANDS = ("run", "judge", "replay", "reproduce", "report")
LEFT_AFTER_S = 20.0
"""How long what was killed may take to be gone, on a machine that does much else."""
WAIT_S = 120.0
BUGS = frozenset({"internal", ""})
"""Codes that say that nobody thought of it."""


@dataclass(frozen=True)
class Scene:
    """A fixtures folder, and a folder of finished things: a worker's attempt, a judge's of it, their evaluation, a report."""

    place: Place
    name: str
    seeds: Path
    worker: str
    """File name of the worker's attempt."""

    def trial(self, folder: Path) -> Trial:
        """Make a place for one command, with copies of the finished things, in a folder of its own."""
        runtime, temporary = folder / "run", folder / "tmp"
        for path in (folder, runtime, temporary):
            path.mkdir(mode=0o700)
        out = folder / "attempts"
        shutil.copytree(self.seeds, out)
        return Trial(self, out, runtime, temporary, digests(out))


@dataclass
class Trial:
    """One command's surroundings, and what was there before it."""

    scene: Scene
    out: Path
    runtime: Path
    temporary: Path
    before: dict[str, str]
    traces: Traces = field(init=False)

    def __post_init__(self) -> None:
        """Watch for what is left."""
        self.traces = Traces(self.runtime, self.temporary, ())

    @property
    def staging(self) -> Path:
        """Where private directories of runs are made: for root at one place on the machine."""
        return ROOT_RUNS if os.geteuid() == 0 else self.runtime

    def arguments(self, verb: str) -> list[str]:
        """Return the command line of one of the commands."""
        worker = str(self.out / self.scene.worker)
        folder = str(self.scene.place.folder)
        return {
            "run": ["run", "--json", "--fixtures", folder, "--out", str(self.out), self.scene.name],
            "judge": ["judge", "--json", "--fixtures", folder, worker],
            "replay": ["replay", "--json", worker],
            "reproduce": ["reproduce", "--json", worker],
            "report": ["report", "--json", str(self.out), "-o", str(self.out / "report.html")],
        }[verb]

    def start(
        self, verb: str, *more: str, prefix: Sequence[str] = (), env: Mapping[str, str] | None = None, **popen: Any
    ) -> subprocess.Popen[str]:
        """Start a command, below a program that does something to it or not."""
        surroundings = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "TMPDIR": str(self.temporary),
            **(env or {}),
        }
        argv = [*prefix, sys.executable, "-P", "-m", "runner.cli", *self.arguments(verb), *more]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **popen}
        return subprocess.Popen(argv, env=surroundings, text=True, **streams)

    def left(self) -> list[str]:
        """Wait until nothing is left of what was seen; return what is left then."""
        wait_until(lambda: not self.traces.left(), LEFT_AFTER_S)
        return self.traces.left()

    def damage(self) -> list[str]:
        """Return what is wrong with the files: something finished lost or changed, something new that is not whole."""
        now = digests(self.out)
        wrong = []
        for name, digest in self.before.items():
            if name not in now:
                wrong.append(f"lost: {name}")
            elif now[name] != digest and not (name == "report.html" and whole_report(self.out / name)):
                wrong.append(f"changed: {name}")
        wrong += [
            fault for name in sorted(now.keys() - self.before.keys()) if (fault := new_file_fault(self.out / name))
        ]
        return wrong

    def keep_up(self) -> None:
        """Count what is there now among what is finished."""
        self.before = digests(self.out)


@dataclass(frozen=True)
class Ending:
    """How a command ended."""

    verb: str
    code: int
    stdout: str
    stderr: str

    @property
    def codes(self) -> set[str]:
        """The error codes in the answer."""
        try:
            answer = json.loads(self.stdout)
        except ValueError:
            return set()
        found = [answer.get("error"), *(row.get("error") for row in answer.get("results", ()))]
        found += [row["outcome"] for row in answer.get("attempts", ()) if row["outcome"]["kind"] == "error"]
        return {str(error.get("code")) for error in found if isinstance(error, dict)} | judge_codes(answer)

    def lies(self) -> list[str]:
        """Return what is wrong with the answer: a verdict that is not the right one, an error without a stable code and a cause, more than one object."""
        if self.code not in (0, 2):
            return [f"exit status {self.code}: {self.stderr[-600:]}"]
        try:
            answer = json.loads(self.stdout)
        except ValueError:
            return [f"no object on stdout, exit status {self.code}: {self.stdout[-200:]!r} {self.stderr[-600:]}"]
        wrong = []
        if answer["exit_code"] != self.code:
            wrong.append(f"exit status {self.code} and exit_code {answer['exit_code']}")
        if self.code == 0:
            return wrong + [f"exit status 0 and {fault}" for fault in untrue(self.verb, answer)]
        if not self.codes:
            wrong.append(f"no error code: {self.stdout[-600:]}")
        wrong += [
            f"the code {code!r} is nobody's: {self.stdout[-900:]} {self.stderr[-900:]}" for code in self.codes & BUGS
        ]
        if any(row.get("verdict") == "fail" for row in answer.get("attempts", ())):
            wrong.append("an attempt failed")
        if "Traceback" in self.stderr:
            wrong.append(f"a traceback: {self.stderr[self.stderr.index('Traceback') - 200 :][:1800]}")
        return wrong


def judge_codes(answer: Mapping[str, Any]) -> set[str]:
    """Return the codes of votes that could not be had."""
    votes = [
        vote
        for row in answer.get("attempts", ())
        for vote in (row.get("judge") or {}).get("votes", ())
        if isinstance(vote, dict)
    ]
    return {str(vote["error"]["code"]) for vote in votes if isinstance(vote.get("error"), dict)}


def untrue(verb: str, answer: Mapping[str, Any]) -> list[str]:
    """Return what a good answer says that is not so."""
    if verb == "reproduce":
        return [
            f"reproduced {row['verdict']}" for row in answer["results"] if row["verdict"] not in ("exact", "normalised")
        ]
    if verb in ("run", "replay"):
        wrong = [f"verdict {row['verdict']}" for row in answer["attempts"] if row["verdict"] != "pass"]
        return wrong + [f"answer {row['output']!r}" for row in answer["attempts"] if row.get("output", FINAL) != FINAL]
    return ["an error"] if answer.get("error") else []


def digests(folder: Path) -> dict[str, str]:
    """Return the digest of every file of a folder."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def new_file_fault(path: Path) -> str | None:
    """Return what is wrong with a file that was not there before."""
    if path.name.endswith(".attempt"):
        try:
            attempt = open_attempt(path)
        except RunnerError as error:
            return f"half: {path.name}: {error.code}: {error.message}"
        if attempt.manifest.summary["outcome"]["kind"] == "measured" and b'"type":"result"' not in attempt.part(
            "transcript.jsonl"
        ):
            return f"measured without a result: {path.name}"
        return None
    if path.name.endswith(".evaluation.json"):
        try:
            verdict = json.loads(path.read_bytes())["verdict"]
        except (ValueError, KeyError):
            return f"half: {path.name}"
        return None if verdict in ("pass", "error") else f"verdict {verdict}: {path.name}"
    if path.name == "report.html":
        return None if whole_report(path) else f"half: {path.name}"
    return f"left: {path.name}"


def whole_report(path: Path) -> bool:
    """Whether a report is there to its last line."""
    return path.read_bytes().rstrip().endswith(b"</html>")


def make_scene(base: Path) -> Scene:
    """Run, judge, grade and report a case once, in a folder that is not there yet."""
    place = Place(base / "fixtures", base / "seeds")
    for name in ("scripts", "skills", "recipes"):
        (place.folder / name).mkdir(parents=True)
    place.skill("workflow", provision="# Provision\n\nKeep a missing account unresolved.\n")
    name = f"case-{os.urandom(4).hex()}"
    place.case(name, replies(tool("Skill", "toolu_1", skill="workflow"), text()))
    place.judge(name)
    done = place.run(name, grade=True)
    if done.code != 0:
        raise RuntimeError(f"the unharmed case: {done.stdout} {done.stderr}")
    report = place.hermeval("report", str(place.out), "-o", str(place.out / "report.html"))
    if report.code != 0:
        raise RuntimeError(f"the unharmed report: {report.stderr}")
    return Scene(place, name, place.out, Path(done.row["path"]).name)
