"""No layer is decoration: with a layer and what overlaps it off, a probe that it holds fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sandbox.argv import bwrap_args
from sandbox.probes.inside import examine_inside
from sandbox.probes.layers import LAYERS, Layer, table
from sandbox.probes.table import INSIDE
from sandbox.process import Supervisor
from sandbox.running import start

if TYPE_CHECKING:
    from sandbox.process import Host
    from tests.sandbox.conftest import MakeSpec


def turned_off(layer: Layer, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Turn off what a layer does to bwrap's arguments; returns the change of the description."""
    if layer.args_off is not None:
        off = layer.args_off
        monkeypatch.setattr("sandbox.request.bwrap_args", lambda *given, **named: off(bwrap_args(*given, **named)))
    return layer.off or (lambda spec: spec)


@pytest.mark.parametrize("layer", [layer for layer in LAYERS if layer.shown_by], ids=lambda layer: layer.name)
def test_without_a_layer_its_probes_fail(host: Host, layer: Layer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the probes that show it comes out as a hole, while its harmless twins still work."""
    change = turned_off(layer, monkeypatch)
    results = examine_inside(host, numbers=layer.shown_by, change=change)
    assert {result.probe.number: result.status for result in results} == dict.fromkeys(layer.shown_by, "hole")
    assert [result.cause for result in results if "could not be tried" in result.cause] == []


def test_with_every_layer_on_the_same_probes_hold(host: Host) -> None:
    """The control."""
    numbers = sorted({number for layer in LAYERS for number in layer.shown_by})
    assert [result.as_json() for result in examine_inside(host, numbers=numbers) if not result.good] == []


def test_without_a_session_of_its_own_a_signal_reaches_the_supervisor(
    host: Host, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill of process group 0 ends the supervisor too; with the session it ends the program only (the control)."""
    reasons = []
    layer = next(layer for layer in LAYERS if layer.name == "own-session")
    for off in (False, True):
        if off:
            turned_off(layer, monkeypatch)
        with start(Supervisor(host, None), make_spec("kill -KILL 0; sleep 5"), on_stdout=lambda _: None) as running:
            running.release()
            ended = running.wait()
            assert ended is not None
            reasons.append(ended.reason)
    assert reasons == [None, "supervisor-gone"]


def test_the_table_is_whole() -> None:
    """Every probe is held by something, every layer that an inside probe names is in the table or belongs to one that is, and each line says how it is shown."""
    held = {number for layer in LAYERS for number in layer.probes}
    apart = {
        9,
        13,
        29,
    }  # structural: no environment, no descriptor and no free port is ever there (test_sandbox_inside, test_sandbox_listener)
    assert {probe.number for probe in INSIDE} <= held | apart
    assert all(layer.shown_by or layer.because for layer in LAYERS)
    assert all(set(layer.shown_by) <= set(layer.probes) for layer in LAYERS)
    names = {layer.name for layer in LAYERS} | {"own-keyring"}
    assert all(set(layer.overlaps) <= names for layer in LAYERS)
    assert len(table().splitlines()) == len(LAYERS)
