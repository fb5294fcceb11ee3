"""What hermeval-eval@.service starts: reads one request from its socket, runs ``hermeval`` on it, writes one response, ends.

Boundary: touches standard input (the socket), a private directory, one child process. Not here: confinement (the unit, options.json), the run (hermeval), the other end (submit.py).
Rules: standard library only, run as ``python3 -I -S``. Everything that is read or written has a bound. When the client goes away, so does the run.
There is no key here: live runs go through the gate's socket. A live request whose worst case does not fit in ``--max-s`` is refused before anything is paid (``request-too-long``); what
has not ended by then is stopped, and what was finished is handed over (``out-of-time``).

Request: request.py has its form; the client shuts its side down behind it.
Response: one line, a JSON object, then the bytes of ``files`` one after another, in their order.
    {"schema_version":1,"exit_status":0|1|2,"answer":{…}|null,"stderr":"…","files":[{"path","bytes","sha256"}],"error":{"code","message"}|null}
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import select
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2]))  # the checkout, which ``-I`` leaves out

from ci.runner.request import (
    MAX_REQUEST,
    MIB,
    RequestInvalid,
    check_fits,
    command_line,
    parse_request,
)

MAX_ANSWER = 16 * MIB
MAX_STDERR = 64 * 1024
MAX_RESULT = 1024 * MIB
READ_DEADLINE_S = 120.0
WRITE_DEADLINE_S = 60.0
"""Of one piece: how long a client may take no byte."""
STOP_S = 20.0


def main() -> int:
    """Serve the request on standard input; 0 unless nobody could be answered."""
    options = argparse.ArgumentParser(description="Serve one request of hermeval-eval.socket on standard input.")
    options.add_argument("--hermeval", required=True, metavar="PROGRAM")
    options.add_argument("--gate", required=True, metavar="SOCKET")
    options.add_argument("--max-usd", required=True, type=Decimal, metavar="USD", help="Ceiling of one run.")
    options.add_argument("--max-s", required=True, type=int, metavar="S", help="Seconds that a request may take.")
    chosen = options.parse_args()
    os.umask(0o077)
    client = socket.socket(fileno=os.dup(0))
    work = Path(tempfile.mkdtemp(prefix="eval-"))
    try:
        return _serve(client, work, chosen.hermeval, chosen.gate, chosen.max_usd, chosen.max_s)
    except OSError as error:
        print(f"hermeval-eval: {type(error).__name__}: {error.strerror}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(work, ignore_errors=True)
        client.close()


def _serve(client: socket.socket, work: Path, hermeval: str, gate: str, max_usd: Decimal, max_s: int) -> int:
    end = time.monotonic() + max_s
    try:
        request = parse_request(_read(client))
        check_fits(request, max_s)
    except RequestInvalid as error:
        _write(client, {"exit_status": 2, "error": {"code": error.code, "message": str(error)}}, [])
        return 0
    print(f"hermeval-eval: {request!r}"[:2000], file=sys.stderr)
    folder, out, home = work / "fixtures", work / "out", work / "home"
    for directory in (folder, out, home):
        directory.mkdir()
    for file in request.files:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "xb") as stream:  # noqa: PTH123  "x": what is there is never followed
            stream.write(file.content)
        path.chmod(0o700 if file.executable else 0o600)
    ran = _run(client, command_line(request, hermeval, gate, max_usd, folder, out), home, end)
    if ran is None:
        return 1
    status, stdout, errors, late = ran
    answer, fault = None, None
    with contextlib.suppress(ValueError, RecursionError):
        answer = json.loads(stdout)
    if late:
        fault = {"code": "out-of-time", "message": f"stopped after {max_s} s; what was finished by then is here"}
    elif answer is None:
        fault = {"code": "no-answer", "message": "hermeval gave no answer that can be read; its stderr may say why"}
    files = list(_results(out))
    if sum(size for _, _, size in files) > MAX_RESULT:
        files, fault = [], {"code": "result-too-large", "message": f"the attempts pass {MAX_RESULT} bytes"}
    status = status if status in {0, 1, 2} and fault is None else 2
    _write(client, {"exit_status": status, "answer": answer, "stderr": errors, "error": fault}, files)
    return 0


def _read(client: socket.socket) -> bytes:
    """Read to the end of the client's side, a little more than the bound at most. Raises: RequestInvalid (too slow)."""
    end, data = time.monotonic() + READ_DEADLINE_S, bytearray()
    while True:
        client.settimeout(max(0.001, end - time.monotonic()))
        try:
            piece = client.recv(MIB)
        except TimeoutError:
            raise RequestInvalid("the request did not end in time", "request-timeout") from None
        if not piece:
            return bytes(data)
        if len(data) <= MAX_REQUEST:  # beyond that it is read and dropped, so that the client gets to hear why
            data += piece


def _run(client: socket.socket, words: list[str], home: Path, end: float) -> tuple[int, bytes, str, bool] | None:
    """Run the program to its end, or stop it at ``end`` (monotonic; the last value says so); None if the client went away, and the program with it."""
    environment = {name: os.environ[name] for name in ("PATH", "HERMEVAL_CACHE") if name in os.environ}
    environment |= {"HOME": str(home), "LANG": "C.UTF-8"}
    child = subprocess.Popen(  # the program is the unit's, every word of the request has a pattern
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd=home
    )
    assert child.stdout is not None
    assert child.stderr is not None
    outputs = {child.stdout.fileno(): bytearray(), child.stderr.fileno(): bytearray()}
    poll = select.poll()
    poll.register(client, 0)  # nothing but a hang-up
    for number in outputs:
        poll.register(number, select.POLLIN)
    left, late = set(outputs), False
    while left:
        events = poll.poll(max(0, (end - time.monotonic()) * 1000))
        if time.monotonic() >= end:
            if late:
                child.kill()
                break
            late, end = True, time.monotonic() + STOP_S
            child.terminate()  # hermeval ends its sandboxes and says what it has; RuntimeMaxSec is behind this
        for number, event in events:
            if number == client.fileno():
                _stop(child)
                return None
            piece = os.read(number, 65536) if event & (select.POLLIN | select.POLLHUP) else b""
            if not piece:
                poll.unregister(number)
                left.discard(number)
            elif number == child.stdout.fileno():
                if len(outputs[number]) <= MAX_ANSWER:
                    outputs[number] += piece
            else:
                outputs[number] = (outputs[number] + piece)[-MAX_STDERR:]
    status = child.wait()
    stdout, errors = outputs.values()
    return status, bytes(stdout) if len(stdout) <= MAX_ANSWER else b"", errors.decode("utf-8", "replace"), late


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _results(out: Path) -> Iterator[tuple[str, Path, int]]:
    """Yield what hermeval wrote: attempts, and evaluations beside them; no links, nothing half-written."""
    for directory, folders, names in os.walk(out):
        folders.sort()
        for name in sorted(names):
            path = Path(directory, name)
            found = path.lstat()
            if stat.S_ISREG(found.st_mode) and not name.startswith("."):
                yield str(path.relative_to(out)), path, found.st_size


def _write(client: socket.socket, fields: dict[str, Any], files: list[tuple[str, Path, int]]) -> None:
    rows = []
    for name, path, size in files:
        with path.open("rb") as stream:
            rows.append({"path": name, "bytes": size, "sha256": hashlib.file_digest(stream, "sha256").hexdigest()})
    head = {"schema_version": 1, "answer": None, "stderr": "", "error": None, **fields, "files": rows}
    client.settimeout(WRITE_DEADLINE_S)
    client.sendall(json.dumps(head, ensure_ascii=True).encode("ascii") + b"\n")
    for _, path, _ in files:
        with path.open("rb") as stream:
            while piece := stream.read(MIB):
                client.sendall(piece)
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    sys.exit(main())
