"""What pushes add to one record of a bucket of the Hub, where the last writer wins: nothing of it is lost.

On the test Hub, from real homes; `test_turns.py` has pushes in whatever order.
"""

import threading
import time
from types import SimpleNamespace

import pytest
from msgspec import structs

from cachekit.errors import RemoteError, UncertainError
from cachekit.remotes import additions, layout, listed_additions
from cachekit.remotes.budget import CLOCK
from cachekit.remotes.hub import bucket as hub_bucket
from cachekit.remotes.port import ANY, Commit, Write
from cachekit.remotes.push import push
from cachekit.store.record import paths_of
from cachekit.text import DAY
from tests.remotes.storage_makers.bucket import bucket_hub, grow_old, make_storage
from tests.remotes.storage_processes import title
from tests.remotes.watched_storages import Counted
from tests.support.hubserver import buckets
from tests.support.standins import Watched, make_record, publish
from tests.trust.flow_cases import ALICE, BOB, trust

pytestmark = pytest.mark.feature("R3")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A bucket of the Hub. A look counts for as long as a busy machine may take: others write after it, unseen."""
    monkeypatch.setattr(hub_bucket, "FRESH", 60.0)
    monkeypatch.setattr(CLOCK, "sleep", lambda _: None)  # nobody is waited for: the others are quicker in any case
    with bucket_hub(tmp_path / "hub") as hub:
        yield hub


def module(number, contents="a"):
    """A record of one key with the module of a number, and its files."""
    record, files = make_record(artifacts=(f"{contents}{number}",), size=5000)
    made = structs.replace(record.modules[0], name=f"standin-1.0/MODULE_{number}")
    return structs.replace(record, modules=(made,)), files


def pushes(tmp_path, name, storage, *made, error=None, said=None, seconds=20, **options):
    """A member of the team pushes what it made."""
    member = Watched(tmp_path / name, shared=[(storage, "rw")], trust=said, push=seconds)
    member.session.remotes.writable[0].retry()
    (done,) = push(member.store, member.session.remotes, [publish(member.store, one) for one in made], **options)
    assert (done.error and done.error.cause) == error
    return done


def there(tmp_path, hub, *, own=True):
    """The names of the modules that somebody else finds, each of which can be fetched, at its `own` place."""
    me = Watched(tmp_path / "me", shared=[(make_storage(hub), "r")])
    me.session.remotes.readable[0].refresh()
    record = me.session.remotes.find(make_record()[0].place).shared.record
    files = [path for path, _ in paths_of(record.modules)]
    assert not own or make_storage(hub).stat(files, "").keys() == {*files}
    return sorted(int(one.name.partition("_")[2]) for one in record.modules)


def remove(hub, part):
    """Somebody removes the files with this in their paths, also where they lie below their digests."""
    files = hub.buckets.known["team/cache"]["files"]
    gone = {one["xet"] for path, one in files.items() if part in path}
    for path in [path for path, one in files.items() if one["xet"] in gone]:
        del files[path]


def beside(hub):
    folder = layout.additions(make_record()[0].place)
    return [entry.path for entry in make_storage(hub).list(folder, "")]


class Slow(Counted):
    """A remote on which others are faster than a push that has looked already; then it may be that no listing works."""

    def __init__(self, storage, *others, dies=False):
        super().__init__(storage)
        self._others, self._dies = others, dies

    def commit(self, change, revision):
        if change.writes and "late" not in self.calls:
            self.calls.append("late")
            for other in self._others:
                other()
        return self._storage.commit(change, revision)

    def list(self, folder, revision):
        if self._dies and folder == layout.NEW:
            raise RemoteError("it is away", cause="the cable is cut")
        return self._storage.list(folder, revision)


def test_what_a_slower_push_writes_over_it_adds_again(tmp_path, hub):
    pushes(tmp_path, "ann", make_storage(hub), module(0))
    faster = [lambda n=n: pushes(tmp_path, f"fast-{n}", make_storage(hub), module(n)) for n in (1, 2)]
    done = pushes(tmp_path, "carl", Slow(make_storage(hub), *faster), module(3))
    assert there(tmp_path, hub) == [0, 1, 2, 3]
    assert (done.tries, len(done.records), len(done.files)) == (2, 1, 1)


def test_what_a_push_wrote_over_that_died_then_the_next_one_adds_and_it_stays_pending_where_it_was(tmp_path, hub):
    def faster():
        pushes(tmp_path, "bob", make_storage(hub), module(1))

    slow = Slow(make_storage(hub), faster, dies=True)
    pushes(tmp_path, "carl", slow, module(2), error="the cable is cut")
    assert there(tmp_path, hub) == [2]
    me = Watched(tmp_path / "carl", shared=[(make_storage(hub), "rw")])
    assert me.session.remotes.writable[0].pending() == {make_record()[0].key}
    pushes(tmp_path, "dora", make_storage(hub), module(3))
    assert there(tmp_path, hub) == [1, 2, 3]


def test_a_push_that_is_run_again_adds_what_it_wrote_over_though_its_own_is_there(tmp_path, hub):
    pushes(tmp_path, "ann", make_storage(hub), module(0))

    def faster():
        pushes(tmp_path, "bob", make_storage(hub), module(1))

    slow = Slow(make_storage(hub), faster, dies=True)
    pushes(tmp_path, "carl", slow, module(2), error="the cable is cut")
    done = pushes(tmp_path, "carl", make_storage(hub), module(2))
    assert there(tmp_path, hub) == [0, 1, 2]
    assert done.files == ()


def test_a_push_whose_look_fails_once_looks_again(tmp_path, hub):
    class Once(Slow):
        def list(self, folder, revision):
            failed, self._failed = getattr(self, "_failed", False), True
            if not failed:
                raise RemoteError("it is away", cause="for a moment")
            return self._storage.list(folder, revision)

    pushes(tmp_path, "ann", make_storage(hub), module(0))
    slow = Once(make_storage(hub), lambda: pushes(tmp_path, "bob", make_storage(hub), module(1)))
    pushes(tmp_path, "carl", slow, module(2))
    assert there(tmp_path, hub) == [0, 1, 2]


@pytest.mark.parametrize("error", [RemoteError, UncertainError])
def test_an_addition_that_the_hub_refused_while_it_took_the_record_is_sent_again(tmp_path, hub, error):
    """Of the changes of one request, a Hub may refuse some. A slower push would write over the record."""
    pushes(tmp_path, "ann", make_storage(hub), module(0))

    class Refusing(Slow):
        def commit(self, change, revision):
            kept = [write for write in change.writes if not write.path.startswith(layout.NEW)]
            if "once" in self.calls or len(kept) == len(change.writes):
                return self._storage.commit(change, revision)
            self.calls.append("once")
            self._storage.commit(structs.replace(change, writes=kept), revision)
            raise error("it took some of it", cause="Xet file not found")

    def faster():
        done = pushes(tmp_path, "bob", Refusing(make_storage(hub)), module(1))
        assert (len(done.records), done.unchanged) == (1, 0)

    pushes(tmp_path, "carl", Slow(make_storage(hub), faster), module(2))
    assert there(tmp_path, hub) == [0, 1, 2]


def test_a_record_that_is_replaced_gets_nothing_back_of_what_it_had(tmp_path, hub):
    pushes(tmp_path, "ann", make_storage(hub), module(0))
    pushes(tmp_path, "ann", make_storage(hub), module(1, "b"), replaces=True)
    pushes(tmp_path, "bob", make_storage(hub), module(2))
    assert there(tmp_path, hub) == [1, 2]


def test_a_file_whose_place_another_build_took_is_found_below_its_digest(tmp_path, hub):
    """Of two pushes of two keys that have one module, the slower one sends its build over that of the other."""
    made = [module(1, contents) for contents in "ab"]
    files = [structs.replace(record.modules[0].files[0], path="model.code") for record, _ in made]
    modules = [
        (structs.replace(record.modules[0], files=(file,)),) for (record, _), file in zip(made, files, strict=True)
    ]
    faster, slower = (structs.replace(make_record(key)[0], modules=modules[key - 1]) for key in (1, 2))
    pushes(tmp_path, "ann", make_storage(hub), module(0))
    slow = Slow(make_storage(hub), lambda: pushes(tmp_path, "bob", make_storage(hub), (faster, made[0][1])))
    pushes(tmp_path, "carl", slow, (slower, made[1][1]))
    for number in (2, 3):
        me = Watched(tmp_path / f"me-{number}", shared=[(make_storage(hub), "r")])
        me.pull(me.session.remotes.find(make_record()[0].place))
        with me.store.reading(files[0]) as blob:
            assert blob.path.read_bytes() == made[0][1][files[0].sha256]
        pushes(tmp_path, "dora", make_storage(hub), module(number))
    assert there(tmp_path, hub, own=False) == [0, 1, 2, 3]
    gone = {f"standin-1.0/MODULE_{number}/gone.code": files[0].sha256 for number in (1, 2)}
    assert me.session.remotes.readable[0].serves({**gone, "m/none.code": "0" * 64}) == gone.keys()


def test_a_module_whose_file_somebody_removed_is_not_added_again(tmp_path, hub):
    pushes(tmp_path, "ann", make_storage(hub), module(0))
    pushes(tmp_path, "bob", make_storage(hub), module(1))
    remove(hub, "MODULE_0/")
    pushes(tmp_path, "carl", make_storage(hub), module(2))
    pushes(tmp_path, "dora", make_storage(hub), module(3))
    assert there(tmp_path, hub) == [1, 2, 3]


@pytest.mark.parametrize("what", ["no record", "another key's", "nothing", "deep", "no number", "no text"])
def test_what_others_put_in_the_place_of_an_addition_is_no_trouble(tmp_path, hub, what):
    pushes(tmp_path, "ann", make_storage(hub), module(0))
    (path,) = beside(hub)
    data = {
        "no record": b"{}",
        "another key's": make_storage(hub).read(path, "", 1 << 20).data.replace(b'"number": 1', b'"number": 2'),
        "nothing": b"",
        "deep": b"[" * 100_000,
        "no number": b'{"record": NaN}',
        "no text": b'{"record": "\\ud800"}',
    }[what]
    for name in ("a", "-", f"{'b' * 12}-{'c' * 8}-{'d' * 10}", f"{'b' * 12}-{'c' * 8}-{'e' * 10}-{'f' * 10}"):
        write = Write(f"{layout.additions(make_record()[0].place)}/{name}.json", data, ANY)
        make_storage(hub).commit(Commit(title(), writes=[write]), "")
    done = pushes(tmp_path, "bob", make_storage(hub), module(1))
    assert there(tmp_path, hub) == [0, 1]
    assert done.tries == 2


def test_where_many_others_push_only_additions_to_the_same_record_are_all_seen(tmp_path, hub, monkeypatch):
    monkeypatch.setattr(listed_additions, "MOST", 2)
    monkeypatch.setattr(additions, "MOST", 2)
    for number in range(2, 5):
        pushes(tmp_path, "ann", make_storage(hub), make_record(number))
    slow = Slow(make_storage(hub), lambda: pushes(tmp_path, "bob", make_storage(hub), module(1)))
    pushes(tmp_path, "carl", slow, module(2))
    assert there(tmp_path, hub) == [1, 2]


def test_additions_are_removed_that_no_slower_push_can_lose(tmp_path, hub, monkeypatch):
    monkeypatch.setattr(listed_additions, "_OLD", 1)
    pushes(tmp_path, "ann", make_storage(hub), module(0))
    grow_old(hub)
    pushes(tmp_path, "bob", make_storage(hub), make_record(2))
    assert beside(hub) == [], "only one push wrote that record"
    for number in (1, 2):
        pushes(tmp_path, "ann", make_storage(hub), module(number))
    grow_old(hub)
    pushes(tmp_path, "bob", make_storage(hub), make_record(2))
    assert len(beside(hub)) == 2, "one may have written over what another added"
    grow_old(hub, DAY)
    pushes(tmp_path, "bob", make_storage(hub), make_record(3))
    assert beside(hub) == [], "the record has them"
    pushes(tmp_path, "ann", make_storage(hub), module(3))
    grow_old(hub)
    pushes(tmp_path, "ann", make_storage(hub), module(4))
    assert len(beside(hub)) == 1, "this push saw what the record has"
    assert there(tmp_path, hub) == [0, 1, 2, 3, 4]


def test_a_clock_of_the_remote_that_jumps_removes_nothing(tmp_path, hub, monkeypatch):
    monkeypatch.setattr(listed_additions, "_OLD", 1)
    pushes(tmp_path, "ann", make_storage(hub), module(0))
    with monkeypatch.context() as patch:
        patch.setattr(buckets, "time", SimpleNamespace(time=lambda: time.time() + 3600))
        pushes(tmp_path, "bob", make_storage(hub), make_record(2))
    pushes(tmp_path, "carl", make_storage(hub), make_record(3))
    assert len(beside(hub)) == 1


def test_a_large_push_adds_in_pieces_of_sixteen_modules(tmp_path, hub):
    record, files = make_record(artifacts=("a",))
    modules = [structs.replace(record.modules[0], name=f"standin-1.0/MODULE_{number}") for number in range(40)]
    pushes(tmp_path, "ann", make_storage(hub), (structs.replace(record, modules=tuple(modules)), files))
    assert sorted(path.rpartition("/")[2].count("-") for path in beside(hub)) == [9, 17, 17]
    slow = Slow(make_storage(hub), lambda: pushes(tmp_path, "bob", make_storage(hub), module(50)))
    pushes(tmp_path, "carl", slow, module(51))
    assert there(tmp_path, hub) == [*range(40), 50, 51]


def test_more_additions_than_are_read_for_one_draft_are_taken_in_several(tmp_path, hub, monkeypatch):
    monkeypatch.setattr(additions, "_READ", 1)
    faster = [lambda n=n: pushes(tmp_path, f"fast-{n}", make_storage(hub), module(n)) for n in (1, 2, 3)]
    storage = Slow(make_storage(hub), *faster)
    pushes(tmp_path, "carl", storage, module(4))
    assert there(tmp_path, hub) == [1, 2, 3, 4]


def test_additions_of_the_same_modules_of_which_one_is_gone_cost_a_few_rounds(tmp_path, hub):
    def several(*numbers):
        made = [module(number) for number in numbers]
        record = structs.replace(made[0][0], modules=tuple(one.modules[0] for one, _ in made))
        return record, {digest: raw for _, files in made for digest, raw in files.items()}

    storage = make_storage(hub)
    for name in ("ann", "bob", "carl", "dora", "eve", "fay"):  # the first of these is the fastest
        storage = Slow(make_storage(hub), lambda n=name, s=storage: pushes(tmp_path, n, s, several(1, 5)))
    pushes(tmp_path, "gus", storage, several(1, 5))
    remove(hub, "MODULE_5/")
    done = pushes(tmp_path, "hal", make_storage(hub), module(9))
    assert there(tmp_path, hub) == [1, 9]
    assert done.tries <= 4


def test_what_comes_after_a_record_was_replaced_stays_though_the_push_that_replaced_it_goes_on(tmp_path, hub):
    pushes(tmp_path, "ann", make_storage(hub), module(0))

    class Once(Slow):
        def list(self, folder, revision):
            if folder == layout.NEW and "once" not in self.calls:
                self.calls.append("once")
                pushes(tmp_path, "dora", make_storage(hub), module(2))
                raise RemoteError("it is away", cause="for a moment")
            return self._storage.list(folder, revision)

    pushes(tmp_path, "rita", Once(make_storage(hub)), module(1), replaces=True)
    assert there(tmp_path, hub) == [1, 2]


def test_an_addition_that_comes_wrong_once_is_read_again(tmp_path, hub):
    class Wrong(Slow):
        def read(self, path, revision, limit):
            found = self._storage.read(path, revision, limit)
            if path.startswith(layout.NEW) and path not in self.calls:
                self.calls.append(path)
                return structs.replace(found, data=b"<html>")
            return found

    slow = Wrong(make_storage(hub), lambda: pushes(tmp_path, "bob", make_storage(hub), module(1)))
    pushes(tmp_path, "carl", slow, module(2))
    assert there(tmp_path, hub) == [1, 2]


def test_a_recheck_that_drops_a_module_keeps_what_came_with_it(tmp_path, hub):
    def faster():
        made = [module(number) for number in range(1, 5)]
        record = structs.replace(made[0][0], modules=tuple(one.modules[0] for one, _ in made))
        pushes(tmp_path, "ann", make_storage(hub), (record, {k: raw for _, files in made for k, raw in files.items()}))

    pushes(tmp_path, "bob", Slow(make_storage(hub), faster, dies=True), module(2, "b"), error="the cable is cut")
    remove(hub, "MODULE_2/")
    pushes(tmp_path, "carl", make_storage(hub), module(9), recheck=True)
    assert there(tmp_path, hub) == [1, 3, 4, 9]


def test_a_push_of_two_records_says_what_it_wrote_in_two_rounds(tmp_path, hub):
    write = Write(layout.record_path(make_record(3)[0].place), b"{}", ANY)
    make_storage(hub).commit(Commit(title(), writes=[write]), "")
    slow = Slow(make_storage(hub), lambda: pushes(tmp_path, "bob", make_storage(hub), module(1)))
    member = Watched(tmp_path / "carl", shared=[(slow, "rw")])
    made = [publish(member.store, one) for one in (module(2), make_record(3))]
    (done,) = push(member.store, member.session.remotes, made)
    assert (done.error, done.tries, len(done.records), done.unchanged) == (None, 2, 2, 0)
    assert [told["key"] for told in member.told("remote.damaged")] == [make_record(3)[0].key]


@pytest.mark.campaign
@pytest.mark.parametrize(("members", "each"), [(6, 3), pytest.param(40, 5, marks=pytest.mark.slow)])
def test_many_that_push_modules_of_one_record_at_once_lose_none(tmp_path, members, each):
    with bucket_hub(tmp_path / "hub") as hub:

        def work(number):
            for one in range(number * each, (number + 1) * each):
                done = pushes(tmp_path, f"home-{number}", make_storage(hub), module(one), seconds=600)
                told.append(done.tries)

        told = []
        threads = [threading.Thread(target=work, args=(number,)) for number in range(members)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(told) == members * each
        assert max(told) > 1, "they raced"
        assert there(tmp_path, hub) == [*range(members * each)]


@pytest.mark.feature("T1")
@pytest.mark.parametrize("believed", [True, False])
def test_only_signed_additions_go_into_a_record_that_a_signature_is_asked_for(tmp_path, hub, believed):
    said = {make_storage(hub).name: "signed"}
    alice = trust(BOB, key=ALICE, said=said) if believed else trust(key=ALICE, said=said)
    bob = trust(ALICE, key=BOB, said=said)
    slow = Slow(make_storage(hub), lambda: pushes(tmp_path, "bob", make_storage(hub), module(1), said=bob))
    pushes(tmp_path, "alice", slow, module(2), said=alice)
    reader = Watched(tmp_path / "me", shared=[(make_storage(hub), "r")], trust=trust(ALICE, BOB, said=said))
    record = reader.session.remotes.find(make_record()[0].place).shared.record
    names = {one.name for one in record.modules}
    assert ("standin-1.0/MODULE_1" in names) == believed
    assert "standin-1.0/MODULE_2" in names


@pytest.mark.feature("T1")
def test_what_somebody_passes_on_with_the_signature_of_another_is_added_again(tmp_path, hub):
    said = {make_storage(hub).name: "signed"}
    believes_bob = trust(BOB, key=ALICE, said=said)
    pushes(tmp_path, "bob", make_storage(hub), module(1), said=trust(ALICE, key=BOB, said=said))
    alice = Watched(tmp_path / "alice", shared=[(make_storage(hub), "rw")], trust=believes_bob)
    place = make_record()[0].place
    alice.pull(alice.session.remotes.find(place))
    hub.buckets.known["team/cache"]["files"].clear()

    def faster():
        (done,) = push(alice.store, alice.session.remotes, [alice.store.lookup(place)])
        assert len(done.records) == 1

    pushes(tmp_path, "carl", Slow(make_storage(hub), faster), module(2), said=believes_bob)
    reader = Watched(tmp_path / "me", shared=[(make_storage(hub), "r")], trust=trust(ALICE, BOB, said=said))
    record = reader.session.remotes.find(place).shared.record
    assert {one.name for one in record.modules} == {"standin-1.0/MODULE_1", "standin-1.0/MODULE_2"}
