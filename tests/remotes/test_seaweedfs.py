"""The S3 remote on a real server with real signatures and real concurrency. Run by `make test-s3`."""

from __future__ import annotations

import hashlib
import os
import threading

import pytest

from cachekit.errors import AuthError, CachekitError
from cachekit.remotes.objectstore.remote import SINGLE
from cachekit.remotes.port import ABSENT, Commit, ConflictError, Upload, Write
from tests.remotes.s3_storage import open_s3
from tests.remotes.storage_makers.seaweedfs import serve

pytestmark = pytest.mark.servers
WRITERS, ROUNDS = 16, 20
DOCUMENT = "cachekit/v1/records/neuronxcc-2.26.6360.0+6f180f47/bert/aa.json"
QUIET = [].append  # tells nobody


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("seaweedfs")) as make:
        yield make


def upload_of(path: str, data: bytes) -> Upload:
    return Upload(path, len(data), hashlib.sha256(data).hexdigest(), data)


def write(storage, path, data, token=ABSENT):
    storage.commit(Commit("t", (), [Write(path, data, token)]), "")


def together(calls):
    """Run them at once, from a common start."""
    start = threading.Barrier(len(calls))

    def run(call):
        start.wait()
        call()

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.feature("R1")
def test_of_sixteen_writers_one_wins_each_round(make):
    storages, token = [make() for _ in range(WRITERS)], ABSENT
    for turn in range(ROUNDS):
        won = []

        def one(number, turn=turn, token=token, won=won):
            try:
                write(storages[number], DOCUMENT, b"%d %d" % (turn, number), token)
                won.append(number)
            except ConflictError:
                pass

        together([lambda number=number: one(number) for number in range(WRITERS)])
        document = storages[0].read(DOCUMENT, "", 100)
        assert [b"%d %d" % (turn, number) for number in won] == [document.data]
        token = document.token
        if turn % 5 == 4:
            write(storages[turn % WRITERS], DOCUMENT, None, token)
            assert storages[0].read(DOCUMENT, "", 100) is None
            token = ABSENT


@pytest.mark.feature("R1")
def test_pushers_of_the_same_files_are_harmless(make):
    files = [upload_of(f"m/{n}", os.urandom(1000)) for n in range(40)] + [upload_of("m/l", os.urandom(SINGLE + 7))]
    errors = []

    def push():
        try:
            make().upload(files, "", QUIET)
        except CachekitError as error:
            errors.append(error)

    together([push] * 8)
    assert errors == []
    storage = make()
    for file in files:
        assert b"".join(storage.chunks(file.path, "")) == file.source


def test_of_two_files_at_one_path_the_first_stays(make):
    storage = make()
    won = []

    def one(number):
        try:
            make().upload([upload_of("race", b"%04d" % number)], "", QUIET)
            won.append(number)
        except ConflictError:
            pass

    together([lambda number=number: one(number) for number in range(WRITERS)])
    assert [b"%04d" % number for number in won] == [b"".join(storage.chunks("race", ""))]


@pytest.mark.feature("R2")
def test_a_thousand_records_are_found(make):
    storage = make()
    paths = [f"cachekit/v1/records/many/bert/{n:04}.json" for n in range(1000)]
    storage.upload([upload_of(path, b"{}") for path in paths[::2]], "", QUIET)
    assert set(storage.stat(paths, "")) == set(paths[::2])
    assert {entry.path for entry in storage.list("cachekit/v1/records/many", "")} == set(paths[::2])
    sparse = [*paths[::100], "a/first", "cachekit/v1/records/many/bert/zz.json", "zz/last"]
    assert set(storage.stat(sparse, "")) == set(paths[::100])


@pytest.mark.feature("S5")
def test_wrong_credentials_are_refused(make, monkeypatch):
    name = make().name
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    storage = open_s3(name)
    for call in (
        lambda: storage.stat(["a"], ""), lambda: list(storage.list("", "")), lambda: storage.read("a", "", 10),
        lambda: storage.upload([upload_of("a", b"a")], "", QUIET), lambda: write(storage, "a", b"a"),
    ):  # fmt: skip
        with pytest.raises(AuthError):
            call()


def test_a_missing_bucket_is_told(make):
    make()
    storage = open_s3("s3://not-there/x")
    for call in (
        lambda: storage.stat(["a"], ""),
        lambda: list(storage.list("", "")),
        lambda: storage.read("a", "", 10),
    ):
        with pytest.raises(AuthError):
            call()
