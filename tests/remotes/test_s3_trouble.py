"""The S3 remote in trouble: dead servers, wrong credentials, names and settings that are none."""

from __future__ import annotations

import re
import socket
import struct
import sys
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from cachekit.errors import AuthError, BusyError, RemoteError, UncertainError, UsageError
from cachekit.remotes.objectstore.s3 import S3
from cachekit.remotes.port import Limits
from cachekit.remotes.push import push
from cachekit.verbs.warm import warm
from tests.remotes.remote_faults import BOUND, a_clock_that_jumps, deaf, timed
from tests.remotes.s3_server import KEY, SECRET, refusal
from tests.remotes.s3_storage import SHORT, name, open_s3, server, shared_server, storage  # noqa: F401 - fixtures
from tests.remotes.storage_calls import every_call, shown
from tests.remotes.storage_makers import seaweedfs
from tests.support import standin_worker
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
        wrong = any(code in caught.value.cause for code in ("SignatureDoesNotMatch", "InvalidAccessKeyId"))
        assert (caught.value.hint == S3.login) == wrong, "an answer to HEAD has no code"
        assert KEY not in shown(caught.value)
        assert SECRET not in shown(caught.value)


@pytest.mark.feature("S5")
def test_a_real_server_refuses_wrong_credentials(tmp_path, monkeypatch):
    """moto, which the others have, checks no signature."""
    # Undone before the server's own variables are: else its key would stay for the next tests.
    with seaweedfs.serve(tmp_path / "server") as make, monkeypatch.context() as patch:
        name = make().name
        patch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
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


def _cut(line):
    headers = [("Content-Length", "500000"), ("ETag", '"x"'), ("Last-Modified", "Sat, 21 Nov 2026 10:00:00 GMT")]
    return "200 OK", [*headers, ("Connection", "close")], [b"x" * 50]


def _wrong(line):
    """Other bytes in the place of a file, as many of them as it has."""
    if not line.startswith("GET") or "/MODULE_" not in line:
        return None
    headers = [("Content-Length", "180000"), ("ETag", '"x"'), ("Last-Modified", "Sat, 21 Nov 2026 10:00:00 GMT")]
    return "200 OK", headers, [b"x" * 180_000]


def _page(line):
    """A page of a proxy, which has all headers that a file has."""
    if not line.startswith("GET"):
        return None
    headers = [("Content-Type", "text/html; charset=utf-8"), ("Content-Length", "14"), ("ETag", '"x"')]
    return "200 OK", [*headers, ("Last-Modified", "Sat, 21 Nov 2026 10:00:00 GMT")], [b"<html>Log in!\n"]


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
    "truncated": (_cut, 7),
    "wrong bytes": (_wrong, 5),
    "a page": (_page, 7),
    "a page for a file": (lambda line: _page(line) if "/MODULE_" in line else None, 7),
    "connect": (None, 7), "before-headers": (None, 7), "reset": (None, 7), "dns": (None, 7), "tls": (None, 7),
    "clock": (None, 0),
}  # fmt: skip


@pytest.mark.feature("R4")
def test_a_server_without_etags_is_asked_once(server, storage):
    server.fault = lambda line: ("200 OK", [("Content-Length", "2")], [b"{}"]) if line.startswith("GET") else None
    with pytest.raises(RemoteError, match="neither ETags nor versions") as caught:
        storage.read("a.json", "", 10)
    assert caught.value.lasting


@contextmanager
def resetting():
    """A server that resets each connection; yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as door:

        def reset():
            with suppress(OSError):
                while True:
                    one, _ = door.accept()
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    one.close()

        threading.Thread(target=reset, daemon=True).start()
        yield f"http://127.0.0.1:{door.getsockname()[1]}"
        door.shutdown(socket.SHUT_RDWR)


@pytest.mark.feature("R4")
@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_has_its_bound_and_its_code(server, name, tmp_path, fault, monkeypatch):
    small = standin_worker.module_bytes
    monkeypatch.setattr(standin_worker, "module_bytes", lambda seed: (small(seed) * 60)[:180_000].ljust(180_000, b"0"))
    ann = Watched(tmp_path / "ann", shared=[(open_s3(name), "rw")])
    warm(ann.session, ann.prepare())
    answer, code = FAULTS[fault]
    if fault == "clock":
        a_clock_that_jumps(monkeypatch)
    with socket.socket() as hole, deaf() as full, resetting() as resets:
        hole.bind(("127.0.0.1", 0))
        hole.listen(64)
        elsewhere = {
            "connect": full, "before-headers": f"http://127.0.0.1:{hole.getsockname()[1]}", "reset": resets,
            "dns": "http://nobody.invalid", "tls": server.endpoint.replace("http:", "https:"),
        }  # fmt: skip
        if answer:
            server.fault = answer if callable(answer) else lambda _: answer
        # A loaded machine must not look like a server that does not answer.
        limits = SHORT if fault in {"connect", "before-headers", "in the body", "drip"} else None
        bob = Watched(
            tmp_path / "bob", patience=0.5,
            shared=[(open_s3(name, limits=limits, endpoint=elsewhere.get(fault, server.endpoint)), "rw")],
        )  # fmt: skip
        seconds, found, _ = timed(lambda: warm(bob.session, bob.prepare(), require_warm=True))
    assert found == code
    assert seconds < BOUND
    known = "hit" if fault in {"wrong bytes", "a page for a file", "clock"} else "unknown"
    assert [event["status"] for event in bob.told("plan")] == [known]


def _hanging(pattern):
    """Requests that get no answer until whoever sent them has given up."""

    def wait(line):
        if not re.match(pattern, line):
            return None
        time.sleep(1)
        return refusal(500, "InternalError")

    return wait


SENDING = {  # what becomes of a push: what the server answers, and the exit code
    **{fault: found for fault, found in FAULTS.items() if fault[0].isdigit()},
    "commit hangs": (_hanging("PUT .*/records/"), 7),
    "upload hangs": (_hanging("PUT .*/MODULE_"), 7),
    "landed": (None, 0),
    "clock": (None, 0),
}


@pytest.mark.feature("R4")
@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("fault", SENDING)
def test_each_fault_of_a_push_has_its_end_and_leaves_the_record_pending(server, name, tmp_path, fault, monkeypatch):
    offline = Watched(tmp_path / "bob")
    record = warm(offline.session, offline.prepare()).record
    answer, code = SENDING[fault]
    if fault == "clock":
        a_clock_that_jumps(monkeypatch)
    if answer:
        server.fault = answer if callable(answer) else lambda _: answer
    once = iter([True])
    server.lost = lambda line: (
        fault == "landed" and "/records/" in line and line.startswith("PUT") and next(once, False)
    )
    limits = SHORT if "hangs" in fault else None
    bob = Watched(tmp_path / "bob", shared=[(open_s3(name, limits=limits), "rw")], patience=0.5, push=2)
    seconds, _, pushed = timed(lambda: push(bob.store, bob.session.remotes, [record])[0])
    assert (pushed.error.exit_code if pushed.error else 0) == code, pushed.error
    assert seconds < 2 + BOUND
    assert bob.session.remotes.writable[0].pending() == ({record.key} if code else set())


def test_another_region_is_named(server, storage):
    server.fault = lambda _: refusal(400, "AuthorizationHeaderMalformed", "<Region>eu-north-1</Region>")
    with pytest.raises(RemoteError) as caught:
        list(storage.list("a", ""))
    assert caught.value.hint == "export AWS_REGION=eu-north-1"


def test_a_clock_that_is_wrong_is_named(server, storage):
    server.fault = lambda _: refusal(403, "RequestTimeTooSkewed")
    with pytest.raises(AuthError, match="clock is wrong") as caught:
        storage.read("a", "", 100)
    assert "ntp" in caught.value.hint


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
