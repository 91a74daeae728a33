"""Signatures on a repo of the Hub: in the commit of their record, and kept in a race for it."""

import pytest
from msgspec import structs

from cachekit.errors import ConflictError
from cachekit.remotes import layout
from cachekit.remotes.folder import FolderStorage
from cachekit.remotes.push import push
from cachekit.trust import envelope
from tests.remotes.storage_processes import serve
from tests.remotes.watched_storages import Counted
from tests.support.standins import Watched, make_record, publish
from tests.trust.flow_cases import ALICE, BOB, trust
from tests.trust.trust_cases import key

pytestmark = pytest.mark.feature("T1")


@pytest.fixture
def hub_storage(tmp_path):
    with serve("hub", tmp_path / "server") as make:
        make.repo.private = False
        yield make


def member(tmp_path, name, storage, said):
    return Watched(tmp_path / name, shared=[(storage, "rw")], trust=said)


def pushed(watched, record, **options):
    (done,) = push(watched.store, watched.session.remotes, [record], public=True, **options)
    assert done.error is None
    return done


def signers(storage, record):
    found = storage.read(layout.signatures_path(record.place), storage.revision(), envelope.LARGEST)
    return {one.signatures[0].keyid for one in envelope.decode(found.data)}


def test_a_record_and_its_signature_are_one_commit(hub_storage, tmp_path):
    storage = Counted(hub_storage())
    alice = member(tmp_path, "alice", storage, trust(key=ALICE))
    record = publish(alice.store, make_record())
    done = pushed(alice, record)
    assert (len(done.records), len(done.signatures), storage.calls.count("commit")) == (1, 1, 1)
    hub_storage.hub.log.clear()
    assert pushed(alice, record).unchanged == 1
    assert len(hub_storage.hub.requests) == 1, "what an earlier push left there is known"
    bob = member(tmp_path, "bob", hub_storage(), trust(ALICE))
    (remote,) = bob.session.remotes.readable
    assert remote.demands() == "it is public"
    assert bob.pull(remote.find(record.place)).record == record
    carol = member(tmp_path, "carol", hub_storage(), trust(BOB))
    assert carol.session.remotes.find(record.place) is None
    assert carol.session.remotes.untrusted(record.key) == (
        (
            f"{remote.name}: a record of this key is there, but it is "
            f"signed by nobody you trust ({key(ALICE).fingerprint}); it is public"
        ),
    )


def test_what_lies_there_is_signed_once_more_by_a_new_key(hub_storage, tmp_path):
    record = publish(member(tmp_path, "ann", hub_storage(), trust(key=ALICE)).store, make_record())
    for said, number in ((ALICE, 1), (ALICE, 0), (BOB, 1), (BOB, 0)):
        ann = member(tmp_path, "ann", hub_storage(), trust(key=said))
        assert len(pushed(ann, record).signatures) == number, said
    assert signers(hub_storage(), record) == {key(ALICE).fingerprint, key(BOB).fingerprint}


class Beaten(Counted):
    """A remote on which somebody else is quicker, once."""

    def __init__(self, storage, first):
        super().__init__(storage)
        self.first = first

    def commit(self, change, revision):
        if self.first is not None:
            first, self.first = self.first, None
            first()
        try:
            return self._storage.commit(change, revision)
        except ConflictError:
            self.calls.append("conflict")
            raise


def test_who_loses_a_race_keeps_the_signature_of_the_winner(hub_storage, tmp_path):
    alice = member(tmp_path, "alice", hub_storage(), trust(key=ALICE))
    made = make_record()
    record = publish(alice.store, made)
    storage = Beaten(hub_storage(), lambda: pushed(alice, record))
    bob = member(tmp_path, "bob", storage, trust(ALICE, key=BOB))
    pushed(bob, publish(bob.store, made))
    assert "conflict" in storage.calls
    assert signers(hub_storage(), record) == {key(ALICE).fingerprint, key(BOB).fingerprint}


def test_a_document_of_signatures_holds_no_more_than_sixteen(tmp_path):
    (place := tmp_path / "place").mkdir()
    place.chmod(0o777)
    alice = member(tmp_path, "alice", FolderStorage(place), trust(key=ALICE))
    record = publish(alice.store, make_record())
    for number in range(18):
        record = structs.replace(record, compile_seconds=float(number))
        publish(alice.store, (record, {}))
        pushed(alice, record, replaces=True)
    found = FolderStorage(place).read(layout.signatures_path(record.place), "", envelope.LARGEST)
    assert len(envelope.decode(found.data)) == envelope.MOST
    bob = member(tmp_path, "bob", FolderStorage(place), trust(ALICE))
    assert bob.session.remotes.find(record.place).shared.record == record
