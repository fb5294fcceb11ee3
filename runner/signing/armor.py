"""The form of an SSH signature: armour, and what it says of itself.

Boundary: pure. Not here: whether it is a signature of anything (keygen.py).
Rules: there is one form of a signature's bytes, the one that ``ssh-keygen`` writes. It reads others too (other white space, spare bits of the last base64 letter), and a file that can be
altered without a trace is no evidence: here every byte counts. Layout: PROTOCOL.sshsig of OpenSSH.
"""

from __future__ import annotations

import base64
import binascii
import textwrap
from dataclasses import dataclass

MAX_BYTES = 1 << 16
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----\n", "-----END SSH SIGNATURE-----\n"
_MAGIC = b"SSHSIG" + (1).to_bytes(4, "big")
_COLUMNS = 70


@dataclass(frozen=True)
class Signature:
    """What a signature says of itself, before anything is checked."""

    key: bytes
    """The public key's blob (or certificate's)."""
    namespace: str
    """For what it was made; latin-1."""


def parse_signature(data: bytes) -> Signature:
    """Return what a signature file says of itself.

    Raises: ValueError, in words, where it is not in the one form.
    """
    text = data.decode("ascii", "replace")
    if len(data) > MAX_BYTES or not text.startswith(_BEGIN) or not text.endswith(_END):
        raise ValueError("it is no SSH signature")
    try:
        blob = base64.b64decode("".join(text[len(_BEGIN) : -len(_END)].split("\n")), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("its base64 is damaged") from None
    if armored(blob) != data:
        raise ValueError("its bytes are not in the form that ssh-keygen writes")
    if not blob.startswith(_MAGIC):
        raise ValueError("it is no SSH signature of version 1")
    fields, left = [], blob[len(_MAGIC) :]
    for _ in range(5):
        field, left = _string(left)
        fields.append(field)
    if left:
        raise ValueError("something follows the signature")
    return Signature(key=fields[0], namespace=fields[1].decode("latin-1"))


def armored(blob: bytes) -> bytes:
    """Return a signature's blob as a file holds it."""
    return (_BEGIN + "\n".join(textwrap.wrap(base64.b64encode(blob).decode(), _COLUMNS)) + "\n" + _END).encode()


def _string(data: bytes) -> tuple[bytes, bytes]:
    """Split SSH's string (four bytes of length, big-endian, then that many) off the beginning."""
    size = int.from_bytes(data[:4], "big")
    if len(data) < 4 or len(data) - 4 < size:
        raise ValueError("a field of it is cut")
    return data[4 : 4 + size], data[4 + size :]
