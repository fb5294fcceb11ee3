"""How long until something runs: from the command's start to the CLI's execution, and from our sandbox's start to its program, beside bare bwrap (acceptance 9).

The first is taken of the real command, by the program itself and by ci/hermeval: until a process named ``claude`` is among its descendants; the command is then ended. It is looked
for every millisecond. The second starts ``/bin/echo`` in the worker's own inside view.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from runner.attempt import Machine, plan_job
from runner.confine import inside_view
from runner.skills import stage
from sandbox.process import supervise
from sandbox.request import FD_BASE, Request, resolve_sources
from sandbox.rootfs import HOST, read_host_rootfs
from sandbox.running import start
from sandbox.spec import SandboxSpec
from tests.bench.figures import aim, interleave, table, versus
from tests.bench.rig import FIXTURE, ROOT, Mode, child_environment, load, make_job, this_machine

_WAIT_S = 60.0


def command(argv: Sequence[str], env: dict[str, str], mode: Mode, out: Path) -> float:
    """Start a command; return the seconds until its CLI has been executed, and end it."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [*argv, "run", FIXTURE, "--gate-mode", mode, "--out", str(out)],
        env=env,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        while "claude" not in names_below(process.pid):
            assert process.poll() is None, process.communicate()[1][-500:]
            assert time.perf_counter() < started + _WAIT_S, "no CLI"
            time.sleep(0.001)
        seconds = time.perf_counter() - started
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=_WAIT_S)  # ends in 2, or in its own way where this program was held up for so long
    finally:
        process.kill()
        process.communicate()
    return seconds


def names_below(pid: int) -> list[str]:
    """Return the program names of all descendants of a process, those inside its sandbox included."""
    names, pending = [], [pid]
    while pending:
        for task in _read(Path(f"/proc/{pending.pop()}/task")):
            for child in _text(task / "children").split():
                names.append(_text(Path(f"/proc/{child}/comm")).strip())
                pending.append(int(child))
    return names


def _read(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:  # it has ended
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def worker_view(machine: Machine, scratch: Path, program: Sequence[str]) -> SandboxSpec:
    """Return the sandbox of the fixture's run, with another program in it."""
    job = make_job("base-url", scratch)
    plan = plan_job(job, stage(job.skills, scratch / "skills"), machine.toolchain)
    files = {path: text.encode() for path, text in plan.launch.home_files.items()}
    return inside_view(
        argv=program,
        env=plan.launch.env,
        home_files=files,
        gate=plan.gate,
        rootfs=HOST,
        system=read_host_rootfs(),
    )


class Sandboxes:
    """The same view, by our sandbox and by bwrap alone."""

    def __init__(self, machine: Machine, scratch: Path) -> None:
        self.machine = machine
        self.spec = worker_view(machine, scratch, ["/bin/echo", "up"])
        self.sources = {"claude": machine.toolchain.claude_executable, "skills": scratch / "skills"}
        self.first = 0.0

    def ours(self, *, ahead_s: float | None) -> float:
        """Return the seconds to the program's first byte; with ``ahead_s`` the supervisor was started that long before, as while a run is planned."""
        self.first = 0.0
        begun = time.perf_counter()
        with supervise(self.machine.host, runtime_dir=self.machine.runtime_dir) as supervisor:
            if ahead_s is not None:
                time.sleep(ahead_s)
                begun = time.perf_counter()
            with start(supervisor, self.spec, on_stdout=self._came, sources=self.sources) as running:
                running.release()
                ended = running.wait()
        assert ended is not None, "waited without a limit"
        assert ended.exit_status == 0, ended
        return self.first - begun

    def _came(self, _piece: bytes) -> None:
        self.first = self.first or time.perf_counter()

    def bare(self) -> float:
        """Return the seconds to the first byte of the same program in the same view, by bwrap alone: no supervisor, hold, listener or handles."""
        paths = resolve_sources(self.spec, self.sources)
        request = Request(self.spec, sources=paths, bwrap=self.machine.host.bwrap, wall_clock_s=30.0)
        account = self.machine.host.identity.run_as
        try:
            _, _, arguments, *data = request.descriptors
            with os.fdopen(os.dup(arguments), "rb") as file:
                words = file.read().split(b"\0")[:-1]
            os.set_inheritable(arguments, True)
            words = _without(words, b"--block-fd", b"--json-status-fd")
            # The numbers in the arguments are the supervisor's; here the descriptors keep their own.
            names = {b"%d" % (FD_BASE + 2 + place): b"%d" % descriptor for place, descriptor in enumerate(data)}
            words = [names.get(word, word) for word in words]
            begun = time.perf_counter()
            process = subprocess.Popen(
                [os.fsencode(self.machine.host.bwrap), *words, b"--", *(word.encode() for word in self.spec.argv)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                env={},
                pass_fds=data,
                user=None if account is None else account.uid,
                group=None if account is None else account.gid,
                extra_groups=None if account is None else [],
            )
            assert process.stdout is not None
            with process.stdout:
                came = process.stdout.read(1)
                seconds = time.perf_counter() - begun
                process.stdout.read()
            assert (came, process.wait()) == (b"u", 0)
            return seconds
        finally:
            request.close()


def _without(words: list[bytes], *options: bytes) -> list[bytes]:
    for option in options:
        place = words.index(option)
        words = words[:place] + words[place + 2 :]
    return words


def main(runs: int = 15, sandbox_runs: int = 40) -> None:
    """Print the figures."""
    machine = this_machine()
    own = child_environment()
    through = {name: value for name, value in own.items() if not name.startswith("PYTHON")}
    program = [sys.executable, "-P", "-m", "runner.cli"]
    with tempfile.TemporaryDirectory(prefix="hermeval-out-") as name:
        out = Path(name)

        def by(argv: Sequence[str], env: dict[str, str], mode: Mode) -> float:
            return command(argv, env, mode, out)

        figures = interleave(
            {
                "the program, base-url": lambda: by(program, own, "base-url"),
                "the program, first-party": lambda: by(program, own, "first-party"),
                "ci/hermeval, base-url": lambda: by([str(ROOT / "ci" / "hermeval")], through, "base-url"),
                "ci/hermeval, first-party": lambda: by([str(ROOT / "ci" / "hermeval")], through, "first-party"),
            },
            runs=runs,
            warmup=min(1, runs - 1),
        )
    table(f"command start to the CLI's execution; {load()}", list(figures.values()))
    for figure in figures.values():
        aim(figure, 0.350)
    versus(figures["the program, first-party"], figures["the program, base-url"])

    with tempfile.TemporaryDirectory(prefix="hermeval-view-") as name:
        Path(name).chmod(0o755)
        boxes = Sandboxes(machine, Path(name))
        figures = interleave(
            {
                "bare bwrap, same view": boxes.bare,
                "ours, supervisor started ahead": lambda: boxes.ours(ahead_s=0.1),
                "ours, supervisor's start included": lambda: boxes.ours(ahead_s=None),
            },
            runs=sandbox_runs,
            warmup=2,
        )
    table("sandbox start to the program's first byte", list(figures.values()))
    for figure in list(figures.values())[1:]:
        versus(figure, figures["bare bwrap, same view"], at_most_more_s=0.015)


if __name__ == "__main__":
    main()
