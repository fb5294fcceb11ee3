"""What the host side's probes share: their table, a sandbox to try things in, and how an act's outcome is written down.

Boundary: starts sandboxes. Not here: the probes (outside.py, lifetime.py). Rules: a probe is a function that returns what its attempts and controls came to; it raises where it could not be tried, and is a hole then.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.limits import Limits
from sandbox.probes.table import Expects, Probe, Seen, Status
from sandbox.process import Host, Supervisor
from sandbox.rootfs import find_rootfs
from sandbox.running import Ended, start
from sandbox.seccomp import own_filter
from sandbox.spec import RoBind, SandboxSpec
from sandbox.view import HOME, WORKSPACE, build_view


@dataclass(frozen=True)
class Site:
    """Where the probes are tried."""

    host: Host
    runtime_dir: Path | None = None


Try = Callable[[Site], Seen]
MARK = "hermeval-probe-ran"
"""What something that must not run would leave."""


class Table(list[tuple[Probe, Try]]):
    """Probes of the host side, each with the function that tries it."""

    def probe(
        self, number: int, name: str, status: Status, layer: str, expects: Expects, *overlaps: str
    ) -> Callable[[Try], Try]:
        """Enter a function into the table."""

        def keep(act: Try) -> Try:
            self.append((Probe(number, name, "host", status, layer, expects, overlaps), act))
            return act

        return keep


TABLE = Table()
probe = TABLE.probe


def attempt(act: Callable[[], object]) -> str:
    """Return what an act came to: ``=`` and its value, an errno's name, or the kind of our own error."""
    try:
        return f"={act()}"
    except SandboxError as error:
        return type(error).__name__
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "OSError")


def spec_of(*argv: str, limits: Limits | None = None, binds: tuple[RoBind, ...] = ()) -> SandboxSpec:
    """Return an agent's sandbox around a program."""
    rootfs = find_rootfs()
    env = {"PATH": "/usr/bin:/bin", "HOME": HOME}
    return build_view(
        rootfs=rootfs.kind,
        system=rootfs.mounts,
        argv=argv,
        env=env,
        limits=limits,
        binds=binds,
        seccomp=own_filter(),
    )


def run(
    site: Site,
    spec: SandboxSpec,
    *,
    wall_s: float = 30.0,
    stdout_cap: int = 1 << 20,
    sources: Mapping[str, Path] | None = None,
    look: Callable[[int], object] | None = None,
) -> tuple[Ended, str, object]:
    """Run a program to its end; ``look`` gets the workspace's handle after it."""
    output = bytearray()
    with start(
        Supervisor(site.host, None),
        spec,
        on_stdout=output.extend,
        wall_clock_s=wall_s,
        stdout_cap=stdout_cap,
        sources=sources,
    ) as running:
        running.release()
        ended = running.wait()
        assert ended is not None
        found = look(running.handle(WORKSPACE)) if look is not None else None
    return ended, output.decode("utf-8", "replace"), found


def shell(site: Site, script: str, **options: object) -> tuple[Ended, str, object]:
    """Run a shell script to its end."""
    return run(site, spec_of("/bin/sh", "-c", script), **options)  # type: ignore[arg-type]  # those of run


def python(code: str, *argv: str, limits: Limits | None = None) -> SandboxSpec:
    """Return the sandbox of a Python program."""
    return spec_of("/usr/bin/python3", "-I", "-S", "-c", code, *argv, limits=limits)


def works(site: Site) -> dict[str, str]:
    """The control of most: an honest program runs to its end."""
    ended, out, _ = shell(site, "echo fine")
    return {"an honest program": "=fine" if ended.exit_status == 0 and out == "fine\n" else f"{ended.exit_status}"}
