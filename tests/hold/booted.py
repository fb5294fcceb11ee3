"""A machine that is run by systemd, for tests: a real one, booted in namespaces on a throw-away copy of this one.

Boundary: starts ``unshare`` and ``nsenter``, makes one control group and one temporary directory; all are gone after ``close``. Needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

BOOT = Path(__file__).with_name("booted.sh")
ROOT = Path(__file__).resolve().parents[2]
_CHECKOUT = ("runner", "sandbox", "profiles", "fixtures", "ci", "pyproject.toml")
_WORDS = ("--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--cgroup", "--propagation", "private")


class Booted:
    """The machine. A context."""

    def __init__(self, cache: Path) -> None:
        """Boot it with the tools of ``cache``. Raises: PermissionError for who is not root; AssertionError with systemd's own words if it does not come up."""
        if os.geteuid() != 0:
            raise PermissionError("a machine is booted by root")
        self._base = Path(mkdtemp(prefix="hermeval-booted-"))
        self._group = _unified() / self._base.name
        self._group.mkdir()
        checkout = self._base / "checkout"
        for name in _CHECKOUT:
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / name, checkout / name, symlinks=True, ignore=ignored)
            else:
                shutil.copyfile(ROOT / name, checkout / name)
        (self._base / "machine").mkdir()
        _open_to_all(checkout)
        script = 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"'
        line = ["sh", "-c", script, "sh", str(self._group), "unshare", *_WORDS, "bash", str(BOOT)]
        line += [str(self._base / "machine"), str(checkout), str(cache)]
        self._log = (self._base / "console").open("wb")
        self._outer = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT)
        self._init: int | None = None
        try:
            self._await()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Booted:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self, argv: Sequence[str], *, given: bytes = b"", env: Mapping[str, str] | None = None, timeout_s: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run a command there, as root; its output is text."""
        line = ["nsenter", "--target", str(self._init), "--all", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
        line += [f"{name}={value}" for name, value in (env or {}).items()]
        done = subprocess.run([*line, *argv], input=given, capture_output=True, timeout=timeout_s, check=False)
        return subprocess.CompletedProcess(argv, done.returncode, done.stdout.decode(), done.stderr.decode())

    def must(self, *argv: str, given: bytes = b"") -> str:
        """Run a command that has to end with 0; return what it printed."""
        done = self.run(argv, given=given)
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done.stdout

    def path(self, inside: str) -> Path:
        """A place of the machine as it can be reached from here."""
        return Path(f"/proc/{self._init}/root{inside}")

    def close(self) -> None:
        """End it: with pid 1 every process and mount goes."""
        self._outer.kill()
        if self._init is not None:
            with suppress(ProcessLookupError):
                os.kill(self._init, 9)
        self._outer.wait()
        self._log.close()
        deadline = time.monotonic() + 30
        while self._group.exists():
            try:
                for path in sorted((path for path in self._group.rglob("*") if path.is_dir()), reverse=True):
                    path.rmdir()
                self._group.rmdir()
            except OSError:  # its last processes are still going
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        shutil.rmtree(self._base)

    def _await(self) -> None:
        children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children")
        deadline = time.monotonic() + 120
        while True:
            console = (self._base / "console").read_text(errors="replace")
            assert self._outer.poll() is None, console
            assert time.monotonic() < deadline, console
            found = children.read_text().split()
            if found and _is_systemd(found[0]):
                self._init = int(found[0])
                state = self.run(["systemctl", "is-system-running"]).stdout.strip()
                if state in {"running", "degraded"}:
                    return
            time.sleep(0.1)


def _is_systemd(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "systemd"
    except OSError:
        return False


def _unified() -> Path:
    """Where control groups of version 2 are mounted: alone, or beside those of version 1."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        if right.split()[0] == "cgroup2":
            return Path(left.split()[4])
    raise AssertionError("no control groups of version 2 are mounted here")


def _open_to_all(tree: Path) -> None:
    for path in [tree, *tree.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or path.stat().st_mode & 0o100 else 0o444))
    tree.parent.chmod(0o755)
