"""What tests of a remote's index share: remotes of each kind, and what an index on one says."""

import threading

import pytest
from msgspec import structs

from cachekit.remotes import history, index, layout
from cachekit.remotes.port import Commit, Write
from cachekit.remotes.push import push
from tests.remotes.memory_remote import MemoryRemote
from tests.remotes.storage_processes import KINDS, serve
from tests.remotes.test_nearest import made_from
from tests.support.standins import Watched, publish


@pytest.fixture(params=KINDS)
def make(request, tmp_path):
    """Opens the same remote anew, as another machine would."""
    with serve(request.param, tmp_path / "server") as opened:
        yield opened


@pytest.fixture
def bucket(tmp_path):
    """Opens the same object store anew: it keeps no history, and gives a thousand files for a request."""
    with serve("memory_store", tmp_path / "server") as opened:
        yield opened


@pytest.fixture
def memory():
    """A remote with commits, as a Hub repo."""
    return MemoryRemote(scarce=True)


@pytest.fixture
def wanted(tmp_path):
    return Watched(tmp_path / "any").prepare()


def near_one(wanted):
    return made_from(wanted, **{"training.max_seq_length": 64})


def there(storage):
    """What the index on a remote says, and the changes after it."""
    found, _ = index.read(storage, storage.revision())
    return history.after(found, storage.latest()) or found


def keys(found):
    return sorted(path.rpartition("/")[2] for path in found.paths)


def firsts(made):
    return sorted(record.key[: index.DIGITS] for record, _ in made)


def yesterday(storage):
    """The records of an object store were listed a day ago."""
    if (said := index.read(storage, storage.revision())[0]).speaks_for_all(storage):
        plant(storage, index.encode(structs.replace(said, listed=said.listed - index.CURRENT)))


def plant(storage, document):
    """Put a document in the place of the index, as anybody may who can write there."""
    _, token = index.read(storage, storage.revision())
    write = Write(layout.INDEX, document, token)
    storage.commit(Commit(f"cachekit: x [{'a' * 12}]", writes=[write]), storage.revision())


def push_side_by_side(folder, shared, made):
    """Four threads, with a home each, push a fourth of some records each."""

    def work(number):
        member = Watched(folder / f"home-{number}", shared=[(shared, "rw")])
        for one in made[number::4]:
            (done,) = push(member.store, member.session.remotes, [publish(member.store, one)])
            assert done.error is None

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
