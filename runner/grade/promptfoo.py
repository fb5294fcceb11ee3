"""The pinned Promptfoo, asked about many attempts in one process (B10, facts/promptfoo.md).

Boundary: starts Node with driver.mjs in a sandbox. Not here: which checks are asked for and what the answers mean (assertions.py), whether the tools are the pinned ones
(runner/toolchain.py, before anything here).
Rules: no network, no program but Node, an environment of a few fixed words, a configuration directory in memory; Node's own permission model on top refuses child processes,
workers, addons and files outside. Attempts without an answer never come here. Attempts of a fixture that lists code share a process with no other fixture's.
A question that times out or kills the program costs its own attempt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from runner.canonical import sha256_hex
from runner.errors import GraderFault, SandboxFailure, ToolchainMismatch
from runner.grade.answers import CheckResult
from runner.grade.assertions import Asked, Criterion, read_results
from runner.grade.conversation import Conversation, answer_to, sandbox_failures
from runner.toolchain import GraderToolchain
from sandbox.limits import MIB, Limits
from sandbox.process import Host
from sandbox.programs import program_binds
from sandbox.sealed import SCRATCH, sealed_spec
from sandbox.spec import RoBind, SandboxSpec

DRIVER = Path(__file__).resolve().parent / "driver.mjs"
LIMIT_S = 30.0
"""What all checks of one attempt may take."""
START_S = 120.0
"""Importing Promptfoo takes 1 to 3 s, on a busy machine many times that."""
_NODE = "/opt/node"
_HOME = "/opt/grader"
_HEAP_MIB = 400
_ENVIRONMENT = {
    "HOME": SCRATCH,
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "TMPDIR": SCRATCH,
    "PROMPTFOO_CONFIG_DIR": f"{SCRATCH}/promptfoo",
    "PROMPTFOO_DISABLE_ADAPTIVE_SCHEDULER": "1",
    "PROMPTFOO_DISABLE_DEBUG_LOG": "1",
    "PROMPTFOO_DISABLE_ERROR_LOG": "1",
    "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
    "PROMPTFOO_DISABLE_SHARING": "1",
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_TEMPLATE_ENV_VARS": "1",
    "PROMPTFOO_DISABLE_TEMPLATING": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
}


@dataclass(frozen=True)
class Graded:
    """What is graded, as Promptfoo sees it."""

    attempt_id: str
    output: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Named as Promptfoo's own Claude provider names it (metadata.py)."""
    cost_usd: float | None = None
    latency_ms: float | None = None
    """Of the run, not of the grading."""
    finish_reason: str | None = None
    spans: Sequence[Mapping[str, Any]] = ()


def driver_sha256() -> str:
    """Return the digest of the grading program."""
    return sha256_hex(DRIVER.read_bytes())


def grader_spec(toolchain: GraderToolchain) -> SandboxSpec:
    """Return the grading program's sandbox; the source ``@node-modules`` is the tools' tree.

    Raises: SandboxFailure where Node's libraries cannot be found.
    """
    with sandbox_failures():
        node = program_binds([(toolchain.node.path, _NODE)])
        return sealed_spec(
            rootfs="node",
            binds=(*node, RoBind(source="@node-modules", target=f"{_HOME}/node_modules")),
            files={f"{_HOME}/driver.mjs": DRIVER.read_bytes()},
            argv=(
                _NODE,
                "--preserve-symlinks",  # where the tree is a link (sandbox/bare.py), modules find each other by its name here
                "--permission",
                f"--allow-fs-read={_HOME}/*",
                f"--allow-fs-read={SCRATCH}/*",
                f"--allow-fs-write={SCRATCH}/*",
                f"--max-old-space-size={_HEAP_MIB}",
                f"{_HOME}/driver.mjs",
            ),
            env=_ENVIRONMENT,
            scratch_bytes=64 * MIB,
            limits=Limits(processes=64, open_files=1024, file_bytes=32 * MIB),
        )


class Promptfoo:
    """Asks Promptfoo; starts it when it is first asked, and again after a question that lost it."""

    def __init__(self, host: Host, toolchain: GraderToolchain, *, limit_s: float = LIMIT_S) -> None:
        self._host = host
        self._toolchain = toolchain
        self._limit_s = limit_s
        self._conversation: Conversation | None = None
        self._ready = False
        self._asked = 0
        self._domain = ""
        self.starts = 0

    def begin(self, domain: str = "") -> None:
        """Start the program now, to have it ready while other work is done; its import goes on by itself. Raises: SandboxFailure.

        ``domain`` is what its questions may share a process with: empty for attempts without code of their own.
        """
        if self._conversation is not None and (not self._conversation.open or domain != self._domain):
            self.close()
        if self._conversation is None:
            self._conversation = Conversation(
                self._host, grader_spec(self._toolchain), sources={"node-modules": self._toolchain.root}
            )
            self._domain = domain
            self.starts += 1

    def grade(
        self, graded: Graded, asked: Sequence[Asked], *, domain: str = ""
    ) -> tuple[tuple[CheckResult, ...], tuple[Criterion, ...]]:
        """Return checks and criteria of one attempt as Promptfoo gives them back.

        Raises: GraderFault, for this attempt alone; ToolchainMismatch; SandboxFailure.
        """
        self.begin(domain)
        assert self._conversation is not None
        self._await_ready()
        self._asked += 1
        line = json.dumps(self._question(graded, asked)).encode("ascii")
        try:
            reply = self._conversation.ask(line, self._limit_s)
            results = answer_to(reply, "results", seq=self._asked, attempt_id=graded.attempt_id)
        except GraderFault as fault:
            self.close()
            raise GraderFault(f"Promptfoo: {fault.message}") from fault
        return read_results(asked, results, blank=not graded.output.strip())

    def close(self) -> None:
        """End the program."""
        if self._conversation is not None:
            self._conversation.close()
            self._conversation = None
        self._ready = False

    def _await_ready(self) -> None:
        """Wait for the program's first line, which says what it is; that must be what is pinned."""
        if self._ready:
            return
        assert self._conversation is not None
        try:
            found = json.loads(self._conversation.receive(START_S))["ready"]
        except GraderFault as fault:
            self.close()
            raise SandboxFailure(
                f"Promptfoo did not start: {fault.message}", hint="hermeval toolchain verify", code="grader-error"
            ) from fault
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            self.close()
            raise SandboxFailure(
                "Promptfoo did not start: its first line is no greeting", code="grader-error"
            ) from error
        pinned = {"node": self._toolchain.node.version, "promptfoo": self._toolchain.promptfoo.version}
        if found != pinned:
            self.close()
            raise ToolchainMismatch(
                f"the grading tools say that they are {found!r}; the lock says {pinned!r}",
                where=str(self._toolchain.root),
                hint="start once through ci/hermeval, which installs the pinned tools",
            )
        self._ready = True

    def _question(self, graded: Graded, asked: Sequence[Asked]) -> dict[str, Any]:
        response: dict[str, Any] = {"metadata": dict(graded.metadata)}
        if graded.cost_usd is not None:
            response["cost"] = graded.cost_usd
        if graded.finish_reason is not None:
            response["finishReason"] = graded.finish_reason
        return {
            "seq": self._asked,
            "attempt": graded.attempt_id,
            "output": graded.output,
            "response": response,
            "latency_ms": graded.latency_ms,
            "spans": list(graded.spans),
            "checks": [dict(one.question) for one in asked],
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
