"""What Nix has put in place: one strict file beside the toolchain lock, and a root file system that is a closure and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.check import check_spec
from sandbox.errors import SandboxUnavailable, SpecInvalid
from sandbox.pinned import Pins, parse_pins, read_pins
from sandbox.process import Host
from sandbox.rootfs import HOST, NIX, find_rootfs, host_rootfs, parse_description, read_rootfs
from sandbox.running import run_once
from sandbox.spec import RoBind, Symlink
from sandbox.view import build_view
from tests.sandbox.closures import HASH, INSIDE, LIBC, STORE, MadeClosure, made_closure

PINS: dict[str, Any] = {
    "schema_version": 1,
    "system": "x86_64-linux",
    "store": STORE,
    "trees": {"agent": f"{STORE}/a", "grader": f"{STORE}/g"},
    "programs": {
        "bwrap": f"{STORE}/b/bin/bwrap",
        "python": f"{STORE}/p/bin/python3",
        "ssh_keygen": f"{STORE}/s/bin/ssh-keygen",
    },
    "loader": f"{STORE}/c/lib/ld.so",
    "libraries": [f"{STORE}/c/lib"],
    "rootfs": f"{STORE}/r",
    "determinism": f"{STORE}/d",
}


def path_of(name: str) -> str:
    """A well-formed store path."""
    return f"{STORE}/{'0' * 32}-{name}"


def description(**changes: Any) -> dict[str, Any]:
    """A description of a closure of two paths."""
    return {
        "schema_version": 1,
        "kind": "nix",
        "store": STORE,
        "links": {"/bin": f"{path_of('inside')}/bin", "/lib64/ld.so": f"{path_of('libc')}/lib/ld.so"},
        "closure": {path_of("libc"): HASH, path_of("inside"): HASH},
        **changes,
    }


def encoded(value: object) -> bytes:
    """JSON bytes."""
    return json.dumps(value).encode()


def test_pins_are_read_whole(tmp_path: Path) -> None:
    """Every path of the file is there; without a file nothing is pinned."""
    file = tmp_path / "pins.json"
    assert read_pins(file) is None
    file.write_bytes(encoded(PINS))
    pins = read_pins(file)
    assert isinstance(pins, Pins)
    assert (pins.trees["agent"], pins.programs.bwrap) == (Path(f"{STORE}/a"), Path(f"{STORE}/b/bin/bwrap"))
    assert pins.libraries == (f"{STORE}/c/lib",)
    assert pins.determinism == Path(f"{STORE}/d")


@pytest.mark.parametrize(
    "changes",
    [
        {"schema_version": 2},
        {"more": 1},
        {"trees": {"agent": f"{STORE}/a"}},
        {"trees": [1]},
        {"programs": {"bwrap": "/b", "python": "python3", "ssh_keygen": "/s"}},
        {"programs": {"bwrap": "/b/../c", "python": "/p", "ssh_keygen": "/s"}},
        {"programs": {"bwrap": "/b", "python": "/p"}},
        {"libraries": []},
        {"libraries": "/lib"},
        {"loader": 1},
        {"rootfs": "/r/"},
        {"determinism": None},
        {"store": ""},
        {"system": None},
    ],
)
def test_pins_that_break_a_rule_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    """A field too many, a missing one or an odd path is an error with the file's path, never a fall-back to the host's programs."""
    file = tmp_path / "pins.json"
    file.write_bytes(encoded({**PINS, **changes}))
    with pytest.raises(SandboxUnavailable) as caught:
        read_pins(file)
    assert (caught.value.code, caught.value.where) == ("pins-invalid", str(file))


def test_pins_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    """A directory in the file's place is an error."""
    with pytest.raises(SandboxUnavailable):
        read_pins(tmp_path)


@given(data=st.binary(max_size=200) | st.recursive(st.none() | st.text(), st.lists, max_leaves=5).map(encoded))
def test_no_bytes_upset_the_reader_of_pins(data: bytes) -> None:
    """Whatever the bytes are, they are refused with a ValueError, and nothing else."""
    with pytest.raises(ValueError):  # noqa: PT011 - the decoder's own words
        parse_pins(data)


def test_a_closure_is_bound_path_by_path(tmp_path: Path) -> None:
    """Each store path is a mount of its own, the store itself is none; the usual places are links to it; the attempt's record has every hash."""
    file = tmp_path / "rootfs.json"
    file.write_bytes(encoded(description()))
    rootfs = read_rootfs(file)
    assert (rootfs.kind, rootfs.pinned) == (NIX, True)
    binds = [mount for mount in rootfs.mounts if isinstance(mount, RoBind)]
    assert [(bind.source, bind.target) for bind in binds] == [
        (path_of(name), path_of(name)) for name in ("inside", "libc")
    ]
    links = {mount.target: mount.to for mount in rootfs.mounts if isinstance(mount, Symlink)}
    assert links == description()["links"]
    check_spec(build_view(rootfs=rootfs.kind, system=rootfs.mounts, argv=("/bin/true",), env={}))
    assert rootfs.as_record() == {
        "kind": "nix",
        "pinned": True,
        "identity": {"links": description()["links"], "closure": description()["closure"]},
    }


def test_a_description_that_says_host_is_the_host_and_not_pinned(tmp_path: Path) -> None:
    """A stand-in's description gives the host's system, under its own name."""
    file = tmp_path / "rootfs.json"
    file.write_bytes(encoded({"schema_version": 1, "kind": "host", "reason": "a stand-in"}))
    rootfs = read_rootfs(file)
    assert (rootfs.kind, rootfs.pinned) == (HOST, False)
    assert rootfs == host_rootfs()
    assert rootfs.as_record()["pinned"] is False


@pytest.mark.parametrize(
    "changes",
    [
        {"schema_version": 2},
        {"kind": "other"},
        {"closure": {}},
        {"closure": {path_of("inside"): "sha256-short", path_of("libc"): HASH}},
        {"closure": {"/etc": HASH, path_of("inside"): HASH, path_of("libc"): HASH}},
        {"closure": {STORE: HASH, path_of("inside"): HASH, path_of("libc"): HASH}},
        {"closure": {f"{STORE}/../..": HASH, path_of("inside"): HASH, path_of("libc"): HASH}},
        {"links": {"/bin": "/usr/bin"}},
        {"links": {"/bin": f"{path_of('inside')}-other/bin"}},
        {"reason": "both kinds at once"},
    ],
)
def test_a_description_that_could_lie_is_refused(changes: dict[str, Any]) -> None:
    """A path that is none of the store, a link out of the closure, a missing hash: each is refused."""
    assert parse_description(encoded(description())) is not None
    with pytest.raises(SpecInvalid):
        parse_description(encoded(description(**changes)))


def test_a_missing_description_is_refused(tmp_path: Path) -> None:
    """A description that is named and not there is an error, not the host's system."""
    with pytest.raises(SpecInvalid, match="cannot be read"):
        read_rootfs(tmp_path / "none")


def test_a_checkout_uses_the_host() -> None:
    """Without pins, as here, the root file system is the host's."""
    assert find_rootfs() == host_rootfs()


@pytest.fixture
def closure() -> Iterator[MadeClosure]:
    """A closure with a shell, cat and ls."""
    with made_closure(["sh", "cat", "ls"]) as made:
        yield made


def test_programs_run_on_a_closure_and_see_nothing_else(host: Host, closure: MadeClosure) -> None:
    """A shell of the closure runs by its usual path on the closure's own loader; of the store there is only the closure, and no file of the host's system."""
    rootfs = closure.rootfs()
    script = f"ls {STORE}; echo --; ls /; echo --; ls /usr; echo --; cat /proc/self/maps"
    spec = build_view(
        rootfs=rootfs.kind, system=rootfs.mounts, argv=("/bin/sh", "-c", script), env={"PATH": "/usr/bin"}
    )
    ended, out = run_once(host, spec)
    assert ended.exit_status == 0, ended.stderr
    store, top, usr, maps = out.decode().split("--\n", 3)
    assert store.split() == [LIBC, INSIDE]
    assert set(top.split()) - {"lib64"} == {
        "bin",
        "dev",
        "etc",
        "home",
        "lib",
        "nix",
        "proc",
        "tmp",
        "usr",
        "workspace",
    }
    assert usr.split() == ["bin"]
    files = {line.split()[-1] for line in maps.splitlines() if "/" in line}
    assert files
    assert all(path.startswith(f"{STORE}/") for path in files)
