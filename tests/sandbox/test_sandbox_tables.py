"""Decisions that are tables and pure functions: what bwrap's words mean, who runs a sandbox, what is kept of a stream."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import request
from sandbox.diagnose import explain
from sandbox.errors import SandboxUnavailable, StagingFailed
from sandbox.identity import Account, Identity, decide_identity, parse_uid_map
from sandbox.process import find_host
from sandbox.staging import PROGRAM_FILES, choose_staging, make_staging, other_runs, passed_over, place_program
from sandbox.streams import Capped, Drain, Ends, Feed

if TYPE_CHECKING:
    from sandbox import box
else:
    sys.path.append(
        str(Path(request.__file__).parent)
    )  # the supervisor's modules are no package: they import one another by name
    box = importlib.import_module("box")
    sys.path.pop()

WHOLE = "         0          0 4294967295\n"


@pytest.mark.parametrize(
    ("text", "id_", "host"),
    [
        ("bwrap: setting up uid map: Permission denied", "userns-restricted", True),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "userns-network-restricted", True),
        ("bwrap: Creating new namespace failed: Operation not permitted", "userns-forbidden", True),
        (
            "bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged user namespaces. See <https://deb.li/bubblewrap>",
            "userns-forbidden",
            True,
        ),
        (
            "bwrap: No permissions to creating new namespace, likely because ... kernel.unprivileged_userns_clone",
            "",
            False,
        ),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "proc-masked", True),
        (
            "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)",
            "userns-limit",
            True,
        ),
        ("bwrap: setting up uid map: Operation not permitted", "setfcap-missing", True),
        (
            "bwrap: Creating new namespace failed, likely because the kernel does not support user namespaces.  bwrap must be installed setuid on such systems.",
            "userns-unsupported",
            True,
        ),
        ("bwrap: Failed to make / slave: Permission denied", "mounts-forbidden", True),
        ("bwrap: cannot open /proc/sys/user/max_user_namespaces: Read-only file system", "proc-sys-read-only", True),
        ("bwrap: Can't open overflowuid: No such file", "proc-unreadable", True),
        ("bwrap: creation of new user namespaces was not disabled as requested", "userns-not-disabled", True),
        ("bwrap: Unknown option --disable-userns", "bwrap-too-old", True),
        ("bwrap: Unexpected capabilities but not setuid, old file caps config?", "bwrap-capabilities", True),
        ("bwrap: Can't resolve /a/b: Too many levels of symbolic links", "source-link", False),
        ("bwrap: Can't find source path /root/x: Permission denied", "source-unreadable", False),
        ("bwrap: Can't find source path /x: No such file or directory", "source-missing", False),
        ("bwrap: Can't create file at /usr/x: Read-only file system", "mount-point-missing", False),
        ("bwrap: Can't create file at /etc/resolv.conf: No such file or directory", "mount-point-link", False),
        ("bwrap: execvp /opt/x: No such file or directory", "program-missing", False),
        ("bwrap: execvp /opt/x: Permission denied", "program-not-executable", False),
        ("bwrap: Can't chdir to /x: No such file or directory", "cwd-missing", False),
        ("Can't mount proc on /newroot/proc: Operation not permitted", "", False),
        ("", "", False),
    ],
)
def test_words_of_bwrap_have_a_cause_and_a_cure(text: str, id_: str, host: bool) -> None:
    """Each known text (facts/sandbox.md §4, cases D02, D04, D06) is told apart; other words are nothing."""
    found = explain(f"warning: something\n{text}\n".encode())
    assert (found.id if found else "") == id_
    if found is not None:
        assert found.host is host
        assert found.cause
        assert found.cure


def test_a_number_that_no_process_has_is_none() -> None:
    """A status line whose number is longer than any is passed over: the next one counts."""
    lines = b'{"exit-code": ' + b"9" * 5000 + b'}\n{"exit-code": 3}\n'
    assert box.member(lines, b'"exit-code"') == 3


@given(st.binary(max_size=200))
def test_any_bytes_can_be_explained(data: bytes) -> None:
    """Whatever stands on stderr, there is an answer or none."""
    explain(data)
    explain(b"bwrap: " + data)


@pytest.mark.parametrize(
    ("uid", "uid_map", "user", "expected"),
    [
        (1001, WHOLE, None, Identity(1001, None)),
        (1000, "1000 1001 1", None, Identity(1000, None)),
        (0, WHOLE, None, Identity(0, Account(65534, 65534))),
        (0, WHOLE, Account(990, 980), Identity(0, Account(990, 980))),
        (0, WHOLE, Account(0, 0), Identity(0, Account(65534, 65534))),
        (0, "0 1000 1\n1 100000 65536", None, Identity(0, Account(65534, 65534))),
        (0, "0 1000 1\n1 100000 1000", Account(990, 990), Identity(0, Account(990, 990))),
        (0, "0 1000 1", None, Identity(0, None)),
    ],
)
def test_the_run_uid_is_the_callers_or_an_unprivileged_one(
    uid: int, uid_map: str, user: Account | None, expected: Identity
) -> None:
    """Ordinary callers keep their uid; root drops, to its own run user where there is one; root of a container that is nobody outside stays."""
    found = decide_identity(uid, parse_uid_map(uid_map), user)
    assert found == expected
    assert found.run_uid != 0 or uid_map == "0 1000 1"


@pytest.mark.parametrize(("uid", "uid_map"), [(1000, "1000 0 1"), (0, "0 0 1"), (0, ""), (5, "0 0 1\n5 0 1")])
def test_the_hosts_root_is_never_the_run_uid(uid: int, uid_map: str) -> None:
    """Where only the outer uid 0 is left, nothing can run: a Nix build without build users, a namespace that maps root alone."""
    with pytest.raises(SandboxUnavailable) as caught:
        decide_identity(uid, parse_uid_map(uid_map), None)
    assert caught.value.code == "host-cannot-isolate"
    assert caught.value.hint


def test_both_sides_agree_on_the_descriptor_numbers() -> None:
    """The numbers in the argument file are those that the supervisor puts the descriptors at."""
    assert box.FD_BASE == request.FD_BASE


@pytest.mark.parametrize(
    ("lines", "name", "value"),
    [
        (b'{ "child-pid": 42, "cgroup-namespace": 5 }\n', b'"child-pid"', 42),
        (b'{ "child-pid": 42', b'"child-pid"', -1),
        (b'{ "child-pid": 42 }\n{ "exit-code": 0 }\n', b'"exit-code"', 0),
        (b'{ "child-pid": 42 }\n', b'"exit-code"', -1),
        (b'{ "exit-code": "x" }\n', b'"exit-code"', -1),
        (b"", b'"exit-code"', -1),
    ],
)
def test_status_lines_are_read_whole(lines: bytes, name: bytes, value: int) -> None:
    """A member counts once its line is complete."""
    assert box.member(lines, name) == value


def test_staging_is_private_neutral_and_where_programs_may_run(tmp_path: Path) -> None:
    """An ordinary caller's directory lies in its own runtime directory, or in a sticky one; names tell nothing; a foreign or open parent is not used."""
    me = Identity(os.getuid(), None)
    own, opened, sticky = tmp_path / "own", tmp_path / "open", tmp_path / "sticky"
    for directory, mode in ((own, 0o700), (opened, 0o777), (sticky, 0o1777)):
        directory.mkdir()
        directory.chmod(mode)
    path = make_staging(choose_staging(me, runtime_dir=own, temporary=sticky), me)
    assert path.parent == own
    assert path.stat().st_mode & 0o777 == 0o700
    assert choose_staging(me, runtime_dir=opened, temporary=sticky).parent == sticky
    assert choose_staging(me, runtime_dir=None, temporary=sticky).name != path.name
    with pytest.raises(StagingFailed):
        choose_staging(me, runtime_dir=opened, temporary=opened)
    with pytest.raises(StagingFailed):
        make_staging(path, me)


def test_roots_runs_go_to_the_first_place_that_is_roots_own(tmp_path: Path) -> None:
    """A place that others can write to, and one that cannot be made, are passed over and told; where none is left, each is named with its reason, and the cure with it."""
    root = Identity(os.getuid(), Account(os.getuid() or 65534, 65534))
    opened, missing, good = tmp_path / "open", tmp_path / "none" / "base", tmp_path / "good"
    opened.mkdir()
    opened.chmod(0o777)
    path = choose_staging(root, bases=[opened, missing, good])
    assert path.parent == good / "runs"
    assert (good / "runs").stat().st_mode & 0o777 == 0o711
    assert place_program(root, bases=[opened, missing, good]).is_relative_to(good)
    assert "can write to" in passed_over(root, None, bases=[opened, good])
    assert passed_over(root, None, bases=[good]) == ""
    with pytest.raises(StagingFailed, match=r"can write to.*none/base: No such file") as caught:
        choose_staging(root, bases=[opened, missing])
    assert "noexec" in caught.value.hint
    long = tmp_path / ("x" * 300)
    with pytest.raises(StagingFailed, match="name too long"):
        choose_staging(root, bases=[long, good])


def test_what_lies_abandoned_in_roots_other_place_is_found(tmp_path: Path) -> None:
    """The places of earlier runs beside the one chosen now, but never one that somebody else could make links in."""
    bases = [tmp_path / name for name in ("first", "second", "third")]
    for base in bases:
        (base / "runs").mkdir(parents=True)
        base.chmod(0o755)
    assert other_runs(bases[1] / "runs" / "x", bases) == [bases[0] / "runs", bases[2] / "runs"]
    bases[0].chmod(0o777)
    assert other_runs(bases[1] / "runs" / "x", bases) == [bases[2] / "runs"]
    assert other_runs(tmp_path / "elsewhere" / "x", bases) == []


def test_a_runtime_directory_that_is_passed_over_is_told(tmp_path: Path) -> None:
    """Open, foreign or missing: each with its reason; one that is used and none at all have nothing to tell."""
    me, opened = Identity(os.getuid(), None), tmp_path / "open"
    opened.mkdir()
    opened.chmod(0o777)
    told = {name: passed_over(me, place) for name, place in {"open": opened, "missing": tmp_path / "none"}.items()}
    assert "others may write to it" in told["open"]
    assert "No such file" in told["missing"]
    assert "belongs to uid" in passed_over(Identity(os.getuid() + 1, None), opened.parent)
    assert [passed_over(me, tmp_path), passed_over(me, None)] == ["", ""]


def test_a_root_callers_program_is_placed_by_its_content(tmp_path: Path) -> None:
    """The copy is whole, world-readable, made once, repaired where it differs; a place that others can write to is refused."""
    root = Identity(os.getuid(), Account(os.getuid() or 65534, 65534))
    base = tmp_path / "base"
    program = place_program(root, bases=[base])
    assert sorted(path.name for path in program.parent.iterdir()) == sorted(PROGRAM_FILES)
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in program.parent.iterdir())
    program.write_text("changed")
    assert place_program(root, bases=[base]) == program
    assert program.read_bytes() == (Path(box.__file__).parent / "supervisor.py").read_bytes()
    base.chmod(0o777)
    with pytest.raises(StagingFailed):
        place_program(root, bases=[base])
    assert place_program(Identity(1, None)).parent == Path(box.__file__).parent


def test_a_missing_program_is_named_with_its_package() -> None:
    """Without bwrap or Python this host cannot isolate, and the package is named."""
    with pytest.raises(SandboxUnavailable) as caught:
        find_host(bwrap=Path("/nonexistent/bwrap"))
    assert "bubblewrap" in caught.value.hint


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(0, 60))
def test_both_ends_of_a_stream_are_kept(pieces: list[bytes], cap: int) -> None:
    """What fits is whole; else the beginning and the end are there, and the gap's size is exact."""
    ends, whole = Ends(cap), b"".join(pieces)
    for piece in pieces:
        ends(piece)
    kept = ends.result()
    assert ends.total == len(whole)
    if len(whole) <= cap:
        assert kept == whole
    else:
        head, tail = whole[: cap // 2], whole[len(whole) - (cap - cap // 2) :]
        assert kept == head + b"\n[%d bytes left out]\n" % (len(whole) - cap) + tail


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(0, 200))
def test_a_cap_delivers_exactly_and_tells_once(pieces: list[bytes], cap: int) -> None:
    """However the pieces fall, at most the cap is handed on, and going over it is told exactly once."""
    taken, told = bytearray(), []
    capped = Capped(cap, taken.extend, lambda: told.append("over"), lambda: told.append("error"))
    for piece in pieces:
        capped(piece)
    whole = b"".join(pieces)
    assert bytes(taken) == whole[:cap]
    assert told == (["over"] if len(whole) > cap else [])
    assert capped.total == len(whole)


def test_streams_end_when_nobody_holds_them() -> None:
    """A feed gives its bytes and ends; a drain takes all and ends, and gives up on one that is kept open."""
    feed = Feed(b"x" * 300_000)
    with os.fdopen(feed.theirs, "rb") as file:
        assert len(file.read()) == 300_000
    taken: list[bytes] = []
    drain = Drain("test", taken.append)
    os.write(drain.theirs, b"all")
    os.close(drain.theirs)
    assert drain.finish()
    assert b"".join(taken) == b"all"
    stuck = Drain("test", taken.append)
    assert not stuck.finish(0.05)
    os.close(stuck.theirs)
