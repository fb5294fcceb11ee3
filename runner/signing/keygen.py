"""``ssh-keygen -Y``: makes and checks signatures; OpenSSH's program, so that people's keys, agents and hardware tokens work as they do everywhere.

Boundary: starts ``ssh-keygen``, which reads the key (or asks the agent) and never the network; writes temporary files. Not here: what the answers mean (claim.py), files beside an attempt (sign.py).
Rules: no key is read here. What is checked is handed over as private copies of bytes that were read once. Without a terminal nobody is asked for anything: no passphrase prompt, no window, a
time limit. ``ssh-keygen`` refuses to work for a user id without a name, which containers have; it is then started in a user namespace of its own, as one that has a name.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess  # noqa: TID251 - ssh-keygen works for the caller, with the caller's keys: it belongs in no sandbox
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.errors import SigningFailed, SigningUnavailable
from runner.text import visible_bytes
from sandbox.pinned import Programs, find_programs

TIME_LIMIT_S = 60.0
"""For a process that asks nobody: an agent may wait for a touch of a token."""
_KEPT = ("HOME", "TZ", "SSH_AUTH_SOCK", "SSH_SK_PROVIDER")
_ASKING = ("TERM", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "SSH_ASKPASS", "SSH_ASKPASS_REQUIRE")
_KEY = re.compile(rb"with ([A-Z0-9-]{1,20}) key (SHA256:[A-Za-z0-9+/]{43})\s*\Z")
_MAX_SAID = 300
_NO = 255
"""Its exit status for a signature that does not hold."""


@dataclass(frozen=True)
class Answer:
    """What ``ssh-keygen`` said."""

    ok: bool
    out: bytes
    said: str
    """Its complaint, one visible line."""


@dataclass(frozen=True)
class Keygen:
    """The program, and what it may know of the caller's environment."""

    programs: Programs
    environ: Mapping[str, str]

    def sign(self, message: bytes, key: Path, namespace: str, *, ask: bool) -> bytes:
        """Return the armoured signature of ``message`` by the private key in ``key``, or by the agent's where ``key`` holds a public one.

        ``ask``: a person sits at the terminal and may be asked for a passphrase. Raises: SigningFailed.
        """
        code, out, said = self._run(["-Y", "sign", "-n", namespace, "-f", os.path.abspath(key)], message, ask=ask)
        if code:
            raise SigningFailed(
                f"the key did not sign: {said or f'ssh-keygen ended with {code}'}",
                where=str(key),
                hint="a key with a passphrase needs a terminal, or ssh-agent and the public key's file as --key",
            )
        return out

    def fits(self, message: bytes, signature: bytes, namespace: str) -> Answer:
        """Say whether a signature is one of the message, whoever made it."""
        return self._check("check-novalidate", message, signature, None, ["-n", namespace])

    def principals(self, signature: bytes, allowed: bytes) -> tuple[tuple[str, ...], str]:
        """Return the names under which the allowed signers list the signature's key, today; and where there are none, why not.

        What a list leaves out (``!NAME``) is printed among them, and would even be found to match another pattern of its line: it is nobody's name.
        """
        done = self._check("find-principals", b"", signature, allowed, [])
        lines = done.out.decode("utf-8", "surrogateescape").split("\n") if done.ok else []
        return tuple(name for name in lines if name and not name.startswith("!")), done.said

    def verify(self, message: bytes, signature: bytes, allowed: bytes, principal: str, namespace: str) -> Answer:
        """Say whether a signature is one of the message by a key that is allowed to ``principal`` for this namespace, today."""
        return self._check("verify", message, signature, allowed, ["-n", namespace, "-I", principal])

    def _check(
        self, what: str, message: bytes, signature: bytes, allowed: bytes | None, options: Sequence[str]
    ) -> Answer:
        try:
            with tempfile.TemporaryDirectory(prefix="hermeval-signature-") as name:
                folder = Path(name)
                (folder / "signature").write_bytes(signature)
                arguments = ["-Y", what, "-s", str(folder / "signature"), *options]
                if allowed is not None:
                    (folder / "allowed").write_bytes(allowed)
                    arguments += ["-f", str(folder / "allowed")]
                code, out, said = self._run(arguments, message, ask=False)
        except OSError as error:
            raise SigningUnavailable(f"a signature could not be handed to ssh-keygen: {error.strerror}") from error
        if code not in (0, _NO):  # whatever started it failed, or it was killed: that says nothing about a signature
            raise SigningUnavailable(f"ssh-keygen came to no answer: {said or f'exit status {code}'}")
        return Answer(code == 0, out, said.replace(f"{folder}/allowed:", "line "))

    def _run(self, arguments: Sequence[str], message: bytes, *, ask: bool) -> tuple[int, bytes, str]:
        """Return exit status, output, and the complaint as one visible line. Raises: SigningUnavailable."""
        program = self.programs.ssh_keygen
        kept = (*_KEPT, *_ASKING) if ask else _KEPT
        env = {name: self.environ[name] for name in kept if name in self.environ}
        env |= {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
        if not ask:
            env["SSH_ASKPASS_REQUIRE"] = "never"
        try:
            done = subprocess.run(
                [*self._named(), str(program), *arguments],
                input=message,
                stdout=subprocess.PIPE,
                stderr=None if ask else subprocess.PIPE,  # a token's "touch me" is for the person
                env=env,
                check=False,
                timeout=None if ask else TIME_LIMIT_S,
                start_new_session=not ask,  # no controlling terminal to ask on
            )
        except FileNotFoundError as error:
            raise unavailable(program) from error
        except OSError as error:
            raise SigningUnavailable(f"ssh-keygen cannot be started: {error.strerror}", where=str(program)) from error
        except subprocess.TimeoutExpired:
            return -1, b"", f"nothing came of it in {TIME_LIMIT_S:.0f} s"
        complaint = [line for line in (done.stderr or b"").splitlines() if line.strip()]
        said = "; ".join(visible_bytes(line) for line in complaint[-2:] if not line.startswith(b"Signing data on"))
        return done.returncode, done.stdout, said[:_MAX_SAID]

    def _named(self) -> list[str]:
        """Return what the program is started through where the caller's uid has no name."""
        try:
            pwd.getpwuid(os.getuid())
        except KeyError:
            return [str(self.programs.bwrap), "--unshare-user", "--uid", "0", "--gid", "0", "--dev-bind", "/", "/"]
        return []


def key_of(answer: Answer) -> str:
    """Return the key that a good answer names, as ``ED25519 key SHA256:…``."""
    found = _KEY.search(answer.out)
    return f"{found[1].decode()} key {found[2].decode()}" if found else "a key"


def open_keygen(environ: Mapping[str, str]) -> Keygen:
    """Return the program for the caller's environment: the flake's, or the machine's. Raises: SigningUnavailable."""
    programs = find_programs()
    if not os.access(programs.ssh_keygen, os.X_OK):
        raise unavailable(programs.ssh_keygen)
    return Keygen(programs, environ)


def unavailable(program: Path) -> SigningUnavailable:
    """Return the error for a machine without the program."""
    return SigningUnavailable(
        "ssh-keygen is not installed, and signatures are made and checked by it",
        where=str(program),
        hint="apt-get install openssh-client",
    )
