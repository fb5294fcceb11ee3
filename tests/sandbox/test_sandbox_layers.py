"""No layer is decoration: with a layer and what overlaps it off, a probe that it holds fails."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox import procfs
from sandbox.argv import bwrap_args
from sandbox.identity import Identity
from sandbox.probes import lifetime, outside
from sandbox.probes.inside import examine_inside
from sandbox.probes.layers import LAYERS, Edit, Layer, table, with_mounts
from sandbox.probes.suite import try_all
from sandbox.probes.table import INSIDE, Result
from sandbox.probes.trying import TABLE, Site
from sandbox.process import Host
from sandbox.spec import Proc, SandboxSpec
from sandbox.streams import Capped
from tests.sandbox.altered import altered

BY_NUMBER = {probe.number: (probe, act) for probe, act in TABLE}
INSIDE_NUMBERS = {probe.number for probe in INSIDE}
SUPERVISED = ("supervisor", "hold")
"""Layers that a killed runner shows: it is a process of its own, so the whole package is altered for it."""
MORE: dict[str, tuple[Edit, ...]] = {
    "supervisor": (("argv.py", '"--new-session", "--die-with-parent"', '"--new-session"'),),
    "hold": (
        ("argv.py", '"--new-session", "--die-with-parent"', '"--new-session"'),
        ("request.py", "        return os.open(f\"/proc/self/fd/{read_end}\", os.O_RDWR | os.O_CLOEXEC)", "        return os.dup(read_end)"),
        ("request.py", "        os.close(write_end)\n", "        pass\n"),
    ),
}  # fmt: skip
"""What a killed runner's own part needs beside the supervisor's: there, bwrap's arguments are made in another process."""
BOUNDED = {"private": "x = [b'x' * (4 << 20) for _ in range(60)]\nimport time; time.sleep(1.5)"}

MUCH = {"lines": "yes | head -c 3000000", "one line": "head -c 3000000 /dev/zero"}
"""More than the cap, and less than anybody minds."""
LONG = {"busy": "timeout 2 sh -c 'while :; do :; done'", "idle": "sleep 2", "deaf": "trap '' TERM INT HUP; sleep 2"}
"""Longer than the wall clock, and no longer than a test can wait."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory that the run uid can enter."""
    for directory in (tmp_path, *tmp_path.parents):
        if directory.name.startswith("pytest-"):
            directory.chmod(directory.stat().st_mode | 0o011)
    tmp_path.chmod(0o755)
    return tmp_path


def without(host: Host, layer: Layer, place: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Turn off what a layer and its overlaps do to bwrap's arguments and in the supervisor; the host whose sandboxes lack it."""
    if layer.args_off is not None:
        off = layer.args_off
        monkeypatch.setattr("sandbox.request.bwrap_args", lambda *given, **named: off(bwrap_args(*given, **named)))
    if layer.edits:
        host = replace(host, program=altered(place, layer.edits) / "supervisor.py")
    if layer.name == "run-uid":
        host = replace(host, identity=Identity(0, None))
    return host


class Uncapped(Capped):
    """A stream that nobody is told of."""

    def __call__(self, data: bytes) -> None:
        self.total += len(data)


def bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the programs that would never end, or fill this machine, do so only for a while: with the layer off nothing else ends them."""
    for name, programs in (("BOMBS", BOUNDED), ("ENDLESS_OUTPUT", MUCH), ("ENDLESS", LONG)):
        monkeypatch.setattr(outside, name, programs)


def tried(host: Host, layer: Layer, place: Path, monkeypatch: pytest.MonkeyPatch) -> list[Result]:
    """Try the probes that show a layer, without it."""
    if layer.name in SUPERVISED:
        copy = altered(place, (*layer.edits, *MORE[layer.name], ("staging.py", '"/run/hermeval"', f'"{place}/base"')))
        monkeypatch.setattr(lifetime, "__file__", str(copy / "probes" / "lifetime.py"))
        monkeypatch.setattr(lifetime, "KILL_AFTER_MS", ())
        monkeypatch.setattr(lifetime, "GONE_S", 0.5)
        probe, act = BY_NUMBER[layer.shown_by[0]]
        wanted = {
            name: allowed for name, allowed in probe.expects.items() if name in ("after 500 ms", "left", "started")
        }
        return list(try_all([(replace(probe, expects=wanted), act)], Site(host)))
    host = without(host, layer, place, monkeypatch)
    bounded(monkeypatch)
    if layer.name == "output-caps":
        monkeypatch.setattr("sandbox.running.Capped", Uncapped)
    results = (
        examine_inside(host, numbers=layer.shown_by, change=layer.off or (lambda spec: spec))
        if INSIDE_NUMBERS & {*layer.shown_by}
        else []
    )
    return results + list(try_all([BY_NUMBER[number] for number in layer.shown_by if number in BY_NUMBER], Site(host)))


@pytest.fixture
def cleared() -> Iterator[None]:
    """Programs that outlive their sandbox here are ended."""
    yield
    for pid in probe_processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while probe_processes() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert probe_processes() == []


def probe_processes() -> list[int]:
    """Processes of probes of this very process, known by a mark among their arguments."""
    found = []
    for name in os.listdir("/proc"):
        with suppress(OSError):
            words = Path("/proc", name, "cmdline").read_bytes().split(b"\0") if name.isdigit() else []
            marks = (f"hermeval-probe-53-{os.getpid()}", f"hermeval-probe-{os.getpid()}-")
            if any(word.startswith(mark.encode()) for word in words for mark in marks):
                found.append(int(name))
    return found


TURNED_OFF = [layer for layer in LAYERS if layer.shown_by and not layer.because]


@pytest.mark.usefixtures("cleared")
@pytest.mark.parametrize("layer", TURNED_OFF, ids=lambda layer: layer.name)
def test_without_a_layer_its_probes_fail(
    host: Host, layer: Layer, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the probes that show it comes out as a hole, which is no failure to try it."""
    if layer.callers and os.getuid() != 0:
        assert host.identity.run_uid != 0, "there is no way to show it and no way to need it"
        return
    results = tried(host, layer, place, monkeypatch)
    if layer.machine not in ("", os.uname().machine):
        assert [result.as_json() for result in results if not result.good] == [], "there is nothing to show here"
        return
    assert {result.probe.number: result.status for result in results} == dict.fromkeys(layer.shown_by, "hole"), [
        result.as_json() for result in results
    ]
    assert [result.cause for result in results if "could not be tried" in result.cause] == []


def test_with_every_layer_on_the_same_probes_hold(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control."""
    bounded(monkeypatch)
    numbers = sorted({number for layer in LAYERS for number in layer.shown_by})
    results = examine_inside(host, numbers=[number for number in numbers if number in INSIDE_NUMBERS])
    private = replace(BY_NUMBER[47][0], expects={"private": ("=memory-limit",)})
    table = [
        (private, BY_NUMBER[47][1]) if number == 47 else BY_NUMBER[number] for number in numbers if number in BY_NUMBER
    ]
    results += try_all(table, Site(host))
    assert {result.probe.number for result in results} == set(numbers)
    assert [result.as_json() for result in results if not result.good] == []


def test_a_missing_layer_is_seen_from_outside_before_anything_starts(
    host: Host, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    """What the canary is for: without the IPC namespace alone no probe is even tried, because the sandbox is ended."""
    layer = replace(next(layer for layer in LAYERS if layer.name == "ipc-namespace"), edits=())
    (result,) = tried(host, layer, place, monkeypatch)
    assert "the ipc namespace is ours" in result.cause


def test_without_a_checked_description_a_mount_follows_an_agents_link(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This host's bubblewrap is given what the check refuses: it makes a directory outside, or, where it is mended, refuses by itself."""
    for module in ("sandbox.running", "sandbox.argv"):
        monkeypatch.setattr(f"{module}.check_spec", lambda _: None)
    (result,) = try_all([BY_NUMBER[6]], Site(host))
    assert result.status == "hole"
    assert (
        "mount: SandboxSetupFailed" in result.cause
        or "made: =True" in result.cause
        or "mount: =mounted" in result.cause
    )


def test_without_the_handles_rules_a_link_is_opened(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain open of the same paths succeeds."""
    monkeypatch.setattr(procfs, "open_handle", lambda _, path: os.open(path, os.O_RDONLY))
    (result,) = try_all([BY_NUMBER[7]], Site(host))
    assert (result.status, "link: =opened" in result.cause) == ("hole", True)


def test_an_attempt_that_nothing_is_said_of_is_a_hole(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the program tries and the table leaves out cannot pass unseen; with its entry it is refused, which is the control."""
    (whole,) = examine_inside(host, numbers=[21])
    assert whole.good, whole
    shorter = replace(whole.probe, expects={"x32": whole.probe.expects["x32"]})
    monkeypatch.setattr("sandbox.probes.inside.INSIDE", (shorter,))
    (result,) = examine_inside(host, numbers=[21])
    assert (result.status, "int 0x80" in result.cause) == ("hole", True)


def test_a_mask_that_is_left_out_is_a_hole(host: Host) -> None:
    """Each file below /proc by itself, of those that tell something to the run uid; with all of them covered the probe is content, which is the control."""

    def but(name: str) -> Callable[[SandboxSpec], SandboxSpec]:
        return with_mounts(
            lambda mount: (
                mount.model_copy(update={"masks": tuple(mask for mask in mount.masks if mask != name)})
                if isinstance(mount, Proc)
                else mount
            )
        )

    assert examine_inside(host, numbers=[11])[0].good
    for name in ("key-users", "version"):
        assert Path("/proc", name).exists()
        assert examine_inside(host, numbers=[11], change=but(name))[0].status == "hole", name


def test_the_table_is_whole() -> None:
    """Every probe of the sandbox is held by something, every layer that one names is in the table, and each line says how it is shown."""
    held = {number for layer in LAYERS for number in layer.probes}
    apart = {8: "doctor", 73: "sized-tmpfs"}
    assert INSIDE_NUMBERS | set(BY_NUMBER) <= held | set(apart)
    assert all(layer.shown_by or layer.because for layer in LAYERS)
    assert all(set(layer.shown_by) <= set(layer.probes) for layer in LAYERS)
    beyond: dict[str, Any] = {"own-keyring": 0, "die-with-parent": 0, "cgroup": 0}
    names = {layer.name for layer in LAYERS} | beyond.keys()
    assert all(set(layer.overlaps) <= names for layer in LAYERS)
    assert {probe.layer for probe in (*INSIDE, *(probe for probe, _ in TABLE))} <= names | {"doctor"}
    assert len(table().splitlines()) == len(LAYERS)
