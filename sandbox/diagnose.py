"""What bwrap's own words mean: a table from its messages to cause and cure.

Boundary: pure. Not here: trying things on this host (doctor.py).
Rules: the first row whose words are all in the text holds. Texts differ between versions and distributions, so rows match on what stays the same. A row that means that no
sandbox can run on this host has ``host=True`` and becomes ``host-cannot-isolate``; the others concern this one sandbox. Sources: facts/sandbox.md §4, cases D02, D04, D06.
"""

from __future__ import annotations

from typing import NamedTuple


class Diagnosis(NamedTuple):
    """Why a sandbox did not come up."""

    id: str
    cause: str
    cure: str
    host: bool


class _Row(NamedTuple):
    words: tuple[str, ...]
    diagnosis: Diagnosis


_APPARMOR_CURE = (
    "give bwrap an AppArmor profile that allows user namespaces (package apparmor-profiles, profile bwrap-userns-restrict), and only if that is not possible "
    "set kernel.apparmor_restrict_unprivileged_userns=0"
)
_CONTAINER_CURE = (
    "run outside the container, or start it with seccomp and AppArmor unconfined (docker: --security-opt seccomp=unconfined --security-opt apparmor=unconfined), "
    "which lowers the container's own protection"
)

_TABLE = (
    _Row(
        ("RTM_NEWADDR",),
        Diagnosis(
            "userns-network-restricted",
            "user namespaces may be made but not used for a network of their own; Ubuntu's AppArmor does that",
            _APPARMOR_CURE,
            True,
        ),
    ),
    _Row(
        ("setting up uid map", "Permission denied"),
        Diagnosis(
            "userns-restricted",
            "user namespaces may be made but give no rights; Ubuntu's AppArmor does that",
            _APPARMOR_CURE,
            True,
        ),
    ),
    _Row(
        ("setting up uid map", "Operation not permitted"),
        Diagnosis(
            "setfcap-missing",
            "the uid map cannot be written: root without CAP_SETFCAP, as in a container",
            "run as an ordinary user",
            True,
        ),
    ),
    _Row(
        ("mount proc", "Operation not permitted"),
        Diagnosis(
            "proc-masked",
            "the surrounding container hides parts of /proc, and the kernel refuses a fresh one that would show more",
            "run outside the container, or unmask it (docker: --security-opt systempaths=unconfined; podman: --security-opt unmask=ALL)",
            True,
        ),
    ),
    _Row(
        ("ENOSPC",),
        Diagnosis(
            "userns-limit",
            "the limit on namespaces is reached: user.max_user_namespaces is 0 or used up, or namespaces are nested too deeply",
            "sysctl user.max_user_namespaces=15000 (see /proc/sys/user/max_user_namespaces)",
            True,
        ),
    ),
    _Row(
        ("No permissions to create new namespace",),
        Diagnosis(
            "userns-forbidden",
            "ordinary users may not make user namespaces here",
            "sysctl kernel.unprivileged_userns_clone=1 where the kernel has it; in a container: " + _CONTAINER_CURE,
            True,
        ),
    ),
    _Row(
        ("Creating new namespace failed", "Operation not permitted"),
        Diagnosis(
            "userns-forbidden",
            "namespaces may not be made here; a container's seccomp filter does that",
            _CONTAINER_CURE,
            True,
        ),
    ),
    _Row(
        ("kernel does not support user namespaces",),
        Diagnosis(
            "userns-unsupported", "this kernel has no user namespaces", "use a kernel built with CONFIG_USER_NS", True
        ),
    ),
    _Row(
        ("make / slave", "Permission denied"),
        Diagnosis(
            "mounts-forbidden",
            "mounts may not be made here: a container or WSL without namespaces",
            _CONTAINER_CURE,
            True,
        ),
    ),
    _Row(
        ("make / slave",),
        Diagnosis(
            "mounts-forbidden",
            "mounts may not be made here: a container or WSL without namespaces",
            _CONTAINER_CURE,
            True,
        ),
    ),
    _Row(
        ("max_user_namespaces", "Read-only file system"),
        Diagnosis(
            "proc-sys-read-only",
            "/proc/sys is read-only here, as under systemd's ProtectKernelTunables",
            "set ProtectKernelTunables=false for the unit that runs this",
            True,
        ),
    ),
    _Row(
        ("overflowuid",),
        Diagnosis(
            "proc-unreadable",
            "/proc/sys/kernel/overflowuid cannot be read; a service's hardening hides it",
            "loosen ProtectProc, ProcSubset and ProtectKernelTunables",
            True,
        ),
    ),
    _Row(
        ("creation of new user namespaces was not disabled",),
        Diagnosis(
            "userns-not-disabled",
            "the sandbox could still make user namespaces",
            "use a kernel that honours user.max_user_namespaces",
            True,
        ),
    ),
    _Row(
        ("Unknown option",),
        Diagnosis(
            "bwrap-too-old",
            "this bubblewrap does not know an option that is needed",
            "install bubblewrap 0.8 or later",
            True,
        ),
    ),
    _Row(
        ("Unexpected capabilities but not setuid",),
        Diagnosis(
            "bwrap-capabilities",
            "bwrap was started with capabilities: its file has some (getcap tells), or its caller has ambient ones",
            "setcap -r /usr/bin/bwrap (where it is another, its path), or run without ambient capabilities",
            True,
        ),
    ),
    _Row(
        ("set up system call filtering",),
        Diagnosis(
            "seccomp-unavailable",
            "no system call filter can be set here, and no program starts without one",
            "use a kernel built with CONFIG_SECCOMP_FILTER; in a container: " + _CONTAINER_CURE,
            True,
        ),
    ),
    _Row(
        ("Too many levels of symbolic links",),
        Diagnosis(
            "source-link",
            "a path to be bound goes through a link that this bubblewrap refuses",
            "give the real path",
            False,
        ),
    ),
    _Row(
        ("find source path", "Permission denied"),
        Diagnosis(
            "source-unreadable",
            "the run uid may not enter the directory of something to be bound",
            "put it below a world-readable directory",
            False,
        ),
    ),
    _Row(
        ("find source path",),
        Diagnosis("source-missing", "something to be bound is not there", "check that it exists", False),
    ),
    _Row(
        ("create file at", "Read-only file system"),
        Diagnosis(
            "mount-point-missing",
            "a mount point would have to be made in a read-only tree",
            "place it elsewhere or make it beforehand",
            False,
        ),
    ),
    _Row(
        ("create file at",),
        Diagnosis(
            "mount-point-link",
            "a mount point cannot be made, as where a link leads nowhere",
            "give the sandbox a file of its own there",
            False,
        ),
    ),
    _Row(
        ("execvp", "No such file or directory"),
        Diagnosis(
            "program-missing",
            "the program, or the loader that it names, is not in the sandbox",
            "check the path inside and the program's ELF interpreter",
            False,
        ),
    ),
    _Row(
        ("execvp", "Permission denied"),
        Diagnosis(
            "program-not-executable",
            "the program may not be executed",
            "check its mode and that its file system is not mounted noexec",
            False,
        ),
    ),
    _Row(
        ("chdir to",),
        Diagnosis("cwd-missing", "the working directory is not in the sandbox", "check the description's cwd", False),
    ),
)


def explain(stderr: bytes) -> Diagnosis | None:
    """Return what bwrap's messages mean, or None where no row fits. Other lines than bwrap's are left out."""
    lines = _lines(stderr)
    for row in _TABLE:
        for line in lines:
            if all(word in line for word in row.words):
                return row.diagnosis
    return None


def complaint_of(stderr: bytes) -> str:
    """Return the last line of bwrap's own, without its name; empty where there is none."""
    return _lines(stderr)[-1].removeprefix("bwrap:").strip() if _lines(stderr) else ""


def _lines(stderr: bytes) -> list[str]:
    text = stderr.decode("utf-8", "replace").replace("bwrap: bwrap: ", "bwrap: ")  # one after the other, by two of it
    return [line for line in text.splitlines() if line.startswith("bwrap:")]
