"""A shared cache that is away, late or slow: it stops no run, and what could not be pushed or pulled is done later."""

import json
import os
import time

import pytest

from cachekit.errors import ConflictError, MissError
from cachekit.remotes import layout
from cachekit.remotes.folder import FolderTier
from cachekit.store.scratch import hold
from cachekit.verbs.plan import plan
from cachekit.verbs.pull import pull
from cachekit.verbs.push import push
from cachekit.verbs.push_records import chosen
from cachekit.verbs.train import train
from cachekit.verbs.warm import warm
from tests.remotes.sharing_cases import log, make, member, shared  # noqa: F401 - fixtures
from tests.remotes.tier_processes import serve
from tests.remotes.watched_tiers import Broken, Busy, Counted, Long
from tests.support.standins import Watched, expected, find, make_record, publish, recipe, served


@pytest.mark.feature("R4")
@pytest.mark.parametrize("failing", ["revision", "read", "chunks", "upload", "commit", "stat", "all"])
def test_a_cache_that_is_away_stops_nothing(tmp_path, make, failing, log):
    ann = Watched(tmp_path / "ann", shared=[(make(), "rw")])
    warm(ann.session, ann.prepare())
    tier = Broken(make(), failing)
    bob = Watched(tmp_path / "bob", shared=[(tier, "rw")])
    done = train(bob.session, bob.prepare(recipe(4)), output_dir=tmp_path / "out")
    assert done.result.steps
    assert plan(bob.prepare(recipe(4)), bob.store).hit
    hit = warm(bob.session, bob.prepare())
    assert hit.record.key == bob.prepare().key
    told = [event for event in bob.events if event["event"] in {"remote.failed", "push.failed"}]
    assert told
    assert "the cable is cut" in json.dumps(told)


@pytest.mark.feature("R4")
def test_a_cache_that_failed_is_left_alone_by_the_next_runs_too(tmp_path, make):
    tier = Broken(make(), "all")
    for _ in range(3):
        bob = Watched(tmp_path / "bob", shared=[(tier, "rw")])
        assert not plan(bob.prepare(), bob.store, bob.session.chain).hit
        assert len(bob.told("remote.failed")) == 1
    assert len(tier.calls) == 1


def test_a_push_that_is_always_too_late_leaves_the_cache_in_use(tmp_path, shared):
    ann = Watched(tmp_path / "ann", shared=[(Broken(FolderTier(shared), "commit", error=ConflictError), "rw")], push=0)
    record = publish(ann.store, make_record())
    (pushed,) = push(ann.session, [record], ann.session.chain.writable)
    assert "could not take the push" in pushed.error.message
    assert ann.session.chain.writable[0].usable()


def test_what_could_not_be_pushed_is_kept_and_offered_again(tmp_path, make, log):
    tier = Broken(make(), "commit")
    ann = Watched(tmp_path / "ann", shared=[(tier, "rw")], push=0)
    record = warm(ann.session, ann.prepare()).record
    remote = ann.session.chain.writable[0]
    assert remote.pending() == {record.key: (record.directory, record.model_type)}
    tier.failing.clear()
    later = Watched(tmp_path / "ann", shared=[(make(), "rw")])
    later.session.chain.writable[0].retry()
    push(later.session, [record], later.session.chain.writable)
    assert later.session.chain.writable[0].pending() == {}
    bob = Watched(tmp_path / "bob", shared=[(make(), "r")])
    assert plan(bob.prepare(), bob.store, bob.session.chain).hit


def test_a_push_that_was_stopped_is_offered_again(tmp_path, shared):
    """By Ctrl-C here; a kill leaves the same note."""

    def stop(*_, **__):
        raise KeyboardInterrupt

    tier = Broken(FolderTier(shared), "commit", error=stop)
    ann = Watched(tmp_path / "ann", shared=[(tier, "rw")])
    record = publish(ann.store, make_record())
    with pytest.raises(KeyboardInterrupt):
        push(ann.session, [record], ann.session.chain.writable)
    assert chosen(ann.session, [], pending=True) == [record]
    other = publish(ann.store, make_record(2))
    assert chosen(ann.session, [other.key], pending=True) == []
    tier.failing.clear()
    push(ann.session, [record], ann.session.chain.writable)
    assert chosen(ann.session, [], pending=True) == []


@pytest.mark.feature("C2")
@pytest.mark.parametrize("trouble", [lambda tier, key: Long(tier, "upload", key), Busy], ids=["large files", "busy"])
def test_who_pushes_for_long_still_holds_the_lease(tmp_path, shared, trouble):
    """Others would take it for dead, and compile what is on its way."""
    prepared = Watched(tmp_path / "ann").prepare()
    tier = trouble(FolderTier(shared), prepared.key)
    ann = Watched(tmp_path / "ann", shared=[(tier, "rw")], lease=1)
    assert warm(ann.session, prepared).compiled
    assert tier.signs
    assert not ann.told("push.failed")
    assert tier.read(layout.lease_path(prepared.key), tier.revision(), 1 << 20) is None


def test_a_record_named_twice_is_pushed_once(tmp_path, shared):
    ann = Watched(tmp_path / "ann", shared=[(FolderTier(shared), "rw")], push=3)
    record = publish(ann.store, make_record())
    (pushed,) = push(
        ann.session, chosen(ann.session, [record.key, record.key[:8]], pending=False), ann.session.chain.writable
    )
    assert pushed.error is None
    assert len(pushed.published.records) == 1


def test_a_pull_goes_on_where_a_killed_one_stopped(member, make, tmp_path):
    ann = member("ann")
    made = make_record(artifacts=("a",), size=5_000_000)
    publish(ann.store, made)
    push(ann.session, [made[0]], ann.session.chain.writable)

    class Cut(Counted):
        def chunks(self, path, revision, start=0):
            for number, data in enumerate(self._tier.chunks(path, revision, start)):
                yield data[:1000]
                if number == 0:
                    raise KeyboardInterrupt

    bob = Watched(tmp_path / "bob", shared=[(Cut(make()), "r")])
    place = made[0].directory, made[0].model_type, made[0].key
    with pytest.raises(KeyboardInterrupt):
        pull(bob.session, bob.session.chain.find(*place))
    tier = make()
    again = Watched(tmp_path / "bob", shared=[(tier, "r")])
    starts = []
    whole = tier.chunks
    tier.chunks = lambda path, revision, start=0: starts.append(start) or whole(path, revision, start)
    pull(again.session, again.session.chain.find(*place))
    assert starts == [1000]
    assert served(again.store, find(again.store, made[0])) == expected(made)


def test_two_that_pull_one_record_at_once_both_have_it(tmp_path, shared):
    ann = Watched(tmp_path / "ann", shared=[(FolderTier(shared), "rw")])
    made = make_record(artifacts=("a", "b"), size=50_000)
    first, second = made[0].files
    publish(ann.store, made)
    push(ann.session, [made[0]], ann.session.chain.writable)
    place = made[0].directory, made[0].model_type, made[0].key

    class Overtaken(Counted):
        def chunks(self, path, revision, start=0):
            if second.sha256 in path or path.endswith(second.path):
                arrived = bob.store.layout.partial / first.sha256
                end = time.monotonic() + 20
                while (handle := hold(arrived, os.O_RDWR | os.O_CREAT)) is None or arrived.stat().st_size < first.size:
                    assert time.monotonic() < end
                    if handle is not None:
                        os.close(handle)
                    time.sleep(0.01)
                os.close(handle)
                pull(other.session, other.session.chain.find(*place))
            yield from self._tier.chunks(path, revision, start)

    other = Watched(tmp_path / "bob", shared=[(FolderTier(shared), "r")])
    bob = Watched(tmp_path / "bob", shared=[(Overtaken(FolderTier(shared)), "r")])
    assert pull(bob.session, bob.session.chain.find(*place)).files == 2
    for one in (bob, other):
        assert served(one.store, find(one.store, made[0])) == expected(made)
    assert not list(bob.store.layout.partial.iterdir())


def test_require_warm_fails_where_the_cache_has_it_not(member):
    bob = member("bob")
    with pytest.raises(MissError):
        warm(bob.session, bob.prepare(), require_warm=True)


def test_a_record_carries_no_more_than_its_share_of_tiny_files(tmp_path, monkeypatch):
    from cachekit.verbs.pull import pull

    monkeypatch.setattr("cachekit.verbs.push.INLINE", 7000)
    with serve("folder", tmp_path / "server") as opened:
        ann = Watched(tmp_path / "ann", shared=[(opened(), "rw")])
        made = make_record(1, [f"a{number}" for number in range(10)], size=3000)
        record = publish(ann.store, made)
        (done,) = push(ann.session, [record], ann.session.chain.writable)
        assert done.error is None
        bob = Watched(tmp_path / "bob", shared=[(opened(), "r")])
        found = bob.session.chain.find(record.directory, record.model_type, record.key)
        assert len(found.shared.inline) == 2
        pull(bob.session, found)
        assert served(bob.store, record) == expected(made)
