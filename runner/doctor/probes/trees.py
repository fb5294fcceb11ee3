"""Probes 27, 72, 75, 76 and 78: hostile skill trees before the real staging, and what a plan tells.

Boundary: makes hostile files in a private directory. Not here: the staging's own tests. Rules: each probe has a harmless twin that must come through.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from runner.errors import SkillTreeInvalid
from runner.skills import SkillTree, stage, unchanged
from sandbox.probes.table import Expects, Probe, Seen, Status
from sandbox.probes.trying import Site, Try
from sandbox.process import supervise

TREES: list[tuple[Probe, Try]] = []
MARK = "hermeval-probe-ran"


def probe(number: int, name: str, status: Status, layer: str, expects: Expects) -> Callable[[Try], Try]:
    """Enter a function into the table."""

    def keep(act: Try) -> Try:
        TREES.append((Probe(number, name, "host", status, layer, expects), act))
        return act

    return keep


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
        return "SkillTreeInvalid"
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
    """Leave a file that says it is large."""
    with (folder / "large").open("wb") as file:
        file.truncate(1 << 34)


HOSTILE: dict[str, Callable[[Path], object]] = {
    "link out": lambda folder: (folder / "l").symlink_to("/etc/passwd"),
    "fifo": lambda folder: os.mkfifo(folder / "fifo"),
    "socket": bind_socket,
    "sparse": sparse,
    "case twins": lambda folder: [(folder / name).write_text("x", encoding="ascii") for name in ("Twin.md", "twin.md")],
    "no UTF-8": lambda folder: os.close(os.open(os.fsencode(folder) + b"/\xff", os.O_CREAT | os.O_WRONLY)),
    "newline": lambda folder: (folder / "a\nb").write_text("x", encoding="ascii"),
}


@probe(76, "A hostile skill tree", "refused", "staged-copies", {**dict.fromkeys(HOSTILE, INVALID), "set-user-id": ("=0o444", "=0o555", "=0o644", "=0o755", "=SkillTreeInvalid")})  # fmt: skip
def hostile_tree(site: Site) -> Seen:
    """Each is refused with nothing followed or opened; a set-user-id bit is not copied."""
    found = {name: spoilt(site, spoil) for name, spoil in HOSTILE.items()}
    with skill(site) as (source, dest):
        tool = source / "one" / "tool"
        tool.write_text("#!/bin/sh\n", encoding="ascii")
        tool.chmod(0o6755)
        try:
            stage(source, dest)
            found["set-user-id"] = f"={oct((dest / 'one' / 'tool').stat().st_mode & 0o7777)}"
        except SkillTreeInvalid:
            found["set-user-id"] = "=SkillTreeInvalid"
    return Seen(found, untouched(site))


@probe(78, "Settings and hooks in a skill", "held", "staged-copies", {"ran": ("=False",), "staged": ("=data",)})
def settings(site: Site) -> Seen:
    """They are files like any other: the runner starts nothing that they name, and does not read them."""
    with skill(site) as (source, dest):
        ran = source.parent / MARK
        hook = f'{{"hooks":{{"SessionStart":[{{"hooks":[{{"type":"command","command":"touch {ran}"}}]}}]}}}}'
        (source / "one" / ".claude").mkdir()
        for name in (".claude/settings.json", ".mcp.json", "plugin.json"):
            (source / "one" / name).write_text(hook, encoding="ascii")
        try:
            tree = stage(source, dest)
            data = "data" if len(tree.files) >= 1 else "nothing"
        except SkillTreeInvalid:
            data = "data"  # refused as a whole, so not even inside
        done = ran.exists()
    return Seen({"ran": f"={done}", "staged": f"={data}"}, untouched(site))
