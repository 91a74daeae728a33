"""Where records came from: kept beside them from their first moment to their last, and passed on."""

import pytest

from cachekit.events import Journal
from cachekit.store import Store
from cachekit.store.gc import Keep, gc
from cachekit.store.origin import MADE_HERE, UNKNOWN, Beside, Origin, ReusedOrigin
from cachekit.store.removal import Remover, Victim
from cachekit.store.verify import verify
from tests.support.standins import make_record, publish

FROM_TEAM = Beside(Origin("hf://team/cache", "signed", ("SHA256:ann",)), ({"payload": "x"},))


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store", Journal(None, "test"))


def note_of(store, record):
    return store.layout.origin(record.place)


def test_a_fetched_record_keeps_where_it_came_from(store):
    record = publish(store, make_record(), beside=FROM_TEAM)
    assert store.origins.of(record) == FROM_TEAM
    publish(store, make_record())  # repaired with its own bytes
    assert store.origins.of(record) == FROM_TEAM


def test_what_comes_from_elsewhere_while_its_note_is_looked_for_keeps_where_it_came_from(store, monkeypatch):
    record = publish(store, make_record(1))
    look, looks = store.origins._read, []

    def looked(path):
        note = look(path)
        if not looks:
            publish(store, make_record(1), beside=FROM_TEAM)
        looks.append(path)
        return note

    monkeypatch.setattr(store.origins, "_read", looked)
    assert store.origins.of(record) == FROM_TEAM


def test_what_is_added_to_it_here_reuses_it(store):
    theirs = publish(store, make_record(1, ("a", "b")), beside=FROM_TEAM)
    more = publish(store, make_record(1, ("a", "b", "c")))
    made = theirs.provenance.created
    reused = ReusedOrigin(theirs.key, theirs.digest, "hf://team/cache", "signed", ("SHA256:ann",), made)
    assert store.origins.of(more) == Beside(Origin(reused=(reused,)))
    assert store.origins.of(theirs) == FROM_TEAM, "until the new record lies there, the old one's must be told"


def test_a_record_that_was_replaced_twice_still_tells_where_it_came_from(store):
    """Whoever looked it up before is about to use it."""
    theirs = publish(store, make_record(1, "a"), beside=FROM_TEAM)
    mine = publish(store, make_record(2, "z"))
    for names in ("ab", "abc"):
        publish(store, make_record(1, names))
        publish(store, make_record(2, names.replace("a", "z")))
    found = store.origins.of(theirs).origin
    assert (found.remote, found.how, found.signers) == ("hf://team/cache", "signed", ("SHA256:ann",))
    found = store.origins.of(mine).origin
    assert {found.how, *(one.how for one in found.reused)} == {"here"}


def test_a_new_compile_in_its_place_owes_it_nothing(store):
    publish(store, make_record(1, ("a", "b")), beside=FROM_TEAM)
    assert store.origins.of(publish(store, make_record(1, ("c", "d")))) == MADE_HERE


def test_of_a_record_that_is_gone_nobody_knows_whether_it_was_made_here(store):
    record = publish(store, make_record(), beside=FROM_TEAM)
    row = store.refresh().row(record.place)
    Remover(store).records([Victim(row, row.published + 1e9, "named")])
    assert store.origins.of(record) == UNKNOWN


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"of": 7}', b'{"of": {"x": {}}}', b"[" * 100_000, b"\xff"])
def test_a_damaged_note_is_no_good_word(store, damage):
    record = publish(store, make_record(), beside=FROM_TEAM)
    note_of(store, record).chmod(0o600)
    note_of(store, record).write_bytes(damage)
    assert store.origins.of(record) == UNKNOWN


def test_the_note_goes_with_the_record(store):
    record = publish(store, make_record(), beside=FROM_TEAM)
    row = store.refresh().row(record.place)
    Remover(store).records([Victim(row, row.published + 1e9, "named")])
    assert not any(store.layout.trust.rglob("*"))


def test_gc_counts_it_and_takes_it_once_its_record_is_gone(store, tmp_path):
    record = publish(store, make_record(), beside=FROM_TEAM)
    whole = sum(
        path.stat().st_size for path in store.layout.root.rglob("*") if path.is_file() and "v1/index" not in str(path)
    )
    done = gc(store, tmp_path / "cache_dirs", Keep())
    assert (done.files, done.before) == ((), whole)
    store.layout.record(record.place).unlink()
    assert verify(store, tmp_path / "cache_dirs", "there", lambda _: None).garbage.files == 2, "with the record's lock"
    gc(store, tmp_path / "cache_dirs", Keep())
    assert not note_of(store, record).exists()


def test_gc_leaves_the_note_of_a_record_that_comes_meanwhile(store, tmp_path):
    record, _ = made = make_record()
    publish(store, made, beside=FROM_TEAM)
    hidden = store.layout.record(record.place).rename(tmp_path / "hidden")
    from cachekit.store.garbage import garbage

    found = garbage(store.layout, tmp_path / "cache_dirs", set())
    hidden.rename(store.layout.record(record.place))
    Remover(store).garbage(found)
    assert store.origins.of(record) == FROM_TEAM
