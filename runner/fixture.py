"""Reading fixtures: bytes of one case on disk become a ``Fixture``, or a refusal with its JSON pointer (B1–B5, A4).

Boundary: ``parse_fixture`` is pure; ``load_fixture`` and ``list_fixtures`` read files at the paths that they are given.
Not here: the fields (envelope.py), the profile's own rules (profile.py), whether the skill exists (lint.py), the prompt (prompt.py).
Rules: a fixture is data of the evaluated side and trusted in nothing; every refusal is a FixtureInvalid with the file and the JSON pointer.
"""

from __future__ import annotations

import json
import os
import re
import stat
from decimal import Decimal
from pathlib import Path

from pydantic import ValidationError

from runner.envelope import IN_WORDS, Fixture
from runner.errors import FixtureInvalid, InputMissing
from runner.fiction import real_addresses
from runner.schema_words import first_complaint
from runner.strict_json import StrictJsonError, escape, parse_strict, walk

__all__ = ["MAX_BYTES", "MAX_DEPTH", "Fixture", "list_fixtures", "load_fixture", "parse_fixture"]

MAX_BYTES = 1 << 20
MAX_DEPTH = 32


def parse_fixture(data: bytes, name: str) -> Fixture:
    """Parse one fixture; ``name`` is its file name without ``.json`` and must equal its ``id``.

    Raises: FixtureInvalid for anything wrong, with ``where`` = ``<name>.json#<JSON pointer>``.
    """
    try:
        raw = parse_strict(data, max_bytes=MAX_BYTES, max_depth=MAX_DEPTH)
    except StrictJsonError as error:
        raise _invalid(name, error.pointer, error.message) from error
    try:
        fixture = Fixture.model_validate_json(json.dumps(raw))
    except ValidationError as error:
        raise _invalid(name, *first_complaint(error, Fixture, IN_WORDS)) from error
    fixture = fixture.with_source(data)
    _check_envelope(fixture, name)
    _check_assertions(fixture, name)
    _check_texts(fixture, name)
    return fixture


def load_fixture(path: Path) -> Fixture:
    """Read and parse ``<id>.json``.

    Raises: InputMissing if there is no readable regular file; FixtureInvalid.
    """
    if path.suffix != ".json":
        raise FixtureInvalid("a fixture's file name ends in .json", where=str(path))
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        raise InputMissing(
            f"the fixture cannot be read: {error.strerror}",
            where=str(path),
            hint="name an id of the fixtures folder, or a path",
        ) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputMissing("the fixture is not a regular file", where=str(path))
    with os.fdopen(descriptor, "rb") as file:
        return parse_fixture(file.read(MAX_BYTES + 1), path.stem)


def list_fixtures(folder: Path) -> tuple[Path, ...]:
    """Return the fixtures of a folder (not of its subfolders), in order of their ids.

    Raises: InputMissing if the folder cannot be read.
    """
    try:
        return tuple(
            sorted(
                (path for path in folder.iterdir() if path.suffix == ".json" and not path.name.startswith(".")),
                key=lambda path: path.stem,
            )
        )
    except OSError as error:
        raise InputMissing(f"the fixtures folder cannot be read: {error.strerror}", where=str(folder)) from error


def _check_envelope(fixture: Fixture, name: str) -> None:
    """Check the rules that no single field can say."""
    if fixture.id != name:
        raise _invalid(name, "/id", f"the id is {fixture.id!r}, the file is called {name!r}; they must be equal")
    for pointer, values in (
        ("/references", fixture.references),
        ("/recipes", fixture.recipes),
        ("/rubric", tuple(criterion.id for criterion in fixture.rubric)),
    ):
        for index, value in enumerate(values):
            if value in values[:index]:
                raise _invalid(name, f"{pointer}/{index}", f"{value!r} stands there twice")
    if fixture.reference is not None and fixture.form != "direct":
        raise _invalid(name, "/invocation", f"a reference is applied directly, with no {fixture.form}")
    if fixture.reference is None and fixture.form == "direct":
        raise _invalid(name, "/invocation", "only a reference (<skill>/references/<file>.md) can be applied directly")
    if fixture.skill in fixture.references:
        raise _invalid(
            name,
            f"/references/{fixture.references.index(fixture.skill)}",
            "the unit under test needs no mention among its references",
        )
    for field, amount in (("worker", fixture.worker.max_usd), ("judge", fixture.judge.max_usd)):
        if amount is not None and Decimal(amount) == 0:
            raise _invalid(name, f"/{field}/max_usd", "a ceiling of 0 allows no request")
    if fixture.task is not None and not re.match(r"[^\W_]", fixture.task):
        raise _invalid(
            name,
            "/task",
            "the task begins with a letter or a digit: a prompt that begins with '/', '-' or a blank is read in another way",
        )


def _check_assertions(fixture: Fixture, name: str) -> None:
    """Check the rules of ``assert`` that need more than one field."""
    ids = [fixture.assertion_id(number) for number in range(len(fixture.assertions))]
    for number, assertion in enumerate(fixture.assertions):
        pointer = f"/assert/{number}"
        if ids[number] in ids[:number]:
            raise _invalid(name, f"{pointer}/metric", f"{ids[number]!r} stands there twice")
        if assertion.lacks_value:
            raise _invalid(name, pointer, f"{assertion.type} compares with a value, which is missing")
        if assertion.base_type in ("cost", "latency") and assertion.threshold is None:
            raise _invalid(name, pointer, f"{assertion.type} compares with a threshold, which is missing")
        if assertion.base_type == "javascript" and not isinstance(assertion.value, str):
            raise _invalid(name, f"{pointer}/value", "javascript is given as text")
        if assertion.base_type == "llm-rubric":
            if fixture.criterion_of(assertion) is None:
                raise _invalid(
                    name, f"{pointer}/value", "the judge sees the rubric only: name a criterion's id or its whole text"
                )
            if assertion.threshold is not None:
                raise _invalid(name, f"{pointer}/threshold", "a criterion is met or not; there is nothing to compare")


def _check_texts(fixture: Fixture, name: str) -> None:
    """Check what texts may hold: fictional addresses only (B4), and no command tags where the prompt is made from (A4)."""
    raw = fixture.as_json()
    code = {f"/assert/{at}/value" for at, one in enumerate(fixture.assertions) if one.base_type == "javascript"}
    for field in ("task", "input", "rubric", "expect", "assert", "simulation"):
        for pointer, text in _texts(raw.get(field), f"/{field}"):
            real = None if pointer in code else next(real_addresses(text), None)  # output.name is no address
            if real is not None:
                message = f"{real!r} is not fictional: service addresses and e-mail domains end in .invalid"
                raise _invalid(
                    name,
                    pointer,
                    message,
                    hint="write it with a host that ends in .invalid, or use a documentation address such as 192.0.2.1",
                )
            if field in ("task", "input") and re.search(r"</?command-", text, re.IGNORECASE):
                raise _invalid(
                    name,
                    pointer,
                    "the text holds a command tag such as <command-name>, which would replay exactly like a loaded skill",
                )


def _texts(value: object, pointer: str) -> list[tuple[str, str]]:
    found = []
    for at, held in walk(value, pointer):
        if isinstance(held, str):
            found.append((at, held))
        elif isinstance(held, dict):
            found.extend((f"{at}/{escape(key)}", key) for key in held)
    return found


def _invalid(name: str, pointer: str, message: str, hint: str = "") -> FixtureInvalid:
    return FixtureInvalid(message, where=f"{name}.json#{pointer}", hint=hint)
