"""Make TCP listeners inside a sandbox's network namespace and pass them out. A program of its own; imported by supervisor.py.

Boundary: enters namespaces, so it runs in a process that ends right after. Standard library only; needs nothing of this package; run as
``/usr/bin/python3 -I -S listener.py PID PORT[,PORT…] FD`` or through ``inject`` in a forked child of a single-threaded process.
Rules: the user namespace to enter first is the one that *owns* the network namespace (NS_GET_USERNS): with --disable-userns there are two, and the process's own
gives EPERM to an ordinary caller (facts/namespaces-and-gate.md). Nothing of this stays inside; only the sockets are left.
"""

import _socket
import fcntl
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from sandbox import kernel
else:
    import posix as os

    sys.path.append(__file__.rpartition("/")[0])
    import kernel

NS_GET_USERNS = 0xB701
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
BACKLOG = 512
LOOPBACK_S = 5.0


def inject(pid: int, ports: "list[int]", channel: _socket.socket, setns: "Callable[[int, int], None]") -> None:
    """Listen on 127.0.0.1 at each of ``ports`` in the network namespace of ``pid`` and send the sockets, in that order, over ``channel``, a socket object.

    Ports below 1024 work: the capability for it is had in that namespace. Raises OSError.
    """
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    owner = fcntl.ioctl(network, NS_GET_USERNS)
    setns(owner, CLONE_NEWUSER)
    setns(network, CLONE_NEWNET)
    deadline = time.monotonic() + LOOPBACK_S
    listeners = [listen(port, deadline) for port in ports]
    rights = b"".join(listener.fileno().to_bytes(4, sys.byteorder) for listener in listeners)
    channel.sendmsg([b"listener"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])


def listen(port: int, deadline: float) -> _socket.socket:
    """Return a listener on 127.0.0.1:``port`` of the present namespace. Raises OSError."""
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    while True:
        try:
            listener.bind(("127.0.0.1", port))
            break
        except OSError:  # bwrap gives the loopback its address at about the same time
            if time.monotonic() > deadline:
                raise
            time.sleep(0.0002)
    listener.listen(BACKLOG)
    return listener


if __name__ == "__main__":
    inject(
        int(sys.argv[1]),
        [int(port) for port in sys.argv[2].split(",")],
        _socket.socket(fileno=int(sys.argv[3])),
        kernel.load_setns(),
    )
