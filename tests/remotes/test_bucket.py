"""The bucket remote beyond the common contract: requests, faults, secrets, old clients. The test Hub serves."""

from __future__ import annotations

import hashlib
import logging
import os
import random
import time
from urllib.parse import urlsplit

import huggingface_hub
import pytest
from msgspec import structs

from cachekit.errors import AuthError, BusyError, ConflictError, IntegrityError, RemoteError, UncertainError, UsageError
from cachekit.remotes.hub import BucketStorage
from cachekit.remotes.layout import blob_path
from cachekit.remotes.port import ABSENT, ANY, Commit, Limits, Write
from tests.remotes.storage_calls import QUIET, every_call, shown, upload_of, write
from tests.remotes.storage_makers.bucket import bucket_hub, make_storage

RECORDS = "cachekit/v1/records/neuronxcc-2.26.6360.0+6f180f47/bert"
DOCUMENT = f"{RECORDS}/aa.json"
CLIENT_WAITS = 1.0  # seconds before the client's first new try
SHORT = Limits(connect=0.5, read=0.5, commit=0.6)


@pytest.fixture
def hub(tmp_path):
    with bucket_hub(tmp_path / "hub") as hub:
        yield hub


@pytest.fixture
def storage(hub):
    return make_storage(hub)


def asked(hub) -> list[str]:
    """Requests to the Hub itself: methods, and the last part of the path."""
    return [f"{entry.method} {entry.path.partition('?')[0].rsplit('/', 1)[1]}" for entry in hub.requests
            if entry.kind in {"api", "resolve"}]  # fmt: skip


# Requests.


@pytest.mark.feature("R2")
def test_a_thousand_paths_are_one_request(hub, storage):
    paths = [f"{RECORDS}/{n:04}.json" for n in range(2500)]
    storage.upload([upload_of(path, b"{}") for path in paths[::5]], "", QUIET)
    hub.log.clear()
    assert set(storage.stat(paths[:1000], "")) == set(paths[:1000:5])
    assert asked(hub) == ["POST paths-info"]
    assert len(storage.stat(paths, "")) == 500
    assert len(hub.requests) == 4
    hub.log.clear()
    assert {entry.path for entry in storage.list(RECORDS, "")} == set(paths[::5])
    assert len(hub.requests) == 1


def test_pages_of_a_listing_are_followed(hub, storage):
    storage.upload([upload_of(f"m/{n}", b"x") for n in range(7)] + [upload_of("m-other/x", b"x")], "", QUIET)
    hub.tree_page = 3
    assert sorted(entry.path for entry in storage.list("m", "")) == [f"m/{n}" for n in range(7)]
    assert sum(1 for _ in storage.list("", "")) == 8
    assert list(storage.list("nothing", "")) == []


@pytest.mark.feature("R3")
def test_what_is_there_is_not_sent_again(hub, storage, tmp_path):
    large = tmp_path / "large"
    large.write_bytes(os.urandom(3 << 20))
    files = [upload_of(f"m/{n}", b"%d" % n) for n in range(50)] + [upload_of("m/empty", b""), upload_of("m/l", large)]
    told: list[int] = []
    storage.upload(files, "", told.append)
    assert sum(told) == sum(file.size for file in files)
    hub.log.clear()
    make_storage(hub).upload(files, "", told.append)
    assert asked(hub) == ["POST paths-info"]
    assert len(hub.requests) == 1
    for other in (b"01", b"1"):  # of another size, and of the same
        with pytest.raises(ConflictError, match="m/0"):
            storage.upload([upload_of("m/new", b"n"), upload_of("m/0", other)], "", QUIET)
    assert storage.stat(["m/new"], "") == {}


@pytest.mark.feature("R3")
@pytest.mark.parametrize("size", [5000, 3 << 20])
def test_the_bytes_of_a_file_that_lies_below_its_digest_too_are_sent_once(hub, storage, size):
    ours = upload_of("m/model.neff", random.Random(size).randbytes(size))
    storage.upload([ours], "", QUIET)
    paths = [ours.path, blob_path(ours.sha256)]
    assert {entry.size for entry in storage.stat(paths, "").values()} == {size}
    assert all(storage.read(path, "", size).data == ours.source for path in paths)
    assert sum(entry.received for entry in hub.log.entries()) < 1.1 * size + 3000


@pytest.mark.feature("R3")
@pytest.mark.parametrize("call", ["upload", "commit"])
def test_other_bytes_below_a_digest_are_replaced(hub, call):
    """Nobody else may want that place; at another one others may have put theirs."""
    data = random.Random(1).randbytes(5000)
    ours = upload_of(blob_path(hashlib.sha256(data).hexdigest()), data)
    make_storage(hub).upload([structs.replace(ours, source=bytes(5000))], "", QUIET)
    storage = make_storage(hub)
    storage.upload([ours], "", QUIET) if call == "upload" else storage.commit(Commit("t", [ours]), "")
    assert storage.read(ours.path, "", 5000).data == data
    storage.upload([upload_of("m/a", b"a")], "", QUIET)
    with pytest.raises(ConflictError):
        make_storage(hub).upload([upload_of("m/a", b"b")], "", QUIET)


def test_documents_go_in_one_batch_after_one_look(hub, storage):
    writes = [Write("README.md", b"card", ABSENT), Write(DOCUMENT, b"{}", ABSENT)]
    storage.commit(Commit("t", (), writes), "")
    assert [request for request in asked(hub) if "token" not in request] == ["POST paths-info", "POST batch"]
    token = storage.read(DOCUMENT, "", 100).token
    hub.log.clear()
    with pytest.raises(ConflictError, match="README"):
        storage.commit(Commit("t", (), [Write(DOCUMENT, b"2", token), Write("README.md", b"2", "old")]), "")
    assert asked(hub) == ["POST paths-info"]
    assert storage.read(DOCUMENT, "", 100).data == b"{}"
    write(storage, DOCUMENT, None, token)
    assert storage.read(DOCUMENT, "", 100) is None
    assert [entry.path for entry in storage.list("", "")] == ["README.md"]


@pytest.mark.feature("R3")
def test_more_than_the_client_sends_in_one_batch_goes_in_several_in_order(hub, monkeypatch):
    """The client would go on after a batch that failed: then a record could lie there without its files."""
    monkeypatch.setattr(huggingface_hub.hf_api, "_BUCKET_BATCH_ADD_CHUNK_SIZE", 10)
    storage, old = make_storage(hub), [Write(f"{RECORDS}/old-{n}.json", b"{}", ABSENT) for n in range(9)]
    storage.commit(Commit("t", (), old), "")
    files = [upload_of(f"m/{n}", b"%d" % n) for n in range(12)]
    writes = [Write(f"{RECORDS}/{n:02}.json", b"{}", ABSENT) for n in range(15)]
    gone = [Write(write.path, None, ANY) for write in old]
    hub.log.clear()
    storage.commit(Commit("t", files, [*writes, *gone]), "")
    assert asked(hub).count("POST batch") == 3 + 3
    assert [entry.path for entry in storage.list("", "")] == [
        *sorted(w.path for w in writes),
        *sorted(f.path for f in files),
    ]
    hub.fault("500", "POST */batch", nth=2, times=1)
    writes = [Write(f"{RECORDS}/more-{n:02}.json", b"{}", ABSENT) for n in range(25)]
    with pytest.raises(UncertainError):
        storage.commit(Commit("t", (), writes), "")
    assert len([*storage.list(RECORDS, "")]) == 15 + 10


@pytest.mark.parametrize(
    "body", ["", "[1]", '[{"size": 1}]', "[" * 100_000, '[{"path": "some/where/a", "size": "x", "type": "file"}]']
)
def test_answers_that_no_hub_gives_are_errors(hub, storage, body):
    hub.fault("rewrite", "* /api/buckets/*", body=body, times=None)
    for call in (lambda: storage.stat(["a"], ""), lambda: list(storage.list("", ""))):
        with pytest.raises((RemoteError, IntegrityError)):
            call()


# What goes wrong.


@pytest.mark.feature("R4")
def test_a_hub_that_never_answers_is_given_up(hub):
    make_storage(hub).upload([upload_of("a/b", b"x" * 1000)], "", QUIET)  # in any time that a busy machine takes
    storage = make_storage(hub, limits=SHORT)
    hub.fault("black-hole", rate=1.0, times=None)
    for call in every_call(storage).values():
        with pytest.raises(RemoteError):
            call()


@pytest.mark.feature("S5")
@pytest.mark.parametrize("token", ["hf_outsider", "hf_nobody_has_this_token"])
def test_who_may_not_is_told_without_the_token(hub, token):
    calls = every_call(make_storage(hub, token=token))
    for call in calls.values():
        with pytest.raises(AuthError) as caught:
            call()
        assert token not in shown(caught.value)


def test_a_missing_bucket_is_told_by_every_call(hub):
    storage = BucketStorage("hf://buckets/team/none", endpoint=hub.endpoint, token=hub.token)
    for call in every_call(storage).values():
        with pytest.raises(AuthError, match="does not exist"):
            call()


def test_an_answer_that_was_lost_is_looked_for(hub):
    # Time enough to come to the batch on a busy machine: what ends before that is no lost answer.
    storage = make_storage(hub, limits=Limits(connect=2.0, read=2.0, commit=2.5))
    hub.fault("black-hole", "POST */batch", landed=True, times=None)
    write(storage, DOCUMENT, b"one")  # it is there, so it happened
    assert storage.read(DOCUMENT, "", 100).data == b"one"
    hub.faults.clear()
    token = storage.read(DOCUMENT, "", 100).token
    hub.fault("black-hole", "POST */batch", times=None)
    with pytest.raises(UncertainError):
        write(storage, DOCUMENT, b"two", token)
    with pytest.raises(RemoteError):
        storage.upload([upload_of("m/a", b"a")], "", QUIET)


@pytest.mark.feature("R4")
@pytest.mark.feature("R3")
def test_what_was_given_up_is_not_sent_again_over_what_somebody_wrote_meanwhile(hub):
    """A bucket compares nothing: the client's own next try, once the line is cut, would write an old document."""
    hub.fault("black-hole", "POST */batch", times=1)
    with pytest.raises(UncertainError):
        write(make_storage(hub, limits=Limits(connect=2.0, read=2.0, commit=2.5)), DOCUMENT, b"old")
    other = make_storage(hub)
    write(other, DOCUMENT, b"new")
    sent = hub.count("POST */batch")
    hub.hang_up()  # as a proxy does, some minutes later
    end = time.monotonic() + 3 * CLIENT_WAITS
    while time.monotonic() < end and hub.count("POST */batch") == sent:
        time.sleep(0.1)
    assert hub.count("POST */batch") == sent
    assert other.read(DOCUMENT, "", 100).data == b"new"


@pytest.mark.parametrize("kind", ["500", "drop"])
def test_files_are_sent_again_where_a_try_fails_and_documents_are_looked_for(hub, kind):
    storage = make_storage(hub)
    hub.fault(kind, "POST */batch", times=1)
    storage.upload([upload_of("m/a", b"a")], "", QUIET)
    assert (storage.stat(["m/a"], "").keys(), hub.count("POST */batch")) == ({"m/a"}, 2)
    hub.fault(kind, "POST */batch", times=1)
    with pytest.raises((UncertainError, RemoteError)):
        write(storage, DOCUMENT, b"one")
    assert hub.count("POST */batch") == 3
    write(storage, DOCUMENT, b"one")


@pytest.mark.parametrize("kind", ["500", "drop"])
def test_the_client_does_not_log_what_it_sends_again(hub, kind):
    told = list[str]()
    handler, logger = logging.Handler(), logging.getLogger("huggingface_hub")
    handler.emit = lambda record: told.append(record.getMessage())
    storage = make_storage(hub)
    hub.fault(kind, "POST */batch", times=1)
    logger.addHandler(handler)
    try:
        storage.upload([upload_of("m/a", b"a")], "", QUIET)
        assert (told, hub.count("POST */batch")) == ([], 2)
        logging.getLogger("huggingface_hub.utils._http").warning("of a request of the user's own")
        assert told == ["of a request of the user's own"]
    finally:
        logger.removeHandler(handler)


def test_a_refused_batch_says_nothing_of_what_lies_there(hub):
    storage = make_storage(hub)
    hub.fault("412", "POST */batch", times=1)
    with pytest.raises(BusyError):
        storage.upload([upload_of("m/a", b"a")], "", QUIET)
    storage.upload([upload_of("m/a", b"a")], "", QUIET)
    assert storage.stat(["m/a"], "").keys() == {"m/a"}


# Names, and what is installed.


@pytest.mark.parametrize(
    "name", ["hf://buckets/", "hf://buckets/team", "hf://team/cache", "hf://buckets/team/cache/../x", "s3://a/b", ""]
)
def test_other_names_are_refused(name):
    with pytest.raises(UsageError, match="not a bucket"):
        BucketStorage(name)


def test_a_client_without_buckets_is_named(monkeypatch):
    import huggingface_hub

    monkeypatch.delattr(huggingface_hub.HfApi, "batch_bucket_files", raising=False)
    with pytest.raises(UsageError, match=r"huggingface_hub 1\.5") as caught:
        BucketStorage("hf://buckets/team/cache")
    assert huggingface_hub.__version__ in caught.value.cause
    assert caught.value.hint == 'pip install "huggingface_hub>=1.5"'


def test_the_token_goes_to_the_hub_only(hub, storage):
    write(storage, DOCUMENT, b"{}")
    write(storage, "m/other.json", b"{}")
    hub.log.clear()
    storage.read(DOCUMENT, "", 100)  # whose bytes come from another host, by a signed address
    assert [(entry.kind, entry.user) for entry in hub.requests] == [("resolve", "admin"), ("cdn", "")]
    hub.tree_page = 1
    here, elsewhere = urlsplit(hub.endpoint).netloc, f"localhost:{urlsplit(hub.endpoint).port}"
    hub.fault("rewrite", "GET */tree/*", headers={"Link": f'<http://{elsewhere}/api/models/team/x>; rel="next"'})
    hub.log.clear()
    with pytest.raises((AuthError, RemoteError)):
        list(storage.list("", ""))
    assert [(entry.path.split("/")[2], entry.user) for entry in hub.requests] == [("buckets", "admin"), ("models", "")]
    assert here != elsewhere
