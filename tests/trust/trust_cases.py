"""Keys out of seeds, records that they signed, and the two tools that sign and check."""

import sys
from datetime import datetime, timezone
from shutil import which

import pytest
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cachekit import config_trust
from cachekit.store.origin import Origin
from cachekit.trust import signer as signing
from cachekit.trust.envelope import Envelope, Signature, pae
from cachekit.trust.policy import policy_of
from cachekit.trust.sshsig import public_key
from cachekit.trust.statement import PAYLOAD_TYPE, Builder, statement_of
from tests.store.record_cases import record

NOW = datetime(2026, 11, 23, tzinfo=timezone.utc)
TODAY = "2026-11-23T00:00:00.000+00:00"
ME = Builder("me", "here")

needs_ssh_keygen = pytest.mark.skipif(which("ssh-keygen") is None, reason="there is no ssh-keygen")


def private(seed):
    """The private key of a number."""
    return Ed25519PrivateKey.from_private_bytes(bytes(range(seed, seed + 32)))


def _halves(seed):
    lock = form.NoEncryption()
    whole = private(seed).private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, lock).decode()
    return whole, private(seed).public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH).decode()


_WRITTEN = [_halves(seed) for seed in range(3)]  # before a test takes the package away


def pem(seed):
    """It as OpenSSH writes it."""
    return _WRITTEN[seed][0]


def line(seed):
    """Its public half."""
    return _WRITTEN[seed][1]


def key(seed):
    return public_key(line(seed))


def key_file(folder, seed=0, name="id"):
    """The path of a private key that is written here, with its public half beside it."""
    path = folder / name
    path.write_text(pem(seed))
    path.chmod(0o600)
    path.with_name(f"{name}.pub").write_text(f"{line(seed)} somebody@somewhere\n")
    return path


def blob(seed, message, hash_name="sha512"):
    """A signature in the form of `ssh-keygen -Y sign`, made without it."""
    from cachekit.trust import sshsig

    return sshsig.build(key(seed), private(seed).sign(sshsig.signed(message, hash_name)), hash_name)


def envelope(seed=0, about=None, *, created=TODAY, origin=None, payload=None, kind=PAYLOAD_TYPE):
    """What somebody signed of a record."""
    payload = payload or statement_of(about or record(), origin or Origin(), ME, created)
    return Envelope(payload, kind, (Signature(key(seed).fingerprint, blob(seed, pae(kind, payload))),))


def policy(**table):
    """What a table of the settings says; by default that alice's key, of seed 0, is believed."""
    return policy_of(config_trust.read({"signers": {"alice": {"key": line(0)}}, **table}))


@pytest.fixture(autouse=True)
def _forgets(monkeypatch):
    """No signature is known from another test."""
    monkeypatch.setattr(signing, "_HELD", set())


@pytest.fixture(params=[pytest.param("ssh-keygen", marks=needs_ssh_keygen), "cryptography"])
def tool(request, monkeypatch):
    """One of the two tools, without the other."""
    return only(request.param, monkeypatch)


def only(tool, monkeypatch):
    if tool != "ssh-keygen":
        monkeypatch.setattr(signing, "which", lambda _: None)
    if tool != "cryptography":
        for name in ("exceptions", "hazmat.primitives.serialization"):  # what signing and checking begin with
            monkeypatch.setitem(sys.modules, f"cryptography.{name}", None)
    return tool
