"""Saving an attempt: whole or not at all, whatever happens to the writer."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.bundle import AttemptContent, PartRecord, open_attempt, read_manifest, write_attempt
from runner.bundle.format import FRAME_BYTES, part_rank
from runner.bundle.writer import encode_file
from runner.canonical import sha256_hex
from runner.errors import BundleExists, BundleUnwritable, InputMissing

_ROOT = Path(__file__).resolve().parents[2]


def test_what_was_saved_is_read_back(tmp_path: Path, content: Callable[..., AttemptContent]) -> None:
    """Every part comes back byte for byte, in the format's order; the id is the manifest's sha256 and the name holds its first digits."""
    given_content = content()
    path = write_attempt(tmp_path / "new" / "out", given_content)
    attempt = open_attempt(path)
    assert path.name == f"missing-account-{attempt.id[:12]}.attempt"
    assert attempt.id == sha256_hex(attempt.manifest.to_bytes()) == read_manifest(path).id
    for name, data in given_content.parts.items():
        assert attempt.part(name) == data
    ranks = [part_rank(name) or 0 for name in attempt.part_names]
    assert ranks == sorted(ranks)
    assert attempt.exchanges() == given_content.exchanges
    assert attempt.manifest.summary == given_content.summary
    assert attempt.manifest.plan_sha256 == sha256_hex(attempt.part("plan.json"))
    assert attempt.json("plan.json") == {"plan": 1}
    assert [item.name for item in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("size", [0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 2 * FRAME_BYTES])
def test_parts_at_the_borders_of_frames_come_back(
    tmp_path: Path, content: Callable[..., AttemptContent], size: int
) -> None:
    """A part of any size, given as bytes or as a file, is the same attempt."""
    data = b"ab\n" * (size // 3) + b"x" * (size % 3)
    source = tmp_path / "transcript"
    source.write_bytes(data)
    paths = [
        write_attempt(tmp_path / kind, content(parts={"plan.json": b"{}", "transcript.jsonl": value}))
        for kind, value in (("bytes", data), ("file", source))
    ]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert open_attempt(paths[0]).part("transcript.jsonl") == data


def test_the_id_does_not_depend_on_order_or_compression(tmp_path: Path, content: Callable[..., AttemptContent]) -> None:
    """A01: parts given in another order make the same attempt; another byte in a part, or another summary, makes another."""
    first = content()
    turned: Mapping[str, bytes | Path] = dict(reversed(list(first.parts.items())))
    ids = [
        open_attempt(write_attempt(tmp_path / str(number), changed)).id
        for number, changed in enumerate(
            [
                first,
                content(parts=turned),
                content(parts={**first.parts, "stderr": b"x"}),
                content(summary={"cost_usd": "0.02"}),
            ]
        )
    ]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


def test_nothing_is_overwritten(tmp_path: Path, content: Callable[..., AttemptContent]) -> None:
    """Saving the same attempt again, or over a file that has its name, is BundleExists and leaves the file and no other."""
    path = write_attempt(tmp_path, content())
    path.write_bytes(b"something else")
    with pytest.raises(BundleExists) as caught:
        write_attempt(tmp_path, content())
    assert caught.value.where == str(path)
    assert path.read_bytes() == b"something else"
    assert os.listdir(tmp_path) == [path.name]
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BundleExists):
        write_attempt(tmp_path, content())
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"parts": {"plan.json": b"{}", "../x": b""}}, "no part"),
        ({"parts": {"plan.json": b"{}", "exchanges/0001.request": b""}}, "given as exchanges"),
        ({"parts": {"stderr": b""}}, "without plan.json"),
        ({"summary": {"cost_usd": 0.5}}, "/summary/cost_usd"),
        ({"fixture_id": "../x"}, "no fixture id"),
    ],
)
def test_content_outside_the_format_is_the_callers_bug(
    tmp_path: Path, content: Callable[..., AttemptContent], changed: dict[str, object], words: str
) -> None:
    """Names outside the allow-list, floats, a fixture id with a path: ValueError before a byte is written."""
    with pytest.raises(ValueError, match=words):
        write_attempt(tmp_path, content(**changed))
    assert os.listdir(tmp_path) == []


_WRITE = """
import os, resource, sys
from pathlib import Path
from runner.bundle import AttemptContent, write_attempt
from runner.errors import BundleUnwritable
if len(sys.argv) > 2:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
small = write_attempt(Path(sys.argv[1]), AttemptContent("small", {}, {"plan.json": b"{}"}))
try:
    write_attempt(Path(sys.argv[1]), AttemptContent("large", {}, {"plan.json": b"{}", "stderr": os.urandom(3 << 20)}))
except BundleUnwritable as error:
    assert sorted(os.listdir(sys.argv[1])) == [small.name], os.listdir(sys.argv[1])
    print(error.diagnostics())
"""


def test_a_full_disk_is_a_declared_error_and_leaves_nothing(tmp_path: Path) -> None:
    """On a real file system of one megabyte a small attempt is saved, a large one is BundleUnwritable, and nothing of it stays."""
    bwrap = shutil.which("bwrap")
    assert bwrap, "this test needs bubblewrap"
    confined = [bwrap, "--dev-bind", "/", "/", "--size", str(1 << 20), "--tmpfs", str(tmp_path), "--chdir", str(_ROOT)]
    done = subprocess.run(
        [*confined, sys.executable, "-c", _WRITE, tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "error[bundle-unwritable]" in done.stdout
    assert "the disk is full" in done.stdout


def test_a_file_size_limit_is_a_declared_error_and_leaves_nothing(tmp_path: Path) -> None:
    """A write that fails half way (here by RLIMIT_FSIZE) is BundleUnwritable, and nothing of it stays."""
    done = subprocess.run(
        [sys.executable, "-c", _WRITE, tmp_path, str(1 << 20)], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "may not become so large" in done.stdout


def test_a_directory_that_cannot_be_made_and_a_part_that_is_gone_are_declared_errors(
    tmp_path: Path, content: Callable[..., AttemptContent]
) -> None:
    """A file in the way of the directory, and a part whose file is missing or changes, are BundleUnwritable; nothing is left."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BundleUnwritable, match="could not be saved"):
        write_attempt(tmp_path / "file" / "out", content())
    with pytest.raises(BundleUnwritable) as caught:
        write_attempt(tmp_path / "out", content(parts={"plan.json": b"{}", "stderr": tmp_path / "gone"}))
    assert caught.value.where == str(tmp_path / "gone")
    with pytest.raises(BundleUnwritable, match="changed while"):
        list(encode_file(b"{}", [(PartRecord("stderr", 1, sha256_hex(b"y")), b"x")]))
    assert list(encode_file(b"{}", [(PartRecord("stderr", 1, sha256_hex(b"x")), b"x")]))
    assert not list((tmp_path / "out").glob("*"))


def _child(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return pid


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.001)


def _holds_a_nameless_file(pid: int) -> bool:
    folder = Path(f"/proc/{pid}/fd")
    with contextlib.suppress(OSError):
        return any(os.readlink(folder / name).endswith(" (deleted)") for name in os.listdir(folder))
    return False


def test_a_writer_killed_at_any_moment_leaves_nothing_half(
    tmp_path: Path, content: Callable[..., AttemptContent], noise: Callable[..., bytes]
) -> None:
    """Thirty SIGKILLs at spread moments: there are whole attempts and nothing else, and none was overwritten."""
    bulk = noise(1 << 20)

    def write_for_ever(round_number: int) -> None:
        for number in range(10_000):
            write_attempt(
                tmp_path, content(fixture_id=f"r{round_number}", parts={"plan.json": b"%d" % number, "stderr": bulk})
            )

    seen: dict[str, str] = {}
    while_writing = 0
    for round_number in range(30):
        pid = _child(lambda number=round_number: write_for_ever(number))  # type: ignore[misc]
        if round_number % 2:
            _until(lambda start=f"r{round_number}-": any(name.startswith(start) for name in os.listdir(tmp_path)))  # type: ignore[misc]
        else:
            _until(lambda pid=pid: _holds_a_nameless_file(pid))  # type: ignore[misc]
        time.sleep(round_number * 0.0011)
        os.kill(pid, signal.SIGSTOP)
        while_writing += _holds_a_nameless_file(pid)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        for path in tmp_path.iterdir():
            assert path.suffix == ".attempt"
            assert open_attempt(path).part("stderr") == bulk
            assert seen.setdefault(path.name, sha256_hex(path.read_bytes())) == sha256_hex(path.read_bytes())
        assert set(seen) <= set(os.listdir(tmp_path))
    assert len(seen) >= 15
    assert while_writing >= 5


def test_leftovers_of_the_dead_are_removed_and_files_of_the_living_are_not(
    tmp_path: Path, content: Callable[..., AttemptContent]
) -> None:
    """The next write removes a dead writer's old temporary file; a young one, a living writer's old one and anybody else's files stay."""
    name = ".missing-account-0123456789ab.attempt.{:016x}.tmp"
    dead, young, living = (tmp_path / name.format(number) for number in range(3))
    foreign = [
        tmp_path / ".notes.tmp",
        tmp_path / ".missing-account-0123456789ab.attempt.tmp",
        tmp_path / "x.attempt.tmp",
    ]
    fifo = tmp_path / name.format(9)
    os.mkfifo(fifo)
    ready, done = os.pipe(), os.pipe()

    def hold_the_lock() -> None:
        import fcntl

        fd = os.open(living, os.O_WRONLY | os.O_CREAT, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.write(ready[1], b"x")
        os.read(done[0], 1)

    pid = _child(hold_the_lock)
    os.read(ready[0], 1)
    for path in (dead, young, *foreign):
        path.write_bytes(b"half")
    for path in (dead, living, *foreign):
        os.utime(path, (time.time() - 120, time.time() - 120))
    write_attempt(tmp_path, content())
    assert not dead.exists()
    assert all(path.exists() for path in (young, living, fifo, *foreign))
    os.write(done[1], b"x")
    assert os.waitpid(pid, 0)[1] == 0
    write_attempt(tmp_path, content(fixture_id="another"))
    assert not living.exists()
    for fd in (*ready, *done):
        os.close(fd)


def test_writers_at_the_same_time_never_collide(tmp_path: Path, content: Callable[..., AttemptContent]) -> None:
    """Of four processes that save the same twenty attempts into one directory each attempt is saved once, whole, and nothing else is left."""

    def write_all() -> None:
        for number in range(20):
            try:
                write_attempt(tmp_path, content(parts={"plan.json": b"%d" % number}))
            except BundleExists:
                (tmp_path.parent / f"{tmp_path.name}-{os.getpid()}-{number}").touch()

    pids = [_child(write_all) for _ in range(4)]
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0
    names = os.listdir(tmp_path)
    assert len(names) == 20
    assert {open_attempt(tmp_path / name).part("plan.json") for name in names} == {
        b"%d" % number for number in range(20)
    }
    assert len(list(tmp_path.parent.glob(f"{tmp_path.name}-*"))) == 60


@settings(max_examples=50, deadline=None)
@given(st.text("abc-._/é\n\0", max_size=8))
def test_a_part_name_is_taken_only_if_it_stays_inside(name: str) -> None:
    """Whatever follows ``skill-tree/``, a name that is taken has no empty, dot or parent step and no control character."""
    taken = part_rank(f"skill-tree/{name}") is not None
    steps = name.split("/")
    assert taken == (all(step not in ("", ".", "..") for step in steps) and "\n" not in name and "\0" not in name)


@pytest.fixture
def special_files(tmp_path: Path) -> list[Path]:
    """Paths that are no attempt files: nothing, a directory, a fifo, a name with a NUL."""
    os.mkfifo(tmp_path / "fifo.attempt")
    return [tmp_path / "none.attempt", tmp_path, tmp_path / "fifo.attempt", tmp_path / "nul\0.attempt"]


def test_a_missing_file_is_another_error_than_a_damaged_one(special_files: list[Path]) -> None:
    """No file, a directory and a fifo are InputMissing with the path, at once and without waiting."""
    for path in special_files:
        for read in (read_manifest, open_attempt):
            with pytest.raises(InputMissing) as caught:
                read(path)
            assert caught.value.where == str(path)
