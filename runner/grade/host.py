"""The profile host: runs profiles' functions over saved evidence. A program of its own, started in a sandbox by profile_host.py.

Boundary: reads requests on stdin, answers on stdout, forks one worker a profile (host_worker.py). Standard library and the profile modules only. Not here: what a valid answer is (answers.py).
Rules: the host imports no profile; a worker imports exactly one. Only the host writes to stdout, and only the host says which attempt an answer is for, so that a profile can
spoil nothing but attempts of its own. A worker that reaches for the world (a file, a socket, a process, ctypes) has its attempt refused and ends at once: what it
caught or hid does not matter. The sandbox has nothing to reach for anyway; the watch is there to say so.

Protocol, one JSON object a line:
  in   {"seq", "attempt", "profile": module name, "fixture", "output", "context", "unmeasured": why looking at context["workspace"] is a fault, or ""}
  out  {"seq", "attempt", "answer": {"checks", "diagnostics", "repeatable"} | {"fault": kind, "message"}}
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from runner.grade import host_worker
else:
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import host_worker

MAX_ANSWER = 4 << 20
MAX_WORKERS = 4


class Fault(Exception):
    """A request that has no answer: a kind (time, died, world, raised, size, unmeasured) and a message."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class Worker:
    """A forked process that holds one profile."""

    def __init__(self, profile: str, others: Iterable[Worker]) -> None:
        self.profile = profile
        read_request, self.requests = os.pipe()
        self.answers, write_answer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            close = [self.requests, self.answers]
            for other in others:
                close += [other.requests, other.answers]
            try:
                host_worker.work(profile, read_request, write_answer, close)
            finally:
                os._exit(0)
        os.close(read_request)
        os.close(write_answer)
        os.set_blocking(self.requests, False)
        os.set_blocking(self.answers, False)

    def ask(self, line: bytes, limit_s: float) -> dict[str, Any]:
        """Return the worker's answer to one request line; Fault where there is none in time."""
        deadline = time.monotonic() + limit_s
        view = memoryview(line)
        got = bytearray()
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Fault("time", f"it did not answer within {limit_s:g} s")
            readable, writable, _ = select.select([self.answers], [self.requests] if view else [], [], left)
            if readable:
                piece = os.read(self.answers, 1 << 16)
                if not piece:
                    raise Fault("died", "its process ended without an answer")
                got += piece
                if len(got) > MAX_ANSWER:
                    raise Fault("size", f"its answer is longer than {MAX_ANSWER} bytes")
                if got.endswith(b"\n"):
                    return read_answer(bytes(got))
            if writable:
                try:
                    view = view[os.write(self.requests, view[: 1 << 16]) :]
                except BrokenPipeError:
                    view = memoryview(b"")

    def end(self) -> None:
        """Kill and reap it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.requests)
        os.close(self.answers)


def read_answer(data: bytes) -> dict[str, Any]:
    """Return the one JSON object of a worker's answer."""
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise Fault("died", "its answer is no JSON object")
    if "fault" in answer:
        raise Fault(str(answer["fault"]), str(answer.get("message", ""))[:2000])
    return answer


def main() -> None:
    """Answer requests until stdin ends."""
    limit_s = float(sys.argv[1])
    workers: dict[str, Worker] = {}
    with os.fdopen(0, "rb", closefd=False) as requests, os.fdopen(1, "wb", closefd=False) as out:
        for line in requests:
            request = json.loads(line)
            profile = request["profile"]
            try:
                worker = workers.pop(profile, None)
                if worker is None:
                    while len(workers) >= MAX_WORKERS:
                        workers.pop(next(iter(workers))).end()
                    worker = Worker(profile, workers.values())
                workers[profile] = worker  # last used, last in order
                answer = worker.ask(line, limit_s)
            except Fault as fault:
                workers.pop(profile).end()
                answer = {"fault": fault.kind, "message": fault.message}
            reply = {"seq": request["seq"], "attempt": request["attempt"], "answer": answer}
            out.write(json.dumps(reply).encode() + b"\n")
            out.flush()
    for worker in workers.values():
        worker.end()


if __name__ == "__main__":
    main()
