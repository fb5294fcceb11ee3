"""One bwrap process from its start to its certain death. Part of the supervisor's program.

Boundary: starts bwrap and the listener's helper, kills, waits. Standard library only; imported by supervisor.py from the directory it lies in. Not here: bwrap's options
(argv.py), what a failure means for people (process.py).
Rules:
- Dead means that the pidfd of the sandbox's pid 1 fired; bwrap's own end does not (facts/sandbox.md, finding 6). bwrap is left to end by itself where it does, so that
  it reaps pid 1.
- The program is held by a pipe that the held process itself has open for writing: whoever dies, it is never released by an end of file (finding 56).
- The first reason for a kill stays, and what bwrap says after it is about our kill, so it is not the program's exit status.
- Single-threaded: it forks, and the forked child enters namespaces.
"""

import _socket
import resource
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    import signal as _signal
    from collections.abc import Callable

    from sandbox import canary, group, kernel, listener, procfs, watchdog
else:
    import _signal
    import posix as os

    import canary
    import kernel
    import listener
    import procfs
    import watchdog

FD_BASE = 512
"""bwrap's descriptors start here; process.py writes the same numbers into the argument file. The status descriptor is FD_BASE - 1."""
SETUP_S = 30.0
SETTLE_S = 1.0
CANARY_S = 1.0
FILTER_S = 0.25
"""For the system call filter, from the release on. The CLI takes longer than that before it asks for anything."""
BUSY_S = 10.0
"""The same where no program runs without it: on a busy machine pid 1 of the sandbox, which loads one for itself, may not have had its turn."""
DEATH_S = 30.0
QUIET = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT)
LIMITS = {
    b"processes": resource.RLIMIT_NPROC,
    b"open_files": resource.RLIMIT_NOFILE,
    b"file_bytes": resource.RLIMIT_FSIZE,
    b"core_bytes": resource.RLIMIT_CORE,
}
Request = dict[bytes, list[bytes]]


def receive(channel: _socket.socket) -> tuple[bytes, list[bytes], list[int]]:
    """Return verb, further fields and descriptors of the next message; an empty verb at the end."""
    try:
        data, ancillary, _, _ = channel.recvmsg(65536, _socket.CMSG_SPACE(4 * 253), _socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        data, ancillary = b"", []
    descriptors = []
    for level, kind, value in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            descriptors += [int.from_bytes(value[at : at + 4], sys.byteorder) for at in range(0, len(value) - 3, 4)]
    verb, *fields = data.split(b"\0")
    return verb, fields, descriptors


class Box:
    """One bwrap and what is known of it."""

    def __init__(self, control: _socket.socket, own: "group.Group") -> None:
        self.control = control
        self.group = own
        self.gone = False  # the runner is done or dead
        self.reason = b""
        self.released = False
        self.alive = False  # bwrap has not exited
        self.bwrap = self.bwrap_fd = self.child = self.child_fd = self.status = self.block = -1
        self.lines = b""
        self.exit_code = b""
        self.started = self.released_at = time.monotonic()
        self.poll = select.poll()
        self.filtered = False  # a system call filter is expected
        self.watchdog: watchdog.Watchdog | None = None
        self.places: list[int] = []  # the sandbox's sized mounts

    def run(self, request: Request, descriptors: list[int], setns: "Callable[[int, int], None] | None") -> None:
        """Bring the sandbox up, tell the runner, and stay with it until it ends or must end.

        ``descriptors``: stdin, stdout, stderr, block, arguments, data files. ``end`` must be called after, whatever happened.
        """
        step = b"spawn"
        try:
            self.spawn(request, descriptors)
            step = b"start"
            self.await_child()
            step = b"setup"
            handles = self.bring_up(request, setns)
            if handles is None:
                return
            step = b"canary"
            self.look(request)
            step = b"limits"
            self.hold(request, handles)
        except (OSError, ValueError) as error:
            self.fail(step, str(error))
            return
        for handle in handles:
            os.close(handle)
        self.stay(float(request[b"wall_s"][0]))

    def spawn(self, request: Request, descriptors: list[int]) -> None:
        """Start bwrap with an empty environment and no descriptor but those it is given."""
        read_end, write_end = os.pipe()
        actions = [(os.POSIX_SPAWN_DUP2, descriptor, number) for number, descriptor in enumerate(descriptors[:3])]
        actions += [
            (os.POSIX_SPAWN_DUP2, descriptor, FD_BASE + number) for number, descriptor in enumerate(descriptors[3:])
        ]
        actions.append((os.POSIX_SPAWN_DUP2, write_end, FD_BASE - 1))
        kernel.make_room(FD_BASE + len(descriptors))
        argv = [b"bwrap", b"--args", b"%d" % (FD_BASE + 1), b"--", *request[b"arg"]]
        defaults = (*QUIET, _signal.SIGPIPE, _signal.SIGXFSZ)
        self.started = time.monotonic()
        self.block = descriptors[3]
        try:
            self.bwrap = os.posix_spawn(
                request[b"bwrap"][0], argv, {}, file_actions=actions, setsigmask=(), setsigdef=defaults
            )
        finally:
            os.close(write_end)
            for descriptor in (*descriptors[:3], *descriptors[4:]):
                os.close(descriptor)
        self.status, self.alive = read_end, True
        self.bwrap_fd = os.pidfd_open(self.bwrap)
        for descriptor in (self.control.fileno(), self.status, self.bwrap_fd):
            self.poll.register(descriptor, select.POLLIN)

    def await_child(self) -> None:
        """Wait until bwrap names the sandbox's pid 1. A wish to end waits for that too, for a moment: only then can all be killed."""
        while self.alive and self.child < 0:
            waited = time.monotonic() - self.started
            if waited > (SETTLE_S if self.reason else SETUP_S):
                return
            self.turn(0.05 if self.reason else SETUP_S - waited)

    def bring_up(self, request: Request, setns: "Callable[[int, int], None] | None") -> list[int] | None:
        """Wait for listeners and mounts; return the descriptors to hand over, or None where it did not come to that."""
        ports = [int(port) for port in request.get(b"port", ())]
        sockets: list[int] = []
        channel, helper, owner = None, 0, 0
        while self.alive and not self.reason:
            if time.monotonic() > self.started + SETUP_S:
                raise OSError(f"the sandbox did not come up in {SETUP_S:.0f} s")
            if ports and not helper:
                helper, channel = self.fork_helper(ports, setns or kernel.load_setns())
            if channel is not None and select.select([channel], [], [], 0)[0]:
                _, why, sockets = receive(channel)
                os.waitpid(helper, 0)
                channel = None
                if not sockets:
                    raise OSError("listener: " + (why or [b"the helper ended"])[0].decode("utf-8", "replace"))
            owner = owner or procfs.owner_of_network(self.child)
            if len(sockets) == len(ports) and owner and procfs.is_settled(self.child, owner):
                shared = shared_places(request)
                return sockets + [procfs.open_handle(self.child, path, shared) for path in request.get(b"handle", ())]
            self.turn(0.0003)
        if channel is not None:
            os.kill(helper, _signal.SIGKILL)
            os.waitpid(helper, 0)
        return None

    def fork_helper(self, ports: list[int], setns: "Callable[[int, int], None]") -> tuple[int, _socket.socket]:
        """Fork the process that makes the listeners; return its pid and the socket it answers on."""
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            try:
                listener.inject(self.child, ports, theirs, setns)
            except BaseException as error:  # noqa: BLE001 - told to the parent, which raises it
                theirs.send(b"failed\0" + str(error).encode())
            os._exit(0)
        theirs.close()
        return pid, ours

    def look(self, request: Request) -> None:
        """See from outside that the sandbox is what was asked for; its last act before it waits is to give up capabilities. Raises OSError where it is not."""
        deadline = time.monotonic() + CANARY_S
        while self.alive and not self.reason:
            faults = canary.look(self.child, request.get(b"writable", []), list(shared_places(request)))
            if not faults:
                return
            if time.monotonic() > deadline:
                raise OSError("; ".join(faults))
            self.turn(0.0003)

    def hold(self, request: Request, handles: list[int]) -> None:
        """Set the limits on the held process, read them back, and tell the runner that all is up."""
        read_back = []
        for name, kind in LIMITS.items():
            ceiling = resource.prlimit(self.child, kind)[1]
            for asked in request.get(name, ()):
                value = int(asked) if ceiling == resource.RLIM_INFINITY else min(int(asked), ceiling)
                resource.prlimit(self.child, kind, (value, value))
            held = resource.prlimit(self.child, kind)[1]
            if held != resource.RLIM_INFINITY:
                read_back.append(b"%s=%d" % (name, held))
        self.filtered = b"filtered" in request
        memory_bytes = int(request.get(b"memory_bytes", [b"0"])[0])
        view = watchdog.open_view(self.child) if memory_bytes else -1
        if view >= 0:
            self.places = watchdog.open_places(self.child, request.get(b"writable", []))
            self.watchdog = watchdog.Watchdog(view, self.places, memory_bytes)
            read_back.append(b"memory_bytes=%d" % memory_bytes)
        read_back += self.take_in(request)
        fields = [b"held", b"%d" % ((time.monotonic() - self.started) * 1e6), *read_back]
        # The runner gets a hold of pid 1 as well: bwrap's own die-with-parent has a gap right after the release (facts/sandbox.md, finding 5).
        rights = b"".join(handle.to_bytes(4, sys.byteorder) for handle in (self.child_fd, *handles))
        ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)]
        self.control.sendmsg([b"\0".join(fields)], ancillary)

    def take_in(self, request: Request) -> list[bytes]:
        """Move the held pid 1 into the control group, where there is one; what it starts is in it too. Returns what the kernel reads back.

        Files of sized mounts are counted with the memory, so the group has as much more as they may hold; the watchdog goes on looking at the processes by themselves.
        """
        memory, processes, cpu = (
            int(request.get(name, [b"0"])[0]) for name in (b"memory_bytes", b"processes", b"cpu_percent")
        )
        mounts = sum(fact.f_blocks * fact.f_frsize for fact in map(os.statvfs, self.places))
        held = self.group.hold(self.child, memory + mounts, processes, cpu) if self.group.there else {}
        return [
            b"%s=%d" % (name.encode(), value)
            for name, value in ({**held, "mounts_bytes": mounts} if held else {}).items()
        ]

    def stay(self, wall_s: float) -> None:
        """Wait for the release, then for the end: bwrap's, the wall clock's, or the runner's word."""
        deadline = look_at = float("inf")
        while self.alive and not self.reason:
            self.turn(min(deadline - time.monotonic(), look_at - time.monotonic(), 3600.0))
            if self.must_release():
                self.released_at = time.monotonic()
                deadline = self.released_at + wall_s
                os.write(self.block, b"x")
                os.close(self.block)
                self.block = -1
                self.await_filter()
                look_at = look_at if self.watchdog is None else self.released_at + watchdog.PERIOD_S
            elif time.monotonic() >= deadline:
                self.expire()
            elif time.monotonic() >= look_at:
                look_at = self.weigh()

    def await_filter(self) -> None:
        """See that the system call filter is there: bwrap loads it right after the release. Without it the end comes before a program has started up."""
        deadline = time.monotonic() + FILTER_S
        while self.filtered and self.alive and not self.reason and not canary.is_filtered(self.child):
            late_s = time.monotonic() - deadline
            if late_s > BUSY_S or (late_s > 0 and canary.runs_bare(self.child)):
                self.reason = b"no-system-call-filter"
            self.turn(0.0003 if late_s < 0 else 0.02)

    def weigh(self) -> float:
        """Look for a moment at the memory, and end a sandbox that takes more than it may. Returns when to go on."""
        assert self.watchdog is not None
        reason, again = self.watchdog.look()
        if self.alive:
            self.reason = self.reason or reason
        return again

    def must_release(self) -> bool:
        """Whether the runner has said so and it has not been done."""
        return self.released and self.block >= 0 and not self.reason

    def expire(self) -> None:
        """End by the wall clock what has not ended by itself."""
        if self.alive:
            self.reason = self.reason or b"timeout"

    def turn(self, wait_s: float) -> None:
        """Wait for the next events, at most so long, and take them in."""
        for descriptor, _ in self.poll.poll(max(0.0, wait_s) * 1000):
            if descriptor == self.control.fileno():
                self.listen()
            elif descriptor == self.status:
                self.read_status()
            else:
                self.alive = False

    def listen(self) -> None:
        """Take in one message of the runner."""
        verb, fields, _ = receive(self.control)
        if verb == b"release":
            self.released = True
        elif verb == b"kill":
            self.reason = self.reason or fields[0]
        else:  # the end of the lifeline
            self.gone = True
            self.reason = self.reason or b"runner-gone"
            self.poll.unregister(self.control.fileno())

    def read_status(self) -> None:
        """Take in bwrap's status lines: JSON objects, of which two members matter."""
        data = os.read(self.status, 65536)
        if not data:
            self.poll.unregister(self.status)
            return
        self.lines += data
        if self.child < 0:
            self.child = member(self.lines, b'"child-pid"')
            if self.child > 0:
                self.child_fd = os.pidfd_open(self.child)
                if procfs.parent_of(self.child) != self.bwrap:
                    raise OSError("pid 1 of the sandbox is gone")
        code = member(self.lines, b'"exit-code"')
        if code >= 0 and not self.reason:
            self.exit_code = b"%d" % code

    def end(self) -> None:
        """Kill what lives, wait until pid 1 is dead, and tell how it ended. On every path, once."""
        if self.bwrap < 0:
            return
        facts = self.group.facts()
        if facts.get("memory_oom_kills") and self.exit_code in (b"", b"137"):
            self.reason, self.exit_code = self.reason or b"memory-limit", b""
        memory_peak = max(self.watchdog.peak if self.watchdog is not None else 0, facts.pop("memory_peak", 0))
        if self.child_fd >= 0:
            self.group.kill()
            send_kill(self.child_fd)
            select.select([self.bwrap_fd], [], [], SETTLE_S)
        elif self.alive:
            for child in procfs.children_of(self.bwrap):
                os.kill(child, _signal.SIGKILL)
        send_kill(self.bwrap_fd)
        _, status = os.waitpid(self.bwrap, 0)
        dead = self.child_fd < 0 or bool(select.select([self.child_fd], [], [], DEATH_S)[0])
        ended_at = time.monotonic()
        if select.select([self.status], [], [], 0)[0]:
            self.lines += os.read(self.status, 65536)
            code = member(self.lines, b'"exit-code"')
            if code >= 0 and not self.reason:
                self.exit_code = b"%d" % code
        fields = (
            b"ended",
            self.exit_code,
            self.reason,
            b"%d" % os.waitstatus_to_exitcode(status),
            b"%d" % ((ended_at - self.released_at) * 1e6),
            b"dead" if dead else b"alive",
            b"released" if self.block < 0 else b"held",
            b"%d" % memory_peak,
            *(b"%s=%d" % (name.encode(), value) for name, value in facts.items()),
        )
        self.tell(b"\0".join(fields))

    def fail(self, step: bytes, why: str) -> None:
        """Tell the runner which step failed; the end follows."""
        self.reason = self.reason or b"setup"
        self.tell(b"\0".join((b"failed", step, why.encode("utf-8", "replace")[:2000])))

    def tell(self, message: bytes) -> None:
        """Send a message to a runner that may be gone."""
        if not self.gone:
            try:
                self.control.send(message)
            except OSError:
                self.gone = True


def shared_places(request: Request) -> dict[bytes, tuple[int, int]]:
    """Return the places inside that are a directory of the host, each with its device and inode."""
    places = {}
    for field in request.get(b"shared", ()):
        device, inode, path = field.split(b":", 2)
        places[path] = (int(device), int(inode))
    return places


def member(lines: bytes, name: bytes) -> int:
    """Return a numeric member of one of the JSON lines (whole lines only), or -1."""
    for line in lines.split(b"\n")[:-1]:
        rest = line.partition(name)[2].lstrip(b" :\t")
        digits = rest[: len(rest) - len(rest.lstrip(b"0123456789"))]
        if 0 < len(digits) < 20:
            return int(digits)
    return -1


def send_kill(pidfd: int) -> None:
    """Send SIGKILL to a process that may be gone."""
    try:
        _signal.pidfd_send_signal(pidfd, _signal.SIGKILL)
    except ProcessLookupError:
        return
