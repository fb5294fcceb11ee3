"""Who signed an attempt: V1 of facts/replay.md §2.

Boundary: reads the signature beside an attempt and the attempt's bytes; asks ``ssh-keygen``. Not here: the other claims (runner/bundle/claims.py), printing.
Rules: held only where the signature fits this very file and its key is listed, today, for this namespace; the listed name is told. A signature that does not fit, or a key that is not listed, is
broken. No signature, or nobody to compare it with, is unknown. A signature's time cannot be known offline, so that a key's ``valid-before`` is held against today.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from runner.errors import InputMissing, SigningUnavailable
from runner.regular_file import open_regular, read_small
from runner.signing.armor import MAX_BYTES, parse_signature
from runner.signing.keygen import Keygen, key_of
from runner.signing.message import NAMESPACE, SIGNATURE_SUFFIX, signed_message
from runner.text import visible

Status = Literal["held", "broken", "unknown"]
MAX_ALLOWED_BYTES = 1 << 20
_MAX_PRINCIPALS = 50


def signature_path(attempt: Path) -> Path:
    """Return where an attempt's signature lies."""
    return Path(f"{attempt}{SIGNATURE_SUFFIX}")  # with_name raises for what has no name: ".", "/"


def check_signature(
    path: Path, attempt_id: str | None, *, open_keygen: Callable[[], Keygen], allowed: bytes | None
) -> tuple[Status, str]:
    """Return the claim on the attempt in ``path``, and its reason. ``attempt_id`` is None for a file that is not intact: no signature can be its own.

    ``allowed`` holds the allowed signers' file, where one was named. Raises: SigningUnavailable where one was, and there is no ``ssh-keygen``.
    """
    beside = signature_path(path)
    try:
        data = read_small(beside, MAX_BYTES)
    except FileNotFoundError:
        return "unknown", f"no signature lies beside the attempt ({visible(beside.name)})"
    except (OSError, ValueError) as error:
        return "unknown", f"the signature cannot be read: {getattr(error, 'strerror', None) or error}"
    try:
        signature = parse_signature(data)
    except ValueError as error:
        return "broken", f"the file beside the attempt is no signature: {error}"
    if signature.namespace != NAMESPACE:
        return "broken", f"the signature was made for {visible(signature.namespace[:80])!r}, not for {NAMESPACE!r}"
    if attempt_id is None:
        return "broken", "a signature lies beside the attempt, and no file that is not intact is one that was signed"
    try:
        keygen = open_keygen()
        message = signed_message(attempt_id, file_sha256(path))
        fits = keygen.fits(message, data, NAMESPACE)
    except SigningUnavailable as error:
        if allowed is not None:
            raise
        return "unknown", f"a signature lies beside the attempt and was not looked at: {error.message}"
    if not fits.ok:
        return "broken", f"the signature is not one of this file: {fits.said}"
    key = key_of(fits)
    if allowed is None:
        return "unknown", f"signed with {key}; --allowed-signers FILE says whose it is"
    return _whose(keygen, message, data, allowed, key)


def _whose(keygen: Keygen, message: bytes, data: bytes, allowed: bytes, key: str) -> tuple[Status, str]:
    names, said = keygen.principals(data, allowed)
    if not names:
        said = said or "it is listed under no name"
    for name in names[:_MAX_PRINCIPALS]:
        verified = keygen.verify(message, data, allowed, name, NAMESPACE)
        if verified.ok:
            return "held", f"signed by {visible(name)} with {key}"
        said = verified.said
    return "broken", f"signed with {key}, which is not among the allowed signers: {said}"


def read_allowed(path: Path) -> bytes:
    """Return the bytes of an allowed signers' file. Raises: InputMissing."""
    try:
        return read_small(path, MAX_ALLOWED_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputMissing(
            f"the allowed signers cannot be read: {reason}", where=str(path), hint="check --allowed-signers"
        ) from error


def file_sha256(path: Path) -> str:
    """Return the hex sha256 of the whole file as it lies there. Raises: InputMissing, also for what is no file: a pipe or a device might never end."""
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputMissing(f"the attempt cannot be read: {reason}", where=str(path)) from error
