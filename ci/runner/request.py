"""What a request to hermeval-eval@.service is, and the one command line that it becomes.

Boundary: pure. Not here: the socket, the program that is started, the response (entry.py).
Rules: standard library only. Any bytes give a ``Request`` or ``RequestInvalid``, nothing else. No word of a request reaches a shell, an environment variable or an option's name; each
value has a pattern that cannot begin with ``-``. A live request whose worst case does not fit is refused (``request-too-long``).

Request: one JSON object, then the end of the stream (the client shuts its side down).
    {"schema_version":1,"do":"run","fixtures":["id"],"files":[{"path":"id.json","content":"<base64>","executable":false}, …],
     "provider":"scripted"|"anthropic","launch":"stock"|"lean","model":"…","max_usd":"2","timeout_s":600,"repeat":1,"grade":true,"judge":true}
    {"schema_version":1,"do":"doctor"}
"""

from __future__ import annotations

import base64
import binascii
import json
import re
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
