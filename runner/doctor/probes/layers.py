"""The layers of gate, collector, readers and grader as data: which probes each holds, which others overlap it, and which of its probes fails without it.

Boundary: pure. Not here: the layers of the sandbox (sandbox/probes/layers.py), turning one off: each is a function or a table of the runner's, for which tests/hold puts another in place.
Rules: as there. ``because`` says why one cannot be turned off.
"""

from __future__ import annotations

from sandbox.probes.layers import Layer

LAYERS = (
    Layer("gate: policy on heads", (33, 34, 35, 37, 38, 40), ("gate: request parser",), shown_by=(35,)),
    Layer("gate: policy on bodies", (43,), shown_by=(43,)),
    Layer("gate: headers are made anew", (38,), shown_by=(38,)),
    Layer("gate: deadlines", (41,), shown_by=(41,)),
    Layer("gate: redaction", (44,), shown_by=(44,)),
    Layer("gate: ceilings", (42,), shown_by=(42,)),
    Layer("gate: request parser", (36, 39), ("gate: policy on heads",), because="it is what reads a request at all; the forms that it refuses are tried one by one (tests/gate/test_gate_abuse.py)"),
    Layer("collector: links are not followed", (62, 63, 64, 66, 67), shown_by=(62,)),
    Layer("staged copies: links and special files are refused", (27, 76), shown_by=(76,)),
    Layer("staged copies: digest before and after", (75,), shown_by=(75,)),
    Layer("staged copies: no repository", (72,), shown_by=(72,)),
    Layer("staged copies: data and nothing else", (78,), because="nothing here starts what a skill names, so there is nothing to turn off"),
    Layer("escapes", (65, 70), shown_by=(65, 70)),
    Layer("strict JSON", (69,), shown_by=(69,)),
    Layer("bundle reader", (68,), because="it unpacks its own format only; there is no code for another to turn on"),
    Layer("sealed grader", (71,), shown_by=(71,)),
    Layer("signals", (61,), ("supervisor",), shown_by=(61,)),
)  # fmt: skip
