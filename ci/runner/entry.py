"""What hermeval-eval@.service starts: reads one request from its socket, runs ``hermeval`` on it, writes one response, ends.

Boundary: touches standard input (the socket), a private directory, one child process. Not here: confinement (the unit, options.json), the run (hermeval), the other end (submit.py).
Rules: standard library only, run as ``python3 -I -S``. ``parse_request`` is pure: any bytes give a ``Request`` or ``RequestInvalid``, nothing else. No word of a
request reaches a shell, an environment variable or an option's name; each value has a pattern that cannot begin with ``-``. Everything that is read or
written has a bound. When the client goes away, so does the run. There is no key here: live runs go through the gate's socket. A live request whose worst case does not fit in
``--max-s`` is refused before anything is paid (``request-too-long``); what has not ended by then is stopped, and what was finished is handed over (``out-of-time``).

Request: one JSON object, then the end of the stream (the client shuts its side down).
    {"schema_version":1,"do":"run","fixtures":["id"],"files":[{"path":"id.json","content":"<base64>","executable":false}, …],
     "provider":"scripted"|"anthropic","launch":"stock"|"lean","model":"…","max_usd":"2","timeout_s":600,"repeat":1,"grade":true,"judge":true}
    {"schema_version":1,"do":"doctor"}
Response: one line, a JSON object, then the bytes of ``files`` one after another, in their order.
    {"schema_version":1,"exit_status":0|1|2,"answer":{…}|null,"stderr":"…","files":[{"path","bytes","sha256"}],"error":{"code","message"}|null}
"""

from __future__ import annotations

import argparse
import base64
import binascii
import contextlib
import hashlib
import json
import os
import re
import select
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

MIB = 1024 * 1024
MAX_REQUEST = 48 * MIB
MAX_FILES = 2_000
MAX_CONTENT = 32 * MIB
MAX_PATH = 240
MAX_DEPTH = 16
MAX_FIXTURES = 50
MAX_ANSWER = 16 * MIB
MAX_STDERR = 64 * 1024
MAX_RESULT = 1024 * MIB
READ_DEADLINE_S = 120.0
WRITE_DEADLINE_S = 60.0
"""Of one piece: how long a client may take no byte."""
STOP_S = 20.0
RUN_S, JUDGE_S = 600, 300
"""Wall clocks of ``hermeval`` for a run and for a judge's vote, where neither request nor fixture has one."""
AROUND_S = 60
"""What an attempt takes around its wall clocks: start, collection, grading."""

_FIXTURE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@\[\]-]{0,99}", re.ASCII)
_USD = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?", re.ASCII)
_RUN_FIELDS = {
    "schema_version", "do", "fixtures", "files", "provider", "launch", "model", "max_usd", "timeout_s", "repeat", "grade", "judge",
}  # fmt: skip


class RequestInvalid(Exception):
    """The one declared error of ``parse_request``; ``code`` is stable."""

    def __init__(self, message: str, code: str = "request-invalid") -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class File:
    """A regular file of the fixtures' folder."""

    path: str
    content: bytes
    executable: bool


@dataclass(frozen=True)
class Request:
    """What is to be done. Defaults are those of ``hermeval run``."""

    do: str
    fixtures: tuple[str, ...] = ()
    files: tuple[File, ...] = field(default=(), repr=False)
    provider: str = "scripted"
    launch: str = "stock"
    model: str | None = None
    max_usd: Decimal | None = None
    timeout_s: int | None = None
    repeat: int = 1
    grade: bool = True
    judge: bool = True


def parse_request(data: bytes) -> Request:
    """Return the request that ``data`` is. Raises: RequestInvalid."""
    if len(data) > MAX_REQUEST:
        raise RequestInvalid(f"the request passes {MAX_REQUEST} bytes", "request-too-large")
    try:
        document = json.loads(data.decode("utf-8"), object_pairs_hook=_object, parse_constant=_constant)
    except RequestInvalid:
        raise
    except (
        ValueError,
        RecursionError,
    ) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors, so is an endless integer
        raise RequestInvalid(f"not one JSON document: {type(error).__name__}") from error
    if not isinstance(document, dict) or _integer(document.get("schema_version"), 1, 1, "schema_version") != 1:
        raise RequestInvalid("the request is no object of schema_version 1")
    if document.get("do") == "doctor":
        _only(document, {"schema_version", "do"})
        return Request("doctor")
    if document.get("do") != "run":
        raise RequestInvalid("do is neither run nor doctor")
    _only(document, _RUN_FIELDS)
    usd, timeout_s, model = document.get("max_usd"), document.get("timeout_s"), document.get("model")
    return Request(
        "run",
        fixtures=_fixtures(document.get("fixtures")),
        files=_files(document.get("files")),
        provider=_one_of(document.get("provider", "scripted"), ("scripted", "anthropic"), "provider"),
        launch=_one_of(document.get("launch", "stock"), ("stock", "lean"), "launch"),
        model=None if model is None else _text(model, _MODEL, "model"),
        max_usd=None if usd is None else Decimal(_text(usd, _USD, "max_usd")),
        timeout_s=None if timeout_s is None else _integer(timeout_s, 1, 86_400, "timeout_s"),
        repeat=_integer(document.get("repeat", 1), 1, 100, "repeat"),
        grade=_truth(document.get("grade", True), "grade"),
        judge=_truth(document.get("judge", True), "judge"),
    )


def command_line(request: Request, hermeval: str, gate: str, max_usd: Decimal, folder: Path, out: Path) -> list[str]:
    """Return the one program that is started, and its arguments."""
    if request.do == "doctor":
        return [hermeval, "doctor", "--json"]
    words = [hermeval, "run", "--json", "--fixtures", str(folder), "--out", str(out)]
    words += ["--provider", request.provider, "--launch", request.launch, "--repeat", str(request.repeat)]
    words += ["--max-usd", f"{min(request.max_usd or Decimal(2), max_usd):f}"]
    if request.provider == "anthropic":
        words += ["--base-url", f"unix://{gate}"]
    if request.model is not None:
        words += ["--model", request.model]
    if request.timeout_s is not None:
        words += ["--timeout", str(request.timeout_s)]
    if not request.grade:
        words.append("--no-grade")
    elif not request.judge:
        words.append("--no-judge")
    return [*words, "--", *request.fixtures]


def worst_case_s(request: Request) -> int:
    """Return how many seconds the request takes if every attempt and every vote uses its whole wall clock. A fixture that cannot be read counts with the defaults; ``hermeval`` refuses it."""
    contents = {file.path: file.content for file in request.files}
    total = 0
    for name in request.fixtures:
        try:
            fixture = json.loads(contents.get(f"{name}.json", b"{}"))
        except (ValueError, RecursionError):
            fixture = None
        run = request.timeout_s or _seconds(fixture, "worker", RUN_S)
        vote = min(_seconds(fixture, "judge", JUDGE_S), request.timeout_s or 86_400)
        total += run + AROUND_S + (vote if request.grade and request.judge else 0)
    return total * request.repeat


def check_fits(request: Request, max_s: int) -> None:
    """Refuse a live request whose worst case takes longer than ``max_s`` seconds. Raises: RequestInvalid (``request-too-long``)."""
    if request.provider == "anthropic" and (needed := worst_case_s(request)) > max_s:
        cure = "name fewer fixtures, or give a lower --timeout or --repeat"
        said = f"at worst the request takes {needed} s, and it may take {max_s} s: {cure}"
        raise RequestInvalid(said, "request-too-long")


def _seconds(fixture: object, part: str, default: int) -> int:
    settings = fixture.get(part) if isinstance(fixture, dict) else None
    value = settings.get("timeout_s") if isinstance(settings, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 86_400 else default


# -- values


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise RequestInvalid("an object has the same key twice")
    return value


def _constant(name: str) -> NoReturn:
    raise RequestInvalid(f"{name} is no JSON number")


def _only(document: dict[str, Any], known: set[str]) -> None:
    if unknown := sorted(document.keys() - known):
        raise RequestInvalid(f"field {unknown[0][:80]!a} is not known")


def _text(value: object, pattern: re.Pattern[str], name: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise RequestInvalid(f"{name} does not have the form {pattern.pattern}")
    return value


def _one_of(value: object, allowed: tuple[str, ...], name: str) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise RequestInvalid(f"{name} is not one of {', '.join(allowed)}")
    return value


def _integer(value: object, least: int, most: int, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise RequestInvalid(f"{name} is no whole number from {least} to {most}")
    return value


def _truth(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise RequestInvalid(f"{name} is neither true nor false")
    return value


def _fixtures(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_FIXTURES:
        raise RequestInvalid(f"fixtures is no list of 1 to {MAX_FIXTURES} ids")
    return tuple(_text(one, _FIXTURE, "a fixture's id") for one in value)


def _files(value: object) -> tuple[File, ...]:
    if not isinstance(value, list) or len(value) > MAX_FILES:
        raise RequestInvalid(f"files is no list of at most {MAX_FILES}")
    files, total = [], 0
    for entry in value:
        if not isinstance(entry, dict) or not {"path", "content"} <= entry.keys() <= {"path", "content", "executable"}:
            raise RequestInvalid("an entry of files has other fields than path, content, executable")
        try:
            content = base64.b64decode(entry["content"], validate=True) if isinstance(entry["content"], str) else None
        except (binascii.Error, ValueError):
            content = None
        if content is None:
            raise RequestInvalid("a file's content is not base64")
        total += len(content)
        if total > MAX_CONTENT:
            raise RequestInvalid(f"the files together pass {MAX_CONTENT} bytes", "request-too-large")
        files.append(File(checked_path(entry["path"]), content, _truth(entry.get("executable", False), "executable")))
    names = {file.path for file in files}
    if len(names) != len(files):
        raise RequestInvalid("a path stands twice in files")
    if any(parent in names for name in names for parent in _parents(name)):
        raise RequestInvalid("a path in files is both a file and a directory")
    return tuple(files)


def checked_path(value: object) -> str:
    """Return a relative path of plain parts. Raises: RequestInvalid."""
    parts = value.split("/") if isinstance(value, str) else [""]
    if (
        not isinstance(value, str)
        or len(parts) > MAX_DEPTH
        or any(part in {"", ".", ".."} for part in parts)
        or not value.isprintable()
        or len(value.encode("utf-8", "surrogatepass")) > MAX_PATH
    ):
        raise RequestInvalid("a file's path is not relative, plain and short")
    return value


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


# -- the world


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
