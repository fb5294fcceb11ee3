"""The per-run authority: what stock TLS stacks say of it."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import threading

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from runner.gate.authority import NOT_AFTER, NOT_BEFORE, make_authority, server_context


def handshake(context: ssl.SSLContext, name: str, server: ssl.SSLContext) -> str | None:
    """Do one handshake over a socket pair; return the protocol version."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            with server.wrap_socket(theirs, server_side=True) as sock:
                sock.recv(1)
        except (ssl.SSLError, OSError):
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with context.wrap_socket(ours, server_hostname=name) as sock:
            return sock.version()
    finally:
        ours.close()
        thread.join()


def test_a_client_that_trusts_the_authority_connects_and_no_other_does() -> None:
    """The host it was made for is accepted; another host, another run's authority and the system's store are not."""
    authority, other = make_authority(), make_authority()
    server = server_context(authority)
    trusting = ssl.create_default_context(cadata=authority.ca_pem.decode())
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    assert handshake(trusting, "api.anthropic.com", server) == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(trusting, "example.invalid", server)
    for context in (ssl.create_default_context(cadata=other.ca_pem.decode()), ssl.create_default_context()):
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(context, "api.anthropic.com", server)


def test_the_certificates_hold_from_2000_to_2049_and_say_what_they_are() -> None:
    """A shifted clock inside must not break TLS; the extensions are those that Node and Bun ask for."""
    authority = make_authority()
    ca, leaf = (x509.load_pem_x509_certificate(pem) for pem in (authority.ca_pem, authority.cert_pem))
    for certificate in (ca, leaf):
        assert (certificate.not_valid_before_utc, certificate.not_valid_after_utc) == (NOT_BEFORE, NOT_AFTER)
    assert ca.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["api.anthropic.com"]
    issuer_key = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    assert issuer_key == ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    leaf.verify_directly_issued_by(ca)


def test_no_key_is_shown_when_an_authority_is_printed() -> None:
    """The leaf's key stays out of logs."""
    assert "PRIVATE" not in repr(make_authority())


@pytest.mark.parametrize("when", [dt.datetime(2000, 1, 2, tzinfo=dt.UTC), dt.datetime(2049, 12, 30, tzinfo=dt.UTC)])
def test_a_second_verifier_accepts_the_chain_at_both_ends_of_its_time(when: dt.datetime) -> None:
    """Checked by another implementation than OpenSSL, in January 2000 and in December 2049; a year later it is refused."""
    authority = make_authority()
    ca, leaf = (x509.load_pem_x509_certificate(pem) for pem in (authority.ca_pem, authority.cert_pem))
    policy = PolicyBuilder().store(Store([ca]))
    name = x509.DNSName("api.anthropic.com")
    assert policy.time(when).build_server_verifier(name).verify(leaf, []) == [leaf, ca]
    with pytest.raises(VerificationError):
        policy.time(dt.datetime(2050, 12, 30, tzinfo=dt.UTC)).build_server_verifier(name).verify(leaf, [])
