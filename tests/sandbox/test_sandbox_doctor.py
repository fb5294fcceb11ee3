"""doctor tries everything for real, and names what stubs and broken hosts lack."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from sandbox.doctor import check_bwrap_mode, check_links, check_python, examine, verdict_of
from sandbox.inside_probe import expect
from sandbox.process import Host
from sandbox.where import apparmor_cure, covered_below_proc, read_marks, sysctl_facts

IDS = (
    "surroundings",
    "bwrap",
    "bwrap-version",
    "run-uid",
    "python",
    "namespaces",
    "proc",
    "view",
    "inside",
    "network",
    "staging",
    "keyring",
    "limits",
    "bwrap-links",
)


def make_stub(directory: Path, body: str) -> Path:
    """Write a stand-in for bwrap."""
    stub = directory / "bwrap"
    stub.write_text(f"#!/bin/sh\n{body}\n")
    stub.chmod(0o755)
    return stub


def test_this_host_can_isolate() -> None:
    """Every check is there, none failed, and a degraded one has cause and cure."""
    checks = examine()
    assert tuple(check.id for check in checks) == IDS
    assert verdict_of(checks) is None, [check.as_json() for check in checks]
    assert all(check.cause and check.cure for check in checks if check.status != "ok")
    assert {
        check.status
        for check in checks
        if check.id in ("namespaces", "proc", "view", "inside", "network", "staging", "keyring")
    } == {"ok"}


@pytest.mark.parametrize(
    ("body", "failed", "word"),
    [
        ("exit 1", "bwrap-version", "version"),
        ("echo bubblewrap 0.4.1", "bwrap-version", "0.4.1"),
        (
            'case "$*" in --version) echo bubblewrap 0.11.0;; *) echo "bwrap: setting up uid map: Permission denied" >&2; exit 1;; esac',
            "namespaces",
            "AppArmor",
        ),
        (
            'case "$*" in --version) echo bubblewrap 0.11.0;; *) echo "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted" >&2; exit 1;; esac',
            "namespaces",
            "AppArmor",
        ),
        (
            'case "$*" in --version) echo bubblewrap 0.11.0;; *) echo "bwrap: Creating new namespace failed: nesting depth exceeded (ENOSPC)" >&2; exit 1;; esac',
            "namespaces",
            "max_user_namespaces",
        ),
        (
            'case "$*" in --version) echo bubblewrap 0.11.0; exit;; esac\n'
            "if tr '\\0' '\\n' </proc/self/fd/513 | grep -qx -e --proc; then echo \"bwrap: Can't mount proc on /newroot/proc: Operation not permitted\" >&2; exit 1; fi\n"
            'exec /usr/bin/bwrap "$@"',
            "proc",
            "container",
        ),
    ],
)
def test_a_broken_host_is_named(readable_tmp: Path, body: str, failed: str, word: str) -> None:
    """Too old, restricted, exhausted or masked (cases D02, D04): the first failed check says which, with a cure, and what depends on it is not tried."""
    checks = examine(bwrap=make_stub(readable_tmp, body))
    first = next(check for check in checks if check.status == "failed")
    assert first.id == failed
    assert word in first.cause + first.cure
    assert first.cure
    assert verdict_of(checks) == "host-cannot-isolate"
    assert "inside" not in {check.id for check in checks}


def test_a_setuid_bwrap_is_refused(tmp_path: Path) -> None:
    """A set-user-id bwrap is a failure that names its CVE; a missing one names the package."""
    stub = make_stub(tmp_path, "exit 0")
    assert check_bwrap_mode(stub).status == "ok"
    stub.chmod(0o4755)
    check = check_bwrap_mode(stub)
    assert (check.status, "CVE-2026-41163" in check.cause) == ("failed", True)
    missing = check_bwrap_mode(tmp_path / "none")
    assert (missing.status, "bubblewrap" in missing.cure) == ("failed", True)
    assert examine(bwrap=tmp_path / "none")[-1].status == "failed"


def test_an_old_python_is_named(host: Host, readable_tmp: Path) -> None:
    """An interpreter without pidfds cannot run the supervisor."""
    stub = readable_tmp / "python"
    stub.write_text("#!/bin/sh\necho \"AttributeError: module 'posix' has no attribute 'pidfd_open'\" >&2\nexit 1\n")
    stub.chmod(0o755)
    check = check_python(Host(host.identity, host.program, host.bwrap, stub))
    assert check.status == "failed"
    assert "pidfd_open" in check.cause


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ('*/link/*) for word; do case $word in */hostile) mkdir "$(readlink "$word/link" | cut -c 9-)/made";; esac; done; exit;;', "degraded", "CVE"),
        ("*/link/*) exit 1;;", "ok", ""),
        ("*) echo broken >&2; exit 1;;", "degraded", "broken"),
        ("*) exit 0;;", "degraded", "not known"),
    ],
)  # fmt: skip
def test_the_link_probe_tells_what_a_bwrap_does(
    host: Host, readable_tmp: Path, body: str, status: str, word: str
) -> None:
    """A bwrap that makes the directory through the link is degraded, and so is one of which nothing can be known; only one that works and refuses the link is ok."""
    stub = make_stub(readable_tmp, f'case "$*" in {body} esac\nexec /usr/bin/bwrap "$@"')
    check = check_links(Host(host.identity, host.program, stub, host.python), None)
    assert (check.status, word in check.cause, bool(check.cure)) == (status, True, status == "degraded")


def test_kernel_settings_are_told_as_they_are(tmp_path: Path) -> None:
    """Each setting that forbids namespaces is named with its value; good and absent ones are not."""
    for name, value in (
        ("kernel/apparmor_restrict_unprivileged_userns", "1"),
        ("user/max_user_namespaces", "0"),
        ("kernel/unprivileged_userns_clone", "1"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(value + "\n")
    assert sysctl_facts(tmp_path) == [
        "AppArmor restricts user namespaces: kernel.apparmor_restrict_unprivileged_userns is 1",
        "user.max_user_namespaces is 0",
    ]
    assert sysctl_facts(tmp_path / "none") == []


def test_a_place_is_known_by_its_marks(tmp_path: Path) -> None:
    """Containers, gVisor, WSL, a covered /proc and a filter are each said with the file that tells; a plain place has none."""
    assert read_marks(tmp_path) == []
    marks = {
        ".dockerenv": ("", "Docker"),
        "run/.containerenv": ("", "Podman"),
        "run/systemd/container": ("systemd-nspawn\n", "systemd-nspawn"),
        "proc/self/mountinfo": ("1 2 0:3 / /proc/kcore rw - devtmpfs none rw\n", "/proc/kcore"),
        "proc/self/status": ("Name:\tx\nSeccomp:\t2\n", "filter"),
    }
    for name, (text, _) in marks.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = read_marks(tmp_path)
    assert len(found) == len(marks)
    assert all(any(word in mark for mark in found) for _, word in marks.values())
    for version, word in (
        ("Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016", "gVisor"),
        ("Linux version 4.19.0-gvisor #1 SMP", "gVisor"),
        ("Linux version 5.15.90.1-microsoft-standard-WSL2 (gcc)", "Windows"),
    ):
        (tmp_path / "proc/version").write_text(version)
        assert any(word in mark for mark in read_marks(tmp_path))
    (tmp_path / "proc/version").write_text("Linux version 4.4.0-210-generic (buildd@lgw01) #242-Ubuntu SMP")
    assert len(read_marks(tmp_path)) == len(marks)
    assert covered_below_proc("1 2 0:3 / /proc/sys/fs/binfmt_misc rw - autofs none rw\nodd\n") == []


def test_the_apparmor_cure_is_for_the_bwrap_at_hand(tmp_path: Path) -> None:
    """The profile that lies there is loaded, the shipped one is copied, another path gets the text of its own, and else the package is named."""
    usual = Path("/usr/bin/bwrap")
    assert "package apparmor-profiles" in apparmor_cure(usual, tmp_path)
    for path, word in (
        ("usr/share/apparmor/extra-profiles/bwrap-userns-restrict", "cp /usr/share"),
        ("etc/apparmor.d/bwrap-userns-restrict", "load the profile that is there"),
    ):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("")
        assert word in apparmor_cure(usual, tmp_path)
    assert "profile bwrap-hermeval /nix/store/x/bin/bwrap" in apparmor_cure(Path("/nix/store/x/bin/bwrap"), tmp_path)


def test_what_the_probe_saw_is_compared_one_by_one() -> None:
    """A line that is missing or other than it must be is a phrase; all as expected is none."""
    good = {"interfaces": "lo", "routes": "0", "allowed": "answer", "refused": "errno 111", "outside": "errno 101"}
    assert expect("network", good) == []
    assert expect("network", good | {"interfaces": "lo eth0"}) == ["interfaces is 'lo eth0' and not 'lo'"]
    assert len(expect("network", {})) == 5


def test_doctor_leaves_nothing_behind(tmp_path: Path) -> None:
    """Descriptors and directories are as before."""
    examine(runtime_dir=tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    examine(runtime_dir=tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before
    assert list(tmp_path.iterdir()) == []
    assert shutil.which("bwrap")
