"""What kind of place this system is: a container, a kernel that is not Linux's own, a setting or a service's hardening that is known to forbid namespaces.

Boundary: ``read_marks`` reads a few files; what they mean is pure. Not here: trying namespaces (doctor.py), Nix's build sandbox (surroundings.py).
Rules: a mark explains a failure and never makes one: what counts is what a sandbox can really do here (greywall#104). Each mark says by which file it was seen. Nothing from the
environment is a mark. Sources: facts/sandbox.md §4; gVisor's /proc/version is a constant of its kernel.
"""

from __future__ import annotations

from pathlib import Path

_GVISOR = ("gvisor", "#1 smp sun jan 10 15:06:54 pst 2016")
_SYSCTLS = {
    "kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "AppArmor restricts user namespaces: kernel.apparmor_restrict_unprivileged_userns is 1",
    ),
    "kernel/unprivileged_userns_clone": ("0", "kernel.unprivileged_userns_clone is 0"),
    "user/max_user_namespaces": ("0", "user.max_user_namespaces is 0"),
}
_CONTAINERS = ((".dockerenv", "a Docker container"), ("run/.containerenv", "a Podman container"))
_PROFILE = "etc/apparmor.d/bwrap-userns-restrict"
_EXTRA = "usr/share/apparmor/extra-profiles/bwrap-userns-restrict"


def read_marks(root: Path = Path("/")) -> list[str]:
    """Return what this place is known by, a phrase each; empty on a plain machine."""
    found = [f"this looks like {name} (/{path})" for path, name in _CONTAINERS if _is_there(root / path)]
    manager = _text(root / "run/systemd/container").strip()
    if manager:
        found.append(f"this looks like a container of {manager} (/run/systemd/container)")
    version = _text(root / "proc/version").lower()
    if any(word in version for word in _GVISOR):
        found.append("this kernel is gVisor's, not Linux's (/proc/version)")
    elif "microsoft" in version:
        found.append("this is the Windows Subsystem for Linux (/proc/version)")
    found += sysctl_facts(root / "proc/sys")
    covered = covered_below_proc(_text(root / "proc/self/mountinfo"))
    if covered:
        found.append(f"covered below /proc: {', '.join(covered[:5])}{' and more' if len(covered) > 5 else ''}")
    status = _text(root / "proc/self/status").splitlines()
    if "Seccomp:\t2" in status:
        found.append("a system call filter is around this process (/proc/self/status)")
    return found


def sysctl_facts(root: Path = Path("/proc/sys")) -> list[str]:
    """Return the kernel settings that are known to forbid namespaces, as they are here."""
    return [fact for name, (bad, fact) in _SYSCTLS.items() if _text(root / name).strip() == bad]


def covered_below_proc(mountinfo: str) -> list[str]:
    """Return the places below /proc that something is mounted over, which is what keeps the kernel from giving a fresh one (pure). binfmt_misc hides nothing."""
    targets = [words[4] for words in (line.split() for line in mountinfo.splitlines()) if len(words) > 4]
    return sorted({place for place in targets if place.startswith("/proc/") and place != "/proc/sys/fs/binfmt_misc"})


def apparmor_cure(bwrap: Path, root: Path = Path("/")) -> str:
    """Return what gives this bwrap its user namespaces under AppArmor: the profile that is there, the one that ships, or the text of one for its path."""
    last = "only if that is not possible set kernel.apparmor_restrict_unprivileged_userns=0, for all programs"
    if bwrap != Path("/usr/bin/bwrap"):
        text = f"profile bwrap-hermeval {bwrap} flags=(unconfined) {{ userns, }}"
        return f"the shipped profiles are for /usr/bin/bwrap: write to /etc/apparmor.d/bwrap-hermeval, and load it by apparmor_parser -r, the line: {text}; {last}"
    if _is_there(root / _PROFILE):
        return f"load the profile that is there: apparmor_parser -r /{_PROFILE}; {last}"
    if _is_there(root / _EXTRA):
        return f"cp /{_EXTRA} /etc/apparmor.d/ && apparmor_parser -r /{_PROFILE}; {last}"
    return f"give bwrap an AppArmor profile that allows user namespaces (package apparmor-profiles, profile bwrap-userns-restrict); {last}"


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
