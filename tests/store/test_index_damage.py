"""An index that is damaged, or is none, and records that are: neither costs more than time."""

import shutil
import sqlite3
import threading
import time
from contextlib import closing
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from cachekit.errors import StoreError
from cachekit.store import index_rows
from cachekit.store.gc import Keep
from cachekit.store.index import Index
from cachekit.store.layout import Place
from cachekit.verbs.plan import plan
from cachekit.verbs.verify import verify
from cachekit.verbs.warm import warm
from tests.store.index_cases import (  # noqa: F401 - fixtures
    fill,
    in_short,
    listed,
    made,
    opened,
    plainly,
    put,
    reads,
    settled,
)
from tests.store.store_cases import home  # noqa: F401 - a fixture
from tests.support.doctor_cases import another_user, public  # noqa: F401 - a fixture
from tests.support.standins import Watched, make_record, publish, recipe

DAMAGED = [
    "DELETE FROM named WHERE record % 2",
    "UPDATE named SET digest = digest || x'00' WHERE record = 1",
    "UPDATE named SET size = size + 1 WHERE record = 1",
    "UPDATE record SET parts = 'x'",
    "UPDATE record SET parts = '[1, 99999]'",
    "UPDATE record SET recipe = 'another' WHERE id = 1",
    "UPDATE record SET usable = 0",
    "DELETE FROM part WHERE id % 2",
    "UPDATE part SET body = '{' || id",
    "UPDATE folder SET common = '{'",
    "UPDATE folder SET common = '[]'",
    "DELETE FROM folder",
]


@pytest.mark.feature("S1")
@pytest.mark.parametrize("how", ["UPDATE record SET size = 1099511627776", "UPDATE named SET digest = x'00' || digest"])
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_damaged_index_does_not_decide_how_much_goes(home, settled, how, dry_run):
    for number in range(4):
        publish(opened(home), make_record(number))
    listed(opened(home))
    before = Watched(home).gc(Keep(), dry_run=True).before
    with closing(sqlite3.connect(opened(home).layout.index, isolation_level=None)) as database:
        assert database.execute(how).rowcount > 0
    done = Watched(home).gc(Keep(max_size=1 << 30), dry_run=dry_run)
    assert (done.records, done.files, done.before) == ((), (), before)
    assert len(listed(opened(home))) == 4


@pytest.mark.feature("S1")
def test_nothing_is_removed_and_nothing_fails_by_a_damaged_index_that_sqlite_can_read(home, settled):
    """SQLite has no checksums: what a bad disk or somebody's hand has changed looks like any other row."""
    records = [publish(opened(home), make_record(number)) for number in range(4)]
    expected = listed(opened(home))
    blobs = sorted(opened(home).layout.blobs.rglob("*"))

    def damage(how):
        with closing(sqlite3.connect(opened(home).layout.index, isolation_level=None)) as database:
            assert database.execute(how).rowcount > 0, how

    for how in DAMAGED:
        damage(how)
        watched = Watched(home)
        assert len(list(watched.store.around(records[0].hard).nearest())) <= 4, how
        assert len(watched.store.listed()) <= 4, how
        watched.store.layout.index.unlink(missing_ok=True)
        listed(opened(home))
        damage(how)
        assert watched.gc(Keep()).bytes == 0, how
        assert sorted(watched.store.layout.blobs.rglob("*")) == blobs, how
        assert not verify(watched.session, quick=True).problems, how
        assert listed(opened(home)) == expected, how


def test_a_record_that_goes_while_the_nearest_is_searched_for_harms_no_search(home, monkeypatch):
    records = [publish(opened(home), make_record(number, (f"own {number}",))) for number in range(3)]
    searcher, other = Watched(home), Watched(home)
    file = searcher.store.layout.index.stat().st_ino
    parts = Index._parts
    waited = []

    def slow(index, numbers):
        if not waited:
            waited.append(threading.Thread(target=other.gc, args=(Keep(max_size=0),)))
            waited[0].start()
            time.sleep(0.3)  # it has all that it needs but the index
        return parts(index, numbers)

    monkeypatch.setattr(Index, "_parts", slow)
    found = [near.hard for near in searcher.store.around(records[0].hard).nearest()]
    waited[0].join()
    assert all(hard in [record.hard for record in records] for hard in found)
    assert searcher.store.rows() == []
    assert searcher.store.layout.index.stat().st_ino == file, "the index was not taken for damaged"


def test_what_is_published_while_checksums_are_compared_is_no_damage(home, monkeypatch):
    store, other = opened(home), Watched(home).store
    for number in range(3):
        publish(store, make_record(number))
    file = store.layout.index.stat().st_ino
    waited = []

    def slow(*values):
        if not waited:
            waited.append(threading.Thread(target=publish, args=(other, make_record(9, ("another",)))))
            waited[0].start()
            time.sleep(0.3)
        return crc32(*values)

    monkeypatch.setattr(index_rows, "crc32", slow)
    store.refresh(exact=True, checked=True)
    waited[0].join()
    assert len(store.rows()) == 4
    assert store.layout.index.stat().st_ino == file


def test_numbers_that_sqlite_has_not_harm_no_index(home, settled):
    good = put(home, made(1))
    put(home, structs.replace(made(2), compile_seconds=-0.0))
    large = structs.replace(made(3), graphs=1 << 63)
    path = put(home, large)
    store = opened(home)
    file = store.refresh(exact=True, checked=True) and store.layout.index.stat().st_ino
    assert len(store.refresh(exact=True, checked=True).keys()) == 3
    assert [row.key for row in store.rows()] == sorted({made(1).key, made(2).key})
    assert store.layout.index.stat().st_ino == file
    assert good.exists()
    assert not path.exists(), "it is damaged, and was set aside"


def test_an_index_with_a_text_that_is_none_is_made_anew(home):
    fill(home, 2)
    expected = listed(opened(home))
    path = opened(home).layout.index
    path.write_bytes(path.read_bytes().replace(b"bert", b"ber\xff"))
    assert listed(opened(home)) == expected
    assert b"ber\xff" not in path.read_bytes()


@settings(max_examples=25)
@given(st.data())
def test_a_damaged_index_does_no_harm(many_folders, data):
    """Cut off, or with pages of another file: it is made anew, or says what it said."""
    home = many_folders() / "home"
    fill(home, 2)
    expected = listed(opened(home))
    path = opened(home).layout.index
    raw = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(raw) // 4096 - 1)) * 4096
        raw[at : at + 4096] = data.draw(st.sampled_from([bytes(4096), b"\xff" * 4096, raw[:4096]]))
    else:
        del raw[data.draw(st.integers(0, len(raw) - 1)) :]
    path.write_bytes(raw)
    shutil.rmtree(opened(home).layout.records / "standin-1.0" / "bert" / "none", ignore_errors=True)
    put(home, made(5))
    assert listed(opened(home), exact=True) == plainly(home) != expected


@pytest.mark.parametrize("instead", [b"", b"\0" * 4000, b"text", "a folder", "another version"])
def test_what_is_no_index_does_not_disturb(home, instead):
    fill(home, 3)
    place = opened(home).layout.index
    if instead == "a folder":
        place.mkdir()
    elif instead == "another version":
        listed(opened(home))
        with closing(sqlite3.connect(place)) as database:
            database.execute("PRAGMA user_version = 99")
            database.execute("DROP TABLE record")
    else:
        place.write_bytes(instead)
    assert listed(opened(home)) == plainly(home)


def test_a_plan_passes_over_a_near_record_that_was_damaged_since(home, settled):
    watched = Watched(home)
    near = warm(watched.session, watched.prepare(recipe(8))).record
    far = warm(watched.session, watched.prepare(recipe(8, max_seq_length=64))).record
    wanted = watched.prepare(recipe(16))
    assert plan(wanted, Watched(home).store).nearest.record == near
    path = watched.store.layout.record(near.place)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-3])
    other = Watched(home)
    assert plan(wanted, other.store).nearest.record == far
    assert len(other.damage()) == 1
    assert not path.exists()


# References


def test_nothing_is_removed_while_a_folder_of_records_cannot_be_read(public):
    watched = Watched(public / "home")
    publish(watched.store, make_record(1))
    folder = watched.store.layout.record(Place("standin-1.0", "bert", "x")).parent
    folder.chmod(0o700)
    with another_user(), pytest.raises(StoreError, match="cannot be read"):
        Watched(public / "home").store.refresh(exact=True)


# Many at once, and killed ones
