"""Grading programs without a namespace of their own: only where Nix's build sandbox is proved, only sealed programs, and never an agent."""

from __future__ import annotations

import queue
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.bare import BareProgram, place
from sandbox.errors import SandboxSetupFailed, SandboxUnavailable, SpecInvalid
from sandbox.limits import Limits
from sandbox.process import Host, Supervisor, supervise
from sandbox.programs import python_binds
from sandbox.sealed import SCRATCH, sealed_spec
from sandbox.spec import RoBind, SandboxSpec
from sandbox.surroundings import Surroundings, against_nix_build, read_surroundings
from sandbox.view import build_view

BUILD = Surroundings(frozenset({"lo"}), (), "      1000        999          1\n", True)


@pytest.mark.parametrize(
    ("change", "against"),
    [
        ({}, None),
        ({"interfaces": frozenset({"lo", "eth0"})}, "eth0"),
        ({"interfaces": frozenset()}, "unknown"),
        ({"homes": ("/root",)}, "/root exists"),
        ({"homes": ("/home", "/root")}, "/home exists"),
        ({"uid_map": "0 0 4294967295\n"}, "more than one"),
        ({"uid_map": "1000 0 1\n"}, "unprivileged"),
        ({"uid_map": ""}, "more than one"),
        ({"no_new_privileges": False}, "new privileges"),
    ],
)
def test_every_fact_has_to_hold(change: dict[str, object], against: str | None) -> None:
    """With all facts nothing speaks against Nix's build sandbox; each single one that is missing does, by name."""
    found = against_nix_build(BUILD._replace(**change))  # type: ignore[arg-type]  # a field each
    assert (found == ()) is (against is None)
    if against is not None:
        assert against in "; ".join(found)


def test_surroundings_are_read_from_the_root_directory(tmp_path: Path) -> None:
    """What cannot be read speaks against; a tree that looks like a build is one."""
    assert len(against_nix_build(read_surroundings(tmp_path))) == 3
    for name, text in (
        ("net/dev", "Inter-|\n face |\n    lo: 0 0\n"),
        ("self/uid_map", BUILD.uid_map),
        ("self/status", "Name:\tx\nNoNewPrivs:\t1\n"),
    ):
        (tmp_path / "proc" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "proc" / name).write_text(text)
    assert against_nix_build(read_surroundings(tmp_path)) == ()
    (tmp_path / "root").mkdir()
    assert against_nix_build(read_surroundings(tmp_path)) == ("/root exists",)


def sealed(host: Host, script: str, *words: str, binds: tuple[RoBind, ...] = ()) -> SandboxSpec:
    """A sealed Python program with a scratch directory."""
    own, python = python_binds(host.python)
    return sealed_spec(
        rootfs="python",
        binds=(*own, *binds),
        files={"/opt/x/script.py": script.encode()},
        argv=(python, "-I", "-S", "-B", "/opt/x/script.py", *words),
        env={"HOME": SCRATCH, "LANG": "C.UTF-8"},
        scratch_bytes=1 << 20,
        limits=Limits(),
    )


def test_paths_inside_become_paths_below_the_directory(host: Host, tmp_path: Path) -> None:
    """Words and variables that name a place of ours are moved, a grant for a directory covers what is bound in it, and the system's paths stay."""
    (tmp_path / "tree").mkdir()
    spec = sealed(
        host,
        "",
        "--read=/opt/x/*",
        "--write=/scratch/a",
        "/optional",
        "x/opt/x",
        "/usr/bin/env",
        binds=(RoBind(source="@tree", target="/opt/x/tree"),),
    )
    placed = place(spec, {"tree": str(tmp_path / "tree")}, tmp_path)
    assert placed.argv[0] == spec.argv[0]
    assert placed.argv[4:] == (
        f"{tmp_path}/opt/x/script.py",
        f"--read={tmp_path}/opt/x/*",
        f"--read={tmp_path}/tree/*",
        f"--write={tmp_path}/scratch/a",
        "/optional",
        "x/opt/x",
        "/usr/bin/env",
    )
    assert placed.env == {"HOME": f"{tmp_path}{SCRATCH}", "LANG": "C.UTF-8"}
    assert (tmp_path / "opt/x/tree").readlink() == tmp_path / "tree"
    assert (tmp_path / SCRATCH[1:]).is_dir()


def test_a_bare_program_answers_and_leaves_nothing(host: Host) -> None:
    """Lines go in and come out, the end is told with its status and stderr, and the directory is gone."""
    answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    script = "import os, sys\nfor line in sys.stdin: print(line.strip()[::-1], os.path.exists(os.environ['HOME']), flush=True)\nsys.stderr.write(os.getcwd())\nsys.exit(3)"
    program = BareProgram(sealed(host, script), on_stdout=answers.put, stdin=iter([b"abc\n", b"def\n"]))
    ended = program.wait(30)
    assert ended is not None
    assert (ended.exit_status, ended.reason) == (3, None)
    program.close()
    out = b"".join(answers.get() for _ in range(answers.qsize()))
    assert out == b"cba True\nfed True\n"
    where = Path(ended.stderr.decode())
    assert where.name == "empty"
    assert not where.parent.exists()
    program.close()


def test_a_bare_program_is_ended_with_all_that_it_started(host: Host) -> None:
    """``kill`` ends the program and its children, and the reason is told in place of a status."""
    said: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    script = "import os, time\nif os.fork() == 0: time.sleep(600)\nprint('up', flush=True)\ntime.sleep(600)"
    program = BareProgram(sealed(host, script), on_stdout=said.put, stdin=iter(()))
    assert said.get(timeout=30) == b"up\n"
    assert program.wait(0) is None
    program.kill("output-limit")
    ended = program.wait(30)
    assert ended is not None
    assert (ended.exit_status, ended.reason) == (None, "output-limit")
    program.close()  # joins the reader of a pipe that the child held


def test_only_sealed_programs_run_bare(host: Host) -> None:
    """A worker's view, with its listener and its home, is refused; so is a program that is not there."""
    spec = build_view(rootfs="any", system=(), argv=("/opt/claude",), env={}, port=443)
    with pytest.raises(SpecInvalid):
        BareProgram(spec, on_stdout=lambda _: None, stdin=())
    missing = sealed(host, "").model_copy(update={"argv": ("/nonexistent/program",)})
    with pytest.raises((SandboxSetupFailed, SandboxUnavailable)):
        BareProgram(missing, on_stdout=lambda _: None, stdin=())


def test_an_agent_never_runs_without_namespaces(host: Host) -> None:
    """A host that says ``inner: none`` starts no supervisor, so no run; the same host with namespaces does."""
    bare = replace(host, inner="none")
    with pytest.raises(SandboxUnavailable, match="never runs without"):
        supervise(bare)
    with pytest.raises(SandboxUnavailable):
        Supervisor(bare, None)
    supervise(host).close()
