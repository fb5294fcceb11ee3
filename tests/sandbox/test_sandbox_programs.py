"""What a program needs of the host, read from its own file, and what a sandbox made of just that can do."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.errors import SandboxUnavailable
from sandbox.limits import Limits
from sandbox.process import Host
from sandbox.programs import Libraries, program_binds, python_binds, read_needs
from sandbox.running import run_once
from sandbox.sealed import sealed_spec

PYTHON = Path("/usr/bin/python3")


def test_needs_of_a_program() -> None:
    """A program names its loader and its libraries; a library has no loader."""
    needs = read_needs(PYTHON)
    assert needs.loader is not None
    assert Path(needs.loader).exists()
    assert "libc.so.6" in needs.libraries
    inside = {bind.target: bind.source for bind in program_binds([(PYTHON, "/opt/python")])}
    assert inside["/opt/python"] == str(PYTHON.resolve())
    assert needs.loader in inside
    assert read_needs(next(Path(source) for path, source in inside.items() if "libc.so.6" in path)).libraries


@pytest.mark.parametrize(
    "content", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(100), b"\x7fELF\x02\x01" + b"\xff" * 100]
)
def test_what_is_no_program_is_refused(tmp_path: Path, content: bytes) -> None:
    """A script, a cut file or a program of another machine type is refused with its path."""
    path = tmp_path / "odd"
    path.write_bytes(content)
    with pytest.raises(SandboxUnavailable) as caught:
        read_needs(path)
    assert caught.value.where == str(path)


def test_missing_library_is_named() -> None:
    """A library that is nowhere is named before anything starts."""
    with pytest.raises(SandboxUnavailable, match="shared library"):
        program_binds([(PYTHON, "/opt/python")], libraries=Libraries(("/nonexistent",)))


def test_sealed_python_has_nothing_to_start_and_nothing_to_write(host: Host) -> None:
    """In a sandbox made of Python's own files there is no shell and no other program, no /proc, no writable directory; the standard library is there."""
    binds, python = python_binds(host.python)
    script = (
        "import json, os, stat\n"
        "programs = [p + '/' + f for p, _, fs in os.walk('/') for f in fs if os.access(p + '/' + f, os.X_OK)"
        " and not os.path.islink(p + '/' + f) and '.so' not in f and not p.startswith(os.path.dirname(os.__file__))]\n"
        "writable = [p for p, _, _ in os.walk('/') if os.access(p, os.W_OK) and not p.startswith('/dev')]\n"
        "print(json.dumps([programs, writable, os.path.exists('/proc/self')]))\n"
    )
    spec = sealed_spec(
        rootfs="python",
        binds=binds,
        files={"/opt/x/look.py": script.encode()},
        argv=(python, "-I", "-S", "-B", "/opt/x/look.py"),
        env={},
        limits=Limits(),
    )
    ended, out = run_once(host, spec)
    assert ended.exit_status == 0, ended.stderr
    assert out.decode() == f'[["{python}"], [], false]\n'
