"""What the port promises, on every kind of remote there is: one suite, through public methods, on real parts."""

import hashlib
import importlib
import itertools
import time

import pytest

from cachekit.errors import CachekitError, ConflictError, TooLargeError
from cachekit.remotes.address import KINDS
from cachekit.remotes.folder import FolderStorage
from cachekit.remotes.hub import HubStorage
from cachekit.remotes.port import ABSENT, Commit, Storage, Write, reads_as
from tests.remotes.storage_processes import (
    EVERY,
    ONE_PROCESS,
    count,
    ending,
    is_sealed,
    put,
    rewrite,
    sealed,
    serve,
    started,
    swap,
    title,
    upload,
    write,
)

pytestmark = pytest.mark.versions

# Names that are legal, and that some layer could take for something else.
NAMES = [
    "neuronxcc-2.26.6360.0+6f180f47/MODULE_14529842170341812+f7f529f3/model.neff",
    "with space/a+b%20c%2Fd",
    "question?mark&and=more#hash",
    "é/日本語/😀.txt",
    "dots/...three/..two/x..",
    "-rf/--help",
    "quote'\"/$HOME`x`;|*[a]{b}",
    "long/" + "n" * 200,
]
OUTSIDE = [
    "",
    "/etc/passwd",
    "../x",
    "a/../../x",
    "a/..",
    "./a",
    "a/./b",
    "a//b",
    "a/",
    "..",
    ".",
    "a\\..\\b",
    "a\0b",
    "\ud800",
    "x" * 1025,
]
_numbers = itertools.count()


@pytest.fixture(scope="module", params=EVERY)
def make(request, tmp_path_factory):
    """A function that opens the remote once more; the server lives for the whole module."""
    with serve(request.param, tmp_path_factory.mktemp(request.param)) as opened:
        yield opened


@pytest.fixture
def storage(make):
    return make()


@pytest.fixture
def _processes(request):
    """The test needs processes that share the remote."""
    if request.node.callspec.params["make"] in ONE_PROCESS:
        pytest.skip("this kind lives in one process")


@pytest.fixture
def home():
    """A folder on the remote that no other test uses."""
    return f"test-{next(_numbers)}"


@pytest.fixture
def swapping(make):
    """The remote, if it compares."""
    storage = make()
    if not storage.compares:
        pytest.skip("this kind has no compare-and-swap")
    return storage


def content(storage, path, revision, start=0):
    pieces = list(storage.chunks(path, revision, start))
    assert all(0 < len(piece) <= 16 << 20 for piece in pieces)
    return b"".join(pieces)


def read(storage, path, limit=1 << 20):
    return storage.read(path, storage.revision(), limit)


def test_an_adapter_that_lacks_a_call_cannot_be_made(tmp_path):
    class Forgetful(FolderStorage):
        stranger = Storage.stranger

    with pytest.raises(TypeError, match="stranger"):
        Forgetful(tmp_path)


class TestReading:
    def test_nothing_is_there(self, storage, home):
        revision = storage.revision()
        assert storage.stat([f"{home}/a", f"{home}/b/c"], revision) == {}
        assert storage.stat([], revision) == {}
        assert list(storage.list(home, revision)) == []
        assert storage.read(f"{home}/a", revision, 100) is None
        with pytest.raises(FileNotFoundError):
            list(storage.chunks(f"{home}/a", revision))
        assert not reads_as(storage, f"{home}/a", "0" * 64)

    def test_stat_answers_for_many(self, storage, home):
        there = {f"{home}/m{number:04d}/f": b"x" * number for number in range(0, 1500, 150)}
        revision = put(storage, there)
        asked = [f"{home}/m{number:04d}/f" for number in range(1500)]
        found = storage.stat(asked, revision)
        assert {path: entry.size for path, entry in found.items()} == {path: len(data) for path, data in there.items()}
        assert all(entry.path == path for path, entry in found.items())
        assert all(entry.equals(there[path]) is not False for path, entry in found.items())
        assert all(
            entry.holds(len(there[path]), hashlib.sha256(there[path]).hexdigest()) is not False
            for path, entry in found.items()
        )

    def test_a_folder_is_no_file(self, storage, home):
        revision = put(storage, {f"{home}/a/b": b"1"})
        assert storage.stat([f"{home}/a", f"{home}/a/b/c"], revision) == {}
        assert storage.read(f"{home}/a", revision, 10) is None
        assert storage.read(f"{home}/a/b/c", revision, 10) is None
        for path in (f"{home}/a", f"{home}/a/b/c"):
            with pytest.raises(FileNotFoundError):
                list(storage.chunks(path, revision))

    def test_list_has_what_is_below_a_folder(self, storage, home):
        files = {f"{home}/a/1": b"1", f"{home}/a/b/c/2": b"22", f"{home}/ab/3": b"333", f"{home}/z": b"4"}
        revision = put(storage, files)
        sizes = {entry.path: entry.size for entry in storage.list(f"{home}/a", revision)}
        assert sizes == {f"{home}/a/1": 1, f"{home}/a/b/c/2": 2}
        assert {entry.path for entry in storage.list(home, revision)} == set(files)

    def test_read_has_a_limit(self, storage, home):
        revision = write(storage, f"{home}/x.json", b"x" * 1000, ABSENT)
        assert storage.read(f"{home}/x.json", revision, 1000).data == b"x" * 1000
        with pytest.raises(TooLargeError) as caught:
            storage.read(f"{home}/x.json", revision, 999)
        # It can be replaced unread, by who saw it.
        replaced = write(storage, f"{home}/x.json", b"small", caught.value.token)
        assert storage.read(f"{home}/x.json", replaced, 999).data == b"small"
        with pytest.raises(ConflictError):
            write(storage, f"{home}/x.json", b"late", caught.value.token)

    def test_chunks_start_anywhere(self, storage, home):
        data = bytes(range(256)) * 40
        revision = put(storage, {f"{home}/f": data, f"{home}/empty": b""})
        for start in (0, 1, 5000, len(data) - 1, len(data)):
            assert content(storage, f"{home}/f", revision, start) == data[start:]
        assert content(storage, f"{home}/empty", revision) == b""

    def test_chunks_end_anywhere(self, storage, home):
        data = bytes(range(256)) * 40
        revision = put(storage, {f"{home}/f": data})
        for start, end in (
            (0, 1),
            (0, len(data)),
            (1, 5000),
            (5000, 5001),
            (len(data) - 1, len(data)),
            (9, len(data) + 9),
        ):
            assert b"".join(storage.chunks(f"{home}/f", revision, start, end)) == data[start:end]

    def test_chunks_may_be_left(self, storage, home):
        revision = put(storage, {f"{home}/f": b"x" * 10_000_000})
        pieces = storage.chunks(f"{home}/f", revision)
        assert next(pieces)
        pieces.close()
        assert content(storage, f"{home}/f", revision, 9_999_990) == b"x" * 10


class TestUpload:
    def test_a_large_file(self, storage, home, tmp_path):
        data = hashlib.sha256(home.encode()).digest() * 655_360  # 20 MB
        source = tmp_path / "large"
        source.write_bytes(data)
        file = upload(f"{home}/large", data)
        file = type(file)(file.path, file.size, file.sha256, source)
        revision = storage.revision()
        storage.upload([file], revision, lambda _: None)
        revision = storage.commit(Commit(title(), [file]), revision)
        assert storage.stat([file.path], revision)[file.path].size == len(data)
        assert hashlib.sha256(content(storage, file.path, revision)).hexdigest() == file.sha256
        assert content(storage, file.path, revision, 15_000_001) == data[15_000_001:]

    @pytest.mark.parametrize("name", NAMES)
    def test_names_and_empty_files(self, storage, home, name):
        path = f"{home}/{name}"
        revision = put(storage, {path: b"bytes", f"{path}.empty": b""})
        assert {entry.path: entry.size for entry in storage.list(home, revision)} == {path: 5, f"{path}.empty": 0}
        assert set(storage.stat([path, f"{path}.empty"], revision)) == {path, f"{path}.empty"}
        assert content(storage, path, revision) == b"bytes"
        assert content(storage, f"{path}.empty", revision) == b""

    def test_again_sends_nothing(self, storage, home):
        files = {f"{home}/{number}": b"%d" % number * 1000 for number in range(5)}
        put(storage, files)
        told = []
        revision = storage.revision()
        uploads = [upload(path, data) for path, data in files.items()]
        storage.upload(uploads, revision, told.append)
        assert sum(told) == 0
        revision = storage.commit(Commit(title(), uploads), revision)
        assert all(content(storage, path, revision) == data for path, data in files.items())

    @pytest.mark.parametrize("other", [b"other bytes", b"short", b""])
    def test_other_bytes_at_a_path(self, storage, home, other):
        put(storage, {f"{home}/f": b"these bytes"})
        with pytest.raises(ConflictError):
            put(storage, {f"{home}/f": other})
        assert content(storage, f"{home}/f", storage.revision()) == b"these bytes"

    def test_a_source_that_is_gone(self, storage, home, tmp_path):
        file = upload(f"{home}/f", b"bytes")
        file = type(file)(file.path, file.size, file.sha256, tmp_path / "gone")
        with pytest.raises(OSError):
            storage.upload([file], storage.revision(), lambda _: None)
        assert list(storage.list(home, storage.revision())) == []

    def test_two_at_once(self, make, home):
        one, two = make(), make()
        revision = one.revision()
        files = [upload(f"{home}/f", b"same"), upload(f"{home}/g", b"same too")]
        one.upload(files, revision, lambda _: None)
        two.upload(files, two.revision(), lambda _: None)
        one.commit(Commit(title(), files), revision)
        put(two, {f"{home}/f": b"same", f"{home}/g": b"same too"})
        for storage in (one, two):
            assert content(storage, f"{home}/f", storage.revision()) == b"same"


class TestCommit:
    def test_a_document_comes_changes_and_goes(self, storage, home):
        path = f"{home}/x.json"
        revision = write(storage, path, b"one", ABSENT)
        first = storage.read(path, revision, 100)
        assert first.data == b"one"
        assert first.token != ABSENT
        revision = write(storage, path, b"two", first.token)
        second = storage.read(path, revision, 100)
        assert second.data == b"two"
        assert content(storage, path, revision) == b"two"
        revision = write(storage, path, None, second.token)
        assert storage.read(path, revision, 100) is None
        assert storage.stat([path], revision) == {}
        assert list(storage.list(home, revision)) == []
        revision = write(storage, path, b"three", ABSENT)
        assert storage.read(path, revision, 100).data == b"three"

    def test_a_large_document(self, storage, home):
        data = b'{"x": "%s"}' % (b"0123456789" * 400_000)
        revision = write(storage, f"{home}/x.json", data, ABSENT)
        assert storage.read(f"{home}/x.json", revision, 8 << 20).data == data

    def test_removing_what_is_not_there(self, storage, home):
        storage.commit(Commit(title(), writes=[Write(f"{home}/x.json", None, ABSENT)]), storage.revision())
        assert read(storage, f"{home}/x.json") is None

    def test_stale_tokens(self, swapping, home):
        path = f"{home}/x.json"
        write(swapping, path, b"one", ABSENT)
        stale = read(swapping, path).token
        write(swapping, path, b"two", stale)
        for data in (b"three", b"two", None):
            with pytest.raises(ConflictError):
                write(swapping, path, data, stale)
        with pytest.raises(ConflictError):
            write(swapping, path, b"three", ABSENT)
        assert read(swapping, path).data == b"two"

    def test_a_token_of_what_was_removed(self, swapping, home):
        path = f"{home}/x.json"
        write(swapping, path, b"one", ABSENT)
        token = read(swapping, path).token
        write(swapping, path, None, token)
        for data in (b"two", None):
            with pytest.raises(ConflictError):
                write(swapping, path, data, token)
        assert read(swapping, path) is None

    @pytest.mark.parametrize("position", [0, 1, 2])
    def test_all_or_nothing(self, swapping, home, position):
        paths = [f"{home}/{name}.json" for name in "abc"]
        write(swapping, paths[position], b"first", ABSENT)
        with pytest.raises(ConflictError):
            swapping.commit(
                Commit(title(), writes=[Write(path, b"second", ABSENT) for path in paths]), swapping.revision()
            )
        assert [entry.path for entry in swapping.list(home, swapping.revision())] == [paths[position]]
        assert read(swapping, paths[position]).data == b"first"

    def test_two_storages_at_once(self, make, swapping, home):
        one, two, path = swapping, make(), f"{home}/x.json"
        revision = one.revision()
        write(two, path, b"two", ABSENT)
        with pytest.raises(ConflictError):
            one.commit(Commit(title(), writes=[Write(path, b"one", ABSENT)]), revision)
        swap(one, path, lambda data: data + b" one")
        assert read(two, path).data == b"two one"

    def test_the_last_changes(self, storage, make, home):
        did = title("was done")
        storage.commit(Commit(did, writes=[Write(f"{home}/x.json", b"x", ABSENT)]), storage.revision())
        # A remote without a history answers nothing; whoever asks looks for what was written.
        told = [change.title for change in make().latest()]
        assert told[:1] == ([did] if isinstance(storage, HubStorage) else [])

    @pytest.mark.usefixtures("_processes")
    @pytest.mark.feature("R3")
    def test_eight_processes_count(self, make, swapping, home):
        path = f"{home}/counter.json"
        with ending([started(make, count, path, 8) for _ in range(8)]) as processes:
            for process in processes:
                process.join()
        assert [process.exitcode for process in processes] == [0] * 8
        assert read(swapping, path).data == b"64"

    @pytest.mark.usefixtures("_processes")
    def test_a_document_is_never_seen_half(self, make, storage, home):
        path = f"{home}/x.json"
        write(storage, path, sealed(0, 10), ABSENT)
        with ending([started(make, rewrite, path, 6) for _ in range(2)]) as writers:
            while any(writer.is_alive() for writer in writers):
                assert is_sealed(read(storage, path).data)
                time.sleep(0.01)  # the writers need both processors, too
        assert [writer.exitcode for writer in writers] == [0, 0]
        assert is_sealed(read(storage, path).data)


def test_each_kind_of_the_table_has_its_adapter():
    for kind in KINDS:
        assert callable(importlib.import_module(kind.module).opened), kind.example


@pytest.mark.parametrize("path", OUTSIDE)
def test_paths_that_lead_outside(storage, path):
    revision = storage.revision()
    attempts = [
        lambda: storage.stat([path], revision),
        lambda: storage.read(path, revision, 100),
        lambda: list(storage.chunks(path, revision)),
        lambda: storage.upload([upload(path, b"x")], revision, lambda _: None),
        lambda: storage.commit(Commit(title(), writes=[Write(path, b"x", ABSENT)]), revision),
        lambda: storage.commit(Commit(title(), writes=[Write(path, None, "token")]), revision),
    ]
    if path:  # all of it may be listed
        attempts.append(lambda: list(storage.list(path, revision)))
    for attempt in attempts:
        with pytest.raises(CachekitError):
            attempt()
