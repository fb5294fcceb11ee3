"""A certificate authority for one run, and the one leaf it signs.

Boundary: pure but for the keys' randomness, and a memory file while the server's context is made. Not here: who listens (server.py).
Rules: keys live in memory and end with the run; only ``ca_pem`` goes into the sandbox (NODE_EXTRA_CA_CERTS). Valid from 2000 to 2049, so that a
shifted clock inside does not break TLS; the authority may sign for its one host only. P-256 and SHA-256: what every TLS stack takes.
"""

from __future__ import annotations

import datetime as dt
import os
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runner.gate.settings import PROVIDER_HOST

if TYPE_CHECKING:
    from cryptography import x509

NOT_BEFORE = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
NOT_AFTER = dt.datetime(2049, 12, 31, 23, 59, 59, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class Authority:
    """The run's authority certificate, and the leaf with its key (PEM)."""

    ca_pem: bytes
    cert_pem: bytes
    key_pem: bytes = field(repr=False)


def make_authority(host: str = PROVIDER_HOST) -> Authority:
    """Make an authority and its leaf for ``host``. About a millisecond once ``cryptography`` is imported."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    ca_key, leaf_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Authority of one run")])
    ca_id = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    only_host = x509.NameConstraints(permitted_subtrees=[x509.DNSName(host)], excluded_subtrees=None)
    ca = (
        _builder(ca_name, ca_name)
        .public_key(ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(sign_certificates=True), critical=True)
        .add_extension(only_host, critical=True)
        .add_extension(ca_id, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ca_id), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    leaf = (
        _builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)]), ca_name)
        .public_key(leaf_key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(leaf_key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ca_id), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return Authority(
        ca.public_bytes(pem),
        leaf.public_bytes(pem),
        leaf_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def server_context(authority: Authority) -> ssl.SSLContext:
    """Return the listener's TLS context. ``ssl`` reads certificates from files only, so they pass through a memory file that no path names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    handle = os.memfd_create("leaf", os.MFD_CLOEXEC)
    try:
        with os.fdopen(handle, "wb", closefd=False) as file:
            file.write(authority.cert_pem + authority.key_pem)
        context.load_cert_chain(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)
    return context


def _builder(subject: x509.Name, issuer: x509.Name) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOT_BEFORE)
        .not_valid_after(NOT_AFTER)
    )


def _key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
