"""The rule that fixtures name no real service and no real person's address (B4).

Boundary: pure. Not here: reading fixtures (fixture.py).
Rules: an address is fine if its host ends in ``.invalid`` or is an IP address of the documentation ranges (RFC 5737, RFC 3849). What looks like
an address and cannot be read as one is refused, so a trick with ``@``, ``\\``, ``%`` or look-alike dots never passes as fiction.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Iterator

_HOST = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?\.?", re.IGNORECASE)
_AUTHORITY_END = r"\s/?#\\<>\"'`|^{}«»‹›\u2018-\u201f"
_URL = re.compile(rf"(?<![a-z0-9+.-])[a-z][a-z0-9+.-]*://(?P<authority>[^{_AUTHORITY_END}]*)", re.IGNORECASE)
_LAX_URL = re.compile(
    rf"(?<![a-z0-9+.-])(?:https?|wss?|ftps?|sftp|ssh|git|ldaps?|smtps?|imaps?):[/\\]*(?P<authority>[^{_AUTHORITY_END}]+)",
    re.IGNORECASE,
)
_SCHEMELESS = re.compile(rf"(?<![\w:/\\])//(?P<authority>[^{_AUTHORITY_END}]*\.[^{_AUTHORITY_END}]+)")
_MAIL = re.compile(r"(?<![\w.+%@-])[\w.+%-]+@(?P<host>\[[^\]\s]*\]|[\w.-]+)")
_DOTTED = re.compile(r"(?<![\w.@-])(?:[a-z0-9_](?:[a-z0-9_-]*)\.)+(?P<last>[a-z][a-z0-9-]*)\.?(?![\w-])", re.IGNORECASE)
_WWW = re.compile(r"(?<![\w.@-])www\.[\w.-]+", re.IGNORECASE)
_QUAD = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w]|\.\d)")
_SIX = re.compile(r"(?<![\w:.])(?=[0-9a-f:.]*\d)[0-9a-f]{0,4}(?::[0-9a-f.]{0,15}){2,8}(?![\w:])", re.IGNORECASE)

_TOP_LEVEL_WORDS = """
com org net edu gov mil int io dev app ai co uk de fr eu ch nl be es ca au jp cn ru br info biz online site cloud tech xyz shop store
example test localhost local internal intranet lan corp home arpa onion
"""
_TOP_LEVEL = frozenset(_TOP_LEVEL_WORDS.split())
"""Last labels by which a bare dotted name is taken for a host. Endings that are also common file endings (md, py, rs, sh, …) are not in it."""

_DOCUMENTATION = tuple(
    map(ipaddress.ip_network, ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"))
)


def real_addresses(text: str) -> Iterator[str]:
    """Yield what in a text looks like an address of the real world: a URL, a host, an e-mail address or an IP address.

    Nothing is yielded for text that names only ``.invalid`` hosts and documentation addresses.
    """
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text).replace("\u3002", ".")
    for pattern in (_URL, _LAX_URL, _SCHEMELESS):
        for match in pattern.finditer(plain):
            if match["authority"] and not _fictional_authority(match["authority"]):
                yield match[0]
    for match in _MAIL.finditer(plain):
        if not _fictional(match["host"]) and not _is_version(match["host"]):
            yield match[0]
    for match in _DOTTED.finditer(plain):
        if match["last"].lower() in _TOP_LEVEL:
            yield match[0]
    yield from (match[0] for match in _WWW.finditer(plain) if not _fictional(match[0]))
    yield from (
        match[0] for pattern in (_QUAD, _SIX) for match in pattern.finditer(plain) if _real_ip(match[0].rstrip("."))
    )


def _fictional_authority(authority: str) -> bool:
    host = authority.rsplit("@", 1)[-1].rstrip(".,;:!)'")
    if host.startswith("["):
        closing = host.find("]")
        return (
            closing > 0
            and _fictional(host[: closing + 1])
            and re.fullmatch(r"(?::\d*)?", host[closing + 1 :]) is not None
        )
    name, _, port = host.partition(":")
    return _fictional(name) and (port == "" or port.isdigit())


def _fictional(host: str) -> bool:
    if host.startswith("["):
        return host.endswith("]") and _documentation_ip(host[1:-1]) is True
    known = _documentation_ip(host)
    if known is not None:
        return known
    name = host.rstrip(".").lower()
    return _HOST.fullmatch(host.rstrip(".")) is not None and (name == "invalid" or name.endswith(".invalid"))


def _documentation_ip(host: str) -> bool | None:
    """Return whether an IP address is of a documentation range; None if the text is no IP address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return any(address in network for network in _DOCUMENTATION if network.version == address.version)


def _real_ip(text: str) -> bool:
    return _documentation_ip(text) is False


def _is_version(host: str) -> bool:
    """Whether what follows an ``@`` is a version (``name@1.2``), not a host."""
    return re.fullmatch(r"v?\d+(?:\.\d+){0,2}(?:-[\w.]+)?", host) is not None
