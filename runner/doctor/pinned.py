"""Whether this host can pin: the same run done twice, with a sub-agent, a date, random names and a kernel in it, and its requests compared byte for byte.

Boundary: starts runs whose attempts are thrown away. Not here: opening the machine and printing (runner/cli/pinned.py), what pinning is (runner/pinned.py, sandbox/determinism).
Rules: it is proved by doing it, and the control shows that the comparison would have seen a difference: another seed must give other bytes. No model call is made, nothing is left.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.difference import text_difference
from runner.doctor.check import Check, failed_by, not_tried
from runner.errors import ReproduceImpossible, RunnerError
from runner.pinned import DEFAULT_DATE, RELEASE

if TYPE_CHECKING:
    from runner.conduct import Machine

PARTS = ("pinned-parts", "The two small programs of pinned runs are there, or can be made")
RUN = ("pinned-run", "A pinned run, the real CLI with a sub-agent on a scripted provider, is measured")
WORLD = ("pinned-world", "The CLI, its sub-agent and their programs see the pinned date and kernel")
TWICE = ("pinned-twice", "The same run again makes the same requests, byte for byte")
SEED = ("pinned-seed", "Control: another seed makes other requests")
MOST_RUNS = 5
_SEEDS = ("00" * 32, "5a" * 32)
_SKILL = "---\nname: note\ndescription: Drafts a note.\n---\n# Note\n\nWrite one line.\n"
_LOOK = "date +%F; uname -r; mktemp -u"
_FIXTURE = {
    "id": "pinned-doctor",
    "synthetic": True,
    "profile": "artifact",
    "skill": "note",
    "references": [],
    "invocation": "slash",
    "task": "Draft the note.",
    "input": {"facts": ["The export writes dates as year, month, day."]},
    "rubric": [{"id": "facts-only", "criterion": "Says nothing that the facts do not say."}],
}


def _call(name: str, number: str, **arguments: str) -> dict[str, Any]:
    return {"message": {"content": [{"type": "tool_use", "id": number, "name": name, "input": arguments}]}}


def _text(text: str) -> dict[str, Any]:
    return {"message": {"content": [{"type": "text", "text": text}]}}


def _script() -> dict[str, Any]:
    agent = {"description": "look", "prompt": "Look at the surroundings.", "subagent_type": "general-purpose"}
    replies = {
        "main": (_call("Bash", "toolu_1", command=_LOOK, description="look"), _call("Agent", "toolu_2", **agent)),
        "sub": (_call("Bash", "toolu_3", command=_LOOK, description="look"), _text("Seen.")),
    }
    rules = [
        {"when": {"lane": lane, "nth": nth}, "reply": reply}
        for lane, given in replies.items()
        for nth, reply in enumerate(given, 1)
    ]
    return {
        "schema_version": 1,
        "replies": [*rules, {"when": {"lane": "main", "nth": 3}, "reply": _text("Change: dates.")}],
    }


def examine_pinned(machine: Machine) -> Iterator[Check]:
    """Try everything and yield what came of it."""
    parts = check_parts(machine)
    yield parts
    if parts.status == "failed":
        for id_, title in (RUN, WORLD, TWICE, SEED):
            yield not_tried(id_, title, parts.id)
        return
    try:
        first = run_once(machine, _SEEDS[0])
    except RunnerError as error:
        yield failed_by(*RUN, error, "cure what hermeval doctor names")
        for id_, title in (WORLD, TWICE, SEED):
            yield not_tried(id_, title, RUN[0])
        return
    yield Check(*RUN, "ok", f"{len(first)} requests")
    yield world_of(first)
    try:
        yield check_twice(first, partial(run_once, machine, _SEEDS[0]))
        other = run_once(machine, _SEEDS[1])
    except RunnerError as error:
        yield failed_by(*SEED, error, "cure what hermeval doctor names")
        return
    same = first == other
    yield Check(
        *SEED,
        "failed" if same else "ok",
        "the requests do not depend on the seed" if same else "",
        "see whether the CLI still draws its ids from getrandom" if same else "",
    )


def check_parts(machine: Machine) -> Check:
    """Find the C parts, or make them."""
    from runner.attempt import as_runner_error
    from sandbox.errors import SandboxError

    try:
        parts = machine.parts()
    except SandboxError as error:
        return failed_by(*PARTS, as_runner_error(error), "install a C compiler")
    return Check(*PARTS, "ok", str(parts.attend.parent))


def world_of(bodies: tuple[bytes, ...]) -> Check:
    """See that requests tell the pinned date and kernel: in the system prompts of both agents, and in what their programs printed. Pure."""
    text = b"\n".join(bodies).decode("utf-8", "replace")
    day = DEFAULT_DATE[:10]
    wanted = {
        "the date in the prompt": f"Today's date is {day}",
        "the kernel in the prompt": f"OS Version: Linux {RELEASE}",
        "date and kernel in Bash": f"{day}\\n{RELEASE}\\n",
    }
    missing = [name for name, words in wanted.items() if words not in text]
    if missing:
        cause = f"not as pinned: {', '.join(missing)}"
        return Check(*WORLD, "failed", cause, "see whether the CLI and the programs take the C library's clock")
    return Check(*WORLD, "ok", f"{day}, Linux {RELEASE}")


def check_twice(first: tuple[bytes, ...], again: partial[tuple[bytes, ...]]) -> Check:
    """Run again and compare; where it differs, until two runs are equal, since a busy machine can turn to another program at a bad moment. Raises: RunnerError."""
    runs = [first, again()]
    while len(set(runs)) == len(runs) and len(runs) < MOST_RUNS:
        runs.append(again())
    if len(runs) == 2 and runs[1] == first:
        return Check(*TWICE, "ok", f"{len(first)} requests, {sum(map(len, first))} bytes")
    cause = differing(runs[0], runs[1])
    if len(set(runs)) < len(runs):
        cure = "expect pinned runs to need a second try, or run where the machine is less busy"
        return Check(*TWICE, "degraded", f"two of {len(runs)} runs are equal; the first two differ: {cause}", cure)
    cure = "run where the machine is less busy; if it stays, this CLI or host takes time or chance from where they are not pinned"
    return Check(*TWICE, "failed", f"{len(runs)} runs, none like another: {cause}", cure)


def differing(first: tuple[bytes, ...], second: tuple[bytes, ...]) -> str:
    """Return where two runs' requests part, in words. Pure."""
    for number, (old, new) in enumerate(zip(first, second, strict=False), 1):
        if old != new:
            found = text_difference(old.decode("utf-8", "replace"), new.decode("utf-8", "replace"))
            return f"request {number} {found.pointer}: {found.recorded} and {found.now}"
    return f"{len(first)} requests and {len(second)}"


def run_once(machine: Machine, seed: str) -> tuple[bytes, ...]:
    """Do the run and return its requests' bodies, in the order in which they came; the attempt is thrown away.

    Raises: RunnerError where it is not measured.
    """
    from runner.attempt import Job, run_attempt
    from runner.bundle.reader import open_attempt
    from runner.canonical import sha256_hex
    from runner.conduct import open_supervisor
    from runner.fixture import parse_fixture
    from runner.gate.script import parse_script
    from runner.gate.upstreams.scripted import ScriptedUpstream
    from runner.plan import PlanOptions, Provider

    script = json.dumps(_script()).encode("ascii")
    with open_supervisor(machine) as keeper:  # its private directory is gone whatever ends this process
        skill = Path(keeper.staging, "skills", "note")
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text(_SKILL, encoding="ascii")
        (keeper.staging / "recipes").mkdir()
        job = Job(
            parse_fixture(json.dumps(_FIXTURE).encode("ascii"), "pinned-doctor"),
            PlanOptions(determinism="pinned", pinned_seed=seed),
            skill.parent,
            keeper.staging / "recipes",
            Provider(kind="scripted", script="pinned-doctor", script_sha256=sha256_hex(script)),
            partial(ScriptedUpstream, parse_script(script, "pinned-doctor")),
            keeper.staging,
        )
        done = run_attempt(job, machine, tell=lambda *_: None, cancelled=threading.Event())
        outcome = done.assessment.outcome
        if outcome.kind != "measured":
            raise ReproduceImpossible(outcome.message, code=outcome.code, hint=outcome.hint)
        exchanges = open_attempt(done.kept.path).exchanges()
    return tuple(exchange.request.body for exchange in exchanges if exchange.kind == "inference")
