"""A writable directory of the host in a sandbox: where it may lie, and that it is the very one that was opened."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

import pytest

from sandbox.canary import mount_faults
from sandbox.check import check_spec
from sandbox.errors import SpecInvalid
from sandbox.process import Supervisor
from sandbox.procfs import open_handle
from sandbox.running import start
from sandbox.spec import Bind, Tmpfs
from sandbox.view import WORKSPACE

if TYPE_CHECKING:
    from sandbox.process import Host
    from tests.sandbox.conftest import MakeSpec

SHARED = Bind(source="@workspace", target=WORKSPACE)


def test_it_lies_at_the_workspace_and_nowhere_else(make_spec: MakeSpec) -> None:
    """In the place of the workspace it is a good description (the control); anywhere else, or with something placed below it, it is none."""
    spec = make_spec(workspace=SHARED)
    check_spec(spec)
    elsewhere = SHARED.model_copy(update={"target": "/srv"})
    with pytest.raises(SpecInvalid, match="at /workspace only"):
        check_spec(spec.model_copy(update={"mounts": (*spec.mounts, elsewhere)}))
    below = Tmpfs(target=f"{WORKSPACE}/below", size_bytes=4096)
    with pytest.raises(SpecInvalid, match="cannot be created below"):
        check_spec(spec.model_copy(update={"mounts": (*spec.mounts, below)}))


def test_a_start_without_the_directory_is_refused(host: Host, make_spec: MakeSpec) -> None:
    """A description with a shared workspace and no open directory for it starts nothing."""
    with pytest.raises(SpecInvalid, match="was given no directory"):
        start(Supervisor(host, None), make_spec(workspace=SHARED), on_stdout=bytearray().extend)


def test_another_directory_in_its_place_is_found() -> None:
    """A handle on the shared place is had for the directory that was opened (the control), and for no other."""
    with tempfile.TemporaryDirectory() as made:
        found, path = os.stat(made), os.fsencode(made)
        os.close(open_handle(os.getpid(), path, {path: (found.st_dev, found.st_ino)}))
        with pytest.raises(OSError, match="not the directory that was to be shared"):
            open_handle(os.getpid(), path, {path: (found.st_dev, found.st_ino + 1)})


def test_a_writable_directory_of_the_host_is_a_fault_unless_it_was_asked_for() -> None:
    """What is mounted writable at the workspace is found unless it was asked for, and one that heeds set-user-id files even then."""
    line = b"160 157 8:1 /srv/x /workspace rw,nosuid,nodev - ext4 /dev/sda1 rw\n"
    assert mount_faults(line, []) == ["/workspace can be written"]
    assert mount_faults(line, [], [b"/workspace"]) == []
    assert mount_faults(line.replace(b",nosuid", b""), [], [b"/workspace"]) == [
        "/workspace would heed set-user-id files"
    ]
