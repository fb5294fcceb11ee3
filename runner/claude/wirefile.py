"""Reads a file of recorded requests, one JSON object a line, into exchanges without responses.

Boundary: pure. Not here: attempts (runner/bundle/), the witness (wire.py).
Rules: a line is ``{"method", "path", "headers", "body"}``; headers an object or a list of pairs; the body an object, or the JSON text as it
was sent. A body that is no JSON is kept and proves nothing; a line that is no such object makes the whole file unusable.
"""

from __future__ import annotations

import json
from typing import Any

from runner.claude.lines import BOM, JSON_BLANKS, loads
from runner.claude.readings import bounded_json
from runner.errors import InputError
from runner.gate.exchange import Exchange, Headers, Request

AGENT_HEADER = "x-claude-code-agent-id"
SESSION_HEADER = "x-claude-code-session-id"


class WireFileInvalid(InputError):
    """A file of recorded requests has a line that is no request; ``where`` is the line."""

    code = "wire-file-invalid"


def read_wire_file(data: bytes, name: str) -> tuple[Exchange, ...]:
    """Return the file's requests in order; a file without any is an empty tuple.

    Raises: WireFileInvalid for a line that is no JSON object of the expected shape.
    """
    exchanges: list[Exchange] = []
    for number, line in enumerate(data.removeprefix(BOM).split(b"\n"), 1):
        if not line.strip(JSON_BLANKS):
            continue
        where = f"{name}:{number}"
        try:
            value = loads(line)
        except ValueError as error:
            raise WireFileInvalid("the line is no JSON document", where=where, hint=_HINT) from error
        exchanges.append(_exchange(value, len(exchanges) + 1, where))
    return tuple(exchanges)


_HINT = 'give one request a line: {"method", "path", "headers", "body"}'


def _exchange(value: Any, number: int, where: str) -> Exchange:
    if (
        not isinstance(value, dict)
        or not isinstance(value.get("method"), str)
        or not isinstance(value.get("path"), str)
    ):
        raise WireFileInvalid("the line is no recorded request", where=where, hint=_HINT)
    headers = _headers(value.get("headers"), where)
    by_name = {key.lower(): text for key, text in headers}
    request = Request(method=value["method"], target=value["path"], headers=headers, body=_body(value.get("body")))
    return Exchange(
        seq=number,
        kind="inference" if value["path"].split("?", 1)[0] == "/v1/messages" else "start-up",
        session=by_name.get(SESSION_HEADER, ""),
        agent=by_name.get(AGENT_HEADER, "")
        or ("(empty)" if AGENT_HEADER in by_name else ""),  # no main thread sends it
        request=request,
    )


def _headers(value: Any, where: str) -> Headers:
    pairs = (
        list(value.items())
        if isinstance(value, dict)
        else value
        if isinstance(value, list)
        else []
        if value is None
        else None
    )
    if pairs is None or not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        raise WireFileInvalid("the headers are neither an object nor a list of pairs", where=where, hint=_HINT)
    return tuple((str(name), str(text)) for name, text in pairs)


def _body(value: Any) -> bytes:
    if value is None:
        return b""
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    return json.dumps(bounded_json(value)).encode()
