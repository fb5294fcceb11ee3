"""The command's door: what ``tool call|schema|list`` sends, what it gets, and the program itself (B14).

Boundary: pure; the program's text lies beside this module and is read with it. Not here: the socket (serving.py).
Rules: the program is bash and nothing else. Python is not in every closure, and Node's output would be one more pinned thing to carry in; bash is there because the agent's own
shell tool needs it, and has ``/dev/tcp``. The program therefore reads no JSON: mode, name and arguments go as three parts of one text, and the answer brings its
exit status in a header and its text in the body. Nothing that the program does is evidence; the trace is made here, outside.
"""

from __future__ import annotations

from pathlib import Path

from runner.canonical import canonical_json
from runner.simulate.machine import LOST, Answer, Call
from runner.simulate.planned import PROGRAMS

PATH = "/command"
INSIDE = f"{PROGRAMS}/tool"
"""Where the program lies inside the sandbox."""

EXIT_HEADER = "x-exit-status"
_PROGRAM = (Path(__file__).parent / "tool.bash").read_text(encoding="ascii")


def command_program(port: int) -> bytes:
    """Return the program's text for a listener at 127.0.0.1:``port``."""
    lost = canonical_json(LOST).decode("ascii")
    return _PROGRAM.replace("@LOST@", lost).replace("@PORT@", str(port)).encode("ascii")


def parse_command(body: bytes) -> Call | None:
    """Return the call in a request's body: mode, name, arguments, each but the last ended by a line feed. None for anything else."""
    try:
        mode, name, args = body.decode("utf-8", "backslashreplace").split("\n", 2)
    except ValueError:
        return None
    match mode:
        case "call" | "schema":
            return Call("command", mode, name, args)
        case "list" if not name:
            return Call("command", mode)
        case _:
            return None


def command_answer(answer: Answer) -> tuple[tuple[tuple[str, str], ...], bytes]:
    """Return headers and body of an answer that does go back."""
    text = f"{answer.text}\n".encode()
    if answer.way == "malformed":
        text = garbled(text)
    return (("content-type", "application/json"), (EXIT_HEADER, str(answer.exit_status))), text


def garbled(text: bytes) -> bytes:
    """Return the first half of a text, which is no JSON any more."""
    return text[: len(text) // 2]
