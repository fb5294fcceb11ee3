"""Hands a folder of fixtures to hermeval-eval.socket, and writes the attempts that come back.

Boundary: reads the named folder, talks to one socket, writes below ``--out``. Not here: the other end (entry.py, which has the protocol), what a run is (hermeval).
Rules: standard library only. Regular files are sent and no link is followed. ``--out`` is tried before anything is sent. What comes back is not trusted with this side's files: paths
are checked, sizes bounded, hashes compared, nothing is overwritten; its words are escaped before they reach a terminal or a log. On stdout stands one JSON object, whatever happens:
hermeval's answer, or ``{"schema_version":1,"exit_status":2,"error":{"code","message","where","hint"}}``. Exit status: hermeval's, 2 for everything that went wrong here.
The runner takes one request at one time: one that comes meanwhile is tried again for ``--wait`` seconds, and then ends in ``runner-busy``.

    submit.py FOLDER FIXTURE… --out DIR [--provider anthropic] [--launch lean] [--model NAME] [--max-usd USD] [--timeout S] [--repeat N] [--no-grade] [--no-judge] [--wait S]
    submit.py --doctor
"""

from __future__ import annotations

import argparse
import base64
import errno
import hashlib
import json
import os
import socket
import stat
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, BinaryIO

SOCKET = "/run/hermeval-runner/eval.sock"
MAX_HEAD = 32 * 1024 * 1024
MAX_RESULT = 1024 * 1024 * 1024
WAIT_S = 900
TRY_AGAIN_S = 2.0
LOG = "ask who runs this machine for: journalctl -u 'hermeval-eval@*' -n 50"


class Refused(Exception):
    """Something is not as it should be: a stable code, what, where, what to do."""

    def __init__(self, code: str, message: str, *, where: object = "", hint: str = "") -> None:
        super().__init__(message)
        self.fields = {"code": code, "message": message, "where": str(where), "hint": hint}


def main() -> int:
    """Submit what the command line says."""
    options = argparse.ArgumentParser(description="Have a hardened runner run fixtures.", allow_abbrev=False)
    options.add_argument("folder", nargs="?", type=Path, help="The fixtures' folder, with skills/ and scripts/ in it.")
    options.add_argument("fixtures", nargs="*", help="Fixture ids.")
    options.add_argument("--doctor", action="store_true", help="Try the runner instead, from where runs run.")
    options.add_argument("--socket", default=SOCKET, metavar="PATH")
    options.add_argument("--out", type=Path, metavar="DIR", help="Where attempts are written.")
    options.add_argument("--provider", choices=["scripted", "anthropic"], default="scripted")
    options.add_argument("--launch", choices=["stock", "lean"], default="stock")
    options.add_argument("--model")
    options.add_argument("--max-usd")
    options.add_argument("--timeout", type=int, metavar="S")
    options.add_argument("--repeat", type=int, default=1, metavar="N")
    options.add_argument("--no-grade", action="store_true")
    options.add_argument("--no-judge", action="store_true")
    options.add_argument("--wait", type=int, default=WAIT_S, metavar="S", help="How long to try while another request is served; default: %(default)s.")  # fmt: skip
    chosen = options.parse_args()
    if not chosen.doctor and (chosen.folder is None or not chosen.fixtures or chosen.out is None):
        options.error("give FOLDER, FIXTURE and --out DIR, or --doctor")
    try:
        if chosen.out is not None:
            _try_out(chosen.out)
        head = _exchange(chosen.socket, _request(chosen), chosen.out, time.monotonic() + chosen.wait)
    except Refused as error:
        return _fail(error.fields)
    except (OSError, ValueError, KeyError, TypeError) as error:
        where = error.filename if isinstance(error, OSError) and error.filename else chosen.socket
        said = error.strerror if isinstance(error, OSError) and error.strerror else repr(error)
        return _fail(Refused("submit-failed", said, where=where, hint=LOG).fields)
    for line in str(head.get("stderr", "")).splitlines():
        print(f"| {_visible(line)}", file=sys.stderr)
    if (told := head.get("error")) is not None:
        fields = told if isinstance(told, dict) else {"code": "runner", "message": json.dumps(told)}
        return _fail(
            {"code": "runner", "message": "", "where": chosen.socket, "hint": "", **fields}, head.get("answer")
        )
    print(json.dumps(head.get("answer"), ensure_ascii=True))
    return head["exit_status"] if head["exit_status"] in {0, 1} else 2


def _fail(error: dict[str, Any], answer: object = None) -> int:
    """Say on stdout and on stderr what went wrong; return the exit status."""
    print(json.dumps({"schema_version": 1, "exit_status": 2, "error": error, "answer": answer}, ensure_ascii=True))
    print(f"error[{_visible(str(error['code']))}]: {_visible(str(error['message']))}", file=sys.stderr)
    for name, said in (("where", error["where"]), ("do", error["hint"])):
        if said:
            print(f"  {name + ':':<7}{_visible(str(said))}", file=sys.stderr)
    return 2


def _try_out(out: Path) -> None:
    """Make the folder and a file in it, before anything is sent and paid."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=out, prefix=".submit-"):
            pass
    except OSError as error:
        hint = "name a folder that this user can write, or can make, by --out"
        raise Refused(
            "out-unwritable", f"nothing can be written there: {error.strerror}", where=out, hint=hint
        ) from error


def _request(chosen: argparse.Namespace) -> dict[str, Any]:
    if chosen.doctor:
        return {"schema_version": 1, "do": "doctor"}
    try:
        files = [_file(chosen.folder, path) for path in sorted(_regular(chosen.folder))]
    except OSError as error:
        where, hint = error.filename or chosen.folder, "name a folder of fixtures that this user can read"
        raise Refused("folder-unreadable", str(error.strerror), where=where, hint=hint) from error
    request = {
        "schema_version": 1,
        "do": "run",
        "fixtures": chosen.fixtures,
        "files": files,
        "provider": chosen.provider,
        "launch": chosen.launch,
        "repeat": chosen.repeat,
        "grade": not chosen.no_grade,
        "judge": not chosen.no_judge,
    }
    given = {"model": chosen.model, "max_usd": chosen.max_usd, "timeout_s": chosen.timeout}
    return request | {name: value for name, value in given.items() if value is not None}


def _regular(folder: Path) -> list[Path]:
    found = []
    for directory, folders, names in os.walk(folder, onerror=_raise):
        if Path(directory) == folder and "attempts" in folders:
            folders.remove("attempts")  # committed attempts are no input of a run
        for name in [*names, *folders]:
            path = Path(directory, name)
            kind = path.lstat().st_mode
            if stat.S_ISLNK(kind) or not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
                hint = "a fixtures' folder is sent without links, pipes and devices: take it out, or put a copy there"
                raise Refused("folder-not-regular", "is no regular file", where=path, hint=hint)
            if stat.S_ISREG(kind):
                found.append(path)
    return found


def _raise(error: OSError) -> None:
    raise error


def _file(folder: Path, path: Path) -> dict[str, Any]:
    content = base64.b64encode(path.read_bytes()).decode("ascii")
    executable = bool(path.stat().st_mode & stat.S_IXUSR)
    return {"path": path.relative_to(folder).as_posix(), "content": content, "executable": executable}


def _exchange(path: str, request: dict[str, Any], out: Path | None, end: float) -> dict[str, Any]:
    data, said = json.dumps(request).encode("utf-8"), False
    while (head := _once(path, data, out)) is None:
        if time.monotonic() >= end:
            hint = f"wait for its end, or give a longer --wait; if nothing runs there, {LOG}"
            message = "the runner closed the connection unread: it serves one request at one time, and is at another"
            raise Refused("runner-busy", message, where=path, hint=hint)
        if not said:
            print("submit: the runner is at another request; waiting", file=sys.stderr)
            said = True
        time.sleep(min(TRY_AGAIN_S, max(0.0, end - time.monotonic())))
    return head


def _connect(sock: socket.socket, path: str) -> None:
    try:
        sock.connect(path)
    except PermissionError as error:
        hint = "as root: usermod -aG hermeval-submit USER; then log in again, or start the runner's service again"
        raise Refused(
            "runner-not-allowed", f"{error.strerror}: this user may not submit", where=path, hint=hint
        ) from error
    except OSError as error:
        hint = "as root: systemctl status hermeval-eval.socket; if there is none, see docs/runners.md"
        raise Refused(
            "runner-absent", f"nobody listens there: {error.strerror or error}", where=path, hint=hint
        ) from error


def _once(path: str, data: bytes, out: Path | None) -> dict[str, Any] | None:
    """Send the request and take what comes back; None where it was not read, which is how systemd refuses a connection over ``MaxConnections=``."""
    unread = False
    with socket.socket(socket.AF_UNIX) as sock:
        _connect(sock, path)
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            if error.errno not in {errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN}:
                raise
            unread = True  # refused before it was read to its end; an answer, if there is one, says why
        with sock.makefile("rb") as stream:
            try:
                line = stream.readline(MAX_HEAD)
            except ConnectionResetError:
                line, unread = b"", True
            if unread and not line:
                return None
            if not line.endswith(b"\n"):
                message = "the runner gave no whole answer: the request was taken, and what served it ended"
                raise Refused("runner-ended", message, where=path, hint=LOG)
            head = json.loads(line)
            if not isinstance(head, dict) or head.get("schema_version") != 1 or "exit_status" not in head:
                raise Refused("runner-answer", "the runner's answer has another form", where=path, hint=LOG)
            files = head.get("files") or []
            if files and out is None:
                raise Refused("runner-answer", "the runner sent files that were not asked for", where=path, hint=LOG)
            left = MAX_RESULT
            for row in files:
                left -= row["bytes"]
                if left < 0:
                    raise Refused("runner-answer", "the runner's files are too large", where=path, hint=LOG)
                assert out is not None
                _keep(stream, row, out)
    return head


def _keep(stream: BinaryIO, row: dict[str, Any], out: Path) -> None:
    name, size = row["path"], row["bytes"]
    parts = name.split("/") if isinstance(name, str) else [""]
    if (
        len(parts) > 8
        or any(part in {"", ".", ".."} or part.startswith(".") for part in parts)
        or not name.isprintable()
    ):
        raise Refused("runner-answer", "the runner named a file that is not kept", where=repr(name)[:200], hint=LOG)
    data = stream.read(size)
    if len(data) != size or hashlib.sha256(data).hexdigest() != row["sha256"]:
        raise Refused("runner-answer", "the file did not arrive whole", where=name, hint=LOG)
    path = out.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_bytes(data)
    try:
        os.link(temporary, path)
    except FileExistsError as error:
        hint = "nothing is overwritten: name another folder by --out"
        raise Refused("result-exists", "a file of that name is there already", where=path, hint=hint) from error
    finally:
        temporary.unlink()


def _visible(text: str) -> str:
    """Escape what could act on a terminal, or be a command to a workflow's log (``::add-mask::``)."""
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return shown.replace("::", ": :")


if __name__ == "__main__":
    sys.exit(main())
