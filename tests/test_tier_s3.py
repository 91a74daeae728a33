"""The S3 tier beyond the common contract: requests, faults, secrets, races. moto serves; see s3_server."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import threading
import traceback
from pathlib import Path

import pytest
from s3_server import KEY, SECRET, refusal, s3_server, use

from cachekit.errors import AuthError, CachekitError, IntegrityError, RemoteError, UsageError
from cachekit.tiers.port import ABSENT, BusyError, Change, ConflictError, Limits, UncertainError, Upload, Write
from cachekit.tiers.s3.tier import REMOVED, SINGLE, S3Tier

RECORDS = "cachekit/v1/records/neuronxcc-2.26.6360.0+6f180f47/bert"
DOCUMENT = f"{RECORDS}/aa.json"
SHORT = Limits(connect=0.3, read=0.3, commit=0.4)
QUIET = [].append  # tells nobody


@pytest.fixture(scope="module")
def _server():
    with s3_server() as server:
        yield server


@pytest.fixture
def server(_server, monkeypatch):
    use(monkeypatch, _server.environment())
    _server.fault, _server.lost = (lambda _: None), (lambda _: False)
    _server.requests.clear()
    _server.keys.clear()
    yield _server
    _server.fault, _server.lost = (lambda _: None), (lambda _: False)


@pytest.fixture
def name(server, request):
    """A place of its own for each test."""
    return f"s3://{server.bucket}/{hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]}/cache"


@pytest.fixture
def tier(name):
    return S3Tier(name)


def upload_of(path: str, data: bytes | Path) -> Upload:
    content = data if isinstance(data, bytes) else data.read_bytes()
    return Upload(path, len(content), hashlib.sha256(content).hexdigest(), data)


def write(tier, path, data, token=ABSENT):
    tier.commit(Change("t", (), [Write(path, data, token)]), "")


def collect(chunks, got: bytearray) -> None:
    """Keep what came before an error."""
    for chunk in chunks:
        got += chunk


def shown(error: CachekitError) -> str:
    """All that a person, a log or a journal could get to see."""
    return "\n".join([*traceback.format_exception(error), *error.lines(), repr(error), repr(error.as_dict())])


def every_call(tier):
    """Each way to ask it for something."""
    return {
        "stat": lambda: tier.stat(["a/b"], ""),
        "stat of many": lambda: tier.stat([f"a/{n}" for n in range(20)], ""),
        "list": lambda: list(tier.list("a", "")),
        "read": lambda: tier.read("a/b", "", 100),
        "chunks": lambda: list(tier.chunks("a/b", "")),
        "upload": lambda: tier.upload([upload_of("a/b", b"x")], "", QUIET),
        "commit": lambda: write(tier, "a/b", b"x"),
        "commit of two": lambda: tier.commit(Change("t", (), [Write("a", b"x", ""), Write("b", b"x", "")]), ""),
    }


# Requests.


@pytest.mark.feature("R2")
def test_a_thousand_records_are_asked_for_in_a_few_requests(server, tier):
    paths = [f"{RECORDS}/{n:04}.json" for n in range(1000)]
    tier.upload([upload_of(path, b"{}") for path in paths[::2]], "", QUIET)
    tier.upload([upload_of(f"{RECORDS}/{n:04}.other", b"{}") for n in range(0, 1000, 3)], "", QUIET)
    server.requests.clear()
    assert set(tier.stat(paths, "")) == set(paths[::2])
    assert server.count() <= 10
    assert server.count() == server.count("GET")


@pytest.mark.feature("R2")
def test_few_files_cost_a_request_each_and_say_their_digest(server, tier):
    tier.upload([upload_of("m/a", b"a"), upload_of("m/empty", b"")], "", QUIET)
    server.requests.clear()
    found = tier.stat(["m/a", "m/empty", "m/none"], "")
    assert server.count("HEAD") == server.count() == 3
    assert found["m/a"].holds(1, hashlib.sha256(b"a").hexdigest()) is True
    assert found["m/empty"].size == 0


def test_files_far_apart_are_found_without_listing_what_is_between(server, tier):
    from moto.s3.models import s3_backends

    backend, prefix = s3_backends["123456789012"]["aws"], tier.name.split("/", 3)[3]
    for folder in range(12):  # a thousand and some between each wanted two
        for n in range(1100):
            backend.put_object(server.bucket, f"{prefix}/m/{folder:02}/{n:04}", b"x")
    wanted = [f"m/{folder:02}/0000" for folder in range(12)]
    assert set(tier.stat([*wanted, "m/zz"], "")) == set(wanted)
    assert server.count() <= 13
    server.requests.clear()
    assert sum(1 for _ in tier.list("m/03", "")) == 1100
    assert server.count() == 2


@pytest.mark.feature("R3")
def test_what_is_there_is_not_sent_again(server, tier, name, tmp_path):
    large = tmp_path / "large"
    large.write_bytes(os.urandom(SINGLE + 5))
    files = [upload_of(f"m/{n}", b"%d" % n) for n in range(300)] + [upload_of("m/large", large)]
    told: list[int] = []
    tier.upload(files, "", told.append)
    assert sum(told) == sum(file.size for file in files)
    server.requests.clear()
    S3Tier(name).upload(files, "", told.append)
    assert server.count() == server.count("GET") == 1


def test_the_files_of_a_change_that_were_not_sent_are_sent_before_its_documents(server, tier):
    files = [upload_of("m/1", b"1")]
    tier.commit(Change("t", files, [Write(DOCUMENT, b"{}", ABSENT)]), "")
    puts = [request for request in server.requests if request.startswith("PUT")]
    assert [put.rsplit("/", 1)[1] for put in puts] == ["1", "aa.json"]
    server.requests.clear()
    tier.commit(Change("t", files, [Write(f"{RECORDS}/bb.json", b"{}", ABSENT)]), "")
    assert server.count() == server.count("PUT") == 1


# Artifacts.


def test_keys_are_the_paths(server, tier):
    from moto.s3.models import s3_backends

    path = "neuronxcc-2.26.6360.0+6f180f47/MODULE_123+f7f529f3/a b~é=%2B.neff"
    tier.upload([upload_of(path, b"x")], "", QUIET)
    keys = s3_backends["123456789012"]["aws"].buckets[server.bucket].keys
    assert f"{tier.name.split('/', 3)[3]}/{path}" in list(keys.keys())
    assert [entry.path for entry in tier.list("neuronxcc-2.26.6360.0+6f180f47", "")] == [path]


def test_other_bytes_of_the_same_size_are_a_conflict(tier, tmp_path):
    large, other = tmp_path / "large", tmp_path / "other"
    large.write_bytes(b"a" * (SINGLE + 1))
    other.write_bytes(b"b" * (SINGLE + 1))
    tier.upload([upload_of("m/s", b"abc"), upload_of("m/l", large)], "", QUIET)
    for file in (upload_of("m/s", b"abd"), upload_of("m/l", other), upload_of("m/s", b"abcd")):
        with pytest.raises(ConflictError, match=file.path):
            tier.upload([file, upload_of("m/new", b"n")], "", QUIET)
    assert b"".join(tier.chunks("m/s", "")) == b"abc"
    assert tier.stat(["m/new"], "") == {}


def test_what_another_tool_put_there_is_compared_by_reading(server, tier):
    import boto3

    data = os.urandom(6 << 20)
    client = boto3.client("s3")
    key = f"{tier.name.split('/', 3)[3]}/m/theirs"
    begun = client.create_multipart_upload(Bucket=server.bucket, Key=key)["UploadId"]
    parts = [
        {"PartNumber": n, "ETag": client.upload_part(
            Bucket=server.bucket, Key=key, UploadId=begun, PartNumber=n, Body=part)["ETag"]}
        for n, part in ((1, data[: 5 << 20]), (2, data[5 << 20 :]))
    ]  # fmt: skip
    client.complete_multipart_upload(Bucket=server.bucket, Key=key, UploadId=begun, MultipartUpload={"Parts": parts})
    client.close()
    tier.upload([upload_of("m/theirs", data)], "", QUIET)
    with pytest.raises(ConflictError):
        tier.upload([upload_of("m/theirs", data[:-1] + bytes([data[-1] ^ 1]))], "", QUIET)


def test_a_lost_answer_to_an_artifact_is_no_conflict(server, tier):
    lost = iter([True])
    server.lost = lambda request: request.startswith("PUT") and next(lost, False)
    tier.upload([upload_of("m/a", b"a")], "", QUIET)
    assert server.count("PUT") == 2  # tried again, and found its own
    assert b"".join(tier.chunks("m/a", "")) == b"a"


def test_a_source_that_changed_or_went_is_told_as_such(tier, tmp_path):
    for size in (10, SINGLE + 10):
        source = tmp_path / f"source-{size}"
        source.write_bytes(b"x" * size)
        file = upload_of(f"m/{size}", source)
        source.write_bytes(b"x" * (size - 1))
        with pytest.raises(OSError, match="bytes, and had") as caught:
            tier.upload([file], "", QUIET)
        assert not isinstance(caught.value, FileNotFoundError)
        source.unlink()
        with pytest.raises(FileNotFoundError, match="source-"):
            tier.upload([file], "", QUIET)
        assert tier.stat([file.path], "") == {}


def test_a_body_that_is_cut_is_an_error_and_can_be_gone_on_with(server, tier):
    data = os.urandom(300_000)
    tier.upload([upload_of("m/a", data)], "", QUIET)
    headers = [("Content-Length", str(len(data))), ("ETag", '"x"'), ("Connection", "close"),
               ("Last-Modified", "Sat, 21 Nov 2026 10:00:00 GMT")]  # fmt: skip
    answers = iter([("200 OK", headers, [data[:200_000]])])
    server.fault = lambda request: next(answers, refusal(500, "InternalError")) if request.startswith("GET") else None
    got = bytearray()
    with pytest.raises(RemoteError) as caught:
        collect(S3Tier(tier.name, limits=SHORT).chunks("m/a", ""), got)
    assert not isinstance(caught.value, ConflictError | BusyError)
    assert data.startswith(bytes(got))
    with pytest.raises(RemoteError):
        S3Tier(tier.name, limits=SHORT).read("m/a", "", 1 << 20)
    server.fault = lambda _: None
    got += b"".join(tier.chunks("m/a", "", len(got)))
    assert bytes(got) == data
    assert list(tier.chunks("m/a", "", len(data))) == []


# Documents.


def test_a_change_whose_second_document_moved_on_writes_none(tier):
    write(tier, DOCUMENT, b"one")
    token = tier.read(DOCUMENT, "", 100).token
    write(tier, DOCUMENT, b"two", token)
    with pytest.raises(ConflictError, match="changed meanwhile"):
        tier.commit(Change("t", (), [Write("README.md", b"card", ABSENT), Write(DOCUMENT, b"three", token)]), "")
    assert tier.read("README.md", "", 100) is None
    assert tier.read(DOCUMENT, "", 100).data == b"two"


def test_a_removed_document_is_absent_for_all_and_its_place_is_free(server, tier, name):
    write(tier, DOCUMENT, b"one")
    token = tier.read(DOCUMENT, "", 100).token
    write(tier, DOCUMENT, None, token)
    other = S3Tier(name)
    assert other.read(DOCUMENT, "", 100) is None
    assert other.read(DOCUMENT, "", 1000) is None
    assert other.stat([DOCUMENT], "") == {}
    assert other.stat([DOCUMENT, *(f"{RECORDS}/{n}" for n in range(9))], "") == {}
    assert list(other.list("", "")) == []
    with pytest.raises(ConflictError):
        write(other, DOCUMENT, b"late", token)
    write(other, DOCUMENT, b"again")
    with pytest.raises(ConflictError):
        write(tier, DOCUMENT, b"too late")
    assert tier.read(DOCUMENT, "", 100).data == b"again"


def test_a_file_as_long_as_the_marker_is_no_marker(tier):
    data = b"x" * len(REMOVED)
    tier.upload([upload_of("m/a", data)], "", QUIET)
    assert tier.stat(["m/a"], "")["m/a"].size == len(data)
    assert [entry.path for entry in tier.list("m", "")] == ["m/a"]


def test_a_large_document_is_not_read(server, tier):
    write(tier, DOCUMENT, b"x" * 1001)
    with pytest.raises(IntegrityError, match="too large"):
        tier.read(DOCUMENT, "", 1000)
    assert len(tier.read(DOCUMENT, "", 1001).data) == 1001


@pytest.mark.feature("R1")
@pytest.mark.parametrize("removed", [False, True])
def test_of_sixteen_writers_one_wins_each_round(tier, name, removed):
    token, wins, tiers = ABSENT, [], [S3Tier(name) for _ in range(16)]
    for turn in range(20):
        start, won = threading.Barrier(16), []

        def one(number, turn=turn, token=token, start=start, won=won):
            start.wait()
            try:
                write(tiers[number], DOCUMENT, b"%d %d" % (turn, number), token)
                won.append(number)
            except ConflictError:
                pass

        threads = [threading.Thread(target=one, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        document = tier.read(DOCUMENT, "", 100)
        assert [b"%d %d" % (turn, number) for number in won] == [document.data]
        wins += won
        token = document.token
        if removed:
            write(tier, DOCUMENT, None, token)
            token = ABSENT
    assert len(wins) == 20


def test_an_answer_that_was_lost_is_looked_for(server, tier):
    server.lost = lambda request: request.startswith("PUT")
    write(tier, DOCUMENT, b"one")  # it is there, so it happened
    assert tier.read(DOCUMENT, "", 100).data == b"one"
    assert server.count("PUT") == 1
    server.lost = lambda _: False
    server.fault = lambda request: refusal(500, "InternalError") if request.startswith("PUT") else None
    with pytest.raises(UncertainError):
        write(tier, DOCUMENT, b"two", tier.read(DOCUMENT, "", 100).token)
    assert tier.read(DOCUMENT, "", 100).data == b"one"


# What goes wrong.


@pytest.mark.feature("R4")
def test_a_dead_endpoint_is_told(server, name):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        tier = S3Tier(name, limits=Limits(2, 20, 20), endpoint=f"http://127.0.0.1:{closed.getsockname()[1]}")
        for call in every_call(tier).values():
            with pytest.raises(RemoteError) as caught:
                call()
            assert caught.value.cause == "it cannot be reached"
            assert type(caught.value) is RemoteError


@pytest.mark.feature("R4")
def test_a_server_that_never_answers_is_given_up(server, name):
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(64)
        tier = S3Tier(name, limits=SHORT, endpoint=f"http://127.0.0.1:{hole.getsockname()[1]}")
        calls = every_call(tier)
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
from cachekit.tiers.port import Limits
from cachekit.tiers.s3 import S3Tier
tier = S3Tier({name!r}, limits=Limits(0.2, 0.2, 0.2), endpoint="http://127.0.0.1:{hole.getsockname()[1]}")
try:
    list(tier.chunks("a", ""))
except RemoteError:
    print("late")
"""
        root = Path(__file__).resolve().parent.parent
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.stdout == "late\n", done.stderr


@pytest.mark.feature("S5")
@pytest.mark.parametrize(
    ("status", "code"), [(403, "SignatureDoesNotMatch"), (403, "InvalidAccessKeyId"), (403, "AccessDenied"), (401, "X")]
)
def test_wrong_credentials_are_told_and_never_shown(server, tier, status, code):
    quoted = f"<AWSAccessKeyId>{KEY}</AWSAccessKeyId><StringToSign>{SECRET}</StringToSign>"
    server.fault = lambda _: refusal(status, code, quoted)
    for call in every_call(tier).values():
        with pytest.raises(AuthError) as caught:
            call()
        assert str(status) in caught.value.cause
        assert KEY not in shown(caught.value)
        assert SECRET not in shown(caught.value)


def test_a_missing_bucket_is_told_by_every_call(server):
    for call in every_call(S3Tier("s3://nobody-has-this/cache")).values():
        with pytest.raises(AuthError, match="no such bucket"):
            call()


def test_a_server_that_asks_for_patience_is_busy(server, name):
    server.fault = lambda _: refusal(503, "SlowDown")
    for call in every_call(S3Tier(name, limits=SHORT)).values():
        with pytest.raises(BusyError):
            call()


def test_another_region_is_named(server, tier):
    server.fault = lambda _: refusal(400, "AuthorizationHeaderMalformed", "<Region>eu-north-1</Region>")
    with pytest.raises(RemoteError) as caught:
        list(tier.list("a", ""))
    assert caught.value.hint == "export AWS_REGION=eu-north-1"


# Names, settings, what is installed.


@pytest.mark.parametrize(
    "name",
    ["s3://", "s3:///x", "s3://UPPER/x", "s3://b", "http://bucket/x", "s3://bucket/../x", "s3://bucket/a//b", ""],
)
def test_other_names_are_refused(name):
    with pytest.raises(UsageError, match="no S3 bucket"):
        S3Tier(name)


def test_a_name_is_told_in_one_form(server):
    assert S3Tier(f"s3://{server.bucket}/").name == f"s3://{server.bucket}"
    assert S3Tier(f"s3://{server.bucket}/a/b/").name == f"s3://{server.bucket}/a/b"


def test_without_obstore_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(UsageError) as caught:
        S3Tier("s3://bucket/cache")
    assert caught.value.hint == 'pip install "cachekit-neuron[s3]"'


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
    S3Tier(name).stat(["a"], "")
    # A request of an earlier test may still be under way, with that one's key.
    assert [key for key in server.keys if key.startswith("AKIAFROM")] == [f"AKIAFROM{'TEAM' if profile else 'DEFAULT'}"]


def test_an_unknown_profile_is_told(server, name, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    S3Tier(name)  # keys in the environment go first, as for AWS's own tools
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(UsageError, match="nobody"):
        S3Tier(name)
