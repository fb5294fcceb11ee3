"""Every reader of foreign bytes: any bytes give a value or the one declared error (issue 4, acceptance 4; probes 65, 68 and 69)."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.__main__ import Found, try_apart
from tests.fuzz.mutate import MAX_BYTES, grown, mutate
from tests.fuzz.target import Read, Reader, Target
from tests.fuzz.targets import TARGETS, one

NAMES = [target.name for target in TARGETS]
ALL = pytest.mark.parametrize("name", NAMES)
SLICE_S = 60 / len(TARGETS)
"""Processor time that a reader's slice of the seeded inputs may take: a minute for all."""
reader = cache(one)


@ALL
def test_the_samples_are_read(name: str) -> None:
    """The control: what the inputs are made from is taken, at least in part, so that an error is about what was changed."""
    target = reader(name).target
    assert any(reader(name)(sample) for sample in target.samples())


@ALL
@settings(max_examples=25)
@given(chance=st.randoms(use_true_random=False))
def test_any_input_is_a_value_or_the_declared_error(name: str, chance: Random) -> None:
    """Whatever is wrong with a sample, nothing else comes out, and a counterexample is made small."""
    reader(name)(reader(name).target.input(chance))


@ALL
def test_a_slice_of_the_many(name: str) -> None:
    """The seeded inputs of ``python -m tests.fuzz``, as many as its part of a minute takes: no crash, no hang, no memory kept."""
    target = reader(name).target
    found = try_apart(target, 100_000, 1, seconds=SLICE_S)
    assert found.faults == []
    assert found.inputs > 0


def _found(target: Target, **more: int) -> Found:
    return try_apart(target, more.get("inputs", 50), 1)


def _target(read: Read, **fields: Any) -> Target:
    return Target("x", "text", lambda: (b"sample",), lambda: read, **fields)


def test_faults_are_seen() -> None:
    """The controls of the counting: an error that is not declared, one that says that it is a defect, a hang, and memory that is kept."""

    class Declared(Exception):
        code = "x"

    class Bug(Declared):
        code = "internal"

    def fail(error: type[Exception]) -> Read:
        def read(data: bytes) -> None:
            raise error

        return read

    kept: list[bytes] = []

    def keep(data: bytes) -> None:
        kept.append(b"x" * (1 << 20))

    declared = {"declared": lambda: (Declared,)}
    assert _found(_target(fail(Declared), **declared)).faults == []
    assert _found(_target(fail(Declared), **declared)).declared == 50
    assert "KeyError" in _found(_target(fail(KeyError), **declared)).faults[0]
    assert "Bug" in _found(_target(fail(Bug), **declared)).faults[0]
    assert any("more than after" in fault for fault in _found(_target(keep), inputs=100).faults)


def test_kept_memory_is_seen_beside_memory_that_is_free() -> None:
    """A process that had more before, and holds its pages still, does not hide what a reader keeps now."""
    kept: list[bytes] = []
    # glibc takes blocks up to the largest that was ever freed from its heap, and gives the heap back from its end only.
    freed = bytes(31 << 20)
    del freed
    many = [b"y" * (1 << 20) for _ in range(200)]
    last = b"z" * (1 << 20)
    del many
    found = _found(_target(lambda _: kept.append(b"x" * (1 << 20))), inputs=100)
    assert any("more than after" in fault for fault in found.faults)
    assert last


def test_a_hang_and_a_growth_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """An input that takes for ever, and a reader whose time grows with the square, are told."""
    import tests.fuzz.__main__ as fuzz

    monkeypatch.setattr(fuzz, "HANG_S", 0.2)

    def for_ever(data: bytes) -> None:
        while True:
            pass

    def square(data: bytes) -> None:
        for _ in range(0, len(data), 4096):
            data.count(b"\0") + data.count(b"\1")

    monkeypatch.setattr(fuzz, "SMALL", 256 << 10)
    monkeypatch.setattr(fuzz, "LARGE", 2 << 20)
    assert "hangs" in _found(_target(for_ever, grows=False), inputs=1).faults[0]
    monkeypatch.setattr(fuzz, "HANG_S", 20.0)
    monkeypatch.setattr(fuzz, "grown", lambda samples, size: iter([bytes(size)]))
    assert any("times as long" in fault for fault in _found(_target(square), inputs=1).faults)


@pytest.mark.parametrize("form", ["bytes", "text", "json", "lines"])
def test_inputs_are_the_same_for_a_seed_and_differ_otherwise(form: str) -> None:
    """One seed, one sequence; it holds many different inputs, none too large."""
    samples = (b'{"a": [1, "b", {"c": null}]}\n{"d": true}', b'{"e": "f"}')

    def made(seed: int) -> list[bytes]:
        chance = Random(seed)
        return [mutate(samples, form, chance) for _ in range(200)]  # type: ignore[arg-type]

    assert made(1) == made(1) != made(2)
    assert len(set(made(1))) > 150
    assert all(len(data) <= MAX_BYTES for data in made(1))
    assert all(abs(len(data) - 4096) < 300 for data in grown(samples, 4096))


def test_a_new_reader_has_a_name_of_its_own() -> None:
    """The names are what faults and figures are found by."""
    assert len(set(NAMES)) == len(NAMES)
    assert isinstance(one(NAMES[0]), Reader)
