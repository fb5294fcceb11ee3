"""Hands a folder of fixtures to hermeval-eval.socket, and writes the attempts that come back.

Boundary: reads the named folder, talks to one socket, writes below ``--out``. Not here: the other end (entry.py, which has the protocol), what a run is (hermeval).
Rules: standard library only. Regular files are sent and no link is followed. What comes back is not trusted with this side's files: paths are checked, sizes bounded, hashes
compared, nothing is overwritten; its words are escaped before they reach a terminal or a log. Exit status: hermeval's, 2 for everything that went wrong here.

    submit.py FOLDER FIXTURE… --out DIR [--provider anthropic] [--launch lean] [--model NAME] [--max-usd USD] [--timeout S] [--repeat N] [--no-grade] [--no-judge]
    submit.py --doctor
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import socket
import stat
import sys
from pathlib import Path
from typing import Any, BinaryIO

SOCKET = "/run/hermeval-runner/eval.sock"
MAX_HEAD = 32 * 1024 * 1024
MAX_RESULT = 1024 * 1024 * 1024


class Refused(Exception):
    """Something is not as it should be; the text says what."""


def main() -> int:
    """Submit what the command line says."""
    options = argparse.ArgumentParser(description="Have a hardened runner run fixtures.")
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
    chosen = options.parse_args()
    if not chosen.doctor and (chosen.folder is None or not chosen.fixtures or chosen.out is None):
        options.error("give FOLDER, FIXTURE and --out DIR, or --doctor")
    try:
        head = _exchange(chosen.socket, _request(chosen), chosen.out)
    except (OSError, ValueError, Refused) as error:
        print(f"error[submit]: {_visible(str(error))}", file=sys.stderr)
        return 2
    print(json.dumps(head.get("answer"), ensure_ascii=True))
    for line in str(head.get("stderr", "")).splitlines():
        print(f"| {_visible(line)}", file=sys.stderr)
    if head.get("error") is not None:
        print(f"error[runner]: {_visible(json.dumps(head['error']))}", file=sys.stderr)
        return 2
    return head["exit_status"] if head["exit_status"] in {0, 1} else 2


def _request(chosen: argparse.Namespace) -> dict[str, Any]:
    if chosen.doctor:
        return {"schema_version": 1, "do": "doctor"}
    request = {
        "schema_version": 1,
        "do": "run",
        "fixtures": chosen.fixtures,
        "files": [_file(chosen.folder, path) for path in sorted(_regular(chosen.folder))],
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
                raise Refused(f"{path} is no regular file; a fixtures' folder is sent without links, pipes and devices")
            if stat.S_ISREG(kind):
                found.append(path)
    return found


def _raise(error: OSError) -> None:
    raise error


def _file(folder: Path, path: Path) -> dict[str, Any]:
    content = base64.b64encode(path.read_bytes()).decode("ascii")
    executable = bool(path.stat().st_mode & stat.S_IXUSR)
    return {"path": path.relative_to(folder).as_posix(), "content": content, "executable": executable}


def _exchange(path: str, request: dict[str, Any], out: Path | None) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        try:
            sock.sendall(json.dumps(request).encode("utf-8"))
            sock.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before it was read to its end; the answer says why
        with sock.makefile("rb") as stream:
            line = stream.readline(MAX_HEAD)
            if not line.endswith(b"\n"):
                raise Refused("the runner gave no whole answer")
            head = json.loads(line)
            if not isinstance(head, dict) or head.get("schema_version") != 1 or "exit_status" not in head:
                raise Refused("the runner's answer has another form")
            files = head.get("files") or []
            if files and out is None:
                raise Refused("the runner sent files that were not asked for")
            left = MAX_RESULT
            for row in files:
                left -= row["bytes"]
                if left < 0:
                    raise Refused("the runner's files are too large")
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
        raise Refused("the runner named a file that is not kept")
    data = stream.read(size)
    if len(data) != size or hashlib.sha256(data).hexdigest() != row["sha256"]:
        raise Refused(f"{name} did not arrive whole")
    path = out.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_bytes(data)
    os.link(temporary, path)
    temporary.unlink()


def _visible(text: str) -> str:
    """Escape what could act on a terminal, or be a command to a workflow's log (``::add-mask::``)."""
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return shown.replace("::", ": :")


if __name__ == "__main__":
    sys.exit(main())
