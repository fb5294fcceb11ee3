"""The hardened runner's units on a machine that systemd runs: installed, tried from where its users stand, used, stopped (issue 4)."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from runner.bundle.reader import open_attempt
from tests.hold.booted import Booted
from tests.run.conftest import ROOT
from tests.run.installed import CACHE
from tests.run.provider import LoopbackProvider

pytestmark = [pytest.mark.systemd, pytest.mark.timeout(600)]

KEY = "sk-ant-" + "booted-0123456789" * 3
HERE = "/opt/hermeval/ci/runner"
THE_MACHINES_OWN = ("kernel.", "dev.", "user.")
"""Settings of the kernel, which the test shares with this machine and leaves as they are."""


@pytest.fixture(scope="session")
def machine() -> Iterator[Booted | None]:
    """A machine with the runner laid out as ci/runner/install does it, and a key; None for who is not root."""
    if os.geteuid() != 0:
        yield None
        return
    done = subprocess.run(
        [str(ROOT / "ci/hermeval"), "toolchain", "verify"], capture_output=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    with Booted(CACHE) as booted:
        booted.must("bash", f"{HERE}/install", "--root", "/")
        booted.must("systemd-sysusers", "/etc/sysusers.d/hermeval.conf")
        booted.must("systemd-tmpfiles", "--create", "/etc/tmpfiles.d/hermeval.conf")
        booted.must("install", "-m", "0400", "/dev/stdin", "/etc/hermeval/provider-key", given=KEY.encode())
        booted.must("useradd", "--system", "--groups", "hermeval-submit", "job")
        booted.must("useradd", "--system", "stranger")
        booted.must("systemctl", "daemon-reload")
        booted.must("systemctl", "enable", "--now", "hermeval-eval.socket", "hermeval-gate.socket")
        yield booted


@pytest.fixture
def provider() -> Iterator[Callable[..., LoopbackProvider]]:
    """Start providers on the loopback interface, which the booted machine shares."""
    started: list[LoopbackProvider] = []

    def start(*rules: dict[str, Any]) -> LoopbackProvider:
        started.append(LoopbackProvider(rules))
        return started[-1]

    yield start
    for one in started:
        one.close()


def refused_to_boot() -> None:
    """An ordinary user cannot boot a machine and is told so; that is all there is to try then."""
    with pytest.raises(PermissionError, match="by root"):
        Booted(CACHE)


@contextmanager
def overridden_gate(machine: Booted, change: Callable[[str], str]) -> Iterator[None]:
    """Change the line that starts the gate's unit by a drop-in, as an administrator would."""
    drop_in = "/run/systemd/system/hermeval-gate.service.d/provider.conf"
    command = machine.must("systemctl", "cat", "hermeval-gate.service")
    (line,) = [line for line in command.splitlines() if line.startswith("ExecStart=")]
    machine.must("mkdir", "-p", drop_in.rpartition("/")[0])
    machine.must("tee", drop_in, given=f"[Service]\nExecStart=\n{change(line)}\n".encode())
    machine.must("systemctl", "daemon-reload")
    machine.must("systemctl", "stop", "hermeval-gate.service")
    try:
        yield
    finally:
        machine.must("rm", drop_in)
        machine.must("systemctl", "daemon-reload")
        machine.must("systemctl", "stop", "hermeval-gate.service")
        machine.must("systemctl", "reset-failed")
        machine.must("systemctl", "restart", "hermeval-gate.socket")


def submit(machine: Booted, user: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Submit as a job of that user does."""
    command = f"exec /usr/bin/python3 -I -S {HERE}/submit.py {' '.join(arguments)}"
    return machine.run(["runuser", "-u", user, "--", "sh", "-c", command])


def test_everything_holds_where_its_users_stand(machine: Booted | None) -> None:
    """check.py finds all held but kernel settings, which the test does not change: sockets, key, gate, ``hermeval doctor`` in the unit, a whole run."""
    if machine is None:
        refused_to_boot()
        return
    done = machine.run(["/usr/bin/python3", "-I", "-S", f"{HERE}/check.py", "--json"])
    lines: list[dict[str, Any]] = json.loads(done.stdout)["results"]
    own = [line for line in lines if not line["name"].startswith(THE_MACHINES_OWN)]
    broken = {line["name"]: (line["status"], line["said"]) for line in own if line["status"] != "held"}
    assert broken == {}, machine.must("journalctl", "--no-pager", "-u", "hermeval-*")
    assert {"eval.sock", "gate.sock", "gate", "gate is current", "provider key", "doctor in the unit", "a run"} == {
        line["name"] for line in own
    }


def test_a_gate_that_does_not_start_is_found(machine: Booted | None) -> None:
    """systemd listens at the gate's socket whether or not the gate can start; check.py asks on, and says ``broken`` with the place to look at."""
    if machine is None:
        refused_to_boot()
        return
    program = f"import pwd, sys; sys.path.insert(0, {HERE!r}); import check; who = pwd.getpwnam('hermeval-eval')"
    program += "; line = check.check_gate((who.pw_uid, who.pw_gid, [])); print(line.status, line.do)"
    asked = ("/usr/bin/python3", "-I", "-c", program)
    assert machine.must(*asked).startswith("held")
    with overridden_gate(machine, lambda line: line.replace("${CREDENTIALS_DIRECTORY}", "/nowhere")):
        assert machine.must(*asked).startswith("broken journalctl -u hermeval-gate")
    assert machine.must(*asked).startswith("held")


def test_a_gate_from_before_a_new_key_is_found(machine: Booted | None) -> None:
    """A gate that runs on with the former key, or whose unit systemd has not read again, is ``broken``; started again it is held."""
    if machine is None:
        refused_to_boot()
        return
    program = f"import sys; sys.path.insert(0, {HERE!r}); import check; line = check.check_gate_is_current(); print(line.status, line.said)"
    asked = ("/usr/bin/python3", "-I", "-c", program)
    machine.must("systemctl", "restart", "hermeval-gate.service")
    assert machine.must(*asked).startswith("held it was started after")
    time.sleep(2)  # systemd says whole seconds
    machine.must("install", "-m", "0400", "/dev/stdin", "/etc/hermeval/provider-key", given=KEY.encode())
    assert "/etc/hermeval/provider-key" in machine.must(*asked)
    time.sleep(1)
    machine.must("systemctl", "restart", "hermeval-gate.service")
    assert machine.must(*asked).startswith("held")
    machine.must("touch", "-d", "+1 hour", "/etc/systemd/system/hermeval-gate.service")
    assert machine.must(*asked).startswith("broken")
    machine.must("systemctl", "daemon-reload")
    time.sleep(1)
    machine.must("systemctl", "restart", "hermeval-gate.service")
    assert machine.must(*asked).startswith("held")


def test_install_says_which_step_failed(machine: Booted | None) -> None:
    """A program of the system that fails ends install with 2, the step and what to do; never with that program's own status."""
    if machine is None:
        refused_to_boot()
        return
    machine.must("mkdir", "-p", "/run/failing")
    machine.must("tee", "/run/failing/systemd-sysusers", given=b"#!/bin/sh\nexit 73\n")
    machine.must("chmod", "0755", "/run/failing/systemd-sysusers")
    done = machine.run(["bash", f"{HERE}/install"], env={"PATH": "/run/failing:/usr/sbin:/usr/bin:/sbin:/bin"})
    assert done.returncode == 2, done.stderr
    assert "error[runner-install]: a step failed with 73: systemd-sysusers" in done.stderr
    assert "do:" in done.stderr


def test_a_job_hands_a_run_in_and_a_stranger_does_not(machine: Booted | None) -> None:
    """A member of the group gets its attempt, graded; it verifies. Who is no member is refused by the socket's mode."""
    if machine is None:
        refused_to_boot()
        return
    folder = machine.must("runuser", "-u", "job", "--", "mktemp", "-d").strip()
    arguments = ("/opt/hermeval/fixtures", "missing-account", "--out", f"{folder}/out")
    done = submit(machine, "job", *arguments)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["attempts"]
    assert (row["verdict"], row["skill_state"]) == ("pass", "ran")
    assert machine.must("sh", "-c", f"/opt/hermeval/ci/hermeval verify {folder}/out/*.attempt")
    stranger = submit(machine, "stranger", *arguments[:3], "/tmp/stranger")
    assert stranger.returncode == 2
    assert json.loads(stranger.stdout)["error"]["code"] == "runner-not-allowed"
    assert "Permission denied" in stranger.stderr


def test_a_second_request_waits_for_the_first(machine: Booted | None) -> None:
    """Requests share a uid, so one is served at a time: a second one hears ``runner-busy``, or waits until the first has gone."""
    if machine is None:
        refused_to_boot()
        return
    hold = "import socket, time; s = socket.socket(socket.AF_UNIX); s.connect('/run/hermeval-runner/eval.sock'); "
    hold += "print('held', flush=True); time.sleep(60)"
    machine.must("systemd-run", "--unit=first", "--uid=job", "--property=Type=exec", "python3", "-c", hold)
    for _ in range(600):
        if machine.must("systemctl", "list-units", "--plain", "--no-legend", "hermeval-eval@*").strip():
            break
        time.sleep(0.1)
    machine.must("systemctl", "restart", "hermeval-eval.socket")  # as install does: what runs goes on, and counts
    busy = submit(machine, "job", "--doctor", "--wait", "0")
    assert (busy.returncode, json.loads(busy.stdout)["error"]["code"]) == (2, "runner-busy"), busy.stderr
    machine.must("systemctl", "stop", "first.service")
    waited = submit(machine, "job", "--doctor", "--wait", "120")
    assert waited.returncode == 0, waited.stderr


def test_a_live_run_is_paid_by_the_gates_key_alone(
    machine: Booted | None, provider: Callable[..., LoopbackProvider]
) -> None:
    """The run's unit has neither network nor key: the provider is reached through the gate's unit, gets the key that systemd handed to that, and the attempt has no byte of it."""
    if machine is None:
        refused_to_boot()
        return
    one = provider(*json.loads((ROOT / "fixtures/scripts/missing-account.json").read_bytes())["replies"])
    with overridden_gate(machine, lambda line: f"{line} --base-url {one.url}"):
        folder = machine.must("runuser", "-u", "job", "--", "mktemp", "-d").strip()
        done = submit(
            machine,
            "job",
            "/opt/hermeval/fixtures missing-account --no-judge --provider anthropic --out",
            f"{folder}/out",
        )
        # killed as for want of memory, the gate knows what was spent once it is started again
        spent = json.loads(machine.must("cat", "/var/lib/hermeval-gate/spend.json"))
        assert (spent["requests"], spent["pico_usd"] > 0) == (len(one.requests), True)
        machine.must("systemctl", "kill", "--signal=KILL", "hermeval-gate.service")
        machine.must("systemctl", "restart", "hermeval-gate.service")
        assert json.loads(machine.must("cat", "/var/lib/hermeval-gate/spend.json")) == spent
    assert one.requests, done.stderr
    assert {headers["x-api-key"] for _, headers, _ in one.requests} == {KEY}
    (row,) = json.loads(done.stdout)["attempts"]
    assert row["provider"] == "anthropic"
    (path,) = machine.path(f"{folder}/out").glob("*.attempt")
    attempt = open_attempt(path)
    assert all(KEY.encode() not in attempt.part(name) for name in attempt.part_names)


def test_the_units_stop_in_good_order(machine: Booted | None) -> None:
    """Stopping the gate is no failure of it; connecting again starts it anew."""
    if machine is None:
        refused_to_boot()
        return
    machine.must("systemctl", "start", "hermeval-gate.service")
    machine.must("systemctl", "stop", "hermeval-gate.service")
    shown = machine.must("systemctl", "show", "-p", "Result,ActiveState", "hermeval-gate.service")
    assert shown.splitlines() == ["Result=success", "ActiveState=inactive"]
