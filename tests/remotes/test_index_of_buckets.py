"""The index of an object store: a long one lies in two documents, and who asks lists the records once a day."""

import pytest
from msgspec import structs

from cachekit.remotes import derived, index, layout, listed_additions, nearest_on
from cachekit.remotes.hub import bucket as hub_bucket
from cachekit.remotes.index import RemoteIndex
from cachekit.remotes.nearest import search
from cachekit.remotes.nearest_on import by_key
from cachekit.remotes.port import Commit, Write
from tests.remotes.index_cases import (  # noqa: F401 - fixtures
    bucket,
    firsts,
    keys,
    near_one,
    plant,
    push_side_by_side,
    there,
    wanted,
    yesterday,
)
from tests.remotes.storage_makers.bucket import bucket_hub, grow_old, make_storage
from tests.remotes.storage_processes import title
from tests.remotes.test_nearest import fill, fill_whole, others, wish
from tests.remotes.test_parts import long_record, pushed
from tests.remotes.watched_storages import Broken, Counted, Noisy
from tests.support.standins import Watched


@pytest.mark.feature("R7")
def test_an_object_store_to_which_nobody_pushes_is_listed_once_a_day_by_each_store(
    tmp_path, wanted, bucket, monkeypatch
):
    monkeypatch.setattr(nearest_on, "REMEMBERED_SECONDS", 0.0)
    fill_whole(tmp_path / "ann", bucket(), [far := others(wanted, 1)[0]])
    yesterday(bucket())

    def asked():
        me = Watched(tmp_path / "me", shared=[(storage := Counted(bucket()), "r")])
        return search(wish(wanted), me.store, me.session.remotes).nearest.known.key, "list" in storage.calls

    assert [asked(), asked()] == [(far[0].key, True), (far[0].key, False)]
    near = near_one(wanted)
    fill(bucket(), [near])
    me = Watched(tmp_path / "me", shared=[(bucket(), "r")])
    assert by_key(near[0].key[:20], me.store, me.session.remotes)[0].key == near[0].key, "what nobody finds is listed"
    fill_whole(tmp_path / "bob", bucket(), others(wanted, 2)[1:])
    assert asked() == (near[0].key, False), "that push has listed them"


def test_where_there_is_no_index_nobody_knows_that_nobody_pushed(tmp_path, wanted, bucket, monkeypatch):
    """An older cachekit, say: each question lists the records."""
    monkeypatch.setattr(nearest_on, "REMEMBERED_SECONDS", 0.0)
    fill(bucket(), others(wanted, 1))
    for _ in range(2):
        me = Watched(tmp_path / "me", shared=[(storage := Counted(bucket()), "r")])
        search(wish(wanted), me.store, me.session.remotes)
        assert "list" in storage.calls


LONG = 1150  # bytes of an index that counts as long: ten rows


def parts_of(storage):
    """The documents with older rows."""
    return [entry.path for entry in storage.list("cachekit/v1/index", "")]


@pytest.mark.feature("R7")
def test_a_long_index_of_an_object_store_lies_in_two_documents_of_which_a_push_writes_the_short_one(
    tmp_path, wanted, bucket, monkeypatch
):
    monkeypatch.setattr(derived, "SHORT", LONG)
    made = others(wanted, 40)
    fill_whole(tmp_path / "ann", bucket(), made[:20])
    renewed = []
    for at in range(20, 40):
        before = parts_of(bucket())
        fill_whole(tmp_path / f"home-{at}", bucket(), [made[at]])
        assert keys(there(bucket())) == firsts(made[: at + 1])
        assert len(parts_of(bucket())) == 1, "what no index names is removed"
        assert len(bucket().read(layout.INDEX, "", 1 << 20).data) <= LONG
        renewed.append(parts_of(bucket()) != before)
    assert 1 <= sum(renewed) <= 4
    assert there(bucket()).speaks_for_all(bucket())
    assert [one.recipe for one in there(bucket()).rows()] == [record.recipe for record, _ in made]


@pytest.mark.parametrize("what", ["gone", "other bytes", "no index", "of a stranger's choice"])
def test_older_rows_that_are_not_what_the_index_names_are_not_used_and_the_next_push_lists(
    tmp_path, wanted, bucket, monkeypatch, what
):
    monkeypatch.setattr(derived, "SHORT", 0)
    made = others(wanted, 3)
    fill_whole(tmp_path / "ann", bucket(), made[:2])
    (path,) = parts_of(bucket())
    token = bucket().read(path, "", 1 << 20).token
    if what == "of a stranger's choice":
        said = index.recent(bucket(), "")[0]
        plant(bucket(), index.encode(structs.replace(said, older="0" * 64)))
    else:
        data = {"gone": None, "other bytes": index.encode(RemoteIndex()), "no index": b"x"}[what]
        bucket().commit(Commit(title(), writes=[Write(path, data, token)]), "")
    me = Watched(tmp_path / "me", shared=[(bucket(), "r")])
    assert search(wish(wanted), me.store, me.session.remotes).nearest.known.key in {record.key for record, _ in made}
    fill_whole(tmp_path / "bob", bucket(), made[2:])
    assert keys(there(bucket())) == firsts(made)


def test_older_rows_that_are_renewed_between_two_questions_are_asked_for_again(tmp_path, wanted, bucket, monkeypatch):
    monkeypatch.setattr(derived, "SHORT", 0)
    made = others(wanted, 2)
    fill_whole(tmp_path / "ann", bucket(), made[:1])

    class Late(Counted):
        def read(self, path, revision, limit):
            if path.startswith("cachekit/v1/index/") and not self.calls:
                self.calls.append("renewed")
                fill_whole(tmp_path / "bob", bucket(), made[1:])
            return self._storage.read(path, revision, limit)

    assert keys(index.read(Late(bucket()), "")[0]) == firsts(made)


@pytest.mark.feature("R3")
def test_many_that_push_at_once_to_a_long_index_lose_nothing(tmp_path, wanted, bucket, monkeypatch):
    monkeypatch.setattr(derived, "SHORT", 1100)
    made, shared = others(wanted, 12), bucket()
    push_side_by_side(tmp_path, shared, made)
    assert keys(there(shared)) == firsts(made)


class Overtaken(Counted):
    """A remote to which somebody pushes just before the index is written."""

    def __init__(self, storage, meanwhile):
        super().__init__(storage)
        self._meanwhile = meanwhile

    def commit(self, change, revision):
        if self._meanwhile and any(write.path == layout.INDEX for write in change.writes):
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()
        return self._storage.commit(change, revision)


@pytest.mark.feature("R3")
def test_a_push_that_drops_modules_leaves_the_newer_row_of_another(tmp_path, bucket):
    made, contents = long_record(5, size=5000)

    def push_of(name, *numbers, remote=None, **options):
        one = Watched(tmp_path / name, shared=[(remote or bucket(), "rw")])
        pushed(one, (structs.replace(made, modules=tuple(made.modules[n] for n in numbers)), contents), **options)

    push_of("ann", 0, 1, 2)
    storage, path = bucket(), f"{made.modules[1].name}/{made.modules[1].files[0].path}"
    storage.commit(Commit("x", writes=[Write(path, b"of another tool", storage.read(path, "", 1 << 20).token)]), "")
    overtaken = Overtaken(bucket(), lambda: push_of("bob", 0, 1, 2, 3, 4))
    push_of("yan", 0, remote=overtaken, recheck=True)
    (row,) = there(bucket()).rows()
    found = Watched(tmp_path / "zoe", shared=[(bucket(), "r")]).session.remotes.find(made.place)
    assert row.modules == len(found.shared.record.modules) == 5


@pytest.mark.feature("R7")
def test_a_push_says_what_it_has_before_it_lists_the_records_which_may_take_too_long(
    tmp_path, wanted, bucket, monkeypatch
):
    monkeypatch.setattr(derived, "SHORT", LONG)
    made = others(wanted, 21)
    fill_whole(tmp_path / "ann", bucket(), made[:20])
    said, _ = index.recent(bucket(), "")
    assert said.older
    plant(bucket(), index.encode(structs.replace(said, listed=said.listed - index.CURRENT)))
    fill_whole(tmp_path / "bob", Broken(bucket(), "list"), made[20:])
    assert keys(there(bucket())) == firsts(made)
    assert not there(bucket()).speaks_for_all(bucket())


@pytest.mark.feature("S5")
@pytest.mark.parametrize("short", [0, derived.SHORT], ids=["two documents", "one"])
def test_an_index_and_a_record_that_come_with_a_wrong_byte_are_read_again_before_anything_goes_in_their_place(
    tmp_path, wanted, bucket, monkeypatch, short
):
    monkeypatch.setattr(derived, "SHORT", short)
    fill_whole(tmp_path / "ann", bucket(), made := others(wanted, 3))
    record, contents = made[0]
    more = structs.replace(record, modules=(structs.replace(record.modules[0], name="standin-1/MODULE_9+9"),))
    fill_whole(tmp_path / "bob", noisy := Noisy(bucket()), [(more, contents)])
    assert "list" not in noisy.calls
    assert keys(there(bucket())) == firsts(made)
    found = Watched(tmp_path / "me", shared=[(bucket(), "r")]).session.remotes.find(record.place).shared.record
    assert {module.name for module in found.modules} == {record.modules[0].name, more.modules[0].name}


@pytest.mark.feature("R4")
def test_a_push_does_not_wait_for_an_index_that_is_always_read_as_it_was_once(tmp_path, wanted, bucket):
    """By way of a proxy that keeps an old copy, say: nothing can be written on top of that."""
    first, second, third = others(wanted, 3)
    fill_whole(tmp_path / "ann", bucket(), [first])
    old = bucket().read(layout.INDEX, "", 1 << 20)
    fill_whole(tmp_path / "ann", bucket(), [second])

    class Stale(Counted):
        def read(self, path, revision, limit):
            return old if path == layout.INDEX else self._storage.read(path, revision, limit)

    fill_whole(tmp_path / "bob", stale := Stale(bucket()), [third])
    assert stale.calls.count("commit") <= 6
    assert Watched(tmp_path / "me", shared=[(bucket(), "r")]).session.remotes.find(third[0].place)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A bucket of the Hub, where the last writer wins. A look counts for as long as a busy machine may take."""
    monkeypatch.setattr(hub_bucket, "FRESH", 60.0)
    monkeypatch.setattr(derived, "ALONE", LONG)
    with bucket_hub(tmp_path / "hub") as hub:
        yield hub


@pytest.mark.feature("R7")
def test_a_push_to_a_bucket_of_the_hub_with_many_records_asks_little(tmp_path, wanted, hub, monkeypatch):
    monkeypatch.setattr(derived, "SHORT", LONG)
    monkeypatch.setattr(listed_additions, "_OLD", 1)
    made = others(wanted, 23)
    for some in (made[:20], made[20:21], made[21:22]):
        fill_whole(tmp_path / "ann", make_storage(hub), some)
        grow_old(hub)
    monkeypatch.setattr(listed_additions, "_OLD", 32)
    hub.log.clear()
    near, contents = made[22]  # a module that the others do not have
    module = structs.replace(near.modules[0], name="standin-1/MODULE_9+9")
    fill_whole(tmp_path / "bob", make_storage(hub), [(structs.replace(near, modules=(module,)), contents)])
    requests = [entry for entry in hub.requests if entry.kind != "xet" and "/xet-write-token" not in entry.path]
    assert len(requests) <= 6, [entry.path for entry in requests]
    assert keys(there(make_storage(hub))) == firsts(made)
    assert [entry.path for entry in requests if "/tree/" in entry.path and "records" in entry.path] == []


@pytest.mark.feature("R7")
def test_a_long_index_in_a_bucket_of_the_hub_is_one_document_until_it_is_a_very_long_one(
    tmp_path, wanted, hub, monkeypatch
):
    """Each is two requests there: a first question takes four."""
    monkeypatch.setattr(derived, "SHORT", LONG)
    monkeypatch.setattr(derived, "ALONE", 3 * LONG)
    made = others(wanted, 22)
    fill_whole(tmp_path / "ann", make_storage(hub), made[:21])
    hub.log.clear()
    fill_whole(tmp_path / "bob", make_storage(hub), made[21:])
    assert len([entry for entry in hub.requests if entry.kind != "xet" and "write-token" not in entry.path]) <= 6
    hub.log.clear()
    me = Watched(tmp_path / "me", shared=[(make_storage(hub), "r")])
    assert me.session.remotes.find(wanted.place) is None
    assert search(wish(wanted), me.store, me.session.remotes).nearest.known.key in {record.key for record, _ in made}
    assert len(hub.requests) == 4
    assert LONG < len(make_storage(hub).read(layout.INDEX, "", 1 << 20).data) < 3 * LONG
    monkeypatch.setattr(derived, "ALONE", LONG)
    fill_whole(tmp_path / "ann", make_storage(hub), [near := near_one(wanted)])
    assert len(make_storage(hub).read(layout.INDEX, "", 1 << 20).data) < LONG
    assert keys(there(make_storage(hub))) == firsts([*made, near])


@pytest.mark.feature("R7")
def test_older_rows_that_others_replaced_a_day_ago_are_removed_from_a_bucket_of_the_hub(
    tmp_path, wanted, hub, monkeypatch
):
    monkeypatch.setattr(derived, "SHORT", 0)
    monkeypatch.setattr(derived, "ALONE", 0)
    made = others(wanted, 4)
    for number in range(3):  # each renews the index
        fill_whole(tmp_path / "ann", make_storage(hub), made[number : number + 1])
    files = hub.buckets.known["team/cache"]["files"]
    parts = sorted((path for path in files if "/index/" in path and "/new/" not in path), key=lambda p: files[p]["at"])
    assert len(parts) == 3, "who is slower may name any of them again"
    for path, days in zip(parts, (9, 2, 0), strict=True):  # the second one was in use until just now
        files[path]["at"] -= days * index.CURRENT
    fill_whole(tmp_path / "bob", make_storage(hub), made[3:])
    left = hub.buckets.known["team/cache"]["files"].keys() & {*parts}
    assert left == {*parts[1:]}
    assert keys(there(make_storage(hub))) == firsts(made)


@pytest.mark.feature("R3")
@pytest.mark.parametrize("short", [LONG, derived.SHORT], ids=["two documents", "one"])
def test_a_row_that_a_race_lost_in_a_bucket_of_the_hub_is_added_by_who_wrote_over_it(
    tmp_path, wanted, hub, monkeypatch, short
):
    monkeypatch.setattr(derived, "SHORT", short)
    monkeypatch.setattr(listed_additions, "_OLD", 1)
    fast, next_one, slow, last, *first = others(wanted, 24)
    fill_whole(tmp_path / "ann", make_storage(hub), first)

    class Late(Counted):  # a line that is slow, or a process that was stopped
        def commit(self, change, revision):
            if "late" not in self.calls and layout.INDEX in {write.path for write in change.writes}:
                self.calls.append("late")
                fill_whole(tmp_path / "bob", make_storage(hub), [fast])
                fill_whole(tmp_path / "bea", make_storage(hub), [next_one])
            return self._storage.commit(change, revision)

    fill_whole(tmp_path / "carl", Late(make_storage(hub)), [slow])
    assert keys(there(make_storage(hub))) == firsts([*first, fast, next_one, slow]), "nothing compares"
    grow_old(hub)
    fill_whole(tmp_path / "dora", make_storage(hub), [last])
    assert keys(there(make_storage(hub))) == firsts([*first, fast, next_one, slow, last])
    left = list(make_storage(hub).list(layout.NEW, ""))
    assert len(left) == 1, "names of which the index has had the rows for a while are removed"
