"""Probes 27, 72, 75, 76 and 78: hostile skill trees before the real staging, and what a plan tells.

Boundary: makes hostile files in a private directory. Not here: the staging's own tests. Rules: each probe has a harmless twin that must come through.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from runner.errors import SkillTreeInvalid
from runner.skills import SkillTree, stage, unchanged
from sandbox.probes.table import Seen
from sandbox.probes.trying import MARK, Site, Table
from sandbox.process import supervise

TREES = Table()
probe = TREES.probe


@contextmanager
def skill(site: Site) -> Iterator[tuple[Path, Path]]:
    """Make a skills folder with one good skill; yields it and where it may be staged."""
    with supervise(site.host, runtime_dir=site.runtime_dir) as supervisor:
        source = supervisor.staging / "source"
        (source / "one").mkdir(parents=True)
        (source / "one" / "SKILL.md").write_text("---\nname: one\ndescription: One.\n---\n# One\n", encoding="ascii")
        yield source, supervisor.staging / "dest"


def staged(source: Path, dest: Path) -> str:
    """Stage a folder; return ``=staged`` or the error's kind."""
    try:
        stage(source, dest)
    except SkillTreeInvalid:
        return "=left behind" if dest.exists() and any(dest.iterdir()) else "SkillTreeInvalid"
    finally:
        shutil.rmtree(dest, ignore_errors=True)
    return "=staged"


def spoilt(site: Site, spoil: Callable[[Path], object]) -> str:
    """Stage the good skill after something was done to its folder."""
    with skill(site) as (source, dest):
        spoil(source / "one")
        return staged(source, dest)


def untouched(site: Site) -> dict[str, str]:
    """The control: the good skill is staged."""
    return {"a good skill": spoilt(site, lambda _: None)}


def bind_socket(folder: Path) -> None:
    """Leave a socket in a folder (through a short path: a socket's name is at most 107 bytes)."""
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(f"/proc/self/fd/{here}/socket")
    finally:
        os.close(here)


INVALID = ("SkillTreeInvalid",)


@probe(27, "A socket in a bound tree", "refused", "staged-copies", {"socket": INVALID})
def bound_socket(site: Site) -> Seen:
    """Only regular files are copied, so a socket has no inode inside."""
    return Seen({"socket": spoilt(site, bind_socket)}, untouched(site))


@probe(72, "Expected answers in reach", "absent", "plan", {"rubric": ("=False",), "repository": ("=[]",)})
def answers(site: Site) -> Seen:
    """What is staged and told holds nothing of rubric and expectations, and no repository."""
    from runner.fixture import parse_fixture
    from runner.plan import Provider, build_plan

    secret = "hermeval-expected-answer"  # noqa: S105 - a word to look for
    text = (
        '{"id":"probe","synthetic":true,"profile":"artifact","skill":"one","references":[],"input":{"role":"auditor","facts":["One fact."]},'
        f'"rubric":[{{"id":"kept","criterion":"{secret}"}}]}}'
    )
    fixture = parse_fixture(text.encode(), "probe")
    with skill(site) as (source, dest):
        (source / ".git").mkdir()
        (source / ".git" / "HEAD").write_text("ref: refs/heads/x", encoding="ascii")
        tree = stage(source, dest)
        plan = build_plan(fixture=fixture, tree=tree, provider=Provider(kind="scripted"), toolchain={})
        repositories = [file.path for file in tree.files if ".git" in file.path.split("/")]
    return Seen(
        {"rubric": f"={secret.encode() in plan.canonical()}", "repository": f"={repositories}"},
        {"the facts are told": "=yes" if b"One fact." in plan.canonical() else "no"},
    )


@probe(75, "Change the skill during a run", "held", "staged-copies", {"source": ("=()",), "copy": ("='one/SKILL.md'",)})
def changed(site: Site) -> Seen:
    """A change of the source does not reach the copy; a change of the copy is found."""
    with skill(site) as (source, dest):
        tree: SkillTree = stage(source, dest)
        before = unchanged(tree, dest)
        (source / "one" / "SKILL.md").write_text("changed", encoding="ascii")
        first = unchanged(tree, dest)
        path = dest / "one" / "SKILL.md"
        path.chmod(0o644)
        path.write_text("changed", encoding="ascii")
        second = unchanged(tree, dest)
    copy = f"={second[0]!r}" if second and second[0] == "one/SKILL.md" else f"={second}"
    return Seen({"source": f"={first}", "copy": copy}, {"as staged": "=()" if before == () else f"{before}"})


def sparse(folder: Path) -> None:
    """Leave a file that says it has a terabyte."""
    with (folder / "large").open("wb") as file:
        file.truncate(1 << 40)


def swapped(folder: Path) -> None:
    """Put a link in the place of SKILL.md itself."""
    (folder / "SKILL.md").unlink()
    (folder / "SKILL.md").symlink_to("/etc/passwd")


HOSTILE: dict[str, Callable[[Path], object]] = {
    "link out": lambda folder: (folder / "l").symlink_to("/etc/passwd"),
    "link up": lambda folder: (folder / "l").symlink_to("../../dest"),
    "link to a folder": lambda folder: (folder / "l").symlink_to("/etc"),
    "link to itself": lambda folder: (folder / "l").symlink_to("l"),
    "link for SKILL.md": swapped,
    "hard names": lambda folder: os.close(os.open(os.fsencode(folder) + b"/\x1b[2J", os.O_CREAT | os.O_WRONLY)),
    "fifo": lambda folder: os.mkfifo(folder / "fifo"),
    "socket": bind_socket,
    "sparse": sparse,
    "case twins": lambda folder: [(folder / name).write_text("x", encoding="ascii") for name in ("Twin.md", "twin.md")],
    "no UTF-8": lambda folder: os.close(os.open(os.fsencode(folder) + b"/\xff", os.O_CREAT | os.O_WRONLY)),
    "newline": lambda folder: (folder / "a\nb").write_text("x", encoding="ascii"),
}


@probe(76, "A hostile skill tree", "refused", "staged-copies", {**dict.fromkeys((*HOSTILE, "devices"), INVALID), "set-user-id": ("=0o444", "=0o555", "=0o644", "=0o755", "=SkillTreeInvalid")})  # fmt: skip
def hostile_tree(site: Site) -> Seen:
    """Each is refused with nothing followed, opened or left in the staging folder; a set-user-id bit is not copied. Devices are the machine's own terminals: nobody but root could make one."""
    found = {name: spoilt(site, spoil) for name, spoil in HOSTILE.items()}
    with skill(site) as (source, dest):
        found["devices"] = staged(Path("/dev/pts"), dest)
        tool = source / "one" / "tool"
        tool.write_text("#!/bin/sh\n", encoding="ascii")
        tool.chmod(0o6755)
        try:
            stage(source, dest)
            found["set-user-id"] = f"={oct((dest / 'one' / 'tool').stat().st_mode & 0o7777)}"
        except SkillTreeInvalid:
            found["set-user-id"] = "=SkillTreeInvalid"
    return Seen(found, untouched(site))


PLACED = (
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".mcp.json",
    ".claude-plugin/plugin.json",
    "hooks/hooks.json",
    "plugin.json",
)


@probe(
    78,
    "Settings and hooks in a skill",
    "held",
    "staged-copies",
    {"ran": ("=[]",), "staged": ("=as data", "SkillTreeInvalid"), "told": ("=[]",)},
)
def settings(site: Site) -> Seen:
    """They are files like any other: staged byte for byte for the inside, or refused. The runner starts nothing that they name, and neither command line, environment, settings nor home of the CLI in the plan holds a word of them."""
    from runner.fixture import parse_fixture
    from runner.plan import Provider, build_plan

    text = b'{"id":"probe","synthetic":true,"profile":"artifact","skill":"one","references":[],"input":{"role":"auditor","facts":["One fact."]},"rubric":[{"id":"kept","criterion":"Kept."}]}'
    with skill(site) as (source, dest):
        ran = source.parent / MARK
        command = {"type": "command", "command": f"touch {ran}"}
        events = ("SessionStart", "PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "Notification")
        document = {
            "hooks": {event: [{"matcher": "", "hooks": [command]}] for event in events},
            "mcpServers": {MARK: {"command": "touch", "args": [str(ran)]}},
            "statusLine": command,
            "apiKeyHelper": f"touch {ran}",
            "name": MARK,
        }
        for name in PLACED:
            (source / "one" / name).parent.mkdir(exist_ok=True)
            (source / "one" / name).write_text(json.dumps(document), encoding="ascii")
        try:
            tree = stage(source, dest)
        except SkillTreeInvalid:
            return Seen(
                {"ran": f"={[*source.parent.glob(MARK)]}", "staged": "SkillTreeInvalid", "told": "=[]"}, untouched(site)
            )
        same = all((dest / "one" / name).read_bytes() == (source / "one" / name).read_bytes() for name in PLACED)
        launch = build_plan(
            fixture=parse_fixture(text, "probe"), tree=tree, provider=Provider(kind="scripted"), toolchain={}
        ).launch
        parts = {"arguments": launch.argv, "environment": launch.env, "home": launch.home_files, "input": launch.stdin}
        told = [name for name, part in parts.items() if MARK in repr(part)]
        done = [path.name for path in source.parent.rglob(MARK)]
    return Seen(
        {"ran": f"={done}", "staged": "=as data" if same else "=changed", "told": f"={told}"},
        {**untouched(site), "the fact is told": "=yes" if "One fact." in launch.stdin else f"{launch.stdin[:80]!r}"},
    )
