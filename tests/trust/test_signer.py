"""Signing and checking, with ssh-keygen and with the cryptography package: each takes what the other made."""

import hashlib
import os
import re
import signal
import subprocess
import sys

import pytest

from cachekit.errors import UsageError
from cachekit.trust import sshsig
from cachekit.trust.signer import holds, key_of, make_key, signer_of
from tests.trust.test_sshsig import MESSAGE
from tests.trust.trust_cases import (  # noqa: F401 - fixtures
    _forgets,
    blob,
    key,
    key_file,
    line,
    needs_ssh_keygen,
    only,
    pem,
    private,
    tool,
)

pytestmark = pytest.mark.versions


def refused(setting):
    with pytest.raises(UsageError) as caught:
        signer_of(setting).sign(MESSAGE)
    assert caught.value.cause
    assert caught.value.hint
    return caught.value


@pytest.mark.feature("T1")
def test_both_make_the_same_signature_of_a_known_key(tool, tmp_path):
    """Computed once without either, and taken by ssh-keygen of OpenSSH 9.2."""
    assert hashlib.sha256(MESSAGE).hexdigest() == "57dd565335c70baa2e9fc48a46e80907434e3c6ea2342ef806dad983891349cd"
    made = signer_of(str(key_file(tmp_path))).sign(MESSAGE)
    assert hashlib.sha256(made).hexdigest() == "25ea4362e068a4e497421c638909facfb6c828143b0bc60f91cdd2d1df808927"
    assert holds(key(0), made, MESSAGE)


@needs_ssh_keygen
@pytest.mark.parametrize("on_disk", [False, True])
def test_megabytes_are_read_from_a_file_and_not_through_a_pipe(tmp_path, monkeypatch, on_disk):
    """Through a pipe, in pieces of 4 kB, they took longer than the check itself."""
    if on_disk:  # as where the system has no files without a name
        monkeypatch.delattr("os.memfd_create", raising=False)
    message, read = os.urandom(1 << 20), []

    def run(command, **how):
        read.append((how.get("input"), os.fstat(how["stdin"]).st_size))
        return plain(command, **how)

    plain = subprocess.run
    monkeypatch.setattr(subprocess, "run", run)
    made = signer_of(str(key_file(tmp_path))).sign(message)
    assert holds(key(0), made, message)
    assert read == [(None, len(message))] * 2


@needs_ssh_keygen
@pytest.mark.parametrize("hash_name", ["sha512", "sha256"])
def test_each_takes_what_the_other_made(tmp_path, monkeypatch, hash_name):
    command = [
        "ssh-keygen",
        "-Y",
        "sign",
        "-f",
        key_file(tmp_path),
        "-n",
        sshsig.NAMESPACE,
        "-O",
        f"hashalg={hash_name}",
    ]
    theirs = sshsig.dearmor(subprocess.run(command, input=MESSAGE, capture_output=True, check=True).stdout.decode())
    ours = blob(0, MESSAGE, hash_name)
    with monkeypatch.context() as alone:
        only("cryptography", alone)
        assert holds(key(0), theirs, MESSAGE)
    only("ssh-keygen", monkeypatch)
    assert holds(key(0), ours, MESSAGE)


def test_nothing_else_holds(tool):
    made = blob(0, MESSAGE)
    assert not holds(key(0), made, MESSAGE + b" ")
    assert not holds(key(1), made, MESSAGE)
    assert not holds(key(0), blob(1, MESSAGE), MESSAGE)
    assert not holds(key(0), b"", MESSAGE)
    swapped = made.replace(key(0).blob, key(1).blob)
    assert not holds(key(1), swapped, MESSAGE)
    for at in (*range(0, 110, 7), *range(110, len(made), 11)):
        assert not holds(key(0), made[:at] + bytes([made[at] ^ 1]) + made[at + 1 :], MESSAGE), at
    assert holds(key(0), made, MESSAGE)


def test_a_signature_over_another_hash_than_it_says_does_not_hold(tool):
    wrong = sshsig.build(key(0), private(0).sign(sshsig.signed(MESSAGE, "sha256")), "sha512")
    assert not holds(key(0), wrong, MESSAGE)


@needs_ssh_keygen
def test_a_signature_for_another_purpose_does_not_hold(tmp_path):
    command = ["ssh-keygen", "-Y", "sign", "-f", key_file(tmp_path), "-n", "git"]
    made = sshsig.dearmor(subprocess.run(command, input=MESSAGE, capture_output=True, check=True).stdout.decode())
    assert not holds(key(0), made, MESSAGE)


def test_what_held_is_not_asked_again_and_what_did_not_is(tool, monkeypatch):
    good, bad = blob(0, MESSAGE), blob(0, MESSAGE)[:-1] + b"\0"
    assert holds(key(0), good, MESSAGE)
    assert not holds(key(0), bad, MESSAGE)
    only("neither", monkeypatch)
    assert holds(key(0), good, MESSAGE)
    assert not holds(key(1), good, MESSAGE)
    with pytest.raises(UsageError):
        holds(key(0), bad, MESSAGE)


def test_where_there_is_neither_tool_nothing_is_signed_or_believed(tmp_path, monkeypatch):
    only("neither", monkeypatch)
    with pytest.raises(UsageError, match="cannot be checked") as caught:
        holds(key(0), blob(0, MESSAGE), MESSAGE)
    assert "cachekit-neuron[sign]" in caught.value.hint
    assert "cachekit-neuron[sign]" in refused(str(key_file(tmp_path))).hint


def useless(folder, monkeypatch, script):
    """The only ssh-keygen is this script."""
    program = folder / "bin" / "ssh-keygen"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)


OLD = "echo 'unknown option -- Y' >&2; exit 1"  # before OpenSSH 8.1, as in RHEL 8
NAMELESS = "echo 'No user exists for uid 51234' >&2; exit 255"  # as under `docker run --user 51234`


@pytest.mark.parametrize("script", [OLD, NAMELESS])
def test_an_ssh_keygen_of_no_use_is_passed_over(tmp_path, monkeypatch, script):
    useless(tmp_path, monkeypatch, script)
    made = signer_of(str(key_file(tmp_path))).sign(MESSAGE)
    assert made == blob(0, MESSAGE)
    assert holds(key(0), made, MESSAGE)
    assert not holds(key(0), made, MESSAGE + b" ")


@pytest.mark.parametrize("script", [NAMELESS, "exit 255", "kill -9 $$"])
def test_what_ssh_keygen_says_nothing_of_is_not_said_to_be_a_bad_signature(tmp_path, monkeypatch, script):
    useless(tmp_path, monkeypatch, script)
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(UsageError, match="cannot be checked on this machine") as caught:
        holds(key(0), blob(0, MESSAGE), MESSAGE)
    assert caught.value.cause.startswith("ssh-keygen: ")
    assert "cachekit-neuron[sign]" in caught.value.hint
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    assert holds(key(0), blob(0, MESSAGE), MESSAGE)
    assert not holds(key(0), blob(0, MESSAGE), MESSAGE + b" ")


def test_a_user_without_a_name_makes_a_key(tmp_path, monkeypatch):
    useless(tmp_path, monkeypatch, NAMELESS)
    make_key(tmp_path / "mine", "51234@here")
    assert holds(key_of(str(tmp_path / "mine")), signer_of(str(tmp_path / "mine")).sign(MESSAGE), MESSAGE)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(UsageError) as caught:
        make_key(tmp_path / "other", "51234@here")
    assert "No user exists for uid 51234" in caught.value.cause
    assert "cachekit-neuron[sign]" in caught.value.hint


def test_a_user_without_a_name_is_told_why_a_key_cannot_sign(tmp_path, monkeypatch):
    useless(tmp_path, monkeypatch, NAMELESS)
    path = key_file(tmp_path)
    assert "an agent has" in refused(f"{path}.pub").cause
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    assert "No user exists for uid 51234" in refused(str(path)).cause


@needs_ssh_keygen
@pytest.mark.parametrize("kind", [["ecdsa", "-b", "384"], ["rsa", "-b", "2048"]])
def test_other_kinds_of_keys_need_ssh_keygen(tmp_path, monkeypatch, kind):
    path = tmp_path / "id"
    subprocess.run(["ssh-keygen", "-q", "-N", "", "-f", path, "-t", *kind], check=True)
    found = signer_of(str(path))
    made = found.sign(MESSAGE)
    assert holds(found.key, made, MESSAGE)
    assert not holds(found.key, made, MESSAGE + b" ")
    only("cryptography", monkeypatch)
    with pytest.raises(UsageError, match="cannot be checked") as unchecked:
        holds(found.key, made, MESSAGE + b" ")
    assert "only ssh-ed25519 keys sign" in refused(str(path)).cause
    assert {unchecked.value.hint, refused(str(path)).hint} == {"install OpenSSH 8.1 or later"}, "the package helps not"


# Where the key is


def test_a_key_in_a_variable_signs_and_never_lies_on_a_disk(tool, tmp_path, monkeypatch):
    for name in ("TMPDIR", "HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    found = signer_of(pem(0).strip())
    assert found.key == key(0)
    assert found.sign(MESSAGE) == blob(0, MESSAGE)
    assert list(tmp_path.iterdir()) == []
    assert "PRIVATE" not in repr(found)
    assert pem(0).splitlines()[1] not in repr(found)


@pytest.mark.parametrize("end", ["\r\n", "\\n", "\\r\\n", " ", "", "\n  "])
def test_a_key_whose_line_ends_a_ci_service_changed_signs(tool, end):
    assert signer_of(pem(0).replace("\n", end)).sign(MESSAGE) == blob(0, MESSAGE)


@needs_ssh_keygen
def test_an_agent_signs_with_a_key_of_which_only_the_public_half_is_here(tmp_path, monkeypatch):
    path, socket = key_file(tmp_path), tmp_path / "agent"
    started = subprocess.run(["ssh-agent", "-s", "-a", socket], check=True, capture_output=True, text=True)
    try:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        subprocess.run(["ssh-add", "-q", path], check=True, capture_output=True)
        path.unlink()
        assert signer_of(f"{path}.pub").sign(MESSAGE) == blob(0, MESSAGE)
    finally:
        os.kill(int(re.search(r"SSH_AGENT_PID=(\d+)", started.stdout)[1]), signal.SIGTERM)
    monkeypatch.delenv("SSH_AUTH_SOCK")
    assert "ssh-add" in refused(f"{path}.pub").hint


def test_the_path_may_begin_at_home_or_with_a_variable(tool, tmp_path, monkeypatch):
    key_file(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert key_of("~/id") == key_of("$HOME/id.pub") == key(0)


# What cannot sign


def test_a_key_that_others_may_read_does_not_sign(tool, tmp_path):
    path = key_file(tmp_path)
    path.chmod(0o644)
    assert str(path) in refused(str(path)).message


@pytest.mark.parametrize("half", ["id", "id.pub"])
def test_a_key_that_others_may_exchange_is_not_this_users(tmp_path, half):
    """What it signs would be believed as one's own: of an agent's key the file has the public half alone."""
    key_file(tmp_path)
    assert key_of(str(tmp_path / half)) == key(0)
    tmp_path.chmod(0o777)
    with pytest.raises(UsageError) as told:
        key_of(str(tmp_path / half))
    assert f"every user of this machine can write to {tmp_path}" in told.value.cause


def test_a_locked_key_does_not_sign_without_its_passphrase(tool, tmp_path, monkeypatch):
    path = tmp_path / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", path], check=True)
    monkeypatch.setenv("SSH_ASKPASS", "/bin/false")  # or a developer is asked on the terminal
    monkeypatch.setenv("SSH_ASKPASS_REQUIRE", "force")
    assert key_of(str(path)) == key_of(f"{path}.pub")
    refused(str(path))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no key",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n",
        "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n",
        "\N{SNOWMAN}",
    ],
)
def test_what_is_no_key_is_refused_without_being_shown(tmp_path, text):
    path = tmp_path / "id"
    path.write_text(text, encoding="utf-8")
    assert str(path) in refused(str(path)).message
    if "PRIVATE" in text:
        shown = " ".join(refused(text).lines())
        assert "AAAA" not in shown
        assert "***" in shown


def test_a_key_that_is_not_there(tmp_path):
    error = refused(str(tmp_path / "none"))
    assert error.cause == "No such file or directory"
    assert "cachekit trust init" in error.hint


@needs_ssh_keygen
def test_a_public_half_of_another_key_beside_the_private_one(tmp_path):
    path = key_file(tmp_path)
    path.with_suffix(".pub").write_text(line(1))
    refused(str(path))


def test_two_keys_in_a_variable_are_one_after_the_other(tmp_path):
    """The first is the key; nobody signs with a second one in its shadow."""
    both = pem(0) + pem(1)
    assert key_of(both) == key(0)
