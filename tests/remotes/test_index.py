"""The index of a remote: few questions however many records there are, and nothing that depends on its being right."""

import itertools
import threading
import time
from contextlib import suppress

import pytest
from msgspec import structs

from cachekit.cli.hub import _listed
from cachekit.errors import RemoteError, UntrustedError
from cachekit.key.canonical import key_of
from cachekit.remotes import derived, history, index, layout
from cachekit.remotes import document as documents
from cachekit.remotes import publish as publishing
from cachekit.remotes.folder import FolderStorage
from cachekit.remotes.index import Known, RemoteIndex
from cachekit.remotes.nearest import search
from cachekit.remotes.nearest_on import Catalogue, by_key, said_of
from cachekit.remotes.port import Commit, PastCommit, Write
from cachekit.remotes.push import push
from cachekit.remotes.survey import Budget, Survey
from cachekit.verbs.coverage import coverage_of_all
from cachekit.verbs.hub import contents
from cachekit.verbs.why import with_nearest
from tests.remotes.index_cases import (  # noqa: F401 - fixtures
    bucket,
    firsts,
    keys,
    make,
    memory,
    near_one,
    plant,
    push_side_by_side,
    there,
    wanted,
    yesterday,
)
from tests.remotes.memory_remote import MemoryRemote
from tests.remotes.storage_processes import serve, title
from tests.remotes.test_nearest import fill, fill_whole, made_from, names, others, wish
from tests.remotes.watched_storages import Counted
from tests.support.standins import Watched, make_record, publish, recipe
from tests.trust.flow_cases import ALICE, BOB, trust
from tests.trust.trust_cases import key


@pytest.mark.feature("R7")
@pytest.mark.parametrize("differing", [1, 2])
def test_a_miss_asks_for_the_index_and_where_others_may_be_nearer_for_the_last_changes(
    tmp_path, wanted, memory, differing
):
    changes = {"training.max_seq_length": 64, "training.per_device_train_batch_size": 99}
    made = [*others(wanted, 30), made_from(wanted, **dict([*changes.items()][:differing]))]
    fill_whole(tmp_path / "ann", memory, made)
    me = Watched(tmp_path / "me", shared=[(storage := Counted(memory), "r")])
    found = search(wish(wanted, reuse_bytes=10**9), me.store, me.session.remotes)
    assert found.nearest.known == Known.of(made[-1][0])
    assert found.reuse.known == found.nearest.known
    assert [(one.records, one.compared, one.problem) for one in found.looked] == [(31, 31, "")]
    assert sorted(storage.calls) == ["latest"] * (differing - 1) + ["read", "revision", "stranger"]


def test_a_push_writes_it_with_the_records(tmp_path, wanted, make):
    made = others(wanted, 5)
    fill_whole(tmp_path / "ann", make(), made[:2])
    fill_whole(tmp_path / "bob", make(), made[2:])
    assert keys(there(make())) == firsts(made)
    assert [one.recipe for one in there(make()).rows()] == [record.recipe for record, _ in made]
    storage = make()
    if storage.scarce:  # one commit has both
        assert history.after(there(storage), storage.latest())
        assert [change.message for change in storage.latest()[:2]] == [history.WHOLE] * 2


def test_leases_change_no_record(wanted):
    lease = PastCommit("2", f"cachekit: renews the lease of {wanted.key[:16]} [{'b' * 32}]")
    mine, other = PastCommit("1", f"cachekit: bert [{'a' * 12}]"), PastCommit("0", f"cachekit: bert [{'c' * 12}]")
    found = RemoteIndex(change="a" * 12)
    assert history.after(found, [mine, other]) is found
    assert history.after(found, [lease, lease, mine, other]) is found
    assert history.after(found, [lease, other, mine]) is None, "another one pushed after it"
    assert history.after(found, [lease]) is None, "nobody knows"
    assert history.after(structs.replace(found, unread=1), [mine]) is None


def test_changes_say_what_they_add_and_nothing_else_is_believed(wanted):
    one, two = (Known.of(record) for record, _ in others(wanted, 2))
    renamed = structs.replace(one, recipe="renamed")
    base = PastCommit("0", f"cachekit: bert [{'a' * 12}]", message=history.WHOLE)
    told = [(2, [two, renamed]), (1, [one])]  # newest first: what was said last counts
    changes = [PastCommit(str(at), f"cachekit: bert [{at:012}]", message=history.message(rows)) for at, rows in told]
    changes.append(base)
    found = history.after(RemoteIndex(change="a" * 12), changes)
    assert {known.key: known.recipe for known in found.rows()} == {one.key: "renamed", two.key: two.recipe}
    assert history.later(changes) == [one, two, renamed]
    lies = [structs.replace(one, hard={}), structs.replace(one, directory="../..")]
    for message in ("", "Rows of the index: AAAA", *(history.message([lie]) for lie in lies)):
        assert history.later([PastCommit("9", "cachekit: x [9]", message=message), *changes]) is None
    assert history.message([structs.replace(one, key=key_of({"number": number})) for number in range(999)]) == "", (
        "too much"
    )


def test_records_that_an_older_cachekit_pushed_are_found_and_the_next_push_adds_them(tmp_path, wanted, make):
    fill_whole(tmp_path / "ann", make(), others(wanted, 2))
    fill(make(), [near := near_one(wanted)])
    me = Watched(tmp_path / "me", shared=[(make(), "r")])
    found = search(wish(wanted), me.store, me.session.remotes)
    yesterday(make())
    if make().scarce or make().lines == 1:  # elsewhere the next push finds them, or a day later a question
        assert names(found.nearest) == ["training.max_seq_length"]
    fill_whole(tmp_path / "bob", make(), [more := made_from(wanted, **{"training.max_seq_length": 65})])
    assert keys(there(make())) == firsts([*others(wanted, 2), near, more])


@pytest.mark.feature("R7")
@pytest.mark.parametrize("days", [0, 1.1, -1.1], ids=["today", "long ago", "by a clock that is wrong"])
def test_an_object_store_is_not_listed_within_a_day_of_a_push(tmp_path, wanted, bucket, days):
    far = others(wanted, 1)[0]
    fill_whole(tmp_path / "ann", bucket(), [far])
    said, _ = index.read(bucket(), "")
    assert said.speaks_for_all(bucket())
    if days:
        plant(bucket(), index.encode(structs.replace(said, listed=time.time() - days * index.CURRENT)))
    record, files = near_one(wanted)
    fill(bucket(), [near := (structs.replace(record, recipe="copied"), files)])  # by another tool
    me = Watched(tmp_path / "me", shared=[(storage := Counted(bucket()), "r")])
    found = search(wish(wanted), me.store, me.session.remotes)
    assert found.nearest.known.key == (far if days == 0 else near)[0].key
    assert ("list" in storage.calls) == (days != 0)
    # A key is looked up, and what nobody finds is looked for among the records themselves.
    assert me.session.remotes.find(record.place).shared.record == near[0]
    assert by_key(record.key[:20], me.store, me.session.remotes)[0].key == record.key
    (listed,) = contents(me.session, recipe="copied")
    assert [row.key for row in listed.records] == [record.key]
    fill_whole(tmp_path / "bob", storage := Counted(bucket()), [more := made_from(wanted, **{"training.seed": 65})])
    assert ("list" in storage.calls) == (days != 0)
    assert keys(there(bucket())) == firsts([far, more] if days == 0 else [far, near, more])
    assert there(bucket()).speaks_for_all(bucket())


@pytest.mark.feature("R7")
def test_no_record_is_forgotten_that_a_listing_did_not_come_to(tmp_path, wanted, bucket):
    fill_whole(tmp_path / "ann", bucket(), made := others(wanted, 5))
    said, _ = index.read(bucket(), "")
    plant(bucket(), index.encode(structs.replace(said, listed=0.0)))
    me = Watched(tmp_path / "me", shared=[(bucket(), "r")])
    (remote,) = me.session.remotes.readable
    assert keys(Catalogue(remote, me.store.layout.remotes, Budget(listed=2)).look()) == firsts(made)


@pytest.mark.feature("T5")
def test_who_signs_and_revokes_nothing_reads_no_record_to_be_told_of_one(tmp_path, wanted, memory):
    near, files = near_one(wanted)
    ann = Watched(tmp_path / "ann", shared=[(memory, "rw")], trust=trust(key=ALICE))
    push(ann.store, ann.session.remotes, [publish(ann.store, (near, files))])
    me = Watched(tmp_path / "me", shared=[(storage := Counted(memory), "r")], trust=trust(key=BOB))
    found = search(wish(wanted, reuse_bytes=10**9), me.store, me.session.remotes)
    assert {*storage.calls} <= {"latest", "read", "revision", "stranger"}
    assert storage.calls.count("read") == 1
    (remote,) = me.session.remotes.readable
    assert found.reuse.known.key == found.nearest.known.key == near.key
    assert said_of(remote, [near.place]) == ({near.key: found.nearest.known}, [])


@pytest.mark.feature("T5")
@pytest.mark.parametrize("true", [True, False])
@pytest.mark.parametrize("way", ["keys", "records", "before"])
def test_what_is_revoked_is_told_of_by_no_index_and_hides_nothing_behind_it(tmp_path, wanted, memory, way, true):
    """The index may know of it, or say nothing of signers and digests, and another date."""
    near, files = near_one(wanted)
    good = made_from(wanted, **{"training.max_seq_length": 64, "training.per_device_train_batch_size": 99})
    old = structs.replace(near, provenance=structs.replace(near.provenance, created="2020-01-01T00:00:00+00:00"))
    ann = Watched(tmp_path / "ann", shared=[(memory, "rw")], trust=trust(key=ALICE))
    push(ann.store, ann.session.remotes, [publish(ann.store, (old, files))])
    fill_whole(tmp_path / "bob", memory, [good])
    if not true:
        lies = {"signers": (), "digest": "", "created": good[0].provenance.created}
        rows = [structs.replace(one, **lies) for one in there(memory).rows()]
        plant(memory, index.encode(structs.replace(RemoteIndex().with_(rows), change="a" * 12)))
    revoked = {"keys": [key(ALICE).fingerprint], "records": [old.digest], "before": "2021-01-01"}
    said = trust(key=BOB, revoked={way: revoked[way]})
    me = Watched(tmp_path / "me", shared=[(memory, "r")], trust=said)
    found = search(wish(wanted, reuse_bytes=10**9), me.store, me.session.remotes)
    assert found.nearest.known.key == found.reuse.known.key == good[0].key
    assert "revoked" in found.looked[0].untrusted
    (remote,) = me.session.remotes.readable
    assert said_of(remote, [old.place]) == ({}, [old.place])
    with pytest.raises(UntrustedError, match="is not used"):
        by_key(old.key[:16], me.store, me.session.remotes)


def test_a_record_that_somebody_removed_goes_from_it_with_the_next_push(tmp_path, wanted, make):
    made = others(wanted, 3)
    fill_whole(tmp_path / "ann", make(), made[:2])
    yesterday(make())
    storage, path = make(), layout.record_path(made[0][0].place)
    found = storage.read(path, storage.revision(), 1 << 20)
    storage.commit(Commit(title(), writes=[Write(path, None, found.token)]), storage.revision())
    fill_whole(tmp_path / "bob", make(), made[2:])
    assert keys(there(make())) == firsts(made[1:])


def test_a_remote_with_more_records_than_a_push_reads_is_indexed_by_several(wanted, memory):
    made = others(wanted, 6)
    fill(memory, made[:4])
    small = Survey(memory, memory.revision(), Budget(read=3), RemoteIndex())
    part = small.read(memory.list(layout.RECORDS, ""))
    assert (len(part), part.unread, history.after(part, memory.latest())) == (3, 1, None)
    whole = Survey(memory, memory.revision(), Budget(read=3), part).read(memory.list(layout.RECORDS, ""))
    assert (len(whole), whole.unread) == (4, 0)


def test_of_records_that_are_read_side_by_side_one_at_a_time_is_made_values_of(wanted, memory, monkeypatch):
    """Each may be small as it lies there, and take hundreds of megabytes then."""
    fill(memory, others(wanted, 6))
    read, inside, most = documents.read, [], []

    def watched(*of):
        inside.append(of)
        most.append(len(inside))
        time.sleep(0.01)
        found = read(*of)
        inside.pop()
        return found

    monkeypatch.setattr(documents, "read", watched)
    Survey(memory, memory.revision(), Budget(), RemoteIndex()).read(memory.list(layout.RECORDS, ""))
    assert most == [1] * 6


@pytest.mark.feature("R7")
def test_a_remote_that_is_gone_hides_nothing_of_the_others(tmp_path, wanted, memory):
    fill(memory, others(wanted, 1))
    gone = FolderStorage(tmp_path / "gone")
    told = contents(Watched(tmp_path / "me", shared=[(gone, "r"), (memory, "r")]).session)
    assert [(one.remote, len(one.records), one.unanswered is None) for one in told] == [
        (gone.name, 0, False),
        (memory.name, 1, True),
    ]
    assert (told[0].demands, told[1].demands) == (None, ""), "nobody knows what it demands"
    # The first one's reason is the command's error, and told once; a second one's stands among the rest.
    assert gone.name not in " ".join(_listed(told))
    lost = FolderStorage(tmp_path / "lost")
    both = contents(Watched(tmp_path / "you", shared=[(gone, "r"), (memory, "r"), (lost, "r")]).session)
    assert f"{lost.name} could not be asked: it cannot be used: No such file" in " ".join(_listed(both))
    with pytest.raises(RemoteError):
        contents(Watched(tmp_path / "me", shared=[(gone, "r")]).session)


def test_what_it_says_now_counts_and_not_what_it_said_before(tmp_path, wanted, memory):
    """A record that was written again, or a lie that somebody took back."""
    fill(memory, made := others(wanted, 2))
    old = Known.of(made[0][0])
    me = Watched(tmp_path / "me", shared=[(memory, "r")])
    (remote,) = me.session.remotes.readable
    for by in ("before", "now"):
        said = structs.replace(old, by=by)
        plant(memory, index.encode(structs.replace(RemoteIndex().with_([said]), change="b" * 12)))
        found = Catalogue(remote, me.store.layout.remotes).look(anew=True)
        assert {one.key: one.by for one in found.rows()}[old.key] == by
        assert len(found) == 2, "what it lacks is read, or remembered"


def test_what_is_written_is_what_was_known(wanted):
    known = [Known.of(record) for record, _ in others(wanted, 40)]
    hard = {**known[0].hard, "training.optim": None, "x": [1, {"y": True}], "one": 1, "true": True}
    known.append(structs.replace(known[0], hard=hard, key=key_of(hard), signers=("SHA256:a", "SHA256:b"), recipe="é\n"))
    made = structs.replace(RemoteIndex().with_(known), change="c" * 12)
    read = index.decode(index.encode(made))
    assert list(read.rows()) == known
    assert read.change == made.change
    # A record is named once, by what was said last.
    renamed = structs.replace(known[3], recipe="renamed")
    again = index.decode(index.encode(read.with_([renamed])))
    assert sorted(one.recipe for one in again.rows()) == sorted(one.recipe for one in [*known[:3], renamed, *known[4:]])
    assert read.with_(known) is read, "nothing new"
    assert list(read.only({index.short_path(known[-1].place)}).rows()) == [known[-1]]


@pytest.mark.parametrize("kind", ["memory", "bucket"])
def test_many_that_push_at_once_lose_nothing(tmp_path, wanted, memory, bucket, kind):
    """Threads here; processes with homes of their own in `test_sharing_campaign`."""
    made, shared = others(wanted, 12), memory if kind == "memory" else bucket()
    push_side_by_side(tmp_path, shared, made)
    assert keys(there(shared)) == firsts(made)
    assert history.after(there(shared), shared.latest()) or there(shared).speaks_for_all(shared)


def test_a_push_that_was_killed_before_it_adds_the_rows_when_it_is_run_again(tmp_path, wanted):
    class Killed(Counted):
        def commit(self, change, revision):
            if any(write.path == layout.INDEX for write in change.writes):
                raise KeyboardInterrupt
            return self._storage.commit(change, revision)

    memory = MemoryRemote()
    record, files = made_from(wanted)
    (short, *_), module = record.modules, "standin-1.0/MODULE_2"
    for made in (record, structs.replace(record, modules=(short, structs.replace(short, name=module)))):
        for storage in (Killed(memory), memory):
            ann = Watched(tmp_path / "ann", shared=[(storage, "rw")])
            publish(ann.store, (made, files))
            with suppress(KeyboardInterrupt):
                push(ann.store, ann.session.remotes, [made])
        assert there(memory).tells_of(Known.of(made))


@pytest.mark.parametrize("when", ["before it reads the index", "before it writes the index"])
def test_a_slower_push_leaves_the_row_of_one_that_added_to_the_same_record(tmp_path, wanted, bucket, when):
    record, files = made_from(wanted)
    (first,) = record.modules
    more = structs.replace(record, modules=(first, structs.replace(first, name="standin-1.0/MODULE_2")))

    class Late(Counted):
        def faster(self):
            if "late" not in self.calls:
                self.calls.append("late")
                fill_whole(tmp_path / "bob", bucket(), [(more, files)])

        def read(self, path, revision, limit):
            if path == layout.INDEX and "read" in when and "written" in self.calls:
                self.faster()
            return self._storage.read(path, revision, limit)

        def commit(self, change, revision):
            if any(write.path == layout.INDEX for write in change.writes):
                self.faster()
            self.calls.append("written")
            return self._storage.commit(change, revision)

    fill_whole(tmp_path / "ann", Late(bucket()), [(record, files)])
    assert [one.modules for one in there(bucket()).rows()] == [2]


def test_a_push_of_another_record_leaves_the_row_of_one_that_somebody_added_to_meanwhile(tmp_path, wanted, bucket):
    record, files = made_from(wanted)
    (first,) = record.modules
    more = structs.replace(record, modules=(first, structs.replace(first, name="standin-1.0/MODULE_2")))
    fill_whole(tmp_path / "ann", bucket(), [(record, files)])

    class Slow(Counted):
        def upload(self, *arguments):
            fill_whole(tmp_path / "bob", bucket(), [(more, files)])
            return self._storage.upload(*arguments)

    fill_whole(tmp_path / "ann", Slow(bucket()), [(record, files), make_record(9, ("another",))])
    assert {one.key: one.modules for one in there(bucket()).rows()}[record.key] == 2


def test_a_record_that_somebody_removed_and_that_comes_back_smaller_has_the_row_of_what_it_is(tmp_path, wanted, bucket):
    record, files = made_from(wanted)
    (first,) = record.modules
    more = structs.replace(record, modules=(first, structs.replace(first, name="standin-1.0/MODULE_2")))
    fill_whole(tmp_path / "ann", bucket(), [(more, files)])
    path = layout.record_path(record.place)
    gone = Write(path, None, bucket().read(path, "", 1 << 20).token)
    bucket().commit(Commit(f"cachekit: x [{'a' * 12}]", writes=[gone]), "")
    fill_whole(tmp_path / "bob", bucket(), [(record, files)])
    assert [one.modules for one in there(bucket()).rows()] == [1]


def test_who_loses_each_race_for_it_adds_the_row_once_the_record_is_there(tmp_path, wanted):
    class Late(Counted):
        def commit(self, change, revision):
            if layout.INDEX in {write.path for write in change.writes} and (turn := next(turns)) < 2 * publishing.TRIES:
                plant(self._storage, index.encode(structs.replace(there(self._storage), change=f"{turn:012}")))
            return self._storage.commit(change, revision)

    turns, memory = itertools.count(), MemoryRemote()
    member = Watched(tmp_path / "ann", shared=[(Late(memory), "rw")])
    (done,) = push(member.store, member.session.remotes, [publish(member.store, made := others(wanted, 1)[0])])
    assert (done.error, done.index) == (None, layout.INDEX)
    assert keys(there(memory)) == firsts([made])


@pytest.mark.parametrize("how", ["hub ls", "why KEY"])
def test_remotes_are_asked_at_the_same_time(tmp_path, wanted, how):
    together = threading.Barrier(2)  # one that is asked alone waits for the other in vain

    class Asked(Counted):
        def revision(self):
            together.wait(60)
            return self._storage.revision()

    remotes = []
    for number, one in enumerate(others(wanted, 2)):
        remotes.append(memory := MemoryRemote(scarce=True))
        memory.name = f"memory-{number}"
        fill_whole(tmp_path / memory.name, memory, [one])
    me = Watched(tmp_path / "me", shared=[(Asked(memory), "r") for memory in remotes])
    key = others(wanted, 2)[1][0].key
    if how == "hub ls":
        assert [len(there.records) for there in contents(me.session)] == [1, 1]
    else:
        assert by_key(key[:20], me.store, me.session.remotes)[1] == "memory-1"


def test_the_index_is_renewed_before_the_history_no_longer_reaches_back_to_it(tmp_path, wanted, memory, monkeypatch):
    monkeypatch.setattr(derived, "LATE", 3)
    monkeypatch.setattr(derived, "SHORT", 0)
    made = others(wanted, 9)
    for number, one in enumerate(made):
        fill_whole(tmp_path / f"home-{number}", memory, [one])
        assert keys(there(memory)) == firsts(made[: number + 1])
    renewed = [change.message == history.WHOLE for change in memory.latest()]
    assert renewed == [True, False, False, False, True, False, False, False, True]


@pytest.mark.campaign
@pytest.mark.feature("R7")
@pytest.mark.parametrize("size", [3_000])
def test_a_push_of_one_record_beside_many_and_questions_ask_and_send_little(tmp_path, wanted, size):
    zoo = [
        Watched(tmp_path / "any").prepare(recipe(batch=batch, max_seq_length=512, gradient_accumulation_steps=4))
        for batch in range(200, 240)
    ]
    recorded = [made_from(prepared)[0] for prepared in zoo[:30]]
    with serve("hub", tmp_path / "server") as make:
        made = [*recorded, *(record for record, _ in others(wanted, size - len(recorded)))]
        storage, mark = make(), "a" * 12
        document = index.encode(structs.replace(RemoteIndex().with_(map(Known.of, made)), change=mark))
        writes = [Write(layout.record_path(one.place), documents.Shared(one).document, "") for one in recorded]
        writes.append(Write(layout.INDEX, document, ""))
        change = Commit(f"cachekit: x [{mark}]", writes=writes, message=history.WHOLE)
        storage.commit(change, storage.revision())
        make.hub.log.clear()
        near, files = near_one(wanted)
        fill_whole(tmp_path / "ann", make(), [(near, files)])
        requests = [entry for entry in make.hub.requests if entry.kind != "xet"]
        assert len(requests) <= 6
        assert sum(entry.sent + entry.received for entry in requests) < 3 * near.size + 100_000
        # The nearest came since the index was renewed, so the last commits are asked for; the second question finds
        # what the first one learned, as nobody wrote there meanwhile.
        for prepared, most in ((wanted, 4), (Watched(tmp_path / "any").prepare(recipe(batch=9)), 2)):
            make.hub.log.clear()
            me = Watched(tmp_path / "me", shared=[(make(), "r")])
            assert me.session.remotes.find(prepared.place) is None
            found = search(wish(prepared), me.store, me.session.remotes)
            assert found.nearest.known.key == near.key
            assert len(make.hub.requests) <= most
            assert sum(entry.sent for entry in make.hub.requests) < 300_000
        # Of a machine that asks for the first time.
        zoo_of = [(str(number), lambda one=one: one) for number, one in enumerate(zoo)]
        questions = {
            "coverage": lambda session: coverage_of_all(session, zoo_of, skip=False, certain=False).covered,
            "hub ls": lambda session: sum(len(there.records) for there in contents(session)),
            "why KEY": lambda session: with_nearest(session, near.key[:16])[1].key,
        }
        answers = {}
        for name, ask in questions.items():
            make.hub.log.clear()
            answers[name] = ask(Watched(tmp_path / name, shared=[(make(), "r")]).session)
            # What is told as there may be used: for that, whose the token is is asked once a day.
            more = name == "coverage" and any("whoami" in entry.path for entry in make.hub.requests)
            assert len(make.hub.requests) <= 4 + more, name
            assert sum(entry.sent for entry in make.hub.requests) < 300_000, name
        assert answers == {"coverage": 30, "hub ls": size + 1, "why KEY": near.key}
