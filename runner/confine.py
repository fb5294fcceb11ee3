"""The inside view of a worker: the fixed sandbox of DESIGN with the CLI, the skill tree and the gate's address in it (step 3, its pure half).

Boundary: pure. Not here: the fixed view of any program (sandbox/view.py), starting it (sandbox/running.py).
Rules: paths, names and modes below stand in requests and never change once attempts are committed. What differs from machine to machine comes in as ``system``
or is named ``@name`` and resolved at start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from runner.claude.launch import CA_INSIDE, CLAUDE_INSIDE
from runner.gate.settings import PROVIDER_HOST, GateSettings
from runner.pinned import ATTEND_INSIDE, ATTEND_SOURCE, CLOCK_INSIDE, CLOCK_SOURCE, PinnedWorld, clock_env
from runner.skills import SKILLS_INSIDE
from sandbox.spec import Bind, File, Mount, RoBind, SandboxSpec
from sandbox.view import HOSTNAME, WORKSPACE, build_view

if TYPE_CHECKING:
    from runner.simulate.planned import PlannedSimulation

ANY_ROOTFS = "any"
"""Stands for the read-only system in a plan, which holds for every machine."""

CLAUDE_SOURCE = "@claude"
"""The CLI, a file: the execute-only copy, or in a pinned run one that can be read."""
SKILLS_SOURCE = "@skills"
"""The staged skill tree, a folder."""
CA_SOURCE = "@ca"
"""The certificate of the run's own authority, a PEM file; in first-party mode only."""
WORKSPACE_SOURCE = "@workspace"
"""The shared workspace, an open directory; only where one was asked for (A13)."""


def inside_view(
    *,
    argv: Sequence[str],
    env: Mapping[str, str],
    home_files: Mapping[str, bytes],
    gate: GateSettings,
    rootfs: str = ANY_ROOTFS,
    system: Sequence[Mount] = (),
    seccomp: bytes | None = None,
    simulation: PlannedSimulation | None = None,
    shared_workspace: bool = False,
    pinned: PinnedWorld | None = None,
    shift_s: int | None = None,
) -> SandboxSpec:
    """Return the worker's sandbox. A simulation has a listener of its own and, by that door, a command. In first-party mode the provider's name means 127.0.0.1 inside, and the run's authority is there to be read.

    ``pinned`` puts the CLI under the attendant and the standing clock; ``shift_s`` moves the wall clock of a free run by so many seconds, for tests of ``reproduce``.
    """
    binds = [RoBind(source=CLAUDE_SOURCE, target=CLAUDE_INSIDE), RoBind(source=SKILLS_SOURCE, target=SKILLS_INSIDE)]
    if gate.tls:
        binds.append(RoBind(source=CA_SOURCE, target=CA_INSIDE))
    if pinned is not None:
        binds.append(RoBind(source=ATTEND_SOURCE, target=ATTEND_INSIDE))
        argv, env = pinned.argv(HOSTNAME, argv), {**env, **pinned.env()}
    elif shift_s is not None:
        env = {**env, **clock_env(f"{shift_s:+d}")}
    if pinned is not None or shift_s is not None:
        binds.append(RoBind(source=CLOCK_SOURCE, target=CLOCK_INSIDE))
    files = []
    if simulation is not None and "command" in simulation.doors:
        from runner.simulate.command_door import INSIDE, command_program

        files.append(File(target=INSIDE, content=command_program(simulation.port), mode=0o555))
    return build_view(
        rootfs=rootfs,
        system=system,
        argv=argv,
        env=env,
        port=gate.port,
        local_names=(PROVIDER_HOST,) if gate.tls else (),
        home_files=home_files,
        binds=binds,
        files=files,
        further_ports=() if simulation is None else (simulation.port,),
        seccomp=seccomp,
        workspace=Bind(source=WORKSPACE_SOURCE, target=WORKSPACE) if shared_workspace else None,
    )
