"""Sign an attempt: write the signature beside it.

Boundary: reads an attempt, writes one file beside it. Not here: the key, which only ``ssh-keygen`` sees (keygen.py).
Rules: only an attempt that was verified whole is signed. The new signature is checked before it is kept, in the form in which it is kept. Nothing is ever replaced: a second signature is made
after the first was moved away, by whoever wants that.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from runner.bundle.format import SUFFIX
from runner.bundle.reader import open_attempt
from runner.bundle.version1 import is_version1, read_version1
from runner.errors import BundleCorrupt, BundleExists, BundleUnwritable, SigningFailed
from runner.signing.armor import parse_signature
from runner.signing.claim import file_sha256, signature_path
from runner.signing.keygen import Keygen, key_of
from runner.signing.message import NAMESPACE, SIGNATURE_SUFFIX, signed_message
from runner.whole_file import leftovers_of, whole_file

_LEFTOVERS = leftovers_of(r"[^/]{1,200}" + re.escape(f"{SUFFIX}{SIGNATURE_SUFFIX}"))


@dataclass(frozen=True)
class Signed:
    """A signature that was made."""

    attempt_id: str
    path: Path
    """The signature's file."""
    key: str
    """As ``ED25519 key SHA256:…``."""


def sign_attempt(path: Path, key: Path, keygen: Keygen, *, ask: bool) -> Signed:
    """Sign the attempt in ``path`` by ``key`` and keep the signature as ``<path>.sig``.

    Raises: InputMissing, BundleError where it is no whole attempt; BundleExists (``signature-exists``); SigningFailed; BundleUnwritable.
    """
    final = signature_path(path)
    if os.path.lexists(final):
        raise _there(final)
    before = file_sha256(path)
    attempt_id = read_version1(path)[0] if is_version1(path) else open_attempt(path).id
    if file_sha256(path) != before:
        raise BundleCorrupt("the attempt changed while it was looked at", where=str(path))
    message = signed_message(attempt_id, before)
    data = keygen.sign(message, key, NAMESPACE, ask=ask)
    try:
        parse_signature(data)
    except ValueError as error:
        raise SigningFailed(f"ssh-keygen gave another form of signature than is kept: {error}") from error
    fits = keygen.fits(message, data, NAMESPACE)
    if not fits.ok:
        raise SigningFailed(f"the signature that was made does not fit: {fits.said}", where=str(key))
    _keep(final, data)
    return Signed(attempt_id, final, key_of(fits))


def _keep(final: Path, data: bytes) -> None:
    try:
        with whole_file(final.parent, final.name, kind=_LEFTOVERS) as whole:
            whole.file.write(data)
            whole.publish(final)
    except BundleExists as error:
        raise _there(final) from error
    except OSError as error:
        raise BundleUnwritable(f"the signature could not be saved: {error.strerror}", where=str(final)) from error


def _there(final: Path) -> BundleExists:
    return BundleExists(
        "a signature is there already; nothing was overwritten",
        where=str(final),
        hint="move it away to sign anew",
        code="signature-exists",
    )
