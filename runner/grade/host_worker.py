"""The worker of the profile host: one profile, imported and called, watched. Part of the host's program.

Boundary: reads requests and writes answers on two pipes that it was forked with. Standard library and one profile only. Not here: deadlines, and which attempt an answer is for
(host.py).
Rules: limits and watch stand before the profile is imported. Everything that the watch needs is bound before that too. A reach for the world ends the process with that as its
answer, so that nothing can be caught, hidden or undone by the profile.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType
    from typing import Any

    Say = Callable[[dict[str, Any]], None]

FOLDER = os.path.dirname(os.path.abspath(__file__))
"""``/opt/hermeval`` in its sandbox."""
MEMORY_BYTES = 1 << 31
READABLE = (FOLDER + "/profiles/", os.path.dirname(os.__file__) + "/")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
FORBIDDEN = (
    "ctypes.",
    "fcntl.",
    "ftplib.",
    "http.",
    "imaplib.",
    "mmap.",
    "os.chflags",
    "os.chmod",
    "os.chown",
    "os.exec",
    "os.fork",
    "os.kill",
    "os.link",
    "os.lockf",
    "os.mkdir",
    "os.posix_spawn",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.setxattr",
    "os.spawn",
    "os.symlink",
    "os.system",
    "os.truncate",
    "os.utime",
    "poplib.",
    "pty.",
    "shutil.",
    "signal.pthread_kill",
    "smtplib.",
    "socket.",
    "sqlite3.",
    "subprocess.",
    "syslog.",
    "telnetlib.",
    "tempfile.",
    "urllib.",
    "webbrowser.",
)
"""Prefixes of audit events (PEP 578) that no profile has a use for."""
LISTING = ("os.listdir", "os.scandir")


def work(profile: str, requests: int, answers: int, close: Iterable[int]) -> None:
    """Be a worker: give up what is not needed, import the profile, answer its requests."""
    for descriptor in close:
        os.close(descriptor)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    sys.stdout = os.fdopen(1, "w", closefd=False)  # print leads nowhere
    sys.stderr = os.fdopen(2, "w", closefd=False)
    for kind, value in (
        (resource.RLIMIT_NPROC, 1),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (value, value))
    source = os.fdopen(requests, "rb")
    say = bind_answer(answers)
    sys.path = [FOLDER, *(path for path in sys.path if (path + "/").startswith(READABLE[1]))]
    import profiles._types as types

    watch(say)
    module: ModuleType | None = None
    for line in source:
        request = json.loads(line)
        try:
            if module is None:
                module = __import__("profiles." + profile, fromlist=["check_output"])
            say(evaluate(module, types, line, request, say))
        except BaseException as error:  # noqa: BLE001 - whatever a profile raises is its answer
            say({"fault": "raised", "message": describe(error)})
            return


def evaluate(module: ModuleType, types: Any, line: bytes, request: dict[str, Any], say: Say) -> dict[str, Any]:
    """Call the profile's functions, each over values of its own; the checks twice, to see that they are repeatable."""
    why = request["unmeasured"]

    def call(function: Any, asked: dict[str, Any]) -> Any:
        context = Unmeasured(asked["context"], why, say) if why else asked["context"]
        return function(asked["fixture"], asked["output"], context)

    checks = plain_list(call(module.check_output, request), types.Check)
    second = plain_list(call(module.check_output, json.loads(line)), types.Check)
    diagnostics = None
    if hasattr(module, "diagnose"):
        diagnostics = plain_list(call(module.diagnose, json.loads(line)), types.Diagnostic)
    return {"checks": checks, "diagnostics": diagnostics, "repeatable": checks == second}


class Unmeasured(dict):  # type: ignore[type-arg]  # no typing at run time
    """A context whose workspace nobody may look at: to ask for it, or for all that there is, ends the process with that as its answer."""

    def __init__(self, context: dict[str, Any], why: str, say: Say) -> None:
        super().__init__(context)
        leave = os._exit

        def refuse() -> None:
            say({"fault": "unmeasured", "message": why})
            leave(0)

        self._refuse = refuse

    def _look(self, key: object) -> None:
        if key == "workspace":
            self._refuse()

    def __getitem__(self, key: Any) -> Any:
        self._look(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._look(key)
        return super().__contains__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        """As a dict's."""
        self._look(key)
        return super().get(key, default)

    def pop(self, key: Any, *default: Any) -> Any:
        """As a dict's."""
        self._look(key)
        return super().pop(key, *default)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """As a dict's."""
        self._look(key)
        return super().setdefault(key, default)

    def __iter__(self) -> Any:
        self._refuse()

    def keys(self) -> Any:
        """All of it: refused."""
        self._refuse()

    def values(self) -> Any:
        """All of it: refused."""
        self._refuse()

    def items(self) -> Any:
        """All of it: refused."""
        self._refuse()

    def copy(self) -> Any:
        """All of it: refused."""
        self._refuse()

    def __or__(self, other: Any) -> Any:
        self._refuse()

    def __ror__(self, other: Any) -> Any:
        self._refuse()


def plain_list(value: Any, kind: Any) -> Any:
    """Return a list of results as JSON; anything else is named by its type, for the runner to refuse."""
    if not isinstance(value, (list, tuple)):
        return {"type": type(value).__name__}
    fields = kind.__dataclass_fields__
    return [
        {name: plain(getattr(item, name)) for name in fields}
        if isinstance(item, kind)
        else {"type": type(item).__name__}
        for item in value
    ]


def plain(value: Any) -> Any:
    """Return a JSON value as it is, a tuple or list of numbers as a list, and anything else as its type's name."""
    if value is None or type(value) in (str, bool, int):
        return value
    if type(value) in (list, tuple):
        return [plain(item) for item in value]
    return {"type": type(value).__name__}


def bind_answer(descriptor: int) -> Say:
    """Return the function that writes one answer; everything it needs is bound here, before a profile is imported."""
    write, dumps = os.write, json.dumps

    def say(answer: dict[str, Any]) -> None:
        data = memoryview(dumps(answer).encode() + b"\n")
        while data:
            data = data[write(descriptor, data) :]

    return say


def watch(say: Say) -> None:
    """From now on, end this process with a fault when it reaches for the world."""
    leave, fsdecode, normal = os._exit, os.fsdecode, os.path.normpath
    prefixes, readable, writing, listing = FORBIDDEN, READABLE, WRITING, LISTING

    def inside(path: object) -> bool:
        if not isinstance(path, (str, bytes)):
            return False
        return (normal(fsdecode(path)) + "/").startswith(readable)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if inside(path) and not (isinstance(flags, int) and flags & writing):
                return
            verb = "writing" if isinstance(flags, int) and flags & writing else "reading"
            say({"fault": "world", "message": f"it opened a file for {verb}: {path!r:.200}"})
            leave(0)
        if event in listing and inside(arguments[0]):
            return
        if event.startswith(prefixes) or event in listing:
            say({"fault": "world", "message": f"it reached out of its process: {event}"})
            leave(0)

    sys.addaudithook(hook)


def describe(error: BaseException) -> str:
    """Return an exception in one line, with the place in the profile that it came from."""
    text = ""
    with contextlib.suppress(Exception):
        text = str(error)
    place = ""
    frame = error.__traceback__
    while frame is not None:
        name = frame.tb_frame.f_code.co_filename
        if name.startswith(READABLE[0]):
            place = f" ({name[len(READABLE[0]) :]}, line {frame.tb_lineno})"
        frame = frame.tb_next
    return f"{type(error).__name__}: {text}"[:1500] + place
