"""The index of the records: the same answers as reading each of them, whatever becomes of either."""

import shutil
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from cachekit.errors import IntegrityError
from cachekit.key.canonical import canonical_json, difference, key_of
from cachekit.key.nearest import distance
from cachekit.store.gc import Keep
from cachekit.store.layout import Place
from cachekit.store.record import encode, sealed, serialise, to_document
from cachekit.verbs.entry import find as find_by_key
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
from tests.support.standins import Watched, make_record, publish


def test_what_is_known_is_not_read_again(home, settled, reads):
    fill(home)
    first = listed(opened(home))
    assert len(reads) == 5
    assert listed(opened(home)) == first == plainly(home)
    assert len(reads) == 5
    put(home, made(9))
    again = opened(home)
    assert len(listed(again)) == len(listed(again)) == 6
    assert len(reads) == 6, "one more record is one more to read, once"


def test_a_record_of_this_moment_is_looked_at_again_where_it_must_be_exact(home):
    path = put(home, made(1, recipe="r000"))
    store = opened(home)
    for number in range(1, 30):
        assert [each.recipe for each in store.refresh(exact=True).rows()] == [f"r{number - 1:03}"]
        with path.open("r+b") as target:  # the same size and inode, and most often the same tick
            target.write(encode(made(1, recipe=f"r{number:03}")))


def test_another_schema_is_read_once_and_is_not_listed(home, settled, reads):
    record = made(1)
    path = put(home, record)
    path.write_bytes(serialise(sealed("record", to_document(record)["record"] | {"schema": 2})))
    assert listed(opened(home)) == listed(opened(home)) == []
    assert len(reads) == 1
    assert path.exists()
    put(home, record)
    assert find_by_key(opened(home), record.key) == record


def test_damage_that_came_later_is_met_by_whoever_reads_the_record_or_must_be_exact(home, settled):
    records = fill(home, 3)
    assert len(listed(opened(home))) == 3
    paths = [opened(home).layout.record(record.place) for record in records]
    for path in paths[:2]:
        path.write_bytes(b"x" * path.stat().st_size)
    watched = Watched(home)
    with pytest.raises(IntegrityError, match=f"the store's record {records[0].key[:12]} cannot be used"):
        find_by_key(watched.store, records[0].key)
    assert len(watched.damage()) == 1, "whoever reads it finds out"
    assert len(watched.store.rows()) == 1, "one of them was set aside, so all files of the folder are looked at"
    assert len(watched.store.rows()) == 1
    paths[2].write_bytes(b"x" * paths[2].stat().st_size)
    assert len(watched.store.rows()) == 1
    assert listed(watched.store, exact=True) == []


def test_what_records_needed_that_are_gone_makes_room(home):
    watched = Watched(home)
    for number in range(20):
        publish(watched.store, make_record(number, (f"own {number}",)))
    before = listed(watched.store)
    watched.gc(Keep(max_size=sum(row.bytes for row in watched.store.rows()) // 2))
    after = listed(watched.store)
    assert 0 < len(after) < 20
    assert set(after) < set(before), "what others need stays"
    watched.gc(Keep(max_size=0))
    with closing(sqlite3.connect(watched.store.layout.index)) as database:
        sizes = [database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("part", "whole", "named")]
    assert sizes == [0, 0, 0]


def test_records_are_listed_the_youngest_first_then_by_their_keys(home):
    for number, day in enumerate((3, 1, 2, 2, 1)):
        record = made(number)
        put(home, structs.replace(record, provenance=structs.replace(record.provenance, created=f"2026-01-0{day}")))
    order = [(row.created, row.key) for row in opened(home).listed()]
    assert len(order) == 5
    assert order == sorted(order, reverse=True)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "publish", "delete", "damage", "index", "folder", "again"]),
        st.integers(0, 4),
        st.text("ab"),
    ),
    max_size=12,
)


@pytest.mark.campaign
@settings(max_examples=15)
@given(STEPS)
def test_each_change_is_seen_at_once(many_folders, steps):
    home = many_folders() / "home"
    old = opened(home)
    fill(home, 2)
    for what, number, words in steps:
        directory = f"standin-{number % 2}"
        path = old.layout.record(Place(directory, "bert", made(number).key))
        if what == "put":
            put(home, made(number, directory=directory, recipe=words))
        elif what == "publish":
            opened(home).publish(made(number, directory=directory, recipe=words), {})
        elif what == "damage" and path.exists():
            path.chmod(0o644)
            path.write_bytes(path.read_bytes()[:-9])
        elif what == "delete":
            path.unlink(missing_ok=True)
        elif what == "folder":
            shutil.rmtree(old.layout.records / directory, ignore_errors=True)
        elif what == "index":
            old.layout.index.unlink(missing_ok=True)
        elif what == "again":
            old = opened(home)
        assert listed(old, exact=what == "damage") == listed(opened(home)) == plainly(home)


# The nearest

VALUES = st.one_of(st.none(), st.booleans(), st.integers(0, 2), st.sampled_from([0.0, 1.0, 0.5, "a", "1"]))
VALUES |= st.lists(VALUES, max_size=2)
SETS = st.dictionaries(
    st.sampled_from(["model.a", "model.b", "training.a", "target.a", "compiler.a", "toolchain.a", "a", "b"]), VALUES
)


@settings(max_examples=40)
@given(SETS, st.lists(st.tuples(SETS, st.sampled_from("ab")), max_size=6))
def test_records_are_ranked_by_distance_and_number_of_changes(many_folders, wanted, candidates):
    home = many_folders() / "home"
    records = {key_of(hard): made(0, hard=hard, key=key_of(hard), model_type=kind) for hard, kind in candidates}
    for record in records.values():
        path = opened(home).layout.record(record.place)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(record))
    found = list(opened(home).around(wanted).nearest())

    def rank(key):
        changes = difference(records[key].hard, wanted)
        return distance(changes), len(changes), records[key].model_type, key

    assert [near.row.key for near in found] == sorted(records, key=rank)
    for near in found:
        assert (near.distance, canonical_json(near.hard)) == (
            rank(near.row.key)[0],
            canonical_json(records[near.row.key].hard),
        )

    def job(hard):
        return canonical_json({name: value for name, value in hard.items() if not name.startswith("toolchain.")})

    same = {one.row.key for one in opened(home).around(wanted).same_job()}
    assert same == {key for key, record in records.items() if job(record.hard) == job(wanted)}


def test_the_nearest_of_a_compiler_and_of_its_directory(home):
    for number, (compiler, directory) in enumerate([("x", "x-1"), ("x", "x-2"), ("y", "y-1")]):
        put(home, made(number, compiler=compiler, directory=directory))
    store = opened(home)
    assert {near.row.directory for near in store.around({}).nearest(compiler="x")} == {"x-1", "x-2"}
    assert {near.row.directory for near in store.around({}).nearest(directory="y-1")} == {"y-1"}
