"""A remote that is away, late or slow: it stops no run, and what could not be pushed or pulled is done later."""

import json
import os
import time

import pytest

from cachekit import calls
from cachekit.cli import plan as shown
from cachekit.cli.progress import LINES, WARNINGS
from cachekit.errors import AuthError, BusyError, ConflictError, RemoteError
from cachekit.files import hold
from cachekit.remotes import layout
from cachekit.remotes.folder import FolderStorage
from cachekit.remotes.push import push
from cachekit.verbs.plan import plan
from cachekit.verbs.planned import planned
from cachekit.verbs.push import chosen
from cachekit.verbs.train import train
from cachekit.verbs.warm import warm
from tests.remotes.memory_remote import MemoryRemote
from tests.remotes.sharing_cases import ANY_KIND, log, make, member, shared  # noqa: F401 - fixtures
from tests.remotes.storage_processes import serve
from tests.remotes.watched_storages import Broken, Busy, Counted, Long
from tests.support.processes import until
from tests.support.standins import Watched, expected, find, make_record, publish, recipe, served


@ANY_KIND
@pytest.mark.feature("R4")
@pytest.mark.parametrize("failing", ["revision", "read", "chunks", "upload", "commit", "stat", "all"])
def test_a_cache_that_is_away_stops_nothing(tmp_path, make, failing, log):
    ann = Watched(tmp_path / "ann", shared=[(make(), "rw")])
    warm(ann.session, ann.prepare())
    storage = Broken(make(), failing)
    bob = Watched(tmp_path / "bob", shared=[(storage, "rw")])
    done = train(bob.session, bob.prepare(recipe(4)), output_dir=tmp_path / "out")
    assert done.steps
    assert plan(bob.prepare(recipe(4)), bob.store).hit
    hit = warm(bob.session, bob.prepare())
    assert hit.record.key == bob.prepare().key
    told = [event for event in bob.events if event["event"] in {"remote.failed", "push.failed"}]
    assert told
    assert "the cable is cut" in json.dumps(told)


@ANY_KIND
@pytest.mark.feature("R4")
def test_a_cache_that_failed_is_left_alone_by_the_next_runs_too(tmp_path, make):
    storage = Broken(make(), "all")
    for _ in range(3):
        bob = Watched(tmp_path / "bob", shared=[(storage, "rw")])
        assert not plan(bob.prepare(), bob.store, bob.session.remotes).hit
        assert len(bob.told("remote.failed")) == 1
    assert len(storage.calls) == 1


def test_a_folder_that_was_missing_is_used_as_soon_as_it_is_made(tmp_path):
    place = tmp_path / "place"
    bob = Watched(tmp_path / "bob", shared=[(FolderStorage(place), "r")])
    answer = planned(plan(bob.prepare(), bob.store, bob.session.remotes))
    said = " ".join(" ".join(shown.one(answer)).split())
    assert f"{place} could not be asked: it cannot be used: No such file or directory" in said
    place.mkdir()
    again = Watched(tmp_path / "bob", shared=[(FolderStorage(place), "r")])
    assert planned(plan(again.prepare(), again.store, again.session.remotes)).status == "miss"


def test_a_push_that_is_always_too_late_leaves_the_cache_in_use(tmp_path, shared):
    ann = Watched(
        tmp_path / "ann", shared=[(Broken(FolderStorage(shared), "commit", error=ConflictError), "rw")], push=0.3
    )
    record = publish(ann.store, make_record())
    (pushed,) = push(ann.store, ann.session.remotes, [record])
    assert "did not take the push" in pushed.error.message
    assert ann.session.remotes.writable[0].usable()


def test_a_push_that_comes_to_its_end_tells_what_the_remote_said_before(tmp_path, shared):
    class Away(Counted):
        def commit(self, change, revision):
            self.calls.append("commit")
            if self.calls.count("commit") == 1:
                raise BusyError("it is busy")
            until(lambda: calls.left() <= 0, "the end of the push")
            raise RemoteError("it stopped answering")

    ann = Watched(tmp_path / "ann", shared=[(Away(FolderStorage(shared)), "rw")], push=6)
    (pushed,) = push(ann.store, ann.session.remotes, [publish(ann.store, make_record(1))])
    assert pushed.error.cause.startswith("it is busy; tried ")


@ANY_KIND
def test_what_could_not_be_pushed_is_kept_and_offered_again(tmp_path, make, log):
    storage = Broken(make(), "commit")
    ann = Watched(tmp_path / "ann", shared=[(storage, "rw")], push=0)
    record = warm(ann.session, ann.prepare()).record
    remote = ann.session.remotes.writable[0]
    assert remote.pending() == {record.key}
    storage.failing.clear()
    later = Watched(tmp_path / "ann", shared=[(make(), "rw")])
    later.session.remotes.writable[0].retry()
    push(later.store, later.session.remotes, [record])
    assert later.session.remotes.writable[0].pending() == set()
    bob = Watched(tmp_path / "bob", shared=[(make(), "r")])
    assert plan(bob.prepare(), bob.store, bob.session.remotes).hit


def test_a_push_that_was_stopped_is_offered_again(tmp_path, shared):
    """By Ctrl-C here; a kill leaves the same note."""

    def stop(*_, **__):
        raise KeyboardInterrupt

    storage = Broken(FolderStorage(shared), "commit", error=stop)
    ann = Watched(tmp_path / "ann", shared=[(storage, "rw")])
    record = publish(ann.store, make_record())
    with pytest.raises(KeyboardInterrupt):
        push(ann.store, ann.session.remotes, [record])
    assert chosen(ann.session, [], pending=True) == [record]
    other = publish(ann.store, make_record(2))
    assert chosen(ann.session, [other.key], pending=True) == []
    storage.failing.clear()
    push(ann.store, ann.session.remotes, [record])
    assert chosen(ann.session, [], pending=True) == []


@pytest.mark.feature("C2")
@pytest.mark.parametrize(
    "trouble", [lambda storage, key: Long(storage, "upload", key), Busy], ids=["large files", "busy"]
)
def test_who_pushes_for_long_still_holds_the_lease(tmp_path, shared, trouble):
    """Others would take it for dead, and compile what is on its way."""
    prepared = Watched(tmp_path / "ann").prepare()
    storage = trouble(FolderStorage(shared), prepared.key)
    ann = Watched(tmp_path / "ann", shared=[(storage, "rw")], lease=1)
    assert warm(ann.session, prepared).compiled
    assert storage.signs
    assert not ann.told("push.failed")
    assert storage.read(layout.lease_path(prepared.key), storage.revision(), 1 << 20) is None


def test_two_that_pull_one_record_at_once_both_have_it(tmp_path, shared):
    ann = Watched(tmp_path / "ann", shared=[(FolderStorage(shared), "rw")])
    made = make_record(artifacts=("a", "b"), size=50_000)
    first, second = made[0].files
    publish(ann.store, made)
    push(ann.store, ann.session.remotes, [made[0]])
    place = made[0].place

    class Overtaken(Counted):
        def chunks(self, path, revision, start=0, end=None):
            if second.sha256 in path or path.endswith(second.path):
                arrived = bob.store.layout.partial / first.sha256
                latest = time.monotonic() + 20
                # Held before it is whole, the file would be fetched apart, under another name.
                while not arrived.exists() or arrived.stat().st_size < first.size or (handle := hold(arrived)) is None:
                    assert time.monotonic() < latest
                    time.sleep(0.01)
                os.close(handle)
                other.pull(other.session.remotes.find(place))
            yield from self._storage.chunks(path, revision, start, end)

    other = Watched(tmp_path / "bob", shared=[(FolderStorage(shared), "r")])
    bob = Watched(tmp_path / "bob", shared=[(Overtaken(FolderStorage(shared)), "r")])
    assert bob.pull(bob.session.remotes.find(place)).files == 2
    for one in (bob, other):
        assert served(one.store, find(one.store, made[0])) == expected(made)
    assert not list(bob.store.layout.partial.iterdir())


@pytest.mark.feature("R4")
@pytest.mark.parametrize("came", [0, 1000])
def test_a_pull_that_is_cut_says_what_is_kept_and_what_goes_on(tmp_path, shared, came):
    class Cut(Counted):
        def chunks(self, *asked):
            yield next(iter(self._storage.chunks(*asked)))[:came]
            raise RemoteError("it is away", cause="the cable is cut")

    ann = Watched(tmp_path / "ann", shared=[(FolderStorage(shared), "rw")])
    made = make_record(size=50_000)
    push(ann.store, ann.session.remotes, [publish(ann.store, made)])
    bob = Watched(tmp_path / "bob", shared=[(Cut(FolderStorage(shared)), "r")])
    with pytest.raises(RemoteError) as caught:
        bob.pull(bob.session.remotes.find(made[0].place))
    assert ("what arrived is kept: cachekit pull continues from there" in caught.value.advice) is bool(came)
    kept = [path.stat().st_size for path in bob.store.layout.partial.iterdir()]
    assert bool(sum(kept)) is bool(came)


def test_a_record_carries_no_more_than_its_share_of_tiny_files(tmp_path, monkeypatch):

    monkeypatch.setattr("cachekit.remotes.push.INLINE", 7000)
    with serve("folder", tmp_path / "server") as opened:
        ann = Watched(tmp_path / "ann", shared=[(opened(), "rw")])
        made = make_record(1, [f"a{number}" for number in range(10)], size=3000)
        record = publish(ann.store, made)
        (done,) = push(ann.store, ann.session.remotes, [record])
        assert done.error is None
        bob = Watched(tmp_path / "bob", shared=[(opened(), "r")])
        found = bob.session.remotes.find(record.place)
        assert len(found.shared.inline) == 2
        bob.pull(found)
        assert served(bob.store, record) == expected(made)


def test_why_a_remote_takes_neither_lease_nor_record_is_told_once(tmp_path):
    storage = Broken(MemoryRemote(), "commit", error=AuthError)
    ann = Watched(tmp_path / "ann", shared=[(storage, "rw")])
    warm(ann.session, ann.prepare())
    said = [
        (LINES | WARNINGS)[event["event"]](event)
        for event in ann.events
        if event["event"] in {"lease.failed", "push.failed"}
    ]
    assert ["the cable is cut" in line for line in said] == [True, False]
    assert "cachekit push --pending" in said[1]
