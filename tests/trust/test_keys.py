"""Public keys: what is one, and what is refused."""

import base64
import subprocess

import pytest

from cachekit.config_trust import is_fingerprint
from cachekit.trust.sshsig import KINDS, key_of_blob, public_key, string
from tests.trust.trust_cases import line, needs_ssh_keygen

GOLDEN = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4"
FINGERPRINT = "SHA256:lbmsoA0yIEcEiVDRnMWuzm+nV+3ZEEpVIURqFoeSspg"


def written(*parts):
    blob = b"".join(string(part) for part in parts)
    return f"{parts[0].decode()} {base64.b64encode(blob).decode()}"


def test_a_key_is_its_bytes_and_a_comment_is_not_in_them():
    assert line(0) == GOLDEN
    found = public_key(f"  {GOLDEN} me@here and there\n")
    assert found == public_key(GOLDEN)
    assert (found.line, found.fingerprint, found.device) == (GOLDEN, FINGERPRINT, False)
    assert is_fingerprint(found.fingerprint)
    assert not is_fingerprint(found.fingerprint + "=")


@needs_ssh_keygen
@pytest.mark.parametrize("kind", [["ed25519"], ["ecdsa", "-b", "256"], ["ecdsa", "-b", "521"], ["rsa", "-b", "2048"]])
def test_the_kinds_that_ssh_keygen_makes_have_its_fingerprints(tmp_path, kind):
    path = tmp_path / "id"
    subprocess.run(["ssh-keygen", "-q", "-N", "", "-f", path, "-t", *kind], check=True)
    said = subprocess.run(["ssh-keygen", "-l", "-f", path], check=True, capture_output=True, text=True).stdout
    assert public_key(path.with_suffix(".pub").read_text()).fingerprint == said.split()[1]


def test_what_is_no_key_or_a_weak_one_is_refused():
    for text, why in [
        ("", "one line"),
        ("ssh-ed25519", "one line"),
        (f"{GOLDEN}\n{GOLDEN}", "one line"),
        (f'namespaces="a" {GOLDEN}', "base64"),
        ("ssh-ed25519 AAAA*", "base64"),
        ("ssh-ed25519 AAAA", "not a key"),
        ("ssh-ed25519 AAA", "base64"),
        (GOLDEN.replace("ssh-ed25519", "ssh-rsa"), "the line says ssh-rsa"),
        (written(b"ssh-ed25519", bytes(31)), "not a key of the kind ssh-ed25519"),
        (written(b"ssh-ed25519", bytes(32), b"more"), "not a key of the kind ssh-ed25519"),
        (written(b"ssh-dss", b"p", b"q", b"g", b"y"), "not accepted"),
        (written(b"ssh-ed25519-cert-v01@openssh.com", bytes(32)), "not accepted"),
        (written(b"ssh-rsa", b"\x03", b"\x7f" + bytes(127)), "2048 bits"),
        (
            written(b"ssh-rsa", b"\x03", b"\0\x7f" + bytes(256)),
            "not canonically encoded",
        ),  # OpenSSH: the key without the zero
        (written(b"ssh-rsa", b"\x03", b"\0\0\x80" + bytes(255)), "not canonically encoded"),
        (written(b"ssh-rsa", b"\0\x03", b"\x7f" + bytes(256)), "not canonically encoded"),
        (written(b"ssh-rsa", b"\x03", b"\x80" + bytes(256)), "not canonically encoded"),  # a negative number
        (written(b"ecdsa-sha2-nistp256", b"nistp384", b"\4" + bytes(64)), "not canonically encoded"),
        (written(b"ecdsa-sha2-nistp256", b"nistp256", b"\6" + bytes(64)), "not canonically encoded"),
        (
            written(b"sk-ecdsa-sha2-nistp256@openssh.com", b"nistp521", b"\4" + bytes(64), b"ssh:"),
            "not canonically encoded",
        ),
        (written(b"ssh-ed25519", b"\xff" * 31 + b"\x7f"), "not canonically encoded"),  # more than the field's prime
        (written(b"ssh-rsa", b"\x03", bytes(5000)), "too many"),
    ]:
        with pytest.raises(ValueError, match=why):
            public_key(text)


def test_bytes_cut_anywhere_are_no_key():
    blob = public_key(GOLDEN).blob
    for end in range(len(blob)):
        with pytest.raises(ValueError):
            key_of_blob(blob[:end])
    with pytest.raises(ValueError):
        key_of_blob(blob + b"\0")


def test_a_key_in_a_device_is_told():
    assert public_key(written(b"sk-ssh-ed25519@openssh.com", bytes(32), b"ssh:")).device
    assert "sk-ssh-ed25519@openssh.com" in KINDS
