"""What is signed: a few bytes that stand for one attempt in one file.

Boundary: pure. Not here: the form of a signature (armor.py), who may sign (the allowed signers' file, read by ``ssh-keygen``).
Rules: the message names the attempt's id and the digest of the whole file, so that neither another attempt nor another container of the same attempt has the same message. Anybody can
write it down by hand (ADR 0013). The namespace ends in the message's version: another form of message is another namespace, and a signature for one never fits the other.
"""

from __future__ import annotations

from runner.canonical import canonical_json

NAMESPACE = "hermeval-attempt@v1"
"""What a signature is for, in ``ssh-keygen``'s terms; stands in allowed signers' files as ``namespaces="…"``."""
SIGNATURE_SUFFIX = ".sig"
"""Behind the attempt's whole file name."""


def signed_message(attempt_id: str, file_sha256: str) -> bytes:
    """Return the bytes that are signed: canonical JSON, no newline at the end. Both arguments are lower-case hex."""
    return canonical_json({"attempt": attempt_id, "file_sha256": file_sha256, "format": "hermeval-attempt-signature"})
