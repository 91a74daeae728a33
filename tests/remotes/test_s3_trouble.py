"""The S3 remote in trouble: dead servers, wrong credentials, names and settings that are none."""

from __future__ import annotations

import socket
import sys
import time

import pytest

from cachekit.errors import AuthError, BusyError, CachekitError, RemoteError, UncertainError, UsageError
from cachekit.remotes.port import Limits
from cachekit.verbs.warm import warm
from tests.remotes.remote_faults import deaf
from tests.remotes.s3_server import KEY, SECRET, refusal
from tests.remotes.s3_storage import SHORT, name, open_s3, server, shared_server, storage  # noqa: F401 - fixtures
from tests.remotes.storage_calls import every_call, shown
from tests.remotes.storage_makers import seaweedfs
from tests.support.standins import Watched
from tests.verbs.verb_cases import log  # noqa: F401 - a fixture

pytestmark = pytest.mark.servers


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


@pytest.mark.feature("S5")
def test_a_real_server_refuses_wrong_credentials(tmp_path, monkeypatch):
    """moto, which the others have, checks no signature."""
    with seaweedfs.serve(tmp_path / "server") as make:
        name = make().name
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        for call in every_call(open_s3(name)).values():
            with pytest.raises(AuthError):
                call()


def test_a_missing_bucket_is_told_by_every_call(server):
    for call in every_call(open_s3("s3://nobody-has-this/cache")).values():
        with pytest.raises(AuthError, match="no such bucket"):
            call()


def test_a_server_that_asks_for_patience_is_busy(server, name):
    server.fault = lambda _: refusal(503, "SlowDown")
    # It is asked again for a second at most; on a busy machine its answer may take longer than that.
    for call in every_call(open_s3(name, limits=Limits(1, 60, 60))).values():
        with pytest.raises(BusyError):
            call()


def _slowly(first, pause):
    headers = [("Content-Length", "500000"), ("ETag", '"x"'), ("Last-Modified", "Sat, 21 Nov 2026 10:00:00 GMT")]
    return lambda _: ("200 OK", headers, _bytes(first, pause))


def _bytes(first, pause):
    yield b"x" * first
    for _ in range(500):
        time.sleep(pause)
        yield b"x" * 50


FAULTS = {  # as in test_patience: what the server answers, where it does, and what `--require-warm` exits with
    **{f"{status} {code}": (refusal(status, code), 7) for status, code in [
        (408, "RequestTimeout"), (409, "OperationAborted"), (412, "PreconditionFailed"), (429, "SlowDown"),
        (500, "InternalError"), (502, "X"), (503, "SlowDown"), (504, "X"), (507, "X"),
    ]},
    **{f"{status} {code}": (refusal(status, code), 4) for status, code in [
        (401, "X"), (403, "AccessDenied"),
    ]},
    "404 NoSuchBucket": (refusal(404, "NoSuchBucket"), 7),
    "in the body": (_slowly(1, 0.5), 7),
    "drip": (_slowly(50, 0.05), 7),
    "connect": (None, 7), "before-headers": (None, 7), "dns": (None, 7), "tls": (None, 7),
}  # fmt: skip


@pytest.mark.feature("R4")
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_has_its_bound_and_its_code(server, name, tmp_path, log, fault):
    ann = Watched(tmp_path / "ann", shared=[(open_s3(name), "rw")])
    warm(ann.session, ann.prepare())
    answer, code = FAULTS[fault]
    with socket.socket() as hole, deaf() as full:
        hole.bind(("127.0.0.1", 0))
        hole.listen(64)
        elsewhere = {
            "connect": full, "before-headers": f"http://127.0.0.1:{hole.getsockname()[1]}",
            "dns": "http://nobody.invalid", "tls": server.endpoint.replace("http:", "https:"),
        }  # fmt: skip
        if answer:
            server.fault = answer if callable(answer) else lambda _: answer
        bob = Watched(
            tmp_path / "bob", patience=0.5,
            shared=[(open_s3(name, limits=SHORT, endpoint=elsewhere.get(fault, server.endpoint)), "rw")],
        )  # fmt: skip
        begun = time.monotonic()
        with pytest.raises(CachekitError) as caught:
            warm(bob.session, bob.prepare(), require_warm=True)
    assert caught.value.exit_code == code
    assert time.monotonic() - begun < 5
    assert [event["status"] for event in bob.told("plan")] == ["unknown"]


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
    with pytest.raises(UsageError, match="not a bucket of S3"):
        open_s3(name)


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
