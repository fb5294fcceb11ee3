"""The pinned tools: accepted only with the lock's hashes, opened by a stamp, and never trusted where others could have written."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runner.cli import run_command
from runner.errors import InputMissing, ToolchainError, ToolchainMismatch, ToolchainMissing
from runner.nar import hex_from_sri, nar_sha256
from runner.toolchain import (
    AgentToolchain,
    ToolchainLock,
    compare_record,
    current_system,
    default_cache_root,
    expect_grader,
    load_lock,
    open_agent,
    open_grader,
    verify,
)
from runner.toolchain_install import install, main
from runner.toolchain_stamp import STAMP_NAME, Stamp, read_stamp, tree_fingerprint, write_stamp

_SYSTEM = current_system()
_ROOT = Path(__file__).resolve().parents[2]


@dataclass
class World:
    """A lock of small made-up tools, and a cache in which the agent's tree lies as npm left it."""

    lock_path: Path
    cache: Path
    tree: Path

    @property
    def lock(self) -> ToolchainLock:
        """Return the lock as it stands."""
        return load_lock(self.lock_path)

    @property
    def claude(self) -> Path:
        """Return the CLI inside the tree."""
        return self.tree / "@anthropic-ai/claude-code-test/claude"

    def open(self) -> AgentToolchain:
        """Open the agent's tools."""
        return open_agent(self.lock, self.cache)


def _tool(root: Path, path: str, version: str) -> dict[str, str]:
    package = "/".join(path.split("/")[: 2 if path.startswith("@") else 1])
    return {"version": version, "path": path, "nar_sha256": nar_sha256(root / package)}


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Return the made-up tools, not yet accepted."""
    cache, directory = tmp_path / "cache", tmp_path / "lock"
    npm_lock = directory / "agent" / _SYSTEM / "package-lock.json"
    npm_lock.parent.mkdir(parents=True)
    npm_lock.write_text("{}\n")
    shutil.copytree(directory / "agent", directory / "grader")
    key = "ca3d163bab055381"  # sha256 of "{}\n", first 16 digits
    tree = cache / f"agent-{_SYSTEM}-{key}" / "node_modules"
    files = {
        "@anthropic-ai/claude-code-test/claude": "#!/bin/sh\necho claude\n",
        "node-linux-test/bin/node": "#!/bin/sh\necho node\n",
        "node-linux-test/include/node.h": "int x;\n",
    }
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
        (tree / name).chmod(0o755 if text.startswith("#!") else 0o664)
    (tree / ".bin").mkdir()
    (tree / ".bin" / "node").symlink_to("../node-linux-test/bin/node")
    agent = {
        "nar_sha256": nar_sha256(tree),
        "claude": _tool(tree, "@anthropic-ai/claude-code-test/claude", "1.2.3"),
        "node": _tool(tree, "node-linux-test/bin/node", "24.0.0"),
    }
    grader = {"nar_sha256": agent["nar_sha256"], "node": agent["node"], "promptfoo": agent["claude"]}
    lock = {"schema_version": 1, "systems": {_SYSTEM: {"status": "test", "agent": agent, "grader": grader}}}
    (directory / "toolchain.json").write_text(json.dumps(lock))
    (tree / ".package-lock.json").write_text("npm's own note")
    return World(directory / "toolchain.json", cache, tree)


@pytest.fixture
def installed(world: World) -> World:
    """Return the made-up tools, accepted."""
    install("agent", world.lock, world.cache)
    return world


def test_an_accepted_tree_is_opened_by_its_stamp(installed: World) -> None:
    """After install: paths, versions, hashes of tree and tools; the CLI's copy can be executed and not read; npm's note is gone."""
    agent = installed.open()
    assert agent.root == installed.tree
    assert agent.nar_sha256 == nar_sha256(installed.tree)
    assert (agent.claude.version, agent.claude.path) == ("1.2.3", installed.claude)
    assert agent.node.nar_sha256 == nar_sha256(installed.tree / "node-linux-test")
    copy = agent.claude_executable
    assert copy == installed.cache / "exec" / hex_from_sri(agent.claude.nar_sha256)[:16] / "claude"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o111
    assert copy.stat().st_size == installed.claude.stat().st_size
    assert not (installed.tree / ".package-lock.json").exists()
    assert agent.as_record() == {
        "schema_version": 1,
        "system": _SYSTEM,
        "agent": {
            "nar_sha256": agent.nar_sha256,
            "claude": {"version": "1.2.3", "nar_sha256": agent.claude.nar_sha256},
            "node": {"version": "24.0.0", "nar_sha256": agent.node.nar_sha256},
        },
    }


def test_opening_reads_no_contents(installed: World) -> None:
    """A run checks stamps only: opening leaves the access times alone, which a read moves (positive control, where the file system keeps them)."""
    os.utime(installed.claude, ns=(1, installed.claude.stat().st_mtime_ns))
    write_stamp(
        installed.tree.parent,
        Stamp(1, installed.lock.system(_SYSTEM).agent.nar_sha256, tree_fingerprint(installed.tree, os.geteuid())),
    )
    installed.open()
    assert installed.claude.stat().st_atime_ns == 1
    installed.claude.read_bytes()
    assert installed.claude.stat().st_atime_ns > 1 or os.statvfs(installed.claude).f_flag & os.ST_NOATIME


def test_everything_is_reachable_for_a_dropped_uid_whatever_the_umask(world: World) -> None:
    """Directories come out 0755 and files 0644 or 0755, also under umask 077, and the cache holds no writable-by-others entry."""
    os.chmod(world.tree / "node-linux-test", 0o700)
    os.chmod(world.claude, 0o700)
    old = os.umask(0o077)
    try:
        install("agent", world.lock, world.cache)
    finally:
        os.umask(old)
    modes = {
        stat.S_IMODE(path.lstat().st_mode)
        for path in (
            world.cache / "exec",
            *world.tree.parent.rglob("*"),
            *(world.cache / "exec").glob("*/*"),
            *(world.cache / "exec").glob("[0-9a-f]*"),
        )
        if not path.is_symlink()
    }
    assert modes == {0o755, 0o644, 0o111}
    world.open()


@pytest.mark.parametrize("kind", ["content", "added", "removed", "mode", "replaced", "link"])
def test_a_tree_with_another_hash_is_refused_with_both_hashes(installed: World, kind: str) -> None:
    """C2: whatever was changed after install, opening and installing name the actual and the pinned hash, and no stamp says otherwise."""
    expected, program = installed.lock.system(_SYSTEM).agent.nar_sha256, installed.claude
    if kind == "mode":
        program.chmod(0o644)
    elif kind == "added":
        (installed.tree / "evil.js").write_text("x")
    elif kind == "link":
        (installed.tree / ".bin/node").unlink()
        (installed.tree / ".bin/node").symlink_to("/bin/sh")
    else:
        if kind != "content":
            program.unlink()
        if kind != "removed":
            program.write_text("#!/bin/sh\necho forged\n")
    actual = nar_sha256(installed.tree)
    for use in (installed.open, lambda: install("agent", installed.lock, installed.cache)):
        with pytest.raises(ToolchainMismatch) as caught:
            use()
        assert expected in caught.value.message
        assert actual in caught.value.message
    broken = {check.name: check.status for check in verify(installed.lock, installed.cache)}
    assert broken["agent"] == "broken"


def test_grading_tools_are_expected_by_their_stamp_and_opened_by_their_files(installed: World) -> None:
    """Before a run one stamp is read: missing tools and those of another lock are refused, right ones pass. A forged file is found when they are opened."""
    with pytest.raises(ToolchainMissing):
        expect_grader(installed.lock, installed.cache)
    grader = installed.cache / installed.tree.parent.name.replace("agent", "grader")
    shutil.copytree(installed.tree, grader / "node_modules", symlinks=True)
    install("grader", installed.lock, installed.cache)
    expect_grader(installed.lock, installed.cache)
    assert open_grader(installed.lock, installed.cache).node.version == "24.0.0"

    (grader / "node_modules" / "@anthropic-ai/claude-code-test/claude").write_text("forged")
    expect_grader(installed.lock, installed.cache)
    with pytest.raises(ToolchainMismatch):
        open_grader(installed.lock, installed.cache)
    write_stamp(grader, Stamp(1, "sha256-" + "A" * 43 + "=", tree_fingerprint(grader / "node_modules", os.geteuid())))
    with pytest.raises(ToolchainMismatch):
        expect_grader(installed.lock, installed.cache)


def test_a_wrong_tree_is_never_stamped(world: World) -> None:
    """A fetched tree with another hash is refused and leaves neither a stamp nor an execute-only copy."""
    world.claude.write_text("#!/bin/sh\necho forged\n")
    with pytest.raises(ToolchainMismatch):
        install("agent", world.lock, world.cache)
    assert not (world.tree.parent / STAMP_NAME).exists()
    assert not (world.cache / "exec").exists()


def test_a_restored_tree_heals_by_its_hash(installed: World) -> None:
    """A touched file, a copied cache or a lost stamp costs one hashing, then the stamp holds again."""
    first = read_stamp(installed.tree.parent)
    os.utime(installed.claude, (1, 1))
    installed.open()
    assert read_stamp(installed.tree.parent) != first
    (installed.tree.parent / STAMP_NAME).write_text("{broken")
    installed.open()
    assert read_stamp(installed.tree.parent) is not None
    copied = installed.cache.with_name("copied")
    shutil.copytree(installed.cache / installed.tree.parent.name, copied / installed.tree.parent.name, symlinks=True)
    assert open_agent(installed.lock, copied).claude_executable.exists()


def test_the_execute_only_copy_is_made_once_and_made_again_when_it_was_touched(installed: World) -> None:
    """Opening and installing again keep the very copy; a copy with another mode, content or time is replaced."""
    copy = installed.open().claude_executable
    inode = copy.stat().st_ino
    install("agent", installed.lock, installed.cache)
    assert installed.open().claude_executable.stat().st_ino == inode
    os.chmod(copy, 0o755)
    checks = {check.name: check.status for check in verify(installed.lock, installed.cache)}
    assert checks["exec/claude"] == "broken"
    copy.write_text("#!/bin/sh\necho forged\n")
    os.chmod(copy, 0o111)
    again = installed.open().claude_executable
    assert again == copy
    assert (stat.S_IMODE(again.stat().st_mode), again.stat().st_size) == (0o111, installed.claude.stat().st_size)
    (installed.cache / "exec" / ".dead.tmp").mkdir()
    shutil.rmtree(copy.parent)
    assert installed.open().claude_executable == copy
    assert sorted(os.listdir(installed.cache / "exec")) == [".lock", copy.parent.name]


@pytest.mark.parametrize("which", ["stamp", "directory", "tree", "program", "exec", "cache"])
def test_a_cache_that_another_user_could_have_written_is_not_trusted(installed: World, which: str) -> None:
    """Anything writable by group or others on the way makes the tools untrusted; taken away again, they open (positive control)."""
    copy = installed.open().claude_executable
    path = {
        "stamp": installed.tree.parent / STAMP_NAME,
        "directory": installed.tree.parent,
        "tree": installed.tree,
        "program": installed.claude,
        "exec": copy.parent,
        "cache": installed.cache,
    }[which]
    mode = stat.S_IMODE(path.stat().st_mode)
    path.chmod(mode | 0o020)
    with pytest.raises(ToolchainError) as caught:
        installed.open()
    assert caught.value.code == "toolchain-untrusted"
    assert caught.value.where == str(path)
    path.chmod(mode)
    installed.open()


def test_a_cache_of_another_user_is_not_trusted(installed: World) -> None:
    """Files of a uid that is neither root nor the caller are not trusted; said of this caller's own files from another caller's view."""
    if os.geteuid() == 0:
        os.chown(installed.tree.parent / STAMP_NAME, 12345, 12345)
        uid = 0
    else:
        uid = os.geteuid() + 1
    with pytest.raises(ToolchainError, match="belongs to uid") as caught:
        open_agent(installed.lock, installed.cache, uid=uid)
    assert caught.value.code == "toolchain-untrusted"


def test_what_is_not_installed_is_said_with_what_to_do(world: World, tmp_path: Path) -> None:
    """No tree, and a system that is not pinned, are ToolchainMissing."""
    with pytest.raises(ToolchainMissing, match="not installed") as caught:
        open_agent(world.lock, tmp_path / "none")
    assert "ci/hermeval" in caught.value.hint
    with pytest.raises(ToolchainMissing, match="nothing is pinned"):
        open_agent(world.lock, world.cache, system="riscv64-linux")
    with pytest.raises(ToolchainMissing, match="no tree"):
        install("agent", world.lock, tmp_path / "none")


def test_verify_hashes_everything_again(installed: World) -> None:
    """Headers that a run does not watch are hashed too; what is not installed is unknown; a fifo is broken and named."""
    checks = {check.name: check for check in verify(installed.lock, installed.cache)}
    assert {name: check.status for name, check in checks.items()} == {
        "agent": "held",
        "agent/claude": "held",
        "agent/node": "held",
        "grader": "unknown",
        "grader/node": "unknown",
        "grader/promptfoo": "unknown",
        "exec/claude": "held",
    }
    header = installed.tree / "node-linux-test/include/node.h"
    header.write_text("int y;\n")
    checks = {check.name: check for check in verify(installed.lock, installed.cache)}
    assert (checks["agent"].status, checks["agent/node"].status, checks["agent/claude"].status) == (
        "broken",
        "broken",
        "held",
    )
    assert checks["agent/node"].actual == nar_sha256(installed.tree / "node-linux-test")
    header.unlink()
    os.mkfifo(header)
    checks = {check.name: check for check in verify(installed.lock, installed.cache)}
    assert checks["agent"].status == "broken"
    assert "fifo" in checks["agent"].cause


def test_a_recorded_toolchain_is_compared_tool_by_tool(installed: World, tmp_path: Path) -> None:
    """C2: equal and installed is held, equal and not installed unknown, another tool broken with its name and both hashes."""
    record: dict[str, Any] = json.loads(json.dumps(installed.open().as_record()))
    assert compare_record(record, installed.lock, installed.cache)[0] == "held"
    assert compare_record(record, installed.lock, tmp_path / "none")[0] == "unknown"
    assert compare_record(record | {"system": "riscv64-linux"}, installed.lock, installed.cache)[0] == "unknown"
    odd_records: list[object] = [{}, [], {"system": 1}]
    for odd in odd_records:
        assert compare_record(odd, installed.lock, installed.cache)[0] == "broken"
    other = "sha256-" + "A" * 43 + "="
    record["agent"]["node"]["nar_sha256"] = other
    status, reason = compare_record(record, installed.lock, installed.cache)
    assert status == "broken"
    assert "node (24.0.0" in reason
    assert other in reason
    assert "claude" not in reason
    record["agent"]["node"]["nar_sha256"] = installed.open().node.nar_sha256
    installed.claude.write_text("#!/bin/sh\necho forged\n")
    assert compare_record(record, installed.lock, installed.cache)[0] == "broken"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lock: lock.update(schema_version=2), "schema_version 2"),
        (lambda lock: lock.update(extra=1), "extra"),
        (lambda lock: lock["systems"][_SYSTEM]["agent"]["node"].update(path="../node"), "not relative"),
        (lambda lock: lock["systems"][_SYSTEM]["agent"]["node"].update(path="/bin/node"), "not relative"),
        (lambda lock: lock["systems"][_SYSTEM]["agent"].update(nar_sha256="sha256:abc"), "SRI"),
        (lambda lock: lock["systems"][_SYSTEM]["agent"].pop("claude"), "claude"),
    ],
)
def test_a_lock_outside_its_schema_is_refused(world: World, change: Callable[[Any], object], words: str) -> None:
    """Unknown keys, odd paths and other hash forms are refused with the place; this checkout's own lock is read (positive control)."""
    lock = json.loads(world.lock_path.read_text())
    change(lock)
    world.lock_path.write_text(json.dumps(lock))
    with pytest.raises(ToolchainError, match=words):
        load_lock(world.lock_path)
    assert {"x86_64-linux", "aarch64-linux"} <= set(load_lock().systems)


def test_a_missing_lock_is_named(tmp_path: Path) -> None:
    """No lock file is InputMissing with its path."""
    with pytest.raises(InputMissing) as caught:
        load_lock(tmp_path / "toolchain.json")
    assert caught.value.where == str(tmp_path / "toolchain.json")


@pytest.mark.parametrize(
    ("uid", "environ", "expected"),
    [
        (0, {"HOME": "/root"}, "/var/cache/hermeval"),
        (0, {"HERMEVAL_CACHE": "/x"}, "/x"),
        (5, {"HOME": "/home/a"}, "/home/a/.cache/hermeval"),
        (5, {"HOME": "/home/a", "XDG_CACHE_HOME": "/c"}, "/c/hermeval"),
        (5, {"HOME": "/home/a", "XDG_CACHE_HOME": "c"}, "/home/a/.cache/hermeval"),
    ],
)
def test_the_cache_lies_where_its_user_can_reach_it(uid: int, environ: dict[str, str], expected: str) -> None:
    """Root's cache is in a place that an unprivileged run uid can read; others use their own; HERMEVAL_CACHE overrides both."""
    assert default_cache_root(uid, environ) == Path(expected)


def test_the_install_program_says_what_it_did(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """The bootstrap's entry point returns 0 with the directory, or 2 with the declared error."""
    arguments = ["agent", "--cache", str(world.cache), "--lock", str(world.lock_path)]
    assert main(arguments) == 0
    assert str(world.tree.parent) in capsys.readouterr().err
    world.claude.write_text("#!/bin/sh\necho forged\n")
    assert main(arguments) == 2
    assert "error[toolchain-mismatch]" in capsys.readouterr().err
    done = subprocess.run(
        [sys.executable, "-m", "runner.toolchain_install", "--help"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_toolchain_verify_without_tools_is_an_error_with_one_json_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing installed cannot be verified: exit 2, code toolchain-missing, stdout is one object."""
    assert run_command(["toolchain", "verify", "--json", "--cache", str(tmp_path)]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "toolchain-missing"
    assert run_command(["toolchain", "verify", "--cache", str(tmp_path)]) == 2
    assert "toolchain-missing" in capsys.readouterr().err


def test_toolchain_verify_prints_a_line_a_tool(
    installed: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line a tree and a tool with its status and hash; exit 0 where all that is installed holds, 2 with both hashes where something does not."""
    monkeypatch.setattr("runner.toolchain_lock._LOCK", installed.lock_path)
    monkeypatch.setenv("HERMEVAL_CACHE", str(installed.cache))
    assert run_command(["toolchain", "verify"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["agent/claude", "held", "1.2.3", installed.lock.system(_SYSTEM).agent.claude.nar_sha256] in rows
    assert run_command(["toolchain", "verify", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {row["id"]: row["status"] for row in answer["results"]}["agent"] == "held"
    installed.claude.write_text("#!/bin/sh\necho forged\n")
    assert run_command(["toolchain", "verify", "--json"]) == 2
    row = next(row for row in json.loads(capsys.readouterr().out)["results"] if row["id"] == "agent")
    assert (row["status"], row["actual"]) == ("broken", nar_sha256(installed.tree))
    assert run_command(["toolchain", "verify"]) == 2
    assert f"{row['actual']}, the lock says {row['expected']}" in capsys.readouterr().out
