"""The S3 remote in trouble: dead servers, wrong credentials, names and settings that are none."""

from __future__ import annotations

import socket
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from cachekit.errors import AuthError, CachekitError, RemoteError, UsageError
from cachekit.remotes.port import BusyError, Commit, Limits, UncertainError, Write
from tests.remotes.s3_server import KEY, SECRET, refusal
from tests.remotes.s3_storage import QUIET, SHORT, name, open_s3, server, shared_server, storage, upload_of, write  # noqa: F401 - fixtures

pytestmark = pytest.mark.servers


def shown(error: CachekitError) -> str:
    """All that a person, a log or a journal could get to see."""
    return "\n".join([*traceback.format_exception(error), *error.lines(), repr(error), repr(error.as_dict())])


def every_call(storage):
    """Each way to ask it for something."""
    return {
        "stat": lambda: storage.stat(["a/b"], ""),
        "stat of many": lambda: storage.stat([f"a/{n}" for n in range(20)], ""),
        "list": lambda: list(storage.list("a", "")),
        "read": lambda: storage.read("a/b", "", 100),
        "chunks": lambda: list(storage.chunks("a/b", "")),
        "upload": lambda: storage.upload([upload_of("a/b", b"x")], "", QUIET),
        "commit": lambda: write(storage, "a/b", b"x"),
        "commit of two": lambda: storage.commit(Commit("t", (), [Write("a", b"x", ""), Write("b", b"x", "")]), ""),
    }


# What goes wrong.


@pytest.mark.feature("R4")
def test_a_dead_endpoint_is_told(server, name):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        storage = open_s3(name, limits=Limits(2, 20, 20), endpoint=f"http://127.0.0.1:{closed.getsockname()[1]}")
        for call in every_call(storage).values():
            with pytest.raises(RemoteError) as caught:
                call()
            assert caught.value.cause == "it cannot be reached"
            assert type(caught.value) is RemoteError


@pytest.mark.feature("R4")
def test_a_server_that_never_answers_is_given_up(server, name):
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(64)
        storage = open_s3(name, limits=SHORT, endpoint=f"http://127.0.0.1:{hole.getsockname()[1]}")
        calls = every_call(storage)
        for what, call in calls.items():
            with pytest.raises(RemoteError) as caught:
                call()
            assert type(caught.value) is (UncertainError if what == "commit" else RemoteError), what


@pytest.mark.feature("R4")
def test_a_process_that_waits_for_a_dead_server_ends(server, name):
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(8)
        code = f"""
from cachekit.errors import RemoteError
from cachekit.remotes.port import Limits
from cachekit.remotes.objectstore import ObjectStorage
from cachekit.remotes.objectstore.s3 import S3
remote = ObjectStorage(S3(), {name!r}, limits=Limits(0.2, 0.2, 0.2),
                  options=dict(endpoint="http://127.0.0.1:{hole.getsockname()[1]}"))
try:
    list(remote.chunks("a", ""))
except RemoteError:
    print("late")
"""
        root = Path(__file__).resolve().parents[2]
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.stdout == "late\n", done.stderr


@pytest.mark.feature("S5")
@pytest.mark.parametrize(
    ("status", "code"), [(403, "SignatureDoesNotMatch"), (403, "InvalidAccessKeyId"), (403, "AccessDenied"), (401, "X")]
)
def test_wrong_credentials_are_told_and_never_shown(server, storage, status, code):
    quoted = f"<AWSAccessKeyId>{KEY}</AWSAccessKeyId><StringToSign>{SECRET}</StringToSign>"
    server.fault = lambda _: refusal(status, code, quoted)
    for call in every_call(storage).values():
        with pytest.raises(AuthError) as caught:
            call()
        assert str(status) in caught.value.cause
        assert KEY not in shown(caught.value)
        assert SECRET not in shown(caught.value)


def test_a_missing_bucket_is_told_by_every_call(server):
    for call in every_call(open_s3("s3://nobody-has-this/cache")).values():
        with pytest.raises(AuthError, match="no such bucket"):
            call()


def test_a_server_that_asks_for_patience_is_busy(server, name):
    server.fault = lambda _: refusal(503, "SlowDown")
    for call in every_call(open_s3(name, limits=SHORT)).values():
        with pytest.raises(BusyError):
            call()


def test_another_region_is_named(server, storage):
    server.fault = lambda _: refusal(400, "AuthorizationHeaderMalformed", "<Region>eu-north-1</Region>")
    with pytest.raises(RemoteError) as caught:
        list(storage.list("a", ""))
    assert caught.value.hint == "export AWS_REGION=eu-north-1"


# Names, settings, what is installed.


@pytest.mark.parametrize(
    "name",
    ["s3://", "s3:///x", "s3://UPPER/x", "s3://b", "http://bucket/x", "s3://bucket/../x", "s3://bucket/a//b", ""],
)
def test_other_names_are_refused(name):
    with pytest.raises(UsageError, match="no bucket of S3"):
        open_s3(name)


def test_a_name_is_told_in_one_form(server):
    assert open_s3(f"s3://{server.bucket}/").name == f"s3://{server.bucket}"
    assert open_s3(f"s3://{server.bucket}/a/b/").name == f"s3://{server.bucket}/a/b"


def test_without_obstore_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(UsageError) as caught:
        open_s3("s3://bucket/cache")
    assert caught.value.hint == 'pip install "cachekit-neuron[objectstore]"'


@pytest.mark.parametrize("profile", ["", "team"])
def test_keys_of_a_profile_are_used(server, name, monkeypatch, tmp_path, profile):
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = AKIAFROMDEFAULT\naws_secret_access_key = x\n"
        "[team]\naws_access_key_id=AKIAFROMTEAM\naws_secret_access_key=y%z\naws_session_token=t\n"
    )
    (tmp_path / "config").write_text("[default]\nregion = us-west-2\n[profile team]\nregion = eu-west-1\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(variable)
    monkeypatch.setenv("AWS_PROFILE", profile)
    open_s3(name).stat(["a"], "")
    # A request of an earlier test may still be under way, with that one's key.
    assert [key for key in server.keys if key.startswith("AKIAFROM")] == [f"AKIAFROM{'TEAM' if profile else 'DEFAULT'}"]


def test_an_unknown_profile_is_told(server, name, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    open_s3(name)  # keys in the environment go first, as for AWS's own tools
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(UsageError, match="nobody"):
        open_s3(name)
