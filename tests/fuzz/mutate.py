"""Inputs that are nearly right: valid samples with something wrong in them, of their structure or of their bytes.

Boundary: pure; all chance comes from the given source, a seeded one or Hypothesis's. Not here: who reads them (targets.py).
Rules: the same source gives the same input. No input is larger than ``MAX_BYTES``: what large ones do is asked for by itself (``grown``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Literal

Form = Literal["bytes", "text", "json", "lines"]
"""What a sample is: any bytes, text, one JSON document, or one JSON document a line."""
MAX_BYTES = 64 << 10

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**53, 2**63, -(2**63), 2**64, 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf"), "", " ", "\0", "\n", "\x1b[2J", "\ud800",
    "\udfff\ud800", "\ufeff", "e\u0301", "\u202e", "a" * 5000, "0" * 5000, "..", "../x", "/", "/etc/passwd", "//", "-rf", "a\0b", "1", "1e999", "null", "{}", "é" * 300,
    "sk-ant-x", "<script>", "data: x", [], {}, [[]], [None], {"": None}, {"type": None}, {"__proto__": 1}, [[[[[[[[]]]]]]]], list(range(100)),
)  # fmt: skip
"""What stands where something else should."""
WORDS: tuple[bytes, ...] = (
    b"", b"\0", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xc0\x80", b"\xed\xa0\x80", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b"\x85", b"\xe2\x80\xa8", b"{", b"}", b"[", b"]",
    b'"', b"\\", b"\\u", b"\\ud800", b",", b":", b"-", b"---\n", b"...", b"NaN", b"Infinity", b"1e999", b"9" * 5000, b"[" * 2000, b'{"a":' * 2000, b'{"a":1,"a":2}', b"null",
    b"true", b"event: ", b"data: ", b"id: 1", b"&a", b"*a", b"<<: *a", b"!!python/object:x", b"!!binary", b"? ", b"%TAG", b"|", b">", b"Content-Length: 1\r\n",
    b"Transfer-Encoding: chunked\r\n", b" HTTP/1.1", b"Host: x\r\n", b"\t", b"\x1b]0;x\x07", b"```", b"```json\n", b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18", b"-----BEGIN",
    b"AAAA", b"../", b"=", b"0 0 4294967295\n",
)  # fmt: skip


def mutate(samples: Sequence[bytes], form: Form, chance: Random) -> bytes:
    """Return an input: a sample with one to four things wrong, or, one time in twenty, something else altogether."""
    if chance.random() < 0.05:
        return chance.randbytes(chance.choice((0, 1, 2, 8, 60, 400)))
    data = chance.choice(samples)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 4))):
        structured = form in ("json", "lines") and chance.random() < 0.6
        data = (_in_structure(data, form, chance) if structured else None) or _in_bytes(data, samples, chance)
    return data[:MAX_BYTES]


def grown(samples: Sequence[bytes], size: int) -> Iterator[bytes]:
    """Yield inputs of about so many bytes: samples said again and again, and what readers are known to choke on."""
    repeated = [b"[", b"{", b'{"a":', b'["', b"(", b"\n", b"\r\n", b" ", b"-", b"a", b"9", b'"', b"\\", b"a,", b"data: x\n", b"event: x\n\n", b"&a ", b"*a ", b"- ", b"a: ", b"<a>",
                b"\x28\xb5\x2f\xfd", b"\xff", b"```\n", b"A: b\r\n", b"$ARGUMENTS ", b"/cf ", b"---\n", b"{}\n", b"0 0 1\n", b"x=1\0"]  # fmt: skip
    for piece in (*repeated, *(sample for sample in samples if sample)):
        yield (piece * (size // len(piece) + 1))[:size]
    for head, piece, tail in (
        (b'"', b"a", b'"'),
        (b'"', b"\\u0041", b'"'),
        (b"[", b"1,", b"1]"),
        (b"---\na: ", b"b", b"\n---\n"),
        (b"---\n", b"- a\n", b"---\n"),
    ):
        yield head + piece * (size // len(piece)) + tail


def _in_bytes(data: bytes, samples: Sequence[bytes], chance: Random) -> bytes:
    start = chance.randint(0, len(data))
    end = min(len(data), start + chance.choice((0, 1, 1, 2, 4, 16, 100)))
    ways: tuple[Callable[[], bytes], ...] = (
        lambda: data[:start] + chance.choice(WORDS) + data[end:],
        lambda: data[:start] + data[end:],
        lambda: data[:start],
        lambda: data[start:],
        lambda: data[:start] + chance.randbytes(end - start) + data[end:],
        lambda: _flipped(data, chance),
        lambda: data[:end] + data[start:end] * chance.choice((1, 2, 64)) + data[end:],
        lambda: data[:start] + _tail(chance.choice(samples), chance),
        lambda: data + chance.choice(samples),
        lambda: data.replace(b"\n", chance.choice((b"\r\n", b"\r", b"", b"\n\n")), chance.choice((1, -1))),
    )
    return chance.choice(ways)()


def _flipped(data: bytes, chance: Random) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _tail(data: bytes, chance: Random) -> bytes:
    return data[chance.randint(0, len(data)) :]


def _in_structure(data: bytes, form: Form, chance: Random) -> bytes | None:
    """Change one place of a document, or the order or number of lines; None for what is no document any more."""
    if form == "json":
        return _document(data, chance)
    lines = data.split(b"\n")
    number = chance.randrange(len(lines))
    way = chance.randrange(5)
    if way == 0:
        lines.insert(chance.randint(0, len(lines)), lines[number])
    elif way == 1:
        del lines[number]
    elif way == 2:
        chance.shuffle(lines)
    else:
        changed = _document(lines[number], chance)
        if changed is None:
            return None
        lines[number] = changed
    return b"\n".join(lines)


def _document(data: bytes, chance: Random) -> bytes | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    changed = _changed(value, chance)
    try:
        text = json.dumps(changed, ensure_ascii=chance.random() < 0.8, indent=chance.choice((None, None, None, 1)))
    except RecursionError:
        return None
    return text.encode("utf-8", "surrogatepass")


def _changed(value: Any, chance: Random) -> Any:
    """Walk down a document a random way, and change what is there."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(list(value))
        way = chance.random()
        if way < 0.1:
            return {other: kept for other, kept in value.items() if other != key}
        if way < 0.15:
            return {**value, chance.choice(("new", "type", "", key + " ", key.upper())): value[key]}
        return {**value, key: _changed(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.85:
        number = chance.randrange(len(value))
        way = chance.random()
        if way < 0.1:
            return value[:number] + value[number + 1 :]
        if way < 0.2:
            return value[:number] + [value[number]] * chance.choice((2, 50)) + value[number:]
        return [*value[:number], _changed(value[number], chance), *value[number + 1 :]]
    way = chance.random()
    if isinstance(value, str) and way < 0.4:
        place = chance.randint(0, len(value))
        return (
            value[:place]
            + chance.choice(("", "\0", "\n", "x", "\ud800", " ", value, "é", "\\", "'"))
            + value[place + chance.choice((0, 1, 3)) :]
        )
    if isinstance(value, int) and way < 0.4:
        return value + chance.choice((-1, 1, 2**40, -(2**70)))
    if way < 0.5:
        return [value]
    return chance.choice(VALUES)
