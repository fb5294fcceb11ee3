"""No layer of gate, collector, readers and grader is decoration: with another thing in its place a probe that it holds fails."""

from __future__ import annotations

import os
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import runner.gate.server
from runner.doctor.probes import signals, traffic
from runner.doctor.probes.files import FILES
from runner.doctor.probes.layers import LAYERS
from runner.doctor.probes.signals import SEEN
from runner.doctor.probes.traffic import TRAFFIC
from runner.doctor.probes.trees import TREES
from runner.gate.document import parse_document
from runner.gate.ledger import Ledger
from runner.gate.policy import Forward, RequestHead
from runner.gate.redact import Scrubber
from runner.gate.settings import Ceilings
from sandbox.probes.layers import Layer
from sandbox.probes.suite import outside, try_all
from sandbox.probes.table import Probe
from sandbox.probes.trying import TABLE, Site
from sandbox.process import find_host
from sandbox.sealed import sealed_spec

PROBES = {probe.number: (probe, act) for probe, act in (*SEEN, *TRAFFIC, *FILES, *TREES)}
DOCTOR = {probe.number: (probe, act) for probe, act in TABLE}
assert outside.BOMBS  # it has entered its probes
Patch = pytest.MonkeyPatch


def any_head(patch: Patch) -> None:
    """Every head is one to forward, whatever it says."""

    def decide(head: RequestHead, _: object) -> Forward:
        return Forward("messages", int(head.named()["content-length"][0]))

    patch.setattr("runner.gate.serving.decide_head", decide)


def any_body(patch: Patch) -> None:
    """Every body that is JSON goes on."""

    def decide(_: object, body: bytes, __: object) -> Forward:
        document = parse_document(body)
        return Forward("messages", len(body), document, document["model"], document["max_tokens"], False)

    patch.setattr("runner.gate.serving.decide_body", decide)


def any_headers(patch: Patch) -> None:
    """The client's own headers go out as they came."""
    every = frozenset({"authorization", "proxy-authorization", "x-forwarded-for", "content-type"})
    patch.setattr("runner.gate.upstreams.anthropic.FORWARDED_HEADERS", every)


def no_deadline(patch: Patch) -> None:
    """A head may take for ever; the probe waits a second."""
    patch.setattr("runner.gate.connection.HEAD_DEADLINE_S", 1e6)
    patch.setattr(traffic, "HEAD_DEADLINE_S", -4.0)


def no_redaction(patch: Patch) -> None:
    """The key passes."""

    class Open(Scrubber):
        def whole(self, data: bytes) -> bytes:
            return data

    patch.setattr("runner.gate.serving.Scrubber", Open)


def no_ceilings(patch: Patch) -> None:
    """The ledger has other ceilings than the settings."""
    much = Ceilings(usd=None, requests=10**6, tokens=10**12)
    patch.setattr(runner.gate.server, "Ledger", lambda _, prices: Ledger(much, prices))


def followed_links(patch: Patch) -> None:
    """The walk asks for what a name leads to."""

    def stat(name: Any, *, dir_fd: int, follow_symlinks: bool = True) -> os.stat_result:
        try:
            return os.stat(name, dir_fd=dir_fd)
        except OSError:
            return os.stat(name, dir_fd=dir_fd, follow_symlinks=follow_symlinks)

    def open_(name: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if not flags & os.O_DIRECTORY:  # a followed link to / would be the whole machine
            flags &= ~os.O_NOFOLLOW
        return os.open(name, flags, *args, **kwargs)

    following = types.SimpleNamespace(**{name: getattr(os, name) for name in dir(os) if not name.startswith("__")})
    following.stat, following.open = stat, open_
    patch.setattr("sandbox.walk.os", following)


def links_pass(patch: Patch) -> None:
    """A link is left out in silence, wherever it leads."""
    patch.setattr("runner.staging._Copy._link", lambda *_: None)


def one_digest(patch: Patch) -> None:
    """Nobody looks at the staged folder after the run."""
    patch.setattr("runner.doctor.probes.trees.unchanged", lambda *_: ())


def repository(patch: Patch) -> None:
    """A repository is staged like any folder."""
    patch.setattr("runner.staging.LEFT_OUT", frozenset())


def no_escapes(patch: Patch) -> None:
    """Every character is harmless."""
    patch.setattr("runner.text._harmless", lambda _: True)


def lax_json(patch: Patch) -> None:
    """What cannot be read twice alike is taken."""
    patch.setattr("runner.strict_json._refuse", lambda *_: None)


def open_grader(patch: Patch) -> None:
    """The grader starts as any Python, with a PATH."""

    def spec(**given: Any) -> Any:
        made = sealed_spec(**given)
        words = [word for word in made.argv if word not in ("-s", "-P", "-S")]
        return made.model_copy(update={"argv": tuple(words), "env": {**made.env, "PATH": "/usr/bin"}})

    patch.setattr("runner.grade.profile_host.sealed_spec", spec)


def default_signals(patch: Patch) -> None:
    """The command takes no signal over, so the kernel's own end is all there is."""
    patch.setattr(
        signals,
        "PROGRAM",
        (
            "-c",
            "import runner.cli, sys; runner.cli.INTERRUPTS.install = lambda: None; sys.argv[0] = 'x'; runner.cli.main()",
        ),
    )


SWITCHES: dict[str, Callable[[Patch], None]] = {
    "gate: policy on heads": any_head,
    "gate: policy on bodies": any_body,
    "gate: headers are made anew": any_headers,
    "gate: deadlines": no_deadline,
    "gate: redaction": no_redaction,
    "gate: ceilings": no_ceilings,
    "collector: links are not followed": followed_links,
    "staged copies: links and special files are refused": links_pass,
    "staged copies: digest before and after": one_digest,
    "staged copies: no repository": repository,
    "escapes": no_escapes,
    "strict JSON": lax_json,
    "sealed grader": open_grader,
    "signals": default_signals,
}


def test_the_table_is_whole() -> None:
    """Every probe of the runner's own parts is held by a layer of the table; every layer is turned off here, or says why it cannot be."""
    elsewhere = {45}  # the network namespace holds it
    assert set(PROBES) - elsewhere == {number for layer in LAYERS for number in layer.probes}
    assert {layer.name for layer in LAYERS if layer.shown_by} == SWITCHES.keys()
    assert all(bool(layer.shown_by) != bool(layer.because) for layer in LAYERS)
    assert all({*layer.shown_by} <= {*layer.probes} for layer in LAYERS)


@pytest.mark.parametrize("layer", [layer for layer in LAYERS if layer.shown_by], ids=lambda layer: layer.name)
def test_without_a_layer_its_probes_fail(layer: Layer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each probe that shows it comes out as a hole, which is no failure to try it. (That they hold with it is tests/hold/test_hold_probes.py.)"""
    site = Site(find_host())
    SWITCHES[layer.name](monkeypatch)
    results = list(try_all([PROBES[number] for number in layer.shown_by], site))
    assert {result.probe.number: result.status for result in results} == dict.fromkeys(layer.shown_by, "hole"), [
        result.as_json() for result in results
    ]
    assert [result.cause for result in results if "could not be tried" in result.cause] == []


def test_without_the_look_at_its_mode_a_set_user_id_bubblewrap_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probe 8 is held by one look."""
    probe, act = DOCTOR[8]
    monkeypatch.setattr("sandbox.doctor.stat", types.SimpleNamespace(S_ISUID=0, S_ISGID=0))
    (result,) = try_all([(replace(probe), act)], Site(find_host()))
    assert isinstance(result.probe, Probe)
    assert result.status == "hole"
