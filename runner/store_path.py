"""The store path of a fixed-output tree, computed from its NAR hash as Nix computes it.

Boundary: pure. Not here: the NAR hash itself (nar.py), what lies at the path.
Rules: Nix puts a tree at the path of its declared hash only after it has hashed it, so a path that is the right one for the lock's hash stands for that hash. This is
the one thing that a run checks of a tree in a store, where times and owners are made equal and a stamp would say nothing.
"""

from __future__ import annotations

from hashlib import sha256

from runner.nar import hex_from_sri

_DIGITS = "0123456789abcdfghijklmnpqrsvwxyz"
_PATH_BYTES = 20


def fixed_output_path(nar_sha256: str, name: str, store: str = "/nix/store") -> str:
    """Return where Nix puts a tree with this NAR hash (SRI form) and name below ``store``.

    Raises:
        ValueError: not a sha256 hash in SRI form.
    """
    described = f"source:sha256:{hex_from_sri(nar_sha256)}:{store}:{name}"
    return f"{store}/{nix32(_fold(sha256(described.encode()).digest()))}-{name}"


def nix32(data: bytes) -> str:
    """Return bytes in Nix's own base 32: least significant digit last, no padding, no e, o, t or u."""
    count = (len(data) * 8 + 4) // 5
    number = int.from_bytes(data, "little")
    return "".join(_DIGITS[(number >> (5 * place)) & 31] for place in reversed(range(count)))


def _fold(digest: bytes) -> bytes:
    folded = bytearray(_PATH_BYTES)
    for place, byte in enumerate(digest):
        folded[place % _PATH_BYTES] ^= byte
    return bytes(folded)
