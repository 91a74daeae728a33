"""Signatures in the form of ssh-keygen, taken apart: only whole ones that were made for records."""

import subprocess

import pytest

from cachekit.trust import sshsig
from cachekit.trust.envelope import MalformedError, pae
from cachekit.trust.sshsig import key_of_blob
from cachekit.trust.statement import PAYLOAD_TYPE
from tests.trust.trust_cases import blob, key, line, needs_ssh_keygen, private

MESSAGE = pae(PAYLOAD_TYPE, b'{"_type":"https://in-toto.io/Statement/v1"}')
NAMESPACE = sshsig.NAMESPACE.encode()
DEVICE = b"sk-ssh-ed25519@openssh.com"


def made(
    *,
    magic=b"SSHSIG",
    version=1,
    key_blob=None,
    namespace=NAMESPACE,
    reserved=b"",
    hash_name=b"sha512",
    inner=None,
    after=b"",
):
    """A blob of any parts."""
    parts = (key_blob or key(0).blob, namespace, reserved, hash_name, inner or signature())
    return magic + version.to_bytes(4, "big") + b"".join(map(sshsig.string, parts)) + after


def signature(algorithm=b"ssh-ed25519", size=64, after=b""):
    return sshsig.string(algorithm) + sshsig.string(bytes(size)) + after


def test_a_signature_is_taken_apart():
    found = sshsig.parse(blob(0, MESSAGE))
    assert (found.key, found.hash, len(found.signature)) == (key(0), "sha512", 64)
    assert sshsig.parse(made()).key == key(0)


def test_anything_else_is_refused():
    for whole, why in [
        (made(magic=b"SSHSIH"), "version 1"),
        (made(version=2), "version 1"),
        (made(version=0), "version 1"),
        (made(namespace=b"git"), "made for 'git'"),
        (made(namespace=b""), "made for ''"),
        (made(namespace=b"cachekit-record@v1 "), "made for"),
        (made(reserved=b"x"), "not accepted"),
        (made(hash_name=b"sha1"), "not accepted"),
        (made(hash_name=b"SHA512"), "not accepted"),
        (made(after=b"\0"), "follows its end"),
        (made(inner=signature(after=b"\0")), "follows its end"),
        (made(inner=signature(b"ssh-rsa")), "not a signature algorithm of ssh-ed25519 keys"),
        (
            made(key_blob=sshsig.string(b"ssh-rsa") + sshsig.string(b"\3") + sshsig.string(b"\1" + bytes(256))),
            "not a signature algorithm of",
        ),
        (made(key_blob=b"no key"), "cannot be used"),
        (bytes(17 << 10), "too many"),
    ]:
        with pytest.raises(MalformedError, match=why):
            sshsig.parse(whole)


def test_a_blob_cut_anywhere_is_refused():
    whole = blob(0, MESSAGE)
    assert len(whole) == 188
    for end in range(len(whole)):
        with pytest.raises(MalformedError):
            sshsig.parse(whole[:end])


def test_rsa_signs_with_sha2_only():
    rsa = sshsig.string(b"ssh-rsa") + sshsig.string(b"\3") + sshsig.string(b"\1" + bytes(256))
    assert sshsig.parse(made(key_blob=rsa, inner=signature(b"rsa-sha2-512"))).key.kind == "ssh-rsa"


def test_the_text_of_a_signature_is_read_whole():
    text = sshsig.armor(blob(0, MESSAGE))
    assert max(map(len, text.splitlines())) == 70
    assert sshsig.dearmor(text) == sshsig.dearmor(text.rstrip("\n")) == blob(0, MESSAGE)


def test_text_around_a_signature_is_refused():
    for spoilt in [
        lambda text: f"{text}and more\n",
        lambda text: f"{text}\n",
        lambda text: f"\n{text}",
        lambda text: f"more\n{text}",
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("U", "*", 1),
        lambda text: text * 2,
        lambda _: "",
    ]:
        with pytest.raises(MalformedError):
            sshsig.dearmor(spoilt(sshsig.armor(blob(0, MESSAGE))))


def taken_by_ssh_keygen(folder, text, known, *options):
    (folder / "known").write_text(known)
    (folder / "text").write_text(text)
    command = ["ssh-keygen", "-Y", "verify", "-f", folder / "known", "-I", "me", "-n", NAMESPACE]
    done = subprocess.run([*command, "-s", folder / "text", *options], input=MESSAGE, capture_output=True, check=False)
    return done.returncode == 0


@needs_ssh_keygen
def test_ssh_keygen_passes_over_text_after_the_end(tmp_path):
    """What it takes is refused here: a signature must not have two texts."""
    text = sshsig.armor(blob(0, MESSAGE)) + "and more\n"
    assert taken_by_ssh_keygen(tmp_path, text, f"me {line(0)}\n")
    with pytest.raises(MalformedError):
        sshsig.dearmor(text)


def device_blob(flags):
    """What a hardware key makes, which nobody touched where `flags` is 0 [PROTOCOL.u2f]."""
    import hashlib

    counter = (7).to_bytes(4, "big")
    public = private(0).public_key().public_bytes_raw()
    said = hashlib.sha256(b"ssh:").digest() + bytes([flags]) + counter
    signed = private(0).sign(said + hashlib.sha256(sshsig.signed(MESSAGE)).digest())
    inner = sshsig.string(DEVICE) + sshsig.string(signed) + bytes([flags]) + counter
    return made(key_blob=b"".join(map(sshsig.string, (DEVICE, public, b"ssh:"))), inner=inner)


@needs_ssh_keygen
def test_a_hardware_key_must_have_been_touched(tmp_path):
    """ssh-keygen does not ask for that."""
    touched, untouched = device_blob(1), device_blob(0)
    owner = sshsig.parse(touched).key
    assert owner.device
    for one in (touched, untouched):
        assert taken_by_ssh_keygen(tmp_path, sshsig.armor(one), f"me {owner.line}\n")
    with pytest.raises(MalformedError, match="without touching"):
        sshsig.parse(untouched)
    from cachekit.trust.signer import holds

    assert holds(owner, touched, MESSAGE)
    assert not holds(owner, untouched, MESSAGE)
    assert key_of_blob(owner.blob) == owner
