"""The one error tree of the runner.

Boundary: pure. Not here: the verdict table (runner/claude/outcome.py) and the sandbox's own errors (sandbox/errors.py).
Rules: every leaf has a stable ``code``; ``message`` says what happened, ``where`` the place, ``hint`` what to do. An exception can
only ever mean *error* (exit 2): pass and fail are values.

    RunnerError
    ├─ InputError         the author's or caller's to fix: FixtureInvalid SkillTreeInvalid ProfileUnknown ScriptInvalid ContractInvalid SettingInvalid InputMissing
    ├─ ToolchainError     the operator's to fix: ToolchainMissing ToolchainMismatch
    ├─ BundleError        the evidence is not usable: BundleCorrupt BundleUnsupported BundleExists BundleUnwritable
    ├─ GradingError       an answer could not be graded: GraderFault NotJudged NeverScored
    ├─ GateError          the provider side could not be set up: GateUnavailable KeyMissing ProviderUnreachable
    ├─ SimulatorUnavailable  the simulated service did not come up, or died
    ├─ SigningError       a signature could not be made or looked at: SigningUnavailable SigningFailed
    ├─ ReproduceImpossible  an attempt cannot be run again and compared
    ├─ SandboxFailure     wraps what sandbox/ raised
    └─ MachineFault       the machine lacked something where nobody had a better word for it (runner/unforeseen.py)
"""

from __future__ import annotations


class RunnerError(Exception):
    """Base of everything the runner raises on purpose. Exit code 2 (B11)."""

    code = "internal"

    def __init__(self, message: str, *, where: str = "", hint: str = "", code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint
        if code is not None:
            self.code = code

    def diagnostics(self) -> str:
        """Return the error as a person reads it: code, what, where, what to do. One paragraph, no trailing newline, foreign text escaped."""
        from runner.text import visible

        lines = [f"error[{visible(self.code)}]: {visible(self.message)}"]
        if self.where:
            lines.append(f"  where: {visible(self.where)}")
        if self.hint:
            lines.append(f"  do:    {visible(self.hint)}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, str]:
        """Return the error's stable JSON form: code, message, where, hint."""
        return {"code": self.code, "message": self.message, "where": self.where, "hint": self.hint}


class InputError(RunnerError):
    """Something that was handed in is not usable."""

    code = "input-invalid"


class InputMissing(InputError):
    """A named file or directory is not there or cannot be read."""

    code = "input-missing"


class FixtureInvalid(InputError):
    """A fixture breaks the envelope's rules (B1–B5); ``where`` is the file and the JSON pointer."""

    code = "fixture-invalid"


class SkillTreeInvalid(InputError):
    """A skill tree cannot be staged: a link out, a fifo, a case twin, …; ``where`` is the path in the tree."""

    code = "skill-tree-invalid"


class ProfileUnknown(InputError):
    """The fixture names a profile that is no module of the profiles folder (B6)."""

    code = "profile-unknown"


class ScriptInvalid(InputError):
    """A scripted provider's script breaks its schema."""

    code = "script-invalid"


class ContractInvalid(InputError):
    """A simulator's contract breaks its rules (B14); ``where`` is the file and the JSON pointer."""

    code = "contract-invalid"


class SettingInvalid(InputError):
    """An option or a combination of options makes no sense."""

    code = "setting-invalid"


class ToolchainError(RunnerError):
    """The pinned tools are not as the lock says."""

    code = "toolchain-error"


class ToolchainMissing(ToolchainError):
    """A pinned tool is not installed."""

    code = "toolchain-missing"


class ToolchainMismatch(ToolchainError):
    """A pinned tool's tree has another hash than the lock says; both hashes are in the message (C2)."""

    code = "toolchain-mismatch"


class BundleError(RunnerError):
    """An attempt file cannot be used."""

    code = "integrity"


class BundleCorrupt(BundleError):
    """An attempt file is not whole or not what its manifest says; ``where`` names the part or the manifest."""

    code = "integrity"


class BundleUnsupported(BundleError):
    """An attempt file has a format version that this release does not know."""

    code = "bundle-unsupported"


class BundleExists(BundleError):
    """An attempt file of that name is there already; nothing is overwritten."""

    code = "bundle-exists"


class BundleUnwritable(BundleError):
    """An attempt file could not be written (disk full, no permission, over a limit); nothing is left under its final name."""

    code = "bundle-unwritable"


class GradingError(RunnerError):
    """An attempt was measured and could not be graded; never a fail (B10)."""

    code = "grader-error"


class GraderFault(GradingError):
    """A profile, a check or the grading program did not give a usable answer for one attempt; other attempts are not touched by it."""

    code = "grader-error"


class NotJudged(GradingError):
    """The rubric was asked for and there is no usable verdict of a judge on this very output (G03)."""

    code = "not-judged"


class NeverScored(GradingError):
    """The attempt ran with pinned determinism: it shows that runs can be repeated, and is no measurement of a skill (DESIGN "Bit for bit")."""

    code = "never-scored"


class GateError(RunnerError):
    """The provider side could not be set up."""

    code = "gate-error"


class GateUnavailable(GateError):
    """The gate did not come up, or died."""

    code = "gate-unavailable"


class KeyMissing(GateError):
    """A live upstream was asked for and no key was given."""

    code = "key-missing"


class ProviderUnreachable(GateError):
    """Nobody listens where a live run's answers are to come from; nothing was started. ``gate-unreachable`` for the socket of a ``hermeval gate``."""

    code = "provider-unreachable"


class SimulatorUnavailable(RunnerError):
    """The simulated service did not come up, or died; nothing of its run is measured (B14)."""

    code = "simulator-unavailable"


class SigningError(RunnerError):
    """A signature could not be made or looked at."""

    code = "signing-error"


class SigningUnavailable(SigningError):
    """``ssh-keygen`` is not installed, or cannot be started."""

    code = "ssh-keygen-missing"


class SigningFailed(SigningError):
    """A key did not sign: wrong passphrase and nobody to ask, no such key, an agent that refuses."""

    code = "signing-failed"


class ReproduceImpossible(RunnerError):
    """An attempt cannot be run again and compared: no exchanges, another toolchain, a plan that is not its own. Not a difference: exit 2."""

    code = "reproduce-impossible"


class SandboxFailure(RunnerError):
    """The sandbox could not be had or could not be set up; the cause is kept as ``__cause__``."""

    code = "sandbox-unavailable"


class MachineFault(RunnerError):
    """A system call failed for want of what a machine should have: room, open files, memory, a working disk. The operator's to fix."""

    code = "machine-fault"
