"""Ask profiles about saved evidence, in a sandbox of their own (B6, B7).

Boundary: starts the profile host (host.py) in a sandbox. Not here: what a valid answer is (answers.py), finding a profile (runner/profile.py).
Rules: the modules are read once, hashed, and handed in as bytes: what ran is what the evaluation names. A question that times out, or kills the host, costs its own attempt; the
host is started again for the next. An answer counts only with the number and the attempt of the question.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from runner.canonical import digest_of, sha256_hex
from runner.errors import GraderFault
from runner.grade.answers import ProfileAnswer, parse_answer
from runner.grade.conversation import Conversation, answer_to, sandbox_failures
from runner.profile import PROFILES, ProfileFile, find_profile
from sandbox.limits import MIB, Limits
from sandbox.process import Host
from sandbox.programs import python_binds
from sandbox.sealed import sealed_spec
from sandbox.spec import SandboxSpec

LIMIT_S = 5.0
"""What a profile may take for all its calls over one attempt."""
_GRACE_S = 20.0
"""On top: starting the host, and its own overhead."""
_INSIDE = "/opt/hermeval"
_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class ProfileModules:
    """The modules of a profiles folder, as they are handed in: the shipped ones, and over them those of another folder."""

    folder: Path
    files: Mapping[str, bytes]
    """File name to content."""

    @property
    def sha256(self) -> str:
        """One digest over all of them: a profile may use its neighbours."""
        return digest_of({name: sha256_hex(content) for name, content in self.files.items()})


def read_modules(folder: Path = PROFILES) -> ProfileModules:
    """Read the modules of a folder; where it is another than the shipped one, the shipped modules stay importable beside it."""
    paths = [path for place in dict.fromkeys((PROFILES, folder)) for path in sorted(place.glob("*.py"))]
    return ProfileModules(folder, {path.name: path.read_bytes() for path in paths if path.is_file()})


def host_spec(host: Host, modules: ProfileModules, limit_s: float) -> SandboxSpec:
    """Return the profile host's sandbox: Python with its standard library, the host's two files, the profiles; nothing writable.

    Raises: SandboxFailure where the interpreter's files cannot be found.
    """
    files = {f"{_INSIDE}/{name}": (_HERE / name).read_bytes() for name in ("host.py", "host_worker.py")}
    files |= {f"{_INSIDE}/profiles/{name}": content for name, content in modules.files.items()}
    with sandbox_failures():
        binds, python = python_binds(host.python)
        return sealed_spec(
            rootfs="python",
            binds=binds,
            files=files,
            # As -I -S, but for the hash seed: an order that depends on it would make checks differ from replay to replay.
            argv=(python, "-s", "-P", "-S", "-B", f"{_INSIDE}/host.py", f"{limit_s:g}"),
            env={"PYTHONHASHSEED": "0", "LANG": "C.UTF-8"},
            limits=Limits(processes=16, open_files=256, file_bytes=MIB),
        )


class ProfileHost:
    """Answers questions about attempts; starts its program when it is first asked, and again after one that was lost."""

    def __init__(self, host: Host, folder: Path = PROFILES, *, limit_s: float = LIMIT_S) -> None:
        self.modules = read_modules(folder)
        self._host = host
        self._limit_s = limit_s
        self._conversation: Conversation | None = None
        self._asked = 0
        self.starts = 0

    def begin(self) -> None:
        """Start the program now, to have it ready. Raises: SandboxFailure."""
        if self._conversation is None or not self._conversation.open:
            self._conversation = Conversation(self._host, host_spec(self._host, self.modules, self._limit_s))
            self.starts += 1

    def find(self, profile_id: str) -> ProfileFile:
        """Return the profile's module. Raises: ProfileUnknown."""
        return find_profile(profile_id, self.modules.folder)

    def check(
        self,
        attempt_id: str,
        profile_id: str,
        fixture: Mapping[str, Any],
        output: str,
        context: Mapping[str, Any],
        *,
        unmeasured: str = "",
    ) -> ProfileAnswer:
        """Return what a profile says of one attempt. Where ``unmeasured`` says why the workspace shows nothing, looking at it is a fault (``workspace-unmeasured``).

        Raises: GraderFault, with the reason, for this attempt alone; ProfileUnknown; SandboxFailure.
        """
        found = self.find(profile_id)
        self.begin()
        assert self._conversation is not None
        self._asked += 1
        question = {
            "seq": self._asked,
            "attempt": attempt_id,
            "profile": found.path.stem,
            "fixture": fixture,
            "output": output,
            "context": context,
            "unmeasured": unmeasured,
        }
        try:
            line = self._conversation.ask(json.dumps(question).encode("ascii"), self._limit_s + _GRACE_S)
            answer = answer_to(line, "answer", seq=self._asked, attempt_id=attempt_id)
        except GraderFault as fault:
            self._conversation.close()
            raise GraderFault(f"profile {profile_id}: {fault.message}", where=str(found.path)) from fault
        try:
            trace = context.get("tool_trace")
            return parse_answer(answer, trace_length=len(trace) if isinstance(trace, list) else 0)
        except GraderFault as fault:
            raise GraderFault(
                f"profile {profile_id}: {fault.message}", where=str(found.path), hint=fault.hint, code=fault.code
            ) from fault

    def close(self) -> None:
        """End the program."""
        if self._conversation is not None:
            self._conversation.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
