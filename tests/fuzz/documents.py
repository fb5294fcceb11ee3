"""Readers of documents: what authors, graders, judges and the machine hand in.

Boundary: as targets.py. Not here: what a run leaves (evidence.py).
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from tests.fuzz.evidence import with_file
from tests.fuzz.samples import ROOT, files
from tests.fuzz.target import Read


def read_fixture() -> Read:
    """A fixture."""
    from runner.fixture import parse_fixture

    def read(data: bytes) -> None:
        name = re.search(rb'"id": ?"([a-z0-9-]+)"', data)  # the file's name, which must be the fixture's id
        parse_fixture(data, name[1].decode() if name else "x").as_json()

    return read


def read_contract() -> Read:
    """A simulator's contract."""
    from runner.simulate.load import parse_contract

    return lambda data: parse_contract(data, "ticketing")


def read_simulation() -> Read:
    """The ``simulation`` of a fixture."""
    from runner.simulate.load import parse_simulation

    return lambda data: parse_simulation(json.loads(data), "x")


@cache
def simulations() -> tuple[bytes, ...]:
    """Those of the shipped fixtures."""
    found = [json.loads(data).get("simulation") for data in files("fixtures/*.json")]
    return tuple(json.dumps(value).encode() for value in found if value is not None)


def read_script() -> Read:
    """A scripted provider's script."""
    from runner.gate.script import parse_script

    return lambda data: parse_script(data, "x")


def read_skill() -> Read:
    """A SKILL.md, of a skill or a recipe: front matter and body."""
    from runner.claude.body import body_matches
    from runner.skill_text import parse_skill_text

    def read(data: bytes) -> None:
        text = parse_skill_text(data)
        for attribute in ("forks", "commands", "fixed_text"):
            getattr(text, attribute)
        text.text("name")
        body_matches(text.body, text.body[:2000])

    return read


def read_profile_answer() -> Read:
    """What a profile's worker says to its host, and the host to the runner."""
    from runner.grade.answers import parse_answer
    from runner.grade.host import read_answer

    return lambda data: parse_answer(read_answer(data), trace_length=3)


PROFILE_ANSWERS = (
    json.dumps(
        {
            "checks": [{"id": "a", "met": True, "reason": "yes"}, {"id": "b", "met": False, "reason": "no"}],
            "diagnostics": [
                {"id": "d", "category": "call-recovery", "severity": "warning", "reason": "w", "calls": [0, 1]}
            ],
            "repeatable": True,
        }
    ).encode(),
    b'{"checks": [{"id": "a", "met": true, "reason": "y"}], "diagnostics": null, "repeatable": true}',
    b'{"fault": "raised", "message": "ValueError: x"}',
)


def read_reply() -> Read:
    """A line of a grading program: which question it answers, and the answer."""
    from runner.grade.conversation import answer_to

    return lambda data: answer_to(data, "results", seq=1, attempt_id="abc")


@cache
def _asked() -> Any:
    from runner.fixture import parse_fixture
    from runner.grade.answers import CheckResult
    from runner.grade.assertions import Criterion, ask

    case = {
        "id": "x", "synthetic": True, "profile": "artifact", "skill": "cf", "input": {}, "rubric": [{"id": "kept", "criterion": "Is kept."}],
        "assert": [{"type": "contains", "value": "x"}, {"type": "not-contains", "value": "y"}],
    }  # fmt: skip
    return ask(
        [CheckResult("a", True, "yes")],
        parse_fixture(json.dumps(case).encode(), "x"),
        (Criterion("kept", "Is kept.", True, "so"),),
    )


def read_promptfoo_results() -> Read:
    """What Promptfoo gives back."""
    from runner.grade.assertions import read_results

    def read(data: bytes) -> None:
        results = json.loads(data)
        for blank in (False, True):
            read_results(_asked(), results, blank=blank)

    return read


@cache
def promptfoo_results() -> tuple[bytes, ...]:
    """What it gives back where all is well."""
    rows = [
        {"group": one.group, "id": one.id, "pass": True if one.expected is None else one.expected, "reason": "ok"}
        for one in _asked()
    ]
    return (json.dumps(rows).encode(),)


def read_judge_answer() -> Read:
    """What a judge says."""
    from runner.grade.judge_answer import parse_answer

    return lambda data: parse_answer(data.decode("utf-8", "surrogateescape"), ("kept", "plain"))


JUDGE_ANSWERS = tuple(
    text.encode()
    for text in (
        '{"criteria": [{"id": "kept", "met": true, "reason": "It says so."}, {"id": "plain", "met": false, "reason": "Long words."}]}',
        '```json\n{"criteria": [{"id": "plain", "met": true, "reason": "é"}, {"id": "kept", "met": true, "reason": "x"}]}\n```',
        "I cannot judge this.",
    )
)


def read_evaluation() -> Read:
    """An evaluation that lies beside an attempt, as a report shows it."""
    from runner.report.bounds import SHORT
    from runner.report.saved import read_evaluation as shown

    def read(data: bytes) -> None:
        value = json.loads(data)
        if isinstance(value, dict):
            shown(value, {"kept": "Is kept."}, SHORT)

    return read


@cache
def evaluations() -> tuple[bytes, ...]:
    """One with everything in it."""
    points = [{"id": "a", "met": True, "reason": "yes", "source": "profile", "type": ""}]
    votes = [{"vote": 1, "model": "sonnet", "criteria": points, "error": None, "attempt": "0" * 64, "cost_usd": "0.01"}]
    return (
        json.dumps(
            {
                "format": "hermeval-evaluation", "schema_version": 1, "attempt": "0" * 64, "fixture": "x", "verdict": "pass", "message": "1 of 1", "error": None,
                "inputs": {"profile": "artifact", "judges": ["0" * 64]}, "grader": {"promptfoo": {"version": "1", "nar_sha256": "sha256-x"}}, "checks": points,
                "criteria": points, "not_judged": ["b"], "judge": {"rule": "unanimous", "votes": votes}, "diagnostics": [{"id": "d", "category": "call-recovery",
                "severity": "warning", "reason": "w", "calls": [1]}], "call_quality": {"status": "clean"}, "effort": {"rounds": 2}, "negative_control": None,
            }
        ).encode(),
    )  # fmt: skip


def read_command() -> Read:
    """A request of the simulated service's command, carried out."""
    from runner.simulate.command_door import command_answer, parse_command
    from runner.simulate.load import contract_of
    from runner.simulate.machine import begin, step

    contract = contract_of(json.loads(simulations()[0]), ROOT / "fixtures", "x")

    assert contract is not None

    def read(data: bytes) -> None:
        call = parse_command(data)
        if call is not None:
            command_answer(step(contract, begin(contract), call).answer)

    return read


COMMANDS = (
    b'call\nticket_comment\n{"ticket": "DESK-7", "body": "x"}',
    b"list\n\n",
    b"schema\nticket_comment\n",
    b'call\nticket_read\n{"ticket":"DESK-7"}',
)


def read_wire_file() -> Read:
    """A file of exchanges for ``show --wire``."""
    from runner.claude.wirefile import read_wire_file as parse

    return lambda data: parse(data, "w")


def read_strict() -> Read:
    """JSON as contracts and attempts of version 1 are read."""
    from runner.strict_json import parse_strict, walk

    return lambda data: list(walk(parse_strict(data, max_bytes=1 << 20, max_depth=64)))


def read_canonical() -> Read:
    """JSON in its canonical form."""
    from runner.canonical import parse_canonical, parse_strict

    def read(data: bytes) -> None:
        parse_strict(data)
        parse_canonical(data)

    return read


def read_prices() -> Read:
    """The table of prices."""
    from runner.gate.prices import parse_prices

    return parse_prices


def read_lock() -> Read:
    """The toolchain's lock."""
    from runner.toolchain_lock import load_lock

    return with_file(load_lock)


def read_pins() -> Read:
    """What the flake pins."""
    from sandbox.pinned import parse_pins

    return parse_pins


PINS = (
    json.dumps(
        {
            "schema_version": 1, "system": "x86_64-linux", "store": "/nix/store", "trees": {"agent": "/nix/store/a", "grader": "/nix/store/g"},
            "programs": {"bwrap": "/nix/store/b/bin/bwrap", "python": "/nix/store/p/bin/python3", "ssh_keygen": "/nix/store/s/bin/ssh-keygen"},
            "loader": "/nix/store/l/ld.so", "libraries": ["/nix/store/l/lib"], "rootfs": "/nix/store/r/description.json", "determinism": "/nix/store/d",
        }
    ).encode(),
)  # fmt: skip


def read_description() -> Read:
    """The description of a pinned root file system."""
    from sandbox.rootfs import parse_description

    return parse_description


DESCRIPTIONS = (
    json.dumps(
        {
            "schema_version": 1, "kind": "nix", "store": "/nix/store", "links": {"/bin": "/nix/store/" + "a" * 32 + "-bash/bin"},
            "closure": {"/nix/store/" + "a" * 32 + "-bash": "sha256-" + "A" * 43 + "="},
        }
    ).encode(),
    b'{"schema_version": 1, "kind": "host", "reason": "x"}',
)  # fmt: skip


def read_status() -> Read:
    """What bwrap writes to its status descriptor, as the supervisor reads it."""
    import importlib
    import sys

    sys.path.append(str(ROOT / "sandbox"))  # the supervisor's modules are no package: they import one another by name
    member = importlib.import_module("box").member
    sys.path.pop()
    return lambda data: (member(data, b'"child-pid"'), member(data, b'"exit-code"'))


STATUS = (b'{ "child-pid": 4711, "cgroup-namespace": 4026531835 }\n{ "exit-code": 0 }\n', b'{"child-pid":2}\n')


def read_complaint() -> Read:
    """What bwrap says on its stderr."""
    from sandbox.diagnose import explain

    return explain


COMPLAINTS = (
    b"bwrap: setting up uid map: Permission denied\n",
    b"bwrap: Can't mount proc on /newroot/proc: Operation not permitted\n",
    b"bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted\n",
    b"bwrap: Creating new namespace failed: No space left on device\n",
)


def read_uid_map() -> Read:
    """A user namespace's map."""
    from sandbox.identity import parse_uid_map

    return lambda data: parse_uid_map(data.decode("utf-8", "replace")).outer(1000)


@cache
def _entry() -> Any:
    """The hardened runner's program, which is no module of a package."""
    import importlib.util
    import sys

    spec = importlib.util.spec_from_file_location("hermeval_fuzzed_entry", ROOT / "ci" / "runner" / "entry.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def read_runner_request() -> Read:
    """A request to the hardened runner's service."""
    return lambda data: _entry().parse_request(data)


def runner_errors() -> tuple[type[BaseException], ...]:
    """What that program declares."""
    return (_entry().RequestInvalid,)


RUNNER_REQUESTS = (
    json.dumps(
        {
            "schema_version": 1, "do": "run", "fixtures": ["missing-account"], "files": [{"path": "missing-account.json", "content": "e30=", "executable": True}],
            "repeat": 2, "provider": "scripted", "launch": "lean", "max_usd": "0.5", "timeout_s": 60, "model": "sonnet", "grade": True, "judge": False,
        }
    ).encode(),
    b'{"schema_version": 1, "do": "doctor"}',
)  # fmt: skip


def read_signature() -> Read:
    """A signature beside an attempt."""
    from runner.signing.armor import parse_signature

    return parse_signature


@cache
def signatures() -> tuple[bytes, ...]:
    """One of the right form."""
    from runner.signing.armor import armored

    fields = (
        b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + bytes(32),
        b"hermeval-attempt@v1",
        b"",
        b"sha512",
        b"\0\0\0\x0bssh-ed25519\0\0\0\x40" + bytes(64),
    )
    blob = b"SSHSIG\0\0\0\x01" + b"".join(len(one).to_bytes(4, "big") + one for one in fields)
    return (armored(blob),)


def read_version1() -> Read:
    """An attempt of version 1."""
    from runner.bundle.version1 import read_version1 as parse

    return with_file(parse)


def read_index() -> Read:
    """The index of recorded exchanges."""
    from runner.bundle.exchanges import exchanges_from
    from runner.canonical import parse_strict

    return lambda data: exchanges_from(parse_strict(data), lambda name: b"x")


def read_encoded() -> Read:
    """A compressed body of a response."""
    from runner.gate.redact import decode

    return lambda data: [decode(data, encoding) for encoding in ("gzip", "deflate", "zstd", "br", "gzip,gzip", "x")]


@cache
def encoded() -> tuple[bytes, ...]:
    """Small bodies, compressed, and one that is large when it is not."""
    import gzip
    import zlib

    import zstandard

    text = b"data: {}\n\n" * 30
    bomb = gzip.compress(bytes(1 << 20), mtime=0)
    return (gzip.compress(text, mtime=0), zlib.compress(text), zstandard.ZstdCompressor().compress(text), bomb)


def read_graph() -> Read:
    """The graph of a closure, as Nix exports it."""
    from runner.describe_rootfs import parse_graph

    return lambda data: parse_graph(data.decode("utf-8", "replace"))


GRAPHS = (b"/nix/store/a\n\n2\n/nix/store/b\n/nix/store/c\n/nix/store/b\n/nix/store/a\n0\n/nix/store/c\n\n0\n",)


UID_MAPS = (b"         0          0 4294967295\n", b"0 1000 1\n1 100000 65536\n")


@cache
def replies() -> tuple[bytes, ...]:
    """A grading program's answers."""
    return (json.dumps({"seq": 1, "attempt": "abc", "results": [{"pass": True}]}).encode(),)
