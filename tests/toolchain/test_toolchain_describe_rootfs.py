"""The description of a pinned root file system: pinned only where every program and the loader lie in the closure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.describe_rootfs import describe, main, outside, parse_graph
from runner.errors import ToolchainError
from runner.nar import nar_sha256
from sandbox.rootfs import parse_description


@dataclass(frozen=True)
class Environment:
    """An environment in a made-up store, and its reference graph."""

    store: Path
    root: Path
    shell: Path
    libc: Path

    @property
    def graph(self) -> str:
        """The graph as Nix writes it."""
        entries = [(self.root, [self.shell, self.libc]), (self.shell, [self.libc]), (self.libc, [])]
        return "".join(
            f"{path}\n\n{len(references)}\n" + "".join(f"{reference}\n" for reference in references)
            for path, references in entries
        )

    def describe(self, *, stand_in: bool = False) -> dict[str, object]:
        """Describe it."""
        return describe(graph=self.graph, root=self.root, store=self.store, loader="/lib64/ld.so", stand_in=stand_in)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """An environment with a shell and a loader, both links to store paths of the closure."""
    store = tmp_path / "store"
    root, shell, libc = (
        store / f"{digit * 32}-{name}" for digit, name in (("0", "inside"), ("1", "shell"), ("2", "libc"))
    )
    for path in (root / "bin", root / "lib", shell / "bin", libc / "lib"):
        path.mkdir(parents=True)
    (shell / "bin" / "bash").write_text("a shell")
    (shell / "bin" / "sh").symlink_to("bash")
    (libc / "lib" / "ld.so").write_text("a loader")
    for name in ("bash", "sh"):
        (root / "bin" / name).symlink_to(shell / "bin" / name)
    (root / "lib" / "ld.so").symlink_to(libc / "lib" / "ld.so")
    return Environment(store, root, shell, libc)


def test_a_closure_is_described_with_its_hashes_and_can_be_read(environment: Environment) -> None:
    """Every path of the graph has the hash of its own bytes, and sandbox/rootfs.py takes the description as pinned."""
    described = environment.describe()
    assert described["closure"] == {
        str(path): nar_sha256(path) for path in (environment.root, environment.shell, environment.libc)
    }
    rootfs = parse_description(json.dumps(described).encode())
    assert rootfs is not None
    assert rootfs.pinned


@pytest.mark.parametrize("target", ["/bin/sh", "/nonexistent"])
def test_a_program_outside_the_closure_is_refused(environment: Environment, target: str) -> None:
    """A link to the host or to nowhere makes the description an error that names it, never a pinned system."""
    assert outside(environment.root, parse_graph(environment.graph)) == ()
    (environment.root / "bin" / "odd").symlink_to(target)
    with pytest.raises(ToolchainError, match="not self-contained: odd"):
        environment.describe()


def test_a_stand_in_is_host_and_must_be_one(environment: Environment) -> None:
    """With a stand-in the description says host; a stand-in that is self-contained is an error."""
    with pytest.raises(ToolchainError, match="no stand-in"):
        environment.describe(stand_in=True)
    (environment.root / "bin" / "ls").symlink_to("/bin/ls")
    described = environment.describe(stand_in=True)
    assert described["kind"] == "host"
    assert parse_description(json.dumps(described).encode()) is None


@pytest.mark.parametrize(
    "graph",
    [
        "",
        "relative\n\n0\n",
        "/a\n\nx\n",
        "/a\n\n2\n/b\n",
        "/a\n\n1\nb\n",
        "/a\n\n0\n/a\n\n0\n",
        f"/a\n\n{10**18}\n/b\n",
    ],
)
def test_a_graph_that_is_none_is_refused(graph: str) -> None:
    """A cut graph, one with a bad count, and one that names a path twice are refused."""
    with pytest.raises(ValueError, match=r"graph|references"):
        parse_graph(graph)


@given(
    graph=st.dictionaries(
        st.from_regex(r"/[a-z]{1,8}", fullmatch=True),
        st.lists(st.from_regex(r"/[a-z]{1,8}", fullmatch=True), max_size=4),
        min_size=1,
    )
)
def test_every_path_of_a_graph_is_found(graph: dict[str, list[str]]) -> None:
    """Whatever refers to what, the paths are those of the graph, sorted, with or without a deriver."""
    text = "".join(
        f"{path}\n{'/a.drv' if number % 2 else ''}\n{len(references)}\n" + "".join(f"{line}\n" for line in references)
        for number, (path, references) in enumerate(graph.items())
    )
    assert parse_graph(text) == tuple(sorted(graph))


def test_the_program_writes_json_or_says_why_not(environment: Environment, capsys: pytest.CaptureFixture[str]) -> None:
    """As the flake runs it: exit 0 and one object, or exit 2 and the reason."""
    graph = environment.store / "graph"
    graph.write_text(environment.graph)
    words = [
        "--graph",
        str(graph),
        "--root",
        str(environment.root),
        "--store",
        str(environment.store),
        "--loader",
        "/lib64/ld.so",
    ]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == environment.describe()
    graph.write_text("")
    assert main(words) == 2
    assert "graph" in capsys.readouterr().err
