"""Tries an installed hardened runner, from where its users and its attempts stand; run as root after ``install``.

Boundary: touches processes under other uids, the two sockets, /proc/sys, a temporary directory. Not here: what attempts see inside (``hermeval doctor``, which this has run in the unit).
Rules: standard library only. A line is the result of doing the thing, never of reading a setting. Each refusal has its control: the same thing done by who may. Values of the
kernel are minimums. Exit status 0 if all hold, else 2; 2 too for an option that it does not have.

    python3 -I -S /opt/hermeval/ci/runner/check.py [--json]
    python3 -I -S /opt/hermeval/ci/runner/check.py --sysctl | --has-key      (what install asks)
"""

from __future__ import annotations

import argparse
import errno
import grp
import json
import os
import pwd
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RUN = Path("/run/hermeval-runner")
KEY = Path("/etc/hermeval/provider-key")
NOBODY = 65534


@dataclass(frozen=True)
class Line:
    """One result. ``status`` is ``held`` or ``broken``; ``do`` says what to do about the latter."""

    name: str
    status: str
    said: str
    do: str = ""


def attempt_as(uid: int, gid: int, groups: list[int], action: Callable[[], object]) -> int:
    """Do ``action`` in a child process of another identity; return 0, or the errno that it was refused with (255: another failure)."""
    child = os.fork()
    if child == 0:
        code = 255
        try:
            os.setgroups(groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            action()
            code = 0
        except OSError as error:
            code = error.errno or 255
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def connect(path: Path) -> None:
    """Connect to a Unix socket, and leave."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10)
        sock.connect(str(path))


def check_gate(who: tuple[int, int, list[int]]) -> Line:
    """Ask the gate for something that it refuses, as an attempt could: an answer in HTTP shows that it runs and has its key; systemd listens for it either way."""

    def ask() -> None:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(60)  # it is started by this
            sock.connect(str(RUN / "gate.sock"))
            sock.sendall(b"GET /nothing HTTP/1.1\r\nHost: gate\r\nConnection: close\r\n\r\n")
            if not sock.recv(64).startswith(b"HTTP/1.1 4"):
                raise OSError(errno.EPROTO, "no answer")

    if code := attempt_as(*who, ask):
        hint = (
            "journalctl -u hermeval-gate -n 50; then systemctl reset-failed hermeval-gate.service hermeval-gate.socket"
        )
        return Line("gate", "broken", f"nobody answers at its socket: {errno.errorcode.get(code, code)}", hint)
    return Line("gate", "held", "answers, and refuses what is not the provider's API")


def refused_to_others(
    name: str, action: Callable[[], object], may: tuple[int, int, list[int]], others: list[tuple[int, int, list[int]]]
) -> Line:
    """Say whether ``action`` works for who may and is refused with EACCES to the others."""
    if code := attempt_as(*may, action):
        return Line(
            name, "broken", f"who may was refused: {errno.errorcode.get(code, code)}", "start install again as root"
        )
    for uid, gid, groups in others:
        code = attempt_as(uid, gid, groups, action)
        if code != errno.EACCES:
            said = f"uid {uid}, groups {[gid, *groups]}: {errno.errorcode.get(code, code) if code else 'let through'}"
            return Line(name, "broken", said, "look at the owner and mode of the file and of the folders above it")
    return Line(name, "held", "works for who may, EACCES for the others")


def stronger(table: dict[str, Any], key: str, held: str) -> bool:
    """Say whether a kernel's value holds more than the table's: the table's are minimums, and nothing here lowers one."""
    if key == "user.max_user_namespaces":
        wanted = {name: value for name, value, _ in table["sysctl"]}[key]
        return held.isdecimal() and int(held) > int(wanted)
    return held in table["sysctl_stronger"].get(key, [])


def kernel_value(key: str, root: Path) -> str | None:
    """Return what the kernel has for ``key``; None if it does not know it."""
    path = root / key.replace(".", "/")
    return path.read_text(encoding="utf-8").strip() if path.exists() else None


def check_sysctls(table: dict[str, Any], root: Path = Path("/proc/sys")) -> list[Line]:
    """Compare the kernel's values with the table's, which are minimums."""
    lines = []
    for key, wanted, why in table["sysctl"]:
        held = kernel_value(key, root)
        enough = key == "user.max_user_namespaces" and held is not None and held.isdecimal() and int(held) > 0
        if held is None and key in {"dev.tty.legacy_tiocsti", "kernel.yama.ptrace_scope"}:
            lines.append(Line(key, "held", f"this kernel does not have it ({why})"))
        elif held is not None and (held == wanted or enough or stronger(table, key, held)):
            lines.append(Line(key, "held", held))
        else:
            cure = f"sysctl -w '{key}={wanted}'"
            if key == "kernel.core_pattern":
                cure += "; where apport or systemd-coredump sets it anew at each start, switch that off first"
            lines.append(Line(key, "broken", f"{held}, not {wanted}: {why}", cure))
    return lines


def sysctls_to_set(table: dict[str, Any], text: str, root: Path = Path("/proc/sys")) -> str:
    """Return the lines of ``text``, a file of sysctl.d, without those that would lower what this machine has."""
    kept = []
    for line in text.splitlines(keepends=True):
        key, found, _ = line.partition(" = ")
        held = kernel_value(key, root) if found and not line.startswith("#") else None
        weaker = held is not None and stronger(table, key, held)
        kept.append(f"# left as it is, since this machine holds more: {line}" if weaker else line)
    return "".join(kept)


def has_key(path: Path = KEY) -> bool:
    """Say whether there is a provider key: a file with more than white space in it. ``install`` asks this too."""
    try:
        return bool(path.read_bytes().strip())
    except FileNotFoundError:
        return False


def started_before(started: float, *places: Path) -> Path | None:
    """Return a file below ``places`` that was written or laid there after ``started`` (seconds since 1970), if there is one."""
    for place in places:
        for path in [place, *place.rglob("*.py")] if place.is_dir() else [place]:
            if path.is_file() and path.stat().st_ctime > started + 1:
                return path
    return None


def check_gate_is_current() -> Line:
    """Compare the running gate's start with the times of its key, its unit and its programs: what runs on from before an upgrade is not what is installed."""
    name = "gate is current"
    words = ["systemctl", "show", "--timestamp=unix", "-p", "ActiveState,NeedDaemonReload,ExecMainStartTimestamp"]
    done = subprocess.run([*words, "hermeval-gate.service"], capture_output=True, text=True, check=False)
    shown = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    cure = "systemctl daemon-reload; systemctl restart hermeval-gate.service"
    if shown.get("NeedDaemonReload") == "yes":
        return Line(name, "broken", "its unit was changed and systemd has not read it", cure)
    if shown.get("ActiveState") != "active":
        return Line(name, "held", "does not run now; it starts with what is installed")
    started = float(shown["ExecMainStartTimestamp"].removeprefix("@"))
    newer = started_before(
        started, KEY, Path("/etc/systemd/system/hermeval-gate.service"), HERE.parent.parent / "runner"
    )
    if newer is not None:
        return Line(name, "broken", f"it has run since before {newer} was written", cure)
    return Line(name, "held", "it was started after its key, its unit and its programs were written")


def submit(*arguments: str) -> tuple[int, str, str]:
    """Have the installed runner do something, as a member of the group that may."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(HERE / "submit.py"), "--wait", "300", *arguments],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env={"PATH": "/usr/bin:/bin"},
    )
    return done.returncode, done.stdout, done.stderr


def check_doctor() -> Line:
    """Have ``hermeval doctor`` run where attempts run."""
    code, out, errors = submit("--doctor")
    if code == 0:
        return Line("doctor in the unit", "held", "every check of hermeval doctor holds there")
    return Line("doctor in the unit", "broken", (out + errors)[-1500:], "journalctl -u 'hermeval-eval@*' -n 50")


def check_run() -> Line:
    """Have the shipped fixture run, with its script for a provider."""
    with tempfile.TemporaryDirectory() as out:
        code, _, errors = submit(str(HERE.parent.parent / "fixtures"), "missing-account", "--out", out, "--no-grade")
        if code == 0 and list(Path(out).glob("*.attempt")):
            return Line("a run", "held", "measured, and its attempt arrived")
    return Line("a run", "broken", errors[-1500:], "journalctl -u 'hermeval-eval@*' -n 50")


def main() -> int:
    """Do all checks and print them, or answer what ``install`` asks."""
    options = argparse.ArgumentParser(
        description="Try an installed hardened runner from where its users and its attempts stand; run as root. Exit status 0 if all holds, else 2.",
        allow_abbrev=False,
    )
    options.add_argument("--json", action="store_true", help="Print one JSON object.")
    asked = options.add_mutually_exclusive_group()
    asked.add_argument(
        "--sysctl", action="store_true", help="Print the sysctl.d file for this machine, and check nothing."
    )
    asked.add_argument(
        "--has-key", action="store_true", help="Say by the exit status whether there is a provider key: 0 or 1."
    )
    chosen = options.parse_args()
    if chosen.has_key:
        return 0 if has_key() else 1
    if chosen.sysctl:
        text = (HERE / "host" / "sysctl.d" / "60-hermeval.conf").read_text(encoding="utf-8")
        print(sysctls_to_set(json.loads((HERE / "options.json").read_text(encoding="utf-8")), text), end="")
        return 0
    if Path("/proc/1/comm").read_text().strip() != "systemd" or os.geteuid() != 0:
        lines = [Line("systemd", "broken", "this is not root on a machine run by systemd", "run it there")]
    else:
        lines = _all()
    if chosen.json:
        print(json.dumps({"schema_version": 1, "results": [asdict(line) for line in lines]}))
    else:
        for line in lines:
            print(f"{line.status:<7} {line.name:<34} {line.said}" + (f"\n  do:    {line.do}" if line.do else ""))
    return 0 if all(line.status == "held" for line in lines) else 2


def _all() -> list[Line]:
    table = json.loads((HERE / "options.json").read_text(encoding="utf-8"))
    try:
        run, holder = pwd.getpwnam("hermeval-eval"), pwd.getpwnam("hermeval-gate")
        may_submit = grp.getgrnam("hermeval-submit").gr_gid
    except KeyError as error:
        return [Line("users", "broken", str(error), "start install again as root")]
    nobody = (NOBODY, NOBODY, list[int]())
    attempts = (run.pw_uid, run.pw_gid, list[int]())
    submitter = (NOBODY, NOBODY, [may_submit])
    lines = [
        refused_to_others("eval.sock", lambda: connect(RUN / "eval.sock"), submitter, [nobody, attempts]),
        *check_sysctls(table),
    ]
    if not has_key():
        lines.append(Line("provider key", "held", f"no {KEY}, or nothing in it: scripted runs only"))
    else:
        gate = (holder.pw_uid, holder.pw_gid, list[int]())
        lines += [
            refused_to_others("gate.sock", lambda: connect(RUN / "gate.sock"), attempts, [nobody, submitter]),
            check_gate(attempts),
            check_gate_is_current(),
            refused_to_others("provider key", KEY.read_bytes, (0, 0, []), [nobody, submitter, attempts, gate]),
        ]
    return [*lines, check_doctor(), check_run()]


if __name__ == "__main__":
    sys.exit(main())
