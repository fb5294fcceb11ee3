"""The description of a sandbox: its rules, its words, and bwrap's arguments from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sandbox.argv import Descriptors, bwrap_args, data_of
from sandbox.check import check_spec
from sandbox.errors import SpecInvalid
from sandbox.limits import Limits, held_limits
from sandbox.rootfs import read_host_identity, read_host_rootfs
from sandbox.spec import Dev, Directory, File, Proc, RoBind, SandboxSpec, Symlink, Tmpfs
from sandbox.view import build_view, parents_of

MIB = 1024 * 1024


def spec_of(**changes: Any) -> SandboxSpec:
    """Return a small valid description, changed."""
    view = build_view(
        rootfs="host",
        system=(
            RoBind(source="/usr", target="/usr"),
            Symlink(target="/bin", to="usr/bin"),
            RoBind(source="/etc/x", target="/etc/x"),
        ),
        argv=("/opt/tool", "--flag"),
        env={"PATH": "/usr/bin", "A": "1"},
        port=443,
        home_files={".seed": b"s"},
        binds=(RoBind(source="@tree", target="/home/eval/.claude/skills"),),
    )
    return view.model_copy(update=changes)


def with_mounts(*mounts: Any) -> SandboxSpec:
    """Return the description with further mounts at the end."""
    return spec_of(mounts=(*spec_of().mounts, *mounts))


def test_arguments_have_the_documented_order() -> None:
    """The golden list: namespaces and capabilities first, then the environment, the mounts in order, status and hold, read-only last."""
    args = bwrap_args(
        spec_of(), Descriptors(511, 512, tuple(range(514, 522))), sources={"tree": "/run/t"}, masks={"cmdline", "keys"}
    )
    text = " ".join(args)
    assert text.startswith(
        "--unshare-user --disable-userns --cap-drop ALL --unshare-ipc --unshare-pid --unshare-net --unshare-uts --unshare-cgroup-try"
        " --hostname eval --uid 1000 --gid 1000 --new-session --die-with-parent --clearenv --setenv A 1 --setenv PATH /usr/bin --ro-bind /usr /usr --symlink usr/bin /bin"
        " --proc /proc --ro-bind /proc/sys /proc/sys --perms 0444 --ro-bind-data 514 /proc/cmdline --perms 0444 --ro-bind-data 515 /proc/keys --size 4096 --perms 0555 --tmpfs /proc/1 --remount-ro /proc/1 --dev /dev"
        " --size 67108864 --perms 1777 --tmpfs /dev/shm --size 536870912 --perms 1777 --tmpfs /tmp --perms 0755 --dir /home --size 536870912 --perms 0700 --tmpfs /home/eval"
    )
    assert text.endswith(
        "--perms 0600 --file 521 /home/eval/.seed --ro-bind /run/t /home/eval/.claude/skills --chdir /workspace --json-status-fd 511 --block-fd 512 --remount-ro /dev --remount-ro /"
    )
    assert "/opt/tool" not in args


def test_each_data_entry_has_its_descriptor() -> None:
    """As many descriptors are used as there are data entries, in the same order, the filter's last."""
    spec = spec_of(seccomp=b"12345678")
    data = data_of(spec, {"version"})
    assert data[0].name == "/proc/version"
    assert data[-1].name == "seccomp"
    numbers = tuple(range(600, 600 + len(data)))
    args = bwrap_args(spec, Descriptors(1, 2, numbers), sources={"tree": "/t"}, masks={"version"})
    used = [int(args[at + 1]) for at, word in enumerate(args) if word in ("--file", "--ro-bind-data", "--seccomp")]
    assert used == list(numbers)
    named = {args[at + 2]: int(args[at + 1]) for at, word in enumerate(args) if word in ("--file", "--ro-bind-data")}
    assert all(named[entry.name] == number for entry, number in zip(data[:-1], numbers[:-1], strict=True))


def test_a_description_is_the_same_value_from_its_json() -> None:
    """Bytes and all, a description survives its JSON form, so it can stand in a plan."""
    spec = spec_of(seccomp=bytes(range(8)))
    assert SandboxSpec.model_validate_json(spec.model_dump_json()) == spec
    assert "@tree" in spec.describe()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: with_mounts(Tmpfs(target="/home", size_bytes=MIB)), "two mounts have the same destination"),
        (lambda: with_mounts(RoBind(source="@x", target="/etc")), "two mounts have the same destination"),
        (
            lambda: with_mounts(
                Directory(target="/new"), File(target="/new/f", content=b""), Tmpfs(target="/new", size_bytes=MIB)
            ),
            "same destination",
        ),
        (
            lambda: with_mounts(File(target="/new/f", content=b""), Tmpfs(target="/new", size_bytes=MIB)),
            "would hide /new/f",
        ),
        (lambda: with_mounts(Directory(target="/usr/local/x")), "cannot be created below /usr"),
        (
            lambda: with_mounts(RoBind(source="/a", target="/home/eval/.claude/skills/cf")),
            "cannot be created below /home/eval/.claude/skills",
        ),
        (lambda: with_mounts(File(target="/etc/hosts/x", content=b"")), "cannot be created below /etc/hosts"),
        (lambda: with_mounts(Directory(target="/bin/x")), "cannot be created below /bin"),
        (lambda: with_mounts(Directory(target="/proc/x")), "cannot be created below /proc"),
        (lambda: with_mounts(Directory(target="/dev/x")), "cannot be created below /dev"),
        (lambda: with_mounts(Directory(target="/")), "over the root"),
        (lambda: with_mounts(Directory(target="relative")), "not absolute"),
        (lambda: with_mounts(Directory(target="/a/../b")), "not in normal form"),
        (lambda: with_mounts(Directory(target="/a//b")), "not in normal form"),
        (lambda: with_mounts(Directory(target="/a/")), "not in normal form"),
        (lambda: with_mounts(Directory(target="/a\0--bind")), "control character"),
        (lambda: with_mounts(Directory(target="/a\nb")), "control character"),
        (lambda: with_mounts(Directory(target="/" + "x" * 256)), "too long"),
        (lambda: with_mounts(RoBind(source="relative", target="/r")), "not absolute"),
        (lambda: with_mounts(RoBind(source="/x\0/y", target="/r")), "control character"),
        (lambda: with_mounts(RoBind(source="@Bad", target="/r")), "no source name"),
        (lambda: with_mounts(Symlink(target="/s", to="")), "plain target"),
        (lambda: with_mounts(Symlink(target="/s", to="a\0b")), "plain target"),
        (lambda: with_mounts(*(Directory(target=f"/d{number}") for number in range(400))), "at most 400"),
        (
            lambda: with_mounts(*(File(target=f"/tmp/d{number}", content=b"") for number in range(201))),
            "more than 200 files",
        ),
        (lambda: spec_of(mounts=(Proc(masks=("../x",)),)), "not in normal form"),
        (lambda: spec_of(remount_ro=("/nowhere",)), "only a mount of its own"),
        (lambda: spec_of(handles=("/etc",)), "a writable mount only"),
        (lambda: spec_of(handles=("/nowhere",)), "a writable mount only"),
        (lambda: spec_of(cwd="/nowhere"), "in no mount"),
        (lambda: spec_of(cwd="work"), "not absolute"),
        (lambda: spec_of(argv=()), "absolute path"),
        (lambda: spec_of(argv=("tool",)), "absolute path"),
        (lambda: spec_of(argv=("/tool", "a\0b")), "argument holds a NUL"),
        (lambda: spec_of(env={"A=B": ""}), "no variable name"),
        (lambda: spec_of(env={"": ""}), "no variable name"),
        (lambda: spec_of(env={"A": "x\0--bind"}), "value holds a NUL"),
        (lambda: spec_of(hostname="a b"), "no host name"),
        (lambda: spec_of(hostname=""), "no host name"),
        (lambda: spec_of(seccomp=b""), "BPF program"),
        (lambda: spec_of(seccomp=b"1234567"), "BPF program"),
    ],
)
def test_a_broken_rule_is_told_before_anything_starts(make: Callable[[], SandboxSpec], says: str) -> None:
    """Each rule has its words and a place; the same description unbroken passes."""
    check_spec(spec_of())
    with pytest.raises(SpecInvalid, match=says) as caught:
        check_spec(make())
    assert caught.value.where
    assert caught.value.code == "sandbox-spec"


@pytest.mark.parametrize(
    "build",
    [
        lambda: Tmpfs(target="/t", size_bytes=0),
        lambda: File(target="/t", content=b"", mode=0o4755),
        lambda: Proc.model_validate({"target": "/other"}),
        lambda: Dev.model_validate({"shm_bytes": 1}),
        lambda: SandboxSpec.model_validate(spec_of().model_dump() | {"uid": 0}),
        lambda: SandboxSpec.model_validate(spec_of().model_dump() | {"network": {"port": 70000}}),
        lambda: SandboxSpec.model_validate(spec_of().model_dump() | {"surplus": 1}),
        lambda: Limits(processes=1),
    ],
)
def test_what_must_never_be_cannot_be_written_down(build: Callable[[], object]) -> None:
    """uid 0, set-id bits, an endless tmpfs, unknown fields and impossible ports are no values of the model."""
    with pytest.raises(ValidationError):
        build()


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4), st.lists(st.text(max_size=8), max_size=4))
def test_no_text_smuggles_an_option_in(env: dict[str, str], words: list[str]) -> None:
    """Any environment and any arguments either break a rule or come out as exactly one argument each, after their option."""
    spec = spec_of(env=env, argv=("/tool", *words))
    try:
        args = bwrap_args(spec, Descriptors(3, 4, tuple(range(10, 16))), sources={"tree": "/t"}, masks=())
    except SpecInvalid:
        return
    assert not any("\0" in arg for arg in args)
    assert len(args) == len(
        bwrap_args(spec_of(env={}), Descriptors(3, 4, tuple(range(10, 16))), sources={"tree": "/t"}, masks=())
    ) + 3 * len(env)


def test_the_view_places_parents_and_seeds() -> None:
    """Seeds and binds get their parents, private in the home; nothing of the system comes before our own /etc."""
    targets = [mount.target for mount in spec_of().mounts]
    assert targets.index("/etc") < targets.index("/etc/x")
    assert "/home/eval/.claude" in targets
    assert parents_of("/a/b/c") == ["/a", "/a/b"]
    assert parents_of("/a") == []


def test_the_host_system_is_usr_and_its_links(tmp_path: Path) -> None:
    """Merged and unmerged hosts, with and without /etc's two things, give what is there and nothing else; a link in /etc is left out (case D06)."""
    for name in ("usr/lib", "lib32", "etc/alternatives", "home", "run"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "bin").symlink_to("usr/bin")
    (tmp_path / "etc" / "ld.so.cache").symlink_to("/run/nowhere/stub")
    (tmp_path / "etc" / "passwd").touch()
    (tmp_path / "usr" / "lib" / "os-release").write_text(
        'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian 12"\nHOME_URL=x\n'
    )
    found = {mount.target: mount for mount in read_host_rootfs(tmp_path)}
    assert set(found) == {"/usr", "/bin", "/lib32", "/etc/alternatives"}
    assert found["/bin"] == Symlink(target="/bin", to="usr/bin")
    assert found["/lib32"] == RoBind(source=str(tmp_path / "lib32"), target="/lib32")
    assert read_host_identity(tmp_path) == {"id": "debian", "version_id": "12", "pretty_name": "Debian 12"}
    assert read_host_identity(tmp_path / "none") == {}


def test_a_limit_holds_only_by_its_read_back() -> None:
    """What the kernel does not report, or reports as more than was asked for, is not held."""
    asked = Limits(processes=100)
    assert held_limits(asked, {"processes": 100, "open_files": 4096, "file_bytes": 1 << 30}).processes == "rlimit"
    assert held_limits(asked, {"processes": 50}).processes == "rlimit"
    assert held_limits(asked, {"processes": 101}).processes == "none"
    assert held_limits(asked, {}).open_files == "none"
