"""A sandbox to try things in: the real bwrap on this host, the fixed inside view, a shell as the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from sandbox.process import Host, Supervisor, find_host, supervise
from sandbox.rootfs import HOST, read_host_rootfs
from sandbox.running import Ended, Running, start
from sandbox.spec import SandboxSpec
from sandbox.view import build_view

ENV = {"PATH": "/usr/bin:/bin", "HOME": "/home/eval", "LANG": "C.UTF-8", "TZ": "UTC"}


class Seen(NamedTuple):
    """What a whole run showed."""

    ended: Ended
    out: str


class MakeSpec(Protocol):
    """Build the sandbox of a shell script or a program."""

    def __call__(self, script: str = ..., **changes: Any) -> SandboxSpec: ...


class Run(Protocol):
    """Run a shell script to its end."""

    def __call__(self, script: str, **options: Any) -> Seen: ...


@pytest.fixture(scope="session")
def host() -> Host:
    """This host, with bubblewrap on it: without it every test here fails."""
    return find_host()


@pytest.fixture
def make_spec() -> MakeSpec:
    """Build a spec from the fixed inside view."""

    def make(script: str = "true", **changes: Any) -> SandboxSpec:
        view: dict[str, Any] = {
            "rootfs": HOST,
            "system": read_host_rootfs(),
            "argv": ("/bin/sh", "-c", script),
            "env": ENV,
        }
        return build_view(**(view | changes))

    return make


@pytest.fixture
def supervisor(host: Host) -> Iterator[Supervisor]:
    """A supervisor with a staging directory."""
    with supervise(host) as made:
        yield made


@pytest.fixture
def run(host: Host, make_spec: MakeSpec) -> Run:
    """Run a script in a fresh sandbox; options go to ``start``, ``view`` to the inside view, ``look`` is called with the dead sandbox."""

    def run_once(
        script: str,
        *,
        view: Mapping[str, Any] | None = None,
        look: Callable[[Running], None] | None = None,
        **options: Any,
    ) -> Seen:
        output = bytearray()
        spec = make_spec(script, **(view or {}))
        with start(
            Supervisor(host, None), spec, on_stdout=output.extend, **{"wall_clock_s": 60.0, **options}
        ) as running:
            running.release()
            ended = running.wait()
            assert ended is not None
            if look is not None:
                look(running)
        return Seen(ended, output.decode("utf-8", "replace"))

    return run_once


@pytest.fixture
def readable_tmp(tmp_path: Path) -> Path:
    """A directory that the run uid can enter: pytest's own is private, so its parents are opened for passing through."""
    for directory in (tmp_path, *tmp_path.parents):
        if directory.name.startswith("pytest-"):
            directory.chmod(directory.stat().st_mode | 0o011)
    tmp_path.chmod(0o755)
    return tmp_path
