"""The gate, tried with a small client inside a sandbox: one request that goes out and one that must not.

Boundary: starts a throw-away sandbox and serves its listener; nothing leaves the machine. Not here: the gate's own tests, the CLI's use of it (cases.py).
Rules: the client verifies the certificate as the CLI does, against the run's own authority.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from runner.doctor.check import Check
from runner.errors import RunnerError

if TYPE_CHECKING:
    from pathlib import Path

    from runner.gate.server import GateRecord
    from sandbox.process import Host

Mode = Literal["first-party", "base-url"]
CLIENT = r"""
import json, socket, ssl, sys

port, host = int(sys.argv[1]), sys.argv[2]

def ask(head, body=b""):
    name = "api.anthropic.com" if port == 443 else "127.0.0.1"
    sock = socket.create_connection((name, port), 10)
    if port == 443:
        sock = ssl.create_default_context(cafile="/etc/ssl/extra-ca.pem").wrap_socket(sock, server_hostname=name)
    sock.sendall(head.replace("\n", "\r\n").encode() + body)
    answer = b""
    while piece := sock.recv(65536):
        answer += piece
        if b"\r\n\r\n" in answer:
            break
    return answer.split(b" ")[1].decode() if answer else "closed"

document = {"model": "claude-sonnet-5-5", "max_tokens": 16, "messages": [{"role": "user", "content": "hello"}]}
body = json.dumps(document).encode()
rest = f"Host: {host}\nContent-Type: application/json\nContent-Length: "
print("allowed", ask(f"POST /v1/messages HTTP/1.1\n{rest}{len(body)}\n\n", body))
print("refused", ask(f"GET /v1/files HTTP/1.1\n{rest}0\n\n"))
"""
"""Run inside by the system's python3; ``PORT HOST``."""

EXPECTED = {"allowed": "200", "refused": "404"}
_CURE = "look at the cause; where it names TLS or a certificate, check the clock and the package cryptography"


def check_gate(host: Host, mode: Mode, runtime_dir: Path | None) -> Check:
    """Serve a sandbox's listener with a scripted answer, and compare what the client saw with what the gate recorded."""
    from sandbox.errors import SandboxError

    title = f"The gate in {mode} mode answers what is allowed, refuses what is not, and records both"
    id_ = f"gate-{mode}"
    try:
        seen, record, complaint = ask_gate(host, mode, runtime_dir)
    except RunnerError as error:
        return Check(id_, title, "failed", error.message, error.hint or _CURE)
    except SandboxError as error:
        return Check(id_, title, "failed", str(error), error.hint or _CURE)
    except OSError as error:
        return Check(id_, title, "failed", str(error), _CURE)
    wrong = judge_gate(seen, record)
    if wrong:
        return Check(id_, title, "failed", "; ".join([*wrong, *complaint.splitlines()[-1:]]), _CURE)
    return Check(id_, title, "ok", "one request answered, one refused, both recorded")


def judge_gate(seen: dict[str, str], record: GateRecord) -> list[str]:
    """Return what is not as it must be (pure)."""
    wrong = [
        f"the {name} request got {seen.get(name, 'no answer')}, not {status}"
        for name, status in EXPECTED.items()
        if seen.get(name) != status
    ]
    if (record.requests, record.refused) != (1, 1):
        wrong.append(f"{record.requests} requests and {record.refused} refusals are recorded, not 1 and 1")
    return wrong + [f"the gate notes: {note}" for note in record.notes]


def ask_gate(host: Host, mode: Mode, runtime_dir: Path | None) -> tuple[dict[str, str], GateRecord, str]:
    """Run the client; return what it saw, the gate's record, and its stderr.

    Raises: SandboxError, GateError, OSError.
    """
    from runner.claude.launch import CA_INSIDE
    from runner.gate.authority import make_authority
    from runner.gate.script import Script
    from runner.gate.server import Gate
    from runner.gate.settings import PROVIDER_HOST, GateSettings
    from runner.gate.upstreams.scripted import ScriptedUpstream
    from sandbox.process import supervise
    from sandbox.rootfs import find_rootfs
    from sandbox.running import start
    from sandbox.spec import RoBind
    from sandbox.view import build_view

    settings = GateSettings(mode=mode)
    authority = make_authority() if settings.tls else None
    answer = {"schema_version": 1, "replies": [{"reply": {"message": {"content": [{"type": "text", "text": "hi"}]}}}]}
    gate = Gate(settings, ScriptedUpstream(Script.model_validate_json(_json(answer))), authority=authority)
    rootfs = find_rootfs()
    spec = build_view(
        rootfs=rootfs.kind,
        system=rootfs.mounts,
        argv=("/usr/bin/python3", "-I", "-S", "-c", CLIENT, str(settings.port), settings.expected_host),
        env={"PATH": "/usr/bin:/bin"},
        port=settings.port,
        local_names=(PROVIDER_HOST,) if settings.tls else (),
        binds=(RoBind(source="@ca", target=CA_INSIDE),) if settings.tls else (),
    )
    out = bytearray()
    supervisor = supervise(host, runtime_dir=runtime_dir)
    with supervisor:
        sources = {}
        if authority is not None:
            sources["ca"] = supervisor.staging / "ca.pem"
            sources["ca"].write_bytes(authority.ca_pem)
            sources["ca"].chmod(0o644)
        with start(supervisor, spec, on_stdout=out.extend, sources=sources, wall_clock_s=30.0) as running:
            listener, running.listener = running.listener, None
            assert listener is not None
            try:
                gate.serve(listener)
                running.release()
                ended = running.wait()
            finally:
                record = gate.close()
    assert ended is not None
    seen = dict(line.partition(" ")[::2] for line in out.decode("utf-8", "replace").splitlines())
    return seen, record, ended.stderr.decode("utf-8", "replace")


def _json(value: object) -> str:
    import json

    return json.dumps(value)
