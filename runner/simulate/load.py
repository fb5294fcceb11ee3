"""Reading a contract, and laying a fixture's additions over it (B14).

Boundary: pure but for ``load_contract`` and ``contract_of``, which read one file beside the fixtures. Not here: what stands in it (contract.py).
Rules: whatever is wrong is found before anything is paid, as a ContractInvalid or a FixtureInvalid with the JSON pointer. Both hold fictional addresses only (B4).
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from runner.canonical import canonical_json
from runner.errors import ContractInvalid, FixtureInvalid, InputMissing
from runner.fiction import real_addresses
from runner.schema_words import first_complaint
from runner.simulate.contract import NEEDS, Contract, ContractFile, Seed, Simulation, Tool
from runner.strict_json import StrictJsonError, escape, parse_strict, walk

MAX_BYTES = 1 << 20
MAX_DEPTH = 24
FOLDER = "contracts"
"""Beside the fixtures."""


def parse_contract(data: bytes, name: str) -> ContractFile:
    """Parse a contract file.

    Raises: ContractInvalid, with the JSON pointer.
    """
    where = f"{name}.json"
    try:
        raw = parse_strict(data, max_bytes=MAX_BYTES, max_depth=MAX_DEPTH)
        canonical_json(raw)
    except StrictJsonError as error:
        raise ContractInvalid(error.message, where=f"{where}#{error.pointer}") from error
    except ValueError as error:
        raise ContractInvalid(str(error), where=where) from error
    try:
        contract = ContractFile.model_validate_json(data)
    except ValidationError as error:
        pointer, words, hint = first_complaint(error, ContractFile)
        raise ContractInvalid(words, where=f"{where}#{pointer}", hint=hint) from error
    for pointer, held in walk(raw):
        if isinstance(held, str) and (real := next(real_addresses(held), None)) is not None:
            raise ContractInvalid(f"{real!r} is not fictional", where=f"{where}#{pointer}")
    for index, tool in enumerate(contract.tools):
        if tool.name in {other.name for other in contract.tools[:index]}:
            raise ContractInvalid(f"the tool {tool.name!r} stands there twice", where=f"{where}#/tools/{index}/name")
        problem = _schema_problem(tool)
        if problem is not None:
            raise ContractInvalid(problem, where=f"{where}#/tools/{index}/input_schema")
    return contract


def load_contract(folder: Path, name: str) -> ContractFile:
    """Read ``<folder>/<name>.json``.

    Raises: InputMissing, ContractInvalid.
    """
    path = folder / f"{name}.json"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        raise InputMissing(f"the contract cannot be read: {error.strerror}", where=str(path)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputMissing("the contract is not a regular file", where=str(path))
    with os.fdopen(descriptor, "rb") as file:
        return parse_contract(file.read(MAX_BYTES + 1), name)


def parse_simulation(value: object, fixture: str) -> Simulation:
    """Read a fixture's ``simulation`` object.

    Raises: FixtureInvalid, with the JSON pointer.
    """
    where = f"{fixture}.json#/simulation"
    try:
        canonical_json(value)
        simulation = Simulation.model_validate_json(json.dumps(value))
    except ValidationError as error:
        pointer, words, hint = first_complaint(error, Simulation)
        raise FixtureInvalid(words, where=f"{where}{pointer}", hint=hint) from error
    except ValueError as error:
        raise FixtureInvalid(str(error), where=where) from error
    if len(set(simulation.doors)) != len(simulation.doors):
        raise FixtureInvalid("a door stands there twice", where=f"{where}/doors")
    return simulation


def resolve(file: ContractFile, simulation: Simulation, fixture: str) -> Contract:
    """Lay a fixture's additions over the contract: what has the same key is replaced, faults come first.

    Raises: FixtureInvalid for additions that do not fit together.
    """
    where = f"{fixture}.json#/simulation"
    seed = Seed(
        tickets=file.state.tickets | simulation.tickets,
        comments=file.state.comments | simulation.comments,
        files=file.state.files | simulation.files,
    )
    faults = (*simulation.faults, *file.faults)
    for ticket in seed.comments:
        if ticket not in seed.tickets:
            raise FixtureInvalid(f"there is no ticket {ticket!r}", where=f"{where}/comments/{escape(ticket)}")
    for ticket, fields in seed.tickets.items():
        if "id" in fields:
            raise FixtureInvalid("a ticket's id is its key", where=f"{where}/tickets/{escape(ticket)}/id")
    known = {tool.name for tool in file.tools}
    for index, fault in enumerate(faults):
        if fault.tool not in known:
            raise FixtureInvalid(f"there is no tool {fault.tool!r}", where=f"{where}/faults/{index}/tool")
        if fault.id in {other.id for other in faults[:index]}:
            raise FixtureInvalid(f"the fault {fault.id!r} stands there twice", where=f"{where}/faults/{index}/id")
        if (fault.kind == "slow") != (fault.delay_ms > 0):
            raise FixtureInvalid(
                "delay_ms goes with a slow fault, and only there", where=f"{where}/faults/{index}/delay_ms"
            )
    resolved = Contract(
        name=simulation.contract,
        server=file.server,
        root=file.root,
        author=file.author,
        instructions=file.instructions,
        doors=tuple(sorted(simulation.doors)),
        tools=file.tools,
        state=seed,
        faults=faults,
    )
    # As the attempt keeps it: the order of a file's keys stands in answers, and a reproduction has only the canonical form.
    return Contract.model_validate_json(resolved.canonical())


def contract_of(simulation: object, folder: Path, fixture: str) -> Contract | None:
    """Return the contract of a fixture's ``simulation`` (None: it has none); ``folder`` is the fixtures folder.

    Raises: FixtureInvalid, ContractInvalid, InputMissing.
    """
    if simulation is None:
        return None
    parsed = parse_simulation(simulation, fixture)
    return resolve(load_contract(folder / FOLDER, parsed.contract), parsed, fixture)


def _schema_problem(tool: Tool) -> str | None:
    """Return what is wrong with a tool's input schema, or None. A reference could make the validator look elsewhere, so there is none."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    schema: Any = tool.input_schema
    for _, held in walk(schema):
        if isinstance(held, dict) and any(key in held for key in ("$ref", "$dynamicRef", "$schema", "$id")):
            return "a schema stands alone: no $ref, $dynamicRef, $schema or $id"
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return f"no JSON schema: {error.message[:300]}"
    if schema.get("type") != "object" or schema.get("additionalProperties") is not False:
        return "the schema says type object and additionalProperties false"
    for name in NEEDS[tool.operation]:
        property_ = schema.get("properties", {}).get(name)
        if (
            not isinstance(property_, dict)
            or property_.get("type") != "string"
            or name not in schema.get("required", ())
        ):
            return f"the operation {tool.operation} needs the required text {name!r}"
    return None
