"""Who signed an attempt: held for the right key on the very file, broken for anything else that is a signature, unknown without one (V1; ADR 0013)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.bundle.claims import Verification, verify_attempt
from runner.bundle.reader import open_attempt
from runner.canonical import sha256_hex
from runner.errors import InputMissing, SigningUnavailable
from runner.signing.armor import MAX_BYTES, armored, parse_signature
from runner.signing.claim import check_signature, signature_path
from runner.signing.keygen import Keygen, unavailable
from runner.signing.message import NAMESPACE, signed_message
from runner.signing.sign import sign_attempt
from tests.signing.conftest import Person, keygen, made, make_person, ssh_keygen

ROOT = Path(__file__).resolve().parents[2]


def claim(path: Path, allowed: Path | None) -> tuple[str, str]:
    """The claim ``signature`` as ``verify`` makes it."""
    return status_of(verified(path, allowed))


def verified(path: Path, allowed: Path | None) -> Verification:
    """Everything that ``verify`` says."""
    listed = None if allowed is None else allowed.read_bytes()
    return verify_attempt(
        path,
        compare_toolchain=None,
        recheck=None,
        check_signature=lambda named, attempt_id: check_signature(
            named, attempt_id, open_keygen=keygen, allowed=listed
        ),
    )


def status_of(result: Verification) -> tuple[str, str]:
    """Status and reason of the claim."""
    (found,) = [one for one in result.claims if one.name == "signature"]
    return found.status, found.reason


def test_a_signature_is_held_by_the_listed_name(
    attempt: Path, people: dict[str, Person], allowed: Callable[..., Path]
) -> None:
    """The signer's listed name and key are told; the attempt is the same file as before, and its id too."""
    before, attempt_id = attempt.read_bytes(), open_attempt(attempt).id
    signed = sign_attempt(attempt, people["alice"].key, keygen(), ask=False)
    assert (signed.attempt_id, signed.path) == (attempt_id, attempt.with_name(f"{attempt.name}.sig"))
    assert signed.key.startswith("ED25519 key SHA256:")
    status, reason = claim(attempt, allowed())
    assert (status, reason) == ("held", f"signed by alice@example.com with {signed.key}")
    assert attempt.read_bytes() == before
    assert sorted(path.name for path in attempt.parent.iterdir()) == [attempt.name, signed.path.name]


def test_it_is_the_signature_that_people_can_make_by_hand(
    attempt: Path, people: dict[str, Person], allowed: Callable[..., Path], tmp_path: Path
) -> None:
    """The message is the documented line of JSON: ``ssh-keygen`` alone signs it, and checks ours."""
    digest = sha256_hex(attempt.read_bytes())
    text = f'{{"attempt":"{open_attempt(attempt).id}","file_sha256":"{digest}","format":"hermeval-attempt-signature"}}'
    message = tmp_path / "message"
    message.write_text(text)
    assert message.read_bytes() == signed_message(open_attempt(attempt).id, digest)
    ssh_keygen("-Y", "sign", "-n", "hermeval-attempt@v1", "-f", str(people["alice"].key), str(message))
    by_hand = message.with_name("message.sig").read_bytes()
    sign_attempt(attempt, people["alice"].key, keygen(), ask=False)
    assert signature_path(attempt).read_bytes() == by_hand  # ed25519 signs without randomness
    assert claim(attempt, allowed())[0] == "held"


@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
def test_other_kinds_of_keys_sign_too(kind: str, attempt: Path, tmp_path: Path, allowed: Callable[..., Path]) -> None:
    """What ``ssh-keygen`` can sign with, we can."""
    person = make_person(tmp_path, "carol", kind=kind)
    sign_attempt(attempt, person.key, keygen(), ask=False)
    assert claim(attempt, allowed(person.listed()))[0] == "held"
    assert claim(attempt, allowed())[0] == "broken"


def test_without_a_signature_or_signers_it_is_unknown(attempt: Path, people: dict[str, Person]) -> None:
    """No file beside the attempt is unknown; a fitting signature without allowed signers is unknown too, and names the key."""
    assert claim(attempt, None)[0] == "unknown"
    signed = sign_attempt(attempt, people["alice"].key, keygen(), ask=False)
    status, reason = claim(attempt, None)
    assert status == "unknown"
    assert signed.key in reason


@pytest.mark.parametrize(
    ("options", "name", "status", "word"),
    [
        ("", None, "held", "alice@example.com"),
        ('namespaces="file,hermeval-attempt@v1"', None, "held", "alice@example.com"),
        ('namespaces="file"', None, "broken", "namespace"),
        ('valid-before="20990101"', None, "held", "alice@example.com"),
        ('valid-before="20200101"', None, "broken", "expired"),
        ('valid-after="20990101"', None, "broken", "not yet valid"),
        ("", "*@example.com", "held", "*@example.com"),
        ("", "team@example.com,alice@example.com", "held", "team@example.com"),
        ("", "!bob@example.com,*@example.com", "held", "signed by *@example.com with"),
        ("", "!alice@example.com", "broken", "listed under no name"),
        ("", "al\u2028ice@example.com", "held", "signed by al"),
        ("", '"Alice Example"', "held", "signed by Alice Example with"),
        ("", "-f,-n", "held", "signed by -f with"),
        ("cert-authority", None, "broken", "not among the allowed signers"),
    ],
)
def test_what_the_allowed_signers_say_of_a_key_counts(
    attempt: Path,
    people: dict[str, Person],
    allowed: Callable[..., Path],
    options: str,
    name: str | None,
    status: str,
    word: str,
) -> None:
    """Purpose and dates of the list's line hold; a key beyond them is broken, and ssh-keygen's own words say why."""
    sign_attempt(attempt, people["alice"].key, keygen(), ask=False)
    found, reason = claim(attempt, allowed(people["alice"].listed(options, name)))
    assert found == status, reason
    assert word in reason


def test_a_key_that_is_not_listed_is_broken(
    attempt: Path, people: dict[str, Person], allowed: Callable[..., Path]
) -> None:
    """Mallory's own signature fits the file and is nobody's; with Mallory on the list it is held."""
    sign_attempt(attempt, people["mallory"].key, keygen(), ask=False)
    status, reason = claim(attempt, allowed())
    assert status == "broken"
    assert "not among the allowed signers" in reason
    assert claim(attempt, allowed(people["mallory"].listed()))[0] == "held"
    assert claim(attempt, allowed("# nobody\n"))[0] == "broken"


def test_another_attempts_signature_is_broken(
    attempt: Path, people: dict[str, Person], allowed: Callable[..., Path]
) -> None:
    """A signature that was moved beside another attempt fits nothing there, with or without a list."""
    sign_attempt(attempt, people["alice"].key, keygen(), ask=False)
    other = made(attempt.parent, b"The reserve is 43 units.")
    shutil.copyfile(signature_path(attempt), signature_path(other))
    assert [claim(other, allowed())[0], claim(other, None)[0]] == ["broken", "broken"]
    assert claim(attempt, allowed())[0] == "held"


def test_a_signature_for_another_purpose_is_broken(
    attempt: Path, people: dict[str, Person], allowed: Callable[..., Path]
) -> None:
    """The same bytes signed as ``file``, as Git and mail do, are no signature of an attempt."""
    message = signed_message(open_attempt(attempt).id, sha256_hex(attempt.read_bytes()))
    for purpose, status in ((NAMESPACE, "held"), ("file", "broken")):
        signature_path(attempt).write_bytes(keygen().sign(message, people["alice"].key, purpose, ask=False))
        assert claim(attempt, allowed())[0] == status


def test_what_is_no_signature_is_broken_and_what_cannot_be_read_unknown(
    attempt: Path, people: dict[str, Person], allowed: Callable[..., Path]
) -> None:
    """Empty, foreign and cut files, and other forms of the same signature, are broken; a directory or a pipe is not waited for."""
    sign_attempt(attempt, people["alice"].key, keygen(), ask=False)
    beside = signature_path(attempt)
    good = beside.read_bytes()
    blob = b"SSHSIG" + bytes(30)
    for bad in (
        b"",
        b"x",
        good[:-1],
        good + b"\n",
        good.replace(b"\n", b"\r\n"),
        good.replace(b"\n", b"\v", 3),
        armored(blob),
        good * 2,
        b"\0" * 70_000,
    ):
        beside.write_bytes(bad)
        assert claim(attempt, allowed())[0] == ("broken" if len(bad) <= MAX_BYTES else "unknown"), bad[:80]
    beside.write_bytes(good)
    assert claim(attempt, allowed())[0] == "held"
    beside.unlink()
    os.mkfifo(beside)
    assert claim(attempt, allowed())[0] == "unknown"


@pytest.mark.parametrize("kind", ["pipe", "device", "directory"])
def test_what_is_no_file_is_neither_waited_for_nor_signed(
    kind: str, tmp_path: Path, people: dict[str, Person], attempt: Path
) -> None:
    """A pipe without a writer, a device without an end, a directory: refused at once, and nothing is written; a link to an attempt is signed as the file that it is."""
    path = tmp_path / "odd.attempt"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(InputMissing):
        sign_attempt(path, people["alice"].key, keygen(), ask=False)
    assert not signature_path(path).exists()
    link = tmp_path / "link.attempt"
    link.symlink_to(attempt)
    assert sign_attempt(link, people["alice"].key, keygen(), ask=False).path == signature_path(link)


def test_a_version_1_attempt_can_be_signed(
    tmp_path: Path, people: dict[str, Person], allowed: Callable[..., Path]
) -> None:
    """The older form's id is the digest of its file; its other claims are those that it can carry."""
    path = tmp_path / "version-1.attempt"
    shutil.copyfile(ROOT / "fixtures" / "attempts" / "version-1.attempt", path)
    signed = sign_attempt(path, people["alice"].key, keygen(), ask=False)
    assert signed.attempt_id == sha256_hex(path.read_bytes())
    result = verified(path, allowed())
    assert status_of(result)[0] == "held"
    assert {one.name for one in result.claims if one.status == "held"} == {"intact", "format", "records", "signature"}


def test_without_the_program_it_is_unknown_unless_it_was_asked_for(attempt: Path, people: dict[str, Person]) -> None:
    """A machine without ssh-keygen can verify everything else; a check against allowed signers is an error there, never a guess."""
    sign_attempt(attempt, people["alice"].key, keygen(), ask=False)

    def missing() -> Keygen:
        raise unavailable(Path("/nonexistent/ssh-keygen"))

    status, reason = check_signature(attempt, open_attempt(attempt).id, open_keygen=missing, allowed=None)
    assert status == "unknown"
    assert "ssh-keygen" in reason
    with pytest.raises(SigningUnavailable):
        check_signature(attempt, open_attempt(attempt).id, open_keygen=missing, allowed=b"")


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory, people: dict[str, Person]) -> tuple[Path, Path]:
    """A signed attempt and the allowed signers, for the property's many turns."""
    folder = tmp_path_factory.mktemp("signed")
    path = made(folder)
    sign_attempt(path, people["alice"].key, keygen(), ask=False)
    listed = folder / "allowed-signers"
    listed.write_text(people["alice"].listed())
    return path, listed


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_flipped_bit_breaks_the_claim(data: st.DataObject, signed: tuple[Path, Path]) -> None:
    """Wherever a bit flips, in the attempt or in its signature, the signature is broken and verify ends in 2; flipped back, it is held."""
    path, listed = signed
    victim = data.draw(st.sampled_from([path, signature_path(path)]))
    whole = victim.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[place] ^= 1 << data.draw(st.integers(0, 7))
    victim.write_bytes(changed)
    try:
        result = verified(path, listed)
    finally:
        victim.write_bytes(whole)
    assert (status_of(result)[0], result.exit_code) == ("broken", 2), (victim.name, place)


def test_unflipped_it_is_held(signed: tuple[Path, Path]) -> None:
    """The property's own control."""
    path, listed = signed
    result = verified(path, listed)
    assert (status_of(result)[0], result.exit_code) == ("held", 0)


@given(st.binary(max_size=300))
def test_the_parser_takes_its_own_form_only(blob: bytes) -> None:
    """Arbitrary bytes, armoured or not, are refused in words or parsed; never anything else."""
    for data in (blob, armored(blob), armored(b"SSHSIG\0\0\0\1" + blob)):
        try:
            parse_signature(data)
        except ValueError:
            continue
        assert armored(b"SSHSIG\0\0\0\1" + blob) == data or armored(blob) == data
