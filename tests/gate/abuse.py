"""Every refused form of an HTTP request, as raw bytes: one table, walked by test_gate_abuse.py against a real upstream socket. ``{host}`` stands for the gate's own.

Rules: a form is an honest request with one thing changed, so that what is refused is that thing. A form that the gate must not even answer is no form of this table.
"""

from __future__ import annotations

import gzip
import zlib

BODY = b'{"model":"claude-sonnet-5-5","max_tokens":5,"messages":[]}'
LINE = b"POST /v1/messages HTTP/1.1\r\n"
HOST = b"Host: {host}\r\n"
JSON = b"Content-Type: application/json\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
SMUGGLED = b"POST /v1/messages HTTP/1.1\r\nHost: evil.invalid\r\n" + JSON + LENGTH + b"\r\n" + BODY


def form(
    *, line: bytes = LINE, host: bytes = HOST, kind: bytes = JSON, length: bytes = LENGTH, more: bytes = b"", body: bytes = BODY
) -> bytes:  # fmt: skip
    """Return the honest request with some of its parts changed."""
    return line + host + kind + length + more + b"\r\n" + body


def target(path: bytes) -> bytes:
    """Return the honest request for another target."""
    return form(line=b"POST " + path + b" HTTP/1.1\r\n")


def header(text: bytes) -> bytes:
    """Return the honest request with a further line."""
    return form(more=text + b"\r\n")


def of_length(value: bytes, *, body: bytes = BODY) -> bytes:
    """Return the honest request with another value of Content-Length."""
    return form(length=b"Content-Length: " + value + b"\r\n", body=body)


def packed(encoding: bytes, body: bytes) -> bytes:
    """Return a request with a compressed body."""
    return form(length=b"Content-Encoding: %b\r\nContent-Length: %d\r\n" % (encoding, len(body)), body=body)


GOOD = form()
TE = b"Transfer-Encoding: "
SMUGGLING: dict[str, bytes] = {
    "CL.TE": form(length=b"Content-Length: 6\r\n", more=TE + b"chunked\r\n", body=b"0\r\n\r\n" + SMUGGLED),
    "TE.CL": form(length=b"Content-Length: 4\r\n", more=TE + b"chunked\r\n", body=b"5c\r\n" + SMUGGLED + b"\r\n0\r\n\r\n"),
    "TE.TE": form(more=TE + b"chunked\r\n" + TE + b"cow\r\n", body=CHUNKED),
    "TE alone": form(length=TE + b"chunked\r\n", body=CHUNKED),
    "TE identity": form(more=TE + b"identity\r\n"),
    "TE xchunked": form(more=TE + b"xchunked\r\n", body=CHUNKED),
    "TE chunked, identity": form(length=TE + b"chunked, identity\r\n", body=CHUNKED),
    "TE in capitals": form(length=b"TRANSFER-ENCODING: CHUNKED\r\n", body=CHUNKED),
    "TE with a tab": form(length=b"Transfer-Encoding:\tchunked\r\n", body=CHUNKED),
    "TE with a vertical tab": form(more=b"Transfer-Encoding:\x0bchunked\r\n", body=CHUNKED),
    "TE with a space before the colon": form(more=b"Transfer-Encoding : chunked\r\n", body=CHUNKED),
    "TE folded": form(more=b"Transfer-Encoding:\r\n chunked\r\n", body=CHUNKED),
    "TE in a trailer": form(length=TE + b"chunked\r\nTrailer: Transfer-Encoding\r\n", body=CHUNKED[:-2] + b"Transfer-Encoding: x\r\n\r\n"),
    "chunk extension": form(length=TE + b"chunked\r\n", body=b"%x;a=b\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)),
    "chunk extension with a line feed": form(length=TE + b"chunked\r\n", body=b"%x;\nxx\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)),
    "chunk size with a sign": form(length=TE + b"chunked\r\n", body=b"+%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)),
    "two equal lengths": form(length=LENGTH * 2),
    "two other lengths": form(length=LENGTH + b"Content-Length: 0\r\n"),
    "a list of lengths": of_length(b"%d, %d" % (len(BODY), len(BODY))),
    "length with a plus": of_length(b"+%d" % len(BODY)),
    "length with an underscore": of_length(b"5_8"),
    "negative length": of_length(b"-1"),
    "hexadecimal length": of_length(b"0x3a"),
    "length with a fraction": of_length(b"58.0"),
    "length of other digits": of_length("٥٨".encode()),
    "length with text behind": of_length(b"58 x"),
    "empty length": of_length(b""),
    "no length": form(length=b""),
    "length with a space before the colon": form(length=b"Content-Length : %d\r\n" % len(BODY)),
    "length shorter than the body": of_length(b"10"),
    "huge length": of_length(b"1073741824", body=b"x" * 1000),
    "length beyond any number": of_length(b"9" * 40),
}  # fmt: skip
LINES: dict[str, bytes] = {
    "bare line feeds": GOOD.replace(b"\r\n", b"\n"),
    "one bare line feed": form(more=b"X-A: b\nX-C: d\r\n"),
    "bare carriage return": header(b"X-A: b\rX-C: d"),
    "a bare line feed before the line": b"\n" + GOOD,
    "a bare carriage return before the line": b"\r" + GOOD,
    "both the wrong way round before the line": b"\n\r" + GOOD,
    "a bare line feed behind an empty line": b"\r\n\n" + GOOD,
    "folded by a space": header(b"X-A: b\r\n c"),
    "folded by a tab": header(b"X-A: b\r\n\tc"),
    "folded first line": form(host=b" Host: {host}\r\n"),
    "NUL in a value": header(b"X-A: b\x00c"),
    "NUL in a name": header(b"X-\x00A: b"),
    "space in a name": header(b"X A: b"),
    "space before the colon": form(host=b"Host : {host}\r\n"),
    "no colon": header(b"nothing"),
    "no name": header(b": b"),
    "name beyond ASCII": header(b"X-\xe4: b"),
    "HTTP/1.0": GOOD.replace(b"HTTP/1.1", b"HTTP/1.0"),
    "HTTP/0.9": b"POST /v1/messages\r\n\r\n",
    "HTTP/1.2": GOOD.replace(b"HTTP/1.1", b"HTTP/1.2"),
    "HTTP/2.0": GOOD.replace(b"HTTP/1.1", b"HTTP/2.0"),
    "lower case http": GOOD.replace(b"HTTP/1.1", b"http/1.1"),
    "version with more digits": GOOD.replace(b"HTTP/1.1", b"HTTP/1.10"),
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "TLS on the plain port": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100 + b"\r\n\r\n",
    "SOCKS": b"\x05\x01\x00\r\n\r\n",
    "two spaces": GOOD.replace(b"POST /", b"POST  /"),
    "tab for a space": GOOD.replace(b"POST /", b"POST\t/"),
    "word behind the version": GOOD.replace(b"HTTP/1.1", b"HTTP/1.1 x", 1),
}  # fmt: skip
TARGETS: dict[str, bytes] = {
    "absolute form": target(b"http://evil.invalid/v1/messages"),
    "absolute form of the right host": target(b"http://{host}/v1/messages"),
    "absolute form by https": target(b"https://api.anthropic.com/v1/messages"),
    "absolute form with a user": target(b"http://a@{host}/v1/messages"),
    "authority form": target(b"evil.invalid:443"),
    "asterisk form": form(line=b"OPTIONS * HTTP/1.1\r\n"),
    "CONNECT": form(line=b"CONNECT evil.invalid:443 HTTP/1.1\r\n"),
    "CONNECT to the right host": form(line=b"CONNECT api.anthropic.com:443 HTTP/1.1\r\n"),
    "double slash": target(b"//evil.invalid/v1/messages"),
    "double slash inside": target(b"/v1//messages"),
    "dot segments": target(b"/v1/messages/../admin"),
    "one dot": target(b"/v1/./messages"),
    "%2e": target(b"/v1/%2e%2e/v1/messages"),
    "%2f": target(b"/v1%2fmessages"),
    "%6d": target(b"/v1/%6dessages"),
    "%00": target(b"/v1/messages%00"),
    "%0d%0a": target(b"/v1/messages%0d%0aX-A:%20b"),
    "backslash": target(b"/v1\\messages"),
    "path parameter": target(b"/v1/messages;x"),
    "fragment": target(b"/v1/messages#x"),
    "closing slash": target(b"/v1/messages/"),
    "other case": target(b"/V1/Messages"),
    "NUL": target(b"/v1/mess\x00ages"),
    "beyond ASCII": target(b"/v1/mess\xe4ges"),
    "beyond ASCII, UTF-8": target("/v1/messäges".encode()),
    "a space": target(b"/v1/mess ages"),
    "oversized": target(b"/v1/" + b"m" * 9000),
    "oversized query": target(b"/v1/messages?beta=" + b"t" * 70_000),
    "another query": target(b"/v1/messages?beta=true&x=1"),
    "empty query": target(b"/v1/messages?"),
    "another path": target(b"/v1/files"),
    "batches": target(b"/v1/messages/batches"),
    "empty": form(line=b"POST  HTTP/1.1\r\n"),
    "no slash": target(b"v1/messages"),
}  # fmt: skip
METHODS: dict[str, bytes] = {
    method.decode(): form(line=method + b" /v1/messages HTTP/1.1\r\n")
    for method in (b"GET", b"HEAD", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE", b"PROPFIND", b"post", b"P\x00ST", b"X" * 4000)
}  # fmt: skip
HEADERS: dict[str, bytes] = {
    "no host": form(host=b""),
    "two hosts": form(host=HOST * 2),
    "two hosts, one in capitals": form(host=HOST + b"HOST: evil.invalid\r\n"),
    "another host": form(host=b"Host: evil.invalid\r\n"),
    "host with a user": form(host=b"Host: a@{host}\r\n"),
    "host with a point": form(host=b"Host: {host}.\r\n"),
    "empty host": form(host=b"Host:\r\n"),
    "expect": form(more=b"Expect: 100-continue\r\n", body=b""),
    "expect something else": header(b"Expect: nothing"),
    "upgrade to h2c": header(b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA"),
    "upgrade without connection": header(b"Upgrade: h2c"),
    "connection upgrade alone": header(b"Connection: keep-alive, UPGRADE"),
    "websocket": form(line=b"GET /v1/messages HTTP/1.1\r\n", kind=b"", length=b"", more=b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", body=b""),
    "websocket by POST": header(b"Connection: Upgrade\r\nUpgrade: websocket"),
    "gzip": packed(b"gzip", gzip.compress(BODY, mtime=0)),
    "gzip that is none": packed(b"gzip", BODY),
    "a bomb": packed(b"gzip", gzip.compress(bytes(8 << 20), mtime=0)),
    "deflate": packed(b"deflate", zlib.compress(BODY)),
    "br": packed(b"br", BODY),
    "zstd": packed(b"zstd", BODY),
    "identity": packed(b"identity", BODY),
    "another content type": form(kind=b"Content-Type: text/plain\r\n"),
    "two content types": form(kind=JSON * 2),
    "no content type": form(kind=b""),
    "one big header": header(b"X-A: " + b"b" * 20_000),
    "a megabyte of header": header(b"X-A: " + b"b" * 1_000_000),
    "101 headers": header(b"\r\n".join(b"X-%d: y" % number for number in range(101))),
    "10,000 headers": header(b"\r\n".join(b"X-%d: y" % number for number in range(10_000))),
    "a long name": header(b"X" * 20_000 + b": y"),
}  # fmt: skip
BODIES: dict[str, bytes] = {
    name: of_length(b"%d" % len(body), body=body)
    for name, body in {
        "no JSON": b"{a}",
        "no object": b"[]",
        "nothing": b"",
        "a key twice": b'{"model":"a","model":"b","max_tokens":5,"messages":[]}',
        "NaN": b'{"model":"a","max_tokens":NaN,"messages":[]}',
        "UTF-16": BODY.decode().encode("utf-16"),
        "a byte order mark": b"\xef\xbb\xbf" + BODY,
        "not UTF-8": BODY.replace(b"sonnet", b"\xff\xfe"),
        "deep": b"[" * 100_000,
        "an unknown field": BODY.replace(b'"messages"', b'"surprise":1,"messages"'),
        "two documents": BODY + BODY,
    }.items()
}  # fmt: skip
FORMS: dict[str, bytes] = {
    f"{group}: {name}": data
    for group, forms in (
        ("framing", SMUGGLING),
        ("line", LINES),
        ("target", TARGETS),
        ("method", METHODS),
        ("header", HEADERS),
        ("body", BODIES),
    )
    for name, data in forms.items()
}
