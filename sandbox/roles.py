"""The supervisor's two roles: the process that owns a sandbox, and for a root caller the parent that only removes what root staged. Part of the supervisor's program.

Boundary: forks, changes its uid, makes and removes the control group, removes the staging directory. Standard library only; imported by supervisor.py from the directory it lies in. Not here: bwrap (box.py).
Rules:
- bwrap never runs as uid 0 of the host. A root caller's supervisor forks first: the child gives up root for good and does everything; the parent waits for it and removes
  the staging directory, which stays root's, so that nobody else can change what was staged.
- The control socket is the lifeline. Its end means that the runner is done or dead: kill, wait until pid 1 of the sandbox is dead, remove, exit.
"""

import _socket
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    import signal as _signal

    from sandbox import box, group, kernel, procfs
else:
    import _signal
    import posix as os

    import box
    import group
    import kernel
    import procfs

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def main(argv: list[str]) -> None:
    """Take the role that the arguments say, serve one sandbox, clean up."""
    control = _socket.socket(fileno=int(argv[1]))
    os.set_inheritable(control.fileno(), False)  # the sandbox must not hold the lifeline
    os.umask(0o022)
    for number in box.QUIET:  # the runner decides when a run ends, and the lifeline tells when it cannot
        _signal.signal(number, _signal.SIG_IGN)
    own = group.Group(argv[5])
    if argv[5] != "-":
        own.make()
    if argv[2] != "-":
        child = os.fork()
        if child:
            control.close()
            _, status = os.waitpid(child, 0)
            own.remove()
            remove_tree(argv[4])
            if status:  # it was killed: a sandbox that is still held has nobody else to end it
                os.killpg(0, _signal.SIGKILL)
            return
        become(int(argv[2]), int(argv[3]))
        serve(control, own)
        return
    try:
        serve(control, own)
    finally:
        own.remove()
        remove_tree(argv[4])


def become(uid: int, gid: int) -> None:
    """Give up root for good."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    try:
        os.setuid(0)
    except PermissionError:
        return
    raise RuntimeError("root could be had again")


def serve(control: _socket.socket, own: "group.Group") -> None:
    """Serve one sandbox, then wait until the runner is done or dead."""
    if procfs.outer_uid() == 0:
        control.send(b"refused\0this user is uid 0 one level up, and a sandbox of that user does not confine")
        while box.receive(control)[0]:  # a close before the request is read would lose the answer
            pass
        return
    kernel.leave_session_keyring()
    setns = None
    if not select.select([control], [], [], 0)[0]:  # the runner is still staging: do the slow import meanwhile
        setns = kernel.load_setns()
    verb, _, descriptors = box.receive(control)
    if verb != b"start":
        return
    sandbox = box.Box(control, own)
    try:
        sandbox.run(read_request(descriptors[0]), descriptors[1:], setns)
    finally:
        sandbox.end()
    while (
        not sandbox.gone and box.receive(control)[0]
    ):  # what was staged stays until the runner has looked at it once more
        pass


def read_request(descriptor: int) -> "box.Request":
    """Return the start request from its file."""
    request: box.Request = {}
    with open(descriptor, "rb") as file:
        file.seek(0)
        for field in file.read().split(b"\0")[:-1]:
            key, _, value = field.partition(b"=")
            request.setdefault(key, []).append(value)
    return request


def remove_tree(path: str) -> None:
    """Remove a directory tree of ours, by descriptors, following nothing; ``-`` or a missing one is fine."""
    if path == "-":
        return
    try:
        top = os.open(path, FOLDER)
    except FileNotFoundError:
        return
    empty(top)
    os.rmdir(path)


def empty(folder: int) -> None:
    """Remove what is in an open directory, and close it."""
    os.fchmod(folder, 0o700)
    for name in os.listdir(folder):
        try:
            os.unlink(name, dir_fd=folder)
        except IsADirectoryError:
            empty(os.open(name, FOLDER, dir_fd=folder))
            os.rmdir(name, dir_fd=folder)
    os.close(folder)
