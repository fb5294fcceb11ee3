"""The hardened runner's units: made from one table, plain and for NixOS, with the options that facts/sandbox.md §6 demands, and good in systemd's own eyes."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ci.runner import check
from ci.runner.units import HOST, lines, load_table, render
from tests.run.conftest import ROOT

TABLE = load_table()
EVAL = "hermeval-eval@.service"
GATE = "hermeval-gate.service"
MODULE = ROOT / "nix" / "modules" / "hardened-runner.nix"

DEMANDED: dict[str, Any] = {
    "RestrictNamespaces": "user mnt pid net ipc uts cgroup",
    "ProtectKernelTunables": False,
    "ProtectKernelLogs": False,
    "ProtectHostname": False,
    "ProtectProc": "invisible",
    "ProcSubset": "all",
    "NoNewPrivileges": True,
    "CapabilityBoundingSet": "",
    "AmbientCapabilities": "",
    "User": "hermeval-eval",
    "DynamicUser": False,
    "PrivateUsers": False,
    "KeyringMode": "private",
    "Delegate": "memory pids cpu",
    "MemorySwapMax": "0",
    "OOMPolicy": "continue",
    "KillMode": "control-group",
    "ProtectControlGroups": False,
    "PrivateTmp": True,
    "PrivateDevices": True,
    "ProtectHome": True,
    "ProtectSystem": "strict",
    "UMask": "0077",
    "RestrictSUIDSGID": True,
    "RestrictRealtime": True,
    "LockPersonality": True,
    "RemoveIPC": True,
    "SystemCallArchitectures": "native",
    "MemoryDenyWriteExecute": False,
    "IPAddressDeny": "any",
    "IPAddressAllow": "localhost",
}
"""facts/sandbox.md §6, the table, for the unit that attempts run in."""


def service(unit: str) -> dict[str, Any]:
    return {option: value for option, value, _ in TABLE["units"][unit]["Service"]}


# -- the table


def test_the_committed_files_are_the_generated_ones() -> None:
    """Nobody edits a unit by hand: what lies there is what the table gives, and nothing else lies there but the AppArmor profile."""
    committed = {str(path.relative_to(HOST)): path.read_text() for path in HOST.rglob("*") if path.is_file()}
    committed.pop("apparmor.d/hermeval-eval")
    assert committed == render(TABLE)


def test_every_option_stands_once_with_its_value() -> None:
    """A key that stood twice would be two lines for systemd and one for Nix."""
    for unit, sections in TABLE["units"].items():
        for section, options in sections.items():
            names = [option for option, _, _ in options]
            assert len(names) == len(set(names)), (unit, section)
    assert list(lines("A", ["b", "c"])) == ["A=b", "A=c"]
    assert list(lines("A", True)) == ["A=true"]


def test_what_the_facts_demand_of_the_attempts_unit_stands_there() -> None:
    """Each row of the table of facts/sandbox.md §6, those that relax for bubblewrap and those that do not."""
    options = service(EVAL)
    assert {name: options.get(name) for name in DEMANDED} == DEMANDED
    assert {"MemoryMax", "TasksMax"} <= options.keys()
    denied = set(str(options["SystemCallFilter"]).removeprefix("~").split())
    assert {"@clock", "@cpu-emulation", "@module", "@obsolete", "@raw-io", "@reboot", "setdomainname"} <= denied
    assert not denied & {"@mount", "capset", "sethostname", "@privileged"}, "bubblewrap calls these"
    hidden = " ".join(options["InaccessiblePaths"])
    assert all(path in hidden for path in ("docker.sock", "podman", "daemon-socket", "github-runner", "/etc/hermeval"))


def test_one_request_is_served_at_one_time() -> None:
    """Two would share the uid that facts/sandbox.md §6 makes static; and a request ends by itself before systemd would end it, with time to hand over."""
    socket = {option: value for option, value, _ in TABLE["units"]["hermeval-eval.socket"]["Socket"]}
    assert (socket["Accept"], socket["MaxConnections"]) == (True, 1)
    (seconds,) = re.findall(r"--max-s (\d+)", service(EVAL)["ExecStart"])
    (hours,) = re.findall(r"(\d+)h", service(EVAL)["RuntimeMaxSec"])
    assert 0 < int(seconds) <= int(hours) * 3600 - 300


def test_the_gates_account_outlives_its_unit() -> None:
    """What was spent is in a directory of systemd's making that the gate alone reads, and on the command line: started again, after whatever end, it goes on."""
    options = service(GATE)
    assert (options["StateDirectory"], options["StateDirectoryMode"]) == ("hermeval-gate", "0700")
    assert "--spend-file ${STATE_DIRECTORY}/" in options["ExecStart"]
    assert "hermeval-gate" in " ".join(service(EVAL)["InaccessiblePaths"])


def test_the_key_is_in_the_gates_unit_alone() -> None:
    """LoadCredential stands there and nowhere else; no unit has a key in its environment or on its command line; the sockets' groups differ."""
    assert service(GATE)["LoadCredential"] == "provider-key:@key@"
    assert "--key-file ${CREDENTIALS_DIRECTORY}/provider-key" in service(GATE)["ExecStart"]
    others = json.dumps({unit: sections for unit, sections in TABLE["units"].items() if unit != GATE})
    assert "Credential" not in others
    assert "key" not in service(EVAL)["ExecStart"]
    assert "API_KEY" not in json.dumps(TABLE)
    groups = {
        unit: {o: v for o, v, _ in TABLE["units"][unit]["Socket"]}["SocketGroup"]
        for unit in TABLE["units"]
        if unit.endswith(".socket")
    }
    assert groups == {"hermeval-eval.socket": "hermeval-submit", "hermeval-gate.socket": "hermeval-eval"}


def test_the_programs_of_the_units_are_there() -> None:
    """What ExecStart names lies in this checkout under the installed name, and takes the options that are given."""
    plain = TABLE["plain"]
    for name in ("hermeval", "entry"):
        assert (ROOT / plain[name].removeprefix("/opt/hermeval/")).is_file()
    for words in (service(EVAL)["ExecStart"], service(GATE)["ExecStart"]):
        program = [sys.executable, str(ROOT / "ci/runner/entry.py")] if "@entry@" in words else None
        asked = set(re.findall(r"--[a-z-]+", words))
        if program:
            text = subprocess.run([*program, "--help"], capture_output=True, text=True, check=True).stdout
        else:
            from click.testing import CliRunner

            from runner.cli.gate import command

            text = CliRunner().invoke(command, ["--help"]).output
        assert asked <= set(re.findall(r"--[a-z-]+", text)), text


def test_the_apparmor_profile_is_the_units_and_no_paths() -> None:
    """It is named as the unit asks for it, lets user namespaces be made, and is attached to no program."""
    text = (HOST / "apparmor.d" / "hermeval-eval").read_text()
    code = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    assert service(EVAL)["AppArmorProfile"] == "-hermeval-eval"
    assert re.search(r"^profile hermeval-eval flags=\(unconfined\) \{\n  userns,$", code, re.MULTILINE)
    assert "/usr/bin" not in code


def test_the_installer_lays_out_every_file(tmp_path: Path) -> None:
    """Each committed file arrives where systemd, sysctl, tmpfiles, sysusers and AppArmor look; without --root it refuses any place but /opt/hermeval."""
    subprocess.run(["bash", str(ROOT / "ci/runner/install"), "--root", str(tmp_path)], check=True, capture_output=True)
    laid = {path.name: path for path in tmp_path.rglob("*") if path.is_file()}
    assert {
        name: path.read_text()
        for name, path in laid.items()
        if "tmpfiles" not in str(path) and "sysusers" not in str(path)
    } == {path.name: path.read_text() for path in HOST.rglob("*") if path.is_file() and path.name != "hermeval.conf"}
    for folder in ("tmpfiles.d", "sysusers.d"):
        assert (tmp_path / "etc" / folder / "hermeval.conf").read_text() == (
            HOST / folder / "hermeval.conf"
        ).read_text()
    done = subprocess.run(["bash", str(ROOT / "ci/runner/install")], check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "error[runner-install]" in done.stderr


# -- the check


@pytest.mark.parametrize("key", [row[0] for row in TABLE["sysctl"]])
def test_a_sysctl_that_does_not_hold_is_named(tmp_path: Path, key: str) -> None:
    """The value of the kernel counts: all good is all held, one that is off is broken with the command that cures it."""
    for name, value, _ in TABLE["sysctl"]:
        path = tmp_path / name.replace(".", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value + "\n")
    assert {line.status for line in check.check_sysctls(TABLE, tmp_path)} == {"held"}
    (tmp_path / key.replace(".", "/")).write_text("0\n" if key != "dev.tty.legacy_tiocsti" else "1\n")
    broken = [line for line in check.check_sysctls(TABLE, tmp_path) if line.status == "broken"]
    assert [line.name for line in broken] == [key]
    assert key in broken[0].do


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kernel.yama.ptrace_scope", "2"),
        ("kernel.yama.ptrace_scope", "3"),
        ("kernel.unprivileged_bpf_disabled", "2"),
        ("user.max_user_namespaces", "999999"),
    ],
)
def test_a_machine_that_holds_more_is_left_as_it_is(tmp_path: Path, key: str, value: str) -> None:
    """The table's values are minimums: a stricter one is held, and install's file does not set it; the others, and a value that is the table's own, it does."""
    for name, wanted, _ in TABLE["sysctl"]:
        path = tmp_path / name.replace(".", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted + "\n")
    text = render(TABLE)["sysctl.d/60-hermeval.conf"]
    assert check.sysctls_to_set(TABLE, text, tmp_path) == text
    (tmp_path / key.replace(".", "/")).write_text(value + "\n")
    assert {line.status for line in check.check_sysctls(TABLE, tmp_path)} == {"held"}
    lowered = check.sysctls_to_set(TABLE, text, tmp_path)
    settings = [line.split(" = ")[0] for line in lowered.splitlines() if not line.startswith("#")]
    assert settings == [name for name, _, _ in TABLE["sysctl"] if name != key]


@pytest.mark.parametrize(("content", "is_one"), [(None, False), (b"", False), (b" \n", False), (b"sk-x\n", True)])
def test_an_empty_key_is_none_for_install_and_check(tmp_path: Path, content: bytes | None, is_one: bool) -> None:
    """One question answers both, so that neither calls broken what the other takes for a runner of scripted runs."""
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    assert check.has_key(tmp_path / "key") is is_one
    assert "--has-key" in (ROOT / "ci/runner/install").read_text()


def test_what_was_written_after_the_start_is_found(tmp_path: Path) -> None:
    """A file's change time counts, which nobody can set back: a copy with an old date is new all the same. Nothing newer is nothing found."""
    program = tmp_path / "runner" / "gate" / "x.py"
    program.parent.mkdir(parents=True)
    program.write_text("")
    os.utime(program, (0, 0))
    changed = program.stat().st_ctime
    assert check.started_before(changed - 100, tmp_path / "none", tmp_path / "runner") == program
    assert check.started_before(changed, tmp_path / "runner") is None


@pytest.mark.parametrize("words", [["--nonsense"], ["--js"], ["--sysctl", "--has-key"], ["x"]], ids=" ".join)
def test_check_knows_its_options(words: list[str]) -> None:
    """What it does not know is refused and not passed over; --help says what it is for."""
    line = [sys.executable, "-I", "-S", str(ROOT / "ci/runner/check.py")]
    assert subprocess.run([*line, *words], capture_output=True, check=False).returncode == 2
    done = subprocess.run([*line, "--help"], capture_output=True, text=True, check=True)
    assert "--json" in done.stdout


def test_a_file_that_others_can_read_is_found_by_reading_it(tmp_path: Path) -> None:
    """Who may succeeds, others get EACCES; a mode that lets them in is broken, and so is one that keeps out who may."""
    secret = tmp_path / "key"
    secret.write_text("x")
    os.chmod(tmp_path, 0o755)
    me = (os.geteuid(), os.getegid(), list[int]())
    if os.geteuid() == 0:
        for parent in tmp_path.parents:
            if str(parent).startswith("/tmp/") and parent.stat().st_uid == 0:
                parent.chmod(parent.stat().st_mode | 0o011)
        secret.chmod(0o400)
        other = (check.NOBODY, check.NOBODY, list[int]())
        assert check.refused_to_others("key", secret.read_bytes, me, [other]).status == "held"
        secret.chmod(0o444)
        assert check.refused_to_others("key", secret.read_bytes, me, [other]).status == "broken"
        assert check.refused_to_others("key", (tmp_path / "none").read_bytes, me, [other]).status == "broken"
    else:
        assert check.attempt_as(0, 0, [], secret.read_bytes) == errno.EPERM


def test_a_machine_without_systemd_is_told_so() -> None:
    """Here, where systemd does not run or the caller is not root, the check says so, and ends in 2."""
    if Path("/proc/1/comm").read_text().strip() == "systemd" and os.geteuid() == 0:
        pytest.fail("this test is for machines without an installed runner")
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(ROOT / "ci/runner/check.py"), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert json.loads(done.stdout)["results"][0]["name"] == "systemd"


# -- systemd's and Nix's eyes


def programs(directory: Path) -> dict[str, Any]:
    """The table, with programs that exist here for those of an installation."""
    program = directory / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return {**TABLE, "plain": dict.fromkeys(TABLE["plain"], str(program))}


def written(directory: Path) -> Path:
    units = directory / "units"
    units.mkdir()
    for name, text in render(programs(directory)).items():
        if name.startswith("systemd/"):
            (units / name.removeprefix("systemd/")).write_text(text)
    return units


@pytest.mark.systemd
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    """No unknown option, no value that cannot be read, no missing program; a misspelt option is found by the same means."""
    units = written(tmp_path)
    line = ["systemd-analyze", "verify", "--man=no", *map(str, sorted(units.iterdir()))]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with (units / EVAL).open("a") as unit:
        unit.write("ProtectSystm=strict\n")
    assert "ProtectSystm" in subprocess.run(line, capture_output=True, text=True, check=False).stderr


@pytest.mark.systemd
@pytest.mark.parametrize(("unit", "most"), [(EVAL, 30), (GATE, 15)])
def test_systemd_thinks_little_is_exposed(tmp_path: Path, unit: str, most: int) -> None:
    """On systemd's scale of 0 to 100 what bubblewrap needs costs the attempts' unit some; an unconfined unit is far over both bounds."""
    units = written(tmp_path)

    def within(path: Path) -> bool:
        line = ["systemd-analyze", "security", "--offline=true", f"--threshold={most}", "--no-pager", str(path)]
        return subprocess.run(line, capture_output=True, check=False).returncode == 0

    assert within(units / unit)
    plain = units / "plain.service"
    plain.write_text(f"[Service]\nExecStart={tmp_path}/program\n")
    assert not within(plain)


def evaluated(key_file: str) -> dict[str, Any]:
    program = shutil.which("nix-instantiate")
    assert program, "Debian's nix-bin is missing"
    arguments = ["--arg", "module", str(MODULE), "--arg", "keyFile", key_file]
    done = subprocess.run(
        [
            program,
            "--store",
            "dummy://",
            "--eval",
            "--strict",
            "--json",
            str(Path(__file__).parent / "module.nix"),
            *arguments,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    value: dict[str, Any] = json.loads(done.stdout)
    return value


@pytest.mark.nix
def test_the_nixos_module_says_what_the_table_says() -> None:
    """Every unit, option, user, group, sysctl and directory of the table comes out of the module, and nothing else does."""
    config = evaluated('"/run/secrets/key"')["on"]
    places = {
        "@hermeval@": "/package/bin/hermeval",
        "@entry@": "/package/share/hermeval/ci/runner/entry.py",
        "@python@": "/python/bin/python3",
        "@key@": "/run/secrets/key",
    }

    def placed(value: Any) -> Any:
        for name, path in places.items():
            value = value.replace(name, path) if isinstance(value, str) else value
        return value

    kinds = {"slice": "slices", "socket": "sockets", "service": "services"}
    expected: dict[str, dict[str, Any]] = {kind: {} for kind in kinds.values()}
    for unit, sections in TABLE["units"].items():
        base, kind = unit.rsplit(".", 1)
        held = {
            section: {option: placed(value) for option, value, _ in options} for section, options in sections.items()
        }
        if unit == EVAL:  # where this machine has its secrets, the module knows better than the table
            hidden = [*held["Service"]["InaccessiblePaths"], "-/run/secrets/key", "-/run/secrets/runner"]
            held["Service"]["InaccessiblePaths"] = hidden
        made: dict[str, Any] = {"unitConfig": held["Unit"], f"{kind}Config": held[kind.capitalize()]}
        if kind != "slice":
            made["wantedBy"] = list(held.get("Install", {}).values())
        expected[kinds[kind]][base] = made
    rules = config["systemd"].pop("tmpfiles")["rules"]
    assert config["systemd"] == expected
    assert config["boot"]["kernel"]["sysctl"] == {
        key: {"priority": 900, "value": value} for key, value, _ in TABLE["sysctl"]
    }, "below a configuration's own (100), above nixpkgs' defaults (1000)"
    assert [rule.split() for rule in rules] == [[*row[:-1], "-"] for row in TABLE["tmpfiles"]]
    assert config["users"]["users"].keys() == TABLE["users"].keys()
    assert config["users"]["groups"].keys() == TABLE["users"].keys() | TABLE["groups"].keys()


@pytest.mark.nix
def test_the_test_of_the_internet_job_can_be_read() -> None:
    """It cannot run here: its Nix evaluates with what stands for nixpkgs, its script is Python, and the job names both of its parts."""
    stand_in = """{ path }: let
      flake = {
        inputs.nixpkgs.legacyPackages.x = { python313 = "/python"; testers.runNixOSTest = test: test; };
        packages.x.hermeval = "/package";
        nixosModules.hardened-runner = { };
      };
      test = (import path { inherit flake; system = "x"; }).vm;
    in { inherit (test) testScript; key = (builtins.elemAt (test.nodes.machine { }).imports 0).services.hermeval-runner.keyFile; }"""
    line = ["nix-instantiate", "--store", "dummy://", "--eval", "--strict", "--json", "--expr", stand_in]
    line += ["--arg", "path", str(ROOT / "nix" / "runner-test.nix")]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert value["key"] == "/run/secrets/key"
    compile(value["testScript"], "testScript", "exec")
    assert "/package/share/hermeval" in value["testScript"]
    workflow = (ROOT / ".github" / "workflows" / "nix.yml").read_text()
    assert ").evaluation'" in workflow
    assert ").vm'" in workflow


@pytest.mark.nix
def test_a_key_in_the_store_is_refused() -> None:
    """Everybody can read the store, so an assertion of the module fails there; it holds for a file outside, and for the runner's token."""
    inside = evaluated('"/nix/store/00000000000000000000000000000000-source/key"')["on"]["assertions"]
    assert [row["assertion"] for row in inside] == [False, True]
    assert "a secret in the Nix store" in inside[0]["message"]
    outside = evaluated('"/run/secrets/key"')["on"]["assertions"]
    assert [row["assertion"] for row in outside] == [True, True]


@pytest.mark.nix
def test_the_github_runner_keeps_its_confinement() -> None:
    """Of its unit only a group is added; it is ephemeral; without a key there is no gate; switched off, the module says nothing."""
    without = evaluated("null")
    runner = without["on"]["services"]["github-runners"]["evals"]
    assert runner["serviceOverrides"] == {"SupplementaryGroups": ["hermeval-submit"]}
    assert runner["ephemeral"] is True
    assert "hermeval-gate" not in without["on"]["systemd"]["services"] | without["on"]["systemd"]["sockets"]
    assert "hermeval-eval@" in without["on"]["systemd"]["services"]
    assert without["off"] == {}
